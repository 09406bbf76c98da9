//! The textbook Bloom filter: an array of bits.
//!
//! A key sets `k` of `m` bits. It is possibly present if all are set. The rate is `(1 - e^(-kn/m))^k` (Bloom 1970;
//! [`arithmetic`](crate::arithmetic)). [`Hashing`] chooses the bits, by default as in the store's filter blocks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::arithmetic::{self, checked_rate, keys_of_ones, optimal_bits, optimal_probes};
use crate::envelope::{self, DecodeError, Envelope, FileId, Kind, bytes_to_words, words_to_bytes};
use crate::error::Error;
use crate::hash::key_hash;
use crate::probes::{Hashing, PROBES_MAX};
use crate::sketch::{Parts, Sketch, Summary};

/// 2^48: more than any memory holds.
const BITS_MAX: u64 = 1 << 48;

/// A Bloom filter for a growing set.
///
/// ```
/// use sievedb_sketches::Bloom;
///
/// let mut words = Bloom::with_rate(10_000, 0.01, 42)?;
/// words.insert(b"apple");
/// assert!(words.contains(b"apple"));
/// assert!(words.estimate_keys().unwrap().round() == 1.0);
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
///
/// # Guarantees
///
/// An inserted key is always found, any other with probability [`Bloom::predicted_rate`]. A union equals the filter of both sets.
///
/// # Cost
///
/// `k` probes for an insertion or a present key, two on average for an absent key, each in a cache line. 9.6 bits per key for
/// 1 %.
///
/// # When not to use it
///
/// Complete sets: the ribbon filter of `sievedb-filter`. Unknown sizes: [`Scalable`](crate::Scalable). Removals:
/// [`Counting`](crate::Counting) or [`Cuckoo`](crate::Cuckoo).
#[derive(Debug)]
pub struct Bloom {
    words: Box<[AtomicU64]>,
    shape: Shape,
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    bits: u64,
    probes: u64,
    hashing: Hashing,
}

impl Shape {
    #[inline]
    fn positions(self, hash: u64) -> impl Iterator<Item = u64> {
        self.hashing.positions(hash, self.probes, self.bits)
    }

    fn words(self) -> u64 {
        self.bits.div_ceil(64)
    }

    fn body_bytes(self) -> u64 {
        self.bits.div_ceil(8)
    }
}

impl Bloom {
    /// A filter for `keys` keys at `rate`, but never full.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless `0 < rate < 1`; [`Error::TooLarge`].
    pub fn with_rate(keys: u64, rate: f64, seed: u64) -> Result<Self, Error> {
        let bits = optimal_bits(keys.max(1), checked_rate(rate)?).max(64);
        Self::with_best_probes(bits, keys, seed)
    }

    /// At most `bytes` bytes, best for `keys` keys.
    ///
    /// # Errors
    ///
    /// As [`Bloom::with_shape`].
    pub fn with_memory(keys: u64, bytes: u64, seed: u64) -> Result<Self, Error> {
        Self::with_best_probes(bytes.saturating_mul(8), keys, seed)
    }

    fn with_best_probes(bits: u64, keys: u64, seed: u64) -> Result<Self, Error> {
        let probes = optimal_probes(bits as f64 / keys.max(1) as f64).min(30);
        Self::with_shape(bits, probes, Hashing::Enhanced, seed)
    }

    /// `bits` bits, `probes` per key.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless there are bits and 1 to 64 probes; [`Error::TooLarge`] beyond 2^48 bits or the memory.
    pub fn with_shape(bits: u64, probes: u64, hashing: Hashing, seed: u64) -> Result<Self, Error> {
        if bits == 0 || probes == 0 || probes > PROBES_MAX {
            let detail = format!("{bits} bits and {probes} probes, expected 1 or more and 1 to {PROBES_MAX}");
            return Err(Error::invalid(detail));
        }
        let shape = Shape { bits, probes, hashing };
        if bits > BITS_MAX {
            return Err(Error::TooLarge(shape.body_bytes()));
        }
        let mut words = Vec::new();
        words.try_reserve_exact(shape.words() as usize).map_err(|_| Error::TooLarge(shape.body_bytes()))?;
        words.resize_with(shape.words() as usize, AtomicU64::default);
        Ok(Self { words: words.into(), shape, seed })
    }

