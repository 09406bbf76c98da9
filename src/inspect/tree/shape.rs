//! Parts of the shape.

use std::path::PathBuf;
use std::time::Duration;

use crate::counters::FilterCounts;
use crate::expiry::options::TimeSource;
use crate::filter::Kind;
use crate::inspect::output::FileDamage;

/// A store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Tree {
    /// The manifest, or `CURRENT` if it names none.
    pub manifest: PathBuf,
    /// Keyspaces in the order of their ids.
    pub keyspaces: Vec<KeyspaceShape>,
    /// If no keyspace is readable: all tables in the directory, by their own properties.
    pub unplaced: Vec<TableShape>,
    /// The number of each log in the manifest, with the length of its file if it exists. Without a manifest, all logs.
    pub logs: Vec<(u64, Option<u64>)>,
    /// Length of `RESERVE`, if it exists.
    pub reserve: Option<u64>,
    /// Each damage with its file.
    pub damage: Vec<(PathBuf, FileDamage)>,
}

/// The tree of a keyspace.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeyspaceShape {
    /// The id of the keyspace.
    pub id: u32,
    /// The name of the keyspace.
    pub name: String,
    /// Entries up to this sequence number are in tables.
    pub flushed: u64,
    /// The expiry, if entries expire.
    pub expiry: Option<ExpiryShape>,
    /// Runs in lookup order, newest first.
    pub runs: Vec<RunShape>,
}

/// Expiry of a keyspace as the manifest states it; the log has later bucket boundaries. Times are milliseconds since
/// 1970-01-01 UTC, or in the caller's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpiryShape {
    /// Time to live. `None` if it was removed: entries that had expired stay hidden.
    pub ttl: Option<Duration>,
    /// Buckets per time to live.
    pub buckets: u64,
    /// The clock of expiry.
    pub time_source: TimeSource,
    /// Smaller sequence numbers are hidden.
    pub horizon: u64,
    /// When the next entries expire, if known.
    pub next_expiry: Option<u64>,
}

/// The bucket of a run's newest entry. Unknown times are `None`; for their unit see [`ExpiryShape`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketShape {
    /// Start of the bucket.
    pub begins: Option<u64>,
    /// End of the bucket.
    pub ends: Option<u64>,
    /// The time when the entries expire.
    pub expires: Option<u64>,
    /// Whether all entries are hidden.
    pub is_hidden: bool,
}

/// Tables that do not overlap.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunShape {
    /// The level; 0 is the newest.
    pub level: u8,
    /// The number of the run. In level 0, the newest run has the largest number.
    pub run: u64,
    /// The bucket, if entries expire.
    pub bucket: Option<BucketShape>,
    /// Tables in key order.
    pub tables: Vec<TableShape>,
}

/// A table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TableShape {
    /// Number of the file.
    pub number: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Number of distinct user keys.
    pub keys: u64,
    /// Number of key ranges of range deletes.
    pub spans: u64,
    /// Smallest user key, range deletes included; at most 1024 bytes.
    pub smallest: Vec<u8>,
    /// Largest user key, range deletes included; at most 1024 bytes.
    pub largest: Vec<u8>,
    /// Smallest and largest sequence number.
    pub seqnos: (u64, u64),
    /// The filters of the table.
    pub filters: Vec<FilterShape>,
    /// The origin of the entries, if the manifest does not name the table.
    pub origin: Option<OriginShape>,
    /// The residency in an open store, see [`Db::tree`](crate::Db::tree).
    pub residency: Option<Residency>,
}

/// A table and its filter in an open store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residency {
    /// Whether the table is open.
    pub is_open: bool,
    /// Column groups of the filter: 1 for a Bloom filter, 0 before it is read.
    pub filter_column_groups: u64,
    /// Column groups in memory.
    pub loaded_filter_column_groups: u64,
    /// Memory of the filter in bytes, without cached pages.
    pub filter_memory_bytes: u64,
    /// Probes since the table was opened or its filter replaced.
    pub filter: FilterCounts,
}

/// The origin of the entries, as the table states it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OriginShape {
    /// Number of the keyspace.
    pub keyspace: u32,
    /// Name of the keyspace.
    pub name: String,
    /// Numbers of the tables that this table replaced in its range of keys.
    pub replaced: Vec<u64>,
}

/// A filter.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FilterShape {
    /// Number of the separate file, if any.
    pub file: Option<u64>,
    /// Length of the block in bytes.
    pub bytes: u64,
    /// Kind and predicted false-positive rate, if the header is usable.
    pub found: Option<(Kind, f64)>,
}

impl RunShape {
    /// Distinct user keys, summed over all tables.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.tables.iter().fold(0, |sum, table| sum.saturating_add(table.keys))
    }

    /// Total bytes of the files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables.iter().fold(0, |sum, table| sum.saturating_add(table.bytes))
    }

    /// Total bytes of the filters.
    #[must_use]
    pub fn filter_bytes(&self) -> u64 {
        let filters = self.tables.iter().flat_map(|table| &table.filters);
        filters.fold(0, |sum, filter| sum.saturating_add(filter.bytes))
    }

    /// Mean false-positive rate of the tables, weighted by keys. A table without a usable filter counts as 1.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let rate = |table: &TableShape| table.rate() * table.keys as f64;
        self.tables.iter().map(rate).sum::<f64>() / self.keys().max(1) as f64
    }
}

impl TableShape {
    /// Predicted false-positive rate of the probed filter; 1 without a usable filter.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.filters.iter().find_map(|filter| filter.found).map_or(1.0, |found| found.1)
    }
}
