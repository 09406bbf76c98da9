//! The checksums between the header and the body, and what is checked by them.
//!
//! Each page of 4096 bytes of a section (the last one may be shorter) has a CRC-32 over (owner, the page's
//! offset in the block, its bytes). They stand after the header, four bytes each, those of the first section
//! first. The checksum of a section is the CRC-32 over (owner, offset of its first page checksum, its page
//! checksums), and stands in the header. So the header vouches for the pages, and they for the body; one page
//! can be verified alone. What lies between the parts is zero, which is verified too: no bit of a block is
//! outside of every check.

use super::header::{HEADER_BYTES, Header};
use super::layout::{PAGE_BYTES, Section};
use crate::checksum::{FileId, checksum32};
use crate::codec::DecodeError;

/// Writes the page checksums of a block whose body is complete, and the section checksums into `sections`.
pub(super) fn seal(block: &mut [u8], owner: &FileId, sections: &mut [Section]) {
    let mut at = HEADER_BYTES;
    for section in sections {
        let first = at;
        for (offset, len) in pages_of(section) {
            let checksum = page_checksum(block, owner, offset, len);
            block[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
            at += 4;
        }
        section.checksum = checksum32(owner, first as u64, &[&block[first..at]]);
    }
}

/// Verifies everything after the header, of a block of which the first `count` sections are there. `block` must
/// have the length that the header states for these.
pub(super) fn verify(block: &[u8], header: &Header, count: usize) -> Result<(), DecodeError> {
    if block.len() as u64 != header.prefix_len(count) {
        let detail = format!("expected {}, there are {}", header.prefix_len(count), block.len());
        return Err(DecodeError::corrupt(32, "filter block length", detail));
    }
    let mut at = HEADER_BYTES;
    for (index, section) in header.sections.iter().enumerate() {
        let len = 4 * section.len.div_ceil(PAGE_BYTES) as usize;
        let checksums = &block[at..at + len];
        let found = checksum32(&header.owner, at as u64, &[checksums]);
        expect_checksum(at as u64, "filter page checksums", section.checksum, found)?;
        at += len;
        if index >= count {
            continue;
        }
        for ((offset, len), stored) in pages_of(section).zip(checksums.chunks(4)) {
            let stored = u32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]);
            let found = page_checksum(block, &header.owner, offset, len);
            expect_checksum(offset as u64, "filter page", stored, found)?;
        }
    }
    for section in header.sections.iter().take(count) {
        expect_zeros(block, at, section.offset as usize)?;
        at = (section.offset + section.len) as usize;
    }
    expect_zeros(block, at, block.len())
}

/// Offset and length of each page of a section that lies in memory.
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

fn expect_zeros(block: &[u8], from: usize, to: usize) -> Result<(), DecodeError> {
    match block[from..to].iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(index) => Err(DecodeError::corrupt((from + index) as u64, "filter padding", "is not zero")),
    }
}
