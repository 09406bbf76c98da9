//! A section: a part of the body of a filter block, divided into pages.

/// Length of a page, the unit of verification.
pub(super) const PAGE_BYTES: u64 = 4096;

/// A part of the body that can be loaded, verified and dropped by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Offset from the start of the block, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// CRC-32 of the checksums of its pages.
    pub checksum: u32,
}

/// Length of the page checksums of these sections.
pub(super) fn checksums_len(sections: &[Section]) -> u64 {
    sections.iter().map(|section| 4 * section.len.div_ceil(PAGE_BYTES)).sum()
}
