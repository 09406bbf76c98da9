//! The location of a filter block, in its table's file or in a file beside it, and reads of its pages.
//!
//! Pages come from the block cache or from the file. A page that several threads need is read once, and
//! verified before it enters the cache. A page that fails its check is read a second time, like a block.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::context::{TableContext, TableIo};
use super::file::{TableFile, open_file, read_exact};
use super::filter_file::open_filter_file;
use crate::cache::BlockKey;
use crate::error::{Error, InFile, Result};
use crate::filename::FileName;
use crate::filter::Page;
use crate::fs::ReadFile;
use crate::table_meta::FilterRef;

/// Where a filter block lies.
#[derive(Debug)]
pub(super) struct FilterLocation {
    /// The number of the file: the table's or the filter's own.
    pub(super) number: u64,
    pub(super) path: PathBuf,
    /// Where in the file the block starts.
    pub(super) offset: u64,
    /// Whether the file is not the table's.
    is_beside: bool,
}

impl FilterLocation {
    pub(super) fn of(file: &TableFile, filter: &FilterRef) -> Self {
        let (number, path) = match filter.file {
            Some(number) => (number, FileName::Filter(number).path(&file.ctx.dir)),
            None => (file.number, file.path.clone()),
        };
        Self { number, path, offset: filter.offset, is_beside: filter.file.is_some() }
    }

    pub(super) fn open(&self, ctx: &TableContext) -> Result<Arc<dyn ReadFile>> {
        let open = if self.is_beside { open_filter_file } else { open_file };
        ctx.files.get_or_open(self.number, || open(ctx, &self.path))
    }

    pub(super) fn cached_page(&self, ctx: &TableContext, page: &Page) -> Option<Bytes> {
        ctx.memory.blocks().get(&self.key_of(page))
    }

    pub(super) fn page(&self, ctx: &TableContext, page: &Page) -> Result<Bytes> {
        let mut was_read = false;
        let read = || {
            was_read = true;
            self.read_page(ctx, page)
        };
        let bytes = ctx.memory.blocks().get_or_read(self.key_of(page), read)?;
        if !was_read {
            TableIo::count(&ctx.io.filter_page_cache_hits);
        }
        Ok(bytes)
    }

    fn key_of(&self, page: &Page) -> BlockKey {
        BlockKey::filter_page(self.number, self.offset + page.offset, page.len as u64)
    }

    /// Reads a page from the file and verifies it.
    fn read_page(&self, ctx: &TableContext, page: &Page) -> Result<Bytes> {
        TableIo::count(&ctx.io.filter_page_reads);
        let file = self.open(ctx)?;
        let attempt = || {
            let bytes = read_exact(&*file, &self.path, self.offset + page.offset, page.len as u64)?;
            Ok::<_, Error>(page.verify(&bytes).map(|()| bytes))
        };
        let mut read = attempt()?;
        if read.is_err() {
            TableIo::count(&ctx.io.block_rereads);
            read = attempt()?;
        }
        Ok(read.map_err(|error| error.in_file(&self.path, self.offset))?.into())
    }
}
