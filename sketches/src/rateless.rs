//! The rateless invertible table: as many cells of an endless sequence as the difference requires.
//!
//! Every item is in cell 0, and in cell `i` with probability `1 / (1 + i/2)`. A difference takes 1.35 cells per item in the
//! limit, and up to 1.7 on average for few items. A receiver requests cells until it has enough.
//!
//! 1. An item's check starts a sequence of random numbers `z` (SplitMix64).
//! 2. From cell `i` an item goes to `i + ceil((2i + 3) (2^32 - s) / 2s)`, at least one further, where `s` is the integer square
//!    root of `z`, plus one. A step exceeds `g` cells with probability `((i + 1.5) / (i + 1.5 + g))^2`, the product of `(1 -
//!    1/(1+j/2))` over them.
//! 3. In the difference of two sets' cells, the item of a pure cell is listed and removed from all of its cells, which can make
//!    others pure. The list is complete when cell 0 is empty.
//!
//! Yang, Gilad, Alizadeh, SIGCOMM 2024, sections 4.1 and 4.2 (with a floating-point square root); Eppstein, Goodrich, Uyeda,
//! Varghese, SIGCOMM 2011 (the cells).

use std::ops::Range;

use crate::cell::{CELL_BYTES_MIN, CELL_MEMORY, Cell, Difference, check_of, peel};
use crate::envelope::{DecodeError, Kind};
use crate::error::Error;
use crate::hash::STEP;
use crate::sketch::{Parts, Sketch, Summary};

/// An item's steps then fit into 64 bits.
const END_MAX: u64 = 1 << 30;

/// For a large difference.
const CELLS_PER_ITEM: f64 = 1.37;

/// A range of cells of a set of 128-bit items.
///
/// # Guarantees
///
/// - The list is the difference, unless fingerprints collide: with 128 bits, a probability of `n^2 / 2^129`.
/// - Too few cells are detected ([`Decoder::is_complete`]), except with probability `2^-64` per cell. The seed reveals colliding
///   items: keep it secret from untrusted sources of items.
///
/// # Cost
///
/// An item is in `2 ln(m / 2)` of `m` cells: 14 of 1,400. Cells take 32 bytes, about 26 encoded.
///
/// # When not to use it
///
/// Sets that differ in most items: send the set. A known bound and no second round: [`Iblt`](crate::Iblt).
///
/// ```
/// use sievedb_sketches::{Decoder, Rateless};
///
/// let (mut mine, mut theirs) = (Rateless::new(0..8, 7)?, Rateless::new(0..8, 7)?);
/// (0..1000).for_each(|item| mine.insert(item));
/// (1..1001).for_each(|item| theirs.insert(item));
/// let mut decoder = Decoder::new(7);
/// decoder.extend(&mine, &theirs)?;
/// let difference = decoder.finish().expect("enough cells");
/// assert_eq!((difference.mine, difference.theirs), (vec![0], vec![1000]));
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rateless {
    seed: u64,
    first: u64,
    items: i64,
    cells: Vec<Cell>,
}

#[derive(Debug, Clone)]
struct Walk {
    cell: u64,
    state: u64,
}

impl Walk {
    fn new(check: u64) -> Self {
        Self { cell: 0, state: check }
    }

    #[inline]
    fn step(&mut self) {
        self.state = self.state.wrapping_add(STEP);
        let root = u64::from(split_mix(self.state).isqrt() as u32) + 1;
        let further = ((2 * self.cell + 3) * ((1 << 32) - root)).div_ceil(2 * root);
        self.cell = (self.cell + further.max(1)).min(END_MAX);
    }
}

