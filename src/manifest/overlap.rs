//! Tables of one run must not overlap: a lookup reads only the table whose bounds contain its key.

use bytes::Bytes;

use crate::limits::BOUND_BYTES_MAX;
use crate::sorting::sort_by;

/// Sorted by smallest key, then by largest key. So if trimming made the smallest keys equal, untrimmed bounds come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bounds {
    pub(crate) smallest: Bytes,
    pub(crate) largest: Bytes,
    pub(crate) trimmed: bool,
    pub(crate) number: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) number: u64,
    pub(crate) detail: String,
    pub(crate) keys: (Bytes, Bytes),
}

#[derive(Debug, Default)]
pub(crate) struct Runs(Vec<(u8, u64, Bounds)>);

impl Runs {
    pub(crate) fn add(&mut self, level: u8, run: u64, bounds: Bounds) {
        self.0.push((level, run, bounds));
    }

    pub(crate) fn overlaps(mut self) -> impl Iterator<Item = Overlap> {
        sort_by(&mut self.0, Ord::cmp);
        let pairs = self.0.windows(2).filter(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1));
        pairs.filter_map(|pair| overlap(&pair[0].2, &pair[1].2)).collect::<Vec<_>>().into_iter()
    }
}

/// A trimmed key may be longer than the original.
fn overlap(a: &Bounds, b: &Bounds) -> Option<Overlap> {
    let cut = b.trimmed && b.smallest.len() == BOUND_BYTES_MAX;
    let overlaps = a.largest >= b.smallest && !(cut && a.largest.starts_with(&b.smallest));
    overlaps.then(|| Overlap {
        number: b.number,
        detail: format!("the keys of table {} overlap those of table {} in one run", b.number, a.number),
        keys: (b.smallest.clone(), a.largest.clone().min(b.largest.clone())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_of_one_run_overlap_and_the_keys_of_both_are_named() {
        let bounds = |number, smallest: &'static str, largest: &'static str| Bounds {
            smallest: smallest.into(),
            largest: largest.into(),
            trimmed: false,
            number,
        };
        let mut runs = Runs::default();
        runs.add(1, 0, bounds(9, "c", "e"));
        runs.add(1, 0, bounds(7, "a", "d"));
        runs.add(1, 0, bounds(8, "f", "g"));
        runs.add(1, 1, bounds(6, "a", "z"));
        runs.add(2, 0, bounds(5, "a", "z"));
        let found: Vec<_> = runs.overlaps().collect();
        let detail = "the keys of table 9 overlap those of table 7 in one run".to_owned();
        assert_eq!(found, [Overlap { number: 9, detail, keys: ("c".into(), "d".into()) }]);
    }
}
