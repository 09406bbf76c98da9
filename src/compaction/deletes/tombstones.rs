//! Chooses tables to compact because of their tombstones.
//!
//! An idle tree would keep its tombstones forever. If no other compaction is due, there are two reasons for one:
//!
//! - *share*: the weight of all tombstones reaches a tenth of the tree's entries. A tombstone weighs 1 plus its age:
//!   the number of entries written after its table, in units of the tree's entries, up to 9;
//! - *slow scans*: skipping hidden entries has cost scans more than compacting the table would.
//!
//! A table with range deletes weighs at least a quarter of its own entries and of the entries in older tables that it
//! overlaps. The table with the most weight per rewritten byte is compacted into the next level. Without overlap it
//! is moved; at the bottom it is rewritten. So each task moves tombstones down or drops them. With expiry, tombstones
//! expire instead.
//!
//! A table with an entry newer than the oldest snapshot does not count until this snapshot is released ([`held_back`]).

use std::sync::Arc;

use crate::compaction::claimed_ranges::Busy;
use crate::compaction::pick::{level_0_groups, level_0_task, overlapping, table_inputs};
use crate::compaction::task::{Task, Urgency};
use crate::key::SeqNo;
use crate::manifest::edit::LEVELS;
use crate::table_meta::TableMeta;
use crate::version::{Run, TableHandle, Version};

const SHARE_MAX: f64 = 0.1;

const AGE_MAX: f64 = 9.0;

/// Approximate number of bytes compacted in the time in which a scan skips one entry.
const BYTES_PER_SKIP: u64 = 64;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Readers {
    pub(crate) oldest_snapshot: SeqNo,
    pub(crate) skipped: u64,
}

struct Weights<'a> {
    version: &'a Version,
    readers: &'a Readers,
    busy: &'a Busy,
    entries: u64,
    newest: SeqNo,
}

impl<'a> Weights<'a> {
    fn new(version: &'a Version, busy: &'a Busy, readers: &'a Readers) -> Self {
        let totals = version.totals();
        Self { version, readers, busy, entries: totals.entries, newest: totals.seqno_max }
    }

    fn of(&self, table: &TableHandle) -> f64 {
        let meta = &table.meta;
        if meta.seqno_max > self.readers.oldest_snapshot || self.busy.has(table) {
            return 0.0;
        }
        let age = (self.newest - meta.seqno_max) as f64 / self.entries.max(1) as f64;
        let tombstones = match &meta.spans {
            Some(spans) => meta.tombstones.max(spans.count).max(self.overlapped(table) / 4),
            None => meta.tombstones,
        };
        tombstones as f64 * (1.0 + age.min(AGE_MAX))
    }

    fn overlapped(&self, table: &TableHandle) -> u64 {
        let of_run = |run: &Run| run.tables.iter().any(|other| other.meta.number == table.meta.number);
        let runs = self.version.all_runs().map(|(_, run)| run).skip_while(|run| !of_run(run)).skip(1);
        let older = runs.flat_map(|run| run.overlapping(&table.meta.smallest, &table.meta.largest));
        older.map(|older| older.meta.entries).fold(table.meta.entries, u64::saturating_add)
    }

    fn of_all<'t>(&self, tables: impl IntoIterator<Item = &'t Arc<TableHandle>>) -> f64 {
        tables.into_iter().map(|table| self.of(table)).sum()
    }
}

