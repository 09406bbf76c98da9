//! The filter of a table: its part in memory, and its state.
//!
//! - *not read*: the table was not opened yet;
//! - *none*: the table has no filter;
//! - *loaded*: all or some column groups are in memory; the others are probed by pages;
//! - *paged*: only the head is in memory;
//! - *unloaded*: not even the head fits; lookups read the table;
//! - *unusable*: a check failed, or an "absent" was wrong. Background work builds a new filter, with a new handle
//!   ([`TableFilter::successor`]). A failed rebuild is not retried. At most [`REBUILDS_MAX`] unusable filters in a row
//!   are rebuilt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::memory::{FilterBytes, Unread};
use crate::table::{FilterPages, Table, TableContext, Verdict};
use crate::table_meta::TableMeta;

use super::filter_load;
use super::filter_state::{FilterState, ReadFilter};

pub(crate) const REBUILDS_MAX: u32 = 4;

struct Health {
    /// Whether an "absent" is final: audits are off, and no defect was found.
    is_believed: AtomicBool,
    /// The reason why a filter that was read is no longer used.
    defect: OnceLock<Arc<Error>>,
    rebuild_failed: AtomicBool,
    unusable_before: u32,
    unread: Unread,
}

impl Health {
    fn new(ctx: &TableContext, meta: &TableMeta, unusable_before: u32) -> Arc<Self> {
        let len = meta.whole_key_filters().next().map_or(0, |filter| filter.len);
        let head = FilterPages::memory_bytes_about(len) + Table::bytes_of(meta);
        Arc::new(Self {
            is_believed: AtomicBool::new(ctx.trust.audit_one_in == 0),
            defect: OnceLock::new(),
            rebuild_failed: AtomicBool::new(false),
            unusable_before,
            unread: ctx.memory.expect_filter(FilterBytes { whole: len, head }),
        })
    }
}

pub(crate) struct TableFilter {
    read: OnceLock<ReadFilter>,
    health: Arc<Health>,
}

impl TableFilter {
    pub(crate) fn memory_bytes(&self) -> u64 {
        let Some(ReadFilter { state, rest, .. }) = self.read.get() else { return 0 };
        let state = match state {
            FilterState::Loaded(filter) => filter.as_bytes().len() as u64,
            FilterState::Paged(pages) => pages.memory_bytes(),
            FilterState::None | FilterState::Unloaded(_) | FilterState::Unusable(_) => 0,
        };
        state + rest.as_ref().map_or(0, |rest| rest.pages.memory_bytes())
    }

    pub(super) fn new(ctx: &TableContext, meta: &TableMeta) -> Self {
        Self { read: OnceLock::new(), health: Health::new(ctx, meta, 0) }
    }

    pub(crate) fn bytes_about(&self) -> FilterBytes {
        self.health.unread.bytes()
    }

    /// Reads as much of the filter as fits into memory. Later calls return `false`. Fails if too many files are open.
    pub(super) fn read(&self, table: &Table, meta: &TableMeta, ctx: &TableContext) -> Result<bool> {
        let is_new = self.read.get().is_none();
        if is_new {
            let read = filter_load::read_what_fits(table, meta, ctx, self.health.unread.others())?;
            self.read.get_or_init(|| read);
            self.health.unread.set_read();
        }
        Ok(is_new)
    }

    pub(super) fn with_column_groups(
        &self,
        table: &Table,
        meta: &TableMeta,
        ctx: &TableContext,
        column_groups: usize,
    ) -> Option<Self> {
        let read = filter_load::read_column_groups(table, meta, ctx, self.read.get()?, column_groups)?;
        Some(Self { read: OnceLock::from(read), health: Arc::clone(&self.health) })
    }

    pub(super) fn share(&self) -> Self {
        Self { read: self.read.clone(), health: Arc::clone(&self.health) }
    }

    pub(super) fn successor(&self, ctx: &TableContext, meta: &TableMeta) -> Self {
        let unusable_before = if self.error().is_some() { self.health.unusable_before + 1 } else { 0 };
        Self { read: OnceLock::new(), health: Health::new(ctx, meta, unusable_before) }
    }

    #[inline]
    pub(crate) fn state(&self) -> Option<&FilterState> {
        self.read.get().map(|read| &read.state)
    }

    pub(crate) fn error(&self) -> Option<&Arc<Error>> {
        match self.state() {
            Some(FilterState::Unusable(error)) => Some(error),
            _ => self.health.defect.get(),
        }
    }

    #[inline]
    pub(super) fn is_believed(&self) -> bool {
        self.health.is_believed.load(Ordering::Acquire)
    }

    pub(crate) fn is_defective(&self) -> bool {
        self.health.defect.get().is_some()
    }

    pub(super) fn set_defective(&self, error: Error) -> bool {
        let is_new = self.health.defect.set(Arc::new(error)).is_ok();
        self.health.is_believed.store(false, Ordering::Release);
        is_new
    }

    pub(crate) fn needs_rebuild(&self) -> bool {
        self.error().is_some() && !self.rebuild_failed() && self.health.unusable_before < REBUILDS_MAX
    }

    pub(crate) fn set_rebuild_failed(&self) {
        self.health.rebuild_failed.store(true, Ordering::Release);
    }

    pub(super) fn rebuild_failed(&self) -> bool {
        self.health.rebuild_failed.load(Ordering::Acquire)
    }

    /// Does no I/O: uses only cached pages.
    #[inline]
    pub(crate) fn probe(&self, ctx: &TableContext, hash: u64) -> Verdict {
        match self.state() {
            _ if self.is_defective() => Verdict::Unknown,
            None => Verdict::Unknown,
            Some(FilterState::Paged(pages)) => pages.probe_cached(ctx, hash),
            Some(state) => state.probe(hash),
        }
    }

    #[inline]
    pub(super) fn has_pages(&self) -> bool {
        let is_paged = |read: &ReadFilter| read.rest.is_some() || matches!(read.state, FilterState::Paged(_));
        self.read.get().is_some_and(is_paged)
    }

    pub(super) fn read_pages(&self, ctx: &TableContext, hash: u64, verdict: Verdict) -> Result<Verdict> {
        let Some(ReadFilter { state, rest, .. }) = self.read.get().filter(|_| !self.is_defective()) else {
            return Ok(verdict);
        };
        match (state, rest) {
            (FilterState::Paged(pages), _) => pages.read_and_probe(ctx, 0, hash),
            (FilterState::Loaded(filter), Some(rest)) => {
                rest.pages.read_and_probe(ctx, filter.column_groups(), hash)
            }
            _ => Ok(verdict),
        }
    }
}
