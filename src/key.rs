//! Sequence numbers, entry kinds and the order of internal keys.
//!
//! An internal key is a user key and a tag, `sequence number << 8 | entry kind`. The order is by user key ascending,
//! then by tag descending: the newest entry comes first.

mod fences;

use std::cmp::Ordering;

use byteorder::{BigEndian, ByteOrder, LittleEndian};

use crate::limits::{KEY_BYTES_MAX, SEQNO_MAX};

pub(crate) use fences::{KeyFences, PART_BYTES};

pub(crate) type SeqNo = u64;

/// The effect of an entry. The numbers are on disk: append only, see format.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum EntryKind {
    Delete = 0,
    Put = 1,
    /// Used only in batches, never in a tag.
    RangeDelete = 3,
    // Reserved: 2 merge operand, 4 put with time to live, 5 blob pointer, 6 transaction prepare.
}

impl EntryKind {
    pub(crate) fn from_u8(kind: u8) -> Option<Self> {
        match kind {
            0 => Some(Self::Delete),
            1 => Some(Self::Put),
            3 => Some(Self::RangeDelete),
            _ => None,
        }
    }
}

pub(crate) const ENTRY_KIND_MAX: u8 = 3;

pub(crate) const TAG_KIND_MAX: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(u64);

impl Tag {
    /// Sorts before every entry visible at `seqno`.
    pub(crate) fn newest_at(seqno: SeqNo) -> Self {
        Self(seqno.min(SEQNO_MAX) << 8 | 0xff)
    }

    pub(crate) fn new(seqno: SeqNo, kind: EntryKind) -> Self {
        debug_assert!(seqno <= SEQNO_MAX && kind as u8 <= TAG_KIND_MAX);
        Self(seqno << 8 | kind as u64)
    }

    pub(crate) fn from_u64(raw: u64) -> Option<Self> {
        (raw as u8 <= TAG_KIND_MAX).then_some(Self(raw))
    }

    pub(crate) fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    pub(crate) fn to_u64(self) -> u64 {
        self.0
    }

    pub(crate) fn seqno(self) -> SeqNo {
        self.0 >> 8
    }

    /// A tag of [`Tag::newest_at`] has no kind and reads as `Put`.
    pub(crate) fn kind(self) -> EntryKind {
        if self.0 as u8 == EntryKind::Delete as u8 { EntryKind::Delete } else { EntryKind::Put }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InternalKey<'a> {
    pub user: &'a [u8],
    pub tag: Tag,
}

impl<'a> InternalKey<'a> {
    pub(crate) fn new(user: &'a [u8], tag: Tag) -> Self {
        Self { user, tag }
    }
}

impl Ord for InternalKey<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.user.cmp(other.user).then_with(|| other.tag.cmp(&self.tag))
    }
}

impl PartialOrd for InternalKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the first eight bytes, zero-padded, big-endian. Prefixes that differ compare like the keys.
#[inline]
pub(crate) fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => BigEndian::read_u64(first),
        None => {
            key.iter().enumerate().fold(0, |prefix, (at, &byte)| prefix | u64::from(byte) << (56 - 8 * at))
        }
    }
}

/// The smallest key after all keys with this prefix.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

/// Returns the smallest greater key of a valid length, if there is one.
pub(crate) fn key_after(key: &[u8]) -> Option<Vec<u8>> {
    match key.len() {
        KEY_BYTES_MAX => after_prefix(key),
        _ => Some([key, &[0]].concat()),
    }
}

pub(crate) fn has_shorter_next(key: &[u8]) -> bool {
    key.len() == KEY_BYTES_MAX && key.last() == Some(&0xff)
}

#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    match (word(a, 0), word(b, 0)) {
        (Some(x), Some(y)) if x != y => (x ^ y).trailing_zeros() as usize / 8,
        (Some(_), Some(_)) => common_prefix_behind(a, b),
        _ => a.iter().zip(b).take_while(|(x, y)| x == y).count(),
    }
}

#[inline(never)]
fn common_prefix_behind(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let parts = a.as_chunks::<LONG_PART_BYTES>().0.iter().zip(b.as_chunks().0);
    let mut same = LONG_PART_BYTES * parts.take_while(|(x, y)| x == y).count();
    while let (Some(x), Some(y)) = (word(a, same), word(b, same)) {
        if x != y {
            return same + (x ^ y).trailing_zeros() as usize / 8;
        }
        same += 8;
    }
    // The last eight bytes overlap bytes already found equal.
    let x = LittleEndian::read_u64(&a[len - 8..]) ^ LittleEndian::read_u64(&b[len - 8..]);
    (len - 8 + x.trailing_zeros() as usize / 8).min(len)
}

