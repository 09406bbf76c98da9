//! Opens and verifies a filter.
//!
//! A read outside the body counts as a match. It is possible if the caller's `AsRef` later returns other bytes.

use alloc::format;
use core::fmt;

use super::arch::AlignedBytes;
use super::header::{Header, Kind};
use super::layout::Shape;
use super::pages;
use super::probe::Probe;
use super::sizes::Sizes;
use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::hash::key_hash;

/// The caller's expectations of a filter. "Absent" is only valid for the filter's table and seed, so lookups need
/// [`Expect::table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expect {
    owner: Option<FileId>,
    seed: Option<u64>,
    key_count: Option<u64>,
    header_checksum: Option<u32>,
}

impl Expect {
    /// No expectations, for tools. A filter without keys then answers "maybe".
    #[must_use]
    pub fn anything() -> Self {
        Self::default()
    }

    /// The filter of table `owner` with `key_count` distinct keys, hashed with `seed`.
    #[must_use]
    pub fn table(owner: FileId, seed: u64, key_count: u64) -> Self {
        Self { owner: Some(owner), seed: Some(seed), key_count: Some(key_count), header_checksum: None }
    }

    /// Also expects this header checksum ([`header::checksum`](super::header::checksum)).
    #[must_use]
    pub fn header_checksum(mut self, checksum: u32) -> Self {
        self.header_checksum = Some(checksum);
        self
    }

    pub(super) fn if_empty(&self) -> bool {
        self.key_count != Some(0)
    }

    pub(super) fn check(&self, header: &Header) -> Result<(), DecodeError> {
        let differs = |offset, what, detail: &str| Err(DecodeError::corrupt(offset, what, detail));
        if self.owner.is_some_and(|owner| owner != header.owner) {
            return differs(16, "filter owner", "is another table");
        }
        if self.header_checksum.is_some_and(|checksum| checksum != header.checksum) {
            return differs(12, "filter header checksum", "belongs to another filter of the table");
        }
        // The error omits the seed, which is a secret.
        if self.seed.is_some_and(|seed| seed != header.seed) {
            return differs(48, "filter seed", "is not the expected seed of the key hash");
        }
        if let Some(keys) = self.key_count.filter(|&keys| keys != header.key_count) {
            let detail = format!("expected {keys}, found {}", header.key_count);
            return differs(64, "filter key count", &detail);
        }
        Ok(())
    }
}

/// A verified filter.
#[derive(Clone)]
pub struct Filter<B> {
    probe: Probe<B>,
    header: Header,
    section_count: usize,
}

impl<B: AsRef<[u8]>> Filter<B> {
    /// Verifies a filter block and the caller's expectations. Linear. `bytes` must be exactly the block. Queries are
    /// fastest in [`AlignedBytes`](super::AlignedBytes).
    ///
    /// # Errors
    ///
    /// `Unsupported` if the block is intact and has an unknown version, kind, domain, hash or required flag, otherwise
    /// `Corrupt`.
    pub fn open(bytes: B, expect: Expect) -> Result<Self, DecodeError> {
        let header = Header::decode(bytes.as_ref())?;
        let sections = header.sections.len();
        Self::open_sections(bytes, header, expect, sections)
    }

    /// [`Filter::open`] for the first `groups` column groups (at least 1) of a ribbon filter. `bytes` has
    /// [`Header::prefix_len`]`(1 + groups)` bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`Filter::open`].
    pub fn open_groups(bytes: B, expect: Expect, groups: usize) -> Result<Self, DecodeError> {
        let header = Header::decode(bytes.as_ref())?;
        let sections = groups.max(1).saturating_add(1).min(header.sections.len());
        Self::open_sections(bytes, header, expect, sections)
    }

    fn open_sections(bytes: B, header: Header, expect: Expect, count: usize) -> Result<Self, DecodeError> {
        let block = bytes.as_ref();
        expect.check(&header)?;
        pages::verify(block, &header, count)?;
        let probe = Probe::new(&header, bytes, count, expect.if_empty())?;
        Ok(Self { probe, header, section_count: count })
    }

    /// Returns a copy with the first `groups` column groups (at least 1). For other kinds, the copy is complete.
    #[must_use]
    pub fn keep_groups(&self, groups: usize) -> Filter<AlignedBytes> {
        let sections = groups.max(1).saturating_add(1).min(self.section_count);
        let bytes = self.as_bytes();
        let len = usize::try_from(self.header.prefix_len(sections)).unwrap_or(usize::MAX).min(bytes.len());
        Filter {
            probe: self.probe.keep_groups(AlignedBytes::copy_of(&bytes[..len]), sections.saturating_sub(1)),
            header: self.header.clone(),
            section_count: sections,
        }
    }

