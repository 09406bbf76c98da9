//! The spectral Bloom filter: estimates the number of insertions of each key.
//!
//! A key has `k` of `m` counters; the least is the estimate. Two methods (Cohen and Matias 2003):
//!
//! - **Minimal increase** (section 3.2) raises only the least counters: a count-min sketch with conservative update.
//! - **Recurring minimum** (section 3.3) adds to all. A key whose least value is in only one counter is also added to a second,
//!   smaller filter and answered from there. A false positive of that filter makes an estimate too low or too high.

use std::fmt;

use crate::arithmetic::{self, checked_rate, optimal_bits, optimal_probes};
use crate::cells::Cells;
use crate::envelope::{DecodeError, Kind};
use crate::error::Error;
use crate::hash::{key_hash, nth};
use crate::probes::{PROBES_MAX, positions};
use crate::sketch::{Parts, Sketch, Summary};

/// Append only: the numbers are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Method {
    /// Raises only the least counters. Estimates are never too low; removals are rejected.
    MinimalIncrease = 1,
    /// Raises all counters, and has a second filter of half the size: allows removals, errs on both sides.
    RecurringMinimum = 2,
}

impl Method {
    /// All values, by number.
    pub const ALL: [Self; 2] = [Self::MinimalIncrease, Self::RecurringMinimum];
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MinimalIncrease => "minimal increase",
            Self::RecurringMinimum => "recurring minimum",
        })
    }
}

/// Estimates the number of insertions of each key.
///
/// ```
/// use sievedb_sketches::{Method, Spectral};
///
/// let mut words = Spectral::with_rate(10_000, 0.01, Method::MinimalIncrease, 42)?;
/// for word in "the more the better".split(' ') {
///     words.insert(word);
/// }
/// assert_eq!(words.count("the"), 2);
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
///
/// # Guarantees
///
/// With [`Method::MinimalIncrease`], [`Spectral::count`] is never too low, up to the largest counter value, and too high for at
/// most a share of [`Spectral::predicted_rate`] of the keys. With [`Method::RecurringMinimum`] it errs on both sides, less often
/// for frequent keys. [`Spectral::contains`] is never wrongly false, if only present keys are removed. Counters saturate.
///
/// # Cost
///
/// `k` counters per operation. Recurring minimum takes half as much space again, and twice the counters for some keys.
///
/// # When not to use it
///
/// Membership: [`Counting`](crate::Counting) or [`Bloom`](crate::Bloom). The most frequent keys: a sketch with a heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spectral {
    cells: Cells,
    second: Option<Cells>,
    width: u64,
    probes: u64,
    method: Method,
    seed: u64,
}

impl Spectral {
    /// 8-bit counters, with at most a share `rate` of wrong estimates at `keys` distinct keys.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless `0 < rate < 1`; [`Error::TooLarge`].
    pub fn with_rate(keys: u64, rate: f64, method: Method, seed: u64) -> Result<Self, Error> {
        let cells = optimal_bits(keys.max(1), checked_rate(rate)?).max(16);
        let probes = optimal_probes(cells as f64 / keys.max(1) as f64).min(30);
        Self::with_shape(cells, 8, probes, method, seed)
    }

    /// `cells` counters of `width` bits, `probes` per key.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless there are cells, a width of 1 to 32, and 1 to 64 probes; [`Error::TooLarge`].
    pub fn with_shape(cells: u64, width: u64, probes: u64, method: Method, seed: u64) -> Result<Self, Error> {
        if probes == 0 || probes > PROBES_MAX {
            return Err(Error::invalid(format!("{probes} probes, expected 1 to {PROBES_MAX}")));
        }
        if width == 0 || width > 32 {
            return Err(Error::invalid(format!("counters of {width} bits, expected 1 to 32")));
        }
        let second = match method {
            Method::MinimalIncrease => None,
            Method::RecurringMinimum => Some(Cells::new(cells.div_ceil(2), width)?),
        };
        Ok(Self { cells: Cells::new(cells, width)?, second, width, probes, method, seed })
    }

