//! The scalable Bloom filter: a bounded rate at any size.
//!
//! 1. The first slice is a Bloom filter for `n` keys.
//! 2. When half of the newest slice's bits are set, add a slice for `s` times as many keys at `t` times the rate.
//! 3. A new key is inserted into the newest slice. A query probes all.
//!
//! Slice `i` has the rate `P0 · t^i`, all together at most `P0 / (1 - t)`: `P` for `P0 = P (1 - t)` (Almeida, Baquero, Preguiça
//! and Hutchison, 2007, section 3). A slice with `ceil(log2(1 / rate))` probes reaches its rate when half of its bits are set.

use crate::arithmetic::{checked_rate, rate_from_bits, rate_to_bits};
use crate::bloom::Bloom;
use crate::envelope::{DecodeError, Kind};
use crate::error::Error;
use crate::hash::key_hash;
use crate::probes::{Hashing, PROBES_MAX};
use crate::sketch::{Parts, Sketch, Summary};

const BITS_MAX: u64 = 1 << 48;

const SLICES_MAX: usize = 64;

/// The ratio of the rates of successive slices.
const TIGHTENING: f64 = 0.85;

/// A Bloom filter that grows with its keys.
///
/// ```
/// use sievedb_sketches::Scalable;
///
/// let mut seen = Scalable::with_rate(0.01, 42)?;
/// for key in 0..100_000u64 {
///     seen.insert(&key.to_be_bytes())?;
/// }
/// assert!(seen.contains(&7u64.to_be_bytes()));
/// assert!(seen.predicted_rate() < 0.01);
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
///
/// # Guarantees
///
/// An inserted key is found, any other with at most the requested rate on average.
///
/// # Cost
///
/// An absent key probes two bits in each of about `log2(keys / first capacity)` slices, most present keys one slice. At 1 % and
/// 10,000 to 2 million keys: 15 bits per key with a full slice, 34 with a new one.
///
/// # When not to use it
///
/// A known number of keys: [`Bloom`] is smaller and faster.
#[derive(Debug, Clone, PartialEq)]
pub struct Scalable {
    slices: Vec<Slice>,
    first_keys: u64,
    growth: u64,
    rate: u64,
    tightening: u64,
    seed: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Slice {
    bloom: Bloom,
    ones: u64,
}

impl Scalable {
    /// At most `rate`, with slices for 1024, 2048, 4096 … keys.
    ///
    /// # Errors
    ///
    /// As [`Scalable::with_shape`].
    pub fn with_rate(rate: f64, seed: u64) -> Result<Self, Error> {
        Self::with_shape(1024, 2, rate, TIGHTENING, seed)
    }

    /// At most `rate`, with a first slice for `first_keys` keys, each further one for `growth` times the keys at `tightening`
    /// times the rate.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless both rates are between 0 and 1 and need at most 64 probes, the growth is 1 to 16, and
    /// there are first keys; [`Error::TooLarge`].
    pub fn with_shape(
        first_keys: u64,
        growth: u64,
        rate: f64,
        tightening: f64,
        seed: u64,
    ) -> Result<Self, Error> {
        if first_keys == 0 || !(1..=16).contains(&growth) {
            return Err(Error::invalid(format!(
                "{first_keys} keys and growth by {growth}, expected 1 or more and 1 to 16"
            )));
        }
        let (rate, tightening) = (rate_to_bits(checked_rate(rate)?), rate_to_bits(checked_rate(tightening)?));
        let mut filter = Self { slices: Vec::new(), first_keys, growth, rate, tightening, seed };
        match filter.begin_slice() {
            Err(Error::Full) => {
                Err(Error::invalid(format!("a rate of {} takes too many probes", rate_from_bits(rate))))
            }
            begun => begun.map(|()| filter),
        }
    }

