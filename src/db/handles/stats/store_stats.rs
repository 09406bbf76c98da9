//! Statistics of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::expiry_stats::ExpiryStats;
use super::latency_stats::LatencyStats;
use crate::compaction::debt;
use crate::counters::FilterCounts;
use crate::db::engine::Engine;
use crate::db::handles::store::Db;
use crate::db::state::keyspace::tree::Tree;
use crate::error::Error;
use crate::key::SeqNo;
use crate::manifest::edit::LEVELS;
use crate::memory::MemoryStats;
use crate::version::{FilterState, TableHandle};

/// Statistics of one level of a keyspace, or their sum over levels: [`KeyspaceStats::total`].
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStats {
    /// Sorted runs; at most one below level 0.
    pub runs: u64,
    /// Tables in the runs.
    pub tables: u64,
    /// Length of the table files, in bytes.
    pub bytes: u64,
    /// Entries, tombstones and older versions included.
    pub entries: u64,
    /// Tombstones among the entries.
    pub tombstones: u64,
    /// Sum over the tables of distinct user keys.
    pub keys: u64,
    /// Lengths of user keys and values of all entries, in bytes.
    pub data_bytes: u64,
    /// Lengths of the filter blocks, in bytes.
    pub filter_bytes: u64,
    /// Keys of the tables that have a filter block.
    pub filter_keys: u64,
    /// Tables that are open: their metadata and the roots of their indexes are in memory.
    pub open_tables: u64,
    /// Tables whose filter was read and cannot be used. A filter is read when its table is first opened, and stays in
    /// memory when the table is closed.
    pub unusable_filters: u64,
    /// Filters that could not be built and answer "maybe" for every key. There should be none.
    /// If a defect of this library caused one, the `tracing` event has what is needed to reproduce it.
    pub unbuilt_filters: u64,
    /// Tables that a compaction could not read: compactions skip them until the store is opened again.
    pub set_aside_tables: u64,
    /// Filters that were read and are not in memory, because the memory budget has no room for it.
    pub unloaded_filters: u64,
    /// Unloaded filters that are probed page by page, from the cache or from disk. For the others there is no
    /// room even for header and page checksums.
    pub paged_filters: u64,
    /// Column groups of the filters that were read. A Bloom filter counts as one.
    pub filter_column_groups: u64,
    /// Column groups in memory. If there is no room for all, those are left out that answer the fewest
    /// lookups for their size.
    pub loaded_filter_column_groups: u64,
    /// Memory of the filters in bytes, without cached pages.
    pub filter_memory_bytes: u64,
    /// Results of the filter probes since the store was opened, including tables that no longer exist.
    pub filter: FilterCounts,
    /// False positives that the filters predict for the absent keys they were probed for; compare with
    /// [`FilterCounts::false_positives`].
    pub expected_false_positives: f64,
    /// Predicted false-positive rate of the filters that were read, weighted by keys; `None` if there are none.
    pub predicted_rate: Option<f64>,
}

impl LevelStats {
    /// Filter bits per key; `None` if there are no filters.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// db.flush()?;
    /// let level = db.stats().keyspaces[0].total();
    /// assert!(level.filter_bits_per_key().is_some());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn filter_bits_per_key(&self) -> Option<f64> {
        (self.filter_keys > 0).then(|| self.filter_bytes as f64 * 8.0 / self.filter_keys as f64)
    }
}

/// Statistics of one keyspace; see [`Db::stats`].
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Entries in memtables.
    pub memtable_entries: u64,
    /// Memory of the memtables, in bytes.
    pub memtable_bytes: u64,
    /// Memtables waiting to be flushed.
    pub immutable_memtables: u64,
    /// Bytes that compactions have to write until every level has its size. If entries expire: until every closed bucket
    /// of time is one run, the last one not counted.
    pub owed_bytes: u64,
    /// Hidden entries that scans have skipped since the store was opened: tombstones, and what newer entries
    /// hide.
    pub skipped_entries: u64,
    /// Its buckets of time; `None` if its entries do not expire.
    pub expiry: Option<ExpiryStats>,
    /// Its levels, 0 to 6.
    pub levels: Vec<LevelStats>,
}

