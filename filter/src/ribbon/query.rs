//! From sections to answers.
//!
//! Nearly all queries are for absent keys and end in the first layer, within the first group's first columns.
//! That path is short: three products, the threshold, and one read of each of two blocks, in functions that
//! call no others. Everything else is in separate functions, which compute their inputs again.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::geometry::{GROUPS_MAX, Group, LAYERS_MAX, Layer, Ribbon};
use super::row::{Wide, narrow, next_layer, wide};
use super::solution::unpack;
use super::standard::aligned;
use super::{BLOCK_SLOTS, BUCKET_STARTS, BUMPED_BELOW};
use crate::arch::{FirstLayer, Simd, Work, prefetch};
use crate::codec::DecodeError;
use crate::hash::reduce;
use crate::layout::Section;
use crate::probe::Test;

/// [`RibbonProbe::test_narrow`], of a layer after the first.
struct TestNarrow;

impl Work<(&RibbonProbe, &[u8]), &Layer, (u64, u64)> for TestNarrow {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, (reading, block): (&RibbonProbe, &[u8]), layer: &Layer, located: (u64, u64)) -> bool {
        reading.test_narrow(simd, block, layer, located)
    }
}

/// [`RibbonProbe::test_groups`] after the first group, in the first layer.
struct TestOthers;

impl Work<&RibbonProbe, &[u8], u64> for TestOthers {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, reading: &RibbonProbe, block: &[u8], hash: u64) -> bool {
        let start = reading.first.start(hash);
        let number = Layer::block_of(start);
        let (coefficients, mark) = window(hash, start);
        let mark = mark.checked_shr(reading.rest.groups[0].0.columns_of(number) as u32).unwrap_or(0);
        reading.test_groups(simd, block, number, (coefficients, mark), 1)
    }
}

/// [`RibbonProbe::test_last`].
struct TestLast;

impl Work<&RibbonProbe, &[u8], u64> for TestLast {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, reading: &RibbonProbe, block: &[u8], hash: u64) -> bool {
        reading.test_last(simd, block, hash)
    }
}

/// The data needed to probe one ribbon filter.
#[derive(Debug, Clone)]
pub(crate) struct RibbonProbe {
    first: FirstLayer,
    rest: Arc<Rest>,
    has_one_group: bool,
}

/// Data that few probes need.
#[derive(Debug, Clone)]
struct Rest {
    layers: [Layer; LAYERS_MAX],
    layer_count: usize,
    last_block: u64,
    slots: u64,
    attempt: u16,
    /// Where the thresholds start in the block; beyond any block if there are none.
    thresholds: usize,
    /// The groups in memory, and where each one's section starts in the block.
    groups: [(Group, usize); GROUPS_MAX],
    group_count: usize,
    /// The number of the tail, and its words, unpacked, group by group.
    tail: u64,
    tail_words: Vec<u8>,
}

impl Default for Rest {
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
            tail: 0,
            tail_words: Vec::new(),
        }
    }
}

impl RibbonProbe {
    /// For a verified block with these sections, of which the first `groups` column groups are in memory.
    pub(crate) fn new(
        ribbon: &Ribbon,
        block: &[u8],
        sections: &[Section],
        groups: usize,
    ) -> Result<Self, DecodeError> {
        let mut rest = Rest::default();
        let Some((thresholds, columns)) = sections.split_first() else {
            return Ok(Self { first: FirstLayer::NONE, rest: Arc::new(rest), has_one_group: true });
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
        Ok(Self { first, has_one_group: rest.group_count == 1, rest: Arc::new(rest) })
    }

    /// For the same filter with only the first `groups` column groups.
    pub(crate) fn keep_groups(&self, groups: usize) -> Self {
        let mut rest = Rest::clone(&self.rest);
        rest.group_count = rest.group_count.min(groups);
        Self { first: self.first, has_one_group: rest.group_count == 1, rest: Arc::new(rest) }
    }
}

impl Test for RibbonProbe {
    #[inline(always)]
    fn test(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        let Some(rows) = self.first.window(block, hash) else {
            return self.rest.layer_count > 0 || self.test_later(simd, block, hash);
        };
        if is_bumped(rows.thresholds(), rows.start()) {
            return self.test_later(simd, block, hash);
        }
        let (coefficients, mark) = window(hash, rows.start());
        simd.matches(rows.rows(), coefficients, mark)
            && (self.has_one_group || self.test_other_groups(simd, block, hash))
    }

    /// The first columns of two blocks.
    #[inline(always)]
    fn prefetch(&self, block: &[u8], hash: u64) {
        let Some(window) = self.first.window(block, hash) else { return };
        for row in window.rows() {
            prefetch(row, 0);
            prefetch(row, row.len().clamp(1, 32) - 1);
        }
    }
}

impl RibbonProbe {
    /// [`Test::test`] of a hash that was bumped from the first layer, or if there is no such layer.
    #[cold]
    #[inline(never)]
    fn test_later(&self, simd: Simd, block: &[u8], mut hash: u64) -> bool {
        for (index, layer) in self.rest.layers[..self.rest.layer_count].iter().enumerate() {
            if index > 0 {
                let start = reduce(hash, layer.starts);
                let counted = layer.bucket * BUCKET_STARTS + start;
                let at = self.rest.thresholds.wrapping_add((counted / (4 * BUCKET_STARTS)) as usize);
                let Some(&thresholds) = block.get(at) else { return true };
                if !is_bumped(thresholds, counted) {
                    return simd.run(TestNarrow, (self, block), layer, (hash, start));
                }
            }
            hash = next_layer(hash);
        }
        simd.run(TestLast, self, block, hash)
    }

    /// [`Test::test`] of a hash that fits into the first group, in the first layer.
    #[inline(never)]
    fn test_other_groups(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        simd.run_probe(TestOthers, self, block, hash)
    }

    #[inline(always)]
    fn test_narrow(&self, simd: Simd, block: &[u8], layer: &Layer, (hash, start): (u64, u64)) -> bool {
        self.test_groups(simd, block, layer.block + Layer::block_of(start), window(hash, start), 0)
    }

    /// Whether a window that starts in this block fits into the column groups from `first` on; the mark is
    /// without the columns of those in front.
    #[inline(always)]
    fn test_groups(
        &self,
        simd: Simd,
        block: &[u8],
        number: u64,
        (coefficients, mut mark): ([u64; 2], u32),
        first: usize,
    ) -> bool {
        // A loop, because a closure might not be inlined and would then lack the instructions of `simd`.
        for (group, section) in self.rest.groups.get(first..self.rest.group_count).unwrap_or_default() {
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
            // A window that starts with a block does not meet the block after the next, which may not exist.
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
