//! Checksums of any part of a page, each by one multiplication.
//!
//! A search for fragments needs a checksum at every multiple of 8, over the length that is found there. In
//! bytes that were made to look like headers this adds up to thousands of times the page. So, once a search
//! has cost too much, the CRC-32s of all prefixes of the page are computed, and the others follow:
//!
//! ```text
//! crc(a · b)      = crc(a) * x^(8 · length of b) + crc(b)        over GF(2), modulo the polynomial
//! crc(h · part)   = crc(up to its end) + (crc(up to its start) + crc(h)) * x^(8 · length of the part)
//! ```
//!
//! The second line is the first one twice; `+` is exclusive or. The identity is that of zlib's
//! `crc32_combine`.

use crate::checksum::FileId;
use crate::codec::u64_bytes;

use super::record::{FRAGMENT_ALIGN, PAGE_BYTES};

/// The polynomial of CRC-32 (IEEE), reflected: the top bit is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

/// Bytes from one known prefix to the next.
const STEP: usize = 4;

/// The checksums of the prefixes of some bytes, and what is needed to derive others from them.
#[derive(Debug)]
pub(super) struct Sums {
    /// CRC-32 of the first `4 · i` bytes.
    beginnings: Vec<u32>,
    /// `x^(8 · (8 · i + 4))`: a part begins after the four bytes of its checksum and ends at a multiple of 8.
    powers: Vec<u32>,
    /// Over the file id.
    owner: crc32fast::Hasher,
}

impl Sums {
    /// Of `bytes`, at most a page.
    pub(super) fn of(file_id: &FileId, bytes: &[u8]) -> Self {
        let mut beginnings = vec![0];
        let mut crc = 0;
        for step in bytes.chunks_exact(STEP) {
            let mut hasher = crc32fast::Hasher::new_with_initial(crc);
            hasher.update(step);
            crc = hasher.finalize();
            beginnings.push(crc);
        }
        let eight = power_of_bytes(FRAGMENT_ALIGN);
        let powers = std::iter::successors(Some(power_of_bytes(STEP)), |power| Some(times(*power, eight)));
        let mut owner = crc32fast::Hasher::new();
        owner.update(file_id);
        Self { beginnings, powers: powers.take(PAGE_BYTES / FRAGMENT_ALIGN).collect(), owner }
    }

    /// The checksum of a fragment of `len` bytes at `place` of the bytes and `offset` of the file, as its
    /// header should state it. Both are multiples of 8, and it lies within the bytes; `None` if not.
    pub(super) fn of_fragment(&self, offset: u64, place: usize, len: usize) -> Option<u32> {
        let mut head = self.owner.clone();
        head.update(&u64_bytes(offset));
        let (start, end) = (place / STEP + 1, (place + len) / STEP);
        let power = *self.powers.get((len - STEP) / FRAGMENT_ALIGN)?;
        let before = self.beginnings.get(start)? ^ head.finalize();
        Some(self.beginnings.get(end)? ^ times(before, power))
    }
}

/// `x^(8 · bytes)`.
fn power_of_bytes(bytes: usize) -> u32 {
    (0..8 * bytes).fold(ONE, |power, _| times_x(power))
}

fn times_x(a: u32) -> u32 {
    if a & 1 == 1 { a >> 1 ^ POLYNOMIAL } else { a >> 1 }
}

/// The product of two polynomials.
fn times(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        if a >> bit & 1 == 1 {
            product ^= b;
        }
        b = times_x(b);
    }
    product
}

#[cfg(test)]
mod tests {
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
