//! Chooses the next compaction: a pure function of a version.
//!
//! The score of level 0 is its number of runs divided by the trigger; the score of another level is its bytes divided
//! by its target. A level with a score of at least 1 is compacted into the next, the highest score first; a level is
//! skipped if all its tasks need reserved tables or ranges. Tasks of different trees are ordered by the pressure on
//! writers, then by score.
//!
//! - Level 0: one group of nearby tables ([`level_0_groups`]), with their overlap in level 1. If the oldest table
//!   overlaps no table there, only this table is moved. A small group is merged with short neighbours in level 1
//!   instead. If reservations prevent this for every group, newer tables are merged within level 0.
//! - Other levels: the table with the fewest overlapping bytes in the next level per byte of its own. Tombstones and
//!   range deletes multiply its bytes by up to five. It is moved if it overlaps no table below and not too many bytes
//!   one level deeper.
//!
//! An *idle compaction* starts when level 0 has half as many runs as the trigger, unless a group overlaps too much of
//! level 1. [`buckets`] picks compactions of trees with expiry.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use super::buckets::runs::BucketRuns;
use super::claimed_ranges::Busy;
use super::shape::Shape;
use super::task::{Task, Urgency, bounds_of, len_of};
use super::{buckets, debt};
use crate::manifest::edit::LEVELS;
use crate::sorting::{sort_by, sort_by_key};
use crate::version::{TableHandle, Version};

/// Maximum ratio of all input bytes to those of level 0. With the default options, two runs of level 0 and a full level
/// 1 have a ratio of at least 3.
pub(crate) const IDLE_COST_MAX: u64 = 5;

/// If a group and its overlap together are shorter than a table's target length divided by this number, the group is
/// merged, not moved. Otherwise tiny tables would accumulate.
const SMALL_PART: u64 = 8;

fn score(version: &Version, level: usize, shape: &Shape) -> f64 {
    if level == 0 {
        return version.runs(0).len() as f64 / shape.l0_runs as f64;
    }
    version.bytes(level) as f64 / shape.target(level) as f64
}

pub(crate) fn pick(version: &Version, busy: &Busy, shape: &Shape) -> Option<(Urgency, Task)> {
    if let Some(runs) = BucketRuns::of(version) {
        return buckets::pick::pick(&runs, busy, shape);
    }
    let mut levels: Vec<(f64, usize)> = (0..LEVELS - 1)
        .map(|level| (score(version, level, shape), level))
        .filter(|(score, _)| *score >= 1.0)
        .collect();
    sort_by(&mut levels, |a, b| b.0.total_cmp(&a.0));
    let (score, task) = levels.into_iter().find_map(|(score, level)| {
        let task = match level {
            0 => pick_level_0(version, busy, shape).or_else(|| merge_within_level_0(version, busy, shape)),
            _ => pick_table(version, busy, shape, level),
        };
        task.map(|task| (score, task))
    })?;
    let runs = debt::of_runs(version.runs(0).len(), shape);
    let pressure = runs.max(debt::of_debt(debt::debt(version, shape), shape));
    Some((Urgency::new(pressure, score), task))
}

pub(crate) fn pick_idle(version: &Version, busy: &Busy, shape: &Shape, cost_max: u64) -> Option<Task> {
    if version.is_in_buckets() || version.runs(0).len() < shape.l0_runs.div_ceil(2).max(2) {
        return None;
    }
    let groups = level_0_groups(version);
    let is_free = |group: &[Arc<TableHandle>]| !group.iter().any(|table| busy.has(table));
    let group = groups.iter().find(|group| overlap_each_other(group) && is_free(group))?;
    let task = level_0_merge(version, busy, group)?;
    (task.rewritten_bytes() <= len_of(group).saturating_mul(cost_max)).then_some(task)
}

pub(super) fn overlapping<'a>(
    version: &'a Version,
    level: usize,
    smallest: &[u8],
    largest: &[u8],
) -> &'a [Arc<TableHandle>] {
    version.runs(level).first().map_or(&[], |run| run.overlapping(smallest, largest))
}