    /// Verifies the bytes in memory and the predicted rate again.
    ///
    /// # Errors
    ///
    /// The errors of [`Filter::open`].
    pub fn verify(&self) -> Result<(), DecodeError> {
        let block = self.probe.bytes();
        if Header::decode(block)? != self.header {
            return Err(DecodeError::corrupt(0, "filter header", "has changed since the filter was opened"));
        }
        pages::verify(block, &self.header, self.section_count)?;
        let (shape, section) = self.shape_and_section();
        let rate = shape.stored_rate(section);
        if rate != self.header.rate {
            let detail = format!("stored {:016x}, computed {rate:016x}", self.header.rate);
            return Err(DecodeError::corrupt(72, "filter rate", detail));
        }
        Ok(())
    }

    /// The data of a probe.
    #[inline]
    #[must_use]
    pub fn probe(&self) -> &Probe<B> {
        &self.probe
    }

    /// See [`Probe::may_contain`].
    #[inline]
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.probe.may_contain(hash)
    }

    /// [`Filter::may_contain`] for a key.
    #[must_use]
    pub fn may_contain_key(&self, key: &[u8]) -> bool {
        self.may_contain(key_hash(self.header.seed, key))
    }

    /// See [`Probe::prefetch`].
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.probe.prefetch(hash);
    }

    /// See [`Probe::may_contain_many`].
    #[inline]
    pub fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        self.probe.may_contain_many(hashes, answers);
    }

    pub(super) fn shape_and_section(&self) -> (Shape, &[u8]) {
        let shape = self.header.shape().unwrap_or(Shape::Empty);
        let section = self.header.sections.first().and_then(|section| {
            let end = section.offset.checked_add(section.len)?;
            self.probe.bytes().get(usize::try_from(section.offset).ok()?..usize::try_from(end).ok()?)
        });
        (shape, section.unwrap_or_default())
    }

    /// The block.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.probe.bytes()
    }

    /// Uses no vector instructions. For comparisons.
    #[must_use]
    pub fn portable(mut self) -> Self {
        self.probe = self.probe.portable();
        self
    }
}

impl<B> Filter<B> {
    /// The false-positive rate, computed from the bits.
    #[must_use]
    pub fn predicted_rate(&self) -> f64 {
        self.header.column_groups_rate(self.column_groups())
    }

    /// Column groups in memory; 1 for other kinds.
    #[must_use]
    pub fn column_groups(&self) -> usize {
        if self.kind().has_columns() { self.section_count.saturating_sub(1).max(1) } else { 1 }
    }

    /// Distinct user keys.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.header.key_count
    }

    /// Sizes of the parts of the whole block.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        Sizes::of(&self.header)
    }

    /// Bits without header, checksums and padding.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.header.bits()
    }

    /// The filter kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.header.kind
    }

    /// File id of the table.
    #[must_use]
    pub fn owner(&self) -> FileId {
        self.header.owner
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the bytes.
    #[must_use]
    pub fn into_inner(self) -> B {
        self.probe.into_inner()
    }
}

