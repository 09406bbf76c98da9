//! Result of opening a store, for its caller.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::options::BudgetSource;
/// Result of opening a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// Whether the store was created.
    pub created: bool,
    /// Logs read.
    pub logs: u64,
    /// Batches replayed.
    pub batches: u64,
    /// Entries of these batches that were not in tables.
    pub entries: u64,
    /// Memtable flushes during the replay.
    pub flushes: u64,
    /// The memory budget, in bytes.
    pub memory_budget: u64,
    /// Source of the memory budget.
    pub memory_budget_from: BudgetSource,
    /// The error of a full disk that prevented rewriting the logs; nothing was lost.
    pub full_disk: Option<String>,
    /// Whether the file system refuses to sync directories (`EINVAL`, like CIFS): a power loss may remove new file
    /// names. This is detected when a store is created or logs are replayed.
    pub directory_syncs_refused: bool,
    /// Distance between the clock and the newest bucket boundary, if it exceeds the time to live: the clock may be
    /// wrong. Entries that have expired by this clock are hidden. They are removed, and new entries start to expire,
    /// once the clock has advanced evenly for one bucket.
    pub clock_leap: Option<Duration>,
    /// The state that a read-only handle sees; `None` for writers.
    pub as_of: Option<AsOf>,
    /// Torn tails of files, which were never durable and were dropped.
    pub dropped: Vec<DroppedTail>,
    /// Unused files in the directory. Opening for writing removes leftovers of earlier work. It keeps a file that a power
    /// loss has left without its header, because another program may have written it.
    pub ignored: Vec<IgnoredFile>,
}

impl OpenReport {
    pub(in crate::db) fn log(&self, dir: &Path) {
        for dropped in &self.dropped {
            let DroppedTail { file, offset, bytes, reason } = dropped;
            tracing::warn!(file = %file.display(), offset, bytes, reason, "dropped the torn end of a file");
        }
        if let Some(error) = &self.full_disk {
            tracing::warn!(dir = %dir.display(), error, "the disk is full, so the logs were kept");
        }
        if let Some(leap) = self.clock_leap {
            tracing::warn!(dir = %dir.display(), ?leap, "the clock is far beyond the last write: it may be wrong");
        }
        let (logs, batches, entries) = (self.logs, self.batches, self.entries);
        let (created, flushes) = (self.created, self.flushes);
        let (budget, from) = (self.memory_budget, self.memory_budget_from);
        tracing::info!(dir = %dir.display(), created, logs, batches, entries, flushes, budget, ?from, "opened a store");
    }
}

/// The state that a read-only handle sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsOf {
    /// The time by the machine's clock.
    pub time: SystemTime,
    /// Sequence number of the last write.
    pub seqno: u64,
    /// Whether a writer had the store open.
    pub in_use: bool,
    /// Attempts to read a consistent state.
    pub tries: u64,
}

/// The torn tail of a log or manifest after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedTail {
    /// The log or manifest.
    pub file: PathBuf,
    /// End of the last whole record.
    pub offset: u64,
    /// Bytes after the last whole record.
    pub bytes: u64,
    /// The kind of damage.
    pub reason: String,
}

/// An unused file in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredFile {
    /// File name.
    pub name: String,
    /// Why the file is unused.
    pub why: &'static str,
}
