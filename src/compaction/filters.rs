//! Chooses the filter of each table of a tree: a pure function of its tables and of the lookups that reach
//! them.
//!
//! [`plan`] makes a [`Share`] of every table and passes them to
//! [`allocate`](crate::filter::allocation::allocate). It adds how many lookups of absent keys reach each
//! table:
//!
//! 1. Lookups are assumed to be spread like the keys of the tree. Half of a table's keys count at its
//!    smallest key and half at its largest; the share of all keys within a table's bounds is its share of the
//!    lookups. A run over the whole key range has 1, so the rates of such runs are as in Monkey. Tables that
//!    do not overlap, as with keys that arrive in order, share one lookup, and so one run's part of the
//!    memory, whatever their levels.
//! 2. That is multiplied by the table's [`Placed::relative_probe_rate`]: the lookups that reached it over
//!    those that were expected. [`relative_probe_rate`] computes it from counters; a new table has 1.
//! 3. With [`FilterPolicy::expect_hits`](crate::filter::FilterPolicy::expect_hits) no lookup of an absent key
//!    reaches a table below which nothing overlaps it: a lookup that gets there finds its key.
//!
//! The optimum is computed for the whole tree as if every filter could be changed. It is that of the tree
//! that compaction will leave ([`settled`]), not of the present one, whose levels 0 and 1 may be overfull. A
//! flush or a compaction takes from it the filters of its outputs. The other tables follow when they are
//! rewritten; until then they are kept to the total by dropping column groups (`db/residency`).
//!
//! The engine calls it with the tables of a version: runs from the newest, the tables of a run in the order
//! of their keys.

use std::collections::HashSet;

use super::pick::Shape;
use super::settled::settled;
use crate::filter::allocation::{Allocation, Share, Total, allocate};
use crate::filter::{FilterAllocation, FilterPlan, FilterPolicy};
use crate::version::{TableHandle, Version};

/// A table, or the future output of a compaction, at its place in a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) level: usize,
    /// Distinct user keys.
    pub(crate) keys: u64,
    /// Length of its file.
    pub(crate) bytes: u64,
    pub(crate) smallest: &'a [u8],
    pub(crate) largest: &'a [u8],
    /// Lookups of absent keys that reach it, over those that its share of the keys lets expect.
    pub(crate) relative_probe_rate: f64,
    /// Whether it is the output that will be written.
    pub(crate) is_output: bool,
}

/// The filters that a tree gets.
#[derive(Debug, Clone)]
pub(crate) struct TreePlan {
    /// Each table, in the order in which they were given, run after run.
    pub(crate) shares: Vec<Share>,
    /// The optimal plan.
    pub(crate) optimal: Allocation,
}

impl TreePlan {
    /// The filter that this table gets, if any.
    pub(crate) fn filter(&self, table: usize) -> Option<FilterPlan> {
        let (kind, bits_per_key) = (self.shares[table].kind, self.optimal.bits_per_key[table]);
        (bits_per_key > 0.0).then_some(FilterPlan { kind, bits_per_key })
    }
}

/// The best filters for these runs, newest first, whose tables are in the order of their keys. `None` if the
/// policy has no filters.
///
/// The total is the policy's bits per key times the keys of all tables that such lookups reach; for a policy
/// with a rate, what equal rates would take.
pub(crate) fn plan(policy: &FilterPolicy, runs: &[Vec<Placed<'_>>]) -> Option<TreePlan> {
    let keys_by_place = KeysByPlace::new(runs);
    let mut shares = Vec::new();
    let mut bits = 0.0;
    for (index, run) in runs.iter().enumerate() {
        for table in run {
            let kind = policy.resolve(table.level, table.keys)?;
            let is_asked = !(policy.expect_hits && is_last(table, &runs[index + 1..]));
            let probe_rate =
                if is_asked { keys_by_place.share(table) * table.relative_probe_rate } else { 0.0 };
            bits += if is_asked { table.keys as f64 * kind.bits_per_key } else { 0.0 };
            shares.push(Share::new(kind.kind, table.keys, probe_rate));
        }
    }
    let optimal = allocate(&shares, Total::bytes((bits / 8.0) as u64));
    Some(TreePlan { shares, optimal })
}

/// What a flush or a compaction will write.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) level: usize,
    /// The largest number of distinct user keys that it can have.
    pub(crate) keys: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    /// Numbers of the tables that it replaces.
    pub(crate) replaces: HashSet<u64>,
}

