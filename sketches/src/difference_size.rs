//! Estimates the size of the difference of two sets from a few counters.
//!
//! Every item increments one of `m` counters. Subtracting two arrays cancels common items. For `a` items on one side and `b` on
//! the other, the totals give `a - b`, and two formulas estimate `d = a + b`:
//!
//! ```text
//! zeros      a cell is 0 with probability e^-(a+b)/m · I0(2 sqrt(ab) / m)   items of both sides can cancel
//! squares    the sum of (cell - (a-b)/m)^2 is (a+b) (1 - 1/m) on average    holds for any d
//! ```
//!
//! The second has the deviation `d sqrt(2/m)`: 2.2 % for 4,096 cells. The first has half of that while at least 30 % of the
//! cells are empty.
//!
//! Agarwal and Trachtenberg, ITW 2006 (zeros; their `-m ln(zeros)` ignores cancellation). Alon, Matias, Szegedy, STOC 1996
//! (squares).

use crate::envelope::{DecodeError, Kind, put_varint};
use crate::error::Error;
use crate::hash::{key_hash, reduce, spread};
use crate::sketch::{Parts, Sketch, Summary};

const CELLS_MAX: u64 = 1 << 28;

/// Least share of empty cells for the first estimate.
const ZEROS_MIN: f64 = 0.3;

/// Counters to estimate the size of the difference of two sets.
///
/// # Guarantees
///
/// - The estimate is 0 for equal sets, and if all differences cancel: for two keys, with probability `1/2m`.
/// - Otherwise its relative standard deviation is at most [`deviation`](Self::deviation).
/// - It is at least the difference of the totals.
///
/// # Cost
///
/// One counter per insertion. 8 bytes per cell in memory, one or two encoded.
///
/// # When not to use it
///
/// Where messages are cheap: a [`Rateless`](crate::Rateless) table needs no estimate.
///
/// ```
/// use sievedb_sketches::DifferenceSize;
///
/// let (mut mine, mut theirs) = (DifferenceSize::new(7)?, DifferenceSize::new(7)?);
/// (0..10_000u32).for_each(|key| mine.insert(&key.to_le_bytes()));
/// (100..10_100u32).for_each(|key| theirs.insert(&key.to_le_bytes()));
/// assert!((190.0..210.0).contains(&mine.estimate(&theirs)?));
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DifferenceSize {
    seed: u64,
    keys: i64,
    cells: Vec<i64>,
}

impl DifferenceSize {
    /// 4,096 cells: a deviation of 2.2 %, up to 8 KiB.
    ///
    /// # Errors
    ///
    /// As [`with_shape`](Self::with_shape).
    pub fn new(seed: u64) -> Result<Self, Error> {
        Self::with_shape(4096, seed)
    }

    /// The number of cells needed for this deviation.
    ///
    /// # Errors
    ///
    /// As [`with_shape`](Self::with_shape).
    pub fn with_deviation(deviation: f64, seed: u64) -> Result<Self, Error> {
        Self::with_shape((2.0 / (deviation * deviation)).ceil() as u64, seed)
    }

    /// `cells` cells.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for less than 2, [`Error::TooLarge`] for more than 2^28.
    pub fn with_shape(cells: u64, seed: u64) -> Result<Self, Error> {
        match cells {
            0..2 => Err(Error::invalid(format!("{cells} cells, expected at least 2"))),
            2..=CELLS_MAX => Ok(Self { seed, keys: 0, cells: vec![0; cells as usize] }),
            _ => Err(Error::TooLarge(cells.saturating_mul(8))),
        }
    }

