//! A point lookup in a block, without a cursor, copies or allocations.
//!
//! 1. A binary search over the restarts, whose keys are whole, finds the last restart before the target.
//! 2. A linear search keeps the length of the previous key and the number of its first bytes that match the target. An
//!    entry that shares more bytes with the previous key is also before the target. Otherwise the suffix decides.
//!
//! Step 2 is equivalent to a comparison of whole keys, so it agrees with `BlockIter::seek_by_whole_keys` on hostile
//! blocks too. It does not check skipped values. With a hash index, [`find_user_key`] decodes only entries with the
//! hash byte of the key, each from the restart before it.

use std::cmp::Ordering;
use std::hint::black_box;
use std::ops::Range;

use byteorder::{BigEndian, ByteOrder};

use super::chunk_ref::ChunkRef;
use super::entry::{RawEntry, decode_after, decode_good, why_not};
use super::trailer::{Trailer, hash_byte};
use super::value::{BlockValues, follow_value};
use crate::codec::DecodeError;
use crate::key::{InternalKey, Tag, common_prefix};

const CACHE_LINE_BYTES: usize = 64;

/// Only the first lines of a longer entry are prefetched.
const AHEAD_BYTES_MAX: usize = 8 * CACHE_LINE_BYTES;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) same_user_key: bool,
    pub(crate) tag: Tag,
    pub(crate) value: Range<usize>,
    pub(crate) chunks: Option<ChunkRef>,
}

pub(crate) fn find(
    payload: &[u8],
    values: BlockValues,
    target: InternalKey<'_>,
) -> Result<Option<Found>, DecodeError> {
    let Some(Placed { entry, same_user_key, .. }) = place(&Trailer::of(payload)?, target)? else {
        return Ok(None);
    };
    let chunks = follow_value(values, &entry, payload)?;
    Ok(Some(Found { same_user_key, tag: entry.tag, value: entry.value, chunks }))
}

pub(super) struct Placed {
    pub(super) at: usize,
    pub(super) entry: RawEntry,
    pub(super) same_user_key: bool,
}

#[inline]
pub(super) fn place(trailer: &Trailer<'_>, target: InternalKey<'_>) -> Result<Option<Placed>, DecodeError> {
    let entries = trailer.entries;
    let mut at = last_restart_before(trailer, target)?;
    let (mut key_len, mut matched) = (0, 0);
    while at < entries.len() {
        let entry = decode_after(entries, at, key_len)?;
        key_len = entry.shared + entry.suffix.len();
        if entry.shared <= matched {
            let (same, order) = compare(&entries[entry.suffix.clone()], &target.user[entry.shared..]);
            if order.then_with(|| target.tag.cmp(&entry.tag)).is_ge() {
                return Ok(Some(Placed { at, entry, same_user_key: order == Ordering::Equal }));
            }
            matched = entry.shared + same;
        }
        at = entry.value.end;
    }
    Ok(None)
}

/// Returns the length of the common prefix, and the order. The first bytes usually decide.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> (usize, Ordering) {
    match (a.first_chunk::<8>(), b.first_chunk::<8>()) {
        (Some(x), Some(y)) if x != y => {
            let (x, y) = (BigEndian::read_u64(x), BigEndian::read_u64(y));
            ((x ^ y).leading_zeros() as usize / 8, x.cmp(&y))
        }
        _ => match (a, b) {
            ([x, ..], [y, ..]) if x != y => (0, x.cmp(y)),
            _ => compare_all(a, b),
        },
    }
}

#[inline(never)]
fn compare_all(a: &[u8], b: &[u8]) -> (usize, Ordering) {
    let same = common_prefix(a, b);
    (same, a[same..].first().cmp(&b[same..].first()))
}