/// Steele, Lea, Flood 2014.
#[inline]
fn split_mix(state: u64) -> u64 {
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[inline]
fn cells_in(range: Range<u64>, check: u64) -> impl Iterator<Item = usize> {
    let mut walk = Walk::new(check);
    while walk.cell < range.start {
        walk.step();
    }
    core::iter::from_fn(move || {
        let cell = walk.cell;
        walk.step();
        (cell < range.end).then(|| (cell - range.start) as usize)
    })
}

impl Rateless {
    /// The cells of an empty set in this range.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a range that ends before it starts or beyond 2^30; [`Error::TooLarge`].
    pub fn new(range: Range<u64>, seed: u64) -> Result<Self, Error> {
        if range.start > range.end || range.end > END_MAX {
            return Err(Error::invalid(format!(
                "cells {} to {}, expected a range within 0 to 2^30",
                range.start, range.end
            )));
        }
        let count = range.end - range.start;
        let mut cells = Vec::new();
        cells.try_reserve_exact(count as usize).map_err(|_| Error::TooLarge(count * CELL_MEMORY))?;
        cells.resize(count as usize, Cell::default());
        Ok(Self { seed, first: range.start, items: 0, cells })
    }

    /// The number of cells that suffice for 80 % of such differences: `1.37 d + 3 sqrt(d) + 5`.
    #[must_use]
    pub fn cells_for(differences: u64) -> u64 {
        let items = differences as f64;
        ((items * CELLS_PER_ITEM + 3.0 * items.sqrt()) as u64).saturating_add(5).min(END_MAX)
    }

    /// Adds an absent item. `O(log(cells))`.
    #[inline]
    pub fn insert(&mut self, item: u128) {
        self.add(item, 1);
    }

    /// Removes a present item. `O(log(cells))`.
    #[inline]
    pub fn remove(&mut self, item: u128) {
        self.add(item, -1);
    }

    #[inline]
    fn add(&mut self, item: u128, sign: i64) {
        let check = check_of(self.seed, item);
        self.items = self.items.wrapping_add(sign);
        for cell in cells_in(self.range(), check) {
            self.cells[cell].add(item, check, sign);
        }
    }

    /// The range of cells.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.first..self.first + self.cells.len() as u64
    }

    /// Number of items.
    #[must_use]
    pub fn items(&self) -> i64 {
        self.items
    }

    /// The mean, relative to which cells are encoded.
    fn expected(items: i64, cell: u64) -> i64 {
        (i128::from(items) * 2 / i128::from(cell + 2)) as i64
    }
}

/// Lists a difference from cells as they arrive.
#[derive(Debug, Clone)]
pub struct Decoder {
    seed: u64,
    cells: Vec<Cell>,
    found: Vec<(u128, i64)>,
    sound: bool,
}

impl Decoder {
    /// A decoder without cells.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, cells: Vec::new(), found: Vec::new(), sound: true }
    }

    /// Adds the next cells of both sets and lists their items. `O(new cells + items * log(cells))`.
    ///
    /// # Errors
    ///
    /// [`Error::Differ`] if seeds or ranges differ, or the cells do not follow the earlier ones; [`Error::InvalidArgument`] if
    /// the cells are not of two sets.
    pub fn extend(&mut self, mine: &Rateless, theirs: &Rateless) -> Result<(), Error> {
        if mine.seed != self.seed || theirs.seed != self.seed {
            return Err(Error::Differ("seed"));
        }
        let first = self.cells.len();
        if mine.range() != theirs.range() || mine.first != first as u64 {
            return Err(Error::Differ("cells"));
        }
        self.cells.extend(&mine.cells);
        self.cells[first..].iter_mut().zip(&theirs.cells).for_each(|(cell, other)| cell.subtract(other));
        let range = first as u64..self.cells.len() as u64;
        for &(item, sign) in &self.found {
            let check = check_of(self.seed, item);
            for cell in cells_in(range.clone(), check) {
                self.cells[first + cell].add(item, check, sign.wrapping_neg());
            }
        }
        let pure = (first..self.cells.len()).filter(|&cell| self.cells[cell].pure(self.seed)).collect();
        let end = self.cells.len() as u64;
        self.sound &=
            peel(&mut self.cells, self.seed, pure, |check| cells_in(0..end, check), &mut self.found);
        if self.sound { Ok(()) } else { Err(Error::invalid("the cells do not belong to two sets")) }
    }

    /// Cells of each set.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Items listed so far.
    #[must_use]
    pub fn listed(&self) -> u64 {
        self.found.len() as u64
    }

    /// Whether the difference is complete. Linear.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.sound && !self.cells.is_empty() && self.cells.iter().all(Cell::is_empty)
    }

    /// The difference, if it is [complete](Self::is_complete). Linear.
    #[must_use]
    pub fn finish(&self) -> Option<Difference> {
        self.is_complete().then(|| split(&self.found))
    }
}