    fn begin_slice(&mut self) -> Result<(), Error> {
        let number = self.slices.len();
        let tightening = rate_from_bits(self.tightening);
        let rate = rate_from_bits(self.rate) * (1.0 - tightening) * tightening.powi(number as i32);
        let probes = (-rate.log2()).ceil().max(1.0);
        if probes > PROBES_MAX as f64 || number >= SLICES_MAX {
            return Err(Error::Full);
        }
        // Half of the bits are set after keys · probes / ln 2 draws.
        let keys = self.first_keys as f64 * (self.growth as f64).powi(number as i32);
        let bits = (keys * probes / std::f64::consts::LN_2).ceil().max(64.0);
        if bits > BITS_MAX as f64 {
            return Err(Error::TooLarge((bits / 8.0) as u64));
        }
        let bloom = Bloom::with_shape(bits as u64, probes as u64, Hashing::Enhanced, self.seed)?;
        self.slices.push(Slice { bloom, ones: 0 });
        Ok(())
    }

    /// Adds a key. Returns the answer of [`contains`](Self::contains) before.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] or [`Error::TooLarge`] if a needed slice cannot be added.
    pub fn insert(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool, Error> {
        self.insert_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    ///
    /// # Errors
    ///
    /// As [`Scalable::insert`].
    pub fn insert_hash(&mut self, hash: u64) -> Result<bool, Error> {
        if self.contains_hash(hash) {
            return Ok(true);
        }
        if self.slices.last().is_none_or(|slice| 2 * slice.ones >= slice.bloom.bits()) {
            self.begin_slice()?;
        }
        if let Some(newest) = self.slices.last_mut() {
            newest.ones += newest.bloom.insert_counted(hash);
        }
        Ok(false)
    }

    /// Whether a key may be present. `false` is certain.
    #[must_use]
    pub fn contains(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.contains_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`contains`](Self::contains) by [hash](crate::hash).
    #[must_use]
    pub fn contains_hash(&self, hash: u64) -> bool {
        self.slices.iter().rev().any(|slice| slice.bloom.contains_hash(hash))
    }

    /// The rate of the current bits.
    #[must_use]
    pub fn predicted_rate(&self) -> f64 {
        let recognised = |slice: &Slice| {
            1.0 - (slice.ones as f64 / slice.bloom.bits() as f64).powf(slice.bloom.probes() as f64)
        };
        1.0 - self.slices.iter().map(recognised).product::<f64>()
    }

    /// Estimates the distinct keys. `None` if all bits of a slice are set.
    #[must_use]
    pub fn estimate_keys(&self) -> Option<f64> {
        self.slices.iter().map(|slice| slice.bloom.estimate_keys()).sum()
    }

    /// Number of slices.
    #[must_use]
    pub fn slices(&self) -> usize {
        self.slices.len()
    }

    /// Number of bits of all slices.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.slices.iter().map(|slice| slice.bloom.bits()).sum()
    }
}

impl Sketch for Scalable {
    const KIND: Kind = Kind::Scalable;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        let slices = self.slices.len() as u64;
        let mut parameters = vec![self.first_keys, self.growth, self.rate, self.tightening, slices];
        parameters.extend(self.slices.iter().flat_map(|slice| [slice.bloom.bits(), slice.bloom.probes()]));
        parameters
    }

    fn body(&self) -> Vec<u8> {
        self.slices.iter().flat_map(|slice| slice.bloom.body()).collect()
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let first_keys = parameters.number_in(1, u64::MAX, "scalable first keys")?;
        let growth = parameters.number_in(1, 16, "scalable growth")?;
        let rate = parameters.number_in(1, u64::MAX, "scalable rate")?;
        let tightening = parameters.number_in(1, u64::MAX, "scalable tightening")?;
        let count = parameters.number_in(1, SLICES_MAX as u64, "scalable slices")?;
        let mut shapes = Vec::new();
        for _ in 0..count {
            let bits = parameters.number_in(1, BITS_MAX, "scalable bits")?;
            shapes.push((bits, parameters.number_in(1, PROBES_MAX, "scalable probes")?));
        }
        parameters.finish()?;
        let mut body = parts.body_of(Some(shapes.iter().map(|(bits, _)| bits.div_ceil(8)).sum()))?;
        let mut slices = Vec::new();
        for (bits, probes) in shapes {
            let (bytes, rest) = body.split_at(bits.div_ceil(8) as usize);
            let bloom = Bloom::from_bits(&parts, bytes, bits, probes, Hashing::Enhanced)?;
            let ones = bloom.ones();
            slices.push(Slice { bloom, ones });
            body = rest;
        }
        Ok(Self { slices, first_keys, growth, rate, tightening, seed: parts.seed })
    }