fn last_restart_before(trailer: &Trailer<'_>, target: InternalKey<'_>) -> Result<usize, DecodeError> {
    let entries = trailer.entries;
    let (mut low, mut high) = (0, trailer.restart_count() - 1);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let at = trailer.restart(middle)?;
        let Some(entry) = decode_good(entries, at) else { return Err(why_not(entries, at)) };
        if entry.shared != 0 {
            return Err(DecodeError::corrupt(at as u64, "shared key length", "not zero at a restart"));
        }
        let (_, order) = compare(&entries[entry.suffix], target.user);
        if order.then_with(|| target.tag.cmp(&entry.tag)).is_lt() {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    trailer.restart(low)
}

#[inline]
pub(crate) fn find_user_key(payload: &[u8], target: InternalKey<'_>) -> Result<Option<Found>, DecodeError> {
    let trailer = Trailer::of(payload)?;
    if trailer.interval == 0 {
        return Ok(find(payload, BlockValues::Data, target)?.filter(|found| found.same_user_key));
    }
    let hash_byte = hash_byte(target.user);
    let mut from = 0;
    while let Some(number) = trailer.next_with(hash_byte, from) {
        let (group, skip) = (number / trailer.interval, number % trailer.interval);
        let restart = trailer.restart(group)?;
        let passed_bytes = trailer.group_len(group, restart) * skip / trailer.interval;
        if passed_bytes <= AHEAD_BYTES_MAX {
            read_ahead(&trailer.entries[restart..], passed_bytes);
        }
        let (entry, passed) = find_version(trailer.entries, restart, skip, target)?;
        if let Some(entry) = entry {
            let chunks = follow_value(BlockValues::Data, &entry, payload)?;
            return Ok(Some(Found { same_user_key: true, tag: entry.tag, value: entry.value, chunks }));
        }
        from = number + passed;
    }
    Ok(None)
}

#[inline]
fn read_ahead(entries: &[u8], len: usize) {
    let lines = entries.chunks(CACHE_LINE_BYTES).skip(1);
    for line in lines.take(len.div_ceil(CACHE_LINE_BYTES)) {
        black_box(line[0]);
    }
}

/// Examines the entry number `skip` after a restart. If it has the user key of `target`, returns the first entry of the
/// key at or after `target`, or else `None` and the number of entries of the key before `target`, at least 1.
#[inline]
fn find_version(
    entries: &[u8],
    restart: usize,
    skip: usize,
    target: InternalKey<'_>,
) -> Result<(Option<RawEntry>, usize), DecodeError> {
    let (mut at, mut passed) = (restart, 0);
    let (mut key_len, mut matched) = (0, 0);
    while at < entries.len() {
        let entry = decode_after(entries, at, key_len)?;
        key_len = entry.shared + entry.suffix.len();
        if entry.shared <= matched {
            let (same, _) = compare(&entries[entry.suffix.clone()], &target.user[entry.shared..]);
            matched = entry.shared + same;
        }
        if passed >= skip {
            if matched != key_len || key_len != target.user.len() {
                break;
            }
            if entry.tag <= target.tag {
                return Ok((Some(entry), passed));
            }
        }
        passed += 1;
        at = entry.value.end;
    }
    Ok((None, passed.saturating_sub(skip).max(1)))
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
        iter.seek_by_whole_keys(target).map_err(|error| *error)?;
        Ok(iter.key().map(|key| (key.user == target.user, key.tag, iter.value().to_vec(), iter.chunks())))
    }

    fn by_find(payload: &Bytes, target: InternalKey<'_>) -> Result<Answer, DecodeError> {
        let found = find(payload, BlockValues::Data, target)?;
        Ok(found.map(|found| (found.same_user_key, found.tag, payload[found.value].to_vec(), found.chunks)))
    }

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
        built(BlockBuilder::new(interval), keys)
    }

    fn built(mut builder: BlockBuilder, keys: &[(Vec<u8>, Tag)]) -> Bytes {
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

    /// Returns the result of the lookup by user key, and the expected result: the cursor's, if its entry has that user
    /// key.
    fn by_user_key(payload: &Bytes, target: InternalKey<'_>) -> [Result<Answer, DecodeError>; 2] {
        let found = find_user_key(payload, target);
        let value = |found: Found| (true, found.tag, payload[found.value].to_vec(), found.chunks);
        let same = |answer: Answer| answer.filter(|answer| answer.0);
        [found.map(|found| found.map(value)), by_cursor(payload, target).map(same)]
    }

    #[test]
    fn a_lookup_by_the_hash_index_finds_what_the_cursor_finds() {
        let all = keys();
        let many: Vec<_> =
            (0..8).map(|at| (b"aab".to_vec(), Tag::new(20 - 2 * at, EntryKind::Put))).collect();
        let among = |(user, tag): &(Vec<u8>, Tag)| user[..] != b"aab"[..] || tag.seqno() == 700;
        let versions: Vec<_> = all[..17].iter().filter(|key| among(key)).chain(&many).cloned().collect();
        let mut found = 0;
        for keys in [&all[..1], &all[..5], &all, &versions] {
            let mut keys = keys.to_vec();
            keys.sort_by(|a, b| InternalKey::new(&a.0, a.1).cmp(&InternalKey::new(&b.0, b.1)));
            for interval in [1, 3, 4, 16] {
                let payload = built(BlockBuilder::with_hash_index(interval), &keys);
                BlockIter::new(payload.clone(), BlockValues::Data).unwrap().verify().unwrap();
                for (user, tag) in targets().into_iter().chain(many.iter().cloned()) {
                    for seqno in [tag.seqno(), 0, 7, 13, 699] {
                        let target = InternalKey::new(&user, Tag::newest_at(seqno));
                        let [by_index, by_cursor] = by_user_key(&payload, target);
                        assert_eq!(by_index, by_cursor, "{target:?} by {interval}");
                        found += usize::from(by_index.unwrap().is_some());
                    }
                }
            }
        }
        assert!(found > 1000, "{found}");
    }

    #[test]
    fn in_a_damaged_block_with_a_hash_index_a_lookup_returns_and_verify_tells_if_it_errs() {
        let payload = built(BlockBuilder::with_hash_index(4), &keys()[..18]);
        let (mut errs, mut refused) = (0, 0);
        for at in 0..payload.len() {
            for xor in [1, 2, 4, 0x80, 0xff] {
                let mut damaged = payload.to_vec();
                damaged[at] ^= xor;
                let damaged = Bytes::from(damaged);
                let is_sound = BlockIter::new(damaged.clone(), BlockValues::Data)
                    .is_ok_and(|block| block.verify().is_ok());
                refused += usize::from(!is_sound);
                for (user, tag) in targets().iter().step_by(3) {
                    let [by_index, by_cursor] = by_user_key(&damaged, InternalKey::new(user, *tag));
                    assert!(!is_sound || by_index == by_cursor, "byte {at}");
                    errs += usize::from(by_index != by_cursor);
                }
            }
        }
        assert!(errs > 1000 && refused > 500, "{errs} {refused}");
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
                        (Ok(_), Err(error)) => assert!(error.what != "shared key length", "byte {at}"),
                    }
                }
            }
        }
        assert!(same > 1000 && refused > 1000, "{same} {refused}");
    }
}