impl KeyspaceStats {
    /// The sum over all levels, runs included. The predicted rate is the mean over all filter keys.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// db.flush()?;
    /// assert_eq!(db.stats().keyspaces[0].total().entries, 1);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn total(&self) -> LevelStats {
        let mut total = LevelStats::default();
        let (mut rate, mut weight) = (0.0, 0.0);
        for level in &self.levels {
            total.add_counts(level);
            total.filter.add(level.filter);
            total.expected_false_positives += level.expected_false_positives;
            if let Some(predicted) = level.predicted_rate {
                rate += predicted * level.filter_keys as f64;
                weight += level.filter_keys as f64;
            }
        }
        total.predicted_rate = (weight > 0.0).then(|| rate / weight);
        total
    }
}

/// Statistics of a store; see [`Db::stats`]. Counts start when the store is opened.
///
/// It is printed as a few lines for people. With the feature `serde` it is `serde::Serialize`, under the names
/// of its fields.
///
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Its keyspaces, in order of creation.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Batches written. Not counted are those without entries, and conditional writes that wrote nothing.
    pub batches: u64,
    /// Entries in the batches.
    pub entries: u64,
    /// Groups of batches that were appended to the log with one write.
    pub commit_groups: u64,
    /// Times a log was synced.
    pub log_syncs: u64,
    /// Length of the logs still needed, in bytes.
    pub log_bytes: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Length of the tables written by flushes, in bytes.
    pub flushed_bytes: u64,
    /// Compactions that rewrote tables.
    pub compactions: u64,
    /// Length of the tables written by compactions, in bytes.
    pub compacted_bytes: u64,
    /// Compactions that only moved tables to the next level.
    pub trivial_moves: u64,
    /// Filters built for existing tables: after damage, or by [`Db::refilter`].
    pub rebuilt_filters: u64,
    /// Length of these filters, in bytes.
    pub rebuilt_filter_bytes: u64,
    /// Filters that could not be rebuilt because their table cannot be read.
    pub failed_rebuilds: u64,
    /// Bytes appended to logs.
    pub logged_bytes: u64,
    /// Transactions committed that have written something.
    pub transactions: u64,
    /// Commits refused with [`Error::Conflict`], each one of [`Db::transact`] included.
    pub conflicts: u64,
    /// Writers that were slowed down because flushes or compactions were behind.
    pub write_delays: u64,
    /// Total time for which they waited.
    pub write_delay: Duration,
    /// Longest time for which one of them waited.
    pub longest_write_delay: Duration,
    /// Data blocks read from files.
    pub data_block_reads: u64,
    /// Data blocks found in the cache.
    pub data_block_cache_hits: u64,
    /// Index blocks read from files.
    pub index_block_reads: u64,
    /// Chunks of long values read from files.
    pub value_chunk_reads: u64,
    /// Pages of filters not in memory that were read from files.
    pub filter_page_reads: u64,
    /// Pages of filters not in memory that were found in the cache.
    pub filter_page_cache_hits: u64,
    /// Blocks and pages of filters that failed their checksum and were read a second time.
    pub block_rereads: u64,
    /// Filters found to be damaged, unknown, of another table, or wrong. Their tables are read without them.
    pub unusable_filters: u64,
    /// "Absent" answers that were checked against the data; see
    /// [`Options::audit_absent`](crate::Options::audit_absent).
    pub audited: u64,
    /// Filters that such a check found to be wrong.
    pub audit_failures: u64,
    /// Use of the memory budget.
    pub memory: MemoryStats,
    /// Size of the cached blocks, in bytes.
    pub block_cache_bytes: u64,
    /// Size of the filters in memory, in bytes.
    pub filter_memory_bytes: u64,
    /// Tables of which more or less of the filter was taken into memory, or which were closed, because of the
    /// memory budget. A table may count several times.
    pub residency_changes: u64,
    /// Open table files.
    pub open_files: u64,
    /// Times that background work failed and was put off, to be tried again.
    pub background_failures: u64,
    /// The error of background work that is failing now; see [`Db::background_error`].
    pub background_error: Option<String>,
    /// Table and filter files that no version of the store needs any more but that iterators still read, or
    /// that are about to be removed.
    pub held_files: u64,
    /// Length of these files, in bytes.
    pub held_file_bytes: u64,
    /// Sequence numbers of which there are snapshots: compactions keep what they see.
    pub snapshots: u64,
    /// The oldest of them.
    pub oldest_snapshot: Option<SeqNo>,
    /// How far the clock is beyond the newest boundary of a keyspace whose entries expire, as long as that may be because
    /// the clock is wrong: see [`OpenReport::clock_leap`](crate::OpenReport::clock_leap).
    pub clock_leap: Option<Duration>,
    /// Latencies of calls and background jobs; `None` unless
    /// [`Options::latency_histograms`](crate::Options::latency_histograms) is set.
    pub latencies: Option<LatencyStats>,
    /// Why writing is disabled, if it is: the error that every writer gets.
    pub disabled: Option<String>,
}

