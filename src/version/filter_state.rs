//! The part of a filter in memory, with its lease.

use std::sync::Arc;

use crate::error::Error;
use crate::filter::{AlignedBytes, Filter, Header};
use crate::memory::Lease;
use crate::table::{FilterPages, Verdict};

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "one per table, and a lookup is to follow no pointer to it")]
pub(crate) enum FilterState {
    None,
    Loaded(Filter<AlignedBytes>),
    Paged(Arc<FilterPages>),
    /// Not even the head fits into memory. The header was verified.
    Unloaded(Box<Header>),
    Unusable(Arc<Error>),
}

impl FilterState {
    pub(crate) fn header(&self) -> Option<&Header> {
        match self {
            Self::Loaded(filter) => Some(filter.header()),
            Self::Paged(pages) => Some(pages.header()),
            Self::Unloaded(header) => Some(header),
            Self::None | Self::Unusable(_) => None,
        }
    }

    pub(super) fn loaded(&self) -> Option<&Filter<AlignedBytes>> {
        if let Self::Loaded(filter) = self { Some(filter) } else { None }
    }

    pub(crate) fn column_groups(&self) -> usize {
        self.loaded().map_or(0, Filter::column_groups)
    }

    pub(crate) fn lacks_groups(&self) -> bool {
        self.header().is_some_and(|header| self.column_groups() < header.column_group_count())
    }

    pub(crate) fn predicted_rate(&self) -> Option<f64> {
        match self {
            Self::Loaded(filter) => Some(filter.predicted_rate()),
            Self::Paged(pages) => Some(pages.predicted_rate()),
            Self::None | Self::Unloaded(_) | Self::Unusable(_) => None,
        }
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self, Self::Paged(_) | Self::Unloaded(_))
    }

    #[inline]
    pub(crate) fn probe(&self, hash: u64) -> Verdict {
        match self {
            Self::Loaded(filter) if filter.may_contain(hash) => Verdict::Maybe,
            Self::Loaded(_) => Verdict::Absent,
            Self::None | Self::Paged(_) | Self::Unloaded(_) | Self::Unusable(_) => Verdict::Unknown,
        }
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Self::Loaded(filter) = self {
            filter.prefetch(hash);
        }
    }
}

#[derive(Clone)]
pub(super) struct ReadFilter {
    pub(super) state: FilterState,
    pub(super) rest: Option<Arc<Rest>>,
    pub(super) _lease: Option<Arc<Lease>>,
}

pub(super) struct Rest {
    pub(super) pages: FilterPages,
    pub(super) _lease: Lease,
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
