//! The checksum of all files. It covers (file id of the owner, offset, bytes), so it detects misplaced bytes.
//!
//! Up to [`CRC_BYTES_MAX`] bytes, it is CRC-32 (IEEE), which detects every burst of up to 32 bits. For more bytes, it
//! is XXH3-64 with seed 0, which is ten times as fast.

use xxhash_rust::xxh3::Xxh3;

use crate::codec::u64_bytes;

/// Maximum number of bytes for a CRC-32.
pub const CRC_BYTES_MAX: usize = 16 << 10;

/// Random id of a file.
pub type FileId = [u8; 16];

/// Checksum of the concatenated `parts` at `offset` of file `owner`.
pub fn checksum(owner: &FileId, offset: u64, parts: &[&[u8]]) -> u64 {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    if len <= CRC_BYTES_MAX {
        u64::from(checksum32(owner, offset, parts))
    } else {
        let mut hash = Xxh3::new();
        hash.update(owner);
        hash.update(&u64_bytes(offset));
        parts.iter().for_each(|part| hash.update(part));
        hash.digest()
    }
}

/// CRC-32, for units that are always short.
pub fn checksum32(owner: &FileId, offset: u64, parts: &[&[u8]]) -> u32 {
    // A single update, because each update has a fixed cost.
    let mut place = [0; 24];
    place[..16].copy_from_slice(owner);
    place[16..].copy_from_slice(&u64_bytes(offset));
    let mut crc = crc32fast::Hasher::new();
    crc.update(&place);
    parts.iter().for_each(|part| crc.update(part));
    crc.finalize()
}

/// [`checksum32`] with the owner already hashed.
#[derive(Debug, Clone)]
pub struct FileChecksum(crc32fast::Hasher);

impl FileChecksum {
    pub fn new(owner: &FileId) -> Self {
        let mut begun = crc32fast::Hasher::new();
        begun.update(owner);
        Self(begun)
    }

    pub fn of(&self, offset: u64, bytes: &[u8]) -> u32 {
        let mut crc = self.0.clone();
        crc.update(&u64_bytes(offset));
        crc.update(bytes);
        crc.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_are_the_published_ones() {
        // Check values of CRC-32/ISO-HDLC, and of XXH3-64 of the empty string, from their specifications.
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        assert_eq!(xxhash_rust::xxh3::xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    }

    #[test]
    fn owner_offset_and_every_bit_count_on_both_sides_of_the_switch() {
        for len in [0, 1, 100, CRC_BYTES_MAX, CRC_BYTES_MAX + 1] {
            let mut bytes = vec![7u8; len];
            let good = checksum(&[1; 16], 5, &[&bytes]);
            assert_ne!(good, checksum(&[2; 16], 5, &[&bytes]));
            assert_ne!(good, checksum(&[1; 16], 6, &[&bytes]));
            assert_eq!(good >> 32 == 0, len <= CRC_BYTES_MAX);
            for index in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|&index| index < len) {
                bytes[index] ^= 1;
                assert_ne!(good, checksum(&[1; 16], 5, &[&bytes]));
                bytes[index] ^= 1;
            }
        }
    }

    #[test]
    fn parts_are_one_string() {
        assert_eq!(checksum(&[0; 16], 0, &[b"ab", b"c"]), checksum(&[0; 16], 0, &[b"abc"]));
        assert_eq!(FileChecksum::new(&[3; 16]).of(5, b"abc"), checksum32(&[3; 16], 5, &[b"abc"]));
    }
}
