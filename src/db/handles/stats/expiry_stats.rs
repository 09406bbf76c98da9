//! Statistics of a keyspace whose entries expire.

use std::sync::Arc;
use std::time::Duration;

use crate::db::state::keyspace::tree::{Tree, View};
use crate::expiry::options::TimeSource;
use crate::expiry::times::BucketTimes;
use crate::key::SeqNo;
use crate::version::TableHandle;

/// The buckets of time of a keyspace whose entries expire ([`KeyspaceOptions::ttl`](crate::KeyspaceOptions::ttl)).
///
/// Times are milliseconds since 1970-01-01 UTC, or by the clock of the caller ([`TimeSource::Caller`]).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ExpiryStats {
    /// [`KeyspaceOptions::ttl`](crate::KeyspaceOptions::ttl). `None` if it was removed: what has expired stays hidden.
    pub ttl: Option<Duration>,
    /// The clock.
    pub time_source: TimeSource,
    /// Entries with a smaller sequence number are hidden.
    pub horizon: SeqNo,
    /// The time at which entries will be hidden next. `None` if there are none, or if their time is unknown.
    pub next_expiry: Option<u64>,
    /// Buckets with tables, oldest first. Entries in memtables are not counted.
    pub buckets: Vec<BucketStats>,
}

/// A bucket of time: the tables of which the newest entry was written in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BucketStats {
    /// When it begins; `None` if that is unknown.
    pub begins: Option<u64>,
    /// When it ends; `None` if that is unknown.
    pub ends: Option<u64>,
    /// When its entries are hidden, and its tables removed; `None` if that is unknown.
    pub expires: Option<u64>,
    /// All its entries are hidden, since `expires`. The tables are held by the oldest snapshot
    /// ([`Stats::oldest_snapshot`](crate::Stats::oldest_snapshot)), or are about to be removed.
    pub is_hidden: bool,
    /// Runs of tables, each of which a lookup may probe.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Lengths of the table files, in bytes.
    pub bytes: u64,
    /// Entries, tombstones and older versions included.
    pub entries: u64,
}

impl ExpiryStats {
    /// `None` if entries never expired.
    pub(super) fn of(tree: &Tree, view: &View) -> Option<Self> {
        let (buckets, options) = (tree.buckets(), tree.options.load());
        let expiry = options.expiry();
        if expiry.is_none() && buckets.horizon() == 0 {
            return None;
        }
        let tables = view.version.all_tables().map(|(_, table)| &table.meta);
        let visible = tables.filter(|meta| meta.seqno_max >= buckets.horizon());
        let oldest = visible.map(|meta| meta.seqno_min).min();
        let in_memory = view.memtables().filter_map(|memtable| memtable.memtable.seqno_max()).max();
        let next_expiry = expiry.and_then(|expiry| match oldest {
            Some(oldest) => buckets.first_expiry(&expiry, oldest),
            None => buckets.next_expiry(&expiry, in_memory),
        });
        let mut by_age: Vec<BucketStats> = Vec::new();
        let mut last = None;
        for (_, run) in view.version.all_runs() {
            let newest = run.tables.iter().map(|table| table.meta.seqno_max).max().unwrap_or(0);
            let (bucket, is_hidden) = (buckets.bucket_of(newest), newest < buckets.horizon());
            if last.replace((bucket, is_hidden)) != Some((bucket, is_hidden)) {
                let BucketTimes { begins, ends, expires } = buckets.times(expiry.as_ref(), bucket);
                by_age.push(BucketStats { begins, ends, expires, is_hidden, ..BucketStats::default() });
            }
            if let Some(last) = by_age.last_mut() {
                last.add(&run.tables);
            }
        }
        by_age.reverse();
        Some(Self {
            ttl: expiry.map(|expiry| Duration::from_millis(expiry.ttl)),
            time_source: options.time_source,
            horizon: buckets.horizon(),
            next_expiry,
            buckets: by_age,
        })
    }
}

impl BucketStats {
    /// Adds a run.
    fn add(&mut self, tables: &[Arc<TableHandle>]) {
        self.runs += 1;
        self.tables += tables.len() as u64;
        for table in tables {
            self.bytes = self.bytes.saturating_add(table.meta.len);
            self.entries = self.entries.saturating_add(table.meta.entries);
        }
    }
}
