//! Compacts a key range into one run, task by task.
//!
//! Tables that overlap the range move down level by level to the *goal*. This is the deepest level with such a table,
//! or the next deeper one that is large enough for all of them.
//!
//! 1. *Level 0*: neighbouring groups of nearby tables, with their overlap below.
//! 2. *Each level above the goal*, in key order: a few neighbouring tables, with their overlap in the first deeper
//!    level that has any. If there is much data between neighbours in a deeper level, they become separate tasks.
//! 3. *The goal*: tables from before the call are rewritten in place with the present options.
//!
//! With expiry, the tables of each bucket are merged into one run. Tables flushed after the call are skipped, and the
//! tasks of a level have ascending keys, so the compaction ends despite concurrent writes.

use std::sync::Arc;

use super::buckets::pick::merge;
use super::buckets::runs::BucketRuns;
use super::claimed_ranges::Busy;
use super::pick::{level_0_groups, overlapping};
use super::shape::Shape;
use super::task::{Task, bounds_of, len_of};
use crate::manifest::edit::LEVELS;
use crate::snapshot_read::KeyRange;
use crate::sorting::sort_by_key;
use crate::version::{Run, TableHandle, Version};

const TABLES_TOGETHER: u64 = 8;

#[derive(Debug)]
pub(crate) enum Next {
    Task(Task),
    Busy,
    Done,
}

#[derive(Debug)]
pub(crate) struct RangeCompaction {
    range: KeyRange,
    /// Tables with smaller numbers existed before the call.
    end_number: u64,
    goal: usize,
    level: usize,
    done_to: Option<Vec<u8>>,
    room: u64,
}

impl RangeCompaction {
    /// Returns `None` if all tables can stay. After a merge within level 0, tables numbered from `end_number` on may
    /// have entries from before the call ([`TableHandle::since`]).
    pub(crate) fn new(
        range: KeyRange,
        version: &Version,
        shape: &Shape,
        end_number: u64,
        needs_rewriting: impl Fn(&TableHandle) -> bool,
    ) -> Option<Self> {
        let mut compaction = Self { range, end_number, goal: 0, level: 0, done_to: None, room: u64::MAX };
        if BucketRuns::of(version).is_some() {
            compaction.goal = LEVELS;
            return compaction.next_bucket(version).is_some().then_some(compaction);
        }
        let tables: Vec<_> = compaction.tables(version).collect();
        let bytes = len_of(tables.iter().map(|(_, table)| *table));
        let deepest = tables.iter().map(|(level, _)| *level).max()?;
        let fitting = (1..LEVELS - 1).find(|&level| bytes <= shape.target(level)).unwrap_or(LEVELS - 1);
        compaction.goal = deepest.max(fitting);
        let is_settled = |(level, table): &(usize, &Arc<TableHandle>)| {
            let meta = &table.meta;
            *level == compaction.goal
                && meta.tombstones == 0
                && meta.entries == meta.keys
                && meta.spans.is_none()
                && !needs_rewriting(table)
        };
        (!tables.iter().all(is_settled)).then_some(compaction)
    }

    pub(crate) fn set_room(&mut self, bytes: u64) {
        self.room = bytes;
    }

    pub(crate) fn remaining_bytes(&self, version: &Version) -> u64 {
        if let Some(runs) = BucketRuns::of(version) {
            let waiting = runs.all().iter().filter(|bucket| self.is_to_merge(bucket));
            return waiting.map(|bucket| data_bytes(bucket)).fold(0, u64::saturating_add);
        }
        let to_go = |level: usize| (self.goal.max(1) - level.min(self.goal)).max(1) as u64;
        let is_left = |(level, table): &(usize, &Arc<TableHandle>)| {
            *level != self.goal || table.meta.number < self.end_number
        };
        let left = self.tables(version).filter(is_left);
        left.map(|(level, table)| table.meta.data_bytes.saturating_mul(to_go(level)))
            .fold(0, u64::saturating_add)
    }

    pub(crate) fn goal(&self) -> usize {
        self.goal
    }

