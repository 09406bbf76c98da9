//! The reference to a long value in a data block: `total length varint · offset varint · count varint`.
//!
//! The value is in `count` contiguous value-chunk blocks from `offset` on. Each has [`VALUE_CHUNK_BYTES`] of the value,
//! except the last. The count is redundant, as a check. A value that fits inline is never chunked.

use crate::block::ENVELOPE_BYTES;
use crate::codec::{DecodeError, Reader, put_varint};
use crate::limits::{VALUE_BYTES_MAX, VALUE_CHUNK_BYTES, VALUE_INLINE_MAX};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkRef {
    pub(crate) total: u64,
    pub(crate) offset: u64,
    pub(crate) count: u64,
}

impl ChunkRef {
    pub(crate) fn new(total: u64, offset: u64) -> Self {
        Self { total, offset, count: total.div_ceil(VALUE_CHUNK_BYTES as u64) }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        [self.total, self.offset, self.count].iter().for_each(|&n| put_varint(out, n));
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value);
        let found = Self {
            total: reader.varint("chunked value length")?,
            offset: reader.varint("chunked value offset")?,
            count: reader.varint("value chunk count")?,
        };
        if !reader.is_empty() {
            return Err(reader.corrupt("chunked value", "bytes follow the reference"));
        }
        if !(VALUE_INLINE_MAX as u64 + 1..=VALUE_BYTES_MAX as u64).contains(&found.total) {
            let detail = format!("{} is not in {}..={VALUE_BYTES_MAX}", found.total, VALUE_INLINE_MAX + 1);
            return Err(DecodeError::corrupt(0, "chunked value length", detail));
        }
        let expected = Self::new(found.total, found.offset).count;
        if found.count != expected {
            let detail = format!("expected {expected} for {} bytes, found {}", found.total, found.count);
            return Err(DecodeError::corrupt(0, "value chunk count", detail));
        }
        Ok(found)
    }

    pub(crate) fn check(&self, end: u64) -> Result<(), DecodeError> {
        let least = self.count * ENVELOPE_BYTES as u64 + self.total / 255;
        if self.offset.checked_add(least).is_some_and(|chunks_end| chunks_end <= end) {
            return Ok(());
        }
        let detail = format!("{} bytes at {} cannot lie before {end}", self.total, self.offset);
        Err(DecodeError::corrupt(0, "chunked value", detail))
    }

    pub(crate) fn chunk_len(&self, index: u64) -> u64 {
        (self.total - index * VALUE_CHUNK_BYTES as u64).min(VALUE_CHUNK_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(numbers: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        numbers.iter().for_each(|&n| put_varint(&mut out, n));
        out
    }

    #[test]
    fn a_reference_comes_back() {
        for total in [VALUE_INLINE_MAX as u64 + 1, 1 << 20, (1 << 20) + 1, VALUE_BYTES_MAX as u64] {
            let made = ChunkRef::new(total, 64);
            let mut out = Vec::new();
            made.encode(&mut out);
            assert_eq!(ChunkRef::decode(&out), Ok(made));
            assert_eq!((0..made.count).map(|index| made.chunk_len(index)).sum::<u64>(), total);
        }
    }

    #[test]
    fn references_that_no_writer_makes_are_refused() {
        for (numbers, what) in [
            (&[32_768, 64, 1][..], "chunked value length"),
            (&[0, 64, 0], "chunked value length"),
            (&[(256 << 20) + 1, 64, 257], "chunked value length"),
            (&[u64::MAX, 64, 1], "chunked value length"),
            (&[1 << 20, 64, 2], "value chunk count"),
            (&[1 << 20, 64, 0], "value chunk count"),
            (&[1 << 20, 64, 1, 0], "chunked value"),
            (&[1 << 20, 64], "value chunk count"),
            (&[], "chunked value length"),
        ] {
            assert_eq!(ChunkRef::decode(&encoded(numbers)).unwrap_err().what, what, "{numbers:?}");
        }
        assert!(ChunkRef::new(1 << 20, 64).check(5_000).is_ok());
        assert!(ChunkRef::new(1 << 20, 64).check(4_000).is_err());
        assert!(ChunkRef::new(1 << 20, u64::MAX).check(u64::MAX).is_err());
    }
}
