//! Positions in a blocked filter and in the first layer of a ribbon filter.
//!
//! Opening computes the required length of a block. A probe checks only this length: [`reduce`] returns a valid line or
//! start, and the last one has the largest offset.

#![allow(unsafe_code)]

use crate::blocked::LINE_BYTES;
use crate::hash::reduce;
use crate::ribbon::COLUMNS_MAX;

/// Number of columns tested first. They reject 255 of 256 absent keys.
pub(crate) const FIRST_COLUMNS: u32 = 8;

const FIRST_BYTES: usize = 8 * FIRST_COLUMNS as usize;

/// Number of starts that share a byte of thresholds, as a power of two.
const BYTE_STARTS: u32 = 9;

/// Slots of a block and starts of a shard, as powers of two.
const BLOCK_BITS: u32 = 6;
const SHARD_BITS: u32 = 16;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    count: u64,
    start: usize,
    /// Minimum length of a block with all lines; `usize::MAX` if there are no lines.
    len: usize,
}

impl Lines {
    pub(crate) fn new(count: u64, start: usize) -> Self {
        let end = || {
            let count = usize::try_from(count).ok().filter(|&count| count > 0)?;
            count.checked_mul(LINE_BYTES)?.checked_add(start)
        };
        Self { count, start, len: end().unwrap_or(usize::MAX) }
    }

    #[inline(always)]
    pub(crate) fn line<'a>(&self, block: &'a [u8], hash: u64) -> Option<&'a [u8; LINE_BYTES]> {
        if block.len() < self.len {
            return None;
        }
        let at = self.start + reduce(hash, self.count) as usize * LINE_BYTES;
        // SAFETY: `reduce` returns numbers below `count`, and `len` covers `count` lines.
        Some(unsafe { &*block.as_ptr().add(at).cast() })
    }
}

/// The first layer in the first column group. Nearly all probes read only this layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstLayer {
    starts: u64,
    thresholds: usize,
    /// The strip before block `plain`, and the strip from it on.
    strips: [Strip; 2],
    plain: u64,
    /// Minimum length of a block with the whole layer.
    len: usize,
}

#[derive(Debug, Clone, Copy)]
struct Strip {
    /// The offset of block 0; in the second strip, it may wrap below 0.
    base: usize,
    stride: u32,
    first: u8,
}

impl Strip {
    const NONE: Self = Self { base: 0, stride: 0, first: 0 };

    fn new(base: usize, columns: u32) -> Self {
        Self { base, stride: 8 * columns, first: columns.min(FIRST_COLUMNS) as u8 }
    }
}

impl FirstLayer {
    pub(crate) const NONE: Self =
        Self { starts: 0, thresholds: 0, strips: [Strip::NONE; 2], plain: u64::MAX, len: usize::MAX };

    /// A block has `columns` words, and one more from block `plain` on. Returns [`FirstLayer::NONE`] for 0 starts, or
    /// if the layer exceeds the address space.
    pub(crate) fn new(starts: u64, thresholds: usize, base: usize, columns: u64, plain: u64) -> Self {
        let of = || {
            let last = starts.checked_sub(1)?;
            let bytes = (thresholds as u64).checked_add(1 + (last >> BYTE_STARTS))?;
            let blocks = block_of(last).checked_add(2)?;
            let words = blocks.checked_mul(columns)?.checked_add(blocks.saturating_sub(plain))?;
            let end = words.checked_mul(8)?.checked_add(base as u64)?;
            // `Window::rows` with `FULL` reads [`FIRST_BYTES`], even if a block is shorter.
            let end = end.checked_add((FIRST_BYTES as u64).saturating_sub(columns.saturating_mul(8)))?;
            let before = usize::try_from(8 * plain.min(blocks)).ok()?;
            let columns = u32::try_from(columns).ok().filter(|&columns| columns <= COLUMNS_MAX.into())?;
            let strips = [Strip::new(base, columns), Strip::new(base.wrapping_sub(before), columns + 1)];
            let len = usize::try_from(end.max(bytes)).ok().filter(|&len| len < usize::MAX)?;
            let plain = if plain < blocks { plain } else { u64::MAX };
            Some(Self { starts, thresholds, strips, plain, len })
        };
        of().unwrap_or(Self::NONE)
    }

    pub(crate) fn is_equal(&self) -> bool {
        self.plain == u64::MAX
    }

    pub(crate) fn is_full(&self) -> bool {
        self.strips.iter().all(|strip| u32::from(strip.first) == FIRST_COLUMNS)
    }

    #[inline(always)]
    pub(crate) fn start(&self, hash: u64) -> u64 {
        reduce(hash, self.starts)
    }

    #[inline(always)]
    pub(crate) fn window<'a>(&'a self, block: &'a [u8], hash: u64) -> Option<Window<'a>> {
        (block.len() >= self.len).then(|| Window { layer: self, block, start: self.start(hash) })
    }
}

/// A valid start in a block with the whole layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window<'a> {
    layer: &'a FirstLayer,
    block: &'a [u8],
    start: u64,
}

impl<'a> Window<'a> {
    #[inline(always)]
    pub(crate) fn start(self) -> u64 {
        self.start
    }

    #[inline(always)]
    pub(crate) fn thresholds(self) -> u8 {
        let at = self.layer.thresholds + (self.start >> BYTE_STARTS) as usize;
        // SAFETY: `len` covers the byte of the last start, and this start is not after the last.
        unsafe { *self.block.get_unchecked(at) }
    }