    fn summary(&self) -> Summary {
        let keys = self
            .estimate_keys()
            .map_or("unknown, because all bits of a slice are set".into(), |keys| format!("about {keys:.0}"));
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("slices", self.slices.len().to_string()),
                ("bits", self.bits().to_string()),
                ("rate limit", format!("{:.4} %", 100.0 * rate_from_bits(self.rate))),
                ("keys", keys),
            ],
            predicted_rate: Some(self.predicted_rate()),
            body_bytes: self.slices.iter().map(|slice| slice.bloom.bits().div_ceil(8)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hashes};

    fn filled(filter: Scalable, keys: u64) -> Scalable {
        let mut filter = filter;
        hashes(keys).for_each(|hash| {
            filter.insert_hash(hash).unwrap();
        });
        filter
    }

    quickcheck! {
        fn what_was_inserted_is_found(keys: Vec<u16>, first: u8, growth: u8, seed: u64) -> bool {
            let (first, growth) = (1 + u64::from(first) % 8, 1 + u64::from(growth) % 4);
            let mut filter = Scalable::with_shape(first, growth, 0.1, 0.9, seed).unwrap();
            let mut kept = Vec::new();
            for key in keys {
                if filter.insert(&key.to_le_bytes()).is_ok() {
                    kept.push(key);
                }
            }
            kept.iter().all(|key| filter.contains(&key.to_le_bytes()))
        }

        fn a_key_that_is_inserted_again_takes_no_room(keys: Vec<u16>) -> bool {
            let mut filter = Scalable::with_shape(8, 2, 0.01, 0.5, 1).unwrap();
            keys.iter().for_each(|key| { filter.insert(&key.to_le_bytes()).unwrap(); });
            let before = filter.clone();
            keys.iter().all(|key| filter.insert(&key.to_le_bytes()).unwrap()) && filter == before
        }
    }

    #[test]
    fn the_rate_is_held_through_every_number_of_slices() {
        let rate = 0.02;
        let mut filter = Scalable::with_shape(100, 2, rate, 0.8, 1).unwrap();
        let mut slices = 0;
        for (number, hash) in hashes(60_000).enumerate() {
            filter.insert_hash(hash).unwrap();
            if filter.slices() > slices || number == 59_999 {
                slices = filter.slices();
                let found = absent_hashes(50_000).filter(|&hash| filter.contains_hash(hash)).count();
                assert_rate(&format!("{slices}"), found as u64, 50_000, filter.predicted_rate(), 0.02);
                assert!(filter.predicted_rate() < rate, "{slices}");
            }
        }
        assert_eq!(slices, 10);
        let keys = filter.estimate_keys().unwrap();
        assert!((keys / 60_000.0 - 1.0).abs() < 0.03, "{keys}");
    }

    #[test]
    fn parameters_without_meaning_are_refused_and_a_filter_at_its_end_is_full() {
        assert!(Scalable::with_shape(0, 2, 0.1, 0.5, 1).is_err());
        assert!(Scalable::with_shape(1, 17, 0.1, 0.5, 1).is_err());
        assert!(Scalable::with_shape(1, 2, 0.1, 1.0, 1).is_err());
        let mut filter = Scalable::with_shape(1, 1, 0.1, 0.05, 1).unwrap();
        let full = hashes(10_000).map(|hash| filter.insert_hash(hash)).find_map(Result::err);
        assert_eq!(full, Some(Error::Full));
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        check_codec(&filled(Scalable::with_shape(2, 2, 0.1, 0.5, 1).unwrap(), 15));
    }
}