pub(crate) fn pick(version: &Version, busy: &Busy, readers: &Readers) -> Option<(Urgency, Task)> {
    let totals = version.totals();
    // An upper bound that needs only totals.
    let share_max = totals.tombstones as f64 * (1.0 + AGE_MAX) / totals.entries.max(1) as f64;
    let is_light =
        totals.with_spans == 0 && (totals.tombstones == 0 || share_max < SHARE_MAX && readers.skipped == 0);
    if version.is_in_buckets() || is_light {
        return None;
    }
    let weights = Weights::new(version, busy, readers);
    let share = weights.of_all(version.all_tables().map(|(_, table)| table)) / weights.entries.max(1) as f64;
    let affordable = readers.skipped.saturating_mul(BYTES_PER_SKIP);
    if share == 0.0 || share < SHARE_MAX && affordable == 0 {
        return None;
    }
    let level_0 = level_0_groups(version).into_iter().filter_map(|group| {
        let weight = weights.of_all(&group);
        Some((weight, (weight > 0.0).then(|| level_0_task(version, busy, &group))??))
    });
    let deeper = (1..LEVELS).flat_map(|level| version.tables(level).map(move |table| (level, table)));
    let deeper = deeper.filter_map(|(level, table)| {
        let weight = weights.of(table);
        Some((weight, (weight > 0.0).then(|| table_task(version, busy, level, table))??))
    });
    let value = |(weight, task): &(f64, Task)| weight / task.rewritten_bytes().max(1) as f64;
    let all = level_0.chain(deeper);
    let fitting = all.filter(|(_, task)| share >= SHARE_MAX || task.rewritten_bytes() <= affordable);
    let (_, task) = fitting.max_by(|a, b| value(a).total_cmp(&value(b)))?;
    // Compactions that restore the shape have a score of at least 1.
    Some((Urgency::of_score(share.min(0.999)), task))
}

/// Returns the number that the oldest snapshot must reach before a further table counts.
pub(crate) fn held_back(version: &Version, oldest_snapshot: SeqNo) -> Option<SeqNo> {
    let totals = version.totals();
    let has_none = totals.tombstones == 0 && totals.with_spans == 0;
    if version.is_in_buckets() || has_none || totals.seqno_max <= oldest_snapshot {
        return None;
    }
    let metas = version.all_tables().map(|(_, table)| &table.meta);
    let is_heavy = |meta: &TableMeta| meta.tombstones > 0 || meta.spans.is_some();
    let held = metas.filter(|meta| is_heavy(meta) && meta.seqno_max > oldest_snapshot);
    held.map(|meta| meta.seqno_max).min()
}

fn table_task(version: &Version, busy: &Busy, level: usize, table: &Arc<TableHandle>) -> Option<Task> {
    let overlapped = |level| overlapping(version, level, &table.meta.smallest, &table.meta.largest);
    let below = if level + 1 < LEVELS { overlapped(level + 1) } else { &[] };
    let trivial_move = below.is_empty() && (level + 2..LEVELS).any(|level| !overlapped(level).is_empty());
    let output_level = if below.is_empty() && !trivial_move { level } else { level + 1 };
    busy.allowed(Task { inputs: table_inputs(level, table, below), output_level, trivial_move })
}