    /// A task below level 0 is returned once, even if it is not executed.
    pub(crate) fn next(&mut self, version: &Version, busy: &Busy, shape: &Shape) -> Next {
        if version.is_in_buckets() {
            let Some(task) = self.next_bucket(version) else { return Next::Done };
            return busy.allowed(task).map_or(Next::Busy, Next::Task);
        }
        let deepest = self.tables(version).map(|(level, _)| level).max().unwrap_or(0);
        self.goal = if self.goal < LEVELS { self.goal.max(deepest) } else { deepest };
        if self.level == 0 {
            let tables = self.next_of_level_0(version, shape);
            if !tables.is_empty() {
                return self.down(version, busy, &tables).map_or(Next::Busy, Next::Task);
            }
            self.level = 1;
        }
        while self.level <= self.goal {
            match self.next_on_level(version, busy, shape) {
                Next::Done => (self.level, self.done_to) = (self.level + 1, None),
                next => return next,
            }
        }
        Next::Done
    }

    fn next_bucket(&self, version: &Version) -> Option<Task> {
        let runs = BucketRuns::of(version)?;
        runs.all().iter().find(|bucket| self.is_to_merge(bucket)).map(|bucket| merge(bucket))
    }

    fn is_to_merge(&self, bucket: &[Run]) -> bool {
        let mut tables = bucket.iter().flat_map(|run| run.tables.iter());
        bucket.len() > 1 && tables.any(|table| self.meets(table) && table.meta.number < self.end_number)
    }

    fn next_of_level_0(&self, version: &Version, shape: &Shape) -> Vec<Arc<TableHandle>> {
        let mut groups = level_0_groups(version);
        sort_by_key(&mut groups, |group| bounds_of(group).map(|(smallest, _)| smallest.clone()));
        let is_old = |table: &Arc<TableHandle>| self.meets(table) && table.since() < self.end_number;
        let is_due = |group: &Vec<Arc<TableHandle>>| group.iter().any(is_old);
        let mut together: Vec<Arc<TableHandle>> = Vec::new();
        let mut bytes = 0u64;
        for group in groups.into_iter().skip_while(|group| !is_due(group)).take_while(is_due) {
            bytes = bytes.saturating_add(len_of(&group));
            bytes = bytes.saturating_add(self.bytes_between(version, &together, &group));
            let is_much = bytes > shape.table_bytes.saturating_mul(TABLES_TOGETHER);
            if !together.is_empty() && (is_much || !self.has_room_for(version, &together, &group)) {
                break;
            }
            together.extend(group);
        }
        together
    }

    fn next_on_level(&mut self, version: &Version, busy: &Busy, shape: &Shape) -> Next {
        let is_after = |table: &&Arc<TableHandle>| {
            self.done_to.as_ref().is_none_or(|done| table.meta.smallest[..] > done[..]) && self.meets(table)
        };
        let is_goal = self.level == self.goal;
        let is_due = |table: &&Arc<TableHandle>| !is_goal || table.meta.number < self.end_number;
        let waiting = version.tables(self.level).filter(is_after);
        let mut together = Vec::new();
        let mut bytes = 0u64;
        for table in waiting.skip_while(|table| !is_due(table)).take_while(|table| is_due(table)) {
            let between = self.bytes_between(version, &together, std::slice::from_ref(table));
            bytes = bytes.saturating_add(table.meta.len).saturating_add(between);
            if !together.is_empty()
                && (bytes > shape.table_bytes.saturating_mul(TABLES_TOGETHER)
                    || busy.has(table)
                    || !self.has_room_for(version, &together, std::slice::from_ref(table)))
            {
                break;
            }
            together.push(Arc::clone(table));
        }
        let Some(last) = together.last() else { return Next::Done };
        let done_to = last.meta.largest.to_vec();
        let task = if is_goal {
            let inputs = together.into_iter().map(|table| (self.level, table)).collect();
            busy.allowed(Task { inputs, output_level: self.goal, trivial_move: false })
        } else {
            self.down(version, busy, &together)
        };
        let Some(task) = task else { return Next::Busy };
        self.done_to = Some(done_to);
        Next::Task(task)
    }

    fn bytes_between(&self, version: &Version, left: &[Arc<TableHandle>], right: &[Arc<TableHandle>]) -> u64 {
        let (Some((_, end)), Some((start, _))) = (bounds_of(left), bounds_of(right)) else { return 0 };
        let is_between =
            |table: &&Arc<TableHandle>| table.meta.smallest > *end && table.meta.largest < *start;
        let between = |level| len_of(overlapping(version, level, end, start).iter().filter(is_between));
        (self.level + 1..=self.goal).map(between).max().unwrap_or(0)
    }

