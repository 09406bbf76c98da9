//! Latency statistics.

use crate::db::engine::Engine;
use crate::db::latencies::Call;
use crate::histogram::CallLatency;

/// Latencies since opening, over all keyspaces; see [`Options::latency_histograms`](crate::Options::latency_histograms).
///
/// A call counts once, for any number of keys. Gets, multi-key calls, buffered writes, scan steps and commit groups
/// are timed one time in 64; other calls are always timed.
///
/// Histogram buckets have the bounds of the crate `hdrhistogram` with one significant digit, in nanoseconds:
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Options::new().latency_histograms(true).open(dir.path())?;
/// # (0..1000_u32).for_each(|key| db.put(key.to_be_bytes(), "").unwrap());
/// let writes = db.stats().latencies.expect("they are on").write;
/// let mut histogram = hdrhistogram::Histogram::<u64>::new(1).unwrap();
/// for bucket in &writes.buckets {
///     histogram.record_n(bucket.most_nanos, bucket.count).unwrap();
/// }
/// assert_eq!(histogram.len(), writes.timed);
/// assert!(u128::from(histogram.value_at_quantile(0.99)) >= writes.p99.as_nanos());
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LatencyStats {
    /// Lookups of one key: `get`, `contains`.
    pub get: CallLatency,
    /// Lookups of several keys: `multi_get`, `multi_contains`.
    pub multi: CallLatency,
    /// Buffered `insert_if_absent`, `insert_new_many`, `compare_and_set`, `update`, `replace`, `remove`, and commits of
    /// transactions until visible.
    pub conditional_write: CallLatency,
    /// Other buffered writes, and `write_pending`.
    pub write: CallLatency,
    /// Writes with [`Durability::Synced`](crate::Durability::Synced), including the sync.
    pub synced_write: CallLatency,
    /// Steps of iterators and movements of cursors, including the initial search.
    pub scan_step: CallLatency,
    /// Commit groups: log append, memtable inserts and publication.
    pub commit_group: CallLatency,
    /// Flush jobs, each of one or more memtables.
    pub flush: CallLatency,
    /// Compactions that rewrote tables.
    pub compaction: CallLatency,
}

