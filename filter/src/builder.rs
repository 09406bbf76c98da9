//! Builds a filter block from hashes: `(add_hash)* finish`.
//!
//! 1. Hashes are collected in chunks, so that growth copies nothing.
//! 2. `finish` makes `round(keys · bits per key)` bits, rounded up to a multiple of 64 for Bloom and of 512 for blocked
//!    Bloom. The predicted rate is computed from the bits, in integers.
//! 3. The block is opened and probed with every key, which detects bits lost in memory.
//! 4. If a key is absent, the filter is built again. If the second block differs or has every key, the memory is
//!    faulty, and `finish` fails. Otherwise the builder has a bug, and the block answers "maybe" for every key.
//!
//! The block does not depend on the order of the keys.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use super::bits::{check_bits_per_key, millibits};
use super::blocked::{self, Blocked, LINE_BITS};
use super::bloom::{self, Bloom, GRANULE_BITS, PROBES_MAX};
use super::header::{DOMAIN_WHOLE_KEY, HEADER_BYTES, Header, Kind};
use super::layout::{Layout, Shape};
use super::pages;
use super::policy::FilterPlan;
use super::reader::{Expect, Filter};
use super::ribbon::{self, Built, COLUMNS_MAX, GROUPS_MAX, Groups, Ribbon, Size, build_again};
use super::section::Section;
use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::error::FilterError;
#[cfg(not(any(test, feature = "std")))]
use crate::float::Float;
use crate::hash::{key_hash, table_hash};

const CHUNK: usize = 8192;

const CONSTRUCTION: &str = "filter under construction";

const RIBBON_BYTES_PER_KEY: usize = 20;

fn finish_bytes(kind: Kind, keys: usize, body_bits: f64) -> usize {
    let per_key = if kind.has_columns() { RIBBON_BYTES_PER_KEY } else { size_of::<u64>() };
    keys * per_key + 2 * (HEADER_BYTES + (body_bits / 8.0) as usize)
}

impl FilterPlan {
    /// Approximate peak memory for building this filter, in bytes.
    #[doc(hidden)]
    pub fn build_bytes(&self, keys: u64) -> usize {
        finish_bytes(self.kind, keys as usize, keys as f64 * self.bits_per_key)
    }
}

/// Makes a filter block from the hashes of distinct user keys.
#[derive(Clone)]
pub struct FilterBuilder {
    kind: Kind,
    bits_per_key: f64,
    seed: u64,
    salt: u64,
    owner: FileId,
    columns: Option<f64>,
    bits_and_probes: Option<(u64, u8)>,
    groups: Groups,
    chunks: Vec<Vec<u64>>,
    chunk: Vec<u64>,
}

impl fmt::Debug for FilterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilterBuilder")
            .field("kind", &self.kind)
            .field("bits_per_key", &self.bits_per_key)
            .field("owner", &self.owner)
            .field("key_count", &self.len())
            .finish_non_exhaustive()
    }
}

impl FilterBuilder {
    /// A builder for the table with file id `owner`.
    ///
    /// `seed` is the seed of [`key_hash`] in lookups, and is readable in the block. `salt` should differ between
    /// tables; a small ribbon filter may replace it.
    ///
    /// # Errors
    ///
    /// [`FilterError::InvalidArgument`] unless the bits per key are more than 0 and at most
    /// [`BITS_PER_KEY_MAX`](super::BITS_PER_KEY_MAX).
    pub fn new(
        kind: Kind,
        bits_per_key: f64,
        seed: u64,
        salt: u64,
        owner: FileId,
    ) -> Result<Self, FilterError> {
        check_bits_per_key(bits_per_key)?;
        Ok(Self {
            kind,
            bits_per_key,
            seed,
            salt,
            owner,
            columns: None,
            bits_and_probes: None,
            groups: Groups { count: 1, first: 0 },
            chunks: Vec::new(),
            chunk: Vec::new(),
        })
    }

