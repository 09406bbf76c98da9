//! The invertible Bloom lookup table: lists a difference of limited size.
//!
//! An item is in one cell of each of `k` equal ranges. In the difference of two tables, an item alone in a cell is listed and
//! removed from its other cells, which can leave others alone. Large differences need 1.222 cells per item for `k = 3`, 1.295 for
//! `k = 4`.
//!
//! Goodrich and Mitzenmacher, Allerton 2011; Eppstein, Goodrich, Uyeda, Varghese, SIGCOMM 2011, section 3.

use crate::cell::{CELL_BYTES_MIN, CELL_MEMORY, Cell, Difference, check_of, peel};
use crate::envelope::{DecodeError, Kind};
use crate::error::Error;
use crate::hash::{nth, reduce};
use crate::rateless::split;
use crate::sketch::{Parts, Sketch, Summary};

const PROBES_MAX: u64 = 8;

const CELLS_MAX: u64 = 1 << 31;

/// Cells of a set of 128-bit items that list its difference to another set.
///
/// # Guarantees
///
/// A list is complete and correct, except with probability `2^-64` per cell. `None` has a probability below 1 % up to the
/// [planned](Self::for_differences) size.
///
/// # Cost
///
/// An insertion writes four cells of 32 bytes (26 encoded). A table has 1.36 cells per item of the largest difference, plus 30.
///
/// # When not to use it
///
/// Where more messages can be sent: [`Rateless`](crate::Rateless) needs no bound.
///
/// ```
/// use sievedb_sketches::Iblt;
///
/// let (mut mine, mut theirs) = (Iblt::for_differences(10, 7)?, Iblt::for_differences(10, 7)?);
/// (0..1000).for_each(|item| mine.insert(item));
/// (1..1001).for_each(|item| theirs.insert(item));
/// let difference = mine.difference(&theirs)?.expect("not more than 10");
/// assert_eq!((difference.mine, difference.theirs), (vec![0], vec![1000]));
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iblt {
    seed: u64,
    probes: u64,
    cells: Vec<Cell>,
}

impl Iblt {
    /// Lists up to `differences` items, with at least 99 % probability.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub fn for_differences(differences: u64, seed: u64) -> Result<Self, Error> {
        let cells = (differences as f64 * 1.36) as u64;
        Self::with_shape(cells.saturating_add(30), 4, seed)
    }

    /// At least `cells` cells, `probes` (3 to 8) per item.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for other numbers of probes, [`Error::TooLarge`] beyond 2^31 cells or the memory.
    pub fn with_shape(cells: u64, probes: u64, seed: u64) -> Result<Self, Error> {
        if !(3..=PROBES_MAX).contains(&probes) {
            return Err(Error::invalid(format!("{probes} cells per item, expected 3 to {PROBES_MAX}")));
        }
        let count = cells.max(1).div_ceil(probes).saturating_mul(probes);
        let mut cells = Vec::new();
        if count > CELLS_MAX || cells.try_reserve_exact(count as usize).is_err() {
            return Err(Error::TooLarge(count.saturating_mul(CELL_MEMORY)));
        }
        cells.resize(count as usize, Cell::default());
        Ok(Self { seed, probes, cells })
    }

    /// Adds an absent item. `O(1)`.
    pub fn insert(&mut self, item: u128) {
        self.add(item, 1);
    }

    /// Removes an item; an absent one counts as a difference. `O(1)`.
    pub fn remove(&mut self, item: u128) {
        self.add(item, -1);
    }

    fn add(&mut self, item: u128, sign: i64) {
        let check = check_of(self.seed, item);
        for cell in cells_of(self.cells.len() as u64, self.probes, check) {
            self.cells[cell].add(item, check, sign);
        }
    }

    /// The difference; `None` if too large. Linear.
    ///
    /// # Errors
    ///
    /// [`Error::Differ`] in seed, cells or probes.
    pub fn difference(&self, other: &Self) -> Result<Option<Difference>, Error> {
        Error::unless_same(&[
            ("seed", self.seed == other.seed),
            ("cells", self.cells.len() == other.cells.len()),
            ("probes", self.probes == other.probes),
        ])?;
        let mut cells = self.cells.clone();
        cells.iter_mut().zip(&other.cells).for_each(|(cell, other)| cell.subtract(other));
        let pure = (0..cells.len()).filter(|&cell| cells[cell].pure(self.seed)).collect();
        let mut found = Vec::new();
        let count = cells.len() as u64;
        let sound =
            peel(&mut cells, self.seed, pure, |check| cells_of(count, self.probes, check), &mut found);
        Ok((sound && cells.iter().all(Cell::is_empty)).then(|| split(&found)))
    }

    /// Number of cells.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Cells per item.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.probes
    }
}

