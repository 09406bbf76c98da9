//! The checksums between the header and the body.
//!
//! Each page has a CRC-32 over (owner, offset in the block, bytes). The header has one checksum per section, over the
//! page checksums (format.md, "Filter block"). Bytes between the parts are zero. So every bit is covered, and a page
//! can be verified alone.

use alloc::format;

use byteorder::{ByteOrder, LittleEndian};

use super::header::{HEADER_BYTES, Header};
use super::section::{PAGE_BYTES, Section, checksums_len};
use crate::checksum::{FileId, checksum32};
use crate::codec::DecodeError;

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

/// The unit of reads and verification of a filter on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Offset in the block, in bytes.
    pub offset: u64,
    /// Length in bytes, at most 4096.
    pub len: usize,
    owner: FileId,
    checksum: u32,
}

impl Page {
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
    /// `Corrupt` if the bytes are damaged, misplaced or of the wrong length.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        if bytes.len() != self.len {
            let detail = format!("expected {} bytes, found {}", self.len, bytes.len());
            return Err(DecodeError::corrupt(self.offset, "filter page", detail));
        }
        let found = checksum32(&self.owner, self.offset, &[bytes]);
        expect_checksum(self.offset, "filter page", self.checksum, found)
    }
}

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
