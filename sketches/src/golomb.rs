//! The Golomb-coded set: sorted hashes, compressed in blocks.
//!
//! Every key is hashed to a number below `N = n / rate`. The sorted, distinct numbers form blocks of equal ranges, 256 numbers on
//! average. A block stores the gaps minus one in Golomb's code with divisor `M`. A probe decodes its block.
//!
//! ```text
//! rate   = numbers / N                    exactly, for random hashes
//! M      = ceil(log(2 - p) / -log(1 - p)), about 0.69 / p, for p = numbers / N (Gallager and Van Voorhis 1975)
//! bits   = log2(1 / rate) + 1.44 a key is the least for gaps of random numbers; the code takes 0.02 more on
//!          average, the lengths of the blocks 0.06
//! ```
//!
//! Putze, Sanders, Singler, WEA 2007, section 4; Golomb 1966.

use crate::arithmetic;
use crate::envelope::{DecodeError, Envelope, Kind, bytes_to_words, put_varint, words_to_bytes};
use crate::error::Error;
use crate::hash::{key_hash, reduce, spread};
use crate::sketch::{Parts, Sketch, Summary};

const BLOCK_NUMBERS: u64 = 256;

/// Sums with a block's range stay below 2^64.
const RANGE_MAX: u64 = 1 << 62;

/// A complete set to send or store, close to the fewest possible bits.
///
/// # Guarantees
///
/// Every key of the set is found, any other with probability [`predicted_rate`](Self::predicted_rate).
///
/// # Cost
///
/// `log2(1 / rate) + 1.5` bits per key: 8.2 at 1 %; in memory 64 more per block. Building sorts the hashes. A probe decodes half
/// a block: about a microsecond.
///
/// # When not to use it
///
/// Fast probes: a [`Digest`](crate::Digest) is smaller and fifty times faster, but cannot be listed
/// ([`numbers`](Self::numbers), [`block`](Self::block)), merged or compared.
///
/// ```
/// use sievedb_sketches::GolombSet;
///
/// let set = GolombSet::build(["apple", "banana"], 0.01, 7)?;
/// assert!(set.contains("apple"));
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GolombSet {
    seed: u64,
    len: u64,
    range: u64,
    divisor: u64,
    /// First bit of each block, and the end of the last.
    starts: Vec<u64>,
    words: Vec<u64>,
}

impl GolombSet {
    /// The set of these keys with at most this rate, 2^-32 to 1/2. Keys may repeat. `O(n log n)`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for other rates, [`Error::TooLarge`] if keys / rate exceeds 2^62.
    pub fn build<K: AsRef<[u8]>>(
        keys: impl IntoIterator<Item = K>,
        rate: f64,
        seed: u64,
    ) -> Result<Self, Error> {
        Self::from_hashes(keys.into_iter().map(|key| key_hash(seed, key.as_ref())).collect(), rate, seed)
    }

