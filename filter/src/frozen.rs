//! The first 40 bytes of a filter block, which are the same in every version: magic, format version, header length,
//! header checksum, owner and block length.
//!
//! A reader can skip a block of an unknown version. The checksum is checked before the version, so a newer block is not
//! reported as damaged.

use alloc::format;

use byteorder::{ByteOrder, LittleEndian};

use crate::checksum::{FileId, checksum32};
use crate::codec::{DecodeError, Reader, another_magic};

/// The first bytes of every filter block.
pub const MAGIC: [u8; 8] = *b"\x89SVFLT\r\n";

/// Maximum header bytes in any version.
pub const HEADER_BYTES_MAX: usize = 4096;

pub(super) const FROZEN_BYTES: usize = 40;

const CHECKSUM_OFFSET: usize = 12;

/// Returns the length of the block that starts with `first_bytes`, in any version. A header of this version has
/// [`HEADER_BYTES`](super::header::HEADER_BYTES) bytes; other headers have up to [`HEADER_BYTES_MAX`].
///
/// # Errors
///
/// `Corrupt` if the bytes are not a valid header of a filter block.
pub fn block_len(first_bytes: &[u8]) -> Result<u64, DecodeError> {
    Frozen::verified(first_bytes).map(|frozen| frozen.block_len)
}

/// Returns the file id of the block's table, in any version.
///
/// # Errors
///
/// As [`block_len`].
pub fn owner(first_bytes: &[u8]) -> Result<FileId, DecodeError> {
    Frozen::verified(first_bytes).map(|frozen| frozen.owner)
}

/// Returns the verified header checksum, in any version.
///
/// # Errors
///
/// As [`block_len`].
pub fn checksum(first_bytes: &[u8]) -> Result<u32, DecodeError> {
    Frozen::verified(first_bytes).map(|frozen| frozen.checksum)
}

pub(super) struct Frozen<'a> {
    pub(super) version: u16,
    pub(super) checksum: u32,
    pub(super) owner: FileId,
    pub(super) block_len: u64,
    pub(super) header: &'a [u8],
}

impl<'a> Frozen<'a> {
    pub(super) fn verified(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic: [u8; 8] = reader.array("filter magic")?;
        if magic != MAGIC {
            return Err(DecodeError::corrupt(0, "filter magic", another_magic(&MAGIC, &magic)));
        }
        let version = reader.u16("filter format version")?;
        let len = usize::from(reader.u16("filter header length")?);
        let checksum = reader.u32("filter header checksum")?;
        let owner = reader.array("filter owner")?;
        let block_len = reader.u64("filter block length")?;
        if !(64..=HEADER_BYTES_MAX).contains(&len) || len % 64 != 0 {
            let detail = format!("{len} is not a multiple of 64 up to {HEADER_BYTES_MAX}");
            return Err(DecodeError::corrupt(10, "filter header length", detail));
        }
        let header = Reader::new(bytes).bytes(len, "filter header")?;
        let expected = header_checksum(header, &owner);
        if checksum != expected {
            let detail = format!("stored {checksum:08x}, computed {expected:08x}");
            return Err(DecodeError::corrupt(12, "filter header checksum", detail));
        }
        if block_len < len as u64 || block_len % 64 != 0 {
            let detail = format!("{block_len} is not a multiple of 64 from {len} on");
            return Err(DecodeError::corrupt(32, "filter block length", detail));
        }
        Ok(Self { version, checksum, owner, block_len, header })
    }
}

fn header_checksum(header: &[u8], owner: &FileId) -> u32 {
    checksum32(owner, 0, &[&header[..CHECKSUM_OFFSET], &header[CHECKSUM_OFFSET + 4..]])
}

pub(super) fn seal(header: &mut [u8], owner: &FileId) {
    let checksum = header_checksum(header, owner);
    LittleEndian::write_u32(&mut header[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4], checksum);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn reseal(block: &mut [u8]) {
        let len = usize::from(u16::from_le_bytes([block[10], block[11]])).clamp(64, block.len());
        let owner: FileId = block[16..32].try_into().unwrap();
        seal(&mut block[..len], &owner);
    }
}
