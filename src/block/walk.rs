//! Walks all entries of a block and checks every rule of the format:
//!
//! 1. Restarts ascend from 0, at entries that share nothing.
//! 2. There are at most [`RESTART_INTERVAL_MAX`] entries between restarts.
//! 3. The entries fill the payload up to the search structures, and their keys ascend.
//! 4. A hash index has the byte of each key, and its interval applies to all restarts.
//! 5. A tombstone has no value; an inline value is within its limit; references can be decoded.

use byteorder::{ByteOrder, LittleEndian};

use super::chunk_ref::ChunkRef;
use super::entry::{RawEntry, decode_after, is_greater};
use super::handle::BlockHandle;
use super::trailer::{RESTART_INTERVAL_MAX, Trailer, hash_byte};
use super::value::{BlockValues, follow_value};
use crate::codec::DecodeError;
use crate::key::{EntryKind, InternalKey, Tag, replace_rest};
use crate::limits::VALUE_INLINE_MAX;

pub(crate) struct WalkedEntry<'a> {
    pub(crate) at: usize,
    pub(crate) raw: &'a RawEntry,
    pub(crate) key: InternalKey<'a>,
    pub(crate) value: &'a [u8],
    pub(crate) chunks: Option<ChunkRef>,
    pub(crate) handle: Option<BlockHandle>,
    pub(crate) is_restart: bool,
}

impl WalkedEntry<'_> {
    pub(crate) fn is_delete(&self) -> bool {
        self.key.tag.kind() == EntryKind::Delete
    }

    pub(crate) fn value_len(&self) -> u64 {
        self.chunks.map_or(self.value.len() as u64, |chunks| chunks.total)
    }
}

#[inline]
pub(crate) fn walk_entries<E: From<DecodeError>, V>(
    values: BlockValues,
    payload: &[u8],
    visit: &mut V,
) -> Result<(), E>
where
    V: FnMut(&WalkedEntry<'_>) -> Result<(), E> + ?Sized,
{
    let trailer = Trailer::of(payload)?;
    let region = trailer.entries;
    let mut restarts =
        trailer.restarts.as_chunks::<4>().0.iter().map(|at| LittleEndian::read_u32(at) as usize).peekable();
    let mut hash_bytes = trailer.hash_bytes().iter();
    let mut number = 0usize;
    let (mut key, mut tag_before): (Vec<u8>, Option<Tag>) = (Vec::new(), None);
    let (mut at, mut since) = (0, 0);
    while at < region.len() {
        let raw = decode_after(region, at, key.len())?;
        let wrong = |what, detail: String| Err(DecodeError::corrupt(at as u64, what, detail).into());
        let is_restart = restarts.next_if_eq(&at).is_some();
        since = if is_restart { 1 } else { since + 1 };
        if is_restart && raw.shared != 0 {
            return wrong("shared key length", "not zero at a restart".into());
        }
        if (at == 0 && !is_restart) || since > RESTART_INTERVAL_MAX {
            return wrong("restart interval", "too long, or not from 0".into());
        }
        if trailer.interval > 0 && is_restart != number.is_multiple_of(trailer.interval) {
            return wrong("restart interval", format!("not {}, as the hash index needs", trailer.interval));
        }
        number += 1;
        let (value, rest) = (&region[raw.value.clone()], &region[raw.suffix.clone()]);
        let chunks = follow_value(values, &raw, region)?;
        let handle = match values {
            BlockValues::Data if chunks.is_none() && value.len() > VALUE_INLINE_MAX => {
                let detail = format!("{} is over the limit of {VALUE_INLINE_MAX}", value.len());
                return Err(DecodeError::corrupt(raw.value.start as u64, "value length", detail).into());
            }
            BlockValues::Data => None,
            BlockValues::Index => {
                Some(BlockHandle::decode(value).map_err(|error| error.at(raw.value.start as u64))?)
            }
        };
        let replaced = &key[raw.shared..];
        let is_after = tag_before.is_none_or(|tag| {
            is_greater(rest, replaced) || InternalKey::new(rest, raw.tag) > InternalKey::new(replaced, tag)
        });
        if !is_after {
            return wrong("key order", "not after the key before it".into());
        }
        replace_rest(&mut key, raw.shared, rest);
        if trailer.interval > 0 && hash_bytes.next() != Some(&hash_byte(&key)) {
            let (at, which) = (trailer.entries.len() + number - 1, number - 1);
            let detail = format!("its byte {which} is not that of the user key of this entry");
            return Err(DecodeError::corrupt(at as u64, "hash index", detail).into());
        }
        let key = InternalKey::new(&key, raw.tag);
        visit(&WalkedEntry { at, raw: &raw, key, value, chunks, handle, is_restart })?;
        tag_before = Some(raw.tag);
        at = raw.value.end;
    }
    match restarts.next() {
        None if hash_bytes.any(|&byte| byte != 0) => {
            let detail = "bytes behind that of the last entry are not zero";
            Err(DecodeError::corrupt(region.len() as u64, "hash index", detail).into())
        }
        None => Ok(()),
        Some(lost) => {
            let detail = format!("{lost} is not where an entry starts, or not after the restart before it");
            Err(DecodeError::corrupt(region.len() as u64, "restart offset", detail).into())
        }
    }
}
