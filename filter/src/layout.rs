//! Positions of the parts of a block: header, page checksums, sections (format.md, "Filter block").
//!
//! A section of at least 1 MiB starts at a multiple of 4096, a page of the file system. Padding smaller sections would
//! cost 4 % for 100 000 keys.

use alloc::vec;
use alloc::vec::Vec;

use super::blocked::{Blocked, LINE_BYTES};
use super::bloom::Bloom;
use super::ribbon::Ribbon;
use super::section::PAGE_BYTES;

/// Header length of this version.
pub const HEADER_BYTES: usize = 256;

const ALIGN: u64 = 64;

const PAGED_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Empty,
    Bloom(Bloom),
    Blocked(Blocked),
    Ribbon(Ribbon),
}

impl Shape {
    pub(super) fn section_lens(self) -> Option<Vec<u64>> {
        match self {
            Self::Empty => Some(Vec::new()),
            Self::Bloom(bloom) => Some(vec![bloom.bits.div_ceil(8)]),
            Self::Blocked(blocked) => Some(vec![blocked.lines.checked_mul(LINE_BYTES as u64)?]),
            Self::Ribbon(ribbon) => Some(ribbon.section_lens()),
        }
    }

    /// Returns the rate with this first section, in units of 2^-64.
    pub(super) fn stored_rate(self, first_section: &[u8]) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Bloom(bloom) => bloom.stored_rate(first_section),
            Self::Blocked(blocked) => blocked.stored_rate(first_section),
            Self::Ribbon(ribbon) => ribbon.rate(first_section),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) lens: Vec<u64>,
    pub(super) offsets: Vec<u64>,
    pub(super) block_len: u64,
}

impl Layout {
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