    /// Sets the bits and probes of a Bloom filter. A blocked filter rounds the bits up to a multiple of 512; a ribbon filter
    /// ignores the call.
    ///
    /// # Errors
    ///
    /// [`FilterError::InvalidArgument`] if `bits` is 0, or `probes` is not 1 to 30.
    pub fn bits_and_probes(mut self, bits: u64, probes: u8) -> Result<Self, FilterError> {
        if bits == 0 || probes == 0 || probes > PROBES_MAX {
            return Err(FilterError::invalid(format!(
                "{bits} bits must be at least 1, and {probes} probes 1 to {PROBES_MAX}"
            )));
        }
        self.bits_and_probes = Some((bits, probes));
        Ok(self)
    }

    /// Sets the columns of a ribbon filter. The rate is `2^-columns`. Other kinds ignore the call.
    ///
    /// # Errors
    ///
    /// [`FilterError::InvalidArgument`] unless `columns` is more than 0 and at most 32.
    pub fn columns(mut self, columns: f64) -> Result<Self, FilterError> {
        if !(columns > 0.0 && columns <= COLUMNS_MAX.into()) {
            return Err(FilterError::invalid(format!(
                "{columns} columns must be over 0 and at most {COLUMNS_MAX}"
            )));
        }
        self.columns = Some(columns);
        Ok(self)
    }

    /// Stores a ribbon filter in 1 to 3 column groups. Later groups can stay on disk ([`Filter::keep_groups`]). Other
    /// kinds ignore the call.
    #[must_use]
    pub fn column_groups(mut self, groups: usize) -> Self {
        self.groups.count = groups.clamp(1, GROUPS_MAX);
        self
    }

    /// Sets the minimum columns of the first group. One in `2^columns` absent keys needs the next group.
    #[must_use]
    pub fn first_group(mut self, columns: u8) -> Self {
        self.groups.first = columns;
        self
    }

