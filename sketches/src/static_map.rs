//! The Bloomier filter: a map to small values that does not store its keys.
//!
//! Every key is an equation over single bits: the exclusive or of some bits of a window of a table equals a bit of the key's
//! value, in every column. Further columns hold a fingerprint, which an absent key matches only by chance.
//!
//! 1. The high bits of the hash choose a shard: a system for 3,000 keys on average, with 0.5 % more slots (at least 128).
//! 2. The hash, mixed with the attempt, gives the first slot of a window and 128 coefficients, the first 1. The outermost slots
//!    would have too few equations, so 64 times as many start there.
//! 3. Elimination adds equations to a band matrix: if the first slot is taken, the equation there is added, and the sum moves
//!    right to its next coefficient. A contradiction starts the next attempt; after sixteen attempts, with more slots.
//! 4. The slots are solved from last to first. Free slots are 0: the table depends only on the pairs.
//!
//! Charles and Chellapilla, ESA 2008; Dietzfelbinger and Pagh 2008; Porat 2009 (linear system); Dillinger and Walzer 2021
//! (ribbon, and this row); Chazelle, Kilian, Rubinfeld, Tal 2004 (the name).

use crate::envelope::{DecodeError, Kind, bytes_to_words, put_varint, words_to_bytes};
use crate::error::Error;
use crate::hash::{key_hash, nth, reduce, spread};
use crate::sketch::{Parts, Sketch, Summary};

/// Larger systems need more slots.
const SHARD_KEYS: u64 = 3000;

/// Window of an equation.
const WIDE: u64 = 128;

const BLOCK_SLOTS: u64 = 64;

/// Additional hashes for the outermost starts.
const SMASH: u64 = 63;

const ATTEMPTS_MAX: u64 = 256;

/// Value and fingerprint together.
const COLUMNS_MAX: u32 = 64;

