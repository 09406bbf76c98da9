//! The separators of an index block in arrays, so that a search touches only a few cache lines.
//!
//! ```text
//! keys     the fences of all separators
//! starts   the start of each block, and the end of the last one
//! ends     the end of each block, if one does not end at the start of the next one
//! ```
//!
//! They take twelve bytes per block, or sixteen if chunks of long values are between the data blocks. Groups of
//! separators take at most twice the index block, or 512 bytes. If the fences do not decide, the index block is
//! searched. An index of more than 4 GiB or of unordered blocks has no fences. One walk over the index block builds
//! them.

use bytes::Bytes;

use super::handle::BlockHandle;
use super::iter::BlockIter;
use super::trailer::{RESTART_INTERVAL_MAX, Trailer};
use super::value::BlockValues;
use super::walk::{WalkedEntry, walk_entries};
use crate::codec::DecodeError;
use crate::key::{KeyFences, PART_BYTES, common_prefix, key_prefix};
use crate::limits::KEY_BYTES_MAX;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fences {
    keys: KeyFences,
    first: u64,
    starts: Box<[u32]>,
    /// Relative to `first`; empty if blocks are contiguous.
    ends: Box<[u32]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sought {
    In(usize),
    PastEnd,
    Unknown,
}

const GROUPS_BYTES_MIN: usize = 512;

const ENTRY_BYTES_MIN: usize = 6;

impl Fences {
    /// Returns `None` if the block is damaged, which a search reports, or cannot have fences.
    pub(crate) fn of(payload: &Bytes) -> Option<Self> {
        let common = common_of_all(payload)?;
        let len_max = Self::len_max(payload);
        let mut parts = Vec::with_capacity(len_max);
        let (mut starts, mut ends) = (Vec::with_capacity(len_max + 1), Vec::with_capacity(len_max));
        let (mut first, mut end, mut has_gaps) = (0, 0, false);
        let (mut rests, mut rest_ends) = (Vec::new(), Vec::with_capacity(len_max));
        let mut add = |entry: &WalkedEntry<'_>| {
            let BlockHandle { offset, len } = entry.handle?;
            if parts.is_empty() {
                (first, end) = (offset, offset);
            }
            if offset < end || len == 0 {
                return None;
            }
            has_gaps |= offset != end;
            end = offset.saturating_add(len);
            let rest = entry.key.user.get(common.len()..)?;
            parts.push(key_prefix(rest));
            if rest_ends.len() + 1 == parts.len() && rests.len() + rest.len() <= 2 * payload.len() {
                rests.extend_from_slice(rest);
                rest_ends.push(rests.len());
            }
            starts.push((offset - first) as u32);
            ends.push(u32::try_from(end - first).ok()?);
            Some(())
        };
        walk_entries(BlockValues::Index, payload, &mut |entry| {
            add(entry).ok_or_else(|| DecodeError::corrupt(0, "index block", "can have no fences"))
        })
        .ok()?;
        starts.push(*ends.last()?);
        if !has_gaps {
            ends.clear();
        }
        let starts_and_ends = std::iter::once(0).chain(rest_ends.iter().copied()).zip(&rest_ends);
        let rests: Vec<&[u8]> = starts_and_ends.map(|(start, &end)| &rests[start..end]).collect();
        let room = Self::groups_bytes_max(payload);
        Some(Self {
            keys: KeyFences::new(common.into(), parts.into(), &rests, room),
            first,
            starts: starts.into(),
            ends: ends.into(),
        })
    }

    pub(crate) fn len_max(payload: &[u8]) -> usize {
        let restarts = Trailer::of(payload).map_or(0, |trailer| trailer.restart_count());
        (restarts * RESTART_INTERVAL_MAX).min(payload.len() / ENTRY_BYTES_MIN)
    }

    pub(crate) fn bytes_max(payload: &[u8]) -> usize {
        let (common, len) = (payload.len().min(KEY_BYTES_MAX), Self::len_max(payload));
        let groups = Self::groups_bytes_max(payload);
        size_of::<Self>() + common + len * PART_BYTES + groups + Self::places_bytes(len, len)
    }

    fn groups_bytes_max(payload: &[u8]) -> usize {
        (2 * payload.len()).max(GROUPS_BYTES_MIN)
    }

    fn places_bytes(len: usize, ends: usize) -> usize {
        (len + 1 + ends) * size_of::<u32>()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.keys.bytes() + Self::places_bytes(self.len(), self.ends.len())
    }

    #[inline]
    pub(crate) fn find(&self, user_key: &[u8]) -> Sought {
        match self.keys.find(user_key) {
            Some(index) if index < self.len() => Sought::In(index),
            Some(_) => Sought::PastEnd,
            None => Sought::Unknown,
        }
    }

    pub(crate) fn handle(&self, index: usize) -> BlockHandle {
        let start = self.starts[index];
        let end = self.ends.get(index).copied().unwrap_or(self.starts[index + 1]);
        BlockHandle { offset: self.first + u64::from(start), len: u64::from(end - start) }
    }

    pub(crate) fn number_of(&self, block: BlockHandle) -> Option<usize> {
        let start = u32::try_from(block.offset.checked_sub(self.first)?).ok()?;
        self.starts[..self.len()].binary_search(&start).ok()
    }
}