impl<B> fmt::Debug for Filter<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("kind", &self.header.kind)
            .field("key_count", &self.header.key_count)
            .field("bits", &self.bits())
            .field("probes", &self.header.probes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::frozen::tests::reseal;
    use super::super::{AlignedBytes, FilterBuilder};
    use super::*;
    use crate::checksum::checksum32;
    use crate::codec::DecodeErrorKind;

    const OWNER: FileId = [6; 16];
    const SEED: u64 = 77;

    fn block(kind: Kind, keys: u64) -> Vec<u8> {
        let mut builder = FilterBuilder::new(kind, 10.0, SEED, 5, OWNER).unwrap();
        (0..keys).for_each(|key| builder.add_key(&key.to_le_bytes()));
        builder.finish().unwrap()
    }

    fn open(bytes: &[u8]) -> Result<Filter<&[u8]>, DecodeError> {
        Filter::open(bytes, Expect::anything())
    }

    fn forged(kind: Kind, keys: u64, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = block(kind, keys);
        change(&mut bytes);
        reseal(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_known_of_a_filter_is_compared() {
        let bytes = block(Kind::Bloom, 100);
        let checksum = super::super::header::checksum(&bytes).unwrap();
        let good = Expect::table(OWNER, SEED, 100);
        let filter = Filter::open(&bytes, good.header_checksum(checksum)).unwrap();
        assert_eq!((filter.kind(), filter.key_count(), filter.owner()), (Kind::Bloom, 100, OWNER));
        assert_eq!((filter.bits(), filter.header().probes), (1024, 7));
        for (expect, what) in [
            (Expect::table([7; 16], SEED, 100), "filter owner"),
            (Expect::table(OWNER, SEED + 1, 100), "filter seed"),
            (Expect::table(OWNER, SEED, 101), "filter key count"),
            (Expect::table(OWNER, SEED, 0), "filter key count"),
            (good.header_checksum(checksum ^ 1), "filter header checksum"),
        ] {
            let error = Filter::open(&bytes, expect).unwrap_err();
            assert_eq!(error.what, what);
            assert!(!error.to_string().contains("77"), "the seed is a secret: {error}");
        }
    }

    #[test]
    fn a_filter_of_no_keys_says_absent_only_to_a_table_of_no_keys() {
        for kind in Kind::ALL {
            let bytes = block(kind, 0);
            assert_eq!(bytes.len(), 256);
            assert!(!Filter::open(&bytes, Expect::table(OWNER, SEED, 0)).unwrap().may_contain(1));
            assert!(open(&bytes).unwrap().may_contain(1));
            assert_eq!(
                Filter::open(&bytes, Expect::table(OWNER, SEED, 1)).unwrap_err().what,
                "filter key count"
            );
        }
    }

    #[test]
    fn every_flipped_bit_is_an_error() {
        for (kind, keys) in [
            (Kind::Bloom, 0),
            (Kind::Bloom, 3),
            (Kind::BlockedBloom, 60),
            (Kind::Bloom, 3400),
            (Kind::Ribbon, 3),
            (Kind::Ribbon, 300),
        ] {
            let mut bytes = block(kind, keys);
            open(&bytes).unwrap();
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let error = open(&bytes).unwrap_err();
                assert!(
                    matches!(error.kind, DecodeErrorKind::Corrupt(_)),
                    "{kind:?} {keys} bit {bit}: {error}"
                );
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn every_other_length_is_an_error() {
        for kind in Kind::ALL {
            let mut bytes = block(kind, 3400);
            for len in 0..bytes.len() {
                assert!(open(&bytes[..len]).is_err(), "{len}");
            }
            for _ in 0..130 {
                bytes.push(0);
                assert!(open(&bytes).is_err());
            }
        }
    }

    #[test]
    fn pages_of_another_table_or_in_another_order_are_an_error() {
        let bytes = block(Kind::Bloom, 6553);
        assert_eq!((bytes.len(), open(&bytes).unwrap().header().sections[0].offset), (320 + 8192, 320));
        let mut swapped = bytes.clone();
        swapped[256..264].rotate_left(4);
        swapped[320..].rotate_left(4096);
        assert_eq!(open(&swapped).unwrap_err().what, "filter page checksums");
        let checksum = checksum32(&OWNER, 256, &[&swapped[256..264]]);
        swapped[144..148].copy_from_slice(&checksum.to_le_bytes());
        reseal(&mut swapped);
        assert_eq!(open(&swapped).unwrap_err().what, "filter page");
        let mut renamed = bytes;
        renamed[16..32].fill(9);
        reseal(&mut renamed);
        assert_eq!(open(&renamed).unwrap_err().what, "filter page checksums");
    }

    #[test]
    fn a_rate_that_is_not_that_of_the_bits_is_found_by_verify() {
        let lying = forged(Kind::Bloom, 100, |bytes| bytes[79] = 0xff);
        assert_eq!(open(&lying).unwrap().verify().unwrap_err().what, "filter rate");
        open(&block(Kind::Bloom, 100)).unwrap().verify().unwrap();
    }

    #[test]
    fn answers_do_not_depend_on_alignment() {
        for kind in Kind::ALL {
            let bytes = block(kind, 1000);
            let aligned = Filter::open(AlignedBytes::copy_of(&bytes), Expect::anything()).unwrap();
            for shift in [1, 3, 8] {
                let mut shifted = vec![0; shift];
                shifted.extend_from_slice(&bytes);
                let filter = open(&shifted[shift..]).unwrap();
                for key in 0..5000u64 {
                    let key = key.to_le_bytes();
                    assert_eq!(filter.may_contain_key(&key), aligned.may_contain_key(&key));
                }
            }
            assert!((0..1000u64).all(|key| aligned.may_contain_key(&key.to_le_bytes())));
        }
    }

    fn ribbon(keys: u64, columns: f64, groups: usize) -> Vec<u8> {
        let mut builder = FilterBuilder::new(Kind::Ribbon, 10.0, SEED, 5, OWNER).unwrap();
        builder = builder.columns(columns).unwrap().column_groups(groups);
        (0..keys).for_each(|key| builder.add_key(&key.to_le_bytes()));
        builder.finish().unwrap()
    }

    /// Returns the number of these absent keys that pass the filter.
    fn unrecognised<B: AsRef<[u8]>>(filter: &Filter<B>, count: u64) -> f64 {
        let absent =
            (1 << 40..(1 << 40) + count).filter(|key: &u64| filter.may_contain_key(&key.to_le_bytes()));
        absent.count() as f64
    }

    #[test]
    fn without_its_last_column_groups_a_filter_has_the_rate_of_the_others() {
        for keys in [300, 9000, 150_000] {
            for (columns, groups, left) in [(8.0, 2, &[4][..]), (9.4, 3, &[3, 6]), (7.0, 3, &[3, 5])] {
                let bytes = ribbon(keys, columns, groups);
                let whole = Filter::open(&bytes, Expect::table(OWNER, SEED, keys)).unwrap();
                assert_eq!(whole.column_groups(), groups);
                // The additional column does not help windows that overlap its first block, which matters in a small
                // filter.
                let exact = if keys == 300 { 0.41 } else { 0.15 };
                assert!((whole.predicted_rate().log2() + columns).abs() < exact, "{keys} {columns}");
                for (kept, &columns) in (1..).zip(left) {
                    let fewer = whole.keep_groups(kept);
                    assert_eq!(fewer.predicted_rate(), f64::from(columns).exp2().recip());
                    assert!((0..keys).all(|key| fewer.may_contain_key(&key.to_le_bytes())));
                    let expected = fewer.predicted_rate() * 100_000.0;
                    let found = unrecognised(&fewer, 100_000);
                    assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{keys} {columns}: {found}");
                    fewer.verify().unwrap();

                    let len = whole.header().prefix_len(1 + kept) as usize;
                    assert_eq!(fewer.as_bytes().len(), len);
                    assert!(len < bytes.len() || keys == 300);
                    let read = Filter::open_groups(&bytes[..len], Expect::anything(), kept).unwrap();
                    assert_eq!(unrecognised(&read, 100_000), found);
                    assert!(open(&bytes[..len]).is_err());
                }
            }
        }
    }

    #[test]
    fn every_bit_of_the_groups_that_are_there_is_verified() {
        let mut bytes = ribbon(300, 8.0, 2);
        let len = open(&bytes).unwrap().header().prefix_len(2) as usize;
        bytes.truncate(len);
        Filter::open_groups(&bytes, Expect::anything(), 1).unwrap();
        for bit in 0..len * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Filter::open_groups(&bytes, Expect::anything(), 1).is_err(), "{bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn many_answers_are_those_of_each() {
        for kind in Kind::ALL {
            for keys in [0, 200, 20_000] {
                let bytes = block(kind, keys);
                let filter = open(&bytes).unwrap();
                let hashes: Vec<u64> =
                    (0..1000u64).map(|key| key_hash(SEED, &(key * 50).to_le_bytes())).collect();
                let mut answers = vec![false; 1000];
                filter.may_contain_many(&hashes, &mut answers);
                assert!(
                    hashes.iter().zip(&answers).all(|(&hash, &answer)| filter.may_contain(hash) == answer)
                );
            }
        }
    }

    #[test]
    fn a_filter_that_could_not_be_built_says_maybe_of_every_key() {
        let bytes = forged(Kind::Ribbon, 100, |bytes| {
            bytes.truncate(256);
            bytes[32..40].copy_from_slice(&256u64.to_le_bytes());
            bytes[43] = 0;
            bytes[72..80].fill(0xff);
            bytes[80..].fill(0);
        });
        let filter = Filter::open(&bytes, Expect::table(OWNER, SEED, 100)).unwrap();
        assert!(filter.header().answers_only_maybe() && filter.predicted_rate() == 1.0);
        assert!((0..1000).all(|hash| filter.may_contain(hash) && filter.keep_groups(1).may_contain(hash)));
        filter.verify().unwrap();
    }

    struct Fickle(Vec<u8>, std::cell::Cell<bool>);

    impl AsRef<[u8]> for Fickle {
        fn as_ref(&self) -> &[u8] {
            if self.1.get() { &[] } else { &self.0 }
        }
    }

    #[test]
    fn bytes_that_vanish_mean_maybe() {
        for kind in Kind::ALL {
            let filter = Filter::open(Fickle(block(kind, 50), false.into()), Expect::anything()).unwrap();
            filter.probe.bytes_for_test().1.set(true);
            assert!((0..1000).all(|hash| filter.may_contain(hash)));
            assert!(filter.verify().is_err());
        }
    }
}