impl LatencyStats {
    /// All kinds, each with the name of its field.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Options::new().latency_histograms(true).open(dir.path())?;
    /// for (name, latency) in db.stats().latencies.expect("they are on").by_name() {
    ///     println!("{name}: {} calls, at most {:?}", latency.count, latency.max);
    /// }
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, &CallLatency); 9] {
        [
            ("get", &self.get),
            ("multi", &self.multi),
            ("conditional_write", &self.conditional_write),
            ("write", &self.write),
            ("synced_write", &self.synced_write),
            ("scan_step", &self.scan_step),
            ("commit_group", &self.commit_group),
            ("flush", &self.flush),
            ("compaction", &self.compaction),
        ]
    }

    pub(super) fn of(engine: &Engine) -> Option<Self> {
        let of = |call| engine.latencies.of(call);
        Some(Self {
            get: of(Call::Get)?,
            multi: of(Call::Multi)?,
            conditional_write: of(Call::ConditionalWrite)?,
            write: of(Call::Write)?,
            synced_write: of(Call::SyncedWrite)?,
            scan_step: of(Call::ScanStep)?,
            commit_group: of(Call::CommitGroup)?,
            flush: of(Call::Flush)?,
            compaction: of(Call::Compaction)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound::Unbounded;
    use std::sync::Arc;

    use crate::WriteBatch;
    use crate::db::{Db, Durability};
    use crate::fs::MemFs;
    use crate::options::Options;

    fn open(is_on: bool) -> Db {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        options.latency_histograms(is_on).open("/db").unwrap()
    }

    fn counts(db: &Db) -> [(&'static str, u64); 9] {
        let latencies = db.stats().latencies.unwrap();
        latencies.by_name().map(|(name, latency)| (name, latency.count))
    }

    /// The kinds that a call adds to, with counts.
    fn added<T>(db: &Db, call: impl FnOnce() -> T) -> Vec<(&'static str, u64)> {
        let before = counts(db);
        call();
        let after = counts(db);
        let added = before.into_iter().zip(after).map(|((name, before), (_, after))| (name, after - before));
        added.filter(|&(_, added)| added > 0).collect()
    }

    #[test]
    fn every_call_is_counted_once_and_by_its_kind() {
        let db = open(true);
        let (group, synced) = (("commit_group", 1), Durability::Synced);
        assert_eq!(added(&db, || db.put("a", "1")), [("write", 1), group]);
        assert_eq!(added(&db, || db.delete("b")), [("write", 1), group]);
        assert_eq!(added(&db, || db.put_with("a", "1", synced)), [("synced_write", 1), group]);
        let batch = || WriteBatch::from_iter([("c", "1"), ("d", "2")]);
        assert_eq!(added(&db, || db.write(batch())), [("write", 1), group]);
        assert_eq!(added(&db, || db.write_with(batch(), synced)), [("synced_write", 1), group]);
        assert_eq!(added(&db, || drop(db.write_pending(batch(), synced))), [("write", 1), group]);
        assert_eq!(added(&db, || db.get("a")), [("get", 1)]);
        assert_eq!(added(&db, || db.snapshot().contains("x")), [("get", 1)]);
        assert_eq!(added(&db, || db.multi_get(&["a", "b", "c"])), [("multi", 1)]);
        assert_eq!(added(&db, || db.multi_contains(&["a", "b"])), [("multi", 1)]);
        assert_eq!(added(&db, || db.insert_if_absent("n", "")), [("conditional_write", 1), group]);
        assert_eq!(added(&db, || db.insert_if_absent("n", "")), [("conditional_write", 1)], "it is there");
        assert_eq!(
            added(&db, || db.insert_new_many([("m", ""), ("n", "")])),
            [("conditional_write", 1), group]
        );
        assert_eq!(added(&db, || db.remove_with("n", synced)), [("synced_write", 1), group]);
        assert_eq!(added(&db, || db.update("m", |_| None)), [("conditional_write", 1), group]);
        assert_eq!(added(&db, || assert_eq!(db.iter().count(), 3)), [("scan_step", 4)]);
        assert_eq!(added(&db, || assert_eq!(db.keys().rev().count(), 3)), [("scan_step", 4)]);
        assert_eq!(added(&db, || db.cursor((Unbounded::<&str>, Unbounded)).next()), [("scan_step", 1)]);
        let transaction = || {
            let tx = db.transaction();
            tx.put("t", "");
            tx.commit()
        };
        assert_eq!(added(&db, transaction), [("conditional_write", 1), group]);
        assert_eq!(added(&db, || db.flush()), [("flush", 1)]);
        db.put("a", "2").unwrap();
        assert_eq!(added(&db, || db.compact()), [("flush", 1), ("compaction", 1)]);
    }

    #[test]
    fn rare_calls_are_all_timed_and_fast_ones_one_in_64() {
        let db = open(true);
        (0..640u32).for_each(|key| db.put(key.to_be_bytes(), "").unwrap());
        (0..70u32).for_each(|key| db.put_with(key.to_be_bytes(), "", Durability::Synced).unwrap());
        db.flush().unwrap();
        let latencies = db.stats().latencies.unwrap();
        assert_eq!(latencies.write.count, 640);
        assert!((9..=11).contains(&latencies.write.timed), "{:?}", latencies.write);
        assert_eq!((latencies.synced_write.count, latencies.synced_write.timed), (70, 70));
        assert_eq!((latencies.flush.count, latencies.flush.timed), (1, 1));
        for (name, latency) in latencies.by_name() {
            assert_eq!(
                latency.buckets.iter().map(|bucket| bucket.count).sum::<u64>(),
                latency.timed,
                "{name}"
            );
            assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.p999, "{name}");
            assert!(latency.p999 <= latency.max && latency.max <= latency.total, "{name}");
        }
        assert!(latencies.flush.max.as_nanos() > 0);
    }

    #[test]
    fn histograms_are_in_the_memory_ledger_and_exist_only_if_they_are_on() {
        let on = open(true).stats();
        let bytes = on.memory.histograms;
        assert!((355 << 10..357 << 10).contains(&bytes), "{bytes} bytes, as the options document");
        assert!(on.memory.total() >= bytes);
        let off = open(false).stats();
        assert_eq!((off.latencies, off.memory.histograms), (None, 0));
    }

    #[test]
    fn the_least_budget_with_histograms_still_has_room_for_filters() {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).memory_budget(4 << 20);
        let db = options.latency_histograms(true).open("/db").unwrap();
        (0..10_000u32).for_each(|key| db.put(key.to_be_bytes(), "v").unwrap());
        db.compact().unwrap();
        db.open_tables().unwrap();
        let stats = db.stats();
        assert_eq!(stats.keyspaces[0].total().unloaded_filters, 0);
        assert!(
            stats.memory.filters > 0 && stats.memory.total() <= stats.memory.budget,
            "{:?}",
            stats.memory
        );
    }
}