    /// Adds an absent key. `O(1)`.
    pub fn insert(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) {
        self.insert_hash(key_hash(self.seed, key.as_ref()));
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    pub fn insert_hash(&mut self, hash: u64) {
        self.add(hash, 1);
    }

    /// Removes a present key. `O(1)`.
    pub fn remove(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) {
        self.remove_hash(key_hash(self.seed, key.as_ref()));
    }

    /// [`remove`](Self::remove) by [hash](crate::hash).
    pub fn remove_hash(&mut self, hash: u64) {
        self.add(hash, -1);
    }

    #[inline]
    fn add(&mut self, hash: u64, sign: i64) {
        let cell = reduce(spread(hash), self.cells.len() as u64) as usize;
        self.cells[cell] = self.cells[cell].wrapping_add(sign);
        self.keys = self.keys.wrapping_add(sign);
    }

    /// Estimates the number of keys in only one set. Linear.
    ///
    /// # Errors
    ///
    /// [`Error::Differ`] in seed or number of cells.
    pub fn estimate(&self, other: &Self) -> Result<f64, Error> {
        Error::unless_same(&[
            ("seed", self.seed == other.seed),
            ("cells", self.cells.len() == other.cells.len()),
        ])?;
        let cells = self.cells.len() as f64;
        let differences =
            || self.cells.iter().zip(&other.cells).map(|(mine, theirs)| mine.wrapping_sub(*theirs));
        let surplus = self.keys.wrapping_sub(other.keys) as f64;
        let zeros = differences().filter(|&cell| cell == 0).count() as f64 / cells;
        let estimate = if zeros >= ZEROS_MIN {
            cells * load_of_zeros(zeros, surplus / cells)
        } else {
            let mean = surplus / cells;
            differences().map(|cell| (cell as f64 - mean).powi(2)).sum::<f64>() / (1.0 - 1.0 / cells)
        };
        Ok(estimate.max(surplus.abs()))
    }

    /// The relative standard deviation: `sqrt(2/m)`.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        (2.0 / self.cells.len() as f64).sqrt()
    }

    /// Inserted minus removed keys.
    #[must_use]
    pub fn keys(&self) -> i64 {
        self.keys
    }

    /// Number of cells.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.cells.len() as u64
    }

    /// The mean, relative to which cells are encoded.
    fn expected(keys: i64, cells: u64) -> i64 {
        (i128::from(keys) / i128::from(cells.max(1))) as i64
    }
}

/// The differing items per cell that leave these `zeros`, with a `surplus` on one side.
fn load_of_zeros(zeros: f64, surplus: f64) -> f64 {
    let least = surplus.abs();
    let empty = |load: f64| (-load).exp() * bessel_i0((load * load - least * least).max(0.0).sqrt());
    let (mut low, mut high) = (least, least + 20.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if empty(middle) > zeros { low = middle } else { high = middle }
    }
    low
}

/// The modified Bessel function of order 0, for arguments up to ten.
fn bessel_i0(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut sum, mut term) = (1.0, 1.0);
    for index in 1..200 {
        term *= quarter / f64::from(index * index);
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    sum
}

