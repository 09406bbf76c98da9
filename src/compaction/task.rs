//! A compaction task, its urgency, and its split into parts for several threads.
//!
//! A part ends at a user key, so parts are independent. Their outputs are published together.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::shape::Shape;
use crate::key::{has_shorter_next, key_after};
use crate::manifest::edit::LEVELS;
use crate::number_map::Number;
use crate::sorting::sort_by_key;
use crate::version::TableHandle;

const PART_TABLES_MIN: u64 = 4;

/// If `output_level` is [`LEVELS`], the inputs are dropped.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) inputs: Vec<(usize, Arc<TableHandle>)>,
    pub(crate) output_level: usize,
    pub(crate) trivial_move: bool,
}

impl Task {
    pub(crate) fn drops(&self) -> bool {
        self.output_level == LEVELS
    }

    pub(crate) fn numbers(&self) -> HashSet<u64> {
        self.inputs.iter().map(|(_, table)| table.meta.number).collect()
    }

    pub(super) fn rewritten_bytes(&self) -> u64 {
        if self.trivial_move { 0 } else { len_of(self.inputs.iter().map(|(_, table)| table)) }
    }

    /// The first keys of all parts except the first, each directly after a table's smallest key, where spans can be
    /// cut.
    pub(crate) fn cuts(&self, shape: &Shape, parts: usize) -> Vec<Bytes> {
        let bytes = self.rewritten_bytes();
        let longest = bytes / shape.table_bytes.saturating_mul(PART_TABLES_MIN).max(1);
        let parts = (parts as u64).min(longest).max(1);
        let mut tables: Vec<_> = self.inputs.iter().map(|(_, table)| &table.meta).collect();
        sort_by_key(&mut tables, |meta| &meta.smallest);
        let (mut cuts, mut before): (Vec<Bytes>, u64) = (Vec::new(), 0);
        for meta in &tables {
            let is_new = cuts.last().unwrap_or(&tables[0].smallest) < &meta.smallest;
            // Spans cannot be cut after such a key: see `Merge`.
            let is_new = is_new && !has_shorter_next(&meta.smallest);
            if is_new && before.saturating_mul(parts) >= bytes.saturating_mul(cuts.len() as u64 + 1) {
                cuts.extend(key_after(&meta.smallest).map(Bytes::from));
            }
            before = before.saturating_add(meta.len);
        }
        cuts
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency {
    pressure: u64,
    score: u64,
}

impl Number for Urgency {
    fn to_u128(self) -> u128 {
        (self.pressure, self.score).to_u128()
    }
}

impl Urgency {
    pub(crate) fn new(pressure: f64, score: f64) -> Self {
        let thousandths = |number: f64| (number * 1000.0) as u64;
        Self { pressure: thousandths(pressure), score: thousandths(score) }
    }

    pub(crate) fn of_score(score: f64) -> Self {
        Self::new(0.0, score)
    }
}

pub(super) fn bounds_of<'t>(
    tables: impl IntoIterator<Item = &'t Arc<TableHandle>, IntoIter: Clone>,
) -> Option<(&'t Bytes, &'t Bytes)> {
    let tables = tables.into_iter();
    let smallest = tables.clone().map(|table| &table.meta.smallest).min()?;
    Some((smallest, tables.map(|table| &table.meta.largest).max()?))
}

/// Saturates, because a manifest may state any length.
pub(super) fn len_of<'t>(tables: impl IntoIterator<Item = &'t Arc<TableHandle>>) -> u64 {
    tables.into_iter().map(|table| table.meta.len).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::handle;

    const SHAPE: Shape = Shape { l0_runs: 4, level_base_bytes: 100, level_ratio: 10, table_bytes: 10 };

    fn cut(tables: &[(&str, &str, u64)], parts: usize) -> Vec<String> {
        let inputs = (1..).zip(tables).map(|(number, &(a, b, len))| (1, handle(number, a, b, len))).collect();
        let task = Task { inputs, output_level: 2, trivial_move: false };
        let bound = |key: &Bytes| key.strip_suffix(&[0]).unwrap().to_vec();
        task.cuts(&SHAPE, parts).iter().map(|key| String::from_utf8(bound(key)).unwrap()).collect()
    }

    #[test]
    fn parts_are_of_about_equal_length_and_not_too_short() {
        let tables = [("a", "b", 50), ("c", "d", 50), ("e", "f", 50), ("g", "h", 50)];
        assert_eq!(cut(&tables, 1), [] as [&str; 0]);
        assert_eq!(cut(&tables, 2), ["e"]);
        assert_eq!(cut(&tables, 4), ["c", "e", "g"]);
        assert_eq!(cut(&tables, 100), ["c", "e", "g"], "a part has at least a table");
        assert_eq!(
            cut(&[("a", "b", 20), ("c", "d", 19)], 2),
            [] as [&str; 0],
            "a part of 40 is short enough"
        );
        assert_eq!(cut(&[("a", "z", 100), ("a", "m", 50), ("p", "q", 10)], 2), ["p"]);
        assert_eq!(
            cut(&[("a", "z", 100), ("a", "z", 100)], 2),
            [] as [&str; 0],
            "no table begins in between"
        );
    }
}