fn with_level(level: usize, tables: &[Arc<TableHandle>]) -> impl Iterator<Item = (usize, Arc<TableHandle>)> {
    tables.iter().map(move |table| (level, Arc::clone(table)))
}

pub(super) fn table_inputs(
    level: usize,
    table: &Arc<TableHandle>,
    below: &[Arc<TableHandle>],
) -> Vec<(usize, Arc<TableHandle>)> {
    with_level(level, std::slice::from_ref(table)).chain(with_level(level + 1, below)).collect()
}

/// Two groups are separated by a table of level 1, so the output of one cannot overlap the other. In a group, the
/// newest table comes first. Groups with more tables come first; among equal numbers, the group with the oldest table.
pub(super) fn level_0_groups(version: &Version) -> Vec<Vec<Arc<TableHandle>>> {
    let runs = version.runs(0).iter().enumerate();
    let mut tables: Vec<_> = runs.flat_map(|(age, run)| run.tables.iter().map(move |t| (age, t))).collect();
    sort_by_key(&mut tables, |(_, table)| &table.meta.smallest);
    let mut end: Option<&[u8]> = None;
    let mut groups: Vec<Vec<(usize, &Arc<TableHandle>)>> = Vec::new();
    for (age, table) in tables {
        let is_near = end.is_some_and(|end| !lies_between(version, end, &table.meta.smallest));
        end = end.max(Some(&table.meta.largest));
        match groups.last_mut().filter(|_| is_near) {
            Some(group) => group.push((age, table)),
            None => groups.push(vec![(age, table)]),
        }
    }
    groups.iter_mut().for_each(|group| sort_by_key(group, |(age, _)| *age));
    sort_by_key(&mut groups, |group| Reverse((group.len(), group.last().map(|(age, _)| *age))));
    let handles = |group: Vec<(usize, &Arc<TableHandle>)>| {
        group.into_iter().map(|(_, table)| Arc::clone(table)).collect()
    };
    groups.into_iter().map(handles).collect()
}

fn lies_between(version: &Version, end: &[u8], start: &[u8]) -> bool {
    let mut met = overlapping(version, 1, end, start).iter();
    met.any(|table| &table.meta.smallest[..] > end && &table.meta.largest[..] < start)
}

fn overlap_each_other(tables: &[Arc<TableHandle>]) -> bool {
    let mut bounds: Vec<_> = tables.iter().map(|table| (&table.meta.smallest, &table.meta.largest)).collect();
    sort_by(&mut bounds, Ord::cmp);
    bounds.windows(2).any(|pair| pair[1].0 <= pair[0].1)
}

pub(super) fn level_0_task(version: &Version, busy: &Busy, group: &[Arc<TableHandle>]) -> Option<Task> {
    if group.iter().any(|table| busy.has(table)) {
        return None;
    }
    let oldest = group.last()?;
    if overlapping(version, 1, &oldest.meta.smallest, &oldest.meta.largest).is_empty() {
        let inputs = table_inputs(0, oldest, &[]);
        return busy.allowed(Task { inputs, output_level: 1, trivial_move: true });
    }
    level_0_merge(version, busy, group)
}

fn level_0_merge(version: &Version, busy: &Busy, group: &[Arc<TableHandle>]) -> Option<Task> {
    let (smallest, largest) = bounds_of(group)?;
    let below = overlapping(version, 1, smallest, largest);
    let inputs = with_level(0, group).chain(with_level(1, below)).collect();
    busy.allowed(Task { inputs, output_level: 1, trivial_move: false })
}

fn pick_level_0(version: &Version, busy: &Busy, shape: &Shape) -> Option<Task> {
    let task = |group: Vec<Arc<TableHandle>>| match small_merge(version, shape, &group) {
        Some(task) => busy.allowed(task),
        None => level_0_task(version, busy, &group),
    };
    level_0_groups(version).into_iter().find_map(task)
}

