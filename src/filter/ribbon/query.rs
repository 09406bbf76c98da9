//! From sections to answers.
//!
//! Nearly all queries are for absent keys and end in the first layer, within the first group's first columns. That
//! way is straight: three products, the threshold, one read of each of two blocks. All else is out of its way.

use super::geometry::{GROUPS_MAX, Group, LAYERS_MAX, Layer, Ribbon};
use super::row::{Wide, narrow, next_layer, wide};
use super::solution::unpack;
use super::standard::aligned;
use super::{BLOCK_SLOTS, BUCKET_STARTS, BUMPED_BELOW};
use crate::codec::DecodeError;
use crate::filter::arch::{Simd, Work};
use crate::filter::layout::Section;
use crate::hash::reduce;

/// [`Reading::may_contain`].
pub(in crate::filter) struct MayContain;

impl Work<&Reading, &[u8], u64> for MayContain {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, reading: &Reading, block: &[u8], hash: u64) -> bool {
        reading.test(simd, block, reading.locate(hash))
    }
}

/// [`Reading::test`].
pub(in crate::filter) struct Test;

impl Work<&Reading, &[u8], (u64, u64)> for Test {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, reading: &Reading, block: &[u8], located: (u64, u64)) -> bool {
        reading.test(simd, block, located)
    }
}

/// [`Reading::test_many`].
pub(in crate::filter) struct TestMany;

impl<F: Fn(u64) -> u64> Work<(&Reading, &[u8]), (bool, F), (&[u64], &mut [bool])> for TestMany {
    type Output = ();

    #[inline(always)]
    fn work(
        simd: Simd,
        (reading, block): (&Reading, &[u8]),
        (far, mix): (bool, F),
        asked: (&[u64], &mut [bool]),
    ) {
        reading.test_many(simd, block, far, mix, asked);
    }
}

/// [`Reading::test_narrow`], of a layer after the first.
struct TestNarrow;

impl Work<(&Reading, &[u8]), &Layer, (u64, u64)> for TestNarrow {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, (reading, block): (&Reading, &[u8]), layer: &Layer, located: (u64, u64)) -> bool {
        reading.test_narrow(simd, block, layer, located)
    }
}

/// [`Reading::test_last`].
struct TestLast;

impl Work<&Reading, &[u8], u64> for TestLast {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, reading: &Reading, block: &[u8], hash: u64) -> bool {
        reading.test_last(simd, block, hash)
    }
}

/// Queries that are under way at one time: more than a processor waits for at once.
const BATCH: usize = 32;

/// What a query of one ribbon filter needs, found out once.
#[derive(Debug, Clone)]
pub(in crate::filter) struct Reading {
    layers: [Layer; LAYERS_MAX],
    layer_count: usize,
    last_block: u64,
    slots: u64,
    attempt: u16,
    /// Where the thresholds start in the block; beyond any block if there are none.
    thresholds: usize,
    /// The groups that are there, and where each one's section starts in the block.
    groups: [(Group, usize); GROUPS_MAX],
    group_count: usize,
    /// The blocks of the first group without and with an additional column, and the first one that has it.
    first: [Run; 2],
    plain: u64,
    /// The number of the tail, and its words, unpacked, group by group.
    tail: u64,
    tail_words: Vec<u8>,
}

/// Blocks of equally many columns: number `n` starts at byte `base + n * stride` of the filter block.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    stride: usize,
    /// May be less than 0 in the second run, which does not begin with number 0.
    base: usize,
}

impl Default for Reading {
    /// Answers "maybe".
    fn default() -> Self {
        Self {
            layers: Default::default(),
            layer_count: 0,
            last_block: 0,
            slots: 0,
            attempt: 0,
            thresholds: usize::MAX,
            groups: Default::default(),
            group_count: 0,
            first: Default::default(),
            plain: 0,
            tail: 0,
            tail_words: Vec::new(),
        }
    }
}

