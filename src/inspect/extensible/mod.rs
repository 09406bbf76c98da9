//! Extensible records: tagged fields with a length.

mod items;
mod record;

pub(in crate::inspect) use items::{describe_item, describe_property, range};
pub(in crate::inspect) use record::{count, describe};
