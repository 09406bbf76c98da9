//! How far compaction is behind: pure functions of a version.
//!
//! The *pressure* is 0 while compaction is fast enough and 1 when writers must wait. It depends on the runs of level 0,
//! and on the *debt*: the bytes that compactions must write until every level is within its target. Bytes above the
//! target count with their overlap in the next level, and again as bytes of that level.

use super::buckets::runs::{BucketRuns, is_flushed};
use super::shape::Shape;
use crate::manifest::edit::LEVELS;
use crate::version::Version;

/// Above a debt of this multiple of the size of level 1, and of [`DEBT_SLOW_MIN`], writers are slowed. At four times
/// this debt they wait.
const DEBT_SLOW: u64 = 256;

const DEBT_SLOW_MIN: u64 = 1 << 30;

const RUNS_NONE: usize = 3;

/// `runs` includes memtables to be flushed. Writers are slowed at more than twice the trigger of a compaction, and wait
/// at three times the trigger.
pub(crate) fn of_runs(runs: usize, shape: &Shape) -> f64 {
    let slow = shape.l0_runs.saturating_mul(2).max(RUNS_NONE);
    runs.saturating_sub(slow) as f64 / shape.l0_runs.max(1) as f64
}

pub(crate) fn of_debt(debt: u64, shape: &Shape) -> f64 {
    let slow = shape.level_base_bytes.saturating_mul(DEBT_SLOW).max(DEBT_SLOW_MIN) as f64;
    ((debt as f64 - slow) / (3.0 * slow)).max(0.0)
}

pub(crate) fn is_none(runs: usize, debt: u64) -> bool {
    runs <= RUNS_NONE && debt <= DEBT_SLOW_MIN
}

/// The number of runs of level 0 that count as pressure: all, or with expiry, [`BucketRuns::pressing`]. Above three
/// times the trigger, only flushed runs count: after the end of expiry, writers must not wait for a merge of all
/// buckets.
pub(crate) fn pressing_runs(version: &Version, shape: &dyn Fn() -> Shape) -> usize {
    let all = version.runs(0);
    if let Some(runs) = BucketRuns::of(version) {
        return runs.pressing(&shape());
    }
    if all.len() > RUNS_NONE && all.len() > shape().l0_runs.saturating_mul(3) {
        return all.iter().filter(|run| is_flushed(run)).count();
    }
    all.len()
}

pub(crate) fn debt(version: &Version, shape: &Shape) -> u64 {
    if let Some(runs) = BucketRuns::of(version) {
        return runs.debt();
    }
    let bytes = |level: usize| version.bytes(level) as f64;
    let (mut debt, mut handed_on) = (0.0, 0.0);
    if version.runs(0).len() >= shape.l0_runs {
        handed_on = bytes(0);
        debt = bytes(0) + bytes(1);
    }
    for level in 1..LEVELS - 1 {
        let now = bytes(level) + handed_on;
        handed_on = (now - shape.target(level) as f64).max(0.0);
        debt += handed_on * (1.0 + bytes(level + 1) / now.max(1.0));
    }
    debt as u64
}

/// A table and its overlap in the next level: at most ten whole tables, and two in part.
const TABLES_PER_STEP: u64 = 13;

/// Bytes read by the largest necessary compaction: levels 0 and 1, a table with its overlap, or one bucket. O(runs).
pub(crate) fn largest_step(version: &Version) -> u64 {
    if let Some(runs) = BucketRuns::of(version) {
        return runs.largest_step();
    }
    let below = (1..LEVELS).map(|level| version.bytes(level)).fold(0, u64::saturating_add);
    let of_table = version.totals().longest.saturating_mul(TABLES_PER_STEP).min(below);
    version.bytes(0).saturating_add(version.bytes(1)).max(of_table)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::version::handle;

    const SHAPE: Shape = Shape { l0_runs: 4, level_base_bytes: 100, level_ratio: 10, table_bytes: 10 };

    fn version(tables: &[(usize, u64, u64)]) -> Version {
        let added = tables.iter().map(|&(level, number, len)| {
            let run = if level == 0 { number } else { 0 };
            let key = format!("{number:03}");
            (level, run, handle(number, &key, &key, len))
        });
        Version::default().apply(&HashSet::new(), added.collect())
    }

    #[test]
    fn pressure_of_runs_and_of_debt_rises_from_nothing_to_full() {
        assert_eq!([0, 4, 8, 10, 12].map(|runs| of_runs(runs, &SHAPE)), [0.0, 0.0, 0.0, 0.5, 1.0]);
        let large = Shape { level_base_bytes: 256 << 20, ..SHAPE };
        for (shape, gib) in [(SHAPE, 1), (large, 64)] {
            let of_gib = |part: u64| of_debt((part * gib) << 29, &shape);
            assert_eq!([0, 2, 5, 8].map(of_gib), [0.0, 0.0, 0.5, 1.0]);
        }
    }

    #[test]
    fn what_is_no_pressure_for_any_shape_is_none_for_the_smallest() {
        let smallest = Shape { l0_runs: 1, level_base_bytes: 0, ..SHAPE };
        for (runs, debt) in [(0, 0), (3, 0), (3, DEBT_SLOW_MIN), (4, 0), (0, DEBT_SLOW_MIN + 1), (9, 1 << 40)]
        {
            let pressure = of_runs(runs, &smallest).max(of_debt(debt, &smallest));
            assert_eq!(is_none(runs, debt), pressure == 0.0, "{runs} {debt}");
        }
    }

    #[test]
    fn runs_that_are_left_of_buckets_do_not_stop_writers_when_entries_expire_no_longer() {
        // Merged runs have tables with larger numbers.
        let run = |id: u64, number: u64| (0, id, handle(number, "a", "z", 50));
        let merged = (1..=24).map(|id| run(id, 100 + id));
        let flushed = (200..203).map(|id| run(id, id));
        let version = Version::default().apply(&HashSet::new(), merged.chain(flushed).collect());
        assert_eq!(pressing_runs(&version, &|| SHAPE), 3);
        let flushed = (1..=13).map(|id| run(id, id)).collect();
        assert_eq!(pressing_runs(&Version::default().apply(&HashSet::new(), flushed), &|| SHAPE), 13);
    }

    #[test]
    fn a_tree_within_its_targets_owes_nothing_and_what_a_level_hands_on_counts_below() {
        assert_eq!(debt(&version(&[(0, 1, 50), (0, 2, 50), (1, 3, 100), (2, 4, 1000)]), &SHAPE), 0);
        let runs = [(0, 1, 10), (0, 2, 10), (0, 3, 10), (0, 4, 10), (1, 5, 60)];
        assert_eq!(debt(&version(&runs), &SHAPE), 100, "all runs are merged with level 1, which holds them");
        // 100 bytes above the target, each of which overlaps 4.5 bytes of level 2.
        assert_eq!(debt(&version(&[(1, 1, 200), (2, 2, 900)]), &SHAPE), 100 + 450);
        // These bytes raise level 2 by 100 above its own target.
        assert_eq!(debt(&version(&[(1, 1, 200), (2, 2, 1000)]), &SHAPE), 100 + 500 + 100);
    }
}
