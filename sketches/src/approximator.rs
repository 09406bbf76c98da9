//! The compact approximator: an upper bound of each key's lattice value.
//!
//! A Bloom filter whose cells are lattice values. An insertion joins the value into `k` cells; a query returns their meet.
//!
//! ```text
//! P(answer is not exact) <= (1 - e^(-k n' / m))^k     n': distinct keys with values not below the truth
//! ```
//!
//! Boldi and Vigna, *Mutable strings in Java*, 2005, and *Compact approximation of lattice functions*, 2003.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::arithmetic::{checked_rate, optimal_bits, optimal_probes, rate};
use crate::envelope::{DecodeError, Envelope, Kind, bytes_to_words, words_to_bytes};
use crate::error::Error;
use crate::hash::{key_hash, nth, reduce};
use crate::sketch::{Parts, Sketch, Summary};

const PROBES_MAX: u64 = 64;

const CELLS_MAX: u64 = 1 << 44;

/// A lattice over 64-bit numbers, with 0 below all others.
///
/// `join` and `meet` are associative, commutative and idempotent, `join(x, 0) = x`, and `meet(x, join(x, y)) = x`.
pub trait Lattice: Debug + Clone + Copy + PartialEq + Eq + 'static {
    /// The number in the encoding. Other crates use numbers from 2^32 on.
    const ID: u64;

    /// The name in a [`Summary`](crate::Summary).
    const NAME: &'static str;

    /// The least element above both.
    fn join(one: u64, two: u64) -> u64;

    /// The greatest element below both.
    fn meet(one: u64, two: u64) -> u64;
}

/// Numbers by size: answers are at least the greatest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Max;

impl Lattice for Max {
    const ID: u64 = 1;
    const NAME: &'static str = "max";

    #[inline]
    fn join(one: u64, two: u64) -> u64 {
        one.max(two)
    }

    #[inline]
    fn meet(one: u64, two: u64) -> u64 {
        one.min(two)
    }
}

/// Sets of 64 flags: answers have every flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags;

impl Lattice for Flags {
    const ID: u64 = 2;
    const NAME: &'static str = "flags";

    #[inline]
    fn join(one: u64, two: u64) -> u64 {
        one | two
    }

    #[inline]
    fn meet(one: u64, two: u64) -> u64 {
        one & two
    }
}

/// An upper bound of each key's values, such as the newest version.
///
/// # Guarantees
///
/// - The answer is never below the join of the key's values.
/// - It is above that join (0 for an absent key) with probability at most [`predicted_rate`](Self::predicted_rate).
/// - Threads may [`insert`](Self::insert) at the same time.
///
/// # Cost
///
/// `k` cells of 64 bits per operation, each in a cache line; 1.44 `log2(1 / rate)` cells per key.
///
/// # When not to use it
///
/// Values that do not change: [`StaticMap`](crate::StaticMap). Counts: [`Spectral`](crate::Spectral).
///
/// ```
/// use sievedb_sketches::{Approximator, Max};
///
/// let newest = Approximator::<Max>::with_rate(1000, 0.01, 7)?;
/// newest.insert("apple", 12);
/// newest.insert("apple", 9);
/// assert!(newest.get("apple") >= 12);
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
#[derive(Debug)]
pub struct Approximator<L: Lattice> {
    seed: u64,
    probes: u64,
    cells: Box<[AtomicU64]>,
    lattice: PhantomData<L>,
}

impl<L: Lattice> Approximator<L> {
    /// Answers are inexact with probability at most `rate` at `keys` keys.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless `0 < rate < 1`; [`Error::TooLarge`].
    pub fn with_rate(keys: u64, rate: f64, seed: u64) -> Result<Self, Error> {
        let cells = optimal_bits(keys.max(1), checked_rate(rate)?);
        Self::with_shape(cells, optimal_probes(cells as f64 / keys.max(1) as f64).min(PROBES_MAX), seed)
    }

    /// At most `bytes` bytes, best for `keys` keys.
    ///
    /// # Errors
    ///
    /// As [`with_shape`](Self::with_shape).
    pub fn with_memory(keys: u64, bytes: u64, seed: u64) -> Result<Self, Error> {
        let cells = bytes / 8;
        Self::with_shape(cells, optimal_probes(cells as f64 / keys.max(1) as f64).min(PROBES_MAX), seed)
    }

