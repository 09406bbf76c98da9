//! The report of an opening: the files it found, the tails it dropped, the files it left alone.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::options::BudgetSource;
/// What opening a store found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// The store was created by this open.
    pub created: bool,
    /// Logs that were read.
    pub logs: u64,
    /// Batches that were replayed from them.
    pub batches: u64,
    /// Entries of those batches that were not in tables yet.
    pub entries: u64,
    /// How often a memtable was flushed during the replay, because the logs held more than the memtables and an eighth of
    /// the memory budget have room for.
    pub flushes: u64,
    /// The memory budget in force, in bytes.
    pub memory_budget: u64,
    /// Why it is that.
    pub memory_budget_from: BudgetSource,
    /// The error of a full disk, if there was no room to write the contents of the logs anew. Then the logs
    /// were kept; nothing of them was lost.
    pub full_disk: Option<String>,
    /// The file system refused to sync the directory, because it syncs none (`EINVAL`, as CIFS does). Then a power loss
    /// may take the names of new files with it, whatever was synced. Noticed when a store is created or its logs are
    /// replayed; a store that was closed is opened without a sync.
    pub directory_syncs_refused: bool,
    /// How far the clock is beyond the newest boundary of a keyspace whose entries expire, if that is more than its time to
    /// live: the clock may be wrong. What has expired by it is hidden. It is removed, and new entries begin to expire, once
    /// the clock has gone on evenly for one bucket of the keyspace.
    pub clock_leap: Option<Duration>,
    /// Which moment of the store a read-only handle sees. `None` for writers.
    pub as_of: Option<AsOf>,
    /// Torn tails of files, which were never promised to be durable and were dropped.
    pub dropped: Vec<DroppedTail>,
    /// Files in the directory that the store does not use, and why. Opening the store for writing removes
    /// those that are left over from earlier work.
    pub ignored: Vec<IgnoredFile>,
}

impl OpenReport {
    /// Writes the report to `tracing`.
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

/// The moment of a store that a read-only handle sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsOf {
    /// When it was, by the clock of the machine.
    pub time: SystemTime,
    /// The sequence number of the last write.
    pub seqno: u64,
    /// A writer had the store open.
    pub in_use: bool,
    /// How often it was tried to see one moment: more than once if the writer was in between.
    pub tries: u64,
}

/// The torn tail of a log or manifest after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedTail {
    /// The file.
    pub file: PathBuf,
    /// Where the last whole record ends.
    pub offset: u64,
    /// Bytes from there to the end of the file.
    pub bytes: u64,
    /// What is wrong there.
    pub reason: String,
}

/// A file in the directory that the store does not use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredFile {
    /// Its name in the directory.
    pub name: String,
    /// Why it was not used.
    pub why: &'static str,
}
