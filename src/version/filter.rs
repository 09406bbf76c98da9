//! The filter of a table: how much of it is in memory, and whether it is usable. Only this module keeps that
//! state.
//!
//! A filter is in one of these states:
//!
//! - *not read*: the table was not opened yet;
//! - *none*: the table has no filter;
//! - *loaded*: as many of its column groups are in memory as there is room for; for the others there are pages;
//! - *paged*: only its head is in memory; a probe reads pages through the block cache;
//! - *unloaded*: there was no room even for the head; lookups read the table without probing;
//! - *unusable*: the filter or one of its pages failed a check, or it answered "absent" for a key of its
//!   table. Probes return "unknown" from then on, and the background builds a new filter.
//!
//! A *rebuild* makes a new filter and a new handle of the table ([`TableFilter::successor`]). A rebuild that
//! fails is not tried again. If new filters turn out unusable too, at most [`REBUILDS_MAX`] are made in a
//! row.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::table::{Table, TableContext, Verdict};
use crate::table_meta::TableMeta;

use super::filter_load;
use super::filter_state::{FilterState, ReadFilter};

/// After this many rebuilt filters of a table in a row were unusable, the background stops rebuilding it.
pub(crate) const REBUILDS_MAX: u32 = 4;

/// What is learned about a filter while it is in use. All handles of the table with this filter share it.
struct Health {
    /// Whether "absent" ends a lookup: no defect is known, and no answer is audited.
    is_believed: AtomicBool,
    /// Whether answers are audited.
    is_audited: bool,
    /// Why a filter that could be read is not used any more: it answered "absent" for a key of its table, or
    /// one of its pages is damaged.
    defect: OnceLock<Arc<Error>>,
    /// The rebuild failed.
    rebuild_failed: AtomicBool,
    /// How many earlier filters of the table in a row were unusable.
    unusable_before: u32,
}

impl Health {
    fn new(is_audited: bool, unusable_before: u32) -> Arc<Self> {
        Arc::new(Self {
            is_believed: AtomicBool::new(!is_audited),
            is_audited,
            defect: OnceLock::new(),
            rebuild_failed: AtomicBool::new(false),
            unusable_before,
        })
    }
}

/// The filter of a table.
pub(crate) struct TableFilter {
    /// Set when the table is opened.
    read: OnceLock<ReadFilter>,
    health: Arc<Health>,
}

impl TableFilter {
    /// The memory that it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let Some(ReadFilter { state, rest, .. }) = self.read.get() else { return 0 };
        let state = match state {
            FilterState::Loaded(filter) => filter.as_bytes().len() as u64,
            FilterState::Paged(pages) => pages.memory_bytes(),
            FilterState::None | FilterState::Unloaded(_) | FilterState::Unusable(_) => 0,
        };
        state + rest.as_ref().map_or(0, |rest| rest.pages.memory_bytes())
    }

    /// Not read yet. `is_audited`: whether its answers are compared with the data of the table.
    pub(super) fn new(is_audited: bool) -> Self {
        Self { read: OnceLock::new(), health: Health::new(is_audited, 0) }
    }

    /// Reads as much of the filter into memory as there is room for. Once it was read, later calls do nothing, and return
    /// `false`.
    ///
    /// # Errors
    ///
    /// Too many files are open.
    pub(super) fn read(&self, table: &Table, meta: &TableMeta, ctx: &TableContext) -> Result<bool> {
        let is_new = self.read.get().is_none();
        if is_new {
            let read = filter_load::read_what_fits(table, meta, ctx)?;
            self.read.get_or_init(|| read);
        }
        Ok(is_new)
    }

    /// The same filter with another number of column groups in memory; `None` if there is no room, or if the
    /// missing groups cannot be read now.
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

    /// The same filter for another handle of the table. They share what is in memory.
    pub(super) fn share(&self) -> Self {
        Self { read: self.read.clone(), health: Arc::clone(&self.health) }
    }

    /// The state for the filter that replaces this one; it is not read yet.
    pub(super) fn successor(&self) -> Self {
        let unusable_before = if self.error().is_some() { self.health.unusable_before + 1 } else { 0 };
        Self { read: OnceLock::new(), health: Health::new(self.health.is_audited, unusable_before) }
    }

    /// The result of reading it; `None` if it was not read yet.
    #[inline]
    pub(crate) fn state(&self) -> Option<&FilterState> {
        self.read.get().map(|read| &read.state)
    }

    /// Why it is unusable, if it is known to be.
    pub(crate) fn error(&self) -> Option<&Arc<Error>> {
        match self.state() {
            Some(FilterState::Unusable(error)) => Some(error),
            _ => self.health.defect.get(),
        }
    }

    /// Whether "absent" ends a lookup: no defect is known, and no answer is audited. To be asked after the filter
    /// was probed.
    #[inline]
    pub(super) fn is_believed(&self) -> bool {
        self.health.is_believed.load(Ordering::Acquire)
    }

    /// Whether a defect was found after it was read.
    pub(crate) fn is_defective(&self) -> bool {
        self.health.defect.get().is_some()
    }

    /// Stops using the filter. `false` if it was out of use already.
    pub(super) fn set_defective(&self, error: Error) -> bool {
        let is_new = self.health.defect.set(Arc::new(error)).is_ok();
        self.health.is_believed.store(false, Ordering::Release);
        is_new
    }

    /// Whether it is known to be unusable and a rebuild may help.
    pub(crate) fn needs_rebuild(&self) -> bool {
        self.error().is_some() && !self.rebuild_failed() && self.health.unusable_before < REBUILDS_MAX
    }

    /// Stores that the rebuild failed, so that the background does not try again.
    pub(crate) fn set_rebuild_failed(&self) {
        self.health.rebuild_failed.store(true, Ordering::Release);
    }

    pub(super) fn rebuild_failed(&self) -> bool {
        self.health.rebuild_failed.load(Ordering::Acquire)
    }

    /// Probes the filter for the key with this hash. Does no I/O: a paged filter is probed only if the pages
    /// that this takes are in the cache.
    #[inline]
    pub(crate) fn probe(&self, ctx: &TableContext, hash: u64) -> Verdict {
        match self.state() {
            _ if self.is_defective() => Verdict::Unknown,
            None => Verdict::Unknown,
            Some(FilterState::Paged(pages)) => pages.probe_cached(ctx, hash),
            Some(state) => state.probe(hash),
        }
    }

    /// Whether it is probed by pages for a key that what is in memory of it does not deny.
    #[inline]
    pub(super) fn has_pages(&self) -> bool {
        let is_paged = |read: &ReadFilter| read.rest.is_some() || matches!(read.state, FilterState::Paged(_));
        self.read.get().is_some_and(is_paged)
    }

    /// Probes what is not in memory of a filter for the key with this hash, which had this verdict. Reads the
    /// pages that are not in the cache.
    ///
    /// # Errors
    ///
    /// A page is damaged or cannot be read. The caller stops using the filter.
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