impl Reading {
    /// Of a verified block with these sections, of which the first `groups` column groups are there.
    pub(in crate::filter) fn new(
        ribbon: &Ribbon,
        block: &[u8],
        sections: &[Section],
        groups: usize,
    ) -> Result<Self, DecodeError> {
        let mut reading = Self::default();
        let Some((thresholds, columns)) = sections.split_first() else { return Ok(reading) };
        for layer in ribbon.layers() {
            reading.layers[reading.layer_count] = layer;
            reading.layer_count += 1;
        }
        reading.last_block = ribbon.last_layer_block();
        (reading.slots, reading.attempt) = (ribbon.slots, ribbon.attempt);
        if reading.layer_count > 0 {
            reading.thresholds = thresholds.offset as usize;
        }
        reading.tail = ribbon.blocks() - 1;
        for (index, section) in columns.iter().enumerate().take(groups) {
            let group = ribbon.group(index);
            let tail = section.offset + group.offset_of(reading.tail);
            let packed = &block[tail as usize..(section.offset + section.len) as usize];
            let words = unpack(packed, group.columns_of(reading.tail), group.tail_slots)
                .ok_or_else(|| DecodeError::corrupt(tail, "filter padding", "is not zero"))?;
            reading.tail_words.extend_from_slice(&words);
            reading.groups[index] = (group, section.offset as usize);
            reading.group_count += 1;
        }
        let (group, section) = reading.groups[0];
        let stride = 8 * group.columns as usize;
        let more = section.wrapping_sub((group.plain as usize).wrapping_mul(8));
        reading.first = [Run { stride, base: section }, Run { stride: stride + 8, base: more }];
        reading.plain = group.plain;
        Ok(reading)
    }

    /// Of the same filter with the first `groups` column groups only.
    pub(in crate::filter) fn keep_groups(&self, groups: usize) -> Self {
        let mut kept = self.clone();
        kept.group_count = kept.group_count.min(groups);
        kept
    }

    /// The start in the first layer; 0 if there is only the last.
    #[inline(always)]
    pub(in crate::filter) fn locate(&self, hash: u64) -> (u64, u64) {
        (hash, reduce(hash, self.layers[0].starts))
    }

    /// Whether the key may be there whose table hash was located. What lies outside of the block counts as fitting.
    #[inline(always)]
    fn test(&self, simd: Simd, block: &[u8], (hash, start): (u64, u64)) -> bool {
        match self.bumped_below(block, start) {
            Some(below) if start % BUCKET_STARTS >= below => {
                self.test_narrow(simd, block, &Layer { starts: 0, block: 0, bucket: 0 }, (hash, start))
            }
            _ => self.test_later(simd, block, hash),
        }
    }

