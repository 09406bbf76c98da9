//! One table file as a source of checked blocks, from the cache or from the file.
//!
//! Checks a handle against the file's length, then verifies the block's envelope. A block that fails is read once more,
//! because a bit may have flipped in transfer. A long scan reads several blocks at once (`read_ahead`).

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::block::{BlockHandle, BlockKind, ENVELOPE_BYTES, Envelope, open};
use crate::cache::BlockKey;
use crate::checksum::FileId;
use crate::codec::{DecodeError, DecodeErrorKind};
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES, StoreIds};
use crate::fs::ReadFile;

use super::context::{TableContext, TableIo};

/// The file cache may close and reopen the underlying handle.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(super) ctx: Arc<TableContext>,
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) file_id: FileId,
    pub(super) blocks_end: u64,
}

impl TableFile {
    pub(super) fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        read_exact(&*self.handle()?, &self.path, offset, len)
    }

    pub(super) fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        read_into(&*self.handle()?, &self.path, offset, bytes)
    }

    fn handle(&self) -> Result<Arc<dyn ReadFile>> {
        self.ctx.files.get_or_open(self.number, || open_file(&self.ctx, &self.path))
    }

    #[inline]
    pub(super) fn block(&self, handle: BlockHandle, kind: BlockKind, fill_cache: bool) -> Result<Bytes> {
        self.block_by(handle, kind, fill_cache, || self.read(handle.offset, handle.len))
    }

    #[inline]
    pub(super) fn block_by(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        fill_cache: bool,
        mut read: impl FnMut() -> Result<Vec<u8>>,
    ) -> Result<Bytes> {
        let (blocks, key) = (self.ctx.memory.blocks(), BlockKey::block(self.number, handle, kind));
        match blocks.get(&key) {
            Some(payload) => {
                self.count_hit(kind);
                Ok(payload)
            }
            None if fill_cache => self.read_into_cache(handle, kind, &mut read),
            None => self.read_block(handle, kind, &mut read),
        }
    }

    #[inline(never)]
    fn read_into_cache(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        read: &mut dyn FnMut() -> Result<Vec<u8>>,
    ) -> Result<Bytes> {
        let mut was_read = false;
        let read = || {
            was_read = true;
            self.read_block(handle, kind, read)
        };
        let key = BlockKey::block(self.number, handle, kind);
        let payload = self.ctx.memory.blocks().read_after_miss(key, read)?;
        if !was_read {
            self.count_hit(kind);
        }
        Ok(payload)
    }

    fn count_hit(&self, kind: BlockKind) {
        match kind {
            BlockKind::Data => TableIo::count(&self.ctx.io.data_block_cache_hits),
            BlockKind::Index => TableIo::count(&self.ctx.io.index_block_cache_hits),
            _ => {}
        }
    }

    /// Reads and checks a block without the cache.
    pub(super) fn read_block(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        read: &mut dyn FnMut() -> Result<Vec<u8>>,
    ) -> Result<Bytes> {
        handle.check(self.blocks_end).map_err(|error| self.error_in_block(error, handle.offset))?;
        match kind {
            BlockKind::Data => TableIo::count(&self.ctx.io.data_block_reads),
            BlockKind::Index => TableIo::count(&self.ctx.io.index_block_reads),
            BlockKind::ValueChunk => TableIo::count(&self.ctx.io.value_chunk_reads),
            BlockKind::Properties | BlockKind::Padding | BlockKind::Spans => {}
        }
        let open = |sealed| open(&self.file_id, handle.offset, sealed, kind);
        let opened = match open(read()?) {
            Err(DecodeError { kind: DecodeErrorKind::Corrupt(_), .. }) => {
                TableIo::count(&self.ctx.io.block_rereads);
                open(self.read(handle.offset, handle.len)?)
            }
            first => first,
        };
        opened.map_err(|error| error.in_file(&self.path, handle.offset))
    }

    pub(super) fn handle_at(&self, offset: u64) -> Result<BlockHandle> {
        let room = self.blocks_end.saturating_sub(offset);
        let head = self.read(offset, room.min(ENVELOPE_BYTES as u64))?;
        let envelope = Envelope::decode(&head).map_err(|error| error.in_file(&self.path, offset))?;
        let handle = BlockHandle { offset, len: envelope.sealed_len() };
        handle.check(self.blocks_end).map_err(|error| self.error_in_block(error, offset))?;
        Ok(handle)
    }

    /// The error states the block's offset, because the payload may be compressed.
    #[cold]
    pub(super) fn error_in_block(&self, error: DecodeError, block: u64) -> Error {
        match error.kind {
            DecodeErrorKind::Corrupt(detail) => {
                let detail = format!("{detail} (byte {} of the payload)", error.offset);
                Error::corruption(&self.path, block, error.what, detail)
            }
            _ => error.in_file(&self.path, block),
        }
    }

    pub(super) fn corrupt(&self, offset: u64, what: &'static str, detail: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what, detail)
    }
}

pub(super) fn open_file(ctx: &TableContext, path: &Path) -> Result<Arc<dyn ReadFile>> {
    ctx.fs.open(path).map_err(|source| Error::io("open", path, source))
}

pub(super) fn read_header(
    file: &dyn ReadFile,
    path: &Path,
    kind: FileKind,
    store_ids: &StoreIds,
) -> Result<(u64, FileHeader)> {
    let len = file.len().map_err(|source| Error::io("read", path, source))?;
    let head = read_exact(file, path, 0, len.min(HEADER_BYTES as u64))?;
    let header = FileHeader::decode_kind(&head, kind).map_err(|error| error.in_file(path, 0))?;
    if !store_ids.contains(&header.store_id) {
        return Err(Error::corruption(path, 16, "store id", "the file is of another store"));
    }
    Ok((len, header))
}

pub(super) fn read_exact(file: &dyn ReadFile, path: &Path, offset: u64, len: u64) -> Result<Vec<u8>> {
    file.read_to_vec(len as usize, offset).map_err(|error| read_error(path, offset, len, error))
}

pub(super) fn read_into(file: &dyn ReadFile, path: &Path, offset: u64, bytes: &mut [u8]) -> Result<()> {
    file.read_at(bytes, offset).map_err(|error| read_error(path, offset, bytes.len() as u64, error))
}

#[cold]
fn read_error(path: &Path, offset: u64, len: u64, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => {
            Error::corruption(path, offset, "file length", format!("ends within these {len} bytes"))
        }
        _ => Error::io("read", path, error),
    }
}
