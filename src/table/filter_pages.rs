//! A filter that does not fit in memory, or some column groups of one: they are probed page by page.
//!
//! Its head is in memory, leased like a filter. Its pages come from the block cache or from the file; a page
//! that several threads need is read once, and verified before it enters the cache. A page that fails its
//! check is read a second time, like a block. If it fails again, or cannot be read, the probe returns an
//! error, and the filter is no longer used.

use super::context::TableContext;
use super::filter_block::Verdict;
use super::filter_location::FilterLocation;
use crate::error::Result;
use crate::filter::{Header, Page, PagedFilter};

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

    /// Probes the filter for the key with this hash, which passed the first column groups. Reads pages that are
    /// not in the cache.
    pub(crate) fn read_and_probe(
        &self,
        ctx: &TableContext,
        column_groups: usize,
        hash: u64,
    ) -> Result<Verdict> {
        let page = |page: &Page| self.location.page(ctx, page);
        let maybe = self.filter.may_contain_after(column_groups, hash, page)?;
        Ok(if maybe { Verdict::Maybe } else { Verdict::Absent })
    }

    /// Probes the filter for the key with this hash, if the cache has the pages needed.
    pub(crate) fn probe_cached(&self, ctx: &TableContext, hash: u64) -> Verdict {
        match self.filter.may_contain(hash, |page| self.location.cached_page(ctx, page).ok_or(())) {
            Ok(true) => Verdict::Maybe,
            Ok(false) => Verdict::Absent,
            Err(()) => Verdict::Unknown,
        }
    }

    /// Its memory, without pages in the cache.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (size_of::<FilterLocation>() + self.filter.memory_bytes()) as u64
    }

    /// The memory that the filter with this header would take.
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