/// A map from keys to values of a few bits.
///
/// # Guarantees
///
/// - For a key of the map, [`get`](Self::get) is its value.
/// - For any other key it is `None`, or arbitrary with probability `2^-fingerprint_bits`
///   ([`predicted_rate`](Self::predicted_rate)).
///
/// # Cost
///
/// `value_bits + fingerprint_bits` per key, and less than 1 % more from 30,000 keys on; at least 128 slots. Building sorts the
/// hashes and takes about 200 ns per key and column group; a lookup reads three adjacent blocks.
///
/// # When not to use it
///
/// Values that change; keys that must be listed; values of more than 64 bits.
///
/// ```
/// use sievedb_sketches::StaticMap;
///
/// let shards = StaticMap::build([("apple", 3), ("banana", 5)], 3, 8, 7)?;
/// assert_eq!((shards.get("apple"), shards.get("banana")), (Some(3), Some(5)));
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticMap {
    seed: u64,
    len: u64,
    value_bits: u32,
    fingerprint_bits: u32,
    shards: Vec<Shard>,
    slots: u64,
    words: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shard {
    first: u64,
    slots: u64,
    attempt: u64,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    start: u64,
    coefficients: u128,
}

impl Row {
    #[inline]
    fn new(hash: u64, slots: u64, attempt: u64) -> Self {
        let hash = nth(hash, attempt + 2);
        let last = slots - WIDE;
        let start = reduce(hash, last + 1 + 2 * SMASH).saturating_sub(SMASH).min(last);
        let (low, high) = (nth(hash, 1), nth(hash, 2));
        Self { start, coefficients: u128::from(high) << 64 | u128::from(low | 1) }
    }
}

impl StaticMap {
    /// The map of these keys and values; values are below `2^value_bits`, and `fingerprint_bits` detect absent keys. Both
    /// together are 1 to 64. `O(n log n)`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for other bits or values; [`Error::Duplicate`] for equal keys or hashes (3 in 10^8 for a
    /// million distinct keys; use another seed); [`Error::TooLarge`].
    pub fn build<K: AsRef<[u8]>>(
        pairs: impl IntoIterator<Item = (K, u64)>,
        value_bits: u32,
        fingerprint_bits: u32,
        seed: u64,
    ) -> Result<Self, Error> {
        let hashed = pairs.into_iter().map(|(key, value)| (key_hash(seed, key.as_ref()), value));
        Self::from_hashes(hashed.collect(), value_bits, fingerprint_bits, seed)
    }

    /// [`build`](Self::build) by hashes.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn from_hashes(
        mut pairs: Vec<(u64, u64)>,
        value_bits: u32,
        fingerprint_bits: u32,
        seed: u64,
    ) -> Result<Self, Error> {
        let columns = value_bits.saturating_add(fingerprint_bits);
        if !(1..=COLUMNS_MAX).contains(&columns) {
            let detail = format!(
                "{value_bits} bits of value and {fingerprint_bits} of fingerprint, expected 1 to 64 in all"
            );
            return Err(Error::invalid(detail));
        }
        if let Some((_, value)) = pairs.iter().find(|pair| pair.1 > low_bits(value_bits)) {
            return Err(Error::invalid(format!("the value {value} has more than {value_bits} bits")));
        }
        let len = pairs.len() as u64;
        let mut map =
            Self { seed, len, value_bits, fingerprint_bits, shards: Vec::new(), slots: 0, words: Vec::new() };
        let bytes = (u128::from(len) + u128::from(WIDE)) * u128::from(columns) / 4;
        if usize::try_from(bytes).is_err() {
            return Err(Error::TooLarge(u64::try_from(bytes).unwrap_or(u64::MAX)));
        }
        pairs.sort_unstable_by_key(|pair| (spread(pair.0), pair.0));
        if pairs.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::Duplicate);
        }
        for pair in &mut pairs {
            pair.1 |= map.fingerprint(pair.0).checked_shl(value_bits).unwrap_or(0);
        }
        map.solve(&pairs)?;
        Ok(map)
    }

    fn solve(&mut self, pairs: &[(u64, u64)]) -> Result<(), Error> {
        let shards = shard_count(self.len);
        self.shards.reserve_exact(shards as usize);
        let mut band = Band::default();
        let mut rest = pairs;
        for shard in 0..shards {
            let count = rest.partition_point(|pair| reduce(spread(pair.0), shards) <= shard);
            let (keys, others) = rest.split_at(count);
            rest = others;
            let attempt =
                (0..ATTEMPTS_MAX).find(|&attempt| band.eliminate(keys, attempt)).ok_or(Error::Full)?;
            let shard = Shard { first: self.slots, slots: band.rows.len() as u64, attempt };
            self.slots += shard.slots;
            let columns = self.columns() as usize;
            self.words.resize(self.slots.div_ceil(BLOCK_SLOTS) as usize * columns, 0);
            band.solve(shard.first, columns, &mut self.words);
            self.shards.push(shard);
        }
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        let blocks = self.slots.div_ceil(BLOCK_SLOTS) as usize + 2;
        self.words.resize(blocks * self.columns() as usize, 0);
        self.words.shrink_to_fit();
    }

    /// The value of a key; `None` if certainly absent.
    pub fn get(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Option<u64> {
        self.get_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`get`](Self::get) by [hash](crate::hash).
    pub fn get_hash(&self, hash: u64) -> Option<u64> {
        let shard = self.shards.get(reduce(spread(hash), self.shards.len() as u64) as usize)?;
        let row = Row::new(hash, shard.slots, shard.attempt);
        let columns = self.row(shard.first + row.start, row.coefficients);
        let fingerprint = columns.checked_shr(self.value_bits).unwrap_or(0);
        (fingerprint == self.fingerprint(hash)).then_some(columns & low_bits(self.value_bits))
    }

    #[inline]
    fn row(&self, slot: u64, coefficients: u128) -> u64 {
        let (block, shift) = ((slot / BLOCK_SLOTS) as usize, (slot % BLOCK_SLOTS) as u32);
        let count = self.columns() as usize;
        let (low, high) = (coefficients << shift, (coefficients >> 1 >> (127 - shift)) as u64);
        let masks = [low as u64, (low >> 64) as u64, high];
        let words = &self.words[block * count..(block + 3) * count];
        let (first, rest) = words.split_at(count);
        let (second, third) = rest.split_at(count);
        let parity = |((a, b), c): ((&u64, &u64), &u64)| {
            u64::from((a & masks[0] ^ b & masks[1] ^ c & masks[2]).count_ones() & 1)
        };
        first
            .iter()
            .zip(second)
            .zip(third)
            .map(parity)
            .enumerate()
            .fold(0, |all, (column, bit)| all | bit << column)
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bits of a value.
    pub fn value_bits(&self) -> u32 {
        self.value_bits
    }

    /// Bits of a fingerprint.
    pub fn fingerprint_bits(&self) -> u32 {
        self.fingerprint_bits
    }

    /// The probability that an absent key has a value.
    pub fn predicted_rate(&self) -> f64 {
        if self.len == 0 { 0.0 } else { (-f64::from(self.fingerprint_bits)).exp2() }
    }

    fn columns(&self) -> u32 {
        self.value_bits + self.fingerprint_bits
    }

    /// Independent of the equation.
    #[inline]
    fn fingerprint(&self, hash: u64) -> u64 {
        nth(hash, 1) & low_bits(self.fingerprint_bits)
    }
}

fn low_bits(count: u32) -> u64 {
    if count == 0 { 0 } else { u64::MAX >> (64 - count) }
}

fn shard_count(keys: u64) -> u64 {
    keys.div_ceil(SHARD_KEYS)
}

#[derive(Debug, Default)]
struct Band {
    rows: Vec<u128>,
    values: Vec<u64>,
}

impl Band {
    /// Returns whether the equations have a solution.
    fn eliminate(&mut self, keys: &[(u64, u64)], attempt: u64) -> bool {
        let slots = slots_for(keys.len() as u64, attempt);
        self.rows.clear();
        self.rows.resize(slots as usize, 0);
        self.values.clear();
        self.values.resize(slots as usize, 0);
        keys.iter().all(|&(hash, value)| self.add(Row::new(hash, slots, attempt), value))
    }

    #[inline]
    fn add(&mut self, row: Row, mut value: u64) -> bool {
        let (mut slot, mut coefficients) = (row.start as usize, row.coefficients);
        loop {
            let there = &mut self.rows[slot];
            if *there == 0 {
                *there = coefficients;
                self.values[slot] = value;
                return true;
            }
            coefficients ^= *there;
            value ^= self.values[slot];
            if coefficients == 0 {
                return value == 0;
            }
            let zeros = coefficients.trailing_zeros();
            coefficients >>= zeros;
            slot += zeros as usize;
        }
    }

    fn solve(&self, first: u64, columns: usize, words: &mut [u64]) {
        let mut windows = vec![0u128; columns];
        for (slot, (&coefficients, &value)) in self.rows.iter().zip(&self.values).enumerate().rev() {
            let at = first + slot as u64;
            let block = (at / BLOCK_SLOTS) as usize * columns;
            for (column, window) in windows.iter_mut().enumerate() {
                let later = *window << 1;
                let bit = u64::from((later & coefficients).count_ones() & 1) ^ value >> column & 1;
                *window = later | u128::from(bit);
                words[block + column] |= bit << (at % BLOCK_SLOTS);
            }
        }
    }
}

fn slots_for(keys: u64, attempt: u64) -> u64 {
    (keys + keys / 200 + 1 + attempt / 16 * (keys / 256 + 1)).max(WIDE)
}

impl Sketch for StaticMap {
    const KIND: Kind = Kind::StaticMap;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.len, self.value_bits.into(), self.fingerprint_bits.into(), self.slots]
    }

    /// Slots and attempt of each shard as varints, then the blocks.
    fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for shard in &self.shards {
            put_varint(&mut out, shard.slots);
            put_varint(&mut out, shard.attempt);
        }
        let bytes = 8 * self.slots.div_ceil(BLOCK_SLOTS) * u64::from(self.columns());
        out.extend(words_to_bytes(self.words.iter().copied(), bytes));
        out
    }

    fn from_parts(Parts(envelope): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = envelope.parameters();
        let len = parameters.number_in(0, 1 << 48, "static map keys")?;
        let value_bits = parameters.number_in(0, COLUMNS_MAX.into(), "static map value bits")? as u32;
        let most = u64::from(COLUMNS_MAX - value_bits);
        let least = u64::from(value_bits == 0);
        let fingerprint_bits = parameters.number_in(least, most, "static map fingerprint bits")? as u32;
        let slots = parameters.number_in(0, 1 << 50, "static map slots")?;
        parameters.finish()?;
        let mut map = Self {
            seed: envelope.seed,
            len,
            value_bits,
            fingerprint_bits,
            shards: Vec::new(),
            slots: 0,
            words: Vec::new(),
        };
        let mut body = envelope.body_reader();
        if 2 * shard_count(len) > envelope.body.len() as u64 {
            return Err(envelope.corrupt("static map shards", "more shards than bytes allow"));
        }
        for _ in 0..shard_count(len) {
            let shard = Shard {
                first: map.slots,
                slots: body.varint_up_to(slots - map.slots, "static map shard slots")?,
                attempt: body.varint_up_to(ATTEMPTS_MAX - 1, "static map attempt")?,
            };
            if shard.slots < WIDE {
                return Err(
                    envelope.corrupt("static map shard slots", format!("{} are less than 128", shard.slots))
                );
            }
            map.slots += shard.slots;
            map.shards.push(shard);
        }
        if map.slots != slots {
            return Err(envelope
                .corrupt("static map slots", format!("expected {slots}, the shards have {}", map.slots)));
        }
        let bytes = 8 * slots.div_ceil(BLOCK_SLOTS) * u64::from(map.columns());
        if body.remaining() as u64 != bytes {
            let detail = format!("expected {bytes} bytes, found {}", body.remaining());
            return Err(envelope.corrupt("static map blocks", detail));
        }
        map.words = bytes_to_words(body.bytes(bytes as usize, "static map blocks")?).collect();
        let used = slots % BLOCK_SLOTS;
        let tail = map.words.len() - if used == 0 { 0 } else { map.columns() as usize };
        if map.words[tail..].iter().any(|word| word >> used != 0) {
            return Err(envelope.corrupt("static map blocks", "bits after the last slot are set"));
        }
        map.pad();
        Ok(map)
    }

    fn summary(&self) -> Summary {
        let body_bytes = self.body().len() as u64;
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("keys", self.len.to_string()),
                ("value bits", self.value_bits.to_string()),
                ("fingerprint bits", self.fingerprint_bits.to_string()),
                ("shards", self.shards.len().to_string()),
                ("bits per key", format!("{:.3}", 8.0 * body_bytes as f64 / self.len.max(1) as f64)),
            ],
            predicted_rate: Some(self.predicted_rate()),
            body_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use quickcheck::quickcheck;

    use super::*;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hash, hashes};

    fn map(keys: u64, value_bits: u32, fingerprint_bits: u32) -> StaticMap {
        let pairs = hashes(keys).map(|key| (key, hash(key) & low_bits(value_bits))).collect();
        StaticMap::from_hashes(pairs, value_bits, fingerprint_bits, 1).unwrap()
    }

    fn is_exact(map: &StaticMap, keys: u64) -> bool {
        hashes(keys).all(|key| map.get_hash(key) == Some(hash(key) & low_bits(map.value_bits())))
    }

    quickcheck! {
        fn every_key_has_its_value(pairs: HashMap<u32, u16>, fingerprint_bits: u8) -> bool {
            let bits = u32::from(fingerprint_bits) % 49;
            let given = pairs.iter().map(|(key, value)| (key.to_le_bytes(), u64::from(*value)));
            let map = StaticMap::build(given, 16, bits, 1).unwrap();
            pairs.iter().all(|(key, value)| map.get(&key.to_le_bytes()) == Some(u64::from(*value)))
        }

        fn the_order_of_the_pairs_does_not_matter(pairs: HashMap<u32, u8>) -> bool {
            let mut pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.to_le_bytes(), u64::from(*value))).collect();
            let one = StaticMap::build(pairs.iter().copied(), 8, 3, 1).unwrap();
            pairs.reverse();
            one == StaticMap::build(pairs, 8, 3, 1).unwrap()
        }
    }

    #[test]
    fn sizes_around_those_of_windows_and_shards_are_exact() {
        for keys in [0, 1, 2, 127, 128, 129, 255, 2999, 3000, 3001, 6001, 50_000] {
            for (value_bits, fingerprint_bits) in [(1, 0), (5, 8), (0, 7), (64, 0), (0, 64)] {
                let map = map(keys, value_bits, fingerprint_bits);
                assert!(is_exact(&map, keys), "{keys} keys, {value_bits} bits");
            }
        }
        assert_eq!(map(0, 4, 4).get("x"), None);
    }

    #[test]
    fn a_million_keys_take_less_than_one_per_cent_more_than_their_bits() {
        let map = map(1_000_000, 4, 8);
        let bits = 8.0 * map.encode().len() as f64;
        assert!(bits < 1.01 * 12e6, "{bits}");
        assert!(is_exact(&map, 1_000_000));
    }

    #[test]
    fn absent_keys_have_a_value_at_the_stated_rate() {
        for fingerprint_bits in [1, 4, 8] {
            let map = map(20_000, 3, fingerprint_bits);
            let found = absent_hashes(400_000).filter(|&hash| map.get_hash(hash).is_some()).count() as u64;
            assert_rate(&format!("{fingerprint_bits} bits"), found, 400_000, map.predicted_rate(), 0.0);
        }
    }

    #[test]
    fn equal_keys_and_equal_hashes_are_refused_whatever_their_values() {
        for other in [1, 2] {
            let pairs = [("a", 1), ("b", 1), ("a", other)];
            assert_eq!(StaticMap::build(pairs, 4, 4, 1), Err(Error::Duplicate));
        }
        assert!(matches!(StaticMap::build([("a", 16)], 4, 4, 1), Err(Error::InvalidArgument(_))));
        for (value_bits, fingerprint_bits) in [(0, 0), (33, 32), (u32::MAX, 1)] {
            assert!(StaticMap::build([("a", 0)], value_bits, fingerprint_bits, 1).is_err());
        }
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        check_codec(&map(10, 2, 1));
        check_codec(&map(0, 2, 1));
    }
}
