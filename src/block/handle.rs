//! The location of a block: `offset varint · length varint`. The length includes the envelope.

use byteorder::{ByteOrder, LittleEndian};

use super::entry::join_sevens;
use crate::block::ENVELOPE_BYTES;
use crate::codec::{DecodeError, Reader, put_varint};
use crate::file_header::HEADER_BYTES;
use crate::limits::BLOCK_BYTES_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl BlockHandle {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.len);
    }

    #[inline(always)]
    pub(crate) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_word(value).map_or_else(|| Self::decode_any(value), Ok)
    }

    #[inline(always)]
    fn decode_word(value: &[u8]) -> Option<Self> {
        let (low, high) = (value.first_chunk::<4>()?, value.last_chunk::<4>()?);
        let bits = 8 * value.len();
        if bits > 64 {
            return None;
        }
        let (low, high) = (LittleEndian::read_u32(low), LittleEndian::read_u32(high));
        let word = u64::from(low) | u64::from(high) << (bits - 32);
        // The last byte of each number has a clear highest bit.
        let ends = !word & (0x8080_8080_8080_8080 >> (64 - bits));
        if ends & ends.wrapping_sub(1) != 1 << (bits - 1) {
            return None;
        }
        let offset_bytes = ends.trailing_zeros() as usize / 8 + 1;
        let (numbers, offset_bits) = (join_sevens(word), 7 * offset_bytes);
        let (offset, len) = (numbers & ((1 << offset_bits) - 1), numbers >> offset_bits);
        let is_shortest = |number: u64, bytes: usize| bytes == 1 || number >> (7 * (bytes - 1)) > 0;
        (is_shortest(offset, offset_bytes) && is_shortest(len, value.len() - offset_bytes))
            .then_some(Self { offset, len })
    }

    #[inline(never)]
    fn decode_any(value: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value);
        let handle = Self {
            offset: reader.varint("block handle offset")?,
            len: reader.varint("block handle length")?,
        };
        if !reader.is_empty() {
            return Err(reader.corrupt("block handle", "bytes follow the length"));
        }
        Ok(handle)
    }

    /// Checks that the location is after the file header and before `end`, and that the length is within the limit.
    pub(crate) fn check(&self, end: u64) -> Result<(), DecodeError> {
        let lengths = ENVELOPE_BYTES as u64..=(ENVELOPE_BYTES + BLOCK_BYTES_MAX) as u64;
        let fits = self.offset.checked_add(self.len).is_some_and(|block_end| block_end <= end);
        if self.offset >= HEADER_BYTES as u64 && lengths.contains(&self.len) && fits {
            return Ok(());
        }
        let detail = format!("{} bytes at {} are no block in {HEADER_BYTES}..{end}", self.len, self.offset);
        Err(DecodeError::corrupt(0, "block handle", detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_comes_back_and_nothing_may_follow_it() {
        let handle = BlockHandle { offset: 1 << 40, len: 4116 };
        let mut bytes = Vec::new();
        handle.encode(&mut bytes);
        assert_eq!(BlockHandle::decode(&bytes), Ok(handle));
        for len in 0..bytes.len() {
            assert!(BlockHandle::decode(&bytes[..len]).is_err());
        }
        bytes.push(0);
        assert_eq!(BlockHandle::decode(&bytes).unwrap_err().what, "block handle");
    }

    #[test]
    fn handles_of_any_bytes_are_the_same_in_a_word_and_byte_by_byte() {
        let (mut state, mut in_words, mut refused) = (1u64, 0, 0);
        for round in 0..200_000 {
            let mut bytes = [0; 12];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = [0, 1, 0x7f, 0x80, 0x81, 0xff, 5, 0xc2][(state >> 61) as usize];
            }
            let value = &bytes[..round % 13];
            let expected = BlockHandle::decode_any(value);
            in_words += u32::from(BlockHandle::decode_word(value).is_some());
            refused += u32::from(expected.is_err());
            assert_eq!(BlockHandle::decode(value), expected, "{value:?}");
        }
        assert!(in_words > 1000 && refused > 10_000, "{in_words} {refused}");
    }

    #[test]
    fn a_handle_outside_the_file_or_the_limits_is_refused() {
        let max = (ENVELOPE_BYTES + BLOCK_BYTES_MAX) as u64;
        for (offset, len, good) in [
            (64, 20, true),
            (63, 20, false),
            (64, 19, false),
            (0, 0, false),
            (64, max, true),
            (64, max + 1, false),
            (64 + max, 20, false),
            (44 + max, 20, true),
            (u64::MAX, 20, false),
            (64, u64::MAX, false),
        ] {
            assert_eq!(BlockHandle { offset, len }.check(64 + max).is_ok(), good, "{offset} {len}");
        }
    }
}