    /// Counts a key once more.
    pub fn insert(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) {
        self.insert_hash(key_hash(self.seed, key.as_ref()));
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    pub fn insert_hash(&mut self, hash: u64) {
        let probes = self.probes;
        let Some(second) = &mut self.second else {
            let value = least(&self.cells, probes, hash).0.saturating_add(1).min(self.cells.max());
            return raise(&mut self.cells, probes, hash, value);
        };
        add(&mut self.cells, probes, hash);
        let (value, recurs) = least(&self.cells, probes, hash);
        let other = nth(hash, 1);
        if least(second, probes, other).0 > 0 {
            add(second, probes, other);
        } else if !recurs {
            raise(second, probes, other, value);
        }
    }

    /// Undoes one insertion.
    ///
    /// # Errors
    ///
    /// [`Error::Absent`] if the key is certainly absent, [`Error::InvalidArgument`] with minimal increase.
    pub fn remove(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Error> {
        self.remove_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`remove`](Self::remove) by [hash](crate::hash).
    ///
    /// # Errors
    ///
    /// As [`Spectral::remove`].
    pub fn remove_hash(&mut self, hash: u64) -> Result<(), Error> {
        let Some(second) = &mut self.second else {
            return Err(Error::invalid("minimal increase does not support removal"));
        };
        if !take(&mut self.cells, self.probes, hash) {
            return Err(Error::Absent);
        }
        take(second, self.probes, nth(hash, 1));
        Ok(())
    }

    /// Clears all counters.
    pub fn clear(&mut self) {
        self.cells.clear();
        self.second.iter_mut().for_each(Cells::clear);
    }

    /// Estimates the insertions of a key.
    #[must_use]
    pub fn count(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> u64 {
        self.count_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`count`](Self::count) by [hash](crate::hash).
    #[must_use]
    pub fn count_hash(&self, hash: u64) -> u64 {
        let (value, recurs) = least(&self.cells, self.probes, hash);
        match &self.second {
            Some(second) if !recurs && value > 0 => match least(second, self.probes, nth(hash, 1)).0 {
                0 => value,
                second => second.min(value),
            },
            _ => value,
        }
    }

    /// Whether a key may have been inserted.
    #[must_use]
    pub fn contains(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.contains_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`contains`](Self::contains) by [hash](crate::hash).
    #[must_use]
    pub fn contains_hash(&self, hash: u64) -> bool {
        least(&self.cells, self.probes, hash).0 > 0
    }

    /// The share of absent keys with a count, which bounds the share of counts too high. Linear.
    #[must_use]
    pub fn predicted_rate(&self) -> f64 {
        self.cells.rate(self.probes)
    }

    /// The expected rate at `keys` distinct keys.
    #[must_use]
    pub fn expected_rate(&self, keys: u64) -> f64 {
        arithmetic::rate(self.cells.count() as f64 / keys as f64, self.probes as f64)
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }
}

/// The least counter, and whether another is equal.
fn least(cells: &Cells, probes: u64, hash: u64) -> (u64, bool) {
    let mut found = (u64::MAX, 0, false);
    for cell in positions(hash, probes, cells.count()) {
        let value = cells.get(cell);
        if value < found.0 {
            found = (value, cell, false);
        } else if value == found.0 && cell != found.1 {
            found.2 = true;
        }
    }
    (found.0, found.2)
}

fn raise(cells: &mut Cells, probes: u64, hash: u64, value: u64) {
    for cell in positions(hash, probes, cells.count()) {
        if cells.get(cell) < value {
            cells.set(cell, value);
        }
    }
}

fn add(cells: &mut Cells, probes: u64, hash: u64) {
    positions(hash, probes, cells.count()).for_each(|cell| cells.increment(cell));
}

/// Decrements unsaturated counters. If one is 0, changes none and returns `false`.
fn take(cells: &mut Cells, probes: u64, hash: u64) -> bool {
    if least(cells, probes, hash).0 == 0 {
        return false;
    }
    for cell in positions(hash, probes, cells.count()) {
        let value = cells.get(cell);
        if value < cells.max() {
            cells.set(cell, value.saturating_sub(1));
        }
    }
    true
}

impl Sketch for Spectral {
    const KIND: Kind = Kind::Spectral;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.cells.count(), self.width, self.probes, self.method as u64]
    }

    fn body(&self) -> Vec<u8> {
        let mut body = self.cells.bytes();
        body.extend(self.second.iter().flat_map(Cells::bytes));
        body
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let count = parameters.number_in(1, u64::MAX, "spectral cells")?;
        let width = parameters.number_in(1, 32, "spectral width")?;
        let probes = parameters.number_in(1, PROBES_MAX, "spectral probes")?;
        let method = parameters.number_in(1, Method::ALL.len() as u64, "spectral method")?;
        parameters.finish()?;
        let method = Method::ALL[method as usize - 1];
        let first = Cells::byte_len(count, width);
        let other = Cells::byte_len(count.div_ceil(2), width);
        let lens = match method {
            Method::MinimalIncrease => first,
            Method::RecurringMinimum => first.zip(other).map(|(first, second)| first + second),
        };
        let (first, second) = parts.body_of(lens)?.split_at(first.unwrap_or(0) as usize);
        let cells = Cells::from_bytes(&parts, first, count, width)?;
        let second = match method {
            Method::MinimalIncrease => None,
            Method::RecurringMinimum => Some(Cells::from_bytes(&parts, second, count.div_ceil(2), width)?),
        };
        Ok(Self { cells, second, width, probes, method, seed: parts.seed })
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("cells", format!("{} of {} bits", self.cells.count(), self.width)),
                ("probes", self.probes.to_string()),
                ("method", self.method.to_string()),
                ("keys", self.cells.keys_in_words(self.probes)),
            ],
            predicted_rate: Some(self.predicted_rate()),
            body_bytes: self.body().len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hash};