    /// Adds a distinct user key by its [`key_hash`]. Each call counts as a key.
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        if self.chunk.len() == CHUNK {
            self.start_chunk();
        }
        self.chunk.push(hash);
    }

    #[cold]
    #[inline(never)]
    fn start_chunk(&mut self) {
        self.chunks.push(core::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK)));
    }

    /// [`FilterBuilder::add_hash`] for a user key.
    pub fn add_key(&mut self, key: &[u8]) {
        self.add_hash(key_hash(self.seed, key));
    }

    /// Number of keys added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.len() * CHUNK + self.chunk.len()
    }

    /// Whether no key was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunk.is_empty()
    }

    /// Memory of the collected hashes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        (self.chunks.len() * CHUNK + self.chunk.capacity()) * size_of::<u64>()
    }

    /// Approximate peak memory of [`FilterBuilder::finish`] in bytes.
    #[must_use]
    pub fn finish_bytes(&self) -> usize {
        finish_bytes(self.kind, self.len(), self.body_bits())
    }

    fn body_bits(&self) -> f64 {
        let keys = self.len() as f64;
        match (self.kind, self.bits_and_probes, self.columns) {
            (Kind::Bloom | Kind::BlockedBloom, Some((bits, _)), _) if keys > 0.0 => bits as f64,
            (Kind::Ribbon, _, Some(columns)) => keys * columns * 1.05,
            _ => keys * self.bits_per_key,
        }
    }

    /// Length of the finished block in bytes; approximate for a ribbon filter.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        let keys = self.len() as u64;
        let layout = if self.kind.has_columns() && keys > 0 {
            Layout::of(&[ribbon::expected_bytes(keys, self.size())])
        } else {
            layout(self.shape())
        };
        layout.map_or(u64::MAX, |layout| layout.block_len)
    }

    fn shape(&self) -> Shape {
        match (self.kind, self.bits_and_probes) {
            (Kind::Bloom, Some((bits, probes))) if !self.is_empty() => Shape::Bloom(Bloom { bits, probes }),
            (Kind::BlockedBloom, Some((bits, probes))) if !self.is_empty() => {
                Shape::Blocked(Blocked { lines: bits.div_ceil(LINE_BITS), probes })
            }
            _ => shape(self.kind, self.len() as u64, self.bits_per_key),
        }
    }

    fn size(&self) -> Size {
        self.columns.map_or(Size::Bits(self.bits_per_key), Size::Columns)
    }

    /// Makes the block. If the filter cannot be built, the block answers "maybe" ([`Header::answers_only_maybe`]).
    ///
    /// # Errors
    ///
    /// [`FilterError::TooLarge`] if the block does not fit in memory. [`FilterError::FaultyMemory`] if the block lacks
    /// a key and a second attempt differs.
    pub fn finish(self) -> Result<Vec<u8>, FilterError> {
        let keys = self.len() as u64;
        if self.kind.has_columns() && keys > 0 {
            return self.finish_ribbon(keys);
        }
        let build = || {
            let block = self.bloom_block()?;
            let fault = self.fault(&block, keys, |filter| self.lost(filter));
            Ok((block, fault))
        };
        let (block, fault) = build()?;
        if fault.is_none() {
            return Ok(block);
        }
        let first = fingerprint(block);
        let (block, fault) = build()?;
        self.settle(keys, first, block, fault)
    }

    fn finish_ribbon(mut self, keys: u64) -> Result<Vec<u8>, FilterError> {
        let mut chunks = core::mem::take(&mut self.chunks);
        chunks.push(core::mem::take(&mut self.chunk));
        let built = ribbon::build(&mut chunks, self.salt, self.size(), self.groups);
        self.salt = built.salt;
        let build = |built| {
            let (block, hashes) = self.ribbon_block(built, keys)?;
            let fault = self.fault(&block, keys, |filter| !filter.probe().has_all_table_hashes(&hashes));
            Ok((block, fault, hashes))
        };
        let (block, fault, hashes) = build(built)?;
        if fault.is_none() {
            return Ok(block);
        }
        let first = fingerprint(block);
        let (block, fault, _) = build(build_again(hashes, self.salt, self.size(), self.groups))?;
        self.settle(keys, first, block, fault)
    }

    fn settle(
        mut self,
        keys: u64,
        first: u64,
        block: Vec<u8>,
        fault: Option<DecodeError>,
    ) -> Result<Vec<u8>, FilterError> {
        let is_same = fingerprint(block) == first;
        if fault.is_none() || !is_same {
            let detail = "two builds from the same keys gave different bytes".into();
            return Err(FilterError::FaultyMemory { detail });
        }
        let shape = Shape::Ribbon(Ribbon::MAYBE);
        let layout = layout(shape).ok_or_else(|| self.too_large())?;
        let mut block = self.allocate(&layout)?;
        self.kind = Kind::Ribbon;
        self.seal(&mut block, shape, u64::MAX, &layout, keys);
        match self.fault(&block, keys, |filter| !filter.header().answers_only_maybe()) {
            None => Ok(block),
            Some(fault) => Err(FilterError::FaultyMemory { detail: fault.to_string().into() }),
        }
    }

    fn bloom_block(&self) -> Result<Vec<u8>, FilterError> {
        let shape = self.shape();
        let layout = layout(shape).ok_or_else(|| self.too_large())?;
        let mut block = self.allocate(&layout)?;
        let mut rate = 0;
        if let (Some(&offset), Some(&len)) = (layout.offsets.first(), layout.lens.first()) {
            let body = &mut block[offset as usize..][..len as usize];
            self.fill(body, shape);
            #[cfg(any(test, feature = "testing"))]
            fault_injection::spoil(body);
            rate = shape.stored_rate(body);
        }
        self.seal(&mut block, shape, rate, &layout, self.len() as u64);
        Ok(block)
    }

    /// Makes a [`Kind::Bloom`] block with these bits. Requires [`FilterBuilder::bits_and_probes`].
    #[doc(hidden)]
    pub fn finish_with_bits(self, bits: &[u8], keys: u64) -> Result<Vec<u8>, FilterError> {
        let Some((size, probes)) = self.bits_and_probes else {
            return Err(FilterError::invalid("the numbers of bits and probes were not set"));
        };
        self.finish_bloom(Bloom { bits: size, probes }, bits, keys)
    }

    pub(super) fn finish_bloom(self, bloom: Bloom, bits: &[u8], keys: u64) -> Result<Vec<u8>, FilterError> {
        let shape = Shape::Bloom(bloom);
        let layout = layout(shape).ok_or_else(|| self.too_large())?;
        let mut block = self.allocate(&layout)?;
        if let Some(&offset) = layout.offsets.first() {
            block[offset as usize..][..bits.len()].copy_from_slice(bits);
        }
        self.seal(&mut block, shape, shape.stored_rate(bits), &layout, keys);
        match self.fault(&block, keys, |_| false) {
            None => Ok(block),
            Some(fault) => Err(FilterError::FaultyMemory { detail: fault.to_string().into() }),
        }
    }

    fn lost(&self, filter: &Filter<&[u8]>) -> bool {
        let mut answers = [false; CHUNK];
        self.all_chunks().any(|chunk| {
            let answers = &mut answers[..chunk.len()];
            filter.may_contain_many(chunk, answers);
            answers.iter().any(|&maybe| !maybe)
        })
    }

    fn ribbon_block(&self, built: Built, keys: u64) -> Result<(Vec<u8>, Vec<u64>), FilterError> {
        let Built { ribbon, mut sections, hashes, .. } = built;
        #[cfg(any(test, feature = "testing"))]
        sections.iter_mut().for_each(|section| fault_injection::spoil(section));
        let shape = Shape::Ribbon(ribbon);
        let rate = sections.first().map_or(u64::MAX, |thresholds| shape.stored_rate(thresholds));
        let layout = layout(shape).ok_or_else(|| self.too_large())?;
        let mut block = self.allocate(&layout)?;
        for (section, &offset) in sections.iter_mut().zip(&layout.offsets) {
            block[offset as usize..][..section.len()].copy_from_slice(section);
            *section = Vec::new();
        }
        self.seal(&mut block, shape, rate, &layout, keys);
        Ok((block, hashes))
    }

    fn too_large(&self) -> FilterError {
        FilterError::TooLarge { asked: self.block_bytes() }
    }

    fn allocate(&self, layout: &Layout) -> Result<Vec<u8>, FilterError> {
        let len = usize::try_from(layout.block_len).map_err(|_| self.too_large())?;
        let mut block = Vec::new();
        block.try_reserve_exact(len).map_err(|_| self.too_large())?;
        block.resize(len, 0);
        Ok(block)
    }

    fn seal(&self, block: &mut [u8], shape: Shape, rate: u64, layout: &Layout, keys: u64) {
        let mut sections: Vec<Section> = layout
            .offsets
            .iter()
            .zip(&layout.lens)
            .map(|(&offset, &len)| Section { offset, len, checksum: 0 })
            .collect();
        pages::seal(block, &self.owner, &mut sections);
        let header = self.header(shape, rate, layout.block_len, sections, keys).encode();
        block[..HEADER_BYTES].copy_from_slice(&header);
    }

    fn all_chunks(&self) -> impl Iterator<Item = &Vec<u64>> {
        self.chunks.iter().chain([&self.chunk])
    }

    fn hashes(&self) -> impl Iterator<Item = u64> {
        self.all_chunks().flatten().copied()
    }

    fn fill(&self, body: &mut [u8], shape: Shape) {
        let hashes = self.hashes().map(|hash| table_hash(hash, self.salt));
        match shape {
            Shape::Empty | Shape::Ribbon(_) => {}
            Shape::Bloom(bloom) => hashes.for_each(|hash| bloom.insert(body, hash)),
            Shape::Blocked(blocked) => hashes.for_each(|hash| blocked.insert(body, hash)),
        }
    }

    fn header(&self, shape: Shape, rate: u64, block_len: u64, sections: Vec<Section>, keys: u64) -> Header {
        let (size, probes, ribbon) = match shape {
            Shape::Empty => (0, 0, Ribbon::MAYBE),
            Shape::Bloom(bloom) => (bloom.bits, bloom.probes, Ribbon::MAYBE),
            Shape::Blocked(blocked) => (blocked.lines, blocked.probes, Ribbon::MAYBE),
            Shape::Ribbon(ribbon) => (ribbon.slots, 0, ribbon),
        };
        Header {
            kind: self.kind,
            domain: DOMAIN_WHOLE_KEY,
            optional_flags: 0,
            owner: self.owner,
            block_len,
            seed: self.seed,
            salt: self.salt,
            key_count: keys,
            rate,
            size,
            probes,
            column_groups: ribbon.groups,
            attempt: ribbon.attempt,
            buckets: ribbon.buckets,
            plain_blocks: ribbon.plain,
            sections,
            checksum: 0,
        }
    }

    fn fault(
        &self,
        block: &[u8],
        keys: u64,
        lost: impl FnOnce(&Filter<&[u8]>) -> bool,
    ) -> Option<DecodeError> {
        match Filter::open(block, Expect::table(self.owner, self.seed, keys)) {
            Ok(filter) if lost(&filter) => {
                Some(DecodeError::corrupt(0, CONSTRUCTION, "an added key is not found"))
            }
            Ok(_) => None,
            Err(error) => Some(error),
        }
    }
}

