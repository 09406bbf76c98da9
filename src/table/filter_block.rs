//! Where tables and filters meet: what the writer calls to build a filter block, what the reader calls to open
//! one, and how a filter that cannot be used is remembered.
//!
//! Invariant: nothing that is wrong with a filter makes a table unreadable. A filter that cannot be opened is
//! [`FilterState::Unusable`], which answers "maybe" and keeps the error for whoever reports it.

use std::sync::Arc;

use crate::checksum::FileId;
use crate::error::{Error, Result};

/// Which filter a table gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FilterConfig {
    /// None.
    #[default]
    None,
    /// A sorted list of hashes: exact, and large. For tests.
    #[cfg(test)]
    HashList,
}

/// A finished filter block and what the table says about it.
#[derive(Debug)]
pub(super) struct FilterBlock {
    pub(super) bytes: Vec<u8>,
    pub(super) kind: u8,
    pub(super) domain: u8,
    pub(super) header_checksum: u32,
}

/// Builds the filter block of the table with this file id over the hashes of all its distinct user keys.
pub(super) fn build_filter(
    config: &FilterConfig,
    hashes: &[u64],
    file_id: &FileId,
) -> Result<Option<FilterBlock>> {
    let _ = (hashes, file_id);
    match config {
        FilterConfig::None => Ok(None),
        #[cfg(test)]
        FilterConfig::HashList => Ok(Some(hash_list::build(hashes, file_id))),
    }
}

/// Opens a filter block that was read from a table; `file_id` and `keys` are the table's.
pub(super) fn open_filter(
    bytes: Vec<u8>,
    file_id: &FileId,
    keys: u64,
    header_checksum: u32,
) -> Result<TableFilter> {
    #[cfg(test)]
    return hash_list::open(&bytes, file_id, keys, header_checksum);
    #[cfg(not(test))]
    {
        let _ = (bytes, file_id, keys, header_checksum);
        Err(Error::invalid("no kind of filter is known yet"))
    }
}

/// A filter in memory.
#[derive(Debug)]
pub(crate) struct TableFilter {
    #[cfg(test)]
    hashes: Vec<u64>,
}

impl TableFilter {
    /// Whether the key with this hash may be in the table; `false` is certain.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        #[cfg(test)]
        return self.hashes.binary_search(&hash).is_ok();
        #[cfg(not(test))]
        {
            let _ = hash;
            true
        }
    }
}

/// The filter of an open table.
#[derive(Debug)]
pub(crate) enum FilterState {
    /// The table has none.
    None,
    /// It is in memory and every check of it passed.
    Ready(TableFilter),
    /// It has one that cannot be used, and why.
    Unusable(Arc<Error>),
}

impl FilterState {
    /// Whether the key with this hash may be in the table; `false` is certain.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        match self {
            Self::Ready(filter) => filter.may_contain(hash),
            Self::None | Self::Unusable(_) => true,
        }
    }
}

#[cfg(test)]
mod hash_list {
    use super::*;
    use crate::checksum::checksum32;

    pub(super) fn build(hashes: &[u64], file_id: &FileId) -> FilterBlock {
        let mut sorted = hashes.to_vec();
        sorted.sort_unstable();
        let mut bytes: Vec<u8> = sorted.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        let header_checksum = checksum32(file_id, 0, &[&bytes]);
        bytes.extend_from_slice(&header_checksum.to_le_bytes());
        FilterBlock { bytes, kind: 255, domain: 0, header_checksum }
    }

    pub(super) fn open(
        bytes: &[u8],
        file_id: &FileId,
        keys: u64,
        header_checksum: u32,
    ) -> Result<TableFilter> {
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| Error::invalid("short filter"))?;
        let computed = checksum32(file_id, 0, &[body]);
        if u32::from_le_bytes(*sum) != computed || computed != header_checksum {
            return Err(Error::invalid("filter checksum"));
        }
        if body.len() as u64 != keys * 8 {
            return Err(Error::invalid("filter key count"));
        }
        let hash = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Ok(TableFilter { hashes: body.chunks_exact(8).map(hash).collect() })
    }
}