    /// The number of insertions of key `i`.
    fn times(key: u64) -> u64 {
        1 + hash(key) % 100 + 1000 / (1 + key)
    }

    fn stream() -> impl Iterator<Item = u64> {
        let mut stream: Vec<u64> = (0..1000).flat_map(|key| (0..times(key)).map(move |_| key)).collect();
        for at in 1..stream.len() {
            stream.swap(at, hash(at as u64 + 9999) as usize % (at + 1));
        }
        stream.into_iter().map(hash)
    }

    fn filled(method: Method, cells: u64) -> Spectral {
        let mut spectral = Spectral::with_shape(cells, 16, 5, method, 1).unwrap();
        stream().for_each(|hash| spectral.insert_hash(hash));
        spectral
    }

    /// The number of counts that are too high, and too low.
    fn wrong(count: impl Fn(u64) -> u64) -> (usize, usize) {
        let found = |key: u64| count(hash(key));
        let high = (0..1000).filter(|&key| found(key) > times(key)).count();
        (high, (0..1000).filter(|&key| found(key) < times(key)).count())
    }

    quickcheck! {
        fn by_minimal_increase_no_count_is_too_low(keys: Vec<u8>, cells: u8, width: u8) -> bool {
            let width = 1 + u64::from(width) % 8;
            let mut spectral = Spectral::with_shape(1 + u64::from(cells), width, 4, Method::MinimalIncrease, 1).unwrap();
            keys.iter().for_each(|key| spectral.insert(&[*key]));
            keys.iter().all(|key| {
                let times = keys.iter().filter(|other| *other == key).count() as u64;
                spectral.count(&[*key]) >= times.min((1 << width) - 1)
            })
        }

        fn by_recurring_minimum_what_is_not_removed_is_found(keys: Vec<u8>, cells: u8) -> bool {
            let mut spectral = Spectral::with_shape(1 + u64::from(cells), 16, 4, Method::RecurringMinimum, 1).unwrap();
            keys.iter().for_each(|key| spectral.insert(&[*key]));
            let (kept, removed) = keys.split_at(keys.len() / 2);
            removed.iter().for_each(|key| spectral.remove(&[*key]).unwrap());
            kept.iter().all(|key| spectral.contains(&[*key]) && spectral.count(&[*key]) > 0)
        }
    }

    #[test]
    fn both_methods_are_more_exact_than_plain_counters() {
        let mut plain = Cells::new(5000, 16).unwrap();
        stream().for_each(|hash| add(&mut plain, 5, hash));
        let (plain, _) = wrong(|hash| least(&plain, 5, hash).0);
        let [minimal, recurring] = Method::ALL.map(|method| {
            let spectral = filled(method, 5000);
            wrong(|hash| spectral.count_hash(hash))
        });
        assert_eq!(minimal.1, 0, "too low");
        let recurring = recurring.0 + recurring.1;
        assert!(4 * minimal.0 < 3 * plain && 4 * recurring < 3 * plain, "{plain} {minimal:?} {recurring}");
    }

    #[test]
    fn the_share_of_wrong_counts_is_that_of_the_formula_and_less() {
        let mut spectral = Spectral::with_shape(50_000, 8, 4, Method::RecurringMinimum, 1).unwrap();
        (0..10_000).for_each(|key| spectral.insert_hash(hash(key)));
        let found = absent_hashes(100_000).filter(|&hash| spectral.count_hash(hash) > 0).count();
        assert_rate("counted", found as u64, 100_000, spectral.expected_rate(10_000), 0.02);
        let wrong = (0..10_000).filter(|&key| spectral.count_hash(hash(key)) != 1).count();
        assert!((wrong as f64) < 1.1 * spectral.predicted_rate() * 10_000.0, "{wrong}");
    }

    #[test]
    fn only_recurring_minimum_takes_back() {
        let mut minimal = filled(Method::MinimalIncrease, 5000);
        let before = minimal.clone();
        assert!(matches!(minimal.remove_hash(hash(1)), Err(Error::InvalidArgument(_))));
        assert!(minimal == before);
        let mut recurring = filled(Method::RecurringMinimum, 50_000);
        assert_eq!(recurring.remove(b"never"), Err(Error::Absent));
        (0..1000).for_each(|key| (1..times(key)).for_each(|_| recurring.remove_hash(hash(key)).unwrap()));
        assert!((0..1000).filter(|&key| recurring.count_hash(hash(key)) == 1).count() > 990);
    }

    #[test]
    fn counters_that_reach_their_end_stay_there() {
        for method in Method::ALL {
            let mut spectral = Spectral::with_shape(100, 2, 3, method, 1).unwrap();
            (0..10).for_each(|_| spectral.insert(b"often"));
            assert_eq!(spectral.count(b"often"), 3);
        }
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        for method in Method::ALL {
            let mut spectral = Spectral::with_shape(77, 3, 3, method, 1).unwrap();
            (0..40).for_each(|key| spectral.insert_hash(hash(key)));
            check_codec(&spectral);
        }
    }
}