    fn has_room_for(
        &self,
        version: &Version,
        tables: &[Arc<TableHandle>],
        more: &[Arc<TableHandle>],
    ) -> bool {
        if self.room == u64::MAX {
            return true;
        }
        let bounds = bounds_of(tables).zip(bounds_of(more));
        let below = |level| {
            bounds.map_or(0, |(a, b)| len_of(overlapping(version, level, a.0.min(b.0), a.1.max(b.1))))
        };
        let most_below = (self.level + 1..=self.goal).map(below).max().unwrap_or(0);
        len_of(tables).saturating_add(len_of(more)).saturating_add(most_below) <= self.room
    }

    fn down(&self, version: &Version, busy: &Busy, tables: &[Arc<TableHandle>]) -> Option<Task> {
        let (smallest, largest) = bounds_of(tables)?;
        let below = |level: usize| overlapping(version, level, smallest, largest);
        let goal = self.goal.max(self.level + 1);
        let output_level = (self.level + 1..goal).find(|&level| !below(level).is_empty()).unwrap_or(goal);
        let below = below(output_level);
        let mut inputs: Vec<_> = tables.iter().map(|table| (self.level, Arc::clone(table))).collect();
        inputs.extend(below.iter().map(|table| (output_level, Arc::clone(table))));
        busy.allowed(Task { inputs, output_level, trivial_move: false })
    }

    fn meets(&self, table: &TableHandle) -> bool {
        !self.range.starts_after(&table.meta.largest) && !self.range.ends_before(&table.meta.smallest)
    }

    pub(crate) fn tables<'v>(
        &self,
        version: &'v Version,
    ) -> impl Iterator<Item = (usize, &'v Arc<TableHandle>)> {
        version.all_tables().filter(|(_, table)| self.meets(table))
    }
}

