//! Where tables and filters meet: which filter a table gets, and how one that cannot be used is remembered.
//!
//! The filter of a table is bound to it by the table's file id (the filter's owner), by the seed of the key
//! hash and by the number of distinct user keys; its salt is taken from the file id, so that the false
//! positives of two tables are independent.
//!
//! Invariant: nothing that is wrong with a filter makes a table unreadable. A filter that cannot be opened is
//! [`FilterState::Unusable`], which answers "maybe" and keeps the error for whoever reports it.

use std::sync::Arc;

use byteorder::{ByteOrder, LittleEndian};

use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::filter::header::DOMAIN_WHOLE_KEY;
use crate::filter::{AlignedBytes, Filter, FilterBuilder, FilterPlan, Header, Probe};
use crate::table_meta::FilterRef;

use super::filter_pages::FilterPages;

/// Which filter a table gets, if any.
pub(crate) type FilterConfig = Option<FilterPlan>;

/// Starts the filter of the table with this file id.
pub(super) fn start_filter(plan: FilterPlan, hash_seed: u64, file_id: FileId) -> Result<FilterBuilder> {
    Ok(FilterBuilder::new(plan.kind, plan.bits_per_key, hash_seed, salt(&file_id), file_id)?)
}

/// Length of a filter from which its columns are stored in two groups.
const TWO_GROUPS_BYTES: u64 = 32 << 10;

/// Columns of the first of two groups, at least: what it lets pass asks the second one, which costs a read from the disk
/// where filters are not in memory. With five that is 3 % of the absent keys; with four it would be 6 %.
const FIRST_GROUP_COLUMNS: u8 = 5;

/// Makes the block of a table's filter.
///
/// A ribbon filter of some pages has its columns in two groups, the larger half first, so that memory that is short
/// can hold the half that answers nearly all: with 5 of 10 columns 31 of 32 absent keys. That costs a second section,
/// at most 128 bytes (a page, for sections of 1 MiB and more): 0.1 % at 100 000 keys. An absent key is told by the first group,
/// but for one in 32; a key that is there is asked in both, and reads one or two cache lines more before the block that it is in.
pub(super) fn finish_filter(filter: FilterBuilder) -> Result<Vec<u8>> {
    let groups = if filter.block_bytes() < TWO_GROUPS_BYTES { 1 } else { 2 };
    let block = filter.column_groups(groups).first_group(FIRST_GROUP_COLUMNS).finish()?;
    if let Ok(header) = Header::decode(&block)
        && header.answers_only_maybe()
    {
        let (kind, keys, salt) = (header.kind, header.key_count, header.salt);
        tracing::error!(%kind, keys, salt, "a filter loses keys however it is built: it answers maybe for every key");
    }
    Ok(block)
}

/// What refers to a filter block that stands at `offset` of a file: `None` for the table's own.
pub(super) fn describe(file: Option<u64>, offset: u64, block: &[u8]) -> Result<FilterRef, DecodeError> {
    let header = Header::decode(block)?;
    Ok(FilterRef {
        file,
        kind: header.kind as u8,
        domain: DOMAIN_WHOLE_KEY,
        offset,
        len: block.len() as u64,
        header_checksum: header.checksum,
    })
}

fn salt(file_id: &FileId) -> u64 {
    LittleEndian::read_u64(&file_id[..8])
}

/// What a filter said about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The table does not hold the key: certain.
    Absent,
    /// The filter cannot rule the key out.
    Maybe,
    /// There is no usable filter to ask, or none in memory.
    Unknown,
}

/// The filter of an open table.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one per open table, and a query is to follow no pointer to it"
)]
pub(crate) enum FilterState {
    /// The table has none.
    None,
    /// It is in memory, as many of its column groups as there is room for, and every check of them passed.
    Ready(Filter<AlignedBytes>),
    /// There was no memory for it, but for what it takes to read only those pages that a key leads to.
    Paged(Box<FilterPages>),
    /// There was no memory for it, nor for that.
    Unloaded(
        /// Verified by itself.
        Box<Header>,
    ),
    /// It has one that cannot be used, and why.
    Unusable(
        /// The error, for whoever looks at the table with a debugger or prints it.
        #[allow(dead_code, reason = "verify reads the filters anew and reports it from there")]
        Arc<Error>,
    ),
}

impl FilterState {
    /// The header of a filter that can be used.
    pub(crate) fn header(&self) -> Option<&Header> {
        match self {
            Self::Ready(filter) => Some(filter.header()),
            Self::Paged(pages) => Some(pages.header()),
            Self::Unloaded(header) => Some(header),
            Self::None | Self::Unusable(_) => None,
        }
    }

    /// How many column groups of it are in memory.
    pub(crate) fn column_groups(&self) -> usize {
        if let Self::Ready(filter) = self { filter.column_groups() } else { 0 }
    }

    /// What it has of the memory for filters.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Ready(filter) => filter.as_bytes().len() as u64,
            Self::Paged(pages) => pages.memory_bytes(),
            Self::None | Self::Unloaded(_) | Self::Unusable(_) => 0,
        }
    }

    /// What a filter in memory says about the key with this hash.
    #[inline]
    pub(crate) fn ask(&self, hash: u64) -> Verdict {
        match self {
            Self::Ready(filter) => self.test(filter.locate(hash)),
            Self::None | Self::Paged(_) | Self::Unloaded(_) | Self::Unusable(_) => Verdict::Unknown,
        }
    }

    /// The first half of [`FilterState::ask`]: asks the processor for the memory that the second half reads, and
    /// does not wait for it.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) -> Probe {
        let Self::Ready(filter) = self else { return Probe::default() };
        let probe = filter.locate(hash);
        filter.prefetch(probe);
        probe
    }

    /// The rate of false positives that it predicts, if it can be asked.
    pub(crate) fn predicted_rate(&self) -> Option<f64> {
        match self {
            Self::Ready(filter) => Some(filter.predicted_rate()),
            Self::Paged(pages) => Some(pages.predicted_rate()),
            Self::None | Self::Unloaded(_) | Self::Unusable(_) => None,
        }
    }

    /// Whether it is on disk for want of memory, the most of it at least.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self, Self::Paged(_) | Self::Unloaded(_))
    }

    /// The second half of [`FilterState::ask`]. A filter that could not be built says "maybe", like one that
    /// does not recognise the key.
    #[inline]
    pub(crate) fn test(&self, probe: Probe) -> Verdict {
        match self {
            Self::Ready(filter) if filter.test(probe) => Verdict::Maybe,
            Self::Ready(_) => Verdict::Absent,
            Self::None | Self::Paged(_) | Self::Unloaded(_) | Self::Unusable(_) => Verdict::Unknown,
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
        let state = FilterState::Ready(filter);
        assert!((0..1000).all(|hash| state.ask(hash) == Verdict::Maybe));
        assert!((0..1000).all(|hash| state.test(state.prefetch(hash)) == Verdict::Maybe));
    }
}
