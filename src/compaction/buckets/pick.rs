//! The next merge in a tree with expiry: a pure function of a version and its buckets.
//!
//! 1. *The open bucket*: its young runs ([`runs`](super::runs)) are merged when their number reaches the trigger of
//!    level 0 plus the number of merged runs. So n flushes leave O(√n) runs, and an entry is rewritten once, or
//!    O(log n) times if flushes are small.
//! 2. *A closed bucket* with several runs, the newest bucket first: its runs are merged into one, which is never
//!    rewritten.
//! 3. *Small closed buckets*: neighbours share a run, which is dropped when its newest entries have expired. A run
//!    joins the merge if it is at most twice as long as the newer runs together. So an entry is rewritten O(log b)
//!    times for b buckets.
//!
//! So without small runs, at most three bytes are written for each byte, including the flush. Tables in deeper levels
//! were written before the keyspace had a time to live. They are kept until they expire.

use super::runs::{BucketRuns, small_bytes, young};
use crate::compaction::claimed_ranges::Busy;
use crate::compaction::debt;
use crate::compaction::shape::Shape;
use crate::compaction::task::{Task, Urgency};
use crate::version::Run;

pub(crate) fn pick(runs: &BucketRuns<'_>, busy: &Busy, shape: &Shape) -> Option<(Urgency, Task)> {
    let pressure = debt::of_runs(runs.pressing(shape), shape).max(debt::of_debt(runs.debt(), shape));
    let (score, inputs) = open_bucket(runs, busy, shape)
        .or_else(|| Some((1.0, closed_bucket(runs, busy)?)))
        .or_else(|| Some((1.0, small_buckets(runs, busy, shape)?)))?;
    Some((Urgency::new(pressure, score), merge(inputs)))
}

/// Merges whole runs into one, which takes the position of the newest.
pub(crate) fn merge(runs: &[Run]) -> Task {
    let tables = runs.iter().flat_map(|run| run.tables.iter().cloned());
    Task { inputs: tables.map(|table| (0, table)).collect(), output_level: 0, trivial_move: false }
}

pub(crate) fn is_free(run: &Run, busy: &Busy) -> bool {
    !run.tables.iter().any(|table| busy.has(table))
}

fn open_bucket<'v>(runs: &BucketRuns<'v>, busy: &Busy, shape: &Shape) -> Option<(f64, &'v [Run])> {
    let open = runs.open();
    let merged = open.len() - young(open, shape, |_| true).len();
    let free = young(open, shape, |run| is_free(run, busy));
    let score = free.len() as f64 / (fan_in(shape) + merged) as f64;
    (score >= 1.0).then_some((score, free))
}

fn fan_in(shape: &Shape) -> usize {
    shape.l0_runs.max(2)
}

fn closed_bucket<'v>(runs: &BucketRuns<'v>, busy: &Busy) -> Option<&'v [Run]> {
    let is_due = |bucket: &&&[Run]| bucket.len() > 1 && bucket.iter().all(|run| is_free(run, busy));
    runs.closed().iter().find(is_due).copied()
}

