//! The kinds of values in a block.

use super::chunk_ref::ChunkRef;
use super::entry::RawEntry;
use crate::codec::DecodeError;
use crate::key::{EntryKind, Tag};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockValues {
    /// Values, possibly chunked; a tombstone's is empty.
    Data,
    /// Block handles; the tags are part of the separators.
    Index,
}

#[inline]
pub(super) fn is_plain(entry: &RawEntry) -> bool {
    !entry.chunked && entry.tag.kind() == EntryKind::Put
}

#[inline(always)]
pub(super) fn follow_value(
    values: BlockValues,
    entry: &RawEntry,
    payload: &[u8],
) -> Result<Option<ChunkRef>, DecodeError> {
    if is_plain(entry) || !entry.chunked && values == BlockValues::Index {
        return Ok(None);
    }
    follow_unusual(values, entry.tag, entry.chunked, entry.value.start, &payload[entry.value.clone()])
}

#[inline(never)]
fn follow_unusual(
    values: BlockValues,
    tag: Tag,
    chunked: bool,
    start: usize,
    value: &[u8],
) -> Result<Option<ChunkRef>, DecodeError> {
    let start = start as u64;
    let tombstone = values == BlockValues::Data && tag.kind() == EntryKind::Delete;
    if tombstone && !value.is_empty() {
        return Err(DecodeError::corrupt(start, "tombstone", "has a value"));
    }
    match (chunked, values) {
        (false, _) => Ok(None),
        (true, BlockValues::Index) => {
            Err(DecodeError::corrupt(start, "value code", "an index entry in chunks"))
        }
        (true, BlockValues::Data) => ChunkRef::decode(value).map(Some).map_err(|error| error.at(start)),
    }
}
