//! Answers queries from pages: the thresholds are in memory, the columns on disk.
//!
//! A query for an absent key reads two adjacent blocks. If they straddle pages, the columns that are complete on the
//! first page are tested first.

use alloc::vec::Vec;
use core::ops::Range;

use super::geometry::{Layer, Ribbon, bumped_below};
use super::row::{narrow, next_layer, wide};
use super::solution::unpack;
use super::standard::aligned;
use super::{BLOCK_SLOTS, BUCKET_STARTS, COLUMNS_MAX};
use crate::arch::Simd;
use crate::codec::DecodeError;
use crate::hash::reduce;
use crate::section::{PAGE_BYTES, Section};

const ROWS_BYTES: usize = 3 * 8 * COLUMNS_MAX as usize;

/// Reads from a section (number, offset); returns `false` if bytes are missing.
pub(crate) trait Source<E>: FnMut(usize, u64, &mut [u8]) -> Result<bool, E> {}

impl<E, T: FnMut(usize, u64, &mut [u8]) -> Result<bool, E>> Source<E> for T {}

#[derive(Debug, Clone)]
pub(crate) struct Paged {
    ribbon: Ribbon,
    tails: Vec<Vec<u8>>,
}

pub(crate) fn tail_bytes(ribbon: &Ribbon, group: usize) -> Range<u64> {
    let group = ribbon.group(group);
    group.offset_of(ribbon.blocks() - 1)..group.bytes()
}

impl Paged {
    pub(crate) fn new(ribbon: Ribbon, packed: &[&[u8]], groups: &[Section]) -> Result<Self, DecodeError> {
        let mut tails = Vec::with_capacity(packed.len());
        for (index, (packed, section)) in packed.iter().zip(groups).enumerate() {
            let group = ribbon.group(index);
            let words = unpack(packed, group.columns_of(ribbon.blocks() - 1), group.tail_slots);
            tails.push(words.ok_or_else(|| {
                let tail = section.offset + tail_bytes(&ribbon, index).start;
                DecodeError::corrupt(tail, "filter padding", "is not zero")
            })?);
        }
        Ok(Self { ribbon, tails })
    }

    /// [`Test`](crate::bit_test::Test) with the column groups from `from` on.
    pub(crate) fn may_contain<E>(
        &self,
        simd: Simd,
        thresholds: &[u8],
        from: usize,
        mut hash: u64,
        source: &mut impl Source<E>,
    ) -> Result<bool, E> {
        if self.ribbon.slots == 0 {
            return Ok(true);
        }
        for layer in self.ribbon.layers() {
            let start = reduce(hash, layer.starts);
            let Some(below) = bumped_below(thresholds, layer.bucket + start / BUCKET_STARTS) else {
                return Ok(true);
            };
            if start % BUCKET_STARTS >= below {
                let (coefficients, mark) = narrow(hash);
                let offset = start % BLOCK_SLOTS;
                let coefficients = [coefficients << offset, coefficients >> 1 >> (63 - offset)];
                let number = layer.block + Layer::block_of(start);
                return self.matches(simd, from, number, (coefficients, mark), source);
            }
            hash = next_layer(hash);
        }
        let row = wide(hash, self.ribbon.attempt, self.ribbon.slots);
        let number = self.ribbon.last_layer_block() + row.start / BLOCK_SLOTS;
        let coefficients = aligned(&row, (row.start % BLOCK_SLOTS) as u32);
        self.matches(simd, from, number, (coefficients, row.mark), source)
    }

    fn matches<const N: usize, E>(
        &self,
        simd: Simd,
        from: usize,
        number: u64,
        (coefficients, mut mark): ([u64; N], u32),
        source: &mut impl Source<E>,
    ) -> Result<bool, E> {
        for group in 0..self.tails.len() {
            if group >= from && !self.group_matches(simd, group, number, (coefficients, mark), source)? {
                return Ok(false);
            }
            let columns = self.ribbon.group(group).columns_of(number);
            mark = mark.checked_shr(columns as u32).unwrap_or(0);
        }
        Ok(true)
    }

    fn group_matches<const N: usize, E>(
        &self,
        simd: Simd,
        index: usize,
        number: u64,
        (coefficients, mark): ([u64; N], u32),
        source: &mut impl Source<E>,
    ) -> Result<bool, E> {
        let group = self.ribbon.group(index);
        let columns = group.columns_of(number) as usize;
        let first = group.offset_of(number);
        let starts: [usize; N] =
            core::array::from_fn(|row| (group.offset_of(number + row as u64) - first) as usize);
        // The next row is in the tail. A row after the tail has no coefficients.
        let stored = (self.ribbon.blocks() - 1).saturating_sub(number).min(N as u64) as usize;
        let last = stored.checked_sub(1).map_or(0, |last| starts[last]);
        let end = if stored == 0 { 0 } else { last + 8 * columns };
        let bytes = &mut [0; ROWS_BYTES][..end];
        let matches = |bytes: &[u8], columns: usize| {
            let row = |row| if row < stored { &bytes[starts[row]..] } else { &self.tails[index][..] };
            simd.matches(core::array::from_fn(|number| &row(number)[..8 * columns]), coefficients, mark)
        };
        let here = end.min((PAGE_BYTES - first % PAGE_BYTES) as usize);
        if !source(index + 1, first, &mut bytes[..here])? {
            return Ok(true);
        }
        if here < end {
            let complete = here.saturating_sub(last) / 8;
            if complete > 0 && !matches(bytes, complete) {
                return Ok(false);
            }
            if !source(index + 1, first + here as u64, &mut bytes[here..])? {
                return Ok(true);
            }
        }
        Ok(matches(bytes, columns))
    }
}
