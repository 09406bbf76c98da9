//! Chooses the filter of each table: a pure function of the tables and of the lookups that reach them.
//!
//! [`plan`] passes a [`Share`] of every table to [`allocate`](crate::filter::allocation::allocate), with the fraction
//! of absent-key lookups that reaches it:
//!
//! 1. It begins as the share of all keys within the table's bounds. This assumes lookups distributed like keys, and
//!    keys distributed evenly between bounds. For a run over the whole key range it is 1, as in Monkey.
//! 2. It is multiplied by [`Placed::relative_probe_rate`], the ratio of actual to expected lookups.
//! 3. With [`FilterPolicy::expect_hits`](crate::filter::FilterPolicy::expect_hits), it is 0 for a table
//!    that overlaps no older one, because lookups find their key there.
//!
//! With [`FilterKind::Auto`](crate::filter::FilterKind::Auto), bits are first allocated for the kinds of tables without
//! a history. Then each table gets the kind with the least [`cost`](crate::filter::cost), and bits are allocated again.
//!
//! The plan is for the [`projected_tree`], and only new tables follow it. If the filters exceed the policy's total,
//! column groups of other tables are dropped.

use std::collections::HashSet;
use std::sync::Arc;

use super::projected_tree::{KeysByPlace, Placed, settled};
use super::shape::Shape;
use crate::filter::allocation::{Allocation, Share, Total, allocate};
use crate::filter::{FilterAllocation, FilterPlan, FilterPolicy, Kind};
use crate::version::{TableHandle, Version};

#[derive(Debug, Clone)]
pub(super) struct TreePlan {
    pub(super) shares: Vec<Share>,
    pub(super) optimal: Allocation,
}

/// Runs are newest first, with tables in key order. Returns `None` for a policy without filters.
pub(super) fn plan(policy: &FilterPolicy, runs: &[Vec<Placed<'_>>]) -> Option<TreePlan> {
    let keys_by_place = KeysByPlace::new(runs);
    let mut shares = Vec::new();
    let mut bits = 0.0;
    for (index, run) in runs.iter().enumerate() {
        for table in run {
            let filter = policy.resolve(table.keys)?;
            let is_asked = !(policy.expect_hits && is_last(table, &runs[index + 1..]));
            let probe_rate =
                if is_asked { keys_by_place.share(table) * table.relative_probe_rate } else { 0.0 };
            bits += if is_asked { bits_in_total(policy, table.level, table.keys)? } else { 0.0 };
            shares.push(Share::new(filter.kind, table.keys, probe_rate));
        }
    }
    let total = Total::bytes((bits / 8.0) as u64);
    let mut optimal = allocate(&shares, total);
    let mut has_changed = false;
    for ((share, table), &bits) in shares.iter_mut().zip(runs.iter().flatten()).zip(&optimal.bits_per_key) {
        if bits > 0.0 {
            let kind = policy.kind_for(&table.table_use(), bits)?;
            has_changed |= std::mem::replace(&mut share.kind, kind) != kind;
        }
    }
    if has_changed {
        optimal = allocate(&shares, total);
    }
    Some(TreePlan { shares, optimal })
}

/// The fraction of additional bits in level 0. A small tree has only runs of level 0: with 10 bits per key, three equal
/// runs would waste three reads in a thousand lookups. These bits halve the waste.
const LEVEL_0_EXTRA: f64 = 0.125;

pub(crate) fn bits_in_total(policy: &FilterPolicy, level: usize, keys: u64) -> Option<f64> {
    let extra = if level == 0 { LEVEL_0_EXTRA } else { 0.0 };
    Some(keys as f64 * policy.resolve(keys)?.bits_per_key * (1.0 + extra))
}

#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) level: usize,
    pub(crate) keys: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    pub(crate) replaces: HashSet<u64>,
}

