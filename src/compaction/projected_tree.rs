//! The tree after the pending compactions, without further writes. Filters are planned for it, because filters sized
//! for the present number of runs in upper levels would waste memory after the merge. The projection follows
//! `pick::score`:
//!
//! 1. If level 0 has enough runs, it is merged with level 1. The run being written remains separate.
//! 2. The same fraction of each table of a level is in excess. It is merged into the overlapping tables of the next
//!    level. A table without overlap will be moved and does not change.
//!
//! O(t log t) for t tables.

use super::shape::Shape;
use crate::filter::Kind;
use crate::filter::cost::TableUse;
use crate::manifest::edit::LEVELS;
use crate::sorting::sort_by_key;

#[derive(Debug, Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) level: usize,
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) smallest: &'a [u8],
    pub(super) largest: &'a [u8],
    pub(super) relative_probe_rate: f64,
    /// For an output, the average of its inputs.
    pub(super) probes_per_key: f64,
    pub(super) kind: Option<Kind>,
    pub(super) is_output: bool,
}

impl<'a> Placed<'a> {
    pub(super) fn new(level: usize, keys: u64, bytes: u64, smallest: &'a [u8], largest: &'a [u8]) -> Self {
        Self {
            level,
            keys,
            bytes,
            smallest,
            largest,
            relative_probe_rate: 1.0,
            probes_per_key: 0.0,
            kind: None,
            is_output: false,
        }
    }

    pub(super) fn table_use(&self) -> TableUse {
        TableUse { keys: self.keys, probes_per_key: self.probes_per_key, present: self.kind }
    }
}

/// `runs` begins with the output, a run that overlaps no table of its level.
pub(super) fn settled<'a>(runs: Vec<Vec<Placed<'a>>>, shape: &Shape) -> Vec<Vec<Placed<'a>>> {
    let by_place = KeysByPlace::new(&runs);
    let mut level_0 = Vec::new();
    let mut levels: [Vec<Placed<'a>>; LEVELS] = Default::default();
    for run in runs {
        match run.first().map(|table| table.level) {
            None => {}
            Some(0) => level_0.push(run),
            Some(level) => levels[level].extend(run),
        }
    }
    if level_0.len() >= shape.l0_runs {
        let is_written = |run: &Vec<Placed<'_>>| run.iter().any(|table| table.is_output);
        let (stay, fall): (Vec<_>, Vec<_>) = level_0.into_iter().partition(is_written);
        level_0 = stay;
        levels[1].extend(fall.into_iter().flatten());
        levels[1] = merged(std::mem::take(&mut levels[1]));
    }
    levels.iter_mut().for_each(|run| sort_by_key(run, |table| table.smallest));
    for level in 1..LEVELS - 1 {
        let bytes = levels[level].iter().map(|table| table.bytes).fold(0, u64::saturating_add);
        let above = 1.0 - shape.target(level) as f64 / bytes as f64;
        if above > 0.0 {
            let (upper, lower) = levels.split_at_mut(level + 1);
            for table in &mut upper[level] {
                *table = scaled(table, 1.0 - fall(table, above, &mut lower[0], &by_place));
            }
        }
    }
    level_0.into_iter().chain(levels).filter(|run| !run.is_empty()).collect()
}

fn merged(mut tables: Vec<Placed<'_>>) -> Vec<Placed<'_>> {
    sort_by_key(&mut tables, |table| table.smallest);
    let mut run: Vec<Placed<'_>> = Vec::new();
    for table in tables {
        match run.last_mut() {
            Some(last) if table.smallest <= last.largest => {
                let keys = (last.keys + table.keys).max(1);
                let weighted_rate = last.relative_probe_rate * last.keys as f64
                    + table.relative_probe_rate * table.keys as f64;
                let known = if table.is_output { table } else { *last };
                *last = Placed {
                    level: 1,
                    keys,
                    bytes: last.bytes + table.bytes,
                    smallest: last.smallest,
                    largest: last.largest.max(table.largest),
                    relative_probe_rate: weighted_rate / keys as f64,
                    is_output: last.is_output || table.is_output,
                    ..known
                };
            }
            _ => run.push(table),
        }
    }
    run
}

fn fall(table: &Placed<'_>, above: f64, run: &mut [Placed<'_>], by_place: &KeysByPlace<'_>) -> f64 {
    let start = run.partition_point(|below| below.largest < table.smallest);
    let mut fallen = 0.0;
    for below in run[start..].iter_mut().take_while(|below| below.smallest <= table.largest) {
        let (smallest, largest) = (table.smallest.max(below.smallest), table.largest.min(below.largest));
        let common = by_place.share(&Placed { smallest, largest, ..*table }) / by_place.share(table);
        let falls = scaled(table, above * common);
        below.keys = below.keys.saturating_add(falls.keys);
        below.bytes = below.bytes.saturating_add(falls.bytes);
        fallen += above * common;
    }
    fallen
}

