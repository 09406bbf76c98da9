//! The readable part of damaged files, for [`repair`](crate::Options::repair).

mod log;
mod manifest;
mod table;

pub(crate) use log::{LogItem, as_errors, read_log};
pub(crate) use manifest::{ManifestRemains, read_manifest};
pub(in crate::inspect) use manifest::{Records, read_edits};
pub(crate) use table::{TableFacts, TableStream};
