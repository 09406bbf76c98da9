//! Files of records in fragments: the walk over the records, and the records of a log and of a manifest.
//!
//! Imports `output`, `file` and `extensible`.

pub(in crate::inspect) mod log;
pub(in crate::inspect) mod manifest;
mod record;
mod walk;

pub(in crate::inspect) use walk::{FramedItem, ending, walk};
