//! A run: tables that do not overlap.

use std::collections::HashMap;
use std::iter::Sum;
use std::ops::Range;
use std::sync::Arc;

use super::handle::TableHandle;
use crate::key::{SeqNo, common_prefix, key_prefix};
use crate::sorting::sort_by;
use crate::table_meta::TableMeta;

#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Newer runs have larger ids.
    pub(super) id: u64,
    pub(crate) tables: Arc<[Arc<TableHandle>]>,
    prefix: Arc<[u8]>,
    fences: Arc<[Fence]>,
    totals: Totals,
}

/// Totals of a run, so that callers need not visit all tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) tables: usize,
    pub(crate) bytes: u64,
    pub(crate) longest: u64,
    pub(crate) filter_bytes: u64,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) seqno_max: SeqNo,
    pub(crate) with_spans: usize,
}

impl Totals {
    fn of(meta: &TableMeta) -> Self {
        Self {
            tables: 1,
            bytes: meta.len,
            longest: meta.len,
            filter_bytes: meta.filters.iter().map(|filter| filter.len).fold(0, u64::saturating_add),
            entries: meta.entries,
            tombstones: meta.tombstones,
            seqno_max: meta.seqno_max,
            with_spans: usize::from(meta.spans.is_some()),
        }
    }
}

impl Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            tables: a.tables + b.tables,
            bytes: a.bytes.saturating_add(b.bytes),
            longest: a.longest.max(b.longest),
            filter_bytes: a.filter_bytes.saturating_add(b.filter_bytes),
            entries: a.entries.saturating_add(b.entries),
            tombstones: a.tombstones.saturating_add(b.tombstones),
            seqno_max: a.seqno_max.max(b.seqno_max),
            with_spans: a.with_spans + b.with_spans,
        })
    }
}

/// Eight bytes of each bound, after the common prefix of the run. A search need not read the bounds, which are
/// scattered in memory.
#[derive(Debug, Clone, Copy)]
struct Fence {
    smallest: u64,
    largest: u64,
}

