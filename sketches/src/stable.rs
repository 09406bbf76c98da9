//! The stable Bloom filter: detects recent duplicates in an endless stream.
//!
//! There are `m` cells of a few bits. An element is possibly known if none of its `K` cells is 0. Its insertion subtracts one
//! from `P` random cells, then sets its `K` cells to `Max`.
//!
//! For a stream of distinct elements, the share of zero cells converges to
//!
//! ```text
//! zeros = (1 / (1 + 1 / (P (1/K - 1/m))))^Max        and the false-positive rate to (1 - zeros)^K
//! ```
//!
//! Repeated elements lower the rate.
//!
//! Deng and Rafiei (2006), theorem 2 and sections 3.2 to 3.4. The `P` cells are adjacent (section 3.1).

use crate::arithmetic::checked_rate;
use crate::cells::Cells;
use crate::envelope::{DecodeError, Kind};
use crate::error::Error;
use crate::hash::{STEP, key_hash, reduce, spread};
use crate::probes::{PROBES_MAX, positions};
use crate::sketch::{Parts, Sketch, Summary};

/// Steps of the simulation of a cell, for three significant digits.
const STEPS: f64 = 4000.0;

/// A filter for streams, in which old elements expire.
///
/// ```
/// use sievedb_sketches::Stable;
///
/// let mut seen = Stable::with_memory(1 << 16, 0.01, 42)?;
/// assert!(!seen.insert(b"GET /index.html"));
/// assert!(seen.insert(b"GET /index.html")); // a duplicate
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
///
/// # Guarantees
///
/// A new element is reported as known with probability at most [`Stable::stable_rate`]. A known element may be lost as others
/// follow ([`Stable::expected_forgotten`]). The last is always known.
///
/// # Cost
///
/// `K + P` cells per element, in constant memory.
///
/// # When not to use it
///
/// Where lost elements do harm: [`Ring`](crate::Ring) and [`Expiring`](crate::Expiring).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stable {
    cells: Cells,
    shape: Shape,
    state: u64,
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    cells: u64,
    width: u64,
    probes: u64,
    decrements: u64,
}

impl Shape {
    fn max(self) -> u64 {
        (1 << self.width) - 1
    }

    fn stable_zeros(self) -> f64 {
        let per_cell = 1.0 / self.probes as f64 - 1.0 / self.cells as f64;
        (1.0 / (1.0 + 1.0 / (self.decrements as f64 * per_cell))).powf(self.max() as f64)
    }

    fn stable_rate(self) -> f64 {
        (1.0 - self.stable_zeros()).powf(self.probes as f64)
    }

    fn decrements_for(self, rate: f64) -> f64 {
        let zeros = 1.0 - rate.powf(1.0 / self.probes as f64);
        let per_cell = 1.0 / self.probes as f64 - 1.0 / self.cells as f64;
        (1.0 / ((1.0 / zeros.powf(1.0 / self.max() as f64) - 1.0) * per_cell)).ceil()
    }

    /// The probability that one of an element's cells is 0 after `gap` others, for independent cells.
    fn forgotten(self, gap: f64) -> f64 {
        let (top, m) = (self.max() as usize, self.cells as f64);
        let steps = (gap.min(STEPS)).ceil().max(1.0);
        let (down, up) = (
            -(-(self.decrements as f64) * gap / m / steps).exp_m1(),
            -(-(self.probes as f64) * gap / m / steps).exp_m1(),
        );
        let mut shares = vec![0.0; top + 1];
        shares[top] = 1.0;
        for _ in 0..steps as u64 {
            for value in 0..top {
                shares[value] = (shares[value] * if value == 0 { 1.0 } else { 1.0 - down }
                    + shares[value + 1] * down)
                    * (1.0 - up);
            }
            shares[top] = 1.0 - shares[..top].iter().sum::<f64>();
        }
        1.0 - (1.0 - shares[0]).powf(self.probes as f64)
    }

    fn half_life(self) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        while self.forgotten(high) < 0.5 && high < self.cells as f64 * 1e3 {
            high *= 2.0;
        }
        for _ in 0..20 {
            let middle = f64::midpoint(low, high);
            if self.forgotten(middle) < 0.5 { low = middle } else { high = middle }
        }
        high
    }
}