/// The filter of an output in a tree of this shape, which `lookups` lookups have reached.
pub(crate) fn plan_output(
    policy: &FilterPolicy,
    shape: &Shape,
    version: &Version,
    lookups: u64,
    output: &Output,
) -> Option<FilterPlan> {
    if policy.allocation == FilterAllocation::Uniform && !policy.expect_hits {
        return policy.resolve(output.level, output.keys);
    }
    let runs = placed_runs(version, lookups);
    let replaced = |table: &&(Placed<'_>, u64)| output.replaces.contains(&table.1);
    let (mut weighted_rate, mut keys) = (0.0, 0.0);
    for (table, _) in runs.iter().flatten().filter(replaced).filter(|(table, _)| table.level == output.level)
    {
        weighted_rate += table.relative_probe_rate * table.keys as f64;
        keys += table.keys as f64;
    }
    let placed = Placed {
        level: output.level,
        keys: output.keys,
        bytes: runs
            .iter()
            .flatten()
            .filter(replaced)
            .map(|(table, _)| table.bytes)
            .fold(0, u64::saturating_add),
        smallest: &output.smallest,
        largest: &output.largest,
        relative_probe_rate: if keys > 0.0 { weighted_rate / keys } else { 1.0 },
        is_output: true,
    };
    let mut planned = vec![vec![placed]];
    for run in &runs {
        planned.push(run.iter().filter(|table| !replaced(table)).map(|table| table.0).collect());
    }
    plan_one(policy, &settled(planned, shape))
}

/// The tables of a version with their numbers, each with the relative probe rate from its counters.
pub(crate) fn placed_runs(version: &Version, lookups: u64) -> Vec<Vec<(Placed<'_>, u64)>> {
    fn place(level: usize, table: &TableHandle) -> Placed<'_> {
        let meta = &table.meta;
        let (smallest, largest) = (&meta.smallest[..], &meta.largest[..]);
        Placed {
            level,
            keys: meta.keys,
            bytes: meta.len,
            smallest,
            largest,
            relative_probe_rate: 1.0,
            is_output: false,
        }
    }
    let mut runs: Vec<Vec<Placed<'_>>> = Vec::new();
    for (level, run) in version.all_runs() {
        runs.push(run.tables.iter().map(|table| place(level, table)).collect());
    }
    let by_place = KeysByPlace::new(&runs);
    let mut placed = Vec::new();
    for ((_, run), tables) in version.all_runs().zip(&runs) {
        let with_rate = run.tables.iter().zip(tables).map(|(handle, table)| {
            let since = lookups.saturating_sub(handle.made_at());
            let relative_probe_rate =
                relative_probe_rate(by_place.share(table), since, handle.absent_lookups());
            (Placed { relative_probe_rate, ..*table }, handle.meta.number)
        });
        placed.push(with_rate.collect());
    }
    placed
}

/// The filter of the output among these tables.
pub(super) fn plan_one(policy: &FilterPolicy, runs: &[Vec<Placed<'_>>]) -> Option<FilterPlan> {
    let in_run = |run: &Vec<Placed<'_>>| run.iter().position(|table| table.is_output);
    let (run, table) = runs.iter().enumerate().find_map(|(run, tables)| Some((run, in_run(tables)?)))?;
    let output = &runs[run][table];
    match policy.allocation {
        FilterAllocation::Optimal => {
            let before: usize = runs[..run].iter().map(Vec::len).sum();
            plan(policy, runs)?.filter(before + table)
        }
        FilterAllocation::Uniform if policy.expect_hits && is_last(output, &runs[run + 1..]) => None,
        _ => policy.resolve(output.level, output.keys),
    }
}

/// Whether none of these runs has a table that overlaps this one.
fn is_last(table: &Placed<'_>, older: &[Vec<Placed<'_>>]) -> bool {
    !older.iter().any(|run| {
        let first = run.partition_point(|other| other.largest < table.smallest);
        run.get(first).is_some_and(|other| other.smallest <= table.largest)
    })
}

/// The weight of the prior rate of a new table, in lookups, so that its first lookups do not change the rate
/// much.
const PRIOR_LOOKUPS: f64 = 4096.0;

/// The relative probe rate is at most this, and at least its inverse: a factor that is worth four bits per
/// key, so that a change of the lookups costs no more.
const RELATIVE_RATE_MAX: f64 = 16.0;

/// The relative probe rate of a table over `share` of the keys. Since it was made, `lookups` reached its
/// tree, and `absent` reached the table for a key that it does not hold.
pub(crate) fn relative_probe_rate(share: f64, lookups: u64, absent: u64) -> f64 {
    let asked = (absent as f64 + PRIOR_LOOKUPS * share) / (lookups as f64 + PRIOR_LOOKUPS);
    (asked / share).clamp(1.0 / RELATIVE_RATE_MAX, RELATIVE_RATE_MAX)
}

/// How the keys of a tree are distributed, as far as the bounds of its tables show.
pub(crate) struct KeysByPlace<'a> {
    /// Bounds of tables in order, with the half keys up to and including each.
    bounds: Vec<(&'a [u8], u64)>,
}

impl<'a> KeysByPlace<'a> {
    pub(crate) fn new(runs: &[Vec<Placed<'a>>]) -> Self {
        let ends = |table: &Placed<'a>| [(table.smallest, table.keys), (table.largest, table.keys)];
        let mut bounds: Vec<(&[u8], u64)> = runs.iter().flatten().flat_map(ends).collect();
        bounds.sort_unstable();
        let mut sum = 0;
        for (_, keys) in &mut bounds {
            sum = keys.saturating_add(sum);
            *keys = sum;
        }
        Self { bounds }
    }

    /// The share of all keys within the bounds of this table, which are bounds of some of them: over 0, up to
    /// 1.
    pub(crate) fn share(&self, table: &Placed<'_>) -> f64 {
        let up_to = |count: usize| count.checked_sub(1).map_or(0, |last| self.bounds[last].1);
        let before = up_to(self.bounds.partition_point(|(key, _)| *key < table.smallest));
        let within = up_to(self.bounds.partition_point(|(key, _)| *key <= table.largest)) - before;
        within as f64 / up_to(self.bounds.len()).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::FilterKind;

    /// Tables that share the keys 0000 to 9999 equally.
    fn run(level: usize, tables: usize, keys: u64) -> Vec<Placed<'static>> {
        let bound = |n: usize| -> &'static [u8] { format!("{n:04}").leak().as_bytes() };
        let bounds = |n: usize| (bound(n * 10_000 / tables), bound((n + 1) * 10_000 / tables - 1));
        let table = |n: usize| {
            let (smallest, largest) = bounds(n);
            let (keys, is_output) = (keys / tables as u64, false);
            Placed { level, keys, bytes: 100 * keys, smallest, largest, relative_probe_rate: 1.0, is_output }
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
        assert!((0.9..1.1).contains(&waste), "{waste}");
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
        assert!((spent - 1_100_000.0).abs() < 20.0, "{spent}");
        assert!(plan(&FilterPolicy::new(FilterKind::None), &runs).is_none());
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
