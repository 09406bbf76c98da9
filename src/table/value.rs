//! Long values: the data block has a reference; chunk blocks have the value.
//!
//! Chunks are contiguous: each envelope gives the start of the next chunk. They bypass the block cache, because they
//! would evict thousands of blocks.

use std::sync::Arc;

use crate::block::{BlockKind, ChunkRef};
use crate::error::Result;
use crate::iter::ChunkedValue;

use super::file::TableFile;

#[derive(Debug)]
pub(super) struct TableChunks {
    pub(super) file: Arc<TableFile>,
    pub(super) chunks: ChunkRef,
    pub(super) block: u64,
}

impl ChunkedValue for TableChunks {
    fn len(&self) -> u64 {
        self.chunks.total
    }

    fn read_chunks(&self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let checked = self.chunks.check(self.block);
        checked.map_err(|error| self.file.error_in_block(error, self.block))?;
        let mut offset = self.chunks.offset;
        for index in 0..self.chunks.count {
            let handle = self.file.handle_at(offset)?;
            let read = &mut || self.file.read(handle.offset, handle.len);
            let chunk = self.file.read_block(handle, BlockKind::ValueChunk, read)?;
            let expected = self.chunks.chunk_len(index);
            if chunk.len() as u64 != expected {
                let detail = format!("chunk {index} has {} bytes, expected {expected}", chunk.len());
                return Err(self.file.corrupt(offset, "value chunk length", detail));
            }
            take(&chunk)?;
            offset = handle.offset + handle.len;
        }
        Ok(())
    }
}