    /// [`build`](Self::build) by hashes.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn from_hashes(mut hashes: Vec<u64>, rate: f64, seed: u64) -> Result<Self, Error> {
        if !(32f64.exp2().recip()..=0.5).contains(&rate) {
            return Err(Error::invalid(format!("the rate {rate} must be 2^-32 to 1/2")));
        }
        let range = (hashes.len() as f64 / rate).ceil();
        if range > RANGE_MAX as f64 {
            return Err(Error::TooLarge(range as u64));
        }
        let range = range as u64;
        hashes.iter_mut().for_each(|hash| *hash = reduce(spread(*hash), range));
        hashes.sort_unstable();
        hashes.dedup();
        Ok(Self::encode_numbers(&hashes, range, seed))
    }

    fn encode_numbers(numbers: &[u64], range: u64, seed: u64) -> Self {
        let len = numbers.len() as u64;
        let divisor = arithmetic::golomb_divisor(len, range);
        let mut set = Self { seed, len, range, divisor, starts: Vec::new(), words: Vec::new() };
        set.starts.reserve_exact(set.blocks() as usize + 1);
        let mut bits = Bits { words: Vec::new(), len: 0 };
        let mut numbers = numbers.iter().copied().peekable();
        for block in 0..set.blocks() {
            set.starts.push(bits.len);
            let mut least = set.first_of(block);
            let end = set.first_of(block + 1);
            while let Some(number) = numbers.next_if(|&number| number < end) {
                bits.put_golomb(number - least, divisor);
                least = number + 1;
            }
        }
        set.starts.push(bits.len);
        set.words = bits.words;
        set.words.shrink_to_fit();
        set
    }

    /// Whether the set has the key's number. Decodes half a block.
    pub fn contains(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.contains_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`contains`](Self::contains) by [hash](crate::hash).
    pub fn contains_hash(&self, hash: u64) -> bool {
        if self.len == 0 {
            return false;
        }
        let number = reduce(spread(hash), self.range);
        self.block(number / self.block_range()).find(|&found| found >= number) == Some(number)
    }

    /// The numbers of one block in order; none for other block numbers.
    pub fn block(&self, block: u64) -> impl Iterator<Item = u64> + '_ {
        let bounds = self.starts.get(block as usize..).and_then(|starts| starts.first_chunk::<2>());
        let [mut at, end] = bounds.copied().unwrap_or_default();
        let mut least = if at < end { self.first_of(block) } else { 0 };
        core::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (gap, len) = get_golomb(&self.words, at, self.divisor)?;
            at += len;
            let number = least + gap;
            least = number + 1;
            Some(number)
        })
    }

    /// All numbers in order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.blocks()).flat_map(|block| self.block(block))
    }

    /// Count of numbers; equal ones count once.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The range of the numbers. A key's number is `reduce(spread(key_hash), range)`.
    pub fn range(&self) -> u64 {
        self.range
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.len.div_ceil(BLOCK_NUMBERS)
    }

    /// The false-positive rate.
    pub fn predicted_rate(&self) -> f64 {
        if self.len == 0 { 0.0 } else { self.len as f64 / self.range as f64 }
    }

    fn block_range(&self) -> u64 {
        self.range.div_ceil(self.blocks())
    }

    fn first_of(&self, block: u64) -> u64 {
        block * self.block_range()
    }

    fn check(&self) -> Result<(), &'static str> {
        let mut count = 0;
        for block in 0..self.blocks() {
            let (mut at, end) = (self.starts[block as usize], self.starts[block as usize + 1]);
            let (mut least, past) = (self.first_of(block), self.first_of(block + 1).min(self.range));
            while at < end {
                let (gap, len) = get_golomb(&self.words, at, self.divisor).ok_or("a gap has no end")?;
                if gap >= past.saturating_sub(least) {
                    return Err("a number is beyond its block");
                }
                (at, least, count) = (at + len, least + gap + 1, count + 1);
            }
            if at != end {
                return Err("a gap runs into the next block");
            }
        }
        if count == self.len { Ok(()) } else { Err("the blocks have another count of numbers") }
    }
}

impl Sketch for GolombSet {
    const KIND: Kind = Kind::GolombSet;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        let bits = self.starts.last().copied().unwrap_or(0);
        vec![self.len, self.range, self.divisor, bits]
    }

    fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.starts.windows(2).for_each(|pair| put_varint(&mut out, pair[1] - pair[0]));
        let bits = self.starts.last().copied().unwrap_or(0);
        out.extend(words_to_bytes(self.words.iter().copied(), bits.div_ceil(8)));
        out
    }

    fn from_parts(Parts(envelope): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = envelope.parameters();
        let len = parameters.number_in(0, RANGE_MAX, "golomb numbers")?;
        let range = parameters.number_in(len, RANGE_MAX, "golomb range")?;
        let divisor = parameters.number_in(1, RANGE_MAX, "golomb divisor")?;
        let bits = parameters.number_in(0, 8 * envelope.body.len() as u64, "golomb bits")?;
        parameters.finish()?;
        let mut set =
            Self { seed: envelope.seed, len, range, divisor, starts: Vec::new(), words: Vec::new() };
        let bytes = set.read_starts(&envelope, bits)?;
        set.words = bytes_to_words(bytes).collect();
        let used = bits % 64;
        if used != 0 && set.words.last().is_some_and(|&last| last >> used != 0) {
            return Err(envelope.corrupt("golomb bits", "bits after the last one are set"));
        }
        set.check().map_err(|detail| envelope.corrupt("golomb blocks", detail))?;
        Ok(set)
    }

    fn summary(&self) -> Summary {
        let body_bytes = self.body().len() as u64;
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("numbers", self.len.to_string()),
                ("range", self.range.to_string()),
                ("divisor", self.divisor.to_string()),
                ("blocks", self.blocks().to_string()),
                ("bits per key", format!("{:.3}", 8.0 * body_bytes as f64 / self.len.max(1) as f64)),
            ],
            predicted_rate: Some(self.predicted_rate()),
            body_bytes,
        }
    }
}

