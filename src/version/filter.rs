//! The filter of a table: what of it is in memory, and whether it can be used. Nothing else knows either.
//!
//! A filter is in one of these states:
//!
//! - *not read*: the table is not open;
//! - *none*: the table has none;
//! - *loaded*: it is in memory, as many of its column groups as there is room for;
//! - *paged*: only its head is in memory, and it is probed by pages that are read;
//! - *unloaded*: there was not even room for the head; lookups read data;
//! - *unusable*: it failed a check when it was read, or a page of it did later, or it denied a key of its
//!   table. It answers "unknown" from then on, and the background builds a new one.
//!
//! A *rebuild* ends in another filter, and so in another handle of the table ([`TableFilter::successor`]).
//! One that fails is not tried again, and no more than [`REBUILDS_MAX`] are made in a row if each comes out
//! unusable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::filter::{AlignedBytes, Filter, Header};
use crate::memory::Lease;
use crate::table::{FilterPages, Table, TableContext, Verdict};
use crate::table_meta::TableMeta;

use super::residency;

/// How many new filters of a table in a row may turn out unusable before the background makes no more of
/// them.
pub(crate) const REBUILDS_MAX: u32 = 4;

/// What was found when the filter of a table was read.
#[expect(
    clippy::large_enum_variant,
    reason = "one per open table, and a lookup is to follow no pointer to it"
)]
pub(crate) enum FilterState {
    /// The table has none.
    None,
    /// As many of its column groups are in memory as there is room for, and every check of them passed.
    Loaded(Filter<AlignedBytes>),
    /// There was no memory for it, but for what it takes to read only those pages that a key leads to.
    Paged(Box<FilterPages>),
    /// There was no memory for it, nor for that. The header was verified.
    Unloaded(Box<Header>),
    /// It cannot be used, and why.
    Unusable(Arc<Error>),
}

impl FilterState {
    /// The header of a filter that could be read.
    pub(crate) fn header(&self) -> Option<&Header> {
        match self {
            Self::Loaded(filter) => Some(filter.header()),
            Self::Paged(pages) => Some(pages.header()),
            Self::Unloaded(header) => Some(header),
            Self::None | Self::Unusable(_) => None,
        }
    }

    /// How many column groups of it are in memory.
    pub(crate) fn column_groups(&self) -> usize {
        if let Self::Loaded(filter) = self { filter.column_groups() } else { 0 }
    }

    /// What it has of the memory for filters, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Loaded(filter) => filter.as_bytes().len() as u64,
            Self::Paged(pages) => pages.memory_bytes(),
            Self::None | Self::Unloaded(_) | Self::Unusable(_) => 0,
        }
    }

    /// The rate of false positives that it predicts, if it can be probed.
    pub(crate) fn predicted_rate(&self) -> Option<f64> {
        match self {
            Self::Loaded(filter) => Some(filter.predicted_rate()),
            Self::Paged(pages) => Some(pages.predicted_rate()),
            Self::None | Self::Unloaded(_) | Self::Unusable(_) => None,
        }
    }

    /// Whether it, or most of it, is on disk for want of memory.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self, Self::Paged(_) | Self::Unloaded(_))
    }

    /// What a filter in memory says about the key with this hash. A filter that could not be built says
    /// "maybe", like one that does not recognise the key.
    #[inline]
    pub(crate) fn probe(&self, hash: u64) -> Verdict {
        match self {
            Self::Loaded(filter) if filter.may_contain(hash) => Verdict::Maybe,
            Self::Loaded(_) => Verdict::Absent,
            Self::None | Self::Paged(_) | Self::Unloaded(_) | Self::Unusable(_) => Verdict::Unknown,
        }
    }

    /// Fetches the memory that [`FilterState::probe`] reads, and does not wait for it.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Self::Loaded(filter) = self {
            filter.prefetch(hash);
        }
    }
}

/// A filter that was read, and the memory that it has.
pub(super) struct ReadFilter {
    pub(super) state: FilterState,
    pub(super) _lease: Option<Lease>,
}

/// What becomes known of a filter while it is in use, by whatever handle of its table.
#[derive(Default)]
struct Health {
    /// Why it is not used any more although it could be read: it denied a key of its table, or a page of it
    /// is damaged.
    defect: OnceLock<Arc<Error>>,
    /// No filter could be built in its place.
    rebuild_failed: AtomicBool,
    /// How many filters of the table before it were unusable, in a row.
    unusable_before: u32,
}

