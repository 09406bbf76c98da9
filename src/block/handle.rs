//! Where a block lies: `offset varint · length varint`. The length is that of the whole block, envelope
//! included, so that one read fetches it.

use crate::block::ENVELOPE_BYTES;
use crate::codec::{DecodeError, Reader, put_varint};
use crate::file_header::HEADER_BYTES;
use crate::limits::BLOCK_BYTES_MAX;

/// Offset and length of a block in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    /// Bytes from the start of the file.
    pub(crate) offset: u64,
    /// Length of the block with its envelope.
    pub(crate) len: u64,
}

impl BlockHandle {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.len);
    }

    /// Decodes a value of an index entry, which holds nothing else.
    pub(crate) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
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

    /// Checks that a block can lie there: after the file header, before `end`, and with a length within the
    /// limit.
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
