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

/// Statistics of a level, or the sum over levels ([`KeyspaceStats::total`]).
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStats {
    /// Sorted runs; at most one below level 0.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Size of the table files, in bytes.
    pub bytes: u64,
    /// Entries, with tombstones and older versions.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Distinct user keys of each table, summed.
    pub keys: u64,
    /// Size of the user keys and values of all entries, in bytes.
    pub data_bytes: u64,
    /// Size of the filter blocks, in bytes.
    pub filter_bytes: u64,
    /// Keys of the tables with a filter block.
    pub filter_keys: u64,
    /// Open tables.
    pub open_tables: u64,
    /// Tables with an unusable filter.
    pub unusable_filters: u64,
    /// Filters that could not be built, which is a defect of this library. A `tracing` event has the data to
    /// reproduce it.
    pub unbuilt_filters: u64,
    /// Unreadable tables, which compactions skip until the next opening.
    pub set_aside_tables: u64,
    /// Filters that are not in memory for lack of room.
    pub unloaded_filters: u64,
    /// Unloaded filters probed page by page, from cache or disk.
    pub paged_filters: u64,
    /// Column groups of the filters read; a Bloom filter counts as one.
    pub filter_column_groups: u64,
    /// Column groups in memory.
    pub loaded_filter_column_groups: u64,
    /// Memory of the filters without cached pages, in bytes.
    pub filter_memory_bytes: u64,
    /// Filter probes since opening, including removed tables.
    pub filter: FilterCounts,
    /// Predicted false positives for the probed absent keys; compare with [`FilterCounts::false_positives`].
    pub expected_false_positives: f64,
    /// Predicted false-positive rate, weighted by keys, if there are filters.
    pub predicted_rate: Option<f64>,
}

impl LevelStats {
    /// Filter bits per key, if there are filters.
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
    /// Name.
    pub name: String,
    /// Entries in memtables.
    pub memtable_entries: u64,
    /// Memory of the memtables, in bytes.
    pub memtable_bytes: u64,
    /// Memtables waiting for a flush.
    pub immutable_memtables: u64,
    /// Bytes that compactions still have to write until every level has its target size, or every closed bucket but
    /// the last is one run.
    pub owed_bytes: u64,
    /// Tombstones and overwritten entries skipped by scans since opening.
    pub skipped_entries: u64,
    /// Expiry statistics, if entries expire.
    pub expiry: Option<ExpiryStats>,
    /// Levels 0 to 6.
    pub levels: Vec<LevelStats>,
}

impl KeyspaceStats {
    /// The sum over all levels, rates weighted by keys.
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

/// Statistics of a store; see [`Db::stats`]. Counts begin at the opening. `Display` prints a summary. With the
/// feature `serde`, it implements `serde::Serialize`.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Keyspaces, in order of creation.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Non-empty batches written.
    pub batches: u64,
    /// Entries in the batches.
    pub entries: u64,
    /// Groups of batches, each with one log write.
    pub commit_groups: u64,
    /// Log syncs.
    pub log_syncs: u64,
    /// Size of the logs still needed, in bytes.
    pub log_bytes: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Size of the tables written by flushes, in bytes.
    pub flushed_bytes: u64,
    /// Compactions that rewrote tables.
    pub compactions: u64,
    /// Size of the tables written by compactions, in bytes.
    pub compacted_bytes: u64,
    /// Compactions that only moved tables.
    pub trivial_moves: u64,
    /// Filters rebuilt after damage, or by [`Db::refilter`].
    pub rebuilt_filters: u64,
    /// Size of these filters, in bytes.
    pub rebuilt_filter_bytes: u64,
    /// Filters not rebuilt: their table is unreadable.
    pub failed_rebuilds: u64,
    /// Bytes appended to logs.
    pub logged_bytes: u64,
    /// Committed transactions with writes.
    pub transactions: u64,
    /// Commits refused with [`Error::Conflict`], including those within [`Db::transact`].
    pub conflicts: u64,
    /// Writers delayed because flushes or compactions were too slow.
    pub write_delays: u64,
    /// Sum of these delays.
    pub write_delay: Duration,
    /// Longest delay.
    pub longest_write_delay: Duration,
    /// Data blocks read from files.
    pub data_block_reads: u64,
    /// Data blocks found in the cache.
    pub data_block_cache_hits: u64,
    /// Index blocks read from files.
    pub index_block_reads: u64,
    /// Chunks of long values read from files.
    pub value_chunk_reads: u64,
    /// Pages of unloaded filters read from files.
    pub filter_page_reads: u64,
    /// Pages of unloaded filters found in the cache.
    pub filter_page_cache_hits: u64,
    /// Rereads of blocks and filter pages after a checksum mismatch.
    pub block_rereads: u64,
    /// Filters that are damaged or wrong, have an unknown version, or belong to another table. Their tables are read
    /// without a filter.
    pub unusable_filters: u64,
    /// "Absent" answers checked against the data; see [`Options::audit_absent`](crate::Options::audit_absent).
    pub audited: u64,
    /// Filters found wrong by these checks.
    pub audit_failures: u64,
    /// Use of the memory budget.
    pub memory: MemoryStats,
    /// Size of the cached blocks, in bytes.
    pub block_cache_bytes: u64,
    /// Size of the filters in memory, in bytes.
    pub filter_memory_bytes: u64,
    /// Filter parts loaded or dropped and tables closed for the memory budget.
    pub residency_changes: u64,
    /// Open table files.
    pub open_files: u64,
    /// Failures of background work.
    pub background_failures: u64,
    /// The error of currently failing work; see [`Db::background_error`].
    pub background_error: Option<String>,
    /// Obsolete files that iterators read or that are about to be removed.
    pub held_files: u64,
    /// Size of these files, in bytes.
    pub held_file_bytes: u64,
    /// Distinct sequence numbers of open snapshots.
    pub snapshots: u64,
    /// The smallest of these sequence numbers.
    pub oldest_snapshot: Option<SeqNo>,
    /// Distance between the clock and the newest bucket boundary while the clock may be wrong: see
    /// [`OpenReport::clock_leap`](crate::OpenReport::clock_leap).
    pub clock_leap: Option<Duration>,
    /// Latencies, with [`Options::latency_histograms`](crate::Options::latency_histograms).
    pub latencies: Option<LatencyStats>,
    /// The error that disabled writing, if any.
    pub disabled: Option<String>,
}

impl Stats {
    /// The statistics of the keyspace `name`, if it exists.
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
    /// Statistics of the store. O(tables), no I/O.
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

/// Counts in tables are not verified, so additions saturate.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

impl LevelStats {
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
