//! The counting Bloom filter: counters instead of bits, for removals.
//!
//! A key has `k` of `m` cells of four bits. An insertion adds one to each, up to 15; a removal subtracts one from each that is
//! not saturated. A key is possibly present if none is 0.
//!
//! Fan, Cao, Almeida and Broder, "Summary Cache" (2000), section V-C. At the best `k`, any of `m` cells reaches 16 with
//! probability at most `m · (e · ln 2 / 16)^16 = 1.4e-15 m`. Wrapping, or removals after saturation, would make present keys
//! absent.

use crate::arithmetic::{self, checked_rate, optimal_bits, optimal_probes};
use crate::bloom::Bloom;
use crate::cells::Cells;
use crate::envelope::{DecodeError, Kind};
use crate::error::Error;
use crate::hash::key_hash;
use crate::probes::{Hashing, PROBES_MAX, positions};
use crate::sketch::{Parts, Sketch, Summary};

const WIDTH: u64 = 4;

const SATURATED: u64 = 15;

/// A bound on the probability that any cell saturates, at the best `k`.
#[must_use]
pub fn overflow_probability(cells: u64) -> f64 {
    cells as f64 * (std::f64::consts::E * std::f64::consts::LN_2 / 16.0).powi(16)
}

/// A Bloom filter with removal.
///
/// ```
/// use sievedb_sketches::{Counting, Error};
///
/// let mut open = Counting::with_rate(10_000, 0.01, 42)?;
/// open.insert(b"connection 7");
/// open.remove(b"connection 7")?;
/// assert!(!open.contains(b"connection 7"));
/// assert_eq!(open.remove(b"connection 7"), Err(Error::Absent));
/// # Ok::<(), Error>(())
/// ```
///
/// # Guarantees
///
/// A key inserted more often than removed is found, if only present keys are removed. With probability
/// [`Counting::predicted_rate`], an absent key is found; its removal may make other keys absent. Saturated cells only cause false
/// positives.
///
/// # Cost
///
/// `k` cells per operation, in four times the space of a [`Bloom`]: 38 bits per key for 1 %.
///
/// # When not to use it
///
/// Removal of all keys or by age: [`Bloom::clear`] or [`Ring`](crate::Ring). Half the space: [`DLeft`](crate::DLeft); a quarter:
/// [`Cuckoo`](crate::Cuckoo). Counts above 15: [`Spectral`](crate::Spectral).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counting {
    cells: Cells,
    probes: u64,
    seed: u64,
}

impl Counting {
    /// A filter for `keys` keys at `rate`, but never full.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless `0 < rate < 1`; [`Error::TooLarge`].
    pub fn with_rate(keys: u64, rate: f64, seed: u64) -> Result<Self, Error> {
        let cells = optimal_bits(keys.max(1), checked_rate(rate)?).max(16);
        Self::with_best_probes(cells, keys, seed)
    }

    /// At most `bytes` bytes, best for `keys` keys.
    ///
    /// # Errors
    ///
    /// As [`Counting::with_shape`].
    pub fn with_memory(keys: u64, bytes: u64, seed: u64) -> Result<Self, Error> {
        Self::with_best_probes(bytes.saturating_mul(2), keys, seed)
    }

    fn with_best_probes(cells: u64, keys: u64, seed: u64) -> Result<Self, Error> {
        let probes = optimal_probes(cells as f64 / keys.max(1) as f64).min(30);
        Self::with_shape(cells, probes, seed)
    }

    /// `cells` cells, `probes` per key.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless there are cells and 1 to 64 probes; [`Error::TooLarge`].
    pub fn with_shape(cells: u64, probes: u64, seed: u64) -> Result<Self, Error> {
        if probes == 0 || probes > PROBES_MAX {
            return Err(Error::invalid(format!("{probes} probes, expected 1 to {PROBES_MAX}")));
        }
        Ok(Self { cells: Cells::new(cells, WIDTH)?, probes, seed })
    }

    fn positions(&self, hash: u64) -> impl Iterator<Item = u64> + Clone + use<> {
        positions(hash, self.probes, self.cells.count())
    }

