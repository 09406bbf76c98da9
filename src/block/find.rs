//! A point lookup in a block, without a cursor.
//!
//! Finds the entry that [`BlockIter::seek`](super::BlockIter::seek) would find, but copies no key and
//! allocates nothing:
//!
//! 1. A binary search over the restarts finds the last one before the target. Their keys are whole, and
//!    compared where they lie.
//! 2. From there on entry by entry. Of the key before, only its length and how many of its first bytes are
//!    those of the target are kept. It is before the target; so an entry that shares more with it is before
//!    the target too, and any other has the target's first `shared` bytes, and its suffix decides.
//!
//! Step 2 compares whole keys, whatever the order of the entries. So this and the cursor agree on hostile
//! blocks too, but that a value that is passed over is not looked at here.

use std::cmp::Ordering;
use std::ops::Range;

use byteorder::{ByteOrder, LittleEndian};

use super::chunk_ref::ChunkRef;
use super::entry::{common_prefix, decode_good, why_not};
use super::iter::BlockValues;
use super::walk::{follow_value, restarts};
use crate::codec::DecodeError;
use crate::key::{InternalKey, Tag};

/// The first entry of a block at or after the target of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Whether its user key is that of the target.
    pub(crate) same_user_key: bool,
    pub(crate) tag: Tag,
    /// Where its value lies in the payload.
    pub(crate) value: Range<usize>,
    /// The reference, if the value is in chunks.
    pub(crate) chunks: Option<ChunkRef>,
}

/// The first entry at or after `target`, if there is one.
pub(crate) fn find(
    payload: &[u8],
    values: BlockValues,
    target: InternalKey<'_>,
) -> Result<Option<Found>, DecodeError> {
    let restarts = restarts(payload)?;
    let entries = &payload[..payload.len() - 4 - restarts.len()];
    let mut at = last_restart_before(entries, restarts, target)?;
    // Of the key before: its length, and how many of its first bytes are those of the target.
    let (mut key_len, mut matched) = (0, 0);
    while at < entries.len() {
        let Some(entry) = decode_good(entries, at) else { return Err(why_not(entries, at)) };
        if entry.shared > key_len {
            let detail = format!("{} of a key of {key_len} bytes", entry.shared);
            return Err(DecodeError::corrupt(at as u64, "shared key length", detail));
        }
        key_len = entry.shared + entry.suffix.len();
        if entry.shared <= matched {
            let (same, order) = compare(&entries[entry.suffix.clone()], &target.user[entry.shared..]);
            if order.then_with(|| target.tag.cmp(&entry.tag)).is_ge() {
                let chunks = follow_value(values, &entry, payload)?;
                let (same_user_key, tag) = (order == Ordering::Equal, entry.tag);
                return Ok(Some(Found { same_user_key, tag, value: entry.value, chunks }));
            }
            matched = entry.shared + same;
        }
        at = entry.value.end;
    }
    Ok(None)
}

/// The length of the longest common prefix, and the order. Mostly the first bytes decide.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> (usize, Ordering) {
    match (a, b) {
        ([x, ..], [y, ..]) if x != y => (0, x.cmp(y)),
        _ => compare_all(a, b),
    }
}

#[inline(never)]
fn compare_all(a: &[u8], b: &[u8]) -> (usize, Ordering) {
    let same = common_prefix(a, b);
    (same, a[same..].first().cmp(&b[same..].first()))
}