impl GolombSet {
    fn read_starts<'a>(&mut self, envelope: &Envelope<'a>, bits: u64) -> Result<&'a [u8], DecodeError> {
        let mut body = envelope.body_reader();
        if self.blocks() > envelope.body.len() as u64 {
            return Err(envelope.corrupt("golomb blocks", "more blocks than bytes"));
        }
        let mut start = 0;
        for _ in 0..self.blocks() {
            self.starts.push(start);
            start += body.varint_up_to(bits - start, "golomb block length")?;
        }
        self.starts.push(start);
        if start != bits {
            return Err(envelope
                .corrupt("golomb block lengths", format!("expected {bits} bits in all, found {start}")));
        }
        let bytes = body.bytes(bits.div_ceil(8) as usize, "golomb blocks")?;
        if body.is_empty() {
            Ok(bytes)
        } else {
            Err(envelope.corrupt("golomb blocks", "bytes follow the last one"))
        }
    }
}

struct Bits {
    words: Vec<u64>,
    len: u64,
}

impl Bits {
    /// `count` is at most 63.
    fn put(&mut self, number: u64, count: u32) {
        if count == 0 {
            return;
        }
        let shift = (self.len % 64) as u32;
        if shift == 0 {
            self.words.push(number);
        } else {
            let last = self.words.len() - 1;
            self.words[last] |= number << shift;
            if shift + count > 64 {
                self.words.push(number >> (64 - shift));
            }
        }
        self.len += u64::from(count);
    }

    /// Lowest bit first.
    fn put_golomb(&mut self, number: u64, divisor: u64) {
        let (mut quotient, remainder) = (number / divisor, number % divisor);
        while quotient >= 32 {
            self.put(u32::MAX.into(), 32);
            quotient -= 32;
        }
        self.put((1 << quotient) - 1, quotient as u32 + 1);
        let (short, saved) = truncated(divisor);
        if remainder < saved {
            self.put(remainder, short);
        } else {
            let long = remainder + saved;
            self.put(long >> 1, short);
            self.put(long & 1, 1);
        }
    }
}

/// The bits of a short code, and the number of short codes.
fn truncated(divisor: u64) -> (u32, u64) {
    let short = divisor.ilog2();
    (short, (1u64 << short << 1) - divisor)
}

/// The number at bit `at` and its length; `None` if the bits end.
#[inline]
fn get_golomb(words: &[u64], at: u64, divisor: u64) -> Option<(u64, u64)> {
    let mut quotient = 0u64;
    loop {
        let ones = u64::from(window(words, at + quotient).trailing_ones());
        quotient += ones;
        if ones < 64 {
            break;
        }
        if (at + quotient) / 64 >= words.len() as u64 {
            return None;
        }
    }
    let mut len = quotient + 1;
    let (short, saved) = truncated(divisor);
    let rest = window(words, at + len);
    let mut remainder = rest & ((1 << short) - 1);
    len += u64::from(short);
    if remainder >= saved {
        remainder = (remainder << 1 | rest >> short & 1) - saved;
        len += 1;
    }
    let in_bits = at + len <= 64 * words.len() as u64;
    let number = quotient.checked_mul(divisor)?.checked_add(remainder)?;
    in_bits.then_some((number, len))
}