const LONG_PART_BYTES: usize = 32;

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|word| LittleEndian::read_u64(word))
}

#[inline]
pub(crate) fn compare_keys(a: &[u8], b: &[u8]) -> Ordering {
    match (a.first_chunk::<8>(), b.first_chunk::<8>()) {
        (Some(first_of_a), Some(first_of_b)) if first_of_a != first_of_b => {
            BigEndian::read_u64(first_of_a).cmp(&BigEndian::read_u64(first_of_b))
        }
        _ => a.cmp(b),
    }
}

/// Copies 8 to 16 bytes without a call.
///
/// # Panics
///
/// If the lengths differ.
#[inline(always)]
pub(crate) fn copy_key(key: &[u8], to: &mut [u8]) {
    assert_eq!(key.len(), to.len());
    match (key.first_chunk::<8>(), key.last_chunk::<8>(), to.first_chunk_mut::<8>()) {
        (Some(first), Some(last), Some(to_first)) if key.len() <= 16 => {
            *to_first = *first;
            if let Some(to_last) = to.last_chunk_mut() {
                *to_last = *last;
            }
        }
        _ => to.copy_from_slice(key),
    }
}

#[inline(always)]
pub(crate) fn replace_rest(key: &mut Vec<u8>, shared: usize, rest: &[u8]) {
    if key.len() == shared + rest.len() {
        copy_key(rest, &mut key[shared..]);
    } else {
        key.truncate(shared);
        key.extend_from_slice(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_lengths_are_copied() {
        for len in 0..40u8 {
            let key: Vec<u8> = (1..=len).collect();
            let mut copy = vec![0; key.len()];
            copy_key(&key, &mut copy);
            assert_eq!(copy, key);
        }
    }

    #[test]
    fn common_prefixes_of_all_lengths_are_found() {
        for len in 0..40 {
            for same in 0..=len {
                for bit in [0, 7] {
                    let a = vec![0x55; len];
                    let mut b = vec![0x55; len + len % 3];
                    b[same..].iter_mut().for_each(|byte| *byte ^= 1 << bit);
                    assert_eq!(common_prefix(&a, &b), same);
                    assert_eq!(common_prefix(&b, &a), same);
                }
            }
        }
    }

    #[test]
    fn the_common_prefix_is_found_in_and_behind_whole_words_and_parts() {
        let long = [7u8; 140];
        for len in 0..140 {
            let mut other = long;
            other[len] = 8;
            assert_eq!(common_prefix(&long, &other), len);
            assert_eq!(common_prefix(&long[..len], &long), len);
        }
    }

    #[test]
    fn newer_entries_of_a_key_come_first_and_keys_in_byte_order() {
        let key = |user: &'static [u8], seqno| InternalKey::new(user, Tag::new(seqno, EntryKind::Put));
        assert!(key(b"a", 2) < key(b"a", 1));
        assert!(key(b"a", 1) < key(b"b", 2));
        assert!(key(b"", 1) < key(b"\0", 1));
        assert!(key(b"a", 1) < key(b"a\0", 9));
    }

    #[test]
    fn a_seek_tag_sorts_before_all_entries_it_can_see_and_after_newer_ones() {
        let seek = InternalKey::new(b"k", Tag::newest_at(5));
        assert!(seek < InternalKey::new(b"k", Tag::new(5, EntryKind::Put)));
        assert!(seek < InternalKey::new(b"k", Tag::new(5, EntryKind::Delete)));
        assert!(seek > InternalKey::new(b"k", Tag::new(6, EntryKind::Delete)));
    }

    #[test]
    fn reserved_kinds_are_not_read() {
        for kind in TAG_KIND_MAX + 1..=u8::MAX {
            assert_eq!(Tag::from_u64(1 << 8 | u64::from(kind)), None);
        }
        let known = (0..=u8::MAX).filter(|&kind| EntryKind::from_u8(kind).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [0, 1, 3]);
    }

    #[test]
    fn prefixes_never_contradict_the_order_of_keys() {
        let keys: [&[u8]; 11] = [
            b"",
            b"\0",
            b"\0\0\0\0\0\0\0\0\0",
            b"a",
            b"a\0",
            b"a\0b",
            b"abcdefgh",
            b"abcdefghi",
            b"abcdefgi",
            b"bbbbbbbba",
            b"\xff",
        ];
        for a in keys {
            for b in keys {
                assert!(
                    key_prefix(a) == key_prefix(b) || (key_prefix(a) < key_prefix(b)) == (a < b),
                    "{a:?} {b:?}"
                );
                assert_eq!(compare_keys(a, b), a.cmp(b), "{a:?} {b:?}");
            }
        }
    }
}
