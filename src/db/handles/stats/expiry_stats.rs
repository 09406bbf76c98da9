//! Expiry statistics of a keyspace.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::db::state::keyspace::tree::{Tree, View};
use crate::expiry::buckets::Buckets;
use crate::expiry::options::TimeSource;
use crate::expiry::times::BucketTimes;
use crate::key::SeqNo;
use crate::manifest::state::{KeyspaceState, TablePlace};
use crate::options::KeyspaceOptions;
use crate::table_meta::TableMeta;

/// Time buckets of a keyspace with [`KeyspaceOptions::ttl`](crate::KeyspaceOptions::ttl). Times are milliseconds since 1970-01-01
/// UTC, or by the caller's clock ([`TimeSource::Caller`]).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ExpiryStats {
    /// Time to live; `None` if it was removed. Expired entries stay hidden.
    pub ttl: Option<Duration>,
    /// The clock.
    pub time_source: TimeSource,
    /// Entries with smaller sequence numbers are hidden.
    pub horizon: SeqNo,
    /// When entries expire next, if known.
    pub next_expiry: Option<u64>,
    /// Buckets with tables, oldest first.
    pub buckets: Vec<BucketStats>,
}

/// The tables whose newest entry was written in one bucket of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BucketStats {
    /// Start of the bucket, if known.
    pub begins: Option<u64>,
    /// End of the bucket, if known.
    pub ends: Option<u64>,
    /// When its entries are hidden, if known.
    pub expires: Option<u64>,
    /// Whether all its entries are hidden. If so, a snapshot holds the tables, or they are about to be removed.
    pub is_hidden: bool,
    /// Runs; a lookup may probe each.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Size of the table files, in bytes.
    pub bytes: u64,
    /// Entries, with tombstones and older versions.
    pub entries: u64,
}

impl ExpiryStats {
    /// Returns `None` if the keyspace never had a time to live.
    pub(super) fn of(tree: &Tree, view: &View) -> Option<Self> {
        let runs = view.version.all_runs();
        let runs = runs.map(|(_, run)| run.tables.iter().map(|table| &*table.meta).collect()).collect();
        let buckets = tree.buckets();
        Self::new(&buckets, &tree.options.load(), runs, view.oldest_from(buckets.horizon()))
    }

    pub(in crate::db) fn of_files(keyspace: &KeyspaceState) -> Option<Self> {
        let options = KeyspaceOptions::decode(&keyspace.options).ok()?;
        let mut runs: BTreeMap<_, Vec<&TableMeta>> = BTreeMap::new();
        for TablePlace { level, run, meta } in keyspace.tables.values() {
            runs.entry((*level, Reverse(*run))).or_default().push(meta);
        }
        let oldest = keyspace.oldest_visible();
        Self::new(&keyspace.buckets, &options, runs.into_values().collect(), oldest)
    }

    /// `runs`: newest first. `oldest`: no visible entry has a smaller number.
    fn new(
        buckets: &Buckets,
        options: &KeyspaceOptions,
        runs: Vec<Vec<&TableMeta>>,
        oldest: Option<SeqNo>,
    ) -> Option<Self> {
        let expiry = options.expiry();
        if expiry.is_none() && buckets.horizon() == 0 {
            return None;
        }
        let next = expiry.zip(oldest).and_then(|(expiry, oldest)| buckets.next_expiry(&expiry, oldest));
        let mut by_age: Vec<BucketStats> = Vec::new();
        let mut last = None;
        for run in runs {
            let newest = run.iter().map(|meta| meta.seqno_max).max().unwrap_or(0);
            let (bucket, is_hidden) = (buckets.bucket_of(newest), newest < buckets.horizon());
            if last.replace((bucket, is_hidden)) != Some((bucket, is_hidden)) {
                let BucketTimes { begins, ends, expires } = buckets.times(expiry.as_ref(), bucket);
                by_age.push(BucketStats { begins, ends, expires, is_hidden, ..BucketStats::default() });
            }
            if let Some(last) = by_age.last_mut() {
                last.add(&run);
            }
        }
        by_age.reverse();
        Some(Self {
            ttl: expiry.map(|expiry| Duration::from_millis(expiry.ttl)),
            time_source: options.time_source,
            horizon: buckets.horizon(),
            next_expiry: next,
            buckets: by_age,
        })
    }
}

impl BucketStats {
    fn add(&mut self, tables: &[&TableMeta]) {
        self.runs += 1;
        self.tables += tables.len() as u64;
        for meta in tables {
            self.bytes = self.bytes.saturating_add(meta.len);
            self.entries = self.entries.saturating_add(meta.entries);
        }
    }
}