    /// `cells` cells, `probes` per key.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless there are cells and 1 to 64 probes; [`Error::TooLarge`] beyond 2^44 cells or the
    /// memory.
    pub fn with_shape(cells: u64, probes: u64, seed: u64) -> Result<Self, Error> {
        if cells == 0 || !(1..=PROBES_MAX).contains(&probes) {
            return Err(Error::invalid(format!(
                "{cells} cells and {probes} probes, expected 1 or more and 1 to {PROBES_MAX}"
            )));
        }
        let mut memory = Vec::new();
        if cells > CELLS_MAX || memory.try_reserve_exact(cells as usize).is_err() {
            return Err(Error::TooLarge(cells.saturating_mul(8)));
        }
        memory.resize_with(cells as usize, AtomicU64::default);
        Ok(Self { seed, probes, cells: memory.into(), lattice: PhantomData })
    }

    /// Joins a value to a key's values.
    pub fn insert(&self, key: &(impl AsRef<[u8]> + ?Sized), value: u64) {
        self.insert_hash(key_hash(self.seed, key.as_ref()), value);
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    #[inline]
    pub fn insert_hash(&self, hash: u64, value: u64) {
        for cell in self.cells_of(hash) {
            // Unchanged cells are not written, so their lines stay in all caches.
            let raise = |there| Some(L::join(there, value)).filter(|&joined| joined != there);
            let _ = cell.fetch_update(Relaxed, Relaxed, raise);
        }
    }

    /// An upper bound of a key's values; 0 if certainly absent.
    #[must_use]
    pub fn get(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> u64 {
        self.get_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`get`](Self::get) by [hash](crate::hash).
    #[must_use]
    #[inline]
    pub fn get_hash(&self, hash: u64) -> u64 {
        self.cells_of(hash).map(|cell| cell.load(Relaxed)).reduce(L::meet).unwrap_or(0)
    }

    /// Joins all values of another approximator. Linear.
    ///
    /// # Errors
    ///
    /// [`Error::Differ`] in cells, probes or seed.
    pub fn join(&mut self, other: &Self) -> Result<(), Error> {
        Error::unless_same(&[
            ("cells", self.cells.len() == other.cells.len()),
            ("probes", self.probes == other.probes),
            ("seed", self.seed == other.seed),
        ])?;
        for (mine, theirs) in self.cells.iter_mut().zip(&*other.cells) {
            *mine.get_mut() = L::join(*mine.get_mut(), theirs.load(Relaxed));
        }
        Ok(())
    }

    /// The probability that an absent key has a value: the `k`-th power of the share of nonzero cells, or less with [`Flags`].
    /// Linear.
    #[must_use]
    pub fn predicted_rate(&self) -> f64 {
        (self.taken() as f64 / self.cells.len() as f64).powf(self.probes as f64)
    }

    /// The expected rate if `keys` other keys have values that are not below the key's.
    #[must_use]
    pub fn expected_rate(&self, keys: u64) -> f64 {
        rate(self.cells.len() as f64 / keys.max(1) as f64, self.probes as f64)
    }

    /// Number of cells.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Cells per key.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.probes
    }

    fn taken(&self) -> usize {
        self.cells.iter().filter(|cell| cell.load(Relaxed) != 0).count()
    }

    #[inline]
    fn cells_of(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        let count = self.cells.len() as u64;
        (0..self.probes).map(move |probe| &self.cells[reduce(nth(hash, probe), count) as usize])
    }
}

impl<L: Lattice> PartialEq for Approximator<L> {
    fn eq(&self, other: &Self) -> bool {
        let loads = |of: &Self| of.cells.iter().map(|cell| cell.load(Relaxed)).collect::<Vec<_>>();
        (self.seed, self.probes) == (other.seed, other.probes) && loads(self) == loads(other)
    }
}

impl<L: Lattice> Sketch for Approximator<L> {
    const KIND: Kind = Kind::Approximator;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.cells(), self.probes, L::ID]
    }

    fn body(&self) -> Vec<u8> {
        words_to_bytes(self.cells.iter().map(|cell| cell.load(Relaxed)), 8 * self.cells())
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let cells = parameters.number_in(1, CELLS_MAX, "approximator cells")?;
        let probes = parameters.number_in(1, PROBES_MAX, "approximator probes")?;
        parameters.number_in(L::ID, L::ID, "approximator lattice")?;
        parameters.finish()?;
        let body = parts.body_of(Some(8 * cells))?;
        let cells = bytes_to_words(body).map(AtomicU64::new).collect();
        Ok(Self { seed: parts.seed, probes, cells, lattice: PhantomData })
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("cells", self.cells().to_string()),
                ("taken", self.taken().to_string()),
                ("probes", self.probes.to_string()),
                ("lattice", L::NAME.into()),
            ],
            predicted_rate: Some(self.predicted_rate()),
            body_bytes: 8 * self.cells(),
        }
    }
}

