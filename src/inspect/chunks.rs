//! Values in chunks, followed beside the walk over the blocks of a table.
//!
//! The values of a table that stand in chunks, in the order of their keys, have all its chunk blocks, in the order of
//! the file: none is left out and none shared. So one position is all there is to remember, behind the chunks of the
//! value before; other blocks between the chunks of two values are passed over. Chunks are known by their
//! envelopes here. The walk has verified them, for it is ahead.

use super::out::Result;
use super::window::Window;
use crate::block::{BlockHandle, BlockKind, ChunkRef, ENVELOPE_BYTES, Envelope};
use crate::codec::DecodeError;
use crate::file_header::HEADER_BYTES;

/// How far the chunks of a table have been referred to.
pub(super) struct Chunks {
    position: u64,
}

impl Chunks {
    pub(super) fn new() -> Self {
        Self { position: HEADER_BYTES as u64 }
    }

    /// The walk has met this block, which is no chunk. If no chunks are left before it, none are looked for in it.
    pub(super) fn pass(&mut self, block: BlockHandle) {
        if self.position == block.offset {
            self.position += block.len;
        }
    }

    /// Goes over the chunks of a value whose reference stands in the data block at `end`; gives what is wrong.
    pub(super) fn follow(
        &mut self,
        window: &mut Window<'_>,
        value: ChunkRef,
        end: u64,
    ) -> Result<Option<DecodeError>> {
        let wrong = |what, detail| Ok(Some(DecodeError::corrupt(0, what, detail)));
        let mut next = self.at_position(window, end)?;
        while let Some((BlockKind::Data, len, _)) = next {
            self.position += len;
            next = self.at_position(window, end)?;
        }
        if self.position != value.offset {
            let detail = format!("refers to {}, and the next chunk is at {}", value.offset, self.position);
            return wrong("chunked value", detail);
        }
        for index in 0..value.count {
            let at = self.position;
            let Some((BlockKind::ValueChunk, len, raw)) = self.at_position(window, end)? else {
                return wrong("chunked value", format!("there is no chunk {index} at {at}"));
            };
            if raw != value.chunk_len(index) {
                let detail =
                    format!("chunk {index}, at {at}, has {raw} bytes, expected {}", value.chunk_len(index));
                return wrong("value chunk length", detail);
            }
            self.position += len;
        }
        Ok(None)
    }

    /// Kind, length and raw length of the block at the position, if that is before `end`.
    fn at_position(&self, window: &mut Window<'_>, end: u64) -> Result<Option<(BlockKind, u64, u64)>> {
        if self.position >= end {
            return Ok(None);
        }
        let head = window.apart(self.position, ENVELOPE_BYTES as u64)?;
        Ok(Envelope::decode(&head).ok().and_then(|envelope| {
            let kind = BlockKind::from_u8(envelope.kind)?;
            Some((kind, envelope.sealed_len(), envelope.raw_len.into()))
        }))
    }
}