#[cfg(test)]
pub(in crate::compaction) mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::manifest::edit::tests::meta;
    use crate::table_meta::TableMeta;
    use crate::version::SharedByTables;

    const ANYTHING: Readers = Readers { oldest_snapshot: SeqNo::MAX, skipped: 0 };

    pub(crate) fn table(
        number: u64,
        smallest: &str,
        largest: &str,
        tombstones: u64,
        newest: SeqNo,
    ) -> Arc<TableHandle> {
        let of = meta(number, smallest, largest, 1000);
        let meta = TableMeta { entries: 100, keys: 100, tombstones, seqno_max: newest, ..of };
        TableHandle::new(Arc::new(meta), &SharedByTables::for_tests())
    }

    fn version(tables: Vec<(usize, Arc<TableHandle>)>) -> Version {
        let run = |level: usize, table: &TableHandle| if level == 0 { table.meta.number } else { 0 };
        let added = tables.into_iter().map(|(level, table)| (level, run(level, &table), table)).collect();
        Version::default().apply(&HashSet::new(), added)
    }

    fn picked(version: &Version, busy: &[u64], readers: Readers) -> Option<(Vec<u64>, usize, bool)> {
        let (_, task) = pick(version, &busy.iter().copied().collect(), &readers)?;
        let mut numbers: Vec<_> = task.numbers().into_iter().collect();
        numbers.sort_unstable();
        Some((numbers, task.output_level, task.trivial_move))
    }

    #[test]
    fn the_table_with_most_tombstones_for_its_bytes_is_compacted_with_what_it_overlaps() {
        let tree = version(vec![
            (1, table(1, "a", "b", 30, 100)),
            (1, table(2, "c", "d", 40, 100)),
            (2, table(3, "a", "a", 0, 50)),
            (2, table(4, "c", "c", 0, 50)),
            (2, table(5, "d", "e", 0, 50)),
        ]);
        assert_eq!(picked(&tree, &[], ANYTHING), Some((vec![1, 3], 2, false)));
        assert_eq!(picked(&tree, &[3], ANYTHING), Some((vec![2, 4, 5], 2, false)));
        assert_eq!(picked(&tree, &[1], ANYTHING), None, "the others are a share of 8 %");
    }

    #[test]
    fn tombstones_are_moved_to_what_they_may_hide_and_dropped_where_nothing_is_below() {
        let above = version(vec![(1, table(1, "a", "b", 100, 100)), (4, table(2, "b", "c", 0, 50))]);
        assert_eq!(picked(&above, &[], ANYTHING), Some((vec![1], 2, true)));
        let alone = version(vec![(2, table(1, "a", "b", 50, 100)), (4, table(2, "c", "d", 0, 50))]);
        assert_eq!(picked(&alone, &[], ANYTHING), Some((vec![1], 2, false)));
        let deepest = version(vec![(6, table(1, "a", "b", 50, 100))]);
        assert_eq!(picked(&deepest, &[], ANYTHING), Some((vec![1], 6, false)));
        let flushed = version(vec![(0, table(1, "a", "b", 50, 100)), (1, table(2, "b", "d", 0, 50))]);
        assert_eq!(picked(&flushed, &[], ANYTHING), Some((vec![1, 2], 1, false)));
    }

    #[test]
    fn few_tombstones_count_when_they_are_old() {
        let of = |newest: SeqNo| {
            version(vec![(1, table(1, "a", "b", 4, 100)), (1, table(2, "c", "d", 0, newest))])
        };
        // Since the first table, twice as many entries were written as the tree has, so each tombstone weighs 3.
        assert_eq!(picked(&of(500), &[], ANYTHING), None);
        assert_eq!(picked(&of(1000), &[], ANYTHING), Some((vec![1], 1, false)));
        let one = version(vec![(1, table(1, "a", "b", 1, 100)), (1, table(2, "c", "d", 0, 1 << 40))]);
        assert_eq!(picked(&one, &[], ANYTHING), None, "one in two hundred is never worth it");
    }

    #[test]
    fn what_a_snapshot_holds_back_is_left_until_the_snapshot_has_passed_it() {
        let tree = version(vec![(1, table(1, "a", "b", 100, 300)), (1, table(2, "c", "d", 100, 200))]);
        let at = |oldest_snapshot| Readers { oldest_snapshot, skipped: 0 };
        assert_eq!(picked(&tree, &[], at(199)), None);
        assert_eq!(held_back(&tree, 199), Some(200));
        assert_eq!(picked(&tree, &[], at(200)), Some((vec![2], 1, false)));
        assert_eq!(held_back(&tree, 200), Some(300));
        assert_eq!(held_back(&tree, SeqNo::MAX), None);
    }

    #[test]
    fn scans_that_skip_much_pay_for_a_compaction_of_as_many_bytes() {
        let tree = version(vec![(1, table(1, "a", "b", 5, 100)), (1, table(2, "c", "d", 0, 100))]);
        let after = |skipped| Readers { skipped, ..ANYTHING };
        assert_eq!(picked(&tree, &[], after(15)), None);
        assert_eq!(picked(&tree, &[], after(16)), Some((vec![1], 1, false)));
    }
}