/// Where to start: the last restart before the target, or else the first one.
fn last_restart_before(
    entries: &[u8],
    restarts: &[u8],
    target: InternalKey<'_>,
) -> Result<usize, DecodeError> {
    let offset = |index: usize| {
        let offset = LittleEndian::read_u32(&restarts[4 * index..]) as usize;
        if offset < entries.len() {
            return Ok(offset);
        }
        let detail = format!("{offset}, but the entries end at {}", entries.len());
        Err(DecodeError::corrupt((entries.len() + 4 * index) as u64, "restart offset", detail))
    };
    let (mut low, mut high) = (0, restarts.len() / 4 - 1);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let at = offset(middle)?;
        let Some(entry) = decode_good(entries, at) else { return Err(why_not(entries, at)) };
        if entry.shared != 0 {
            return Err(DecodeError::corrupt(at as u64, "shared key length", "not zero at a restart"));
        }
        if InternalKey::new(&entries[entry.suffix], entry.tag) < target {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    offset(low)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::block::{BlockBuilder, BlockIter};
    use crate::key::EntryKind;

    type Answer = Option<(bool, Tag, Vec<u8>, Option<ChunkRef>)>;

    fn by_cursor(payload: &Bytes, target: InternalKey<'_>) -> Result<Answer, DecodeError> {
        let mut iter = BlockIter::new(payload.clone(), BlockValues::Data)?;
        iter.seek(target)?;
        Ok(iter.key().map(|key| (key.user == target.user, key.tag, iter.value().to_vec(), iter.chunks())))
    }

    fn by_find(payload: &Bytes, target: InternalKey<'_>) -> Result<Answer, DecodeError> {
        let found = find(payload, BlockValues::Data, target)?;
        Ok(found.map(|found| (found.same_user_key, found.tag, payload[found.value].to_vec(), found.chunks)))
    }

    /// Keys that share much and are prefixes of each other, some with several versions.
    fn keys() -> Vec<(Vec<u8>, Tag)> {
        let texts =
            ["", "a", "aa", "aaa", "aaab", "aab", "ab", "abcdefgh", "abcdefghi", "abcdefgi", "b", "bb"];
        let tags =
            [Tag::new(700, EntryKind::Put), Tag::new(3, EntryKind::Delete), Tag::new(0, EntryKind::Put)];
        let versions = |text: &str| {
            let key = text.as_bytes().to_vec();
            tags[text.len() % 3..].iter().map(move |&tag| (key.clone(), tag)).collect::<Vec<_>>()
        };
        texts.into_iter().flat_map(versions).collect()
    }

    fn block(keys: &[(Vec<u8>, Tag)], interval: usize) -> Bytes {
        let mut builder = BlockBuilder::new(interval);
        for (number, (user, tag)) in keys.iter().enumerate() {
            let value = vec![number as u8; if tag.kind() == EntryKind::Put { number % 5 * 20 } else { 0 }];
            builder.add(InternalKey::new(user, *tag), &value, false);
        }
        Bytes::copy_from_slice(builder.finish())
    }

    fn targets() -> Vec<(Vec<u8>, Tag)> {
        let around = |(key, tag): (Vec<u8>, Tag)| {
            let longer = [&key[..], b"\0"].concat();
            let other = [&key[..key.len().saturating_sub(1)], b"ac"].concat();
            [(key.clone(), tag), (key, Tag::newest_at(5)), (longer, tag), (other, tag)]
        };
        keys().into_iter().flat_map(around).collect()
    }

    #[test]
    fn a_lookup_finds_what_the_cursor_finds() {
        let all = keys();
        for (count, interval) in [(1, 16), (2, 1), (5, 2), (all.len(), 1), (all.len(), 4), (all.len(), 16)] {
            let payload = block(&all[..count], interval);
            for (user, tag) in targets() {
                let target = InternalKey::new(&user, tag);
                let found = by_find(&payload, target).unwrap();
                assert_eq!(
                    found,
                    by_cursor(&payload, target).unwrap(),
                    "{target:?} of {count} by {interval}"
                );
                let first = all[..count].iter().find(|(user, tag)| InternalKey::new(user, *tag) >= target);
                assert_eq!(found.map(|(_, tag, ..)| tag), first.map(|(_, tag)| *tag));
            }
        }
    }

    #[test]
    fn in_a_damaged_block_a_lookup_finds_what_the_cursor_finds_if_that_fails_nowhere() {
        let payload = block(&keys()[..18], 4);
        let (mut same, mut refused) = (0, 0);
        for at in 0..payload.len() {
            for xor in [1, 2, 4, 0x80, 0xff] {
                let mut damaged = payload.to_vec();
                damaged[at] ^= xor;
                let damaged = Bytes::from(damaged);
                for (user, tag) in targets().iter().step_by(3) {
                    let target = InternalKey::new(user, *tag);
                    match (by_find(&damaged, target), by_cursor(&damaged, target)) {
                        (found, Ok(expected)) => {
                            assert_eq!(found, Ok(expected), "byte {at}");
                            same += 1;
                        }
                        (Err(_), Err(_)) => refused += 1,
                        // The cursor looks at the values on its way.
                        (Ok(_), Err(error)) => assert!(error.what != "shared key length", "byte {at}"),
                    }
                }
            }
        }
        assert!(same > 1000 && refused > 1000, "{same} {refused}");
    }
}
