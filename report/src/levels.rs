//! The filters of a keyspace by level: predicted and observed.

use sievedb::inspect::tree::{KeyspaceShape, RunShape, TableShape};

use crate::cells::Look;
use crate::observed::{Counts, Observed};

pub(crate) struct Level {
    pub(crate) number: Option<u8>,
    pub(crate) runs: u64,
    pub(crate) tables: u64,
    pub(crate) keys: u64,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) bytes: u64,
    pub(crate) filter_bytes: u64,
    pub(crate) kinds: String,
    pub(crate) bits_per_key: Option<f64>,
    pub(crate) predicted: Option<f64>,
    pub(crate) wasted: f64,
    pub(crate) wasted_share: f64,
    pub(crate) observed: Option<Counts>,
    /// Column groups in memory and in total; `None` for a closed store.
    pub(crate) groups: Option<(u64, u64)>,
}

pub(crate) fn levels(keyspace: &KeyspaceShape, observed: &Observed) -> (Vec<Level>, Level) {
    let all: Vec<&RunShape> = keyspace.runs.iter().collect();
    let wasted = all.iter().map(|run| run.rate()).sum::<f64>();
    let counts = |level: u8| observed.get(&(keyspace.name.clone(), usize::from(level))).copied();
    let mut sum = Counts::default();
    for ((name, _), counts) in observed {
        if *name == keyspace.name {
            sum.add(counts);
        }
    }
    let mut numbers: Vec<u8> = all.iter().map(|run| run.level).collect();
    numbers.dedup();
    let level = |number: u8| {
        let runs: Vec<&RunShape> = all.iter().copied().filter(|run| run.level == number).collect();
        Level::of(Some(number), &runs, wasted, counts(number))
    };
    let total = Level::of(None, &all, wasted, Some(sum).filter(|sum| sum.absent() > 0));
    (numbers.into_iter().map(level).collect(), total)
}

impl Level {
    fn of(number: Option<u8>, runs: &[&RunShape], all_wasted: f64, observed: Option<Counts>) -> Self {
        let tables: Vec<&TableShape> = runs.iter().flat_map(|run| &run.tables).collect();
        let sum = |of: &dyn Fn(&TableShape) -> u64| {
            tables.iter().map(|table| of(table)).fold(0, u64::saturating_add)
        };
        let first_filter = |table: &TableShape| table.filters.first().map_or(0, |filter| filter.bytes);
        let filter_keys = sum(&|table| if table.filters.is_empty() { 0 } else { table.keys });
        let filter_bytes = sum(&first_filter);
        let found = |table: &&&TableShape| table.filters.iter().any(|filter| filter.found.is_some());
        let (rate, weight) = tables.iter().filter(found).fold((0.0, 0.0), |(rate, weight), table| {
            (rate + table.rate() * table.keys as f64, weight + table.keys as f64)
        });
        let wasted = runs.iter().map(|run| run.rate()).sum::<f64>();
        let states = tables.iter().filter_map(|table| table.residency);
        let groups = states.fold(None, |groups: Option<(u64, u64)>, state| {
            let (loaded, all) = groups.unwrap_or_default();
            Some((loaded + state.loaded_filter_column_groups, all + state.filter_column_groups))
        });
        Self {
            number,
            runs: runs.len() as u64,
            tables: tables.len() as u64,
            keys: sum(&|table| table.keys),
            entries: sum(&|table| table.entries),
            tombstones: sum(&|table| table.tombstones),
            bytes: sum(&|table| table.bytes),
            filter_bytes,
            kinds: kinds(&tables),
            bits_per_key: (filter_keys > 0).then(|| filter_bytes as f64 * 8.0 / filter_keys as f64),
            predicted: (weight > 0.0).then(|| rate / weight),
            wasted,
            wasted_share: if all_wasted > 0.0 { wasted / all_wasted } else { 0.0 },
            observed,
            groups,
        }
    }
}

fn kinds(tables: &[&TableShape]) -> String {
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    for table in tables {
        let name = Look::of(table).name();
        match kinds.iter_mut().find(|(known, _)| *known == name) {
            Some((_, keys)) => *keys = keys.saturating_add(table.keys),
            None => kinds.push((name, table.keys)),
        }
    }
    kinds.sort_by_key(|&(_, keys)| std::cmp::Reverse(keys));
    kinds.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{keyspace, table};

    #[test]
    fn the_wasted_reads_of_all_levels_add_up() {
        let mut bare = table(3, 100);
        bare.filters.clear();
        let keyspace = keyspace("k", vec![(0, vec![table(1, 10)]), (0, vec![table(2, 10)]), (1, vec![bare])]);
        let mut observed = Observed::new();
        observed.insert(("k".into(), 0), Counts { negatives: 99, false_positives: 1, expected: 0.5 });
        observed.insert(("other".into(), 0), Counts { negatives: 1, ..Counts::default() });
        let (levels, total) = levels(&keyspace, &observed);
        assert_eq!((levels.len(), levels[0].runs, total.tables, total.keys), (2, 2, 3, 120));
        assert!((total.wasted - 1.002).abs() < 1e-12);
        assert!((levels.iter().map(|level| level.wasted_share).sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(
            (levels[1].bits_per_key, levels[1].predicted, &levels[1].kinds[..]),
            (None, None, "no filter")
        );
        assert_eq!(levels[0].observed.and_then(|counts| counts.rate()), Some(0.01));
        assert_eq!(total.observed.map(|counts| counts.absent()), Some(100));
    }
}