/// The filter of a table.
#[derive(Default)]
pub(crate) struct TableFilter {
    /// Set when the table is opened.
    read: OnceLock<ReadFilter>,
    health: Arc<Health>,
}

impl TableFilter {
    /// Reads the filter of a table into memory, as much of it as there is room for. Later calls do nothing.
    pub(super) fn read(&self, table: &Table, meta: &TableMeta, ctx: &TableContext) {
        self.read.get_or_init(|| residency::read_what_fits(table, meta, ctx));
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
        let read = residency::read_column_groups(table, meta, ctx, self.state()?, column_groups)?;
        Some(Self { read: OnceLock::from(read), health: Arc::clone(&self.health) })
    }

    /// The state of the filter that takes the place of this one: not read yet.
    pub(super) fn successor(&self) -> Self {
        let unusable_before = if self.error().is_some() { self.health.unusable_before + 1 } else { 0 };
        let health = Health { unusable_before, ..Health::default() };
        Self { read: OnceLock::new(), health: Arc::new(health) }
    }

    /// What was found when it was read; `None` if it was not read yet.
    #[inline]
    pub(crate) fn state(&self) -> Option<&FilterState> {
        self.read.get().map(|read| &read.state)
    }

    /// Why it cannot be used, if it is known that it cannot.
    pub(crate) fn error(&self) -> Option<&Arc<Error>> {
        match self.state() {
            Some(FilterState::Unusable(error)) => Some(error),
            _ => self.health.defect.get(),
        }
    }

    /// Whether it turned out to be defective after it was read.
    #[inline]
    pub(crate) fn is_defective(&self) -> bool {
        self.health.defect.get().is_some()
    }

    /// Stops using the filter. `false` if it was not used before.
    pub(super) fn set_defective(&self, error: Error) -> bool {
        self.health.defect.set(Arc::new(error)).is_ok()
    }

    /// Whether it is known to need a new filter in its place, and one can be made that lasts.
    pub(crate) fn needs_rebuild(&self) -> bool {
        self.error().is_some() && !self.rebuild_failed() && self.health.unusable_before < REBUILDS_MAX
    }

    /// Remembers that no filter can be built in its place; the background does not try again.
    pub(crate) fn set_rebuild_failed(&self) {
        self.health.rebuild_failed.store(true, Ordering::Release);
    }

    pub(crate) fn rebuild_failed(&self) -> bool {
        self.health.rebuild_failed.load(Ordering::Acquire)
    }

    /// What the filter says about the key with this hash. Touches memory only: a filter that is paged says
    /// something if the pages that the key leads to are in the cache.
    #[inline]
    pub(crate) fn probe(&self, ctx: &TableContext, hash: u64) -> Verdict {
        match self.state() {
            _ if self.is_defective() => Verdict::Unknown,
            None => Verdict::Unknown,
            Some(FilterState::Paged(pages)) => pages.probe_cached(ctx, hash),
            Some(state) => state.probe(hash),
        }
    }

    /// What a paged filter says about the key with this hash. Reads the pages that are not in the cache.
    ///
    /// # Errors
    ///
    /// A page is damaged or cannot be read. The caller stops using the filter.
    pub(super) fn read_pages(&self, ctx: &TableContext, hash: u64) -> Result<Verdict> {
        match self.state() {
            Some(FilterState::Paged(pages)) if !self.is_defective() => pages.read_and_probe(ctx, hash),
            _ => Ok(Verdict::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Expect, Kind};

    #[test]
    fn a_filter_that_could_not_be_built_is_usable_and_says_maybe() {
        let header = crate::filter::forge::header(Kind::Ribbon, [3; 16]);
        let bytes = AlignedBytes::copy_of(&header.encode());
        let filter = Filter::open(bytes, Expect::table([3; 16], 1, 100)).unwrap();
        assert!(filter.header().answers_only_maybe());
        let state = FilterState::Loaded(filter);
        assert!((0..1000).all(|hash| state.probe(hash) == Verdict::Maybe));
        (0..1000).for_each(|hash| state.prefetch(hash));
    }
}
