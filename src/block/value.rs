//! The values of a block, and the check that the value of an entry can be followed.

use super::chunk_ref::ChunkRef;
use super::entry::RawEntry;
use crate::codec::DecodeError;
use crate::key::{EntryKind, Tag};

/// What the values of a block are, and hence what is checked about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockValues {
    /// Values of the user: none with a tombstone, possibly in chunks.
    Data,
    /// Block handles; a tag is only part of the separator.
    Index,
}

/// Whether the value is a put whose bytes are here: there is nothing to check.
#[inline]
pub(super) fn is_plain(entry: &RawEntry) -> bool {
    !entry.chunked && entry.tag.kind() == EntryKind::Put
}

/// Checks that a value can be followed. Returns the reference of a value in chunks.
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

/// [`follow_value`] of a tombstone or a value in chunks. `start` is where its value begins.
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