    /// Adds a key. Returns the answer of [`contains`](Self::contains) before.
    pub fn insert(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.insert_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    pub fn insert_hash(&mut self, hash: u64) -> bool {
        self.insert_counted(hash) == 0
    }

    /// Adds a key while other threads use the filter. If two add the same new key, at least one gets `false`. Queries ordered
    /// after the insertion (by a lock, a channel or a join) find the key.
    pub fn insert_shared(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.insert_hash_shared(key_hash(self.seed, key.as_ref()))
    }

    /// [`insert_shared`](Self::insert_shared) by [hash](crate::hash).
    pub fn insert_hash_shared(&self, hash: u64) -> bool {
        let mut all = true;
        for bit in self.shape.positions(hash) {
            let (word, mask) = (&self.words[(bit / 64) as usize], 1 << (bit % 64));
            if word.load(Relaxed) & mask == 0 {
                all &= word.fetch_or(mask, Relaxed) & mask != 0;
            }
        }
        all
    }

    /// Whether a key may be present. `false` is certain.
    #[must_use]
    pub fn contains(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.contains_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`contains`](Self::contains) by [hash](crate::hash).
    #[must_use]
    #[inline]
    pub fn contains_hash(&self, hash: u64) -> bool {
        self.shape
            .positions(hash)
            .all(|bit| self.words[(bit / 64) as usize].load(Relaxed) >> (bit % 64) & 1 == 1)
    }

    /// Returns the number of bits set.
    pub(crate) fn insert_counted(&mut self, hash: u64) -> u64 {
        let mut set = 0;
        for bit in self.shape.positions(hash) {
            let word = self.words[(bit / 64) as usize].get_mut();
            set += u64::from(*word >> (bit % 64) & 1 == 0);
            *word |= 1 << (bit % 64);
        }
        set
    }

    pub(crate) fn from_bits(
        parts: &Envelope<'_>,
        bytes: &[u8],
        bits: u64,
        probes: u64,
        hashing: Hashing,
    ) -> Result<Self, DecodeError> {
        if !bits.is_multiple_of(8) && bytes.last().is_some_and(|last| last >> (bits % 8) != 0) {
            return Err(parts.corrupt("Bloom body", "bits after the last one are set"));
        }
        let words = bytes_to_words(bytes).map(AtomicU64::new).collect();
        Ok(Self { words, shape: Shape { bits, probes, hashing }, seed: parts.seed })
    }

    pub(crate) fn word_count(&self) -> usize {
        self.words.len()
    }

    /// Clears up to `count` words. Returns the number of the next.
    pub(crate) fn clear_words(&mut self, from: usize, count: usize) -> usize {
        let to = from.saturating_add(count).min(self.words.len());
        self.words[from..to].iter_mut().for_each(|word| *word.get_mut() = 0);
        to
    }

    pub(crate) fn set(&mut self, bit: u64) {
        *self.words[(bit / 64) as usize].get_mut() |= 1 << (bit % 64);
    }

    /// Clears all bits.
    pub fn clear(&mut self) {
        self.words.iter_mut().for_each(|word| *word.get_mut() = 0);
    }

    /// The filter of the keys of both. Linear.
    ///
    /// # Errors
    ///
    /// [`Error::Differ`] in bits, probes, hashing or seed.
    pub fn union(&self, other: &Self) -> Result<Self, Error> {
        self.merged(other, |one, two| one | two)
    }

    /// A filter with every common key, at the smaller filter's rate or less. Linear.
    ///
    /// # Errors
    ///
    /// As [`Bloom::union`].
    pub fn intersection(&self, other: &Self) -> Result<Self, Error> {
        self.merged(other, |one, two| one & two)
    }

    fn merged(&self, other: &Self, merge: impl Fn(u64, u64) -> u64) -> Result<Self, Error> {
        Error::unless_same(&[
            ("bits", self.shape.bits == other.shape.bits),
            ("probes", self.shape.probes == other.shape.probes),
            ("hashing", self.shape.hashing == other.shape.hashing),
            ("seed", self.seed == other.seed),
        ])?;
        let merged = self.loads().zip(other.loads()).map(|(one, two)| AtomicU64::new(merge(one, two)));
        Ok(Self { words: merged.collect(), shape: self.shape, seed: self.seed })
    }

    /// Estimates the distinct keys. `None` if all bits are set. Linear.
    #[must_use]
    pub fn estimate_keys(&self) -> Option<f64> {
        keys_of_ones(self.shape.bits, self.shape.probes, self.ones())
    }

    /// Estimates the common keys. `None` if all bits of one are set. Linear.
    ///
    /// # Errors
    ///
    /// As [`Bloom::union`].
    pub fn estimate_common(&self, other: &Self) -> Result<Option<f64>, Error> {
        let union = self.union(other)?;
        let all = self.estimate_keys().zip(other.estimate_keys()).zip(union.estimate_keys());
        Ok(all.map(|((one, two), union)| one + two - union))
    }

    /// The rate of the current bits: `(ones / m)^k`. Linear.
    #[must_use]
    pub fn predicted_rate(&self) -> f64 {
        (self.ones() as f64 / self.shape.bits as f64).powf(self.shape.probes as f64)
    }

    /// The expected rate at `keys` keys.
    #[must_use]
    pub fn expected_rate(&self, keys: u64) -> f64 {
        arithmetic::rate(self.shape.bits as f64 / keys as f64, self.shape.probes as f64)
    }

    /// Number of bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.shape.bits
    }