/// A run joins if its tables in the group are at most twice as long as all newer ones together. So a byte is rewritten
/// O(log n) times for n flushes.
fn merge_within_level_0(version: &Version, busy: &Busy, shape: &Shape) -> Option<Task> {
    let task = |group: Vec<Arc<TableHandle>>| {
        let numbers: HashSet<u64> = group.iter().map(|table| table.meta.number).collect();
        let is_in_group = |table: &&Arc<TableHandle>| numbers.contains(&table.meta.number);
        let (mut newest, mut runs): (Vec<Arc<TableHandle>>, usize) = (Vec::new(), 0);
        for run in version.runs(0) {
            let part: Vec<_> = run.tables.iter().filter(is_in_group).cloned().collect();
            let is_short = newest.is_empty() || len_of(&part) <= len_of(&newest).saturating_mul(2);
            if !is_short || part.iter().any(|table| busy.has(table)) {
                break;
            }
            runs += usize::from(!part.is_empty());
            newest.extend(part);
        }
        let is_worth_it = runs >= shape.l0_runs.max(2) && overlap_each_other(&newest);
        let inputs = with_level(0, &newest).collect();
        is_worth_it.then_some(Task { inputs, output_level: 0, trivial_move: false })
    };
    level_0_groups(version).into_iter().filter_map(task).find_map(|task| busy.allowed(task))
}

/// A neighbour joins if it is at most as long as the inputs so far. So a byte is rewritten O(log n) times until its
/// table is no longer small. Returns `None` if group and overlap are large, or if there is only one input.
fn small_merge(version: &Version, shape: &Shape, group: &[Arc<TableHandle>]) -> Option<Task> {
    let (smallest, largest) = bounds_of(group)?;
    let level_1 = version.runs(1).first().map_or(&[][..], |run| &run.tables);
    let mut start = level_1.partition_point(|table| table.meta.largest < *smallest);
    let mut end = start + overlapping(version, 1, smallest, largest).len();
    let mut bytes = len_of(group).saturating_add(len_of(&level_1[start..end]));
    if bytes >= shape.table_bytes / SMALL_PART {
        return None;
    }
    loop {
        let joins = |table: Option<&Arc<TableHandle>>| {
            table.map(|table| table.meta.len).filter(|&len| len <= bytes && bytes + len <= shape.table_bytes)
        };
        if let Some(len) = joins(start.checked_sub(1).map(|before| &level_1[before])) {
            (start, bytes) = (start - 1, bytes + len);
        } else if let Some(len) = joins(level_1.get(end)) {
            (end, bytes) = (end + 1, bytes + len);
        } else {
            break;
        }
    }
    let inputs: Vec<_> = with_level(0, group).chain(with_level(1, &level_1[start..end])).collect();
    (inputs.len() > 1).then_some(Task { inputs, output_level: 1, trivial_move: false })
}