/// An item's cells, one per range.
fn cells_of(cells: u64, probes: u64, check: u64) -> impl Iterator<Item = usize> {
    let range = cells / probes;
    (0..probes).map(move |probe| (probe * range + reduce(nth(check, probe + 1), range)) as usize)
}

impl Sketch for Iblt {
    const KIND: Kind = Kind::Iblt;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.cells.len() as u64, self.probes]
    }

    fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.cells.iter().for_each(|cell| cell.put(&mut out, 0));
        out
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let count = parameters.number_in(3, CELLS_MAX, "IBLT cells")?;
        let probes = parameters.number_in(3, PROBES_MAX, "IBLT probes")?;
        parameters.finish()?;
        if count % probes != 0 {
            return Err(
                parts.corrupt("IBLT cells", format!("{count} cells cannot form {probes} equal ranges"))
            );
        }
        if count * CELL_BYTES_MIN > parts.body.len() as u64 {
            return Err(parts.corrupt("IBLT cells", "more cells than bytes allow"));
        }
        let mut body = parts.body_reader();
        let cells = (0..count).map(|_| Cell::get(&mut body, 0)).collect::<Result<Vec<_>, _>>()?;
        if !body.is_empty() {
            return Err(parts.corrupt("IBLT cells", "bytes follow the last one"));
        }
        Ok(Self { seed: parts.seed, probes, cells })
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![("cells", self.cells.len().to_string()), ("probes", self.probes.to_string())],
            predicted_rate: None,
            body_bytes: self.body().len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quickcheck::quickcheck;

    use super::*;
    use crate::testing::{check_codec, hash};

    fn item(number: u64) -> u128 {
        u128::from(hash(number)) << 64 | u128::from(hash(!number))
    }

    fn filled(mut table: Iblt, items: impl IntoIterator<Item = u64>) -> Iblt {
        items.into_iter().for_each(|number| table.insert(item(number)));
        table
    }

    quickcheck! {
        fn what_is_listed_is_the_difference(mine: BTreeSet<u8>, theirs: BTreeSet<u8>, cells: u8, probes: u8) -> bool {
            let make = |set: &BTreeSet<u8>| {
                let table = Iblt::with_shape(cells.into(), 3 + u64::from(probes) % 6, 1).unwrap();
                filled(table, set.iter().map(|&number| number.into()))
            };
            let only = |one: &BTreeSet<u8>, two: &BTreeSet<u8>| {
                one.difference(two).map(|&number| item(number.into())).collect::<BTreeSet<_>>().into_iter().collect()
            };
            match make(&mine).difference(&make(&theirs)).unwrap() {
                Some(found) => found == Difference { mine: only(&mine, &theirs), theirs: only(&theirs, &mine) },
                None => mine != theirs,
            }
        }
    }

    #[test]
    fn a_table_lists_the_differences_it_was_made_for() {
        for differences in [0, 1, 5, 20, 100, 300, 1000, 3000] {
            let trials = if differences > 500 { 100 } else { 300 };
            let mut listed = 0;
            for trial in 0..trials {
                let table = Iblt::for_differences(differences, trial).unwrap();
                assert!(differences < 1000 || table.cells() <= differences * 3 / 2, "1.5 cells an item");
                let mine = filled(table.clone(), (0..differences / 2).map(|n| trial << 32 | n));
                let theirs = filled(table, (differences / 2..differences).map(|n| trial << 32 | n));
                let found = mine.difference(&theirs).unwrap();
                listed += u64::from(found.is_some_and(|found| found.len() as u64 == differences));
            }
            assert!(100 * listed >= 99 * trials, "{differences}: {listed} of {trials}");
        }
    }

    #[test]
    fn a_difference_that_is_too_large_is_told_and_tables_that_differ_are_refused() {
        let table = Iblt::for_differences(10, 1).unwrap();
        let (mine, theirs) = (filled(table.clone(), 0..500), table.clone());
        assert_eq!(mine.difference(&theirs), Ok(None));
        let mut emptied = mine;
        (0..499).for_each(|number| emptied.remove(item(number)));
        assert_eq!(emptied.difference(&theirs).unwrap().unwrap().mine, [item(499)]);
        for (other, what) in [
            (Iblt::with_shape(40, 4, 2), "seed"),
            (Iblt::with_shape(44, 4, 1), "cells"),
            (Iblt::with_shape(40, 5, 1), "probes"),
        ] {
            let table = Iblt::with_shape(40, 4, 1).unwrap();
            assert_eq!(table.difference(&other.unwrap()), Err(Error::Differ(what)));
        }
        assert!(Iblt::with_shape(9, 2, 1).is_err() && Iblt::with_shape(9, 9, 1).is_err());
        assert!(matches!(Iblt::with_shape(u64::MAX, 3, 1), Err(Error::TooLarge(_))));
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        check_codec(&filled(Iblt::with_shape(6, 3, 9).unwrap(), 0..4));
    }
}
