//! A section: a part of the body of a filter block, divided into pages.

/// Length of a page, the unit that is checked.
pub(super) const PAGE_BYTES: u64 = 4096;

/// A part of the body that can be loaded, checked and dropped by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Where it starts, in bytes from the start of the block.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// CRC-32 of the checksums of its pages.
    pub checksum: u32,
}

/// Length of the page checksums of these sections.
pub(super) fn checksums_len(sections: &[Section]) -> u64 {
    sections.iter().map(|section| 4 * section.len.div_ceil(PAGE_BYTES)).sum()
}
