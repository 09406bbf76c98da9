//! From sections to answers.
//!
//! Nearly all queries are for absent keys and end in the first layer, within the first group's first columns. That
//! way is straight: three products, the threshold, one read of each of two blocks, in functions that call nothing. All else
//! is out of its way, and computes again what it needs.

use alloc::vec::Vec;

use super::geometry::{GROUPS_MAX, Group, LAYERS_MAX, Layer, Ribbon};
use super::row::{Wide, narrow, next_layer, wide};
use super::solution::unpack;
use super::standard::aligned;
use super::{BLOCK_SLOTS, BUCKET_STARTS, BUMPED_BELOW};
use crate::arch::{First, Simd, Work};
use crate::codec::DecodeError;
use crate::hash::{reduce, table_hash};
use crate::layout::Section;

/// Of a key hash, mixed with the salt here: [`Reading::test`].
struct MayContain;

impl Work<&Reading, &[u8], u64> for MayContain {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, reading: &Reading, block: &[u8], hash: u64) -> bool {
        let hash = reading.table_hash(hash);
        // A branch that goes the same way for all keys.
        if reading.first.is_mixed() {
            reading.test::<true>(simd, block, hash)
        } else {
            reading.test::<false>(simd, block, hash)
        }
    }
}

/// [`Reading::test`].
struct Test;

impl Work<&Reading, &[u8], u64> for Test {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, reading: &Reading, block: &[u8], hash: u64) -> bool {
        reading.test::<true>(simd, block, hash)
    }
}

/// [`Reading::test_many`].
pub(crate) struct TestMany;

impl<F: Fn(u64) -> u64> Work<(&Reading, &[u8]), (bool, F), (&[u64], &mut [bool])> for TestMany {
    type Output = ();