fn fingerprint(block: Vec<u8>) -> u64 {
    key_hash(0, &block)
}

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod fault_injection {
    use std::cell::Cell;

    /// Changes a body or section. The second argument is the number of earlier calls.
    type Fault = fn(&mut [u8], u32);

    std::thread_local! {
        static FAULT: Cell<Option<(Fault, u32)>> = const { Cell::new(None) };
    }

    /// Sets the fault of this thread.
    pub fn set(fault: Option<Fault>) {
        FAULT.set(fault.map(|fault| (fault, 0)));
    }

    pub(super) fn spoil(bits: &mut [u8]) {
        if let Some((fault, before)) = FAULT.get() {
            FAULT.set(Some((fault, before + 1)));
            fault(bits, before);
        }
    }
}

fn shape(kind: Kind, keys: u64, bits_per_key: f64) -> Shape {
    if keys == 0 {
        return Shape::Empty;
    }
    // The cast saturates, and `Layout` rejects large sizes.
    let bits = ((keys as f64 * bits_per_key).round() as u64).max(1);
    let millibits = millibits(bits_per_key);
    match kind {
        Kind::Ribbon => Shape::Ribbon(Ribbon::MAYBE),
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
    Layout::of(&shape.section_lens()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: FileId = [8; 16];

    fn hash(index: u64) -> u64 {
        key_hash(1, &index.to_le_bytes())
    }

    fn build(kind: Kind, bits: f64, salt: u64, hashes: impl Iterator<Item = u64>) -> Filter<Vec<u8>> {
        let mut builder = FilterBuilder::new(kind, bits, 1, salt, OWNER).unwrap();
        hashes.for_each(|hash| builder.add_hash(hash));
        let (keys, len) = (builder.len() as u64, builder.block_bytes());
        let bytes = builder.finish().unwrap();
        if kind == Kind::Ribbon {
            assert!(
                bytes.len().abs_diff(len as usize) <= 4096 + bytes.len() / 64,
                "{} is not about {len}",
                bytes.len()
            );
        } else {
            assert_eq!(bytes.len() as u64, len);
        }
        Filter::open(bytes, Expect::table(OWNER, 1, keys)).unwrap()
    }

    fn with_fault(kind: Kind, fault: fn(&mut [u8], u32)) -> Result<Vec<u8>, FilterError> {
        let mut builder = FilterBuilder::new(kind, 10.0, 1, 3, OWNER).unwrap();
        (0..1000).map(hash).for_each(|hash| builder.add_hash(hash));
        fault_injection::set(Some(fault));
        let built = builder.finish();
        fault_injection::set(None);
        built
    }

    #[test]
    fn a_filter_that_reports_keys_absent_in_both_attempts_answers_maybe_for_every_key() {
        for kind in Kind::ALL {
            let block = with_fault(kind, |bits, _| bits.fill(0)).unwrap();
            let filter = Filter::open(block, Expect::table(OWNER, 1, 1000)).unwrap();
            assert!(filter.header().answers_only_maybe() && filter.predicted_rate() == 1.0, "{kind:?}");
            assert!((0..2000).all(|index| filter.may_contain(hash(index))));
            filter.verify().unwrap();
        }
    }

    #[test]
    fn lost_bits_of_any_column_of_a_ribbon_filter_are_noticed() {
        type Fault = fn(&mut [u8], u32);
        let faults: [Fault; 3] = [
            |bits, _| spoil_columns(bits, 0),
            |bits, _| spoil_columns(bits, 8),
            |bits, _| spoil_columns(bits, 11),
        ];
        for (groups, fault) in [1, 2].into_iter().flat_map(|groups| faults.map(|fault| (groups, fault))) {
            let builder = FilterBuilder::new(Kind::Ribbon, 10.0, 1, 3, OWNER).unwrap();
            let mut builder = builder.columns(12.0).unwrap().column_groups(groups);
            (0..20_000).map(hash).for_each(|hash| builder.add_hash(hash));
            fault_injection::set(Some(fault));
            let block = builder.finish();
            fault_injection::set(None);
            let filter = Filter::open(block.unwrap(), Expect::table(OWNER, 1, 20_000)).unwrap();
            assert!(filter.header().answers_only_maybe(), "{groups} groups");
        }
    }

    fn spoil_columns(bits: &mut [u8], column: usize) {
        if bits.len() > 1000 {
            bits[8 * column + 1] ^= 0xff;
        }
    }

    #[test]
    fn a_second_attempt_with_other_bytes_is_an_error_of_faulty_memory() {
        type Fault = fn(&mut [u8], u32);
        let first_fails: Fault = |bits, before| {
            if before == 0 {
                bits.fill(0)
            }
        };
        let first_ribbon_fails: Fault = |bits, before| {
            if before < 2 {
                bits.fill(0)
            }
        };
        let both_fail: Fault = |bits, before| {
            bits.fill(0);
            bits.iter_mut().take(1).for_each(|byte| *byte = before as u8);
        };
        for (kind, first_fails) in Kind::ALL.into_iter().zip([first_fails, first_fails, first_ribbon_fails]) {
            for fault in [first_fails, both_fail] {
                let error = with_fault(kind, fault).unwrap_err();
                assert!(matches!(error, FilterError::FaultyMemory { .. }), "{kind:?}: {error}");
            }
        }
    }

    #[test]
    fn a_ribbon_filter_that_is_built_again_from_its_table_hashes_is_the_same() {
        for keys in [1, 300, 7000, 70_000] {
            let size = Size::Bits(9.5);
            let groups = Groups { count: 2, first: 0 };
            let first = ribbon::build(&mut vec![(0..keys).map(hash).collect()], 7, size, groups);
            let again = build_again(first.hashes, first.salt, size, groups);
            assert!((first.ribbon, first.sections) == (again.ribbon, again.sections), "{keys} keys");
        }
    }

    fn measure(filter: &Filter<Vec<u8>>) -> f64 {
        (0..1_000_000).filter(|index| filter.may_contain(hash((1 << 40) + index))).count() as f64
    }

    #[test]
    fn no_added_key_is_ever_reported_absent() {
        for kind in Kind::ALL {
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
        for kind in Kind::ALL {
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
                // The tolerance is four standard deviations of the count, and 2 % for the model.
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
        for kind in Kind::ALL {
            for bits in [4.0, 8.0, 9.9, 10.0, 12.5, 16.0, 20.0] {
                let filter = build(kind, bits, 5, (0..300_000).map(hash));
                let expected = super::super::FilterPlan { kind, bits_per_key: bits }.expected_rate();
                let ratio = filter.predicted_rate() / expected;
                assert!((0.985..1.015).contains(&ratio), "{kind:?} {bits}: {ratio}");
                let actual = filter.bits() as f64 / 300_000.0;
                let range = match kind {
                    Kind::Ribbon => bits * 0.998..bits * 1.002,
                    _ => bits - 1e-5..bits + 512.0 / 300_000.0,
                };
                assert!(range.contains(&actual), "{kind:?} {bits}: {actual}");
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
        for kind in Kind::ALL {
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
    fn false_positives_near_the_keys_of_two_tables_are_independent_too() {
        let hash = |group: u64, last: u8| key_hash(1, format!("user:{group:08}:{last:03}").as_bytes());
        for kind in Kind::ALL {
            let filters =
                [10, 11].map(|salt| build(kind, 5.0, salt, (0..50_000).map(|group| hash(group, 0))));
            let near = (0..50_000).flat_map(|group| (1..21).map(move |last| hash(group, last)));
            let both = near.filter(|&hash| filters.iter().all(|filter| filter.may_contain(hash))).count();
            let expected = filters.iter().map(Filter::predicted_rate).product::<f64>() * 1e6;
            let both = both as f64;
            assert!((both - expected).abs() < 5.0 * expected.sqrt(), "{kind:?}: {both}, expected {expected}");
        }
    }

    #[test]
    fn the_order_of_the_keys_changes_no_byte() {
        for kind in Kind::ALL {
            let upwards = build(kind, 10.0, 4, (0..20_000).map(hash)).into_inner();
            let downwards = build(kind, 10.0, 4, (0..20_000).rev().map(hash)).into_inner();
            let shuffled =
                build(kind, 10.0, 4, (0..20_000).map(|index| hash(index * 7919 % 20_000))).into_inner();
            assert!(upwards == downwards && upwards == shuffled);
        }
    }

    #[test]
    fn finish_bytes_predicts_the_memory_that_finish_takes() {
        let about = |builder: FilterBuilder| {
            let mut builder = builder;
            (0..20_000).for_each(|index| builder.add_hash(hash(index)));
            let per_key = if builder.kind == Kind::Ribbon { RIBBON_BYTES_PER_KEY } else { 8 };
            let (told, real) =
                (builder.finish_bytes(), 20_000 * per_key + 2 * builder.block_bytes() as usize);
            assert!(told.abs_diff(real) < real / 16, "{:?}: {told} is not about {real}", builder.kind);
        };
        for kind in Kind::ALL {
            for bits in [0.9, 7.9, 24.0] {
                about(FilterBuilder::new(kind, bits, 1, 2, OWNER).unwrap());
            }
            let builder = FilterBuilder::new(kind, 10.0, 1, 2, OWNER).unwrap();
            about(builder.clone().bits_and_probes(4_000_000, 6).unwrap());
            about(builder.columns(30.0).unwrap());
        }
    }

    #[test]
    fn keys_with_equal_or_extreme_hashes_are_never_reported_absent() {
        for kind in Kind::ALL {
            for extreme in [0, 1, 1 << 63, u64::MAX, u64::MAX - 1] {
                for salt in [0, extreme, u64::MAX] {
                    for count in [500, 20_000] {
                        let filter = build(kind, 10.0, salt, std::iter::repeat_n(extreme, count));
                        assert!(filter.may_contain(extreme));
                        filter.verify().unwrap();
                    }
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
                    let bloom = shape(Kind::Bloom, keys, bits).section_lens().unwrap()[0] * 8;
                    let blocked = shape(Kind::BlockedBloom, keys, bits).section_lens().unwrap()[0] * 8;
                    assert!(bloom >= wanted && bloom - wanted < 64, "{keys} {bits}");
                    assert!(blocked >= wanted && blocked - wanted < 512, "{keys} {bits}");
                    layout(shape(Kind::Bloom, keys, bits)).unwrap();
                }
            }
        }
        for kind in [Kind::Bloom, Kind::BlockedBloom] {
            layout(shape(kind, u64::MAX, 64.0));
        }
    }

    #[test]
    fn an_additional_column_that_starts_where_two_layers_meet_loses_no_key() {
        for bits in [19.085, 19.088, 19.09, 19.093, 19.096] {
            build(Kind::Ribbon, bits, 2, (0..200_000).map(hash));
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
        assert!(matches!(error, FilterError::InvalidArgument { .. }));
    }

    #[test]
    fn a_key_that_the_finished_block_reports_absent_is_noticed() {
        let mut builder = FilterBuilder::new(Kind::Bloom, 10.0, 1, 2, OWNER).unwrap();
        (0..50).for_each(|index| builder.add_hash(hash(index)));
        let bytes = builder.clone().finish().unwrap();
        let check =
            |builder: &FilterBuilder, bytes: &[u8]| builder.fault(bytes, 50, |filter| builder.lost(filter));
        assert_eq!(check(&builder, &bytes), None);
        // A hash that changed in memory after its bits were set.
        builder.chunk[20] ^= 1 << 40;
        assert_eq!(check(&builder, &bytes).unwrap().what, "filter under construction");
        let mut damaged = bytes;
        *damaged.last_mut().unwrap() ^= 1;
        assert!(check(&builder, &damaged).is_some());
    }

    #[test]
    fn the_test_of_all_keys_answers_as_a_probe_of_each() {
        let shapes =
            [(300, 3.0, 1), (4000, 9.4, 1), (4000, 10.6, 2), (4000, 16.0, 3), (4000, 17.5, 2), (90, 9.0, 1)];
        let large = [(70_000, 10.0, 2)];
        for (keys, columns, groups) in shapes.into_iter().chain(large.into_iter().filter(|_| !cfg!(miri))) {
            let builder = FilterBuilder::new(Kind::Ribbon, 10.0, 7, 3, [4; 16]).unwrap();
            let mut builder = builder.columns(columns).unwrap().column_groups(groups);
            (0..keys).for_each(|key: u64| builder.add_key(&key.to_le_bytes()));
            let bytes = builder.finish().unwrap();
            let filter = Filter::open(&bytes, Expect::anything()).unwrap();
            for filter in [filter.clone().portable(), filter] {
                let probe = filter.probe();
                let hash = |key: u64| table_hash(key_hash(7, &key.to_le_bytes()), filter.header().salt);
                let mut answers = [0, 0];
                for key in (0..2 * keys).step_by(keys as usize / if cfg!(miri) { 9 } else { 90 }) {
                    let may_contain = filter.may_contain_key(&key.to_le_bytes());
                    assert_eq!(
                        probe.has_all_table_hashes(&[hash(key)]),
                        may_contain,
                        "{keys} {columns} {key}"
                    );
                    answers[usize::from(may_contain)] += 1;
                }
                assert!(answers[1] >= answers[0] && answers[0] > 0, "{answers:?}");
                let mut hashes: Vec<u64> = (0..keys).map(hash).collect();
                for _ in ["in any order", "in the order of blocks"] {
                    assert!(probe.has_all_table_hashes(&hashes));
                    hashes.sort_unstable();
                }
                let absent = (keys..).find(|key| !filter.may_contain_key(&key.to_le_bytes())).unwrap();
                hashes.push(hash(absent));
                assert!(!probe.has_all_table_hashes(&hashes), "{keys} {columns}");
            }
        }
    }
}
