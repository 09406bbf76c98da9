//! Answers from sections.
//!
//! Nearly all queries are for absent keys and end in the first columns of the first layer. They take three products,
//! the threshold and a read of two blocks, without calls. The other paths compute the products again.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::geometry::{GROUPS_MAX, Group, LAYERS_MAX, Layer, Ribbon};
use super::row::{Wide, narrow, next_layer, wide};
use super::solution::unpack;
use super::standard::aligned;
use super::{BUCKET_STARTS, BUMPED_BELOW};
use crate::arch::{FIRST_COLUMNS, FirstLayer, Simd, Work, prefetch};
use crate::bit_test::Test;
use crate::codec::DecodeError;
use crate::hash::reduce;
use crate::section::Section;

pub(crate) enum Looked {
    Answer(bool),
    /// Test the other columns of the layer.
    More,
    /// The key is bumped, or the layer is missing.
    Later,
}

impl Looked {
    #[inline(always)]
    pub(crate) fn answer(self) -> Option<bool> {
        if let Self::Answer(answer) = self { Some(answer) } else { None }
    }
}

struct TestNarrow;

impl Work<(&RibbonProbe, &[u8]), &Layer, (u64, u64)> for TestNarrow {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, (reading, block): (&RibbonProbe, &[u8]), layer: &Layer, located: (u64, u64)) -> bool {
        reading.test_narrow(simd, block, layer, located, 0)
    }
}

struct TestLast;

impl Work<&RibbonProbe, &[u8], u64> for TestLast {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, reading: &RibbonProbe, block: &[u8], hash: u64) -> bool {
        reading.test_last(simd, block, hash)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct RibbonProbe {
    first: FirstLayer,
    rest: Arc<Rest>,
}

#[derive(Debug, Clone)]
struct Rest {
    layers: [Layer; LAYERS_MAX],
    layer_count: usize,
    last_block: u64,
    slots: u64,
    attempt: u16,
    /// Offset in the block.
    thresholds: usize,
    /// Each group with the offset of its section.
    groups: [(Group, usize); GROUPS_MAX],
    group_count: usize,
    /// Whether a block has more than [`FIRST_COLUMNS`].
    has_more: bool,
    /// The block number of the tail, and its unpacked words.
    tail: u64,
    tail_words: Vec<u8>,
}

impl Default for Rest {
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
            has_more: false,
            tail: 0,
            tail_words: Vec::new(),
        }
    }
}

impl RibbonProbe {
    pub(crate) fn new(
        ribbon: &Ribbon,
        block: &[u8],
        sections: &[Section],
        groups: usize,
    ) -> Result<Self, DecodeError> {
        let mut rest = Rest::default();
        let Some((thresholds, columns)) = sections.split_first() else {
            return Ok(Self { first: FirstLayer::NONE, rest: Arc::new(rest) });
        };
        for layer in ribbon.layers() {
            rest.layers[rest.layer_count] = layer;
            rest.layer_count += 1;
        }
        rest.last_block = ribbon.last_layer_block();
        (rest.slots, rest.attempt) = (ribbon.slots, ribbon.attempt);
        if rest.layer_count > 0 {
            rest.thresholds = thresholds.offset as usize;
        }
        rest.tail = ribbon.blocks() - 1;
        for (index, section) in columns.iter().enumerate().take(groups) {
            let group = ribbon.group(index);
            let tail = section.offset + group.offset_of(rest.tail);
            let packed = &block[tail as usize..(section.offset + section.len) as usize];
            let words = unpack(packed, group.columns_of(rest.tail), group.tail_slots)
                .ok_or_else(|| DecodeError::corrupt(tail, "filter padding", "is not zero"))?;
            rest.tail_words.extend_from_slice(&words);
            rest.groups[index] = (group, section.offset as usize);
            rest.group_count += 1;
        }
        let (group, section) = rest.groups[0];
        let starts = rest.layers[0].starts;
        let first = FirstLayer::new(starts, rest.thresholds, section, group.columns, group.plain);
        rest.has_more = rest.has_more();
        Ok(Self { first, rest: Arc::new(rest) })
    }