    /// Returns up to [`FIRST_COLUMNS`] columns of the start's block and the next block. `EQUAL` (all blocks have the
    /// same width) and `FULL` (at least [`FIRST_COLUMNS`] columns) save instructions.
    #[inline(always)]
    pub(crate) fn rows<const EQUAL: bool, const FULL: bool>(self) -> [&'a [u8]; 2] {
        let Self { layer, block, start } = self;
        let number = block_of(start);
        let Strip { base, stride, first } = layer.strips[usize::from(!EQUAL && number >= layer.plain)];
        let (stride, len) = (stride as usize, if FULL { FIRST_BYTES } else { 8 * usize::from(first) });
        let one = base.wrapping_add((number as usize).wrapping_mul(stride));
        let two = one + stride;
        // SAFETY: neither block starts after the blocks of the last start. `len` covers the first columns of the blocks of
        // the last start, with the maximum number of columns. The second strip has equal or larger offsets, and more columns.
        unsafe { [block.get_unchecked(one..one + len), block.get_unchecked(two..two + len)] }
    }

    /// All columns of the start's block, and as many of the next.
    #[inline(always)]
    pub(crate) fn whole_rows(self) -> [&'a [u8]; 2] {
        let Self { layer, block, start } = self;
        let number = block_of(start);
        let Strip { base, stride, .. } = layer.strips[usize::from(number >= layer.plain)];
        let one = base.wrapping_add((number as usize).wrapping_mul(stride as usize));
        let rows = &block[one..one + 2 * stride as usize];
        [&rows[..stride as usize], &rows[stride as usize..]]
    }
}

#[inline(always)]
fn block_of(start: u64) -> u64 {
    (start >> BLOCK_BITS) + (start >> SHARD_BITS)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn lines_are_those_of_the_hash_and_there_only_if_all_are() {
        let block: Vec<u8> = (0..10 + 3 * LINE_BYTES).map(|at| (at / 64) as u8).collect();
        let lines = Lines::new(3, 10);
        for hash in [0, 1 << 63, u64::MAX] {
            let at = 10 + reduce(hash, 3) as usize * LINE_BYTES;
            assert_eq!(lines.line(&block, hash).unwrap()[..], block[at..at + LINE_BYTES]);
            assert_eq!(lines.line(&block[1..], hash), None);
        }
        for lines in [Lines::new(0, 0), Lines::new(1 << 58, 0), Lines::new(1, usize::MAX - 63)] {
            assert_eq!(lines.line(&block, 7), None);
        }
    }

    #[test]
    fn a_layer_is_there_from_the_last_byte_of_its_last_row_on() {
        let sizes = [(128, 3), (256, 5), (1 << 16, 1025), ((1 << 16) + 128, 1028)];
        // Miri takes a thousand times as long.
        for &(starts, blocks) in &sizes[..if cfg!(miri) { 2 } else { 4 }] {
            for (columns, plain) in [(8, u64::MAX), (8, 2), (0, 0), (3, 1 << 40), (31, blocks - 1)] {
                let first = FirstLayer::new(starts, 7, 1000, columns, plain);
                let offset = |block: u64| 1000 + 8 * (block * columns + block.saturating_sub(plain)) as usize;
                let mut all: Vec<u8> = (0..offset(blocks)).map(|at| (at / 8) as u8).collect();
                // The first columns of the last block must be readable.
                let short = 64usize.saturating_sub(8 * columns as usize);
                all.resize(all.len() + short, 0xee);
                let thresholds = 7 + (starts as usize).div_ceil(512);
                assert!(thresholds <= all.len());
                for hash in [0, 1 << 63, u64::MAX / 3, u64::MAX] {
                    assert!(first.window(&all[..all.len() - 1], hash).is_none());
                    let window = first.window(&all, hash).unwrap();
                    let number = block_of(window.start());
                    let [one, two] = window.rows::<false, false>();
                    let next = offset(number + 1);
                    let len = (next - offset(number)).min(64);
                    assert_eq!(*one, all[offset(number)..][..len]);
                    assert_eq!(*two, all[next..][..len]);
                    if first.is_equal() {
                        assert_eq!(window.rows::<true, false>(), [one, two]);
                    }
                    let [one, two] = window.rows::<false, true>();
                    assert_eq!((one, two), (&all[offset(number)..][..64], &all[next..][..64]));
                    assert!(window.rows::<true, true>().iter().all(|row| row.len() == 64));
                    assert_eq!(window.thresholds(), all[7 + (window.start() / 512) as usize]);
                    let [one, two] = window.whole_rows();
                    assert_eq!(*one, all[offset(number)..next]);
                    assert_eq!(*two, all[next..][..one.len()]);
                }
            }
        }
    }

    #[test]
    fn a_layer_that_no_memory_holds_is_never_there() {
        for first in [
            FirstLayer::NONE,
            FirstLayer::new(0, 0, 0, 8, u64::MAX),
            FirstLayer::new(u64::MAX, 0, 0, 8, 0),
            FirstLayer::new(1 << 55, usize::MAX, 0, 8, u64::MAX),
            FirstLayer::new(1 << 55, 0, usize::MAX, 0, 0),
        ] {
            assert!(first.window(&[0; 4096], 7).is_none());
        }
    }
}
