//! The filter of a table that found no room in memory, asked by pages.
//!
//! What is small of it is in memory, leased like a filter; its pages come from the block cache, or from the file, once for
//! all who ask for one at the same time, and are verified before they enter the cache. A page that fails its check is
//! read once more, as blocks are; if it fails again, or cannot be read, nothing is known of the key, and whoever asked
//! takes the filter for damaged.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::cache::filter_page;
use crate::error::{Error, InFile, Result};
use crate::filename::FileName;
use crate::filter::{Header, Page, PagedFilter};
use crate::fs::ReadFile;
use crate::memory::{Lease, Part};
use crate::table_meta::{FilterRef, TableMeta};

use super::context::{TableContext, TableIo};
use super::file::{TableFile, open_file, read_exact};
use super::filter_block::Verdict;
use super::filter_file::open_filter_file;
use super::filter_source::FilterSource;

/// A filter of which pages are read.
#[derive(Debug)]
pub(crate) struct FilterPages {
    filter: PagedFilter,
    place: Place,
}

/// Where a filter block lies.
#[derive(Debug)]
pub(super) struct Place {
    /// The number of the file: the table's or the filter's own.
    number: u64,
    pub(super) path: PathBuf,
    /// Where in the file the block starts.
    pub(super) offset: u64,
    /// Whether the file is not the table's.
    is_beside: bool,
}

impl FilterPages {
    /// Opens the filter of a table for being asked by pages. `None` if there is no memory for even that.
    pub(super) fn open(
        file: &TableFile,
        meta: &TableMeta,
        source: FilterSource<'_>,
    ) -> Result<Option<(Self, Lease)>> {
        let needs = PagedFilter::needs(&source.first()?, source.filter.len);
        let needs = needs.map_err(|error| source.error(error))?;
        let head = needs.first().map_or(0, |head| head.end as usize);
        let Some(lease) = file.ctx.memory.try_lease(Part::Filters, Self::memory_bytes_with(head)) else {
            return Ok(None);
        };
        let read = |part: &Range<u64>| {
            let mut bytes = vec![0; (part.end - part.start) as usize];
            source.read_into(part.start, &mut bytes).map(|()| bytes)
        };
        let parts = needs.iter().map(read).collect::<Result<_>>()?;
        let filter = PagedFilter::open(parts, source.filter.len, source.expect(file, meta));
        let filter = filter.map_err(|error| source.error(error))?;
        Ok(Some((Self { filter, place: source.place }, lease)))
    }

    /// What the filter says about the key with this hash. Reads what is not in the cache.
    pub(super) fn ask(&self, ctx: &TableContext, hash: u64) -> Result<Verdict> {
        let maybe = self.filter.may_contain(hash, |page| self.place.page(ctx, page))?;
        Ok(if maybe { Verdict::Maybe } else { Verdict::Absent })
    }

    /// What the filter says about the key with this hash, if the cache has the pages that it takes.
    pub(super) fn ask_cached(&self, ctx: &TableContext, hash: u64) -> Verdict {
        match self.filter.may_contain(hash, |page| self.place.cached_page(ctx, page).ok_or(())) {
            Ok(true) => Verdict::Maybe,
            Ok(false) => Verdict::Absent,
            Err(()) => Verdict::Unknown,
        }
    }

    /// What it takes in memory, its pages in the cache aside.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (size_of::<Place>() + self.filter.memory_bytes()) as u64
    }

    /// What the filter with this header would take.
    pub(crate) fn memory_bytes_of(header: &Header) -> u64 {
        Self::memory_bytes_with(header.head_len() as usize)
    }

    pub(super) fn header(&self) -> &Header {
        self.filter.header()
    }

    fn memory_bytes_with(head: usize) -> u64 {
        (size_of::<Place>() + PagedFilter::memory_bytes_with(head)) as u64
    }

    pub(super) fn predicted_rate(&self) -> f64 {
        self.filter.predicted_rate()
    }
}

impl Place {
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

    fn cached_page(&self, ctx: &TableContext, page: &Page) -> Option<Bytes> {
        ctx.memory.blocks().get(self.number, filter_page(self.offset + page.offset))
    }

    fn page(&self, ctx: &TableContext, page: &Page) -> Result<Bytes> {
        let mut was_read = false;
        let read = || {
            was_read = true;
            self.read_page(ctx, page)
        };
        let key = filter_page(self.offset + page.offset);
        let bytes = ctx.memory.blocks().get_or_read(self.number, key, read)?;
        if !was_read {
            TableIo::count(&ctx.io.filter_page_cache_hits);
        }
        Ok(bytes)
    }

    /// A page from the file, verified.
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
