//! From sections to answers.

use super::BUCKET_STARTS;
use super::geometry::{GROUPS_MAX, Group, LAYERS_MAX, Layer, Ribbon, bumped_below};
use super::row::{Wide, narrow, next_layer, wide};
use super::solution::unpack;
use super::standard::aligned;
use crate::codec::DecodeError;
use crate::filter::arch::Simd;
use crate::filter::layout::Section;
use crate::hash::reduce;

/// What a query of one ribbon filter needs, found out once.
#[derive(Debug, Clone, Default)]
pub(in crate::filter) struct Reading {
    layers: [Layer; LAYERS_MAX],
    layer_count: usize,
    last_block: u64,
    slots: u64,
    attempt: u16,
    /// Where the thresholds lie in the block.
    thresholds: (usize, usize),
    /// The groups that are there, and where each one's section starts in the block.
    groups: [(Group, usize); GROUPS_MAX],
    group_count: usize,
    /// The number of the tail, and its words, unpacked, group by group.
    tail: u64,
    tail_words: Vec<u8>,
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
        reading.thresholds = (thresholds.offset as usize, (thresholds.offset + thresholds.len) as usize);
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
        Ok(reading)
    }

    /// Of the same filter with the first `groups` column groups only.
    pub(in crate::filter) fn keep_groups(&self, groups: usize) -> Self {
        let mut kept = self.clone();
        kept.group_count = kept.group_count.min(groups);
        kept
    }

    /// The start in the first layer, or of nothing if there is only the last.
    #[inline]
    pub(in crate::filter) fn locate(&self, hash: u64) -> (u64, u64) {
        (hash, reduce(hash, self.layers[0].starts))
    }

    /// Whether the key may be there. What lies outside of the block counts as fitting.
    ///
    /// Nearly all queries end in the first layer: the others are kept out of its way.
    #[inline(always)]
    pub(in crate::filter) fn test(&self, simd: Simd, block: &[u8], (hash, start): (u64, u64)) -> bool {
        if self.layer_count == 0 {
            return self.test_wide(simd, block, hash);
        }
        match self.bumped_below(block, start / BUCKET_STARTS) {
            Some(below) if start % BUCKET_STARTS >= below => {
                simd.run(move || self.test_narrow(simd, block, &self.layers[0], hash, start))
            }
            Some(_) => self.test_bumped(simd, block, hash),
            None => true,
        }
    }

    /// [`Reading::test`] of a hash that was bumped from the first layer.
    #[inline(never)]
    fn test_bumped(&self, simd: Simd, block: &[u8], mut hash: u64) -> bool {
        for layer in &self.layers[1..self.layer_count] {
            hash = next_layer(hash);
            let start = reduce(hash, layer.starts);
            let Some(below) = self.bumped_below(block, layer.bucket + start / BUCKET_STARTS) else {
                return true;
            };
            if start % BUCKET_STARTS >= below {
                return self.test_narrow(simd, block, layer, hash, start);
            }
        }
        self.test_wide(simd, block, next_layer(hash))
    }

    #[inline(always)]
    fn bumped_below(&self, block: &[u8], bucket: u64) -> Option<u64> {
        bumped_below(block.get(self.thresholds.0..self.thresholds.1)?, bucket)
    }

    #[inline(always)]
    fn test_narrow(&self, simd: Simd, block: &[u8], layer: &Layer, hash: u64, start: u64) -> bool {
        let (coefficients, mut mark) = narrow(hash);
        let slot = Layer::slot_of(start);
        let (number, offset) = (layer.block + slot / 64, slot % 64);
        let coefficients = [coefficients << offset, coefficients >> 1 >> (63 - offset)];
        for (group, section) in &self.groups[..self.group_count] {
            let columns = group.columns_of(number);
            // The next block follows at once, and has no fewer columns.
            let (at, len) = (section + group.offset_of(number) as usize, 8 * columns as usize);
            let Some(rows) = block.get(at..at + 2 * len) else { return true };
            let (one, two) = rows.split_at(len);
            if !simd.matches([one, two], coefficients, mark) {
                return false;
            }
            mark = mark.checked_shr(columns as u32).unwrap_or(0);
        }
        true
    }

    #[inline(never)]
    fn test_wide(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        simd.run(move || self.test_wide_here(simd, block, hash))
    }

    #[inline(always)]
    fn test_wide_here(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
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

    /// Asks for the memory that a query will most likely read.
    #[inline]
    pub(in crate::filter) fn prefetch(&self, simd: Simd, block: &[u8], (_, start): (u64, u64)) {
        if self.layer_count == 0 {
            return;
        }
        let number = self.layers[0].block + Layer::slot_of(start) / 64;
        let (group, section) = &self.groups[0];
        let (from, to) = (group.offset_of(number) as usize, group.offset_of(number + 2) as usize);
        for at in (section + from..section + to).step_by(64) {
            simd.prefetch(block, at);
        }
    }
}
