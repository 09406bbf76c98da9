//! Probes a filter on disk, or some of its column groups, page by page.
//!
//! The filter's head is in memory, with a lease. A page is verified before it is cached; if it is damaged, it is read
//! once more. After a second failure, the probe returns an error, and the filter is no longer used.

use bytes::Bytes;

use super::block::Verdict;
use super::location::FilterLocation;
use crate::cache::BlockKey;
use crate::error::{Error, InFile, Result};
use crate::filter::header::HEADER_BYTES;
use crate::filter::{Header, Page, PagedFilter};
use crate::table::context::{TableContext, TableIo};
use crate::table::file::read_exact;

#[derive(Debug)]
pub(crate) struct FilterPages {
    pub(super) filter: PagedFilter,
    pub(super) location: FilterLocation,
}

impl FilterPages {
    /// Probes for a hash that passed the first column groups.
    pub(crate) fn read_and_probe(
        &self,
        ctx: &TableContext,
        column_groups: usize,
        hash: u64,
    ) -> Result<Verdict> {
        let maybe = self.filter.may_contain_after(column_groups, hash, |page| self.page(ctx, page))?;
        Ok(if maybe { Verdict::Maybe } else { Verdict::Absent })
    }

    pub(crate) fn probe_cached(&self, ctx: &TableContext, hash: u64) -> Verdict {
        let cached_page = |page: &Page| ctx.memory.blocks().get(&self.key_of(page)).ok_or(());
        match self.filter.may_contain(hash, cached_page) {
            Ok(true) => Verdict::Maybe,
            Ok(false) => Verdict::Absent,
            Err(()) => Verdict::Unknown,
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        Self::memory_bytes_of(self.header())
    }

    pub(crate) fn memory_bytes_of(header: &Header) -> u64 {
        let filter = PagedFilter::memory_bytes_with(header.head_len() as usize);
        (size_of::<FilterLocation>() + filter) as u64
    }

    /// Estimates the memory for a filter of `len` bytes, of which nothing was read.
    pub(crate) fn memory_bytes_about(len: u64) -> u64 {
        let filter = PagedFilter::memory_bytes_with(HEADER_BYTES + len as usize / 256);
        ((size_of::<FilterLocation>() + filter) as u64).min(len)
    }

    pub(crate) fn header(&self) -> &Header {
        self.filter.header()
    }

    pub(crate) fn predicted_rate(&self) -> f64 {
        self.filter.predicted_rate()
    }

    fn page(&self, ctx: &TableContext, page: &Page) -> Result<Bytes> {
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
        BlockKey::filter_page(self.location.number, self.location.offset + page.offset, page.len as u64)
    }

    fn read_page(&self, ctx: &TableContext, page: &Page) -> Result<Bytes> {
        TableIo::count(&ctx.io.filter_page_reads);
        let FilterLocation { path, offset, .. } = &self.location;
        let file = self.location.open(ctx)?;
        let attempt = || {
            let bytes = read_exact(&*file, path, offset + page.offset, page.len as u64)?;
            Ok::<_, Error>(page.verify(&bytes).map(|()| bytes))
        };
        let mut read = attempt()?;
        if read.is_err() {
            TableIo::count(&ctx.io.block_rereads);
            read = attempt()?;
        }
        Ok(read.map_err(|error| error.in_file(path, *offset))?.into())
    }
}
