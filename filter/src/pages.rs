//! The checksums between the header and the body.
//!
//! Each page of 4096 bytes of a section (the last may be shorter) has a CRC-32 over (owner, the page's offset
//! in the block, its bytes). The page checksums follow the header in the order of the sections, four bytes
//! each. The checksum of a section is the CRC-32 over (owner, offset of its first page checksum, its page
//! checksums), and is stored in the header. So the header verifies the page checksums, and these verify the
//! body; each page can be verified alone. The bytes between the parts must be zero. Together these checks
//! cover every bit of a block.

use alloc::format;

use byteorder::{ByteOrder, LittleEndian};

use super::header::{HEADER_BYTES, Header};
use super::section::{PAGE_BYTES, Section, checksums_len};
use crate::checksum::{FileId, checksum32};
use crate::codec::DecodeError;

/// Writes the page checksums of a block with a complete body, and the section checksums into `sections`.
pub(super) fn seal(block: &mut [u8], owner: &FileId, sections: &mut [Section]) {
    let mut at = HEADER_BYTES;
    for section in sections {
        let first = at;
        for (offset, len) in pages_of(section) {
            let checksum = page_checksum(block, owner, offset, len);
            LittleEndian::write_u32(&mut block[at..at + 4], checksum);
            at += 4;
        }
        section.checksum = checksum32(owner, first as u64, &[&block[first..at]]);
    }
}

/// Verifies everything after the header of a block with the first `count` sections. Checks the length that
/// the header states for these.
pub(super) fn verify(block: &[u8], header: &Header, count: usize) -> Result<(), DecodeError> {
    if block.len() as u64 != header.prefix_len(count) {
        let detail = format!("expected {}, found {}", header.prefix_len(count), block.len());
        return Err(DecodeError::corrupt(32, "filter block length", detail));
    }
    let mut at = HEADER_BYTES;
    let end = HEADER_BYTES + checksums_len(&header.sections) as usize;
    verify_checksums(&block[at..end], header)?;
    for section in header.sections.iter().take(count) {
        for (offset, len) in pages_of(section) {
            let stored = LittleEndian::read_u32(&block[at..at + 4]);
            let page = Page { offset: offset as u64, len, owner: header.owner, checksum: stored };
            page.verify(&block[offset..offset + len])?;
            at += 4;
        }
    }
    at = end;
    for section in header.sections.iter().take(count) {
        expect_zeros(block, at, section.offset as usize)?;
        at = (section.offset + section.len) as usize;
    }
    expect_zeros(block, at, block.len())
}

/// Verifies the page checksums of all sections.
pub(super) fn verify_checksums(mut checksums: &[u8], header: &Header) -> Result<(), DecodeError> {
    let mut at = HEADER_BYTES as u64;
    for section in &header.sections {
        let len = 4 * section.len.div_ceil(PAGE_BYTES);
        let Some((own, rest)) = checksums.split_at_checked(len as usize) else {
            return Err(DecodeError::corrupt(at, "filter page checksums", "are truncated"));
        };
        let found = checksum32(&header.owner, at, &[own]);
        expect_checksum(at, "filter page checksums", section.checksum, found)?;
        checksums = rest;
        at += len;
    }
    Ok(())
}

/// A page of a section: the unit of reading and verification of a filter on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Offset from the start of the filter block, in bytes.
    pub offset: u64,
    /// Its length, at most 4096 bytes.
    pub len: usize,
    owner: FileId,
    checksum: u32,
}

impl Page {
    /// The page that holds byte `at` of section `section`, with its checksum from the verified page checksums
    /// of the block. `None` if there is no such page.
    pub(super) fn holding(header: &Header, checksums: &[u8], section: usize, at: u64) -> Option<Self> {
        let before: u64 = header.sections.get(..section)?.iter().map(|s| s.len.div_ceil(PAGE_BYTES)).sum();
        let section = header.sections.get(section).filter(|section| at < section.len)?;
        let number = usize::try_from(before + at / PAGE_BYTES).ok()?;
        let start = at / PAGE_BYTES * PAGE_BYTES;
        Some(Self {
            offset: section.offset + start,
            len: PAGE_BYTES.min(section.len - start) as usize,
            owner: header.owner,
            checksum: LittleEndian::read_u32(checksums.as_chunks::<4>().0.get(number)?),
        })
    }

    /// Verifies the bytes of the page.
    ///
    /// # Errors
    ///
    /// `Corrupt` if they are damaged, come from another offset or filter, or have the wrong length. The
    /// offset counts from the start of the block.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        if bytes.len() != self.len {
            let detail = format!("expected {} bytes, found {}", self.len, bytes.len());
            return Err(DecodeError::corrupt(self.offset, "filter page", detail));
        }
        let found = checksum32(&self.owner, self.offset, &[bytes]);
        expect_checksum(self.offset, "filter page", self.checksum, found)
    }
}

/// Offset and length of each page of a section in memory.
fn pages_of(section: &Section) -> impl Iterator<Item = (usize, usize)> + use<> {
    let end = (section.offset + section.len) as usize;
    let page = PAGE_BYTES as usize;
    (section.offset as usize..end).step_by(page).map(move |offset| (offset, page.min(end - offset)))
}

fn page_checksum(block: &[u8], owner: &FileId, offset: usize, len: usize) -> u32 {
    checksum32(owner, offset as u64, &[&block[offset..offset + len]])
}

fn expect_checksum(offset: u64, what: &'static str, stored: u32, computed: u32) -> Result<(), DecodeError> {
    if stored == computed {
        return Ok(());
    }
    Err(DecodeError::corrupt(offset, what, format!("stored {stored:08x}, computed {computed:08x}")))
}

pub(super) fn expect_zeros(block: &[u8], from: usize, to: usize) -> Result<(), DecodeError> {
    match block[from..to].iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(index) => Err(DecodeError::corrupt((from + index) as u64, "filter padding", "is not zero")),
    }
}