pub(crate) fn split(found: &[(u128, i64)]) -> Difference {
    let of = |sign| {
        let mut items: Vec<_> = found.iter().filter(|found| found.1 == sign).map(|found| found.0).collect();
        items.sort_unstable();
        items
    };
    Difference { mine: of(1), theirs: of(-1) }
}

impl Sketch for Rateless {
    const KIND: Kind = Kind::Rateless;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.first, self.cells.len() as u64, self.items as u64]
    }

    fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (cell, index) in self.cells.iter().zip(self.first..) {
            cell.put(&mut out, Self::expected(self.items, index));
        }
        out
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let first = parameters.number_in(0, END_MAX, "rateless first cell")?;
        let count = parameters.number_in(0, END_MAX - first, "rateless cells")?;
        let items = parameters.number("rateless items")? as i64;
        parameters.finish()?;
        if count * CELL_BYTES_MIN > parts.body.len() as u64 {
            return Err(parts.corrupt("rateless cells", "more cells than bytes allow"));
        }
        let mut body = parts.body_reader();
        let cells = (first..first + count).map(|index| Cell::get(&mut body, Self::expected(items, index)));
        let cells = cells.collect::<Result<Vec<_>, _>>()?;
        if !body.is_empty() {
            return Err(parts.corrupt("rateless cells", "bytes follow the last one"));
        }
        Ok(Self { seed: parts.seed, first, items, cells })
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("items", self.items.to_string()),
                ("first cell", self.first.to_string()),
                ("cells", self.cells.len().to_string()),
                ("lists up to", format!("about {:.0} differences", self.cells.len() as f64 / CELLS_PER_ITEM)),
            ],
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

    fn table(range: Range<u64>, items: impl IntoIterator<Item = u128>) -> Rateless {
        let mut table = Rateless::new(range, 1).unwrap();
        items.into_iter().for_each(|item| table.insert(item));
        table
    }

    fn cells_needed(differences: u64, trial: u64) -> u64 {
        let mut decoder = Decoder::new(1);
        let items =
            |side| (0..differences).filter(move |n| n % 2 == side).map(move |n| item(trial << 32 | n));
        let step = (differences / 100).max(1);
        while !decoder.is_complete() {
            let range = decoder.cells()..decoder.cells() + step;
            decoder.extend(&table(range.clone(), items(0)), &table(range, items(1))).unwrap();
        }
        let found = decoder.finish().unwrap();
        assert_eq!(found.len() as u64, differences);
        decoder.cells()
    }

    quickcheck! {
        fn what_is_listed_is_the_difference(mine: BTreeSet<u16>, theirs: BTreeSet<u16>, step: u8) -> bool {
            let step = 1 + u64::from(step);
            let items = |set: &BTreeSet<u16>| set.iter().map(|&n| item(n.into())).collect::<Vec<_>>();
            let mut decoder = Decoder::new(1);
            while !decoder.is_complete() {
                let range = decoder.cells()..decoder.cells() + step;
                decoder.extend(&table(range.clone(), items(&mine)), &table(range, items(&theirs))).unwrap();
            }
            let expected = |set: BTreeSet<u16>| {
                let mut items = items(&set);
                items.sort_unstable();
                items
            };
            let only_mine: BTreeSet<u16> = mine.difference(&theirs).copied().collect();
            let only_theirs: BTreeSet<u16> = theirs.difference(&mine).copied().collect();
            decoder.finish() == Some(Difference { mine: expected(only_mine), theirs: expected(only_theirs) })
        }

        fn cells_in_pieces_are_the_cells_in_one(items: Vec<u64>, cut: u8) -> bool {
            let cut = u64::from(cut);
            let all = table(0..300, items.iter().map(|&n| item(n)));
            let first = table(0..cut, items.iter().map(|&n| item(n)));
            let rest = table(cut..300, items.iter().map(|&n| item(n)));
            [first.cells, rest.cells].concat() == all.cells
        }
    }

    #[test]
    fn an_item_is_in_a_cell_as_often_as_the_formula_says() {
        let mut counts = [0u64; 400];
        let items = 200_000;
        for n in 0..items {
            cells_in(0..400, check_of(1, item(n))).for_each(|cell| counts[cell] += 1);
        }
        for cell in [0, 1, 2, 3, 5, 10, 30, 100, 399] {
            let rate = 1.0 / (1.0 + cell as f64 / 2.0);
            let room = if cell < 10 { 0.05 } else { 0.02 };
            crate::testing::assert_rate(&format!("cell {cell}"), counts[cell], items, rate, room);
        }
    }

    #[test]
    fn a_thousand_differences_take_less_than_one_and_a_half_cells_each() {
        let needed: Vec<u64> = (0..20).map(|trial| cells_needed(1000, trial)).collect();
        let mean = needed.iter().sum::<u64>() as f64 / 20_000.0;
        assert!(
            (1.30..1.45).contains(&mean) && needed.iter().all(|&cells| cells <= 1500),
            "{mean}: {needed:?}"
        );
        for differences in [1, 2, 5, 20, 100] {
            let mean = (0..100).map(|trial| cells_needed(differences, trial)).sum::<u64>() as f64
                / (100 * differences) as f64;
            assert!(mean < 2.0, "{differences}: {mean}");
        }
    }

    #[test]
    fn the_first_guess_is_enough_in_four_of_five_cases() {
        for differences in [1, 10, 100, 1000] {
            let guess = Rateless::cells_for(differences);
            let enough = (0..50).filter(|&trial| cells_needed(differences, trial) <= guess).count();
            assert!(enough >= 40, "{differences}: {enough} of 50");
        }
    }

    #[test]
    fn too_few_cells_are_no_list_and_more_cells_go_on_from_there() {
        let (mine, theirs) =
            (|range| table(range, (0..900).map(item)), |range| table(range, (100..1000).map(item)));
        let mut decoder = Decoder::new(1);
        decoder.extend(&mine(0..100), &theirs(0..100)).unwrap();
        assert_eq!(decoder.finish(), None);
        decoder.extend(&mine(100..400), &theirs(100..400)).unwrap();
        let found = decoder.finish().unwrap();
        assert_eq!((found.mine.len(), found.theirs.len()), (100, 100));
        assert_eq!(decoder.extend(&mine(100..400), &theirs(100..400)), Err(Error::Differ("cells")));
        assert_eq!(decoder.extend(&mine(400..401), &theirs(400..402)), Err(Error::Differ("cells")));
        let other = Rateless::new(400..401, 2).unwrap();
        assert_eq!(decoder.extend(&other, &other), Err(Error::Differ("seed")));
    }

    #[test]
    fn cells_of_no_set_end_the_listing() {
        let mut forged = table(0..50, []);
        let check = check_of(1, 7);
        let cells: Vec<usize> = cells_in(0..50, check).collect();
        let elsewhere = (0..50).find(|cell| !cells.contains(cell)).unwrap();
        forged.cells[elsewhere] = Cell { count: 1, items: 7, checks: check };
        let mut decoder = Decoder::new(1);
        assert!(decoder.extend(&forged, &table(0..50, [])).is_err());
        assert_eq!(decoder.finish(), None);
    }

    #[test]
    fn removal_undoes_insertion() {
        let mut one = table(0..50, (0..10).map(item));
        one.remove(item(3));
        assert_eq!(one, table(0..50, (0..10).filter(|&n| n != 3).map(item)));
    }

    #[test]
    fn steps_are_pinned_and_do_not_overflow() {
        let mut walk = Walk::new(0);
        let cells: Vec<u64> = (0..6)
            .map(|_| {
                walk.step();
                walk.cell
            })
            .collect();
        assert_eq!(cells, cells_in(1..1 << 20, 0).take(6).map(|cell| cell as u64 + 1).collect::<Vec<_>>());
        walk.cell = END_MAX;
        (0..1000).for_each(|_| walk.step());
        assert_eq!(walk.cell, END_MAX);
        assert!(Rateless::new(0..END_MAX + 1, 1).is_err());
        #[expect(clippy::reversed_empty_ranges, reason = "what is refused")]
        let reversed = Rateless::new(5..4, 1);
        assert!(reversed.is_err());
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        check_codec(&table(0..5, (0..9).map(item)));
        check_codec(&table(7..9, (0..9).map(item)));
        let mut negative = table(0..2, []);
        negative.remove(5);
        check_codec(&negative);
    }
}