    #[inline(always)]
    fn work(
        simd: Simd,
        (reading, block): (&Reading, &[u8]),
        (far, mix): (bool, F),
        asked: (&[u64], &mut [bool]),
    ) {
        // As for one.
        if reading.first.is_mixed() {
            reading.test_many::<true>(simd, block, far, mix, asked);
        } else {
            reading.test_many::<false>(simd, block, far, mix, asked);
        }
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

/// [`Reading::test_groups`] after the first group, in the first layer.
struct TestOthers;

impl Work<&Reading, &[u8], u64> for TestOthers {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, reading: &Reading, block: &[u8], hash: u64) -> bool {
        let start = reading.first.start(hash);
        let number = Layer::block_of(start);
        let (coefficients, mark) = window(hash, start);
        let mark = mark.checked_shr(reading.groups[0].0.columns_of(number) as u32).unwrap_or(0);
        reading.test_groups(simd, block, number, (coefficients, mark), 1)
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
pub(crate) struct Reading {
    salt: u64,
    first: First,
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
    /// The number of the tail, and its words, unpacked, group by group.
    tail: u64,
    tail_words: Vec<u8>,
}

impl Default for Reading {
    /// Answers "maybe".
    fn default() -> Self {
        Self {
            salt: 0,
            first: First::NONE,
            layers: Default::default(),
            layer_count: 0,
            last_block: 0,
            slots: 0,
            attempt: 0,
            thresholds: usize::MAX,
            groups: Default::default(),
            group_count: 0,
            tail: 0,
            tail_words: Vec::new(),
        }
    }
}

impl Reading {
    /// Of a verified block with these sections, of which the first `groups` column groups are there.
    pub(crate) fn new(
        ribbon: &Ribbon,
        block: &[u8],
        sections: &[Section],
        groups: usize,
        salt: u64,
    ) -> Result<Self, DecodeError> {
        let mut reading = Self { salt, ..Self::default() };
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
        let starts = reading.layers[0].starts;
        reading.first = First::new(starts, reading.thresholds, section, group.columns, group.plain);
        Ok(reading)
    }

    /// Of the same filter with the first `groups` column groups only.
    pub(crate) fn keep_groups(&self, groups: usize) -> Self {
        let mut kept = self.clone();
        kept.group_count = kept.group_count.min(groups);
        kept
    }

    /// The table hash of a key hash.
    #[inline(always)]
    pub(crate) fn table_hash(&self, hash: u64) -> u64 {
        table_hash(hash, self.salt)
    }

    /// Whether a key with this key hash may be there.
    #[inline(always)]
    pub(crate) fn may_contain(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        simd.ask(MayContain, self, block, hash)
    }

    /// The same for a table hash.
    #[inline(always)]
    pub(crate) fn has_table_hash(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        simd.ask(Test, self, block, hash)
    }

    /// The same, with the instructions of `simd` where it is called. What lies outside of the block counts as fitting.
    #[inline(always)]
    fn test<const MIXED: bool>(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        let Some(there) = self.first.there(block) else {
            return self.layer_count > 0 || self.test_later(simd, block, hash);
        };
        let place = there.place(hash);
        if is_bumped(place.thresholds(), place.start()) {
            return self.test_later(simd, block, hash);
        }
        let (coefficients, mark) = window(hash, place.start());
        simd.matches(place.rows::<MIXED>(), coefficients, mark)
            && (self.group_count == 1 || self.test_other_groups(simd, block, hash))
    }

    /// The same for many hashes, of which `mix` makes table hashes: the answer for each in the same place.
    ///
    /// If the filter is `far`, in no cache near by, the memory of 32 is asked for before the first is waited for.
    #[inline(always)]
    fn test_many<const MIXED: bool>(
        &self,
        simd: Simd,
        block: &[u8],
        far: bool,
        mix: impl Fn(u64) -> u64,
        (hashes, answers): (&[u64], &mut [bool]),
    ) {
        for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            if far {
                hashes.iter().for_each(|&hash| self.prefetch(simd, block, mix(hash)));
            }
            for (&hash, answer) in hashes.iter().zip(answers) {
                *answer = self.test::<MIXED>(simd, block, mix(hash));
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
                let counted = layer.bucket * BUCKET_STARTS + start;
                let at = self.thresholds.wrapping_add((counted / (4 * BUCKET_STARTS)) as usize);
                let Some(&thresholds) = block.get(at) else { return true };
                if !is_bumped(thresholds, counted) {
                    return simd.run(TestNarrow, (self, block), layer, (hash, start));
                }
            }
            hash = next_layer(hash);
        }
        simd.run(TestLast, self, block, hash)
    }

    /// [`Reading::test`] of a hash that fits into the first group, in the first layer.
    #[inline(never)]
    fn test_other_groups(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        simd.ask(TestOthers, self, block, hash)
    }

    #[inline(always)]
    fn test_narrow(&self, simd: Simd, block: &[u8], layer: &Layer, (hash, start): (u64, u64)) -> bool {
        self.test_groups(simd, block, layer.block + Layer::block_of(start), window(hash, start), 0)
    }

    /// Whether a window that starts in this block fits into the column groups from `first` on; the mark is without the
    /// columns of those in front.
    #[inline(always)]
    fn test_groups(
        &self,
        simd: Simd,
        block: &[u8],
        number: u64,
        (coefficients, mut mark): ([u64; 2], u32),
        first: usize,
    ) -> bool {
        // A loop: a closure may be left outside, where it has not the instructions of `simd`.
        for (group, section) in self.groups.get(first..self.group_count).unwrap_or_default() {
            let (at, columns) = (section + group.offset_of(number) as usize, group.columns_of(number));
            let len = 8 * columns as usize;
            // The next block follows at once, and has no fewer columns.
            let Some(rows) = block.get(at..at + 2 * len) else { return true };
            let (one, two) = rows.split_at(len);
            if !simd.matches([one, two], coefficients, mark) {
                return false;
            }
            mark = mark.checked_shr(columns as u32).unwrap_or(0);
        }
        true
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
    pub(crate) fn prefetch(&self, simd: Simd, block: &[u8], hash: u64) {
        let Some(there) = self.first.there(block) else { return };
        for row in there.place(hash).rows::<true>() {
            simd.prefetch(row, 0);
            simd.prefetch(row, row.len().clamp(1, 32) - 1);
        }
    }
}

/// The coefficients of a row that starts there over the words of two blocks, and its mark.
#[inline(always)]
fn window(hash: u64, start: u64) -> ([u64; 2], u32) {
    let (coefficients, mark) = narrow(hash);
    let offset = start % BLOCK_SLOTS;
    ([coefficients << offset, coefficients >> 1 >> (!start % BLOCK_SLOTS)], mark)
}

/// Whether this start, counted through all layers, is bumped by its bucket's threshold, one of these four.
#[inline(always)]
fn is_bumped(thresholds: u8, start: u64) -> bool {
    let threshold = thresholds >> (2 * (start / BUCKET_STARTS % 4)) & 3;
    start % BUCKET_STARTS < BUMPED_BELOW[usize::from(threshold)].into()
}