fn common_of_all(payload: &Bytes) -> Option<Vec<u8>> {
    let mut block = BlockIter::new(payload.clone(), BlockValues::Index).ok()?;
    block.seek_last().ok()?;
    let mut common = block.key()?.user.to_vec();
    block.seek_first().ok()?;
    common.truncate(common_prefix(&common, block.key()?.user));
    Some(common)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockBuilder, find};
    use crate::key::{EntryKind, InternalKey, Tag};

    fn index(separators: &[&[u8]], gap: u64) -> Bytes {
        index_of(separators, gap, |_| 4000)
    }

    fn fences(payload: &[u8]) -> Option<Fences> {
        let fences = Fences::of(&Bytes::copy_from_slice(payload))?;
        let boxes = [size_of_val(&*fences.starts), size_of_val(&*fences.ends)];
        let taken = size_of::<Fences>() + fences.keys.bytes() + boxes.iter().sum::<usize>();
        assert_eq!((fences.len(), fences.bytes()), (fences.keys.len(), taken));
        assert!(fences.len() <= Fences::len_max(payload) && taken <= Fences::bytes_max(payload));
        Some(fences)
    }

    fn index_of(separators: &[&[u8]], gap: u64, len: impl Fn(usize) -> u64) -> Bytes {
        let (mut builder, mut offset) = (BlockBuilder::new(4), 64);
        for (number, user) in separators.iter().enumerate() {
            let mut value = Vec::new();
            BlockHandle { offset, len: len(number) }.encode(&mut value);
            offset += len(number) + gap;
            builder.add(InternalKey::new(user, Tag::new(0, EntryKind::Delete)), &value, false);
        }
        Bytes::copy_from_slice(builder.finish())
    }

    #[test]
    fn fences_lead_where_the_index_block_leads_or_know_that_they_do_not_know() {
        let pools: [&[&[u8]]; 6] = [
            &[b""],
            &[b"a", b"b", b"bcdefghijk", b"bcdefghijkl", b"c"],
            &[b"user:1", b"user:12345678", b"user:123456789", b"user:2", b"user:2\0"],
            &[
                b"usr/share",
                b"usr/share/doc/a",
                b"usr/share/doc/a/copyright",
                b"usr/share/doc/a/copyright/2",
                b"usr/share/doc/b",
                b"usr/share/locale/de/LC_MESSAGES/a",
                b"usr/share/locale/de/LC_MESSAGES/b",
                b"var",
            ],
            &[b"", b"12345678\0", b"12345678\0\0\0\0\0\0\0\0\0", b"12345678a", b"12345678abcdefgh\0"],
            &[
                b"",
                b"\0",
                b"\0\0",
                b"\xff\xff\xff\xff\xff\xff\xff\xff",
                b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            ],
        ];
        let (mut known, mut unknown) = (0, 0);
        for (separators, gap) in pools.iter().flat_map(|pool| [(pool, 0), (pool, 7)]) {
            let payload = index(separators, gap);
            let fences = fences(&payload).unwrap();
            assert_eq!(fences.len(), separators.len());
            assert_eq!(fences.ends.is_empty(), gap == 0 || separators.len() == 1);
            let is_right = |index| fences.number_of(fences.handle(index)) == Some(index);
            assert!((0..separators.len()).all(is_right));
            for key in pools.iter().flat_map(|pool| pool.iter()) {
                for key in [key.to_vec(), [key, &b"\0"[..]].concat(), [key, &b"zz"[..]].concat()] {
                    for seqno in [0, 9] {
                        let target = InternalKey::new(&key, Tag::newest_at(seqno));
                        let found = find(&payload, BlockValues::Index, target).unwrap();
                        let expected = found.map(|found| BlockHandle::decode(&payload[found.value]).unwrap());
                        let by_fences = match fences.find(&key) {
                            Sought::In(index) => Some(fences.handle(index)),
                            Sought::PastEnd => None,
                            Sought::Unknown => {
                                let end = |key: &[u8]| key.iter().rposition(|&byte| byte != 0);
                                let is_like_key = |other: &[u8]| {
                                    let end = end(other).map_or(0, |end| end + 1);
                                    key.starts_with(&other[..end]) && key[end..].iter().all(|&byte| byte == 0)
                                };
                                let is_like_others = separators.iter().any(|other| is_like_key(other));
                                let is_padded = separators.iter().any(|other| other.ends_with(&[0]));
                                assert!(is_like_others || is_padded, "{key:?} in {separators:?}");
                                unknown += 1;
                                continue;
                            }
                        };
                        assert_eq!(by_fences, expected, "{key:?} in {separators:?}");
                        known += 1;
                    }
                }
            }
        }
        assert!(known > 200 && unknown > 20, "{known} {unknown}");
    }

    #[test]
    fn blocks_out_of_order_or_far_apart_and_damaged_index_blocks_have_no_fences() {
        assert_eq!(fences(&index(&[b"b", b"a"], 0)), None);
        assert_eq!(fences(&index_of(&[b"a", b"b"], 0, |number| number as u64 * 4000)), None);
        assert_eq!(fences(&index_of(&[b"a", b"b"], 1, |_| 0)), None);
        let one = index(&[b"a"], 0);
        assert_eq!(fences(&one[..one.len() - 1]), None);
        assert_eq!(fences(&index(&[b"a", b"b"], 1 << 33)), None);
        assert_eq!(fences(BlockBuilder::new(4).finish()), None);
        let mut builder = BlockBuilder::new(4);
        for (user, handle) in
            [("a", BlockHandle { offset: 64, len: 100 }), ("b", BlockHandle { offset: 163, len: 9 })]
        {
            let mut value = Vec::new();
            handle.encode(&mut value);
            builder.add(InternalKey::new(user.as_bytes(), Tag::newest_at(0)), &value, false);
        }
        assert_eq!(fences(builder.finish()), None);
    }
}