impl Stable {
    /// At most `bytes` bytes and `rate`. Remembers elements as long as possible.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless `0 < rate < 1`, or if the bytes are too few for it; [`Error::TooLarge`].
    pub fn with_memory(bytes: u64, rate: f64, seed: u64) -> Result<Self, Error> {
        let rate = checked_rate(rate)?;
        let mut best: Option<(f64, Shape)> = None;
        for width in 1..=3 {
            for probes in 1..=12 {
                let mut shape =
                    Shape { cells: bytes.saturating_mul(8) / width, width, probes, decrements: 0 };
                let decrements = shape.decrements_for(rate);
                if !(decrements >= 1.0 && decrements < shape.cells as f64) {
                    continue;
                }
                shape.decrements = decrements as u64;
                let half_life = shape.half_life();
                if best.is_none_or(|best| half_life > best.0) {
                    best = Some((half_life, shape));
                }
            }
        }
        let (_, shape) =
            best.ok_or_else(|| Error::invalid(format!("{bytes} bytes are too few for a rate of {rate}")))?;
        Self::of_shape(shape, seed)
    }

    /// `cells` cells of `width` bits. An element sets `probes` and decrements `decrements` cells.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless there are a width of 1 to 8, 1 to 64 probes, decrements, and more cells than probes
    /// or decrements; [`Error::TooLarge`].
    pub fn with_shape(
        cells: u64,
        width: u64,
        probes: u64,
        decrements: u64,
        seed: u64,
    ) -> Result<Self, Error> {
        Self::of_shape(Shape { cells, width, probes, decrements }, seed)
    }

    fn of_shape(shape: Shape, seed: u64) -> Result<Self, Error> {
        let Shape { cells, width, probes, decrements } = shape;
        let usable = (1..=8).contains(&width)
            && (1..=PROBES_MAX).contains(&probes)
            && decrements > 0
            && cells > probes.max(decrements);
        if !usable {
            return Err(Error::invalid(format!(
                "{cells} cells of {width} bits, {probes} probes and {decrements} decrements"
            )));
        }
        Ok(Self { cells: Cells::new(cells, width)?, shape, state: seed, seed })
    }

    /// Adds an element. Returns whether it was known.
    pub fn insert(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.insert_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    pub fn insert_hash(&mut self, hash: u64) -> bool {
        let known = self.contains_hash(hash);
        self.state = self.state.wrapping_add(STEP);
        let mut cell = reduce(spread(spread(self.state)), self.shape.cells);
        for _ in 0..self.shape.decrements {
            self.cells.set(cell, self.cells.get(cell).saturating_sub(1));
            cell = if cell + 1 == self.shape.cells { 0 } else { cell + 1 };
        }
        for cell in positions(hash, self.shape.probes, self.shape.cells) {
            self.cells.set(cell, self.shape.max());
        }
        known
    }

    /// Whether an element is known.
    #[must_use]
    pub fn contains(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.contains_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`contains`](Self::contains) by [hash](crate::hash).
    #[must_use]
    #[inline]
    pub fn contains_hash(&self, hash: u64) -> bool {
        positions(hash, self.shape.probes, self.shape.cells).all(|cell| self.cells.get(cell) > 0)
    }

    /// The present share of new elements reported as known. Linear.
    #[must_use]
    pub fn predicted_rate(&self) -> f64 {
        (1.0 - self.zeros()).powf(self.shape.probes as f64)
    }

    /// The limit of [`Stable::predicted_rate`] for distinct elements.
    #[must_use]
    pub fn stable_rate(&self) -> f64 {
        self.shape.stable_rate()
    }

    /// The share of zero cells. Linear.
    #[must_use]
    pub fn zeros(&self) -> f64 {
        self.cells.zeros() as f64 / self.shape.cells as f64
    }

    /// The limit of [`Stable::zeros`].
    #[must_use]
    pub fn stable_zeros(&self) -> f64 {
        self.shape.stable_zeros()
    }

    /// The share of elements lost after `gap` others.
    #[must_use]
    pub fn expected_forgotten(&self, gap: u64) -> f64 {
        self.shape.forgotten(gap as f64)
    }

    /// The `gap` after which half of the elements are lost.
    #[must_use]
    pub fn half_life(&self) -> f64 {
        self.shape.half_life()
    }
}

impl Sketch for Stable {
    const KIND: Kind = Kind::Stable;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        let Shape { cells, width, probes, decrements } = self.shape;
        vec![cells, width, probes, decrements, self.state]
    }

