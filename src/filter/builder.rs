//! From hashes to a filter block: `(add_hash)* finish`.
//!
//! 1. Hashes are collected, eight bytes each, in chunks that are never moved or copied to grow.
//! 2. `finish` knows the number of keys and so the size: `round(keys · bits per key)` bits, rounded up to 64
//!    for Bloom and to lines of 512 for blocked Bloom. The smallest blocks have 64 and 512 bits.
//! 3. The one output is allocated, and each key's bits are set in it, where they will stand.
//! 4. The predicted rate is computed from the bits, in integers; pages, sections and header are sealed.
//! 5. The bytes are opened as a reader would open them, and every hash is looked for: bits that memory lost
//!    are found before a table with a lying filter is published.
//!
//! Bits are set, never cleared, so that the order of the keys leaves no trace.

use std::path::Path;

use super::blocked::{self, Blocked, LINE_BITS};
use super::bloom::{self, Bloom, GRANULE_BITS};
use super::header::{DOMAIN_WHOLE_KEY, HEADER_BYTES, Header, Kind};
use super::layout::{Layout, Section, Shape};
use super::pages;
use super::policy::{check_bits_per_key, millibits};
use super::reader::{Expect, Filter};
use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::hash::{key_hash, table_hash};

/// Hashes per chunk: 64 KiB.
const CHUNK: usize = 8192;

/// Collects the hashes of the distinct user keys of a table and makes its filter block.
#[derive(Debug, Clone)]
pub struct FilterBuilder {
    kind: Kind,
    bits_per_key: f64,
    seed: u64,
    salt: u64,
    owner: FileId,
    // All but the last are full.
    chunks: Vec<Vec<u64>>,
}

impl FilterBuilder {
    /// A builder of a filter of this kind and size for the table whose file id is `owner`.
    ///
    /// `seed` is that of [`key_hash`] and must be the one that lookups use; `salt` is of the caller's
    /// choosing, different for every table.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for bits per key that are not over 0 and up to
    /// [`BITS_PER_KEY_MAX`](super::BITS_PER_KEY_MAX).
    pub fn new(kind: Kind, bits_per_key: f64, seed: u64, salt: u64, owner: FileId) -> Result<Self> {
        check_bits_per_key(bits_per_key)?;
        Ok(Self { kind, bits_per_key, seed, salt, owner, chunks: Vec::new() })
    }

    /// Adds a user key by its [`key_hash`]. Every distinct user key is to be added once: each call counts.
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(hash),
            Some(_) => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(hash);
                self.chunks.push(chunk);
            }
            // The first chunk grows as it fills: most of a small table's filter would be this chunk.
            None => self.chunks.push(vec![hash]),
        }
    }

    /// Adds a user key. See [`FilterBuilder::add_hash`].
    pub fn add_key(&mut self, key: &[u8]) {
        self.add_hash(key_hash(self.seed, key));
    }

    /// Number of keys added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.len().saturating_sub(1) * CHUNK + self.chunks.last().map_or(0, Vec::len)
    }

    /// Whether no key was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// What the hashes occupy, in bytes. `finish` needs [`FilterBuilder::block_bytes`] besides.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<u64>()).sum()
    }

    /// Length of the block that `finish` would make now.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        layout(shape(self.kind, self.len() as u64, self.bits_per_key))
            .map_or(u64::MAX, |layout| layout.block_len)
    }

    /// Makes the block.
    ///
    /// # Errors
    ///
    /// [`Error::LimitExceeded`] if there is no memory for it, [`Error::Corruption`] if a key that was added is
    /// not found in the finished bytes, which means that this machine's memory cannot be trusted.
    pub fn finish(self) -> Result<Vec<u8>> {
        let shape = shape(self.kind, self.len() as u64, self.bits_per_key);
        let too_large = || Error::limit("filter block", usize::MAX as u64, self.block_bytes());
        let layout = layout(shape).ok_or_else(too_large)?;
        let len = usize::try_from(layout.block_len).map_err(|_| too_large())?;
        let mut block = Vec::new();
        block.try_reserve_exact(len).map_err(|_| too_large())?;
        block.resize(len, 0);

        let mut sections = Vec::with_capacity(layout.offsets.len());
        let mut rate = 0;
        if let (Some(&offset), Some(len)) = (layout.offsets.first(), shape.body_bytes()) {
            let body = &mut block[offset as usize..][..len as usize];
            self.fill(body, shape);
            rate = shape.stored_rate(body);
            sections.push(Section { offset, len, checksum: 0 });
        }
        pages::seal(&mut block, &self.owner, &mut sections);
        let header = self.header(shape, rate, layout.block_len, sections).encode();
        block[..HEADER_BYTES].copy_from_slice(&header);

        self.check(&block).map_err(|error| error.in_file(Path::new("memory"), 0))?;
        Ok(block)
    }

    fn hashes(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().flatten().copied()
    }

    fn fill(&self, body: &mut [u8], shape: Shape) {
        let hashes = self.hashes().map(|hash| table_hash(hash, self.salt));
        match shape {
            Shape::Empty => {}
            Shape::Bloom(bloom) => hashes.for_each(|hash| bloom.insert(body, hash)),
            Shape::Blocked(blocked) => hashes.for_each(|hash| blocked.insert(body, hash)),
        }
    }

    fn header(&self, shape: Shape, rate: u64, block_len: u64, sections: Vec<Section>) -> Header {
        let (size, probes) = match shape {
            Shape::Empty => (0, 0),
            Shape::Bloom(bloom) => (bloom.bits, bloom.probes),
            Shape::Blocked(blocked) => (blocked.lines, blocked.probes),
        };
        Header {
            kind: self.kind,
            domain: DOMAIN_WHOLE_KEY,
            optional_flags: 0,
            owner: self.owner,
            block_len,
            seed: self.seed,
            salt: self.salt,
            key_count: self.len() as u64,
            rate,
            size,
            probes,
            sections,
            checksum: 0,
        }
    }

    /// Opens the finished bytes and looks for every key.
    fn check(&self, block: &[u8]) -> Result<(), DecodeError> {
        let filter = Filter::open(block, Expect::table(self.owner, self.seed, self.len() as u64))?;
        if self.hashes().all(|hash| filter.may_contain(hash)) {
            return Ok(());
        }
        Err(DecodeError::corrupt(0, "filter under construction", "a key that was added is not found"))
    }
}

