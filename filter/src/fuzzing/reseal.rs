//! Corrects the checksums of a changed filter block.

use byteorder::{ByteOrder, LittleEndian};

use crate::checksum::{FileId, checksum32};
use crate::header::HEADER_BYTES;

const PAGE_BYTES: usize = 4096;

/// `put(place, checksum)` writes the header checksum.
pub fn reseal(block: &mut [u8], put: impl FnOnce(&mut [u8], &[u8])) {
    if block.len() < HEADER_BYTES {
        return;
    }
    let mut owner = FileId::default();
    owner.copy_from_slice(&block[16..32]);
    let mut at = HEADER_BYTES;
    for index in 0..usize::from(block[43]).min(5) {
        let entry = 128 + 24 * index;
        let number = |at: usize| usize::try_from(LittleEndian::read_u64(&block[at..])).unwrap_or(usize::MAX);
        let (start, len) = (number(entry), number(entry + 8));
        let end = start.saturating_add(len);
        let sums_end = at.saturating_add(len.div_ceil(PAGE_BYTES).saturating_mul(4));
        if end > block.len() || sums_end > block.len() || start < sums_end {
            break;
        }
        let first = at;
        for page in (start..end).step_by(PAGE_BYTES) {
            let sum = checksum32(&owner, page as u64, &[&block[page..end.min(page + PAGE_BYTES)]]);
            LittleEndian::write_u32(&mut block[at..], sum);
            at += 4;
        }
        let sum = checksum32(&owner, first as u64, &[&block[first..at]]);
        LittleEndian::write_u32(&mut block[entry + 16..], sum);
    }
    let len = usize::from(LittleEndian::read_u16(&block[10..])).clamp(16, block.len());
    let mut sum = [0; 4];
    LittleEndian::write_u32(&mut sum, checksum32(&owner, 0, &[&block[..12], &block[16..len]]));
    put(&mut block[12..16], &sum);
}