fn small_buckets<'v>(runs: &BucketRuns<'v>, busy: &Busy, shape: &Shape) -> Option<&'v [Run]> {
    let closed = runs.closed_runs();
    (0..closed.len()).map(|from| &closed[from..]).find_map(|closed| {
        let mut bytes = 0_u64;
        let joins = |run: &&Run| {
            let len = run.totals().bytes;
            let joins = bytes == 0 || len <= bytes.saturating_mul(2);
            bytes = bytes.saturating_add(len);
            joins && bytes < small_bytes(shape) && is_free(run, busy)
        };
        let together = closed.iter().take_while(joins).count();
        (together >= fan_in(shape)).then(|| &closed[..together])
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};
    use std::sync::Arc;

    use super::*;
    use crate::expiry::buckets::Buckets;
    use crate::manifest::edit::tests::meta;
    use crate::table_meta::TableMeta;
    use crate::version::{SharedByTables, TableHandle, Version};
    use crate::wal::Boundary;

    const SHAPE: Shape = Shape { l0_runs: 4, level_base_bytes: 100, level_ratio: 10, table_bytes: 64 << 20 };
    const MIB: u64 = 1 << 20;

    /// A tree of metadata without files. Each flush has one sequence number.
    struct Tree {
        version: Version,
        seqno: u64,
        number: u64,
        /// How often the bytes of each flush were written.
        written: BTreeMap<u64, u64>,
        of_table: BTreeMap<u64, Vec<u64>>,
        flushed_bytes: u64,
        written_bytes: u64,
    }

    impl Tree {
        fn new() -> Self {
            let (version, seqno, number) = (Version::default(), 0, 0);
            let (written, of_table) = (BTreeMap::new(), BTreeMap::new());
            let (flushed_bytes, written_bytes) = (0, 0);
            let mut tree = Self { version, seqno, number, written, of_table, flushed_bytes, written_bytes };
            tree.begin();
            tree
        }

        fn handle(&mut self, len: u64, (oldest, newest): (u64, u64)) -> Arc<TableHandle> {
            self.number += 1;
            let meta = TableMeta { seqno_min: oldest, seqno_max: newest, ..meta(self.number, "a", "z", len) };
            let shared = SharedByTables::for_tests();
            TableHandle::new(Arc::new(meta), &shared)
        }

        fn begin(&mut self) {
            let mut buckets = self.version.buckets().map_or_else(Buckets::default, |own| (**own).clone());
            let time = buckets.boundaries().len() as u64 * 1000;
            buckets.begin(Boundary { time, seqno: self.seqno + 1 }).unwrap();
            self.version = self.version.with_buckets(Arc::new(buckets));
        }

        fn flush(&mut self, len: u64) {
            self.seqno += 1;
            let table = self.handle(len, (self.seqno, self.seqno));
            self.of_table.insert(table.meta.number, vec![self.seqno]);
            self.written.insert(self.seqno, 1);
            self.flushed_bytes += len;
            self.written_bytes += len;
            self.version = self.version.apply(&HashSet::new(), vec![(0, table.meta.number, table)]);
        }

        fn runs(&self) -> BucketRuns<'_> {
            BucketRuns::of(&self.version).unwrap()
        }

        fn picked(&self) -> Option<Task> {
            pick(&self.runs(), &Busy::default(), &SHAPE).map(|(_, task)| task)
        }

        fn merge(&mut self, task: &Task) {
            let inputs = || task.inputs.iter().map(|(_, table)| &table.meta);
            let len = inputs().map(|meta| meta.len).sum();
            let seqnos = (
                inputs().map(|meta| meta.seqno_min).min().unwrap(),
                inputs().map(|meta| meta.seqno_max).max().unwrap(),
            );
            let numbers = task.numbers();
            let flushes: Vec<u64> =
                numbers.iter().flat_map(|number| self.of_table.remove(number).unwrap()).collect();
            flushes.iter().for_each(|flush| *self.written.get_mut(flush).unwrap() += 1);
            let table = self.handle(len, seqnos);
            self.of_table.insert(table.meta.number, flushes);
            self.written_bytes += len;
            let run = self.version.newest_run(&numbers);
            self.version = self.version.apply(&numbers, vec![(0, run, table)]);
        }

        fn settle(&mut self) {
            while let Some(task) = self.picked() {
                self.merge(&task);
            }
        }

        fn counts(&self) -> Vec<usize> {
            self.runs().all().iter().map(|bucket| bucket.len()).collect()
        }
    }

    #[test]
    fn an_entry_is_rewritten_once_in_the_open_bucket_and_once_when_it_closes() {
        for flushes in [1, 2, 3, 4, 9, 20, 100, 1000] {
            let mut tree = Tree::new();
            for _ in 0..4 {
                for _ in 0..flushes {
                    tree.flush(64 * MIB);
                    tree.settle();
                }
                let runs = tree.counts()[0];
                assert!(runs * runs <= 9 * (flushes + 2), "{runs} runs of {flushes} flushes");
                assert!(tree.written.values().all(|written| *written <= 3));
                tree.begin();
            }
            tree.flush(64 * MIB);
            tree.settle();
            assert_eq!(tree.counts(), [1; 5], "a closed bucket ends as one run");
            assert!(tree.written.values().all(|written| *written <= 3));
            assert!(tree.written_bytes <= 3 * tree.flushed_bytes);
        }
    }

    #[test]
    fn a_closed_bucket_is_merged_once_and_after_the_first_flush_of_a_newer_one() {
        let mut tree = Tree::new();
        (0..3).for_each(|_| tree.flush(64 * MIB));
        tree.begin();
        assert!(tree.picked().is_none(), "a memtable with entries of the old bucket may wait");
        tree.flush(64 * MIB);
        let task = tree.picked().unwrap();
        assert_eq!((task.inputs.len(), task.output_level), (3, 0));
        tree.settle();
        assert_eq!(tree.counts(), [1, 1]);
        (0..2).for_each(|_| tree.flush(64 * MIB));
        assert!(tree.picked().is_none());
    }

    #[test]
    fn inputs_are_of_one_bucket_and_the_newest_closed_one_is_first() {
        let mut tree = Tree::new();
        for _ in 0..3 {
            (0..3).for_each(|_| tree.flush(2 * MIB));
            tree.begin();
        }
        tree.flush(MIB);
        let bucket = |seqno: u64, tree: &Tree| tree.version.buckets().unwrap().bucket_of(seqno);
        let mut order = Vec::new();
        while let Some(task) = tree.picked() {
            let buckets: HashSet<_> =
                task.inputs.iter().map(|(_, table)| bucket(table.meta.seqno_max, &tree)).collect();
            assert_eq!(buckets.len(), 1);
            order.extend(buckets);
            tree.merge(&task);
        }
        assert_eq!(order, [3, 2, 1]);
    }

    #[test]
    fn runs_of_closed_buckets_put_no_pressure_on_writers() {
        let mut tree = Tree::new();
        for _ in 0..24 {
            (0..3).for_each(|_| tree.flush(2 * MIB));
            tree.settle();
            tree.begin();
        }
        tree.flush(2 * MIB);
        assert_eq!(tree.runs().pressing(&SHAPE), 1);
        tree.settle();
        assert_eq!((tree.counts().len(), tree.runs().debt()), (25, 0));
        for _ in 0..100 {
            tree.flush(2 * MIB);
            tree.settle();
            assert!(tree.runs().pressing(&SHAPE) < SHAPE.l0_runs);
        }
        let mut tree = Tree::new();
        (0..12).for_each(|_| tree.flush(2 * MIB));
        let (urgency, _) = pick(&tree.runs(), &Busy::default(), &SHAPE).unwrap();
        assert!(urgency > Urgency::of_score(1e6), "writers are ahead of the merges");
    }

    #[test]
    fn closing_a_bucket_does_not_hold_up_the_open_one() {
        let mut tree = Tree::new();
        (0..3).for_each(|_| tree.flush(2 * MIB));
        tree.begin();
        tree.flush(2 * MIB);
        let (closing, mut busy) = (tree.picked().unwrap(), Busy::default());
        assert!(busy.take(&closing));
        (0..3).for_each(|_| tree.flush(2 * MIB));
        let (_, open) = pick(&tree.runs(), &busy, &SHAPE).unwrap();
        assert!(open.numbers().is_disjoint(&closing.numbers()) && busy.take(&open));
        tree.merge(&open);
        tree.merge(&closing);
        assert_eq!(tree.counts(), [1, 1]);
    }

    #[test]
    fn small_closed_buckets_share_a_run_and_few_are_left() {
        let mut tree = Tree::new();
        let mut most = 0;
        for _ in 0..1000 {
            tree.flush(1000);
            tree.settle();
            tree.begin();
            most = most.max(tree.version.runs(0).len());
        }
        assert!(most <= 20, "{most} runs");
        assert!(tree.written.values().all(|written| *written <= 16), "{:?}", tree.written.values().max());
        // Runs that are not small remain separate.
        for _ in 0..10 {
            tree.flush(MIB);
            tree.begin();
        }
        tree.settle();
        let long = tree.version.all_tables().filter(|(_, table)| table.meta.len == MIB);
        assert_eq!(long.count(), 10);
    }

    #[test]
    fn many_tiny_flushes_of_a_bucket_leave_few_runs() {
        let mut tree = Tree::new();
        let mut most = 0;
        for _ in 0..5000 {
            tree.flush(1000);
            tree.settle();
            most = most.max(tree.version.runs(0).len());
        }
        assert!(most <= 40, "{most} runs");
        let mean = tree.written_bytes as f64 / tree.flushed_bytes as f64;
        assert!(mean <= 9.0, "written {mean} times");
    }
}
