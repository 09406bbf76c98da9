//! A filter for which there is no room in memory: it is probed by pages.
//!
//! Its head is in memory, leased like a filter. Its pages come from the block cache or from the file; a page
//! that several threads need is read once, and verified before it enters the cache. A page that fails its
//! check is read a second time, as blocks are. If it fails again, or cannot be read, the probe is an error,
//! and the filter is not used any more.

use bytes::Bytes;

use crate::cache::filter_page;
use crate::error::{Error, InFile, Result};
use crate::filter::{Header, Page, PagedFilter};

use super::context::{TableContext, TableIo};
use super::file::read_exact;
use super::filter_block::Verdict;
use super::filter_source::FilterLocation;

/// A filter that is probed by pages.
#[derive(Debug)]
pub(crate) struct FilterPages {
    filter: PagedFilter,
    location: FilterLocation,
}

impl FilterPages {
    pub(super) fn new(filter: PagedFilter, location: FilterLocation) -> Self {
        Self { filter, location }
    }

    /// What the filter says about the key with this hash. Reads what is not in the cache.
    pub(crate) fn read_and_probe(&self, ctx: &TableContext, hash: u64) -> Result<Verdict> {
        let maybe = self.filter.may_contain(hash, |page| self.location.page(ctx, page))?;
        Ok(if maybe { Verdict::Maybe } else { Verdict::Absent })
    }

    /// What the filter says about the key with this hash, if the cache has the pages that the key leads to.
    pub(crate) fn probe_cached(&self, ctx: &TableContext, hash: u64) -> Verdict {
        match self.filter.may_contain(hash, |page| self.location.cached_page(ctx, page).ok_or(())) {
            Ok(true) => Verdict::Maybe,
            Ok(false) => Verdict::Absent,
            Err(()) => Verdict::Unknown,
        }
    }

    /// What it takes in memory, without its pages in the cache.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (size_of::<FilterLocation>() + self.filter.memory_bytes()) as u64
    }

    /// What the filter with this header would take.
    pub(crate) fn memory_bytes_of(header: &Header) -> u64 {
        Self::memory_bytes_with(header.head_len() as usize)
    }

    pub(crate) fn header(&self) -> &Header {
        self.filter.header()
    }

    pub(super) fn memory_bytes_with(head: usize) -> u64 {
        (size_of::<FilterLocation>() + PagedFilter::memory_bytes_with(head)) as u64
    }

    pub(crate) fn predicted_rate(&self) -> f64 {
        self.filter.predicted_rate()
    }
}

impl FilterLocation {
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