fn data_bytes(runs: &[Run]) -> u64 {
    let tables = runs.iter().flat_map(|run| run.tables.iter());
    tables.map(|table| table.meta.data_bytes).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::compaction::pick::pick;
    use crate::version::handle;

    const SHAPE: Shape = Shape { l0_runs: 4, level_base_bytes: 100, level_ratio: 10, table_bytes: 10 };

    fn version(tables: &[(usize, u64, &str, &str, u64)]) -> Version {
        let added = tables.iter().map(|&(level, number, smallest, largest, len)| {
            let run = if level == 0 { number } else { 0 };
            (level, run, handle(number, smallest, largest, len))
        });
        Version::default().apply(&HashSet::new(), added.collect())
    }

    /// Executes all tasks in metadata only; each makes one table. Returns the inputs and the level of each task.
    fn carried_out(
        mut tree: Version,
        range: KeyRange,
        mut between: impl FnMut(&Version) -> Option<Version>,
    ) -> (Version, Vec<(Vec<u64>, usize)>) {
        let mut number = 100;
        let Some(mut compaction) = RangeCompaction::new(range, &tree, &SHAPE, number, |_| false) else {
            return (tree, Vec::new());
        };
        let mut tasks = Vec::new();
        loop {
            let task = match compaction.next(&tree, &Busy::default(), &SHAPE) {
                Next::Task(task) => task,
                Next::Busy => panic!("nothing is busy"),
                Next::Done => return (tree, tasks),
            };
            let mut numbers: Vec<_> = task.numbers().into_iter().collect();
            numbers.sort_unstable();
            tasks.push((numbers, task.output_level));
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let smallest = task.inputs.iter().map(|(_, table)| text(&table.meta.smallest)).min().unwrap();
            let largest = task.inputs.iter().map(|(_, table)| text(&table.meta.largest)).max().unwrap();
            let output = handle(number, &smallest, &largest, task.rewritten_bytes());
            number += 1;
            tree = tree.apply(&task.numbers(), vec![(task.output_level, 0, output)]);
            assert_eq!(tree.overlap_in_a_run(), None);
            tree = between(&tree).unwrap_or(tree);
        }
    }

    fn undisturbed(tree: &[(usize, u64, &str, &str, u64)], range: KeyRange) -> Vec<(Vec<u64>, usize)> {
        carried_out(version(tree), range, |_| None).1
    }

    #[test]
    fn tables_go_down_level_by_level_with_what_they_overlap() {
        let tree = [
            (0, 1, "b", "c", 5),
            (0, 2, "c", "d", 5),
            (1, 3, "a", "b", 50),
            (1, 4, "m", "n", 50),
            (2, 5, "a", "d", 400),
            (2, 6, "e", "k", 90),
            (2, 7, "m", "p", 400),
        ];
        let expected = vec![
            (vec![1, 2, 3], 1),
            (vec![5, 100], 2),
            (vec![4, 7], 2),
            // No task has written this table so far.
            (vec![6], 2),
        ];
        assert_eq!(undisturbed(&tree, KeyRange::all()), expected);
    }

    #[test]
    fn neighbours_are_not_taken_together_if_much_lies_between_them_below() {
        let between = |len: u64| [(1, 1, "a", "b", 5), (1, 2, "y", "z", 5), (2, 3, "c", "x", len)];
        let tasks = undisturbed(&between(70), KeyRange::all());
        assert_eq!(tasks, [(vec![1, 2, 3], 2)]);
        let tasks = undisturbed(&between(71), KeyRange::all());
        assert_eq!(tasks, [(vec![1], 2), (vec![2], 2), (vec![3], 2)]);
        let flushed = [(0, 1, "a", "b", 5), (0, 2, "y", "z", 5), (1, 3, "c", "x", 90), (2, 4, "a", "b", 9)];
        let tasks = undisturbed(&flushed, KeyRange::all());
        assert_eq!(tasks[..2], [(vec![1, 4], 2), (vec![2], 2)]);
    }

    #[test]
    fn levels_that_have_nothing_of_the_keys_are_skipped() {
        let tree = [(0, 1, "a", "c", 5), (2, 2, "x", "z", 50), (4, 3, "b", "d", 50)];
        assert_eq!(
            undisturbed(&tree, KeyRange::all()),
            [(vec![1, 3], 4), (vec![2], 4)].map(|(inputs, level)| (inputs, level))
        );
        let small = [(0, 1, "a", "c", 5), (0, 2, "b", "d", 5), (0, 3, "e", "f", 5)];
        assert_eq!(undisturbed(&small, KeyRange::all()), [(vec![1, 2, 3], 1)]);
    }

    #[test]
    fn only_tables_that_meet_the_range_and_what_they_overlap_are_rewritten() {
        let tree = [
            (0, 1, "a", "c", 5),
            (0, 2, "x", "z", 5),
            (1, 3, "b", "d", 50),
            (1, 4, "p", "q", 50),
            (1, 5, "x", "y", 50),
        ];
        assert_eq!(undisturbed(&tree, KeyRange::new(&("a"..="a"))), [(vec![1, 3], 1)]);
        assert_eq!(undisturbed(&tree, KeyRange::new(&("p".."q"))), [] as [(Vec<u64>, usize); 0], "settled");
        assert_eq!(undisturbed(&tree, KeyRange::new(&("e".."m"))), [] as [(Vec<u64>, usize); 0]);
    }

    #[test]
    fn one_run_without_anything_to_drop_is_left_alone_unless_a_table_needs_rewriting() {
        let new = |tree: &Version, needs: bool| {
            RangeCompaction::new(KeyRange::all(), tree, &SHAPE, 100, |_| needs).is_some()
        };
        let one = version(&[(2, 9, "a", "z", 220)]);
        assert!(!new(&one, false) && new(&one, true));
        assert!(!new(&Version::default(), true));
        assert!(new(&version(&[(1, 9, "a", "z", 220)]), false), "level 1 is too small for it");
    }

    #[test]
    fn small_neighbours_are_joined_up_to_a_limit() {
        let name = |n: u64| format!("{n:02}");
        let tree: Vec<_> = (0..10).map(|n| (2, n + 1, name(2 * n), name(2 * n + 1), 20)).collect();
        let mut tree: Vec<_> = tree.iter().map(|(l, n, a, b, len)| (*l, *n, &a[..], &b[..], *len)).collect();
        tree.push((1, 50, "99", "99", 5));
        let tasks = undisturbed(&tree, KeyRange::all());
        let expected = [vec![50], vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![9, 10]];
        assert_eq!(tasks.iter().map(|(inputs, _)| inputs.clone()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn it_ends_although_tables_are_flushed_and_compacted_meanwhile() {
        let tree = version(&[(0, 1, "a", "m", 5), (1, 2, "c", "n", 60), (2, 3, "a", "z", 900)]);
        let mut flushed = 200;
        let (tree, tasks) = carried_out(tree, KeyRange::all(), |tree| {
            flushed += 2;
            // A flush, and a compaction that moves another table to a gap in level 1.
            let mut added = vec![(0, flushed, handle(flushed, "a", "z", 5))];
            if tree.runs(1).is_empty() {
                added.push((1, 0, handle(flushed + 1, "b", "y", 5)));
            }
            Some(tree.apply(&HashSet::new(), added))
        });
        assert_eq!(tasks, [(vec![1, 2], 1), (vec![3, 100], 2)]);
        assert_eq!(tree.runs(0).len(), 2);
    }

    #[test]
    fn what_another_job_has_reserved_is_waited_for() {
        let tree = version(&[(1, 1, "a", "c", 60), (2, 2, "b", "d", 500)]);
        let mut compaction = RangeCompaction::new(KeyRange::all(), &tree, &SHAPE, 100, |_| false).unwrap();
        for busy in [1, 2] {
            assert!(matches!(compaction.next(&tree, &Busy::from_iter([busy]), &SHAPE), Next::Busy));
        }
        assert!(matches!(compaction.next(&tree, &Busy::default(), &SHAPE), Next::Task(_)));
    }

    #[test]
    fn tables_that_are_merged_within_level_0_meanwhile_are_as_old_as_the_oldest_of_them() {
        let old: Vec<_> = (1..=4).map(|n| (0, n, "a", "z", 5)).collect();
        let tree = version(&[&old[..], &[(1, 5, "a", "z", 60)]].concat());
        let mut compaction = RangeCompaction::new(KeyRange::all(), &tree, &SHAPE, 100, |_| false).unwrap();
        assert!(matches!(compaction.next(&tree, &Busy::from_iter([5]), &SHAPE), Next::Busy));
        let merged = handle(200, "a", "z", 20);
        merged.set_since(1);
        let tree = tree.apply(&HashSet::from([1, 2, 3, 4]), vec![(0, 4, merged.closed())]);
        let Next::Task(task) = compaction.next(&tree, &Busy::default(), &SHAPE) else { panic!("it is done") };
        assert_eq!(task.numbers(), HashSet::from([5, 200]));
    }

    /// Takes the first task of a compaction of all keys; the task makes one table. While it runs, tables with the
    /// bounds `flushed` are added to level 0, and background tasks run. Returns any overlap at the end.
    fn overlap_beside(tree: &[(usize, u64, &str, &str, u64)], flushed: (&str, &str)) -> Option<(u64, u64)> {
        let mut tree = version(tree);
        let mut compaction = RangeCompaction::new(KeyRange::all(), &tree, &SHAPE, 100, |_| true).unwrap();
        let mut busy = Busy::default();
        let Next::Task(task) = compaction.next(&tree, &busy, &SHAPE) else { panic!("nothing is busy") };
        assert!(busy.take(&task));
        let added = |number| (0, number, handle(number, flushed.0, flushed.1, 5));
        tree = tree.apply(&HashSet::new(), (200..204).map(added).collect());
        for _ in 0..10 {
            if let Some((_, other)) = pick(&tree, &busy, &SHAPE) {
                assert!((other.trivial_move || other.output_level == 0) && busy.allows_task(&other));
                let moved = other.inputs.iter().map(|(_, table)| (other.output_level, 0, Arc::clone(table)));
                let added = if other.trivial_move { moved.collect() } else { vec![added(210)] };
                tree = tree.apply(&other.numbers(), added);
            }
        }
        let bound = |bytes: Option<&bytes::Bytes>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        let metas = || task.inputs.iter().map(|(_, table)| &table.meta);
        let smallest = bound(metas().map(|meta| &meta.smallest).min());
        let largest = bound(metas().map(|meta| &meta.largest).max());
        let output = handle(300, &smallest, &largest, task.rewritten_bytes());
        tree.apply(&task.numbers(), vec![(task.output_level, 0, output)]).overlap_in_a_run()
    }

    #[test]
    fn no_table_is_put_into_a_gap_between_the_inputs_of_a_running_task() {
        let rewritten = [(1, 1, "a", "c", 10), (1, 2, "x", "z", 10)];
        let of_level_0 = [
            (0, 1, "a", "b", 5),
            (0, 2, "y", "z", 5),
            (1, 3, "b", "c", 10),
            (1, 4, "d", "e", 10),
            (1, 5, "w", "y", 10),
        ];
        let down = [(2, 1, "a", "c", 10), (2, 2, "x", "z", 10), (1, 3, "a", "b", 10), (1, 4, "y", "z", 10)];
        for tree in [&rewritten[..], &of_level_0, &down] {
            assert_eq!(overlap_beside(tree, ("m", "n")), None, "{tree:?}");
        }
    }
}