    /// Bits per key.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.shape.probes
    }

    /// How positions are derived from a hash.
    #[must_use]
    pub fn hashing(&self) -> Hashing {
        self.shape.hashing
    }

    /// The block of `sievedb-filter` with these bits, this seed and salt 0. If `keys` is 0, it reports every key as absent.
    /// Linear.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless the hashing is [`Hashing::Enhanced`] with up to 30 probes; [`Error::TooLarge`].
    pub fn freeze(&self, owner: FileId, keys: u64) -> Result<Vec<u8>, Error> {
        if self.shape.hashing != Hashing::Enhanced || self.shape.probes > 30 {
            return Err(Error::invalid("a filter block has enhanced double hashing and up to 30 probes"));
        }
        envelope::filter_block(self.shape.bits, self.shape.probes as u8, &self.body(), self.seed, owner, keys)
    }

    fn loads(&self) -> impl Iterator<Item = u64> {
        self.words.iter().map(|word| word.load(Relaxed))
    }

    pub(crate) fn ones(&self) -> u64 {
        self.loads().map(|word| u64::from(word.count_ones())).sum()
    }
}

impl Clone for Bloom {
    fn clone(&self) -> Self {
        Self { words: self.loads().map(AtomicU64::new).collect(), shape: self.shape, seed: self.seed }
    }
}

impl PartialEq for Bloom {
    fn eq(&self, other: &Self) -> bool {
        (self.shape, self.seed) == (other.shape, other.seed) && self.loads().eq(other.loads())
    }
}

impl<K: AsRef<[u8]>> Extend<K> for Bloom {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        keys.into_iter().for_each(|key| {
            self.insert(&key);
        });
    }
}