    fn body(&self) -> Vec<u8> {
        self.cells.bytes()
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let cells = parameters.number_in(2, u64::MAX, "stable cells")?;
        let width = parameters.number_in(1, 8, "stable width")?;
        let probes = parameters.number_in(1, PROBES_MAX.min(cells - 1), "stable probes")?;
        let decrements = parameters.number_in(1, cells - 1, "stable decrements")?;
        let state = parameters.number("stable state")?;
        parameters.finish()?;
        let shape = Shape { cells, width, probes, decrements };
        Ok(Self { cells: Cells::from_body(&parts, cells, width)?, shape, state, seed: parts.seed })
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("cells", format!("{} of {} bits", self.shape.cells, self.shape.width)),
                ("probes", self.shape.probes.to_string()),
                ("decrements", self.shape.decrements.to_string()),
                (
                    "zeros",
                    format!("{:.2} %, limit {:.2} %", 100.0 * self.zeros(), 100.0 * self.stable_zeros()),
                ),
                ("limit of the rate", format!("{:.4} %", 100.0 * self.stable_rate())),
            ],
            predicted_rate: Some(self.predicted_rate()),
            body_bytes: self.cells.bytes().len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hash, hashes};

    const SHAPES: [(u64, u64, u64, u64); 4] =
        [(20_000, 1, 3, 8), (20_000, 2, 4, 10), (20_000, 3, 6, 40), (9_001, 2, 1, 2)];

    fn after(shape: (u64, u64, u64, u64), elements: u64) -> Stable {
        let mut stable = Stable::with_shape(shape.0, shape.1, shape.2, shape.3, 1).unwrap();
        hashes(elements).for_each(|hash| {
            stable.insert_hash(hash);
        });
        stable
    }

    quickcheck! {
        fn the_last_element_is_known(keys: Vec<Vec<u8>>, cells: u8, width: u8) -> bool {
            let mut stable = Stable::with_shape(10 + u64::from(cells), 1 + u64::from(width) % 8, 4, 5, 1).unwrap();
            keys.iter().all(|key| {
                stable.insert(key);
                stable.contains(key) && stable.insert(key)
            })
        }
    }

    #[test]
    fn zeros_converge_to_the_formula_and_stay() {
        for shape in SHAPES {
            for elements in [200_000, 300_000] {
                let stable = after(shape, elements);
                let (found, formula) = (stable.zeros(), stable.stable_zeros());
                assert!((found / formula - 1.0).abs() < 0.06, "{shape:?}: {found} {formula}");
            }
        }
    }

    #[test]
    fn the_fewer_elements_a_stream_repeats_the_more_cells_stay_zero() {
        for shape in SHAPES {
            let mut before =
                Stable::with_shape(shape.0, shape.1, shape.2, shape.3, 1).unwrap().stable_zeros();
            for distinct in [20_000, 2000, 100] {
                let mut stable = after(shape, 0);
                (0..200_000u64).for_each(|number| {
                    stable.insert_hash(hash(hash(number) % distinct));
                });
                assert!(stable.zeros() > 0.98 * before, "{shape:?} {distinct}: {} {before}", stable.zeros());
                before = stable.zeros();
            }
        }
    }

    #[test]
    fn new_elements_are_taken_for_known_with_the_rate_of_the_formula() {
        for shape in SHAPES {
            let mut stable = after(shape, 200_000);
            let rate = stable.stable_rate();
            let found = absent_hashes(200_000).filter(|&hash| stable.insert_hash(hash)).count();
            // Errors of successive elements are correlated, hence the wider interval.
            assert_rate(&format!("{shape:?}"), found as u64, 200_000, rate, 0.15);
        }
    }

    #[test]
    fn elements_are_forgotten_with_the_predicted_chance() {
        for shape in SHAPES {
            for gap in [500, 2000, 5000] {
                let mut stable = after(shape, 100_000);
                let first = 1 << 30;
                let mut forgotten = 0;
                for number in 0..20_000 {
                    stable.insert_hash(hash(first + number));
                    if number >= gap {
                        forgotten += u64::from(!stable.contains_hash(hash(first + number - gap)));
                    }
                }
                let expected = stable.expected_forgotten(gap);
                let found = forgotten as f64 / (20_000 - gap) as f64;
                assert!((found - expected).abs() < 0.02, "{shape:?} {gap}: {found} {expected}");
            }
        }
    }

    #[test]
    fn memory_buys_a_longer_memory_at_the_rate_asked_for() {
        let mut before = 0.0;
        for bytes in [1 << 12, 1 << 14, 1 << 16] {
            let stable = Stable::with_memory(bytes, 0.01, 1).unwrap();
            assert!(stable.stable_rate() <= 0.01 && stable.stable_rate() > 0.003);
            assert!(stable.half_life() > 3.0 * before);
            assert!((stable.expected_forgotten(stable.half_life() as u64) - 0.5).abs() < 0.01);
            before = stable.half_life();
        }
        assert!(Stable::with_memory(1, 0.001, 1).is_err());
        assert!(Stable::with_shape(10, 9, 1, 1, 1).is_err());
        assert!(Stable::with_shape(10, 1, 1, 10, 1).is_err());
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        let mut stable = Stable::with_shape(77, 3, 3, 5, 1).unwrap();
        hashes(30).for_each(|hash| {
            stable.insert_hash(hash);
        });
        check_codec(&stable);
        let mut decoded = Stable::decode(&stable.encode()).unwrap();
        assert_eq!(decoded.insert(b"next"), stable.insert(b"next"));
        assert!(decoded == stable, "chance goes on where it was");
    }
}