fn scaled<'a>(table: &Placed<'a>, part: f64) -> Placed<'a> {
    let of = |number: u64| (number as f64 * part).round() as u64;
    Placed {
        keys: of(table.keys),
        bytes: of(table.bytes),
        relative_probe_rate: table.relative_probe_rate * part,
        ..*table
    }
}

pub(super) struct KeysByPlace<'a> {
    runs: Vec<Vec<Span<'a>>>,
    keys: f64,
}

struct Span<'a> {
    smallest: &'a [u8],
    largest: &'a [u8],
    keys: f64,
    before: f64,
}

impl Span<'_> {
    /// The share of keys below `key`, by the eight bytes after the common prefix of the bounds.
    fn below(&self, key: &[u8]) -> f64 {
        let common = self.smallest.iter().zip(self.largest).take_while(|(a, b)| a == b).count();
        let number = |key: &[u8]| -> f64 {
            let digits = key.iter().skip(common).copied().chain(std::iter::repeat(0)).take(8);
            digits.fold(0.0, |number, byte| number * 256.0 + f64::from(byte))
        };
        let [smallest, largest, key] = [self.smallest, self.largest, key].map(number);
        if largest > smallest { ((key - smallest) / (largest - smallest)).clamp(0.0, 1.0) } else { 0.5 }
    }
}

