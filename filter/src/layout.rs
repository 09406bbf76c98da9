//! Where the parts of a block lie.
//!
//! After the header come the page checksums of all sections, four bytes each; then each section in order, one
//! of at least 1 MiB at the next multiple of 4096, another at the next multiple of 64; zeros fill what lies
//! between, and up to a multiple of 64 at the end. All offsets count from the start of the block, so that it
//! means the same wherever it stands. A block has no other shape: [`Layout`] computes it from the lengths of
//! the sections, for the writer and for the reader, who compares.
//!
//! Pages count from the start of their section. So a query of a filter that is not in memory reads and
//! verifies one page at an address that it computes, wherever the section starts. A section on a multiple of
//! 4096 saves that query the second page of the file system that a page of ours would else lie on. That costs
//! up to 4 KiB of padding: nothing for a section of 1 MiB, but 4 % of the filter of 100 000 keys, which is as
//! much as the best kind of filter gains over the second best. A page of a short section lies on two of the
//! file system.

use alloc::vec;
use alloc::vec::Vec;

use super::blocked::{Blocked, LINE_BYTES};
use super::bloom::Bloom;
use super::ribbon::Ribbon;
use super::section::PAGE_BYTES;

/// Length of a header of this version.
pub const HEADER_BYTES: usize = 256;

/// What a section starts on a multiple of.
const ALIGN: u64 = 64;

/// Length from which a section starts on a page.
const PAGED_BYTES: u64 = 1 << 20;

/// The parameters of a kind, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Empty,
    Bloom(Bloom),
    Blocked(Blocked),
    Ribbon(Ribbon),
}

impl Shape {
    /// Length of each section; `None` if one cannot be said in 64 bits.
    pub(super) fn section_lens(self) -> Option<Vec<u64>> {
        match self {
            Self::Empty => Some(Vec::new()),
            Self::Bloom(bloom) => Some(vec![bloom.bits.div_ceil(8)]),
            Self::Blocked(blocked) => Some(vec![blocked.lines.checked_mul(LINE_BYTES as u64)?]),
            Self::Ribbon(ribbon) => Some(ribbon.section_lens()),
        }
    }

    /// The false-positive rate of a filter whose first section is this, in units of 2^-64.
    pub(super) fn stored_rate(self, first_section: &[u8]) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Bloom(bloom) => bloom.stored_rate(first_section),
            Self::Blocked(blocked) => blocked.stored_rate(first_section),
            Self::Ribbon(ribbon) => ribbon.rate(first_section),
        }
    }
}

/// Where the parts of a block lie, computed from the length of its sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Length and offset of each section.
    pub(super) lens: Vec<u64>,
    pub(super) offsets: Vec<u64>,
    /// Length of the block.
    pub(super) block_len: u64,
}

impl Layout {
    /// `None` if the block would not fit 64 bits.
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