impl Stats {
    /// The statistics of the keyspace called `name`; `None` if it does not exist.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// assert!(db.stats().keyspace("default").is_some());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn keyspace(&self, name: &str) -> Option<&KeyspaceStats> {
        self.keyspaces.iter().find(|keyspace| keyspace.name == name)
    }

    /// Bytes written by logs, flushes, compactions and filter rebuilds.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// assert!(db.stats().written_bytes() > 0);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.logged_bytes + self.flushed_bytes + self.compacted_bytes + self.rebuilt_filter_bytes
    }
}

impl Db {
    /// Statistics of the store: shape, memory, filters, reads and writes. Takes time proportional to the
    /// number of tables; reads nothing from disk.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// let stats = db.stats();
    /// assert_eq!((stats.batches, stats.entries), (1, 1));
    /// println!("{} bytes of filters in memory", stats.filter_memory_bytes);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }
}

impl Engine {
    fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, io) = (&self.counters, &self.context.io);
        let (held_files, held_file_bytes) = self.files.obsolete.held();
        let (snapshots, memory) = (self.sequence.snapshots.numbers(), self.context.memory.stats());
        let keyspaces: Vec<_> = self.keyspaces.all().iter().map(keyspace_stats).collect();
        Stats {
            filter_memory_bytes: keyspaces.iter().map(|keyspace| keyspace.total().filter_memory_bytes).sum(),
            keyspaces,
            batches: get(&counters.batches),
            entries: get(&counters.entries),
            commit_groups: get(&counters.groups),
            log_syncs: self.log.as_ref().map_or(0, |log| log.syncs()),
            log_bytes: self.log.as_ref().map_or(0, |log| log.total_bytes()),
            flushes: get(&counters.flushes),
            flushed_bytes: get(&counters.flushed_bytes),
            compactions: get(&counters.compactions),
            compacted_bytes: get(&counters.compacted_bytes),
            trivial_moves: get(&counters.trivial_moves),
            rebuilt_filters: get(&counters.rebuilt_filters),
            rebuilt_filter_bytes: get(&counters.rebuilt_filter_bytes),
            failed_rebuilds: get(&counters.failed_rebuilds),
            logged_bytes: get(&counters.logged_bytes),
            transactions: get(&counters.transactions),
            conflicts: get(&counters.conflicts),
            write_delays: get(&counters.delays),
            write_delay: Duration::from_nanos(get(&counters.delay_nanos)),
            longest_write_delay: Duration::from_nanos(get(&counters.longest_delay_nanos)),
            data_block_reads: get(&io.data_block_reads),
            data_block_cache_hits: get(&io.data_block_cache_hits),
            index_block_reads: get(&io.index_block_reads),
            value_chunk_reads: get(&io.value_chunk_reads),
            filter_page_reads: get(&io.filter_page_reads),
            filter_page_cache_hits: get(&io.filter_page_cache_hits),
            block_rereads: get(&io.block_rereads),
            unusable_filters: get(&io.unusable_filters),
            audited: get(&io.audited),
            audit_failures: get(&io.audit_failures),
            block_cache_bytes: self.context.memory.blocks().bytes(),
            memory: MemoryStats { held: memory.held + self.completions.bytes(), ..memory },
            residency_changes: get(&counters.residency_changes),
            open_files: self.context.files.len() as u64,
            background_failures: self.retry.failures(),
            background_error: self.background_error().map(|error| error.to_string()),
            held_files,
            held_file_bytes,
            snapshots: snapshots.len() as u64,
            oldest_snapshot: snapshots.first().copied(),
            clock_leap: self.clock_leap(),
            latencies: LatencyStats::of(self),
            disabled: self.lifecycle.failure().map(Error::to_string),
        }
    }
}