    /// Adds a key; repetitions count.
    pub fn insert(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) {
        self.insert_hash(key_hash(self.seed, key.as_ref()));
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    pub fn insert_hash(&mut self, hash: u64) {
        self.positions(hash).for_each(|cell| self.cells.increment(cell));
    }

    /// Undoes one insertion of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Absent`] if the key is certainly absent.
    pub fn remove(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Error> {
        self.remove_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`remove`](Self::remove) by [hash](crate::hash).
    ///
    /// # Errors
    ///
    /// As [`Counting::remove`].
    pub fn remove_hash(&mut self, hash: u64) -> Result<(), Error> {
        let positions = self.positions(hash);
        // Two probes may hit one cell, which must then be at least 2.
        let mut taken = 0u64;
        for (probe, cell) in positions.clone().enumerate() {
            match self.cells.get(cell) {
                0 => {
                    let undo = positions.enumerate().filter(|(probe, _)| taken >> probe & 1 == 1);
                    undo.for_each(|(_, cell)| self.cells.set(cell, self.cells.get(cell) + 1));
                    return Err(Error::Absent);
                }
                SATURATED => {}
                count => {
                    self.cells.set(cell, count - 1);
                    taken |= 1 << probe;
                }
            }
        }
        Ok(())
    }

    /// Clears all cells.
    pub fn clear(&mut self) {
        self.cells.clear();
    }

    /// Whether a key may be present.
    #[must_use]
    pub fn contains(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.contains_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`contains`](Self::contains) by [hash](crate::hash).
    #[must_use]
    #[inline]
    pub fn contains_hash(&self, hash: u64) -> bool {
        self.positions(hash).all(|cell| self.cells.get(cell) > 0)
    }

    /// An upper bound of a key's insertions minus removals. `None` if saturated.
    #[must_use]
    pub fn count(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Option<u64> {
        self.count_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`count`](Self::count) by [hash](crate::hash).
    #[must_use]
    pub fn count_hash(&self, hash: u64) -> Option<u64> {
        let least = self.positions(hash).map(|cell| self.cells.get(cell)).min();
        least.filter(|&least| least < SATURATED)
    }

    /// Number of saturated cells. Linear.
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.cells.iter().filter(|&count| count == SATURATED).count() as u64
    }

    /// The filter of the insertions into both. Linear.
    ///
    /// # Errors
    ///
    /// [`Error::Differ`] in cells, probes or seed.
    pub fn union(&self, other: &Self) -> Result<Self, Error> {
        Error::unless_same(&[
            ("cells", self.cells.count() == other.cells.count()),
            ("probes", self.probes == other.probes),
            ("seed", self.seed == other.seed),
        ])?;
        let mut sum = self.clone();
        for (cell, count) in (0..).zip(other.cells.iter()) {
            sum.cells.set(cell, (self.cells.get(cell) + count).min(SATURATED));
        }
        Ok(sum)
    }

    /// The Bloom filter of the present keys. Linear.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the memory cannot be allocated.
    pub fn to_bloom(&self) -> Result<Bloom, Error> {
        let mut bloom = Bloom::with_shape(self.cells.count(), self.probes, Hashing::Enhanced, self.seed)?;
        let used = (0..).zip(self.cells.iter()).filter(|&(_, count)| count > 0);
        used.for_each(|(cell, _)| bloom.set(cell));
        Ok(bloom)
    }

    /// The rate of the current cells. Linear.
    #[must_use]
    pub fn predicted_rate(&self) -> f64 {
        self.cells.rate(self.probes)
    }

    /// The expected rate at `keys` keys.
    #[must_use]
    pub fn expected_rate(&self, keys: u64) -> f64 {
        arithmetic::rate(self.cells.count() as f64 / keys as f64, self.probes as f64)
    }

    /// Number of cells.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.cells.count()
    }

    /// The value of a cell, 0 to 15.
    #[must_use]
    pub fn cell(&self, index: u64) -> Option<u64> {
        (index < self.cells.count()).then(|| self.cells.get(index))
    }

    /// Cells per key.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.probes
    }
}