impl Sketch for Bloom {
    const KIND: Kind = Kind::Bloom;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.shape.bits, self.shape.probes, self.shape.hashing as u64]
    }

    fn body(&self) -> Vec<u8> {
        words_to_bytes(self.loads(), self.shape.body_bytes())
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let bits = parameters.number_in(1, BITS_MAX, "Bloom bits")?;
        let probes = parameters.number_in(1, PROBES_MAX, "Bloom probes")?;
        let hashing = parameters.number_in(1, Hashing::ALL.len() as u64, "Bloom hashing")?;
        parameters.finish()?;
        let body = parts.body_of(Some(bits.div_ceil(8)))?;
        Self::from_bits(&parts, body, bits, probes, Hashing::ALL[hashing as usize - 1])
    }

    fn summary(&self) -> Summary {
        let estimate = self
            .estimate_keys()
            .map_or("unknown, because all bits are set".into(), |keys| format!("about {keys:.0}"));
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("bits", self.shape.bits.to_string()),
                ("probes", self.shape.probes.to_string()),
                ("hashing", format!("{:?}", self.shape.hashing).to_lowercase()),
                ("keys", estimate),
            ],
            predicted_rate: Some(self.predicted_rate()),
            body_bytes: self.shape.body_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use quickcheck::quickcheck;
    use sievedb_filter::{Expect, Filter, FilterBuilder, Kind as FilterKind};

    use super::*;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hashes};

    fn filled(bits: u64, probes: u64, hashing: Hashing, keys: u64) -> Bloom {
        let mut bloom = Bloom::with_shape(bits, probes, hashing, 1).unwrap();
        hashes(keys).for_each(|hash| {
            bloom.insert_hash(hash);
        });
        bloom
    }

    quickcheck! {
        fn what_was_inserted_is_found(keys: Vec<Vec<u8>>, bits: u16, probes: u8, seed: u64) -> bool {
            let hashing = Hashing::ALL[seed as usize % 4];
            let mut bloom = Bloom::with_shape(1 + u64::from(bits), 1 + u64::from(probes) % 64, hashing, seed).unwrap();
            bloom.extend(&keys);
            keys.iter().all(|key| bloom.contains(key))
        }

        fn decoding_gives_back_what_was_encoded(keys: Vec<Vec<u8>>, bits: u16, seed: u64) -> bool {
            let mut bloom = Bloom::with_shape(1 + u64::from(bits), 5, Hashing::Triple, seed).unwrap();
            bloom.extend(&keys);
            Bloom::decode(&bloom.encode()).unwrap() == bloom
        }

        fn a_union_is_the_filter_of_both_sets(one: Vec<u64>, two: Vec<u64>) -> bool {
            let (mut a, mut b, mut both) = (filled(999, 4, Hashing::Enhanced, 0), filled(999, 4, Hashing::Enhanced, 0), filled(999, 4, Hashing::Enhanced, 0));
            for &hash in &one { a.insert_hash(hash); both.insert_hash(hash); }
            for &hash in &two { b.insert_hash(hash); both.insert_hash(hash); }
            a.union(&b).unwrap() == both
        }

        fn an_intersection_has_every_common_key(one: HashSet<u8>, two: HashSet<u8>) -> bool {
            let (mut a, mut b) = (filled(999, 4, Hashing::Seeded, 0), filled(999, 4, Hashing::Seeded, 0));
            a.extend(one.iter().map(|key| [*key]));
            b.extend(two.iter().map(|key| [*key]));
            let common = a.intersection(&b).unwrap();
            one.intersection(&two).all(|key| common.contains(&[*key]))
        }
    }

    #[test]
    fn every_hashing_has_the_rate_of_the_formula() {
        for hashing in Hashing::ALL {
            for probes in [1, 4, 7, 10] {
                let bloom = filled(100_000, probes, hashing, 10_000);
                let found = absent_hashes(400_000).filter(|&hash| bloom.contains_hash(hash)).count();
                assert_rate(
                    &format!("{hashing:?} {probes}"),
                    found as u64,
                    400_000,
                    bloom.expected_rate(10_000),
                    0.05,
                );
            }
        }
    }

    #[test]
    fn double_hashing_has_a_floor_that_the_others_do_not_have() {
        let rate = |hashing| {
            let bloom = filled(400, 20, hashing, 14);
            absent_hashes(2_000_000).filter(|&hash| bloom.contains_hash(hash)).count()
        };
        // The formula gives 2 of the 2 000 000.
        let found = Hashing::ALL.map(rate);
        assert!(found[0] > 200 && found[1..].iter().all(|&found| found < 20), "{found:?}");
    }

    #[test]
    fn keys_are_estimated_within_two_per_cent() {
        for keys in [100, 1000, 20_000] {
            let estimate = filled(200_000, 5, Hashing::Enhanced, keys).estimate_keys().unwrap();
            assert!((estimate / keys as f64 - 1.0).abs() < 0.02, "{keys}: {estimate}");
        }
        let one = filled(200_000, 5, Hashing::Enhanced, 3000);
        let common = one.estimate_common(&filled(200_000, 5, Hashing::Enhanced, 10_000)).unwrap().unwrap();
        assert!((common - 3000.0).abs() < 100.0, "{common}");
        assert_eq!(filled(1, 1, Hashing::Double, 3).estimate_keys(), None);
    }

    #[test]
    fn sizes_are_the_textbook_ones() {
        let bloom = Bloom::with_rate(1000, 0.001, 1).unwrap();
        assert_eq!((bloom.bits(), bloom.probes()), (14_378, 10));
        let bloom = Bloom::with_memory(1000, 1000, 1).unwrap();
        assert_eq!((bloom.bits(), bloom.probes()), (8000, 6));
        assert!(Bloom::with_rate(10, 1.0, 1).is_err());
        assert!(Bloom::with_shape(0, 1, Hashing::Double, 1).is_err());
        assert!(Bloom::with_shape(1, 65, Hashing::Double, 1).is_err());
        assert_eq!(Bloom::with_shape(u64::MAX, 1, Hashing::Double, 1), Err(Error::TooLarge(1 << 61)));
    }

    #[test]
    fn a_frozen_filter_is_the_block_that_the_filter_crate_builds() {
        for (bits, probes) in [(64, 1), (1000, 7), (99_991, 30)] {
            let mut bloom = Bloom::with_shape(bits, probes, Hashing::Enhanced, 7).unwrap();
            let builder = FilterBuilder::new(FilterKind::Bloom, 10.0, 7, 0, [3; 16]).unwrap();
            let mut builder = builder.bits_and_probes(bits, probes as u8).unwrap();
            for key in 0..100u64 {
                bloom.insert(&key.to_le_bytes());
                builder.add_key(&key.to_le_bytes());
            }
            let block = bloom.freeze([3; 16], 100).unwrap();
            assert!(block == builder.finish().unwrap(), "{bits} bits, {probes} probes");
            let filter = Filter::open(&block, Expect::table([3; 16], 7, 100)).unwrap();
            assert!((0..100u64).all(|key| filter.may_contain_key(&key.to_le_bytes())));
        }
        assert!(filled(1000, 7, Hashing::Double, 1).freeze([3; 16], 1).is_err());
        assert!(filled(1000, 31, Hashing::Enhanced, 1).freeze([3; 16], 1).is_err());
    }

    #[test]
    fn threads_that_insert_at_once_lose_no_key() {
        let bloom = Bloom::with_rate(40_000, 0.01, 1).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let bloom = &bloom;
                scope.spawn(move || {
                    (thread * 5000..thread * 5000 + 10_000).for_each(|key| {
                        bloom.insert_shared(&key.to_le_bytes());
                    });
                });
            }
        });
        let mut alone = Bloom::with_rate(40_000, 0.01, 1).unwrap();
        alone.extend((0..25_000u64).map(u64::to_le_bytes));
        assert!(bloom == alone);
    }

    #[test]
    fn insertion_says_whether_the_key_was_found_before() {
        let mut bloom = filled(100_000, 7, Hashing::Enhanced, 0);
        assert!(!bloom.insert(b"apple") && bloom.insert(b"apple"));
        assert!(!bloom.insert_shared(b"kiwi") && bloom.insert_shared(b"kiwi"));
        bloom.clear();
        assert!(!bloom.contains(b"apple"));
    }

    #[test]
    fn filters_that_are_not_alike_are_not_combined() {
        let one = filled(1000, 7, Hashing::Enhanced, 9);
        assert_eq!(one.union(&filled(1001, 7, Hashing::Enhanced, 9)), Err(Error::Differ("bits")));
        assert_eq!(one.union(&filled(1000, 6, Hashing::Enhanced, 9)), Err(Error::Differ("probes")));
        assert_eq!(one.union(&filled(1000, 7, Hashing::Triple, 9)), Err(Error::Differ("hashing")));
        let other = Bloom::with_shape(1000, 7, Hashing::Enhanced, 2).unwrap();
        assert_eq!(one.intersection(&other), Err(Error::Differ("seed")));
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        check_codec(&filled(77, 3, Hashing::Enhanced, 4));
        let mut bytes = filled(77, 3, Hashing::Enhanced, 4).encode();
        *bytes.last_mut().unwrap() |= 0x80;
        envelope::reseal(&mut bytes);
        assert_eq!(Bloom::decode(&bytes).unwrap_err().what, "Bloom body");
    }
}
