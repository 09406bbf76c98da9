//! The separators of an index block, side by side, to be searched in a few cache lines.
//!
//! ```text
//! common   the first bytes of all separators
//! parts    of each separator the next eight bytes, as a number
//! starts   of each block that is referred to where it starts, and where the last one ends
//! ```
//!
//! Twelve bytes for each block. If the parts do not decide, because a separator and the sought key are equal
//! in them, the index block has to be searched. Blocks that do not lie one behind the other (in front of a data
//! block may be chunks of long values), or that together have 4 GiB, have no fences.

use super::entry::common_prefix;
use super::handle::BlockHandle;
use super::iter::BlockValues;
use super::walk::walk_entries;
use crate::codec::DecodeError;
use crate::key::key_prefix;

/// The separators and handles of an index block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fences {
    common: Box<[u8]>,
    parts: Box<[u64]>,
    /// Where the first block starts.
    first: u64,
    /// One more than there are parts, counted from `first`.
    starts: Box<[u32]>,
}

/// What fences say of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sought {
    /// The separator with this number is the first one not before the key.
    In(usize),
    /// All separators are before the key.
    PastEnd,
    /// The index block has to be searched.
    Unknown,
}

impl Fences {
    /// The fences of an index block; `None` if it can have none, or is damaged: its searches tell how.
    pub(crate) fn of(payload: &[u8]) -> Option<Self> {
        let (mut keys, mut ends, mut handles) = (Vec::new(), Vec::new(), Vec::new());
        let walked = walk_entries::<DecodeError>(BlockValues::Index, payload, &mut |entry| {
            keys.extend_from_slice(entry.key.user);
            ends.push(keys.len());
            handles.push(BlockHandle::decode(entry.value)?);
            Ok(())
        });
        walked.ok()?;
        let (first, last) = (handles.first()?, handles.last()?);
        let key = |index: usize| &keys[index.checked_sub(1).map_or(0, |before| ends[before])..ends[index]];
        // Keys ascend, so what the first and the last share, all do.
        let common = &key(0)[..common_prefix(key(0), key(ends.len() - 1))];
        let parts = (0..ends.len()).map(|index| key_prefix(&key(index)[common.len()..])).collect();
        let mut starts = Vec::with_capacity(handles.len() + 1);
        let mut expected = first.offset;
        for handle in &handles {
            // Two that start at one place could not be told from each other.
            if handle.offset != expected || handle.len == 0 {
                return None;
            }
            starts.push(u32::try_from(handle.offset - first.offset).ok()?);
            expected = handle.offset.checked_add(handle.len)?;
        }
        starts.push(u32::try_from(last.offset.checked_add(last.len)? - first.offset).ok()?);
        Some(Self { common: common.into(), parts, first: first.offset, starts: starts.into() })
    }

    /// Where a user key belongs, with any sequence number.
    #[inline]
    pub(crate) fn find(&self, user_key: &[u8]) -> Sought {
        let Some(rest) = user_key.strip_prefix(&*self.common) else {
            // It is before all separators or after them.
            return if user_key < &*self.common { Sought::In(0) } else { Sought::PastEnd };
        };
        let part = key_prefix(rest);
        let index = self.parts.partition_point(|&other| other < part);
        match self.parts.get(index) {
            Some(&other) if other == part => Sought::Unknown,
            Some(_) => Sought::In(index),
            None => Sought::PastEnd,
        }
    }

    /// The block with this number.
    pub(crate) fn handle(&self, index: usize) -> BlockHandle {
        let (start, end) = (self.starts[index], self.starts[index + 1]);
        BlockHandle { offset: self.first + u64::from(start), len: u64::from(end - start) }
    }

    /// The number of a block.
    pub(crate) fn number_of(&self, block: BlockHandle) -> Option<usize> {
        let start = u32::try_from(block.offset.checked_sub(self.first)?).ok()?;
        self.starts.binary_search(&start).ok()
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// What they take in memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.common.len() + size_of_val(&*self.parts) + size_of_val(&*self.starts)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::block::{BlockBuilder, find};
    use crate::key::{EntryKind, InternalKey, Tag};

    fn index(separators: &[&[u8]], gap: u64) -> Bytes {
        index_of(separators, gap, |_| 4000)
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
        let pools: [&[&[u8]]; 4] = [
            &[b""],
            &[b"a", b"b", b"bcdefghijk", b"bcdefghijkl", b"c"],
            &[b"user:1", b"user:12345678", b"user:123456789", b"user:2", b"user:2\0"],
            &[
                b"",
                b"\0",
                b"\0\0",
                b"\xff\xff\xff\xff\xff\xff\xff\xff",
                b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            ],
        ];
        let (mut known, mut unknown) = (0, 0);
        for separators in pools {
            let payload = index(separators, 0);
            let fences = Fences::of(&payload).unwrap();
            assert_eq!(fences.len(), separators.len());
            assert!((0..fences.len()).all(|index| fences.number_of(fences.handle(index)) == Some(index)));
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
    fn blocks_with_gaps_and_damaged_index_blocks_have_no_fences() {
        assert_eq!(Fences::of(&index(&[b"a", b"b"], 1)), None);
        assert_eq!(Fences::of(&index(&[b"b", b"a"], 0)), None);
        assert_eq!(Fences::of(&index_of(&[b"a", b"b"], 0, |number| number as u64 * 4000)), None);
        let one = index(&[b"a"], 0);
        assert_eq!(Fences::of(&one[..one.len() - 1]), None);
        let far = index(&[b"a", b"b"], 1 << 33);
        assert_eq!(Fences::of(&far), None);
    }
}