pub(crate) fn plan_output(
    policy: &FilterPolicy,
    shape: &Shape,
    version: &Version,
    lookups: u64,
    output: &Output,
) -> Option<FilterPlan> {
    #[cfg(test)]
    tests::PLANNED_WITH.with(|tables| tables.set(tables.get() + version.all_tables().count()));
    let runs = placed_runs(version, lookups);
    let is_replaced = |table: &(Placed<'_>, u64)| output.replaces.contains(&table.1);
    let placed = |is_chosen: &dyn Fn(&(Placed<'_>, u64)) -> bool| -> Vec<Placed<'_>> {
        runs.iter().flatten().filter(|table| is_chosen(table)).map(|table| table.0).collect()
    };
    let inputs = placed(&is_replaced);
    let of_level =
        placed(&|table| table.0.level == output.level && (inputs.is_empty() || is_replaced(table)));
    let bytes = inputs.iter().map(|table| table.bytes).fold(0, u64::saturating_add);
    let rate = |table: &Placed<'_>| table.relative_probe_rate;
    let output = Placed {
        relative_probe_rate: if inputs.is_empty() { 1.0 } else { mean(&of_level, rate).unwrap_or(1.0) },
        probes_per_key: mean(&inputs, |table| table.probes_per_key).unwrap_or(0.0),
        // The table of a flush is similar to the other runs of its level.
        kind: most_common_kind(if inputs.is_empty() { &of_level } else { &inputs }),
        is_output: true,
        ..Placed::new(output.level, output.keys, bytes, &output.smallest, &output.largest)
    };
    let mut planned = vec![vec![output]];
    for run in &runs {
        planned.push(run.iter().filter(|table| !is_replaced(table)).map(|table| table.0).collect());
    }
    plan_one(policy, &if version.is_in_buckets() { in_buckets(planned) } else { settled(planned, shape) })
}

fn in_buckets(mut runs: Vec<Vec<Placed<'_>>>) -> Vec<Vec<Placed<'_>>> {
    runs.retain(|run| !run.is_empty());
    runs.iter_mut().flatten().for_each(|table| table.level = table.level.max(1));
    runs
}

fn mean(tables: &[Placed<'_>], figure: fn(&Placed<'_>) -> f64) -> Option<f64> {
    let keys: f64 = tables.iter().map(|table| table.keys as f64).sum();
    let sum: f64 = tables.iter().map(|table| figure(table) * table.keys as f64).sum();
    (keys > 0.0).then(|| sum / keys)
}

fn most_common_kind(tables: &[Placed<'_>]) -> Option<Kind> {
    let keys = |kind: Kind| -> u64 {
        tables.iter().filter(|table| table.kind == Some(kind)).map(|table| table.keys).sum()
    };
    Kind::ALL.into_iter().filter(|&kind| keys(kind) > 0).max_by_key(|&kind| keys(kind))
}

fn placed_runs<'a>(version: &'a Version, lookups: u64) -> Vec<Vec<(Placed<'a>, u64)>> {
    fn place(level: usize, table: &TableHandle) -> Placed<'_> {
        let meta = &table.meta;
        let kind = |code: u8| Kind::ALL.into_iter().find(|&kind| kind as u8 == code);
        Placed {
            probes_per_key: table.absent_lookups() as f64 / meta.keys.max(1) as f64,
            kind: meta.filters.first().and_then(|filter| kind(filter.kind)),
            ..Placed::new(level, meta.keys, meta.len, &meta.smallest, &meta.largest)
        }
    }
    let runs = version.all_runs();
    let runs = runs.map(|(level, run)| run.tables.iter().map(|table| place(level, table)).collect());
    let runs: Vec<Vec<Placed<'_>>> = runs.collect();
    let by_place = KeysByPlace::new(&runs);
    let with_rate = |(handle, table): (&Arc<TableHandle>, &Placed<'a>)| {
        let since = lookups.saturating_sub(handle.made_at());
        let relative_probe_rate = relative_probe_rate(by_place.share(table), since, handle.absent_lookups());
        (Placed { relative_probe_rate, ..*table }, handle.meta.number)
    };
    let with_rates = version.all_runs().zip(&runs);
    with_rates.map(|((_, run), tables)| run.tables.iter().zip(tables).map(with_rate).collect()).collect()
}

fn plan_one(policy: &FilterPolicy, runs: &[Vec<Placed<'_>>]) -> Option<FilterPlan> {
    let in_run = |run: &Vec<Placed<'_>>| run.iter().position(|table| table.is_output);
    let (run, table) = runs.iter().enumerate().find_map(|(run, tables)| Some((run, in_run(tables)?)))?;
    let output = &runs[run][table];
    match policy.allocation {
        FilterAllocation::Optimal => {
            let (table, plan) =
                (runs[..run].iter().map(Vec::len).sum::<usize>() + table, plan(policy, runs)?);
            let (kind, bits_per_key) = (plan.shares[table].kind, plan.optimal.bits_per_key[table]);
            (bits_per_key > 0.0).then_some(FilterPlan { kind, bits_per_key })
        }
        FilterAllocation::Uniform if policy.expect_hits && is_last(output, &runs[run + 1..]) => None,
        _ => policy.resolve_for(&output.table_use()),
    }
}

fn is_last(table: &Placed<'_>, older: &[Vec<Placed<'_>>]) -> bool {
    !older.iter().any(|run| {
        let first = run.partition_point(|other| other.largest < table.smallest);
        run.get(first).is_some_and(|other| other.smallest <= table.largest)
    })
}

/// Limits the effect of the first lookups on the rate.
const PRIOR_LOOKUPS: f64 = 4096.0;

/// A table with this ratio gets four bits more per key.
const RELATIVE_RATE_MAX: f64 = 16.0;

/// The ratio of actual to expected lookups of a table with `share` of the keys. Since the table's creation, `absent` of
/// the tree's `lookups` reached the table and found no key there.
pub(super) fn relative_probe_rate(share: f64, lookups: u64, absent: u64) -> f64 {
    let asked = (absent as f64 + PRIOR_LOOKUPS * share) / (lookups as f64 + PRIOR_LOOKUPS);
    (asked / share).clamp(1.0 / RELATIVE_RATE_MAX, RELATIVE_RATE_MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::filter::FilterKind;

    thread_local! {
        pub(crate) static PLANNED_WITH: Cell<usize> = const { Cell::new(0) };
    }

    fn run(level: usize, tables: usize, keys: u64) -> Vec<Placed<'static>> {
        let bound = |n: usize| -> &'static [u8] { format!("{n:04}").leak().as_bytes() };
        let bounds = |n: usize| (bound(n * 10_000 / tables), bound((n + 1) * 10_000 / tables - 1));
        let table = |n: usize| {
            let (smallest, largest) = bounds(n);
            Placed::new(level, keys / tables as u64, 100 * (keys / tables as u64), smallest, largest)
        };
        (0..tables).map(table).collect()
    }

    fn optimal(kind: FilterKind) -> FilterPolicy {
        FilterPolicy::new(kind).bits_per_key(10.0).allocation(FilterAllocation::Optimal)
    }

    #[test]
    fn tables_of_a_run_get_what_the_run_would_get_and_upper_levels_more() {
        let runs = [run(0, 1, 10_000), run(0, 1, 10_000), run(1, 4, 100_000), run(2, 40, 1_000_000)];
        let plan = plan(&optimal(FilterKind::Ribbon), &runs).unwrap();
        let whole =
            [10_000, 10_000, 100_000, 1_000_000].map(|keys| Share::new(plan.shares[0].kind, keys, 1.0));
        let expected = allocate(&whole, Total::bits_per_key(10.0).unwrap());
        let found = [0, 1, 2, 6].map(|table| plan.optimal.bits_per_key[table]);
        for (found, expected) in found.iter().zip(&expected.bits_per_key) {
            assert!((found - expected).abs() < 1.0, "{found} {expected}");
        }
        let waste = plan.optimal.wasted_reads / expected.wasted_reads;
        assert!((0.85..1.1).contains(&waste), "{waste}");
    }

    #[test]
    fn keys_that_arrive_in_order_get_equal_bits_on_whatever_level_they_are() {
        let ordered = run(3, 10, 1_000_000);
        let runs: Vec<_> = ordered
            .iter()
            .rev()
            .enumerate()
            .map(|(level, &table)| vec![Placed { level: level.min(3), ..table }])
            .collect();
        let plan = plan(&optimal(FilterKind::Ribbon), &runs).unwrap();
        assert!(plan.optimal.bits_per_key.iter().all(|bits| (bits - 10.0).abs() < 1.0), "{plan:?}");
    }

    #[test]
    fn a_keyspace_of_hits_pays_nothing_for_tables_that_nothing_lies_below() {
        let runs = [run(0, 1, 10_000), run(1, 4, 100_000), run(2, 40, 1_000_000)];
        for allocation in [FilterAllocation::Uniform, FilterAllocation::Optimal] {
            let policy = optimal(FilterKind::Ribbon).allocation(allocation).expect_hits(true);
            let plan_one = |policy: FilterPolicy, run: usize, table: usize| {
                let mut runs = runs.clone();
                runs[run][table].is_output = true;
                plan_one(&policy, &runs)
            };
            assert_eq!(plan_one(policy, 2, 7), None);
            assert!(plan_one(policy, 1, 3).is_some());
            assert!(plan_one(policy.expect_hits(false), 2, 7).is_some());
        }
        let policy = optimal(FilterKind::Ribbon).expect_hits(true);
        let spent = plan(&policy, &runs).unwrap().optimal.bits;
        assert!((spent - 1_112_500.0).abs() < 20.0, "an eighth more for level 0: {spent}");
        assert!(plan(&FilterPolicy::new(FilterKind::None), &runs).is_none());
    }

    #[test]
    fn a_run_within_the_bounds_of_one_large_table_is_probed_by_nearly_every_lookup() {
        let bound = |n: u64| -> &'static [u8] { n.to_be_bytes().to_vec().leak() };
        let (least, most) = (u64::MAX / 1000, u64::MAX / 1000 * 999);
        let small = Placed::new(0, 1000, 1, bound(least * 2), bound(most - least));
        let large = Placed::new(1, 100_000, 1, bound(least), bound(most));
        let half = Placed::new(0, 1000, 1, bound(u64::MAX / 2), bound(most));
        let beyond = Placed::new(0, 1000, 1, bound(u64::MAX - 5), bound(u64::MAX));
        let runs = [vec![small], vec![half], vec![beyond], vec![large]];
        let by_place = KeysByPlace::new(&runs);
        let near = |table: &Placed<'_>, wanted: f64| {
            let share = by_place.share(table);
            assert!((share - wanted).abs() < 0.01, "{share} {wanted}");
        };
        near(&small, 1.0 - 3.0 / 1000.0);
        near(&half, 0.5);
        near(&beyond, 0.01);
        near(&large, 0.99);
        // Keys with a common prefix, bounds of one key, and bounds of different lengths.
        let text = |smallest: &'static str, largest: &'static str| {
            Placed::new(0, 1000, 1, smallest.as_bytes(), largest.as_bytes())
        };
        let runs = [
            vec![text("a long beginning/b", "a long beginning/b")],
            vec![text("a long beginning/", "a long beginning/c")],
        ];
        let by_place = KeysByPlace::new(&runs);
        let shares = [by_place.share(&runs[0][0]), by_place.share(&runs[1][0])];
        assert!((0.49..0.51).contains(&shares[0]) && shares[1] == 1.0, "{shares:?}");
    }

    #[test]
    fn an_output_near_the_threshold_keeps_the_kind_of_the_tables_that_it_replaces() {
        let policy = optimal(FilterKind::Auto);
        let kind = |keys: u64, present: Option<Kind>| {
            let mut runs = [run(0, 1, keys), run(1, 40, 40_000_000)];
            runs[0][0].is_output = true;
            runs[0][0].kind = present;
            plan_one(&policy, &runs).unwrap().kind
        };
        let kinds = [None, Some(Kind::Ribbon), Some(Kind::BlockedBloom)];
        assert_eq!(kinds.map(|present| kind(400_000, present)), [Kind::Ribbon; 3]);
        assert_eq!(kinds.map(|present| kind(100, present)), [Kind::BlockedBloom; 3]);
        // Where the kinds cost nearly the same, each table keeps its kind.
        let near = (1..400).map(|thousands| thousands * 1000);
        let near: Vec<u64> = near
            .filter(|&keys| {
                kind(keys, Some(Kind::Ribbon)) == Kind::Ribbon
                    && kind(keys, Some(Kind::BlockedBloom)) == Kind::BlockedBloom
            })
            .collect();
        assert!(near.last().unwrap() / near.first().unwrap() >= 2, "{near:?}");
    }

    #[test]
    fn the_kind_of_an_output_is_that_of_most_keys_of_its_inputs() {
        let table = |keys, kind| Placed { kind, ..Placed::new(1, keys, keys, b"a", b"b") };
        let (ribbon, blocked) = (Some(Kind::Ribbon), Some(Kind::BlockedBloom));
        assert_eq!(most_common_kind(&[]), None);
        assert_eq!(most_common_kind(&[table(9, None), table(1, ribbon)]), ribbon);
        assert_eq!(most_common_kind(&[table(5, blocked), table(3, ribbon), table(3, ribbon)]), ribbon);
        let probed = |probes_per_key| Placed { probes_per_key, ..table(10, ribbon) };
        assert_eq!(mean(&[probed(2.0), probed(4.0)], |table| table.probes_per_key), Some(3.0));
        assert_eq!(mean(&[], |table| table.probes_per_key), None);
    }

    #[test]
    fn relative_probe_rate_follows_the_counters_slowly_and_within_limits() {
        assert_eq!(relative_probe_rate(0.01, 0, 0), 1.0);
        assert!((relative_probe_rate(0.01, 100, 10) - 1.2).abs() < 0.05, "a hundred lookups hardly matter");
        assert!((relative_probe_rate(0.01, 1_000_000, 40_000) - 4.0).abs() < 0.1);
        assert_eq!(
            (relative_probe_rate(0.01, 1 << 40, 0), relative_probe_rate(0.01, 1 << 20, 1 << 20)),
            (1.0 / 16.0, 16.0)
        );
        let mut runs = [run(0, 1, 10_000), run(1, 4, 100_000)];
        runs[1][2].relative_probe_rate = 4.0;
        let bits = plan(&optimal(FilterKind::Ribbon), &runs).unwrap().optimal.bits_per_key;
        assert!((bits[3] - bits[1] - 2.0).abs() < 1.01, "{bits:?}");
    }
}
