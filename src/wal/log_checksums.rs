//! Computes the checksum of any part of a page from checksums of its prefixes.
//!
//! A search for fragments needs a checksum at every multiple of 8. If all bytes look like headers, these checksums
//! cover thousands of times the bytes of the page. Beyond a limit, the search therefore computes the CRC-32s of the
//! page's prefixes once, at every multiple of 4, and derives the other checksums:
//!
//! ```text
//! crc(a · b)      = crc(a) * x^(8 · length of b) + crc(b)        over GF(2), modulo the polynomial
//! crc(h · part)   = crc(up to its end) + (crc(up to its start) + crc(h)) * x^(8 · length of the part)
//! ```
//! `+` is exclusive or. [`combine`](crc32fast::Hasher::combine) computes the first line with one multiplication for
//! each bit of the length.

use crc32fast::Hasher;

use crate::checksum::FileId;
use crate::codec::u64_bytes;

const STEP: usize = 4;

#[derive(Debug)]
pub(super) struct Sums {
    beginnings: Vec<u32>,
    owner: Hasher,
}

impl Sums {
    pub(super) fn of(file_id: &FileId, bytes: &[u8]) -> Self {
        let mut beginnings = vec![0];
        let mut all = Hasher::new();
        for step in bytes.chunks_exact(STEP) {
            all.update(step);
            beginnings.push(all.clone().finalize());
        }
        let mut owner = Hasher::new();
        owner.update(file_id);
        Self { beginnings, owner }
    }

    /// `place` and `len` are multiples of 8. Returns `None` beyond the end of the bytes.
    pub(super) fn of_fragment(&self, offset: u64, place: usize, len: usize) -> Option<u32> {
        let mut head = self.owner.clone();
        head.update(&u64_bytes(offset));
        let (start, end) =
            (self.beginnings.get(place / STEP + 1)?, self.beginnings.get((place + len) / STEP)?);
        let mut sum = Hasher::new_with_initial(start ^ head.finalize());
        sum.combine(&Hasher::new_with_initial_len(*end, len.checked_sub(STEP)? as u64));
        Some(sum.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::PAGE_BYTES;
    use super::*;
    use crate::checksum::checksum32;

    #[test]
    fn every_part_has_the_checksum_that_is_computed_of_it_alone() {
        let id = [7; 16];
        let bytes: Vec<u8> = (0..PAGE_BYTES as u64).map(|n| (n * n / 7) as u8).collect();
        let sums = Sums::of(&id, &bytes);
        for place in (0..PAGE_BYTES).step_by(1048) {
            for len in (16..=PAGE_BYTES - place).step_by(376).chain([PAGE_BYTES - place]) {
                let offset = (1 << 40) + place as u64;
                let expected = checksum32(&id, offset, &[&bytes[place + 4..place + len]]);
                assert_eq!(sums.of_fragment(offset, place, len), Some(expected), "{len} at {place}");
            }
        }
        assert_eq!(sums.of_fragment(0, 8, PAGE_BYTES), None);
    }
}
