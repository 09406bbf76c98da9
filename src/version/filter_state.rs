//! What was read of a filter: which column groups are in memory, and with which memory.

use std::sync::Arc;

use crate::error::Error;
use crate::filter::{AlignedBytes, Filter, Header};
use crate::memory::Lease;
use crate::table::{FilterPages, Verdict};

/// The result of reading the filter of a table. A clone shares what is in memory.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "one per table, and a lookup is to follow no pointer to it")]
pub(crate) enum FilterState {
    /// The table has no filter.
    None,
    /// As many column groups as there was room for are in memory, and they passed every check.
    Loaded(Filter<AlignedBytes>),
    /// There was memory only for its head. A probe reads the pages that it needs.
    Paged(Arc<FilterPages>),
    /// There was not even memory for the head. The header was verified.
    Unloaded(Box<Header>),
    /// It cannot be used, for this reason.
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

    /// What is in memory of its column groups.
    pub(super) fn loaded(&self) -> Option<&Filter<AlignedBytes>> {
        if let Self::Loaded(filter) = self { Some(filter) } else { None }
    }

    /// How many of its column groups are in memory.
    pub(crate) fn column_groups(&self) -> usize {
        self.loaded().map_or(0, Filter::column_groups)
    }

    /// The predicted false-positive rate, if it can be probed.
    pub(crate) fn predicted_rate(&self) -> Option<f64> {
        match self {
            Self::Loaded(filter) => Some(filter.predicted_rate()),
            Self::Paged(pages) => Some(pages.predicted_rate()),
            Self::None | Self::Unloaded(_) | Self::Unusable(_) => None,
        }
    }

    /// Whether all or most of it is only on disk, because there is no memory for it.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self, Self::Paged(_) | Self::Unloaded(_))
    }

    /// Probes a filter in memory for the key with this hash. A filter that could not be built answers "maybe"
    /// for every key.
    #[inline]
    pub(crate) fn probe(&self, hash: u64) -> Verdict {
        match self {
            Self::Loaded(filter) if filter.may_contain(hash) => Verdict::Maybe,
            Self::Loaded(_) => Verdict::Absent,
            Self::None | Self::Paged(_) | Self::Unloaded(_) | Self::Unusable(_) => Verdict::Unknown,
        }
    }

    /// Prefetches the memory that [`FilterState::probe`] reads.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Self::Loaded(filter) = self {
            filter.prefetch(hash);
        }
    }
}

/// A filter that was read, and its lease of memory.
#[derive(Clone)]
pub(super) struct ReadFilter {
    pub(super) state: FilterState,
    /// For the column groups that are not in memory, if others are.
    pub(super) rest: Option<Arc<Rest>>,
    pub(super) _lease: Option<Arc<Lease>>,
}

/// The column groups of a filter that are not in memory. They are probed by pages for the keys that pass the
/// others.
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
