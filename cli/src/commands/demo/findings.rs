//! The results of a demo, from which the report is made.

use std::path::PathBuf;
use std::time::Duration;

use super::measure::Measured;
use super::source::Source;

/// The contents of the report.
pub(super) struct Findings {
    pub(super) dir: PathBuf,
    pub(super) keyspace: String,
    pub(super) source: Source,
    /// Index of the record to try, and an absent key like it.
    pub(super) example: usize,
    pub(super) absent_key: Vec<u8>,
    /// Entries of an earlier run that were deleted first.
    pub(super) deleted: u64,
    pub(super) seed: u64,
    pub(super) load_time: Duration,
    pub(super) loaded: Pair,
    pub(super) compacted: Pair,
    /// Bytes of the store's files at the end.
    pub(super) disk_bytes: u64,
    /// One of its tables.
    pub(super) table: Option<PathBuf>,
    /// The page about the store, if it could be written.
    pub(super) page: Option<PathBuf>,
}

/// The same data and the same tree, with filters and without.
pub(super) struct Pair {
    pub(super) with: Measured,
    pub(super) without: Measured,
}
