//! Where tables and filters meet: which filter a table gets, and how one that cannot be used is remembered.
//!
//! The filter of a table is bound to it by the table's file id (the filter's owner), by the seed of the key
//! hash and by the number of distinct user keys; its salt is taken from the file id, so that the false
//! positives of two tables are independent.
//!
//! Invariant: nothing that is wrong with a filter makes a table unreadable. A filter that cannot be opened is
//! [`FilterState::Unusable`], which answers "maybe" and keeps the error for whoever reports it.

use std::sync::Arc;

use crate::checksum::FileId;
use crate::error::{Error, Result};
use crate::filter::{AlignedBytes, Filter, FilterBuilder, FilterPlan};

/// Which filter a table gets, if any.
pub(crate) type FilterConfig = Option<FilterPlan>;

/// Starts the filter of the table with this file id.
pub(super) fn start_filter(
    plan: FilterConfig,
    hash_seed: u64,
    file_id: FileId,
) -> Result<Option<FilterBuilder>> {
    let build = |plan: FilterPlan| {
        FilterBuilder::new(plan.kind, plan.bits_per_key, hash_seed, salt(&file_id), file_id)
    };
    plan.map(build).transpose()
}

fn salt(file_id: &FileId) -> u64 {
    u64::from_le_bytes(*file_id.first_chunk().expect("a file id has more than eight bytes"))
}

/// What a filter said about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The table does not hold the key: certain.
    Absent,
    /// The filter cannot rule the key out.
    Maybe,
    /// There is no usable filter to ask.
    Unknown,
}

/// The filter of an open table.
#[derive(Debug)]
pub(crate) enum FilterState {
    /// The table has none.
    None,
    /// It is in memory and every check of it passed.
    Ready(Filter<AlignedBytes>),
    /// It has one that cannot be used, and why.
    Unusable(Arc<Error>),
}

impl FilterState {
    /// What memory says about the key with this hash.
    #[inline]
    pub(crate) fn ask(&self, hash: u64) -> Verdict {
        match self {
            Self::Ready(filter) if filter.may_contain(hash) => Verdict::Maybe,
            Self::Ready(_) => Verdict::Absent,
            Self::None | Self::Unusable(_) => Verdict::Unknown,
        }
    }
}