fn keyspace_stats(tree: &Arc<Tree>) -> KeyspaceStats {
    let (view, retired) = tree.view_and_retired();
    KeyspaceStats {
        name: tree.name.clone(),
        memtable_entries: view.memtables().map(|memtable| memtable.memtable.len()).sum(),
        memtable_bytes: view.memtables().map(|memtable| memtable.memtable.size_bytes() as u64).sum(),
        immutable_memtables: view.immutables.len() as u64,
        owed_bytes: debt::debt(&view.version, &tree.shape()),
        skipped_entries: tree.skipped(),
        expiry: ExpiryStats::of(tree, &view),
        levels: (0..LEVELS)
            .map(|level| {
                let mut stats =
                    LevelStats { runs: view.version.runs(level).len() as u64, ..Default::default() };
                stats.filter.add(retired[level].counts);
                stats.expected_false_positives += retired[level].expected_false_positives;
                stats.add_tables(view.version.tables(level));
                stats
            })
            .collect(),
    }
}

/// Saturates: the counts that tables state are not verified, and their sum may overflow.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

impl LevelStats {
    /// All fields except the filters' counts and predictions.
    fn add_counts(&mut self, other: &Self) {
        add(&mut self.runs, other.runs);
        add(&mut self.tables, other.tables);
        add(&mut self.bytes, other.bytes);
        add(&mut self.entries, other.entries);
        add(&mut self.tombstones, other.tombstones);
        add(&mut self.keys, other.keys);
        add(&mut self.data_bytes, other.data_bytes);
        add(&mut self.filter_bytes, other.filter_bytes);
        add(&mut self.filter_keys, other.filter_keys);
        add(&mut self.open_tables, other.open_tables);
        add(&mut self.unusable_filters, other.unusable_filters);
        add(&mut self.unbuilt_filters, other.unbuilt_filters);
        add(&mut self.set_aside_tables, other.set_aside_tables);
        add(&mut self.unloaded_filters, other.unloaded_filters);
        add(&mut self.paged_filters, other.paged_filters);
        add(&mut self.filter_column_groups, other.filter_column_groups);
        add(&mut self.loaded_filter_column_groups, other.loaded_filter_column_groups);
        add(&mut self.filter_memory_bytes, other.filter_memory_bytes);
    }

    fn add_tables<'a>(&mut self, tables: impl Iterator<Item = &'a Arc<TableHandle>>) {
        let (mut rate, mut weight) = (0.0, 0.0);
        for table in tables {
            let meta = &table.meta;
            self.tables += 1;
            add(&mut self.bytes, meta.len);
            add(&mut self.entries, meta.entries);
            add(&mut self.tombstones, meta.tombstones);
            add(&mut self.keys, meta.keys);
            add(&mut self.data_bytes, meta.data_bytes);
            if let Some(filter) = meta.filters.first() {
                add(&mut self.filter_bytes, filter.len);
                add(&mut self.filter_keys, meta.keys);
            }
            self.filter.add(table.counters.counts());
            self.expected_false_positives += table.expected_false_positives();
            self.set_aside_tables += u64::from(table.set_aside_for().is_some());
            self.open_tables += u64::from(table.if_open().is_some());
            let Some(filter) = table.filter.state() else { continue };
            self.unusable_filters += u64::from(table.filter.error().is_some());
            self.unloaded_filters += u64::from(filter.is_on_disk());
            self.paged_filters += u64::from(matches!(filter, FilterState::Paged(_)));
            if let Some(header) = filter.header() {
                self.unbuilt_filters += u64::from(header.answers_only_maybe());
                self.filter_column_groups += header.column_group_count() as u64;
            }
            self.loaded_filter_column_groups += filter.column_groups() as u64;
            self.filter_memory_bytes += table.filter.memory_bytes();
            if let Some(predicted) = filter.predicted_rate() {
                rate += predicted * meta.keys as f64;
                weight += meta.keys as f64;
            }
        }
        self.predicted_rate = (weight > 0.0).then(|| rate / weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_tables_state_are_summed_without_overflow() {
        let huge = LevelStats { tables: 1, bytes: 1 << 63, keys: u64::MAX, ..LevelStats::default() };
        let keyspace = KeyspaceStats {
            name: String::new(),
            memtable_entries: 0,
            memtable_bytes: 0,
            immutable_memtables: 0,
            owed_bytes: 0,
            skipped_entries: 0,
            expiry: None,
            levels: vec![huge.clone(), huge],
        };
        let total = keyspace.total();
        assert_eq!((total.tables, total.bytes, total.keys), (2, u64::MAX, u64::MAX));
    }
}
