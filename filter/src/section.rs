//! Sections: the parts of the body, divided into pages.

pub(super) const PAGE_BYTES: u64 = 4096;

/// A part of the body that can be loaded and verified alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Offset in the block, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// CRC-32 of its page checksums.
    pub checksum: u32,
}

pub(super) fn checksums_len(sections: &[Section]) -> u64 {
    sections.iter().map(|section| 4 * section.len.div_ceil(PAGE_BYTES)).sum()
}
