//! What nearly all queries of a ribbon filter read, and nothing else: thresholds and rows of the first layer, in the columns
//! of the first group.
//!
//! That the last of them lies within the block is found out when the filter is opened. After that a query compares one
//! length ([`First::there`]), and no place: [`reduce`] gives no start behind the last one, and earlier starts stand at
//! earlier places.

#![allow(unsafe_code)]

use crate::hash::reduce;

/// Starts that share a byte of thresholds, as a power of two: four buckets of 128.
const BYTE_STARTS: u32 = 9;

/// Slots of a block, and starts of a shard, as powers of two.
const BLOCK_BITS: u32 = 6;
const SHARD_BITS: u32 = 16;

/// The first layer of one filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct First {
    starts: u64,
    /// Where the thresholds stand in the filter's block.
    thresholds: usize,
    /// The blocks without an additional column, and those with it, from number `plain` on.
    runs: [Run; 2],
    plain: u64,
    /// The length from which a filter's block has all of it.
    len: usize,
}

/// Blocks of equally many columns: number `n` starts at byte `base + n * stride` of the filter's block.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// May be less than 0 in the second run, which does not begin with number 0.
    base: usize,
    stride: usize,
}

impl First {
    /// The layer that no block has.
    pub(crate) const NONE: Self = Self {
        starts: 0,
        thresholds: 0,
        runs: [Run { base: 0, stride: 0 }; 2],
        plain: u64::MAX,
        len: usize::MAX,
    };

    /// Of a layer of so many starts, with `columns` words in each block and one more from block `plain` on.
    /// [`First::NONE`] if there are no starts, or more than fit into memory.
    pub(crate) fn new(starts: u64, thresholds: usize, base: usize, columns: u64, plain: u64) -> Self {
        let of = || {
            let last = starts.checked_sub(1)?;
            let bytes = (thresholds as u64).checked_add(1 + (last >> BYTE_STARTS))?;
            let blocks = block_of(last).checked_add(2)?;
            let words = blocks.checked_mul(columns)?.checked_add(blocks.saturating_sub(plain))?;
            let end = words.checked_mul(8)?.checked_add(base as u64)?;
            // In front of the last block, or there is no second run.
            let before = usize::try_from(8 * plain.min(blocks)).ok()?;
            let stride = usize::try_from(8 * columns).ok()?;
            let runs = [Run { base, stride }, Run { base: base.wrapping_sub(before), stride: stride + 8 }];
            let len = usize::try_from(end.max(bytes)).ok().filter(|&len| len < usize::MAX)?;
            let plain = if plain < blocks { plain } else { u64::MAX };
            Some(Self { starts, thresholds, runs, plain, len })
        };
        of().unwrap_or(Self::NONE)
    }

    /// The start of a table hash; 0 if there are none.
    #[inline(always)]
    pub(crate) fn start(&self, hash: u64) -> u64 {
        reduce(hash, self.starts)
    }

    /// Whether some blocks have an additional column.
    #[inline(always)]
    pub(crate) fn is_mixed(&self) -> bool {
        self.plain != u64::MAX
    }

    /// The layer in this block, if all of it is there.
    #[inline(always)]
    pub(crate) fn there<'a>(&'a self, block: &'a [u8]) -> Option<There<'a>> {
        (block.len() >= self.len).then_some(There { first: self, block })
    }
}

/// A first layer and the filter's block that has all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct There<'a> {
    first: &'a First,
    block: &'a [u8],
}

impl<'a> There<'a> {
    /// The place of a table hash.
    #[inline(always)]
    pub(crate) fn place(self, hash: u64) -> Place<'a> {
        Place { there: self, start: self.first.start(hash) }
    }
}

/// Where a query reads: a start that is below the number of starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    there: There<'a>,
    start: u64,
}

impl<'a> Place<'a> {
    #[inline(always)]
    pub(crate) fn start(self) -> u64 {
        self.start
    }

    /// The thresholds of the bucket and three others.
    #[inline(always)]
    pub(crate) fn thresholds(self) -> u8 {
        let There { first, block } = self.there;
        let at = first.thresholds + (self.start >> BYTE_STARTS) as usize;
        // SAFETY: the byte is not behind that of the last start, which `len` covers.
        unsafe { *block.get_unchecked(at) }
    }

    /// The row of the block in which the start is, and as many columns of the next. Without `MIXED` of a layer that has
    /// no additional column; with it of any.
    #[inline(always)]
    pub(crate) fn rows<const MIXED: bool>(self) -> [&'a [u8]; 2] {
        let There { first, block } = self.there;
        let number = block_of(self.start);
        let [one, two] = first.runs;
        let Run { base, stride } = if MIXED && number >= first.plain { two } else { one };
        let at = base.wrapping_add((number as usize).wrapping_mul(stride));
        // SAFETY: the block and the next are not behind those of the last start, which `len` covers; a block has not fewer
        // columns than the one before it, and is not further in front if the additional ones are left out.
        unsafe { [block.get_unchecked(at..at + stride), block.get_unchecked(at + stride..at + 2 * stride)] }
    }
}

/// The block of the layer in which a start is: each shard has one block more than its starts have.
#[inline(always)]
fn block_of(start: u64) -> u64 {
    (start >> BLOCK_BITS) + (start >> SHARD_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_there_from_the_last_byte_of_its_last_row_on() {
        for (starts, blocks) in [(128, 3), (256, 5), (1 << 16, 1025), ((1 << 16) + 128, 1028)] {
            for (columns, plain) in [(8, u64::MAX), (8, 2), (0, 0), (3, 1 << 40), (31, blocks - 1)] {
                let first = First::new(starts, 7, 1000, columns, plain);
                assert_eq!(first.is_mixed(), plain < blocks);
                let offset = |block: u64| 1000 + 8 * (block * columns + block.saturating_sub(plain)) as usize;
                let all: Vec<u8> = (0..offset(blocks)).map(|at| (at / 8) as u8).collect();
                // Layers with few columns end with their thresholds.
                let thresholds = 7 + (starts as usize).div_ceil(512);
                assert!(thresholds <= all.len());
                assert!(first.there(&all[..all.len() - 1]).is_none());
                let there = first.there(&all).unwrap();
                for hash in [0, 1 << 63, u64::MAX / 3, u64::MAX] {
                    let place = there.place(hash);
                    let number = block_of(place.start());
                    let [one, two] = place.rows::<true>();
                    let next = offset(number + 1);
                    assert_eq!(*one, all[offset(number)..next]);
                    assert_eq!(*two, all[next..2 * next - offset(number)]);
                    if !first.is_mixed() {
                        assert_eq!(place.rows::<false>(), [one, two]);
                    }
                    assert_eq!(place.thresholds(), all[7 + (place.start() / 512) as usize]);
                }
            }
        }
    }

    #[test]
    fn a_layer_that_no_memory_holds_is_never_there() {
        for first in [
            First::NONE,
            First::new(0, 0, 0, 8, u64::MAX),
            First::new(u64::MAX, 0, 0, 8, 0),
            First::new(1 << 55, usize::MAX, 0, 8, u64::MAX),
            First::new(1 << 55, 0, usize::MAX, 0, 0),
        ] {
            assert!(first.there(&[0; 4096]).is_none());
        }
    }
}
