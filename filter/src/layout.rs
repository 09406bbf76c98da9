//! Positions of the parts of a block.
//!
//! The header is followed by the page checksums of all sections, four bytes each, and then by the sections in
//! order. A section of at least 1 MiB starts at a multiple of 4096, any other at a multiple of 64. Zeros fill
//! the gaps, and the end up to a multiple of 64. All offsets count from the start of the block, so that a
//! block can be moved. [`Layout`] computes the only valid positions from the lengths of the sections. The
//! writer uses them; the reader compares.
//!
//! Pages count from the start of their section, so a query of a filter on disk reads and verifies one page at
//! a computed address. A section at a multiple of 4096 avoids pages that straddle two pages of the file
//! system. The alignment costs up to 4 KiB of padding. That is negligible for 1 MiB, but 4 % of a filter of
//! 100 000 keys, as much as the best kind of filter gains over the second best. So the pages of a short
//! section may straddle two pages of the file system.

use alloc::vec;
use alloc::vec::Vec;

use super::blocked::{Blocked, LINE_BYTES};
use super::bloom::Bloom;
use super::ribbon::Ribbon;
use super::section::PAGE_BYTES;

/// Length of a header of this version.
pub const HEADER_BYTES: usize = 256;

/// Alignment of a section.
const ALIGN: u64 = 64;

/// Least length of a section that starts on a page.
const PAGED_BYTES: u64 = 1 << 20;

/// The validated parameters of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Empty,
    Bloom(Bloom),
    Blocked(Blocked),
    Ribbon(Ribbon),
}

impl Shape {
    /// Length of each section; `None` if one exceeds 64 bits.
    pub(super) fn section_lens(self) -> Option<Vec<u64>> {
        match self {
            Self::Empty => Some(Vec::new()),
            Self::Bloom(bloom) => Some(vec![bloom.bits.div_ceil(8)]),
            Self::Blocked(blocked) => Some(vec![blocked.lines.checked_mul(LINE_BYTES as u64)?]),
            Self::Ribbon(ribbon) => Some(ribbon.section_lens()),
        }
    }

    /// The false-positive rate of a filter with this first section, in units of 2^-64.
    pub(super) fn stored_rate(self, first_section: &[u8]) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Bloom(bloom) => bloom.stored_rate(first_section),
            Self::Blocked(blocked) => blocked.stored_rate(first_section),
            Self::Ribbon(ribbon) => ribbon.rate(first_section),
        }
    }
}

/// Positions of the parts of a block, computed from the lengths of its sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) lens: Vec<u64>,
    pub(super) offsets: Vec<u64>,
    pub(super) block_len: u64,
}

impl Layout {
    /// `None` if the block would exceed 64 bits.
    pub(super) fn of(lens: &[u64]) -> Option<Self> {
        let pages = lens.iter().try_fold(0u64, |sum, len| sum.checked_add(len.div_ceil(PAGE_BYTES)))?;
        let mut end = pages.checked_mul(4)?.checked_add(HEADER_BYTES as u64)?;
        let mut offsets = Vec::with_capacity(lens.len());
        for &len in lens {
            let align = if len >= PAGED_BYTES { PAGE_BYTES } else { ALIGN };
            let start = end.checked_next_multiple_of(align)?;
            offsets.push(start);
            end = start.checked_add(len)?;
        }
        Some(Self { lens: lens.to_vec(), offsets, block_len: end.checked_next_multiple_of(ALIGN)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_a_mebibyte_start_on_a_page_and_others_on_a_line() {
        let layout = Layout::of(&[4097, 8, 4096, 5000]).unwrap();
        assert_eq!(layout.offsets, [320, 4480, 4544, 8640]);
        assert_eq!(layout.block_len, 13_696);
        let layout = Layout::of(&[100, 1 << 20, (1 << 20) - 1, (1 << 20) + 1]).unwrap();
        assert_eq!(layout.offsets, [3392, 4096, 4096 + (1 << 20), 4096 + (2 << 20)]);
        assert_eq!(Layout::of(&[]).unwrap().block_len, 256);
        // 2^20 pages have 4 MiB of checksums.
        assert_eq!(Layout::of(&[1 << 32]).unwrap().offsets, [(4 << 20) + 4096]);
    }

    #[test]
    fn a_block_that_would_pass_2_to_the_64_has_no_layout() {
        for len in [u64::MAX, u64::MAX - 4096, u64::MAX / 4096 * 4095] {
            assert_eq!(Layout::of(&[len, len]), None);
        }
        assert_eq!(Layout::of(&[u64::MAX - 100]), None);
    }
}