    pub(crate) fn keep_groups(&self, groups: usize) -> Self {
        let mut rest = Rest::clone(&self.rest);
        rest.group_count = rest.group_count.min(groups);
        rest.has_more = rest.has_more();
        Self { first: self.first, rest: Arc::new(rest) }
    }
}

impl Rest {
    fn has_more(&self) -> bool {
        let (first, _) = self.groups[0];
        self.group_count > 1 || first.columns_of(first.blocks.saturating_sub(1)) > FIRST_COLUMNS.into()
    }
}

/// A [`RibbonProbe`] for many hashes, with the first layer in registers.
#[derive(Clone, Copy)]
pub(crate) struct Repeated<'a, const EQUAL: bool, const FULL: bool> {
    first: FirstLayer,
    ribbon: &'a RibbonProbe,
}

impl<const EQUAL: bool, const FULL: bool> Test for Repeated<'_, EQUAL, FULL> {
    #[inline(always)]
    fn test_first(&self, simd: Simd, block: &[u8], hash: u64) -> Option<bool> {
        self.ribbon.look_in::<EQUAL, FULL>(&self.first, simd, block, hash).answer()
    }

    /// Skips the first columns after [`Looked::More`], for present keys in a loop.
    #[inline(always)]
    fn test(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        match self.ribbon.look_in::<EQUAL, FULL>(&self.first, simd, block, hash) {
            Looked::Answer(answer) => answer,
            Looked::More => {
                let located = (hash, self.first.start(hash));
                self.ribbon.test_narrow(simd, block, &self.ribbon.rest.layers[0], located, FIRST_COLUMNS)
            }
            Looked::Later => self.ribbon.test_rest(simd, block, hash),
        }
    }

    /// The first columns never reject a present key.
    #[inline(always)]
    fn test_present(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        let rest = &self.ribbon.rest;
        let rows = match self.first.window(block, hash) {
            Some(rows) if rest.group_count > 0 && !is_bumped(rows.thresholds(), rows.start()) => rows,
            _ => return self.ribbon.test_rest(simd, block, hash),
        };
        let (coefficients, mark) = window(hash, rows.start());
        let first = rows.whole_rows();
        if !simd.matches(first, coefficients, mark) {
            return false;
        }
        let mark = mark.checked_shr(first[0].len() as u32 / 8).unwrap_or(0);
        let number = rest.layers[0].block + Layer::block_of(rows.start());
        self.ribbon.test_groups(simd, block, 1, number, (coefficients, mark), 0)
    }

    #[inline(always)]
    fn prefetch(&self, block: &[u8], hash: u64) {
        self.ribbon.prefetch(block, hash);
    }
}