    /// The same for many hashes, of which `mix` makes table hashes: the answer for each in the same place.
    ///
    /// If the filter is `far`, in no cache near by, the memory of 32 is asked for before the first is waited for.
    #[inline(always)]
    fn test_many(
        &self,
        simd: Simd,
        block: &[u8],
        far: bool,
        mix: impl Fn(u64) -> u64,
        (hashes, answers): (&[u64], &mut [bool]),
    ) {
        if !far {
            for (&hash, answer) in hashes.iter().zip(answers) {
                *answer = self.test(simd, block, self.locate(mix(hash)));
            }
            return;
        }
        let mut probes = [(0, 0); BATCH];
        for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            for (probe, &hash) in probes.iter_mut().zip(hashes) {
                *probe = self.locate(mix(hash));
                self.prefetch(simd, block, *probe);
            }
            for ((answer, &probe), _) in answers.iter_mut().zip(&probes).zip(hashes) {
                *answer = self.test(simd, block, probe);
            }
        }
    }

    /// [`Reading::test`] of a hash that was bumped from the first layer, or that has none.
    #[cold]
    #[inline(never)]
    fn test_later(&self, simd: Simd, block: &[u8], mut hash: u64) -> bool {
        for (index, layer) in self.layers[..self.layer_count].iter().enumerate() {
            if index > 0 {
                let start = reduce(hash, layer.starts);
                let Some(below) = self.bumped_below(block, layer.bucket * BUCKET_STARTS + start) else {
                    return true;
                };
                if start % BUCKET_STARTS >= below {
                    return simd.run(TestNarrow, (self, block), layer, (hash, start));
                }
            }
            hash = next_layer(hash);
        }
        simd.run(TestLast, self, block, hash)
    }

    /// How many starts are bumped of the bucket of this one, counted through all layers.
    #[inline(always)]
    fn bumped_below(&self, block: &[u8], start: u64) -> Option<u64> {
        let byte = block.get(self.thresholds.wrapping_add((start / (4 * BUCKET_STARTS)) as usize))?;
        let threshold = byte >> (2 * (start / BUCKET_STARTS % 4)) & 3;
        Some(BUMPED_BELOW[usize::from(threshold)].into())
    }

    #[inline(always)]
    fn test_narrow(&self, simd: Simd, block: &[u8], layer: &Layer, (hash, start): (u64, u64)) -> bool {
        let (coefficients, mark) = narrow(hash);
        let number = layer.block + Layer::block_of(start);
        let offset = start % BLOCK_SLOTS;
        let coefficients = [coefficients << offset, coefficients >> 1 >> (63 - offset)];
        let (at, stride) = self.first_columns(number);
        // The next block follows at once, and has no fewer columns.
        let Some(rows) = block.get(at..) else { return true };
        simd.pair_matches(rows, stride, coefficients, mark)
            && (self.group_count == 1
                || self.test_groups(simd, block, number, coefficients, mark.checked_shr(stride as u32 / 8)))
    }

    /// Where the first group's words of a block stand, and how many bytes they are.
    #[inline(always)]
    fn first_columns(&self, number: u64) -> (usize, usize) {
        let Run { stride, base } = self.first[usize::from(number >= self.plain)];
        (base.wrapping_add((number as usize).wrapping_mul(stride)), stride)
    }

    /// The groups after the first, whose columns are gone from the mark.
    #[inline(always)]
    fn test_groups(
        &self,
        simd: Simd,
        block: &[u8],
        number: u64,
        coefficients: [u64; 2],
        mark: Option<u32>,
    ) -> bool {
        let mut mark = mark.unwrap_or(0);
        self.groups[..self.group_count].iter().skip(1).all(|(group, section)| {
            let columns = group.columns_of(number);
            let Some(rows) = block.get(section + group.offset_of(number) as usize..) else { return true };
            let matches = simd.pair_matches(rows, 8 * columns as usize, coefficients, mark);
            mark = mark.checked_shr(columns as u32).unwrap_or(0);
            matches
        })
    }

    #[inline(always)]
    fn test_last(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        if self.slots == 0 {
            return true;
        }
        let row = wide(hash, self.attempt, self.slots);
        let Wide { start, mut mark, .. } = row;
        let (number, offset) = (self.last_block + start / 64, start % 64);
        let coefficients = aligned(&row, offset as u32);
        let mut tail = &self.tail_words[..];
        for (group, section) in &self.groups[..self.group_count] {
            let len = 8 * group.columns_of(number) as usize;
            let words = |number: u64| {
                let at = section + group.offset_of(number) as usize;
                if number < self.tail { block.get(at..at + len) } else { tail.get(..len) }
            };
            // A window that starts with a block does not meet the block after the next, which may not exist.
            let (Some(one), Some(two), Some(three)) = (words(number), words(number + 1), words(number + 2))
            else {
                return true;
            };
            if !simd.matches([one, two, three], coefficients, mark) {
                return false;
            }
            mark = mark.checked_shr(len as u32 / 8).unwrap_or(0);
            tail = tail.get(8 * group.columns_of(self.tail) as usize..).unwrap_or_default();
        }
        true
    }

    /// Asks for the memory that a query will most likely read: the first columns of two blocks.
    #[inline(always)]
    pub(in crate::filter) fn prefetch(&self, simd: Simd, block: &[u8], (_, start): (u64, u64)) {
        let (one, stride) = self.first_columns(Layer::block_of(start));
        let two = one.wrapping_add(stride);
        for at in [one, one.wrapping_add(31), two, two.wrapping_add(31)] {
            simd.prefetch(block, at);
        }
    }
}
