//! The readable part of damaged files, for [`repair`](crate::Options::repair): a table as a sorted stream of entries,
//! a log as its records, a manifest as its state.
//!
//! Imports `output`, `file`, `framed`, `filter_block` and `table`.

mod log;
mod manifest;
mod table;

pub(crate) use log::{LogItem, as_errors, read_log};
pub(crate) use manifest::{ManifestRemains, read_manifest};
pub(in crate::inspect) use manifest::{Records, read_edits};
pub(crate) use table::{TableFacts, TableStream};