impl RibbonProbe {
    pub(crate) fn repeated<const EQUAL: bool, const FULL: bool>(&self) -> Repeated<'_, EQUAL, FULL> {
        Repeated { first: self.first, ribbon: self }
    }

    /// Repeats the first test, because fewer instructions in [`RibbonProbe::look`] save time.
    #[cold]
    #[inline(never)]
    pub(crate) fn test_rest(&self, simd: Simd, block: &[u8], mut hash: u64) -> bool {
        for layer in &self.rest.layers[..self.rest.layer_count] {
            let start = reduce(hash, layer.starts);
            let counted = layer.bucket * BUCKET_STARTS + start;
            let at = self.rest.thresholds.wrapping_add((counted / (4 * BUCKET_STARTS)) as usize);
            let Some(&thresholds) = block.get(at) else { return true };
            if !is_bumped(thresholds, counted) {
                return simd.run_probe(TestNarrow, (self, block), layer, (hash, start));
            }
            hash = next_layer(hash);
        }
        simd.run_probe(TestLast, self, block, hash)
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, block: &[u8], hash: u64) {
        let Some(window) = self.first.window(block, hash) else { return };
        for row in window.rows::<false, false>() {
            prefetch(row, 0);
            prefetch(row, row.len().clamp(1, 32) - 1);
        }
    }

    /// The parameters of [`RibbonProbe::look`].
    pub(crate) fn is_equal_and_full(&self) -> (bool, bool) {
        (self.first.is_equal(), self.first.is_full())
    }

    /// With the parameters of [`Window::rows`](crate::arch::Window::rows).
    #[inline(always)]
    pub(crate) fn look<const EQUAL: bool, const FULL: bool>(
        &self,
        simd: Simd,
        block: &[u8],
        hash: u64,
    ) -> Looked {
        self.look_in::<EQUAL, FULL>(&self.first, simd, block, hash)
    }

    #[inline(always)]
    fn look_in<const EQUAL: bool, const FULL: bool>(
        &self,
        first: &FirstLayer,
        simd: Simd,
        block: &[u8],
        hash: u64,
    ) -> Looked {
        let Some(rows) = first.window(block, hash) else { return Looked::Later };
        if is_bumped(rows.thresholds(), rows.start()) {
            return Looked::Later;
        }
        let (coefficients, mark) = window(hash, rows.start());
        if !simd.first_match(rows.rows::<EQUAL, FULL>(), coefficients, mark) {
            return Looked::Answer(false);
        }
        if self.rest.has_more { Looked::More } else { Looked::Answer(true) }
    }

    /// Skips the first `tested` columns.
    #[inline(always)]
    fn test_narrow(
        &self,
        simd: Simd,
        block: &[u8],
        layer: &Layer,
        (hash, start): (u64, u64),
        tested: u32,
    ) -> bool {
        let number = layer.block + Layer::block_of(start);
        self.test_groups(simd, block, 0, number, window(hash, start), tested)
    }

    /// Skips the first `tested` columns of group `first`.
    #[inline(always)]
    fn test_groups(
        &self,
        simd: Simd,
        block: &[u8],
        first: usize,
        number: u64,
        (coefficients, mut mark): ([u64; 2], u32),
        tested: u32,
    ) -> bool {
        let mut tested = 8 * tested as usize;
        // A closure might lack the instructions of `simd`.
        for (group, section) in &self.rest.groups[first..self.rest.group_count] {
            let (at, columns) = (section + group.offset_of(number) as usize, group.columns_of(number));
            let len = 8 * columns as usize;
            // The next block is adjacent and at least as wide.
            let Some(rows) = block.get(at..at + 2 * len) else { return true };
            let (one, two) = rows.split_at(len);
            let [one, two] = [one, two].map(|row| &row[tested.min(len)..]);
            let behind = mark.checked_shr((tested.min(len) / 8) as u32).unwrap_or(0);
            if !simd.matches([one, two], coefficients, behind) {
                return false;
            }
            mark = mark.checked_shr(columns as u32).unwrap_or(0);
            tested = 0;
        }
        true
    }

    #[inline(always)]
    fn test_last(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        if self.rest.slots == 0 {
            return true;
        }
        let row = wide(hash, self.rest.attempt, self.rest.slots);
        let Wide { start, mut mark, .. } = row;
        let (number, offset) = (self.rest.last_block + start / 64, start % 64);
        let coefficients = aligned(&row, offset as u32);
        let mut tail = &self.rest.tail_words[..];
        for (group, section) in &self.rest.groups[..self.rest.group_count] {
            let len = 8 * group.columns_of(number) as usize;
            let words = |number: u64| {
                let at = section + group.offset_of(number) as usize;
                if number < self.rest.tail { block.get(at..at + len) } else { tail.get(..len) }
            };
            // An aligned window does not reach the third block.
            let (Some(one), Some(two), Some(three)) = (words(number), words(number + 1), words(number + 2))
            else {
                return true;
            };
            if !simd.matches([one, two, three], coefficients, mark) {
                return false;
            }
            mark = mark.checked_shr(len as u32 / 8).unwrap_or(0);
            tail = tail.get(8 * group.columns_of(self.rest.tail) as usize..).unwrap_or_default();
        }
        true
    }
}

#[inline(always)]
fn window(hash: u64, start: u64) -> ([u64; 2], u32) {
    let (coefficients, mark) = narrow(hash);
    // Shifts and rotations count modulo 64.
    let offset = start as u32;
    let low = coefficients.wrapping_shl(offset);
    ([low, coefficients.rotate_left(offset) ^ low], mark)
}

#[inline(always)]
fn is_bumped(thresholds: u8, start: u64) -> bool {
    let threshold = thresholds >> (2 * (start / BUCKET_STARTS % 4)) & 3;
    start % BUCKET_STARTS < BUMPED_BELOW[usize::from(threshold)].into()
}