pub(crate) fn lattice_id(parts: &Envelope<'_>) -> Result<u64, DecodeError> {
    let mut parameters = parts.parameters();
    parameters.number("approximator cells")?;
    parameters.number("approximator probes")?;
    parameters.number("approximator lattice")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use quickcheck::quickcheck;

    use super::*;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hash, hashes};

    fn bounds<L: Lattice>(entries: &[(u8, u64)], cells: u16, probes: u8) -> bool {
        let approximator =
            Approximator::<L>::with_shape(1 + u64::from(cells), 1 + u64::from(probes) % 9, 3).unwrap();
        let mut model = HashMap::new();
        for &(key, value) in entries {
            approximator.insert(&[key], value);
            let known = model.entry(key).or_insert(0);
            *known = L::join(*known, value);
        }
        (0..=255).all(|key| {
            let (truth, found) = (model.get(&key).copied().unwrap_or(0), approximator.get(&[key]));
            L::join(truth, found) == found
        })
    }

    quickcheck! {
        fn an_answer_is_never_below_the_greatest_value(entries: Vec<(u8, u64)>, cells: u16, probes: u8) -> bool {
            bounds::<Max>(&entries, cells, probes)
        }

        fn an_answer_has_every_flag(entries: Vec<(u8, u64)>, cells: u16, probes: u8) -> bool {
            bounds::<Flags>(&entries, cells, probes)
        }

        fn a_join_is_what_inserting_both_would_have_made(one: Vec<(u8, u64)>, two: Vec<(u8, u64)>) -> bool {
            let make = |entries: &[&Vec<(u8, u64)>]| {
                let made = Approximator::<Max>::with_shape(99, 3, 3).unwrap();
                entries.iter().copied().flatten().for_each(|(key, value)| made.insert(&[*key], *value));
                made
            };
            let mut joined = make(&[&one]);
            joined.join(&make(&[&two])).unwrap();
            joined == make(&[&one, &two])
        }
    }

    #[test]
    fn answers_above_the_truth_are_as_many_as_the_formula_says() {
        let keys = 20_000;
        let approximator = Approximator::<Max>::with_rate(keys, 0.02, 1).unwrap();
        hashes(keys).zip(1..).for_each(|(hash, value)| approximator.insert_hash(hash, value));
        let found = absent_hashes(500_000).filter(|&hash| approximator.get_hash(hash) != 0).count() as u64;
        assert_rate("absent keys", found, 500_000, approximator.expected_rate(keys), 0.05);
        assert_rate("as it stands", found, 500_000, approximator.predicted_rate(), 0.02);
        for percent in [0, 25, 50, 75] {
            let first = keys * percent / 100;
            let inexact =
                (first..first + 4000).filter(|&key| approximator.get_hash(hash(key)) != key + 1).count();
            let rate = approximator.expected_rate(keys - first - 2000);
            assert_rate(&format!("keys from {percent} % on"), inexact as u64, 4000, rate, 0.15);
        }
        assert_eq!(approximator.get_hash(hash(keys - 1)), keys, "the greatest value is always exact");
    }

    #[test]
    fn threads_that_insert_at_once_lose_no_value() {
        let (shared, alone) = [(); 2].map(|()| Approximator::<Max>::with_shape(5000, 4, 1).unwrap()).into();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let shared = &shared;
                scope
                    .spawn(move || (0..4000).for_each(|key| shared.insert_hash(hash(key), key * 7 + thread)));
            }
        });
        (0..4000).for_each(|key| alone.insert_hash(hash(key), key * 7 + 3));
        assert!(shared == alone);
    }

    #[test]
    fn shapes_that_no_approximator_has_are_refused() {
        for (cells, probes) in [(0, 1), (1, 0), (1, 65)] {
            assert!(matches!(
                Approximator::<Max>::with_shape(cells, probes, 0),
                Err(Error::InvalidArgument(_))
            ));
        }
        assert!(matches!(Approximator::<Max>::with_shape(u64::MAX, 1, 0), Err(Error::TooLarge(_))));
        assert_eq!(Approximator::<Max>::with_rate(1000, 0.001, 0).unwrap().cells(), 14_378);
        assert_eq!(Approximator::<Max>::with_memory(1000, 8000, 0).unwrap().cells(), 1000);
        let mut one = Approximator::<Max>::with_shape(9, 2, 0).unwrap();
        for other in [(8, 2, 0), (9, 3, 0), (9, 2, 1)] {
            let other = Approximator::<Max>::with_shape(other.0, other.1, other.2).unwrap();
            assert!(matches!(one.join(&other), Err(Error::Differ(_))));
        }
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        let max = Approximator::<Max>::with_shape(5, 2, 9).unwrap();
        max.insert("apple", 7);
        check_codec(&max);
        assert!(Approximator::<Flags>::decode(&max.encode()).is_err(), "another lattice has other answers");
        let flags = Approximator::<Flags>::with_shape(5, 2, 9).unwrap();
        flags.insert("apple", 1 << 63);
        check_codec(&flags);
    }
}
