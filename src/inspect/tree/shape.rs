//! The parts of the shape of a store.

use std::path::PathBuf;
use std::time::Duration;

use crate::counters::FilterCounts;
use crate::expiry::options::TimeSource;
use crate::filter::Kind;
use crate::inspect::output::FileDamage;

/// A store at a glance.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Tree {
    /// The manifest that it was read from; `CURRENT` if there is none.
    pub manifest: PathBuf,
    /// In the order of their ids.
    pub keyspaces: Vec<KeyspaceShape>,
    /// If no keyspace can be read from the manifest: all tables in the directory, as each describes itself.
    pub unplaced: Vec<TableShape>,
    /// The logs that the manifest names, or all if there is none: numbers, and lengths of their files if they
    /// are there.
    pub logs: Vec<(u64, Option<u64>)>,
    /// The length of the file `RESERVE`, if there is one.
    pub reserve: Option<u64>,
    /// An anomaly, and its file.
    pub damage: Vec<(PathBuf, FileDamage)>,
}

/// The tree of a keyspace.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeyspaceShape {
    /// Its number in the store.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// All entries up to this sequence number are in tables.
    pub flushed: u64,
    /// How its entries expire; `None` if they do not.
    pub expiry: Option<ExpiryShape>,
    /// Its runs, in the order of a lookup: the newest first.
    pub runs: Vec<RunShape>,
}

/// How the entries of a keyspace expire, as far as the manifest states it: bucket boundaries since the last flush are in the
/// log. Times are milliseconds since 1970-01-01 UTC, or by the clock of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpiryShape {
    /// The time to live; `None` if it was removed: what has expired stays hidden.
    pub ttl: Option<Duration>,
    /// In how many buckets entries expire during the time to live.
    pub buckets: u64,
    /// The clock.
    pub time_source: TimeSource,
    /// Entries with a smaller sequence number are hidden.
    pub horizon: u64,
    /// When entries are hidden next; `None` if there are none, or if their time is unknown.
    pub next_expiry: Option<u64>,
}

/// The bucket of time in which the newest entry of a run was written. Times as in [`ExpiryShape`]; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketShape {
    /// When it begins.
    pub begins: Option<u64>,
    /// When it ends.
    pub ends: Option<u64>,
    /// When its entries are hidden.
    pub expires: Option<u64>,
    /// All entries of the run are hidden.
    pub is_hidden: bool,
}

/// Tables that do not overlap.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunShape {
    /// From 0, the newest, down.
    pub level: u8,
    /// Its number; on level 0 the newest run has the largest.
    pub run: u64,
    /// Its bucket of time, if the entries of the keyspace expire.
    pub bucket: Option<BucketShape>,
    /// In the order of their keys.
    pub tables: Vec<TableShape>,
}

/// A table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TableShape {
    /// Number of its file.
    pub number: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Distinct user keys.
    pub keys: u64,
    /// Ranges of keys that range deletes hide in older tables.
    pub spans: u64,
    /// Smallest user key, ranges included; of a long one the first 1024 bytes.
    pub smallest: Vec<u8>,
    /// Largest user key, ranges included; of a long one the first 1024 bytes.
    pub largest: Vec<u8>,
    /// Smallest and largest sequence number.
    pub seqnos: (u64, u64),
    /// Its filters.
    pub filters: Vec<FilterShape>,
    /// The table's own statement of its keyspace and of the tables that it replaced; only for a table that the
    /// manifest does not name, and `None` if it has no such statement.
    pub origin: Option<OriginShape>,
    /// Its state in memory, if the shape is of an open store: [`Db::tree`](crate::Db::tree).
    pub residency: Option<Residency>,
}

/// The part of a table that is in memory, and the answers of its filter, in an open store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residency {
    /// Whether the table is open.
    pub is_open: bool,
    /// Column groups of its filter. A Bloom filter counts as one. 0 if the filter was not read yet.
    pub filter_column_groups: u64,
    /// Column groups in memory.
    pub loaded_filter_column_groups: u64,
    /// Memory of the filter in bytes, without cached pages.
    pub filter_memory_bytes: u64,
    /// Results of the probes of its filter since the table was last opened or given another filter.
    pub filter: FilterCounts,
}

/// Where the entries of a table come from, by its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OriginShape {
    /// Number of its keyspace.
    pub keyspace: u32,
    /// Name of its keyspace.
    pub name: String,
    /// Numbers of the tables that it replaced, in its range of keys.
    pub replaced: Vec<u64>,
}

/// A filter.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FilterShape {
    /// Number of its separate filter file; `None` if it is in the table.
    pub file: Option<u64>,
    /// Length of the block in bytes.
    pub bytes: u64,
    /// Kind and predicted false-positive rate from its header. `None` if the header is unusable.
    pub found: Option<(Kind, f64)>,
}

impl RunShape {
    /// Distinct user keys of all its tables.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.tables.iter().fold(0, |sum, table| sum.saturating_add(table.keys))
    }

    /// Bytes of its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables.iter().fold(0, |sum, table| sum.saturating_add(table.bytes))
    }

    /// Bytes of its filters.
    #[must_use]
    pub fn filter_bytes(&self) -> u64 {
        let filters = self.tables.iter().flat_map(|table| &table.filters);
        filters.fold(0, |sum, filter| sum.saturating_add(filter.bytes))
    }

    /// The share of absent keys in its range that its filters do not recognise: the mean of its tables by
    /// their keys. A table without a usable filter counts 1.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let rate = |table: &TableShape| table.rate() * table.keys as f64;
        self.tables.iter().map(rate).sum::<f64>() / self.keys().max(1) as f64
    }
}

impl TableShape {
    /// The predicted rate of the filter that a lookup probes; 1 without one.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.filters.iter().find_map(|filter| filter.found).map_or(1.0, |found| found.1)
    }
}