impl<'a> KeysByPlace<'a> {
    pub(super) fn new(runs: &[Vec<Placed<'a>>]) -> Self {
        let mut all = 0.0;
        let mut spans = |run: &Vec<Placed<'a>>| {
            let mut sum = 0.0;
            let span = |table: &Placed<'a>| {
                let (before, keys) = (sum, table.keys as f64);
                sum += keys;
                Span { smallest: table.smallest, largest: table.largest, keys, before }
            };
            let run: Vec<_> = run.iter().map(span).collect();
            all += sum;
            run
        };
        Self { runs: runs.iter().map(&mut spans).collect(), keys: all }
    }

    /// The share of all keys, in (0, 1]. O(r log t) for r runs.
    pub(super) fn share(&self, table: &Placed<'_>) -> f64 {
        let keys = |before: fn(&[u8], &[u8]) -> bool, key: &[u8]| -> f64 {
            let of_run = |run: &Vec<Span<'_>>| {
                let next = run.partition_point(|span| before(span.largest, key));
                match run.get(next) {
                    Some(span) if span.smallest < key => span.before + span.keys * span.below(key),
                    Some(span) => span.before,
                    None => run.last().map_or(0.0, |span| span.before + span.keys),
                }
            };
            self.runs.iter().map(of_run).sum()
        };
        let within = keys(|largest, key| largest <= key, table.largest)
            - keys(|largest, key| largest < key, table.smallest);
        (within / self.keys.max(1.0)).clamp(f64::MIN_POSITIVE, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { l0_runs: 4, level_base_bytes: 1000, level_ratio: 10, table_bytes: 100 };

    /// Tables of as many bytes as keys, over equal parts of the keys `from` to `to`.
    fn run(level: usize, tables: u32, keys: u64, from: u32, to: u32) -> Vec<Placed<'static>> {
        let bound = |n: u32| -> &'static [u8] { n.to_be_bytes().to_vec().leak() };
        let cut = |n: u32| from + (to - from) * n / tables;
        let table = |n: u32| {
            let (smallest, largest) = (bound(cut(n)), bound(cut(n + 1) - 1));
            let keys = keys / u64::from(tables);
            Placed::new(level, keys, keys, smallest, largest)
        };
        (0..tables).map(table).collect()
    }

    fn keys(run: &[Placed<'_>]) -> u64 {
        run.iter().map(|table| table.keys).sum()
    }

    #[test]
    fn tables_waiting_to_be_merged_are_counted_in_their_target_level() {
        let mut runs: Vec<_> = (0..5).map(|_| run(0, 1, 400, 10, 990)).collect();
        runs.extend([run(1, 4, 2000, 10, 990), run(2, 20, 8000, 1, 999)]);
        let settled = settled(runs, &SHAPE);
        let found: Vec<_> = settled.iter().map(|run| (run.len(), keys(run))).collect();
        assert_eq!((found[0].0, found[1].0), (1, 20));
        assert!(found[0].1.abs_diff(1000) < 30 && found[1].1.abs_diff(11_000) < 30, "{found:?}");
        // A quarter of the merged level 1 is left, so a quarter of the lookups probe it.
        let upper = settled[0][0];
        assert!((upper.relative_probe_rate - 0.25).abs() < 0.01, "{upper:?}");
        let by_keys = settled[1].iter().map(|table| table.keys);
        assert!(by_keys.clone().max().unwrap() < 2 * by_keys.min().unwrap());
    }

    #[test]
    fn a_run_being_written_and_a_tree_that_needs_no_compaction_are_unchanged() {
        let mut runs = vec![run(0, 1, 400, 10, 990)];
        runs[0][0].is_output = true;
        runs.extend((0..2).map(|_| run(0, 1, 400, 10, 990)));
        runs.extend([run(1, 4, 900, 10, 990), run(2, 20, 8000, 1, 999)]);
        let same = settled(runs.clone(), &SHAPE);
        assert_eq!(format!("{same:?}"), format!("{runs:?}"));
        runs.insert(1, run(0, 1, 400, 10, 990));
        let due = settled(runs, &SHAPE);
        assert_eq!(due.len(), 3);
        assert!(due[0][0].is_output && due[0][0].keys == 400 && due[0][0].relative_probe_rate == 1.0);
        assert_eq!((due[1].len(), due.iter().map(|run| keys(run)).sum::<u64>() / 100), (1, 105));
    }

    #[test]
    fn a_table_that_overlaps_nothing_below_is_unchanged() {
        // Keys that arrive in order: six runs of level 0, and a level 1 of ten times its target.
        let mut runs: Vec<_> = (0..6).rev().map(|n| run(0, 1, 400, 1000 + 10 * n, 1010 + 10 * n)).collect();
        runs.extend([run(1, 10, 10_000, 500, 1000), run(2, 10, 10_000, 0, 500)]);
        let settled = settled(runs, &SHAPE);
        assert_eq!(settled.iter().map(Vec::len).collect::<Vec<_>>(), [16, 10]);
        assert!(settled.iter().flatten().all(|table| table.relative_probe_rate == 1.0));
        assert_eq!(settled.iter().map(|run| keys(run)).sum::<u64>(), 22_400);
    }

    #[test]
    fn filter_bits_of_the_last_level_do_not_depend_on_waiting_tables_above_it() {
        use crate::compaction::filters::plan;
        use crate::filter::{FilterKind, FilterPolicy};
        let bits = |runs: u64, level_1: u64| {
            let mut output = run(2, 1, 10_000, 400, 450);
            output[0].is_output = true;
            let mut tree = vec![output];
            tree.extend((0..runs).map(|_| run(0, 1, 400, 10, 990)));
            tree.extend([
                run(1, 4, level_1, 10, 990),
                run(2, 8, 80_000, 1, 400),
                run(2, 11, 110_000, 450, 1000),
            ]);
            let policy = FilterPolicy::new(FilterKind::Auto);
            let mean = |tree: &[Vec<Placed<'_>>]| {
                let bits = plan(&policy, tree).unwrap().optimal.bits_per_key;
                let last = tree.iter().flatten().zip(bits).filter(|(table, _)| table.level == 2);
                let (bits, keys) = last.fold((0.0, 0.0), |(bits, keys), (table, each)| {
                    (bits + each * table.keys as f64, keys + table.keys as f64)
                });
                bits / keys
            };
            (mean(&settled(tree.clone(), &SHAPE)), mean(&tree))
        };
        let (rest, as_it_is) = bits(0, 1000);
        assert!(rest > 9.9 && rest == as_it_is, "{rest} {as_it_is}");
        let (overfull, as_it_is) = bits(20, 30_000);
        assert!((overfull - rest).abs() < 0.1 && as_it_is < rest - 0.5, "{overfull} {as_it_is} {rest}");
    }
}