/// The filter for this many keys: part of the format only in that both sides can name it.
fn shape(kind: Kind, keys: u64, bits_per_key: f64) -> Shape {
    if keys == 0 {
        return Shape::Empty;
    }
    // The cast saturates, and the rest is checked by the layout.
    let bits = ((keys as f64 * bits_per_key).round() as u64).max(1);
    let millibits = millibits(bits_per_key);
    match kind {
        Kind::Bloom => Shape::Bloom(Bloom {
            bits: bits
                .checked_next_multiple_of(GRANULE_BITS)
                .unwrap_or(u64::MAX / GRANULE_BITS * GRANULE_BITS),
            probes: bloom::best_probes(millibits),
        }),
        Kind::BlockedBloom => Shape::Blocked(Blocked {
            lines: bits.div_ceil(LINE_BITS),
            probes: blocked::best_probes(millibits),
        }),
    }
}

fn layout(shape: Shape) -> Option<Layout> {
    match shape {
        Shape::Empty => Layout::of(&[]),
        _ => Layout::of(&[shape.body_bytes()?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: FileId = [8; 16];
    const KINDS: [Kind; 2] = [Kind::Bloom, Kind::BlockedBloom];

    /// The hash of the `index`-th key: the same in all tests, without a pattern.
    fn hash(index: u64) -> u64 {
        key_hash(1, &index.to_le_bytes())
    }

    fn build(kind: Kind, bits: f64, salt: u64, hashes: impl Iterator<Item = u64>) -> Filter<Vec<u8>> {
        let mut builder = FilterBuilder::new(kind, bits, 1, salt, OWNER).unwrap();
        hashes.for_each(|hash| builder.add_hash(hash));
        let (keys, len) = (builder.len() as u64, builder.block_bytes());
        let bytes = builder.finish().unwrap();
        assert_eq!(bytes.len() as u64, len);
        Filter::open(bytes, Expect::table(OWNER, 1, keys)).unwrap()
    }

    /// How many of a million absent keys are not recognised.
    fn measure(filter: &Filter<Vec<u8>>) -> f64 {
        (0..1_000_000).filter(|index| filter.may_contain(hash((1 << 40) + index))).count() as f64
    }

    #[test]
    fn no_key_is_ever_absent() {
        for kind in KINDS {
            for keys in [0, 1, 2, 7, 100, 10_000] {
                for bits in 1..=24 {
                    let filter = build(kind, f64::from(bits), 3, (0..keys).map(hash));
                    assert!((0..keys).all(|index| filter.may_contain(hash(index))), "{kind:?} {keys} {bits}");
                    filter.verify().unwrap();
                }
            }
            for bits in [1.0, 6.5, 10.0, 24.0] {
                let filter = build(kind, bits, 3, (0..300_000).map(hash));
                assert!((0..300_000).all(|index| filter.may_contain(hash(index))), "{kind:?} {bits}");
            }
        }
    }

    #[test]
    fn the_measured_rate_is_the_predicted_one() {
        for kind in KINDS {
            for (keys, bits) in [
                (100, 10.0),
                (1000, 8.0),
                (10_000, 2.0),
                (10_000, 5.5),
                (10_000, 10.0),
                (10_000, 16.0),
                (10_000, 24.0),
                (300_000, 1.0),
                (300_000, 9.9),
                (300_000, 10.0),
                (300_000, 20.0),
            ] {
                let filter = build(kind, bits, 9, (0..keys).map(hash));
                let (found, predicted) = (measure(&filter), filter.predicted_rate() * 1e6);
                // Four standard deviations of the count, and 2 % of the model: under 5 % from 18 000 counts on.
                let allowed = 4.0 * predicted.sqrt() + 0.02 * predicted + 3.0;
                assert!(
                    (found - predicted).abs() < allowed,
                    "{kind:?} {keys} keys {bits} bits: found {found}, predicted {predicted}"
                );
            }
        }
    }

    #[test]
    fn a_large_filter_has_the_rate_that_its_plan_promises() {
        for kind in KINDS {
            for bits in [4.0, 8.0, 9.9, 10.0, 12.5, 16.0, 20.0] {
                let filter = build(kind, bits, 5, (0..300_000).map(hash));
                let expected = super::super::FilterPlan { kind, bits_per_key: bits }.expected_rate();
                let ratio = filter.predicted_rate() / expected;
                assert!((0.985..1.015).contains(&ratio), "{kind:?} {bits}: {ratio}");
                let actual = filter.bits() as f64 / 300_000.0;
                assert!(
                    actual >= bits - 1e-5 && actual - bits < 512.0 / 300_000.0,
                    "{kind:?} {bits}: {actual}"
                );
            }
        }
    }

    #[test]
    fn ten_bits_of_a_blocked_filter_give_less_than_0_97_per_cent() {
        let filter = build(Kind::BlockedBloom, 10.0, 6, (0..1_000_000).map(hash));
        assert!(filter.predicted_rate() < 0.0097, "{}", filter.predicted_rate());
        assert!(measure(&filter) < 9_900.0);
    }

    #[test]
    fn false_positives_of_two_salts_are_independent() {
        for kind in KINDS {
            let filters = [10, 11].map(|salt| build(kind, 5.0, salt, (0..50_000).map(hash)));
            let both = (0..1_000_000u64)
                .map(|index| hash((1 << 41) + index))
                .filter(|&hash| filters.iter().all(|filter| filter.may_contain(hash)))
                .count() as f64;
            let expected = filters.iter().map(Filter::predicted_rate).product::<f64>() * 1e6;
            assert!((both - expected).abs() < 5.0 * expected.sqrt(), "{kind:?}: {both}, expected {expected}");
        }
    }

    #[test]
    fn the_order_of_the_keys_leaves_no_trace() {
        for kind in KINDS {
            let upwards = build(kind, 10.0, 4, (0..20_000).map(hash)).into_inner();
            let downwards = build(kind, 10.0, 4, (0..20_000).rev().map(hash)).into_inner();
            let shuffled =
                build(kind, 10.0, 4, (0..20_000).map(|index| hash(index * 7919 % 20_000))).into_inner();
            assert!(upwards == downwards && upwards == shuffled);
        }
    }

    #[test]
    fn equal_and_extreme_hashes_are_found() {
        for kind in KINDS {
            for extreme in [0, 1, 1 << 63, u64::MAX, u64::MAX - 1] {
                for salt in [0, extreme, u64::MAX] {
                    let filter = build(kind, 10.0, salt, [extreme; 500].into_iter());
                    assert!(filter.may_contain(extreme));
                    filter.verify().unwrap();
                }
            }
        }
    }

    #[test]
    fn sizes_are_right_up_to_2_to_the_33_keys() {
        for exponent in 0..=33 {
            for keys in [(1u64 << exponent) - 1, 1 << exponent].into_iter().filter(|&keys| keys > 0) {
                for bits in [0.5, 9.9, 10.0, 24.0, 64.0] {
                    let wanted = (keys as f64 * bits).round().max(1.0) as u64;
                    let bloom = shape(Kind::Bloom, keys, bits).body_bytes().unwrap() * 8;
                    let blocked = shape(Kind::BlockedBloom, keys, bits).body_bytes().unwrap() * 8;
                    assert!(bloom >= wanted && bloom - wanted < 64, "{keys} {bits}");
                    assert!(blocked >= wanted && blocked - wanted < 512, "{keys} {bits}");
                    layout(shape(Kind::Bloom, keys, bits)).unwrap();
                }
            }
        }
        for kind in KINDS {
            layout(shape(kind, u64::MAX, 64.0));
        }
    }

    #[test]
    fn hashes_take_eight_bytes_each() {
        let mut builder = FilterBuilder::new(Kind::Bloom, 10.0, 0, 0, OWNER).unwrap();
        assert!(builder.is_empty() && builder.memory_bytes() == 0);
        for index in 0..200_000u64 {
            builder.add_hash(index);
            assert_eq!(builder.len() as u64, index + 1);
        }
        assert!(builder.memory_bytes() < 8 * (200_000 + CHUNK));
        let error = FilterBuilder::new(Kind::Bloom, f64::NAN, 0, 0, OWNER).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }));
    }

    #[test]
    fn a_key_that_the_finished_bytes_have_lost_is_noticed() {
        let mut builder = FilterBuilder::new(Kind::Bloom, 10.0, 1, 2, OWNER).unwrap();
        (0..50).for_each(|index| builder.add_hash(hash(index)));
        let bytes = builder.clone().finish().unwrap();
        assert!(builder.check(&bytes).is_ok());
        // As if a hash had changed in memory after its bits were set.
        builder.chunks[0][20] ^= 1 << 40;
        assert_eq!(builder.check(&bytes).unwrap_err().what, "filter under construction");
        let mut damaged = bytes;
        *damaged.last_mut().unwrap() ^= 1;
        assert!(builder.check(&damaged).is_err());
    }
}