/// Bits after the end are 0.
#[inline]
fn window(words: &[u64], at: u64) -> u64 {
    let (word, shift) = ((at / 64) as usize, (at % 64) as u32);
    let word_at = |index: usize| words.get(index).copied().unwrap_or(0);
    word_at(word) >> shift | word_at(word + 1) << 1 << (63 - shift)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quickcheck::quickcheck;

    use super::*;
    use crate::envelope::reseal;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hashes};

    fn set(keys: u64, rate: f64) -> GolombSet {
        GolombSet::from_hashes(hashes(keys).collect(), rate, 1).unwrap()
    }

    quickcheck! {
        fn the_numbers_are_those_of_the_keys(keys: Vec<u16>, inverse: u16) -> bool {
            let rate = 1.0 / (2.0 + f64::from(inverse));
            let set = GolombSet::build(keys.iter().map(|key| key.to_le_bytes()), rate, 5).unwrap();
            let number = |key: &u16| reduce(spread(key_hash(5, &key.to_le_bytes())), set.range());
            let model: BTreeSet<u64> = keys.iter().map(number).collect();
            let found = |key: u16| set.contains(&key.to_le_bytes()) == model.contains(&number(&key));
            set.numbers().eq(model.iter().copied()) && set.len() == model.len() as u64
                && (keys.is_empty() || (0..2000).all(found)) && keys.iter().all(|&key| set.contains(&key.to_le_bytes()))
        }

        fn a_coded_number_is_decoded(numbers: Vec<u32>, divisor: u16) -> bool {
            let divisor = 1 + u64::from(divisor);
            let numbers: Vec<u64> = numbers.iter().map(|&number| u64::from(number) % (300 * divisor)).collect();
            let mut bits = Bits { words: Vec::new(), len: 0 };
            numbers.iter().for_each(|&number| bits.put_golomb(number, divisor));
            let mut at = 0;
            numbers.iter().all(|&number| {
                let (found, len) = get_golomb(&bits.words, at, divisor).unwrap();
                at += len;
                found == number
            }) && at == bits.len
        }
    }

    #[test]
    fn the_rate_is_that_of_the_formula_and_not_above_what_was_asked() {
        for rate in [0.3, 0.01, 1.0 / 256.0] {
            let set = set(50_000, rate);
            assert!(set.predicted_rate() <= rate && set.predicted_rate() > 0.8 * rate);
            let found = absent_hashes(200_000).filter(|&hash| set.contains_hash(hash)).count() as u64;
            assert_rate(&format!("{rate}"), found, 200_000, set.predicted_rate(), 0.0);
        }
    }

    #[test]
    fn a_key_takes_hardly_more_bits_than_random_gaps_must() {
        for rate in [0.01, 1.0 / 256.0, 1e-3, 1e-6] {
            let set = set(100_000, rate);
            let bits = 8.0 * set.body().len() as f64 / 100_000.0;
            let least = -rate.log2() + std::f64::consts::LOG2_E;
            assert!(bits > least - 0.02 && bits < least + 0.12, "{rate}: {bits} of {least}");
        }
    }

    #[test]
    fn every_block_is_decoded_by_itself() {
        let set = set(9_970, 0.01);
        assert_eq!(set.blocks(), 39);
        let all: Vec<u64> = (0..39).rev().flat_map(|block| set.block(block).collect::<Vec<_>>()).collect();
        assert_eq!(all.len(), set.len() as usize);
        let ranges = set.range().div_ceil(39);
        assert!((0..39).all(|block| set.block(block).all(|number| number / ranges == block)));
        assert_eq!(set.block(39).count() + set.block(u64::MAX).count(), 0);
    }

    #[test]
    fn sets_that_cannot_be_built_are_refused_and_the_empty_one_has_nothing() {
        for rate in [0.0, 1e-12, 0.51, f64::NAN] {
            assert!(GolombSet::build(["a"], rate, 1).is_err(), "{rate}");
        }
        let empty = GolombSet::build([""; 0], 0.01, 1).unwrap();
        assert!(empty.is_empty() && !empty.contains("") && empty.numbers().count() == 0);
        assert_eq!(GolombSet::decode(&empty.encode()).unwrap(), empty);
    }

    #[test]
    fn divisors_are_the_published_ones() {
        // Gallager and Van Voorhis: p = 1/2 has divisor 1; about ln 2 / p for small p.
        assert_eq!(arithmetic::golomb_divisor(1, 2), 1);
        assert_eq!(arithmetic::golomb_divisor(1, 256), 177);
        assert_eq!(arithmetic::golomb_divisor(0, 0), 1);
        assert_eq!(truncated(6), (2, 2));
        assert_eq!(truncated(8), (3, 8));
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        let small = set(20, 0.01);
        check_codec(&small);
        let mut bytes = small.encode();
        let last = bytes.len() - 2;
        bytes[last] = 0xff;
        reseal(&mut bytes);
        assert!(GolombSet::decode(&bytes).is_err());
    }
}