fn pick_table(version: &Version, busy: &Busy, shape: &Shape, level: usize) -> Option<Task> {
    let cost = |table: &TableHandle, below: &[Arc<TableHandle>]| {
        let meta = &table.meta;
        // A range delete counts as if it hid the whole table.
        let hidden = if meta.spans.is_some() { meta.entries.max(1) } else { meta.tombstones };
        let freed = meta.len as f64 * (1.0 + 4.0 * hidden as f64 / meta.entries.max(1) as f64);
        len_of(below) as f64 / freed.max(1.0)
    };
    let candidates = version.tables(level).filter_map(|table| {
        let below = overlapping(version, level + 1, &table.meta.smallest, &table.meta.largest);
        let is_free = busy.allows(std::iter::once(table).chain(below), level + 1);
        is_free.then(|| (cost(table, below), table, below))
    });
    let (_, table, below) = candidates.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let mut trivial_move = below.is_empty();
    if trivial_move && level + 2 < LEVELS {
        // Too much overlap there makes the next compaction of the table expensive.
        let grandparents = overlapping(version, level + 2, &table.meta.smallest, &table.meta.largest);
        trivial_move = len_of(grandparents) <= shape.overlap_max();
    }
    Some(Task { inputs: table_inputs(level, table, below), output_level: level + 1, trivial_move })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::deletes::tombstones::tests::table;
    use super::*;
    use crate::version::handle;

    const SHAPE: Shape = Shape { l0_runs: 4, level_base_bytes: 100, level_ratio: 10, table_bytes: 10 };

    fn version(tables: &[(usize, u64, &str, &str, u64)]) -> Version {
        let added = tables.iter().map(|&(level, number, smallest, largest, len)| {
            let run = if level == 0 { number } else { 0 };
            (level, run, handle(number, smallest, largest, len))
        });
        Version::default().apply(&HashSet::new(), added.collect())
    }

    fn numbers(task: &Task) -> Vec<u64> {
        let mut numbers: Vec<_> = task.numbers().into_iter().collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn nothing_to_do_below_the_targets() {
        let few = version(&[
            (0, 1, "a", "z", 50),
            (0, 2, "a", "z", 50),
            (0, 3, "a", "z", 50),
            (1, 4, "a", "z", 99),
        ]);
        assert!(pick(&few, &Busy::default(), &SHAPE).is_none());
        assert!(pick(&Version::default(), &Busy::default(), &SHAPE).is_none());
    }

    #[test]
    fn level_0_goes_down_with_what_it_overlaps() {
        let full = version(&[
            (0, 1, "c", "d", 5),
            (0, 2, "c", "e", 5),
            (0, 3, "d", "g", 5),
            (0, 4, "c", "d", 5),
            (1, 5, "a", "b", 10),
            (1, 6, "d", "f", 10),
            (1, 7, "h", "i", 10),
        ]);
        let (_, task) = pick(&full, &Busy::default(), &SHAPE).unwrap();
        assert_eq!((numbers(&task), task.output_level, task.trivial_move), (vec![1, 2, 3, 4, 6], 1, false));
        assert!(pick(&full, &Busy::from_iter([2]), &SHAPE).is_none(), "a table of level 0 is busy");
        let (_, task) = pick(&full, &Busy::from_iter([6]), &SHAPE).unwrap();
        assert_eq!((numbers(&task), task.output_level), (vec![1, 2, 3, 4], 0), "a table below is busy");
    }

    #[test]
    fn the_tables_of_a_run_count_once_when_newer_runs_are_merged() {
        let busy: Vec<_> = (1..=4).map(|n| (0, n, "a", "z", 10)).collect();
        let newer = |parts: &[(&'static str, &'static str, u64)], number: u64| {
            let part = |(at, &(smallest, largest, len)): (usize, &(&'static str, &'static str, u64))| {
                (0, number, number + at as u64, smallest, largest, len)
            };
            parts.iter().enumerate().map(part).collect::<Vec<_>>()
        };
        let long = newer(&[("a", "c", 10), ("d", "f", 10), ("g", "i", 10), ("j", "z", 10)], 5);
        let short = [newer(&[("a", "z", 10)], 9), newer(&[("a", "z", 10)], 10)].concat();
        let added = busy.iter().map(|&(level, n, from, to, len)| (level, n, n, from, to, len));
        let added = added.chain(long).chain(short);
        let tables = added.map(|(level, run, number, smallest, largest, len)| {
            (level, run, handle(number, smallest, largest, len))
        });
        let tree = Version::default().apply(&HashSet::new(), tables.collect());
        assert!(pick(&tree, &(1..=4).collect(), &SHAPE).is_none(), "three runs, of six tables");
    }

    #[test]
    fn newer_runs_are_merged_into_one_while_the_older_ones_are_compacted() {
        let picked = |lengths: &[u64]| {
            let busy: Vec<_> = (1..=4).map(|n| (0, n, "a", "z", 10)).collect();
            let newer = (5..).zip(lengths).map(|(n, &len)| (0, n, "a", "z", len));
            let tree = version(&busy.into_iter().chain(newer).collect::<Vec<_>>());
            pick(&tree, &(1..=4).collect(), &SHAPE).map(|(_, task)| {
                assert_eq!((task.output_level, task.trivial_move), (0, false));
                numbers(&task)
            })
        };
        assert_eq!(picked(&[5, 5, 5]), None, "too few");
        assert_eq!(picked(&[5, 5, 5, 5]), Some(vec![5, 6, 7, 8]));
        assert_eq!(picked(&[41, 5, 5, 5, 5]), Some(vec![6, 7, 8, 9]), "the oldest is too long");
        assert_eq!(picked(&[40, 5, 5, 5, 5]), Some(vec![5, 6, 7, 8, 9]));
        assert_eq!(picked(&[5, 5, 31, 5, 5, 5]), None, "the long run separates them");
    }

    #[test]
    fn a_run_that_overlaps_nothing_is_moved_oldest_first() {
        let ordered =
            version(&[(0, 1, "a", "b", 5), (0, 2, "c", "d", 5), (0, 3, "e", "f", 5), (0, 4, "g", "h", 5)]);
        let (_, task) = pick(&ordered, &Busy::default(), &SHAPE).unwrap();
        assert_eq!((numbers(&task), task.trivial_move), (vec![1], true));
    }

    #[test]
    fn small_runs_are_merged_with_neighbours_that_are_no_longer_and_large_ones_are_moved() {
        let large = Shape { table_bytes: 1000, level_base_bytes: 10_000, ..SHAPE };
        let ordered = |below: &[(usize, u64, &'static str, &'static str, u64)]| {
            let new = [(0, 4, "u", "u", 5), (0, 3, "t", "t", 5), (0, 2, "s", "s", 5), (0, 1, "r", "r", 5)];
            version(&[&new[..], below].concat())
        };
        let picked = |below: &[(usize, u64, &'static str, &'static str, u64)]| {
            let (_, task) = pick(&ordered(below), &Busy::default(), &large).unwrap();
            assert_eq!((task.trivial_move, task.output_level), (false, 1));
            numbers(&task)
        };
        assert_eq!(picked(&[]), [1, 2, 3, 4]);
        assert_eq!(picked(&[(1, 9, "m", "n", 21)]), [1, 2, 3, 4], "a longer neighbour stays");
        let chain = [(1, 6, "a", "b", 81), (1, 7, "c", "d", 40), (1, 8, "m", "n", 20), (1, 9, "x", "y", 90)];
        assert_eq!(picked(&chain), [1, 2, 3, 4, 7, 8], "one after the other");
        assert_eq!(picked(&[(1, 9, "x", "y", 19)]), [1, 2, 3, 4, 9], "also behind");
        let busy = Busy::from_iter([8]);
        assert!(pick(&ordered(&chain), &busy, &large).is_none(), "it waits for a neighbour");
        let (_, task) = pick(&ordered(&[]), &Busy::default(), &Shape { table_bytes: 160, ..large }).unwrap();
        assert_eq!((numbers(&task), task.trivial_move), (vec![1], true), "20 bytes are an eighth");
    }

    #[test]
    fn groups_of_level_0_that_are_far_apart_are_compacted_by_themselves() {
        // A queue: keys are deleted at one end and added at the other.
        let queue = version(&[
            (0, 1, "a", "c", 5),
            (0, 2, "x", "x", 5),
            (0, 3, "c", "d", 5),
            (0, 4, "y", "z", 5),
            (1, 5, "a", "b", 10),
            (1, 6, "d", "h", 10),
            (1, 7, "m", "p", 10),
            (1, 8, "x", "x", 10),
        ]);
        let (_, task) = pick(&queue, &Busy::default(), &SHAPE).unwrap();
        assert_eq!((numbers(&task), task.trivial_move), (vec![1, 3, 5, 6], false));
        let (_, task) = pick(&queue, &Busy::from_iter([5]), &SHAPE).unwrap();
        assert_eq!((numbers(&task), task.trivial_move), (vec![2, 4, 8], false), "the others");
        assert!(pick(&queue, &Busy::from_iter([5, 8]), &SHAPE).is_none());
    }

    #[test]
    fn an_idle_compaction_merges_half_as_many_runs_unless_level_1_is_large() {
        let tree = |runs: u64, below: u64| {
            let mut tables: Vec<_> = (1..=runs).map(|n| (0, n, "b", "d", 10)).collect();
            tables.extend((below > 0).then_some((1, 9, "a", "c", below)));
            version(&tables)
        };
        let picked = |runs: u64, below: u64, busy: &[u64]| {
            pick_idle(&tree(runs, below), &busy.iter().copied().collect(), &SHAPE, IDLE_COST_MAX).map(
                |task| {
                    assert!(!task.trivial_move && task.output_level == 1);
                    numbers(&task)
                },
            )
        };
        assert_eq!(picked(1, 10, &[]), None);
        assert_eq!(picked(2, 10, &[]), Some(vec![1, 2, 9]));
        assert_eq!(picked(2, 0, &[]), Some(vec![1, 2]), "not the oldest alone");
        assert_eq!(picked(2, 80, &[]), Some(vec![1, 2, 9]), "100 bytes for 20");
        assert_eq!(picked(2, 81, &[]), None);
        assert_eq!(picked(2, 10, &[1]), None);
        for between in [&[][..], &[(1, 9, "m", "n", 1)]] {
            let apart = version(&[&[(0, 1, "a", "b", 10), (0, 2, "y", "z", 10)], between].concat());
            assert!(pick_idle(&apart, &Busy::default(), &SHAPE, u64::MAX).is_none(), "no lookup probes both");
        }
        assert!(
            pick_idle(&tree(3, 10), &Busy::default(), &Shape { l0_runs: 8, ..SHAPE }, u64::MAX).is_none()
        );
        assert!(pick_idle(&tree(2, 81), &Busy::default(), &SHAPE, u64::MAX).is_some());
    }

    #[test]
    fn the_cheapest_table_of_an_overfull_level_is_taken() {
        let full = version(&[
            (1, 1, "a", "c", 60),
            (1, 2, "d", "f", 60),
            (2, 3, "a", "b", 90),
            (2, 4, "c", "c", 90),
            (2, 5, "e", "e", 90),
        ]);
        let (_, task) = pick(&full, &Busy::default(), &SHAPE).unwrap();
        assert_eq!((numbers(&task), task.output_level), (vec![2, 5], 2));
        let levels: Vec<_> = task.inputs.iter().map(|(level, table)| (*level, table.meta.number)).collect();
        assert_eq!(levels, [(1, 2), (2, 5)]);
        let (_, other) = pick(&full, &Busy::from_iter([5]), &SHAPE).unwrap();
        assert_eq!(numbers(&other), [1, 3, 4], "the cheapest is blocked");
    }

    #[test]
    fn a_table_of_level_1_that_a_group_touches_does_not_part_it_from_the_next() {
        let touched = |smallest, largest| {
            version(&[
                (0, 1, "a", "c", 5),
                (0, 2, "f", "g", 5),
                (0, 3, "b", "c", 5),
                (0, 4, "f", "g", 5),
                (1, 5, smallest, largest, 10),
            ])
        };
        let groups = |tree: &Version| level_0_groups(tree).len();
        assert_eq!(groups(&touched("d", "e")), 2);
        assert_eq!(groups(&touched("d", "f")), 1);
        assert_eq!(groups(&touched("c", "e")), 1);
    }

    #[test]
    fn tombstones_make_a_table_cheaper_as_bytes_that_are_freed() {
        // Half of the first table's entries are tombstones: it counts three times its 1000 bytes.
        let tree = |below: u64| {
            let mut tables = vec![
                (1, 0, table(1, "a", "b", 50, 100)),
                (1, 0, table(2, "c", "d", 0, 100)),
                (2, 0, table(3, "a", "a", 0, 50)),
            ];
            tables.push((2, 0, handle(4, "c", "c", below)));
            Version::default().apply(&HashSet::new(), tables)
        };
        let picked = |below: u64| numbers(&pick(&tree(below), &Busy::default(), &SHAPE).unwrap().1);
        assert_eq!(picked(340), [1, 3], "1000 bytes rewritten for 3000, 340 for 1000");
        assert_eq!(picked(330), [2, 4], "1000 bytes rewritten for 3000, 330 for 1000");
    }

    #[test]
    fn a_table_that_would_lie_over_too_much_is_rewritten_instead_of_moved() {
        let moved = |level: usize, overlap: u64| {
            let of = [(level, 1, "a", "c", 10_000_000), (level + 2, 2, "b", "b", overlap)];
            let tree = version(if level + 2 < LEVELS { &of } else { &of[..1] });
            let (_, task) = pick(&tree, &Busy::default(), &SHAPE).unwrap();
            assert_eq!((numbers(&task), task.output_level), (vec![1], level + 1));
            task.trivial_move
        };
        for level in 1..LEVELS - 2 {
            assert!(moved(level, 100), "level {level}");
            assert!(!moved(level, 101), "level {level}");
        }
        assert!(moved(LEVELS - 2, 0), "nothing is below");
    }

    #[test]
    fn a_table_waits_while_another_task_puts_its_keys_into_the_next_level() {
        let full = version(&[(1, 1, "b", "c", 200)]);
        let mut busy = Busy::default();
        let inputs = vec![(1, handle(2, "a", "d", 10))];
        assert!(busy.take(&Task { inputs, output_level: 2, trivial_move: false }));
        assert!(pick(&full, &busy, &SHAPE).is_none());
    }

    #[test]
    fn the_last_level_is_never_too_full() {
        let deep = version(&[(LEVELS - 1, 1, "a", "c", u64::MAX / 2)]);
        assert!(score(&deep, LEVELS - 1, &SHAPE) > 1.0);
        assert!(pick(&deep, &Busy::default(), &SHAPE).is_none());
    }

    #[test]
    fn the_pressure_on_writers_comes_before_the_score_of_a_level() {
        assert!(Urgency::of_score(2.0) > Urgency::of_score(1.5));
        assert!(Urgency::new(0.1, 1.0) > Urgency::of_score(1000.0));
    }

    /// A tree without files: flushes arrive, and tasks change only metadata.
    #[test]
    fn a_simulated_tree_keeps_its_shape() {
        let mut dice = 42u64;
        let mut roll = move |n: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % n
        };
        let name = |n: u64| format!("{n:04}");
        let (mut tree, mut next, mut written, mut flushed) = (Version::default(), 1, 0u64, 0u64);
        for _ in 0..400 {
            let start = roll(9000);
            let len = 10;
            tree = tree.apply(
                &HashSet::new(),
                vec![(0, next, handle(next, &name(start), &name(start + roll(999)), len))],
            );
            (next, flushed) = (next + 1, flushed + len);
            while let Some((_, task)) = pick(&tree, &Busy::default(), &SHAPE) {
                assert!(!task.inputs.is_empty() && task.output_level > 0);
                let outputs = carry_out(&task, &mut next);
                written +=
                    if task.trivial_move { 0 } else { outputs.iter().map(|t| t.2.meta.len).sum::<u64>() };
                tree = tree.apply(&task.numbers(), outputs);
                assert_eq!(tree.overlap_in_a_run(), None);
            }
            for level in 0..LEVELS - 1 {
                assert!(score(&tree, level, &SHAPE) < 1.0, "level {level} is left overfull");
            }
        }
        let total: u64 = (0..LEVELS).map(|level| tree.bytes(level)).sum();
        assert_eq!(total, flushed, "no byte is lost or invented");
        assert!(written < 30 * flushed, "write amplification {}", written / flushed);
    }

    /// The outputs of a merge: as many bytes as its inputs, in tables of the target length over equal ranges.
    fn carry_out(task: &Task, next: &mut u64) -> Vec<(usize, u64, Arc<TableHandle>)> {
        if task.trivial_move {
            return task.inputs.iter().map(|(_, table)| (task.output_level, 0, Arc::clone(table))).collect();
        }
        let bytes: u64 = task.inputs.iter().map(|(_, table)| table.meta.len).sum();
        let key = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap().parse::<u64>().unwrap();
        let low = task.inputs.iter().map(|(_, table)| key(&table.meta.smallest)).min().unwrap();
        let high = task.inputs.iter().map(|(_, table)| key(&table.meta.largest)).max().unwrap() + 1;
        let pieces = bytes.div_ceil(SHAPE.table_bytes).clamp(1, high - low);
        let cut = |piece: u64| low + (high - low) * piece / pieces;
        (0..pieces)
            .map(|piece| {
                let number = std::mem::replace(next, *next + 1);
                let len = bytes / pieces + u64::from(piece < bytes % pieces);
                let (smallest, largest) =
                    (format!("{:04}", cut(piece)), format!("{:04}", cut(piece + 1) - 1));
                (task.output_level, 0, handle(number, &smallest, &largest, len))
            })
            .collect()
    }
}