impl Sketch for Counting {
    const KIND: Kind = Kind::Counting;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.cells.count(), self.probes]
    }

    fn body(&self) -> Vec<u8> {
        self.cells.bytes()
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let count = parameters.number_in(1, u64::MAX, "counting cells")?;
        let probes = parameters.number_in(1, PROBES_MAX, "counting probes")?;
        parameters.finish()?;
        Ok(Self { cells: Cells::from_body(&parts, count, WIDTH)?, probes, seed: parts.seed })
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("cells", format!("{} of {WIDTH} bits", self.cells.count())),
                ("probes", self.probes.to_string()),
                ("saturated", self.saturated().to_string()),
                ("keys", self.cells.keys_in_words(self.probes)),
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
    use crate::testing::{absent_hashes, assert_rate, check_codec, hashes};

    fn filled(cells: u64, probes: u64, keys: u64) -> Counting {
        let mut counting = Counting::with_shape(cells, probes, 1).unwrap();
        hashes(keys).for_each(|hash| counting.insert_hash(hash));
        counting
    }

    quickcheck! {
        fn what_is_inserted_and_not_removed_is_found(keys: Vec<u16>, removed: Vec<u16>, cells: u8) -> bool {
            let mut counting = Counting::with_shape(1 + u64::from(cells), 5, 1).unwrap();
            let mut model = keys.clone();
            keys.iter().for_each(|key| counting.insert(&key.to_le_bytes()));
            for key in removed {
                if let Some(at) = model.iter().position(|known| *known == key) {
                    model.swap_remove(at);
                    counting.remove(&key.to_le_bytes()).unwrap();
                }
            }
            model.iter().all(|key| counting.contains(&key.to_le_bytes()))
        }

        fn removing_everything_leaves_nothing(keys: Vec<u16>) -> bool {
            let mut counting = Counting::with_shape(5000, 3, 1).unwrap();
            keys.iter().for_each(|key| counting.insert(&key.to_le_bytes()));
            let saturated = counting.saturated() > 0;
            keys.iter().for_each(|key| counting.remove(&key.to_le_bytes()).unwrap());
            saturated || counting.cells.zeros() == 5000
        }

        fn a_refused_removal_changes_nothing(keys: Vec<u8>, absent: Vec<u8>) -> bool {
            let mut counting = Counting::with_shape(97, 6, 1).unwrap();
            keys.iter().for_each(|key| counting.insert(&[*key]));
            absent.iter().all(|key| {
                let before = counting.clone();
                counting.remove(&[*key, 1]).is_ok() || counting == before
            })
        }
    }

    #[test]
    fn the_rate_is_that_of_the_formula_before_and_after_removals() {
        let mut counting = filled(100_000, 7, 20_000);
        let rate =
            |counting: &Counting| absent_hashes(200_000).filter(|&hash| counting.contains_hash(hash)).count();
        assert_rate("20 000", rate(&counting) as u64, 200_000, counting.expected_rate(20_000), 0.02);
        hashes(20_000).skip(10_000).for_each(|hash| counting.remove_hash(hash).unwrap());
        assert!(counting == filled(100_000, 7, 10_000));
        assert_rate("10 000", rate(&counting) as u64, 200_000, counting.expected_rate(10_000), 0.02);
    }

    #[test]
    fn a_cell_that_has_saturated_stays_and_its_key_is_found_for_ever() {
        let mut counting = filled(1000, 4, 50);
        (0..15).for_each(|_| counting.insert(b"often"));
        assert_eq!(counting.count(b"often"), None);
        assert!(counting.saturated() >= 4);
        (0..100).for_each(|_| counting.remove(b"often").unwrap());
        assert!(counting.contains(b"often"));
        assert!(hashes(50).all(|hash| counting.contains_hash(hash)));
    }

    #[test]
    fn an_impossible_removal_is_refused_where_it_can_be_seen() {
        let mut counting = filled(20_000, 5, 2000);
        let before = counting.clone();
        let (passed, seen): (Vec<u64>, Vec<u64>) =
            absent_hashes(100_000).partition(|&hash| before.contains_hash(hash));
        assert!(passed.len() < 1500, "{}", passed.len());
        assert!(seen.into_iter().all(|hash| counting.remove_hash(hash) == Err(Error::Absent)));
        assert!(counting == before, "a refused removal changes nothing");
    }

    #[test]
    fn counts_are_never_too_low() {
        let mut counting = Counting::with_rate(1000, 0.01, 1).unwrap();
        for key in 0..1000u64 {
            (0..1 + key % 5).for_each(|_| counting.insert(&key.to_le_bytes()));
        }
        let exact =
            (0..1000u64).filter(|key| counting.count(&key.to_le_bytes()).unwrap() == 1 + key % 5).count();
        assert!((0..1000u64).all(|key| counting.count(&key.to_le_bytes()).unwrap() > key % 5));
        assert!(exact > 950, "{exact}");
    }

    #[test]
    fn unions_and_bloom_filters_have_the_keys_of_what_they_come_from() {
        let (one, two) = (filled(5000, 5, 300), filled(5000, 5, 500));
        let union = one.union(&two).unwrap();
        assert!(hashes(500).all(|hash| union.contains_hash(hash)));
        assert_eq!(one.union(&filled(5001, 5, 1)), Err(Error::Differ("cells")));
        let mut bloom = Bloom::with_shape(5000, 5, Hashing::Enhanced, 1).unwrap();
        hashes(500).for_each(|hash| {
            bloom.insert_hash(hash);
        });
        assert_eq!(two.to_bloom().unwrap(), bloom);
    }

    #[test]
    fn overflow_is_as_improbable_as_published() {
        assert_eq!(format!("{:.2e}", overflow_probability(1)), "1.37e-15");
        let counting = filled(100_000, 7, 10_000);
        assert_eq!(counting.saturated(), 0);
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        check_codec(&filled(77, 3, 20));
    }
}
