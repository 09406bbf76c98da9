//! The results of a demo.

use std::path::PathBuf;
use std::time::Duration;

use super::measure::Measured;
use super::source::Source;

pub(super) struct Findings {
    pub(super) dir: PathBuf,
    pub(super) keyspace: String,
    pub(super) source: Source,
    pub(super) example: usize,
    pub(super) absent_key: Vec<u8>,
    pub(super) deleted: u64,
    pub(super) seed: u64,
    pub(super) load_time: Duration,
    pub(super) loaded: Pair,
    pub(super) compacted: Pair,
    pub(super) disk_bytes: u64,
    pub(super) table: Option<PathBuf>,
    pub(super) page: Option<PathBuf>,
}

pub(super) struct Pair {
    pub(super) with: Measured,
    pub(super) without: Measured,
}