impl Sketch for DifferenceSize {
    const KIND: Kind = Kind::DifferenceSize;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.cells(), self.keys as u64]
    }

    fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let expected = Self::expected(self.keys, self.cells());
        for &cell in &self.cells {
            let distance = cell.wrapping_sub(expected);
            put_varint(&mut out, (distance << 1 ^ distance >> 63) as u64);
        }
        out
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let count = parameters.number_in(2, CELLS_MAX, "difference size cells")?;
        let keys = parameters.number("difference size keys")? as i64;
        parameters.finish()?;
        if count > parts.body.len() as u64 {
            return Err(parts.corrupt("difference size cells", "more cells than bytes"));
        }
        let mut body = parts.body_reader();
        let mut cells = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let zigzag = body.varint("difference size cell")?;
            let distance = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            cells.push(Self::expected(keys, count).wrapping_add(distance));
        }
        if !body.is_empty() {
            return Err(parts.corrupt("difference size cells", "bytes follow the last one"));
        }
        if cells.iter().fold(0i64, |sum, &cell| sum.wrapping_add(cell)) != keys {
            return Err(parts.corrupt("difference size keys", "differ from the sum of the cells"));
        }
        Ok(Self { seed: parts.seed, keys, cells })
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("keys", self.keys.to_string()),
                ("cells", self.cells.len().to_string()),
                ("deviation", format!("{:.1} %", 100.0 * self.deviation())),
            ],
            predicted_rate: None,
            body_bytes: self.body().len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;
    use crate::testing::{check_codec, hash};

    quickcheck! {
        fn an_estimate_is_the_same_from_both_sides_and_never_below_what_the_totals_differ_in(
            mine: Vec<u8>, theirs: Vec<u8>, cells: u8
        ) -> bool {
            let make = |keys: &[u8]| sketch(2 + u64::from(cells), keys.iter().map(|&key| key.into()));
            let (one, two) = (make(&mine), make(&theirs));
            let estimate = one.estimate(&two).unwrap();
            estimate == two.estimate(&one).unwrap()
                && estimate >= mine.len().abs_diff(theirs.len()) as f64
                && one.estimate(&one) == Ok(0.0)
        }

        fn what_is_inserted_and_removed_leaves_nothing(keys: Vec<u8>, others: Vec<u8>) -> bool {
            let kept = sketch(7, others.iter().map(|&key| key.into()));
            let mut changed = kept.clone();
            keys.iter().for_each(|&key| changed.insert_hash(hash(key.into())));
            keys.iter().for_each(|&key| changed.remove_hash(hash(key.into())));
            changed == kept && changed.estimate(&kept) == Ok(0.0)
        }
    }

    fn sketch(cells: u64, keys: impl Iterator<Item = u64>) -> DifferenceSize {
        let mut sketch = DifferenceSize::with_shape(cells, 1).unwrap();
        keys.for_each(|key| sketch.insert_hash(hash(key)));
        sketch
    }

    #[test]
    fn estimates_are_within_the_deviation_for_all_shares_of_both_sides() {
        for (mine, theirs) in
            [(1, 0), (10, 10), (300, 0), (150, 150), (2000, 100), (3000, 3000), (30_000, 0), (10_000, 20_000)]
        {
            let (mut sum, mut squares) = (0.0, 0.0);
            let (truth, trials) = (f64::from(mine + theirs), 60);
            for trial in 0..trials {
                let first = trial << 32;
                let common = || first..first + 5000;
                let one = sketch(1024, common().chain(first + (1 << 20)..).take(5000 + mine as usize));
                let two = sketch(1024, common().chain(first + (1 << 21)..).take(5000 + theirs as usize));
                let estimate = one.estimate(&two).unwrap();
                assert_eq!(estimate, two.estimate(&one).unwrap());
                sum += estimate;
                squares += (estimate - truth).powi(2);
            }
            let (mean, deviation) = (sum / trials as f64, (squares / trials as f64).sqrt());
            let allowed = truth * (2.0f64 / 1024.0).sqrt() * 1.35 + 0.2;
            assert!((mean - truth).abs() < allowed / 2.0, "{mine} and {theirs}: {mean} on average");
            assert!(deviation < allowed, "{mine} and {theirs}: off by {deviation}, allowed {allowed}");
        }
    }

    #[test]
    fn the_first_order_estimate_is_too_low_where_differences_cancel_and_right_where_none_do() {
        let cells = 4096u64;
        for (mine, theirs, bias) in [(205, 205, -0.025), (2048, 2048, -0.236), (410, 0, 0.0), (4096, 0, 0.0)]
        {
            let trials = 40;
            let estimate = |trial: u64| {
                let first = trial << 32;
                let one = sketch(cells, first..first + mine);
                let two = sketch(cells, first + (1 << 20)..first + (1 << 20) + theirs);
                let empty = one.cells.iter().zip(&two.cells).filter(|(one, two)| one == two).count();
                -(cells as f64) * (empty as f64 / cells as f64).ln()
            };
            let mean = (0..trials).map(estimate).sum::<f64>() / trials as f64;
            let found = mean / (mine + theirs) as f64 - 1.0;
            assert!((found - bias).abs() < 0.012, "{mine} and {theirs}: {found}");
        }
    }

    #[test]
    fn equal_sets_differ_by_nothing_and_removal_undoes_insertion() {
        let mut one = sketch(4096, 0..100_000);
        assert_eq!(one.estimate(&sketch(4096, 0..100_000)), Ok(0.0));
        (50_000..100_000).for_each(|key| one.remove_hash(hash(key)));
        assert_eq!(one, sketch(4096, 0..50_000));
        assert!((one.deviation() - 0.022_097).abs() < 1e-6);
        assert_eq!(DifferenceSize::with_deviation(0.05, 1).unwrap().cells(), 800);
    }

    #[test]
    fn sketches_that_are_not_alike_are_not_compared() {
        let one = sketch(64, 0..1);
        assert_eq!(one.estimate(&sketch(65, 0..1)), Err(Error::Differ("cells")));
        assert_eq!(one.estimate(&DifferenceSize::with_shape(64, 2).unwrap()), Err(Error::Differ("seed")));
        assert!(DifferenceSize::with_shape(1, 1).is_err());
        assert!(matches!(DifferenceSize::with_shape(u64::MAX, 1), Err(Error::TooLarge(_))));
    }

    #[test]
    fn the_bessel_function_has_its_published_values() {
        // Abramowitz and Stegun, table 9.8: e^-x I0(x).
        for (x, scaled) in [
            (0.0f64, 1.0),
            (1.0, 0.465_759_61),
            (2.0, 0.308_508_32),
            (5.0, 0.183_540_81),
            (10.0, 0.127_833_34),
        ] {
            assert!(((-x).exp() * bessel_i0(x) - scaled).abs() < 1e-8, "{x}");
        }
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        check_codec(&sketch(5, 0..20));
        let mut negative = sketch(3, 0..0);
        (0..9).for_each(|key| negative.remove_hash(hash(key)));
        check_codec(&negative);
    }
}
