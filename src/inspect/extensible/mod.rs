//! Extensible records: fields with a tag and a length, in edits of a manifest and in properties of a table.
//!
//! Imports `output`.

mod items;
mod record;

pub(in crate::inspect) use items::{describe_item, describe_property, range};
pub(in crate::inspect) use record::{count, describe};