impl Run {
    pub(super) fn new(id: u64, mut tables: Vec<Arc<TableHandle>>) -> Self {
        sort_by(&mut tables, |a, b| a.meta.smallest.cmp(&b.meta.smallest));
        let prefix = match (tables.first(), tables.last()) {
            (Some(first), Some(last)) => {
                &first.meta.smallest[..common_prefix(&first.meta.smallest, &last.meta.largest)]
            }
            _ => &[],
        };
        let part = |key: &[u8]| key_prefix(key.strip_prefix(prefix).unwrap_or_default());
        let fence = |table: &Arc<TableHandle>| Fence {
            smallest: part(&table.meta.smallest),
            largest: part(&table.meta.largest),
        };
        let totals = tables.iter().map(|table| Totals::of(&table.meta)).sum();
        let fences = tables.iter().map(fence).collect();
        Self { id, prefix: prefix.into(), fences, totals, tables: tables.into() }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn replace(&mut self, new: &HashMap<u64, &Arc<TableHandle>>) {
        let replaced = |(at, old): (usize, &Arc<TableHandle>)| Some((at, *new.get(&old.meta.number)?));
        let replaced: Vec<_> = self.tables.iter().enumerate().filter_map(replaced).collect();
        if replaced.is_empty() {
            return;
        }
        let tables = Arc::make_mut(&mut self.tables);
        replaced.into_iter().for_each(|(at, table)| tables[at] = Arc::clone(table));
        self.totals = tables.iter().map(|table| Totals::of(&table.meta)).sum();
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    #[inline(always)]
    pub(super) fn table_for(&self, user_key: &[u8]) -> Option<&Arc<TableHandle>> {
        self.table_with(user_key, key_prefix(user_key))
    }

    #[inline(always)]
    pub(super) fn table_with(&self, user_key: &[u8], part: u64) -> Option<&Arc<TableHandle>> {
        self.tables.get(self.place_with(user_key, part)?)
    }

    /// Whether keys with [`key_prefix`]es from `smallest` to `largest` are certainly within the bounds of the run's
    /// only table.
    #[inline(always)]
    pub(super) fn is_within(&self, smallest: u64, largest: u64) -> bool {
        let [fence] = &*self.fences else { return false };
        self.prefix.is_empty() && fence.smallest < smallest && largest < fence.largest
    }

    /// The index of [`Run::table_with`]: a binary search over the fences. Compares whole bounds only if a fence equals
    /// `part`.
    #[inline(always)]
    pub(super) fn place_with(&self, user_key: &[u8], part: u64) -> Option<usize> {
        if self.is_within(part, part) {
            return Some(0);
        }
        let part = if self.prefix.is_empty() { part } else { self.part_behind_prefix(user_key)? };
        let index = match &*self.fences {
            [_] => 0,
            fences => fences.partition_point(|fence| fence.largest < part),
        };
        let fence = self.fences.get(index)?;
        if fence.smallest < part && part < fence.largest {
            Some(index)
        } else if part < fence.smallest || fence.largest < part {
            None
        } else {
            self.place_at(index, part, user_key)
        }
    }

    #[inline(never)]
    fn part_behind_prefix(&self, user_key: &[u8]) -> Option<u64> {
        user_key.strip_prefix(&*self.prefix).map(key_prefix)
    }

    /// [`Run::place_with`] if `part` equals a fence. Tables before `index` have smaller keys.
    #[inline(never)]
    fn place_at(&self, index: usize, part: u64, user_key: &[u8]) -> Option<usize> {
        let alike = self.fences[index..].partition_point(|fence| fence.largest == part);
        let tables = &self.tables[index..index + alike];
        let index = index + tables.partition_point(|table| &table.meta.largest[..] < user_key);
        self.tables.get(index).filter(|table| &table.meta.smallest[..] <= user_key).map(|_| index)
    }

    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> &[Arc<TableHandle>] {
        &self.tables[self.between(|key| key < smallest, |key| key > largest)]
    }

    pub(crate) fn between(
        &self,
        before: impl Fn(&[u8]) -> bool,
        after: impl Fn(&[u8]) -> bool,
    ) -> Range<usize> {
        let start = self.tables.partition_point(|table| before(&table.meta.largest));
        let len = self.tables[start..].partition_point(|table| !after(&table.meta.smallest));
        start..start + len
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::version::handle;

    #[test]
    fn a_run_finds_the_table_of_a_key_and_those_of_a_range() {
        let run = Run::new(0, vec![handle(1, "b", "d", 1), handle(2, "f", "h", 1), handle(3, "j", "l", 1)]);
        let at = |key: &str| run.table_for(key.as_bytes()).map(|table| table.meta.number);
        assert_eq!(
            [at("a"), at("b"), at("d"), at("e"), at("h"), at("m")],
            [None, Some(1), Some(1), None, Some(2), None]
        );
        let over = |a: &str, b: &str| run.overlapping(a.as_bytes(), b.as_bytes()).len();
        assert_eq!(
            [over("a", "a"), over("a", "b"), over("d", "f"), over("e", "e"), over("a", "z")],
            [0, 1, 2, 0, 3]
        );
    }

    #[test]
    fn the_tables_of_a_range_are_found_with_few_comparisons_among_thousands() {
        let name = |number: u64| format!("{number:05}");
        let tables: Vec<_> = (0..4000).map(|n| handle(n, &name(2 * n), &name(2 * n + 1), 1)).collect();
        let run = Run::new(0, tables);
        for (first, last) in [(0, 7999), (0, 0), (7999, 7999), (3001, 3002), (4000, 4100), (8000, 9000)] {
            let asked = Cell::new(0);
            let count = |answer: bool| {
                asked.set(asked.get() + 1);
                answer
            };
            let (start, end) = (name(first), name(last));
            let found = run.between(|key| count(key < start.as_bytes()), |key| count(key > end.as_bytes()));
            let expected = (first / 2).min(4000) as usize..(last / 2 + 1).min(4000) as usize;
            assert_eq!(found, expected, "{first} to {last}");
            assert!(asked.get() <= 26, "{} comparisons for {first} to {last}", asked.get());
        }
        assert!(Arc::ptr_eq(&run.clone().tables, &run.tables), "a clone is the same list");
    }

    #[test]
    fn the_table_of_a_key_is_found_whatever_prefix_the_keys_share() {
        let mut random = 3u64;
        let mut below = |most: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % most
        };
        let mut found = 0;
        for round in 0..400 {
            // Keys of few letters, including the zero with which keys are padded, after a common prefix of various
            // lengths.
            let common = ["", "k", "https://example.org/", "\0\0"][round % 4];
            let most = [3, 9, 12][round % 3];
            let mut keys: Vec<String> = (0..40)
                .map(|_| {
                    let letters = (0..below(most)).map(|_| ['\0', 'a', 'b'][below(3) as usize]);
                    common.chars().chain(letters).collect()
                })
                .collect();
            keys.sort();
            keys.dedup();
            let bounds: Vec<&[String]> = keys.chunks(3).filter(|keys| keys.len() > 1).collect();
            let tables: Vec<_> = (0..)
                .zip(bounds.iter().skip(usize::from(round % 5 == 0)))
                .map(|(number, keys)| handle(number, &keys[0], &keys[1], 1))
                .collect();
            let run = Run::new(0, tables);
            for key in keys.iter().map(String::as_str).chain(["", "a", "https://example.org/\u{7f}", "z"]) {
                let key = key.as_bytes();
                let holds = |table: &&Arc<TableHandle>| {
                    &table.meta.smallest[..] <= key && key <= &table.meta.largest[..]
                };
                let expected = run.tables.iter().find(holds).map(|table| table.meta.number);
                assert_eq!(run.table_for(key).map(|table| table.meta.number), expected, "{round} {key:?}");
                found += usize::from(expected.is_some());
            }
        }
        assert!(found > 1000, "{found}");
    }
}
