//! The search structures after the entries of a block: an optional hash index, and the restarts.
//!
//! ```text
//! payload   entry* · restart offset u32 * n · n u32
//!           entry* · hash byte u8 * (n * interval) · restart offset u32 * n · n u24 · interval u8
//! ```
//!
//! The interval is 1 to [`RESTART_INTERVAL_MAX`], so the last byte is nonzero if and only if there is a hash index.
//! Then every `interval`th entry is a restart. The hash bytes ([`hash_byte`]) of all user keys, in order, are followed
//! by zeros. A lookup searches them, eight at a time: entry number `e` is the entry `e % interval` after restart `e /
//! interval`. One in 256 of the other keys matches too.
//!
//! Only [`walk_entries`](super::walk_entries) verifies a hash index. A wrong hash index hides an entry, like a wrong
//! separator.

use byteorder::{ByteOrder, LittleEndian};
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::DecodeError;

pub(super) const RESTART_INTERVAL_MAX: usize = 16;

const INTERVAL_SHIFT: u32 = 24;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Trailer<'a> {
    pub(crate) entries: &'a [u8],
    behind: &'a [u8],
    hash_bytes: usize,
    pub(crate) interval: usize,
    pub(crate) restarts: &'a [u8],
}

impl<'a> Trailer<'a> {
    #[inline]
    pub(crate) fn of(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let Some((rest, last)) = payload.split_last_chunk::<4>() else { return Err(no_restarts(payload)) };
        let (count, interval) = split(LittleEndian::read_u32(last));
        let (hash_bytes, restart_bytes) = (count * interval, count * 4);
        let behind = hash_bytes + restart_bytes;
        if count == 0 || interval > RESTART_INTERVAL_MAX || behind >= rest.len() {
            return Err(no_restarts(payload));
        }
        let (entries, behind) = payload.split_at(rest.len() - behind);
        let restarts = &behind[hash_bytes..hash_bytes + restart_bytes];
        Ok(Self { entries, behind, hash_bytes, interval, restarts })
    }

    pub(crate) fn hash_bytes(&self) -> &'a [u8] {
        &self.behind[..self.hash_bytes]
    }

    pub(crate) fn restarts_at(&self) -> usize {
        self.entries.len() + self.hash_bytes
    }

    pub(crate) fn restart_count(&self) -> usize {
        self.restarts.len() / 4
    }

    #[inline]
    pub(super) fn restart(&self, index: usize) -> Result<usize, DecodeError> {
        let at = self.restarts_at() + 4 * index;
        restart_offset(&self.restarts[4 * index..], self.entries.len(), at)
    }

    #[inline]
    pub(super) fn group_len(&self, index: usize, start: usize) -> usize {
        let next = self.restarts.get(4 * index + 4..).and_then(<[u8]>::first_chunk::<4>);
        let end = next.map_or(self.entries.len(), |next| LittleEndian::read_u32(next) as usize);
        end.min(self.entries.len()).saturating_sub(start)
    }

    #[inline]
    pub(super) fn next_with(&self, hash_byte: u8, from: usize) -> Option<usize> {
        const LOW: u64 = 0x0101_0101_0101_0101;
        let mut number = from;
        while number < self.hash_bytes {
            let word = LittleEndian::read_u64(self.behind[number..].first_chunk::<8>()?);
            // A matching byte is 0 in `other`. The lowest set bit of `equal` marks the first match.
            let other = word ^ (LOW * u64::from(hash_byte));
            let equal = other.wrapping_sub(LOW) & !other & (LOW << 7);
            if equal != 0 {
                number += equal.trailing_zeros() as usize / 8;
                return (number < self.hash_bytes).then_some(number);
            }
            number += 8;
        }
        None
    }
}

#[inline]
fn split(last: u32) -> (usize, usize) {
    ((last & ((1 << INTERVAL_SHIFT) - 1)) as usize, (last >> INTERVAL_SHIFT) as usize)
}

#[cold]
fn no_restarts(payload: &[u8]) -> DecodeError {
    let at = payload.len().saturating_sub(4);
    let detail = match payload.last_chunk::<4>() {
        None => format!("{} bytes are no block", payload.len()),
        Some(last) => {
            let (count, interval) = split(LittleEndian::read_u32(last));
            format!("{count} restarts, interval {interval}, in a block of {} bytes", payload.len())
        }
    };
    DecodeError::corrupt(at as u64, "restart count", detail)
}

#[inline(always)]
pub(super) fn restart_offset(bytes: &[u8], entries: usize, at: usize) -> Result<usize, DecodeError> {
    let offset = LittleEndian::read_u32(bytes) as usize;
    if offset < entries { Ok(offset) } else { Err(restart_behind(offset, entries, at)) }
}

#[cold]
fn restart_behind(offset: usize, entries: usize, at: usize) -> DecodeError {
    let detail = format!("{offset}, but the entries end at {entries}");
    DecodeError::corrupt(at as u64, "restart offset", detail)
}

pub(super) fn has_hash_index(payload: &[u8]) -> bool {
    payload.last().is_some_and(|&interval| interval != 0)
}

/// The low byte of the key's XXH3-64 with seed 0.
#[inline]
pub(super) fn hash_byte(user_key: &[u8]) -> u8 {
    xxh3_64(user_key) as u8
}

pub(super) fn last_number(restarts: usize, interval: usize) -> u32 {
    ((interval as u32) << INTERVAL_SHIFT) | restarts as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockBuilder, BlockIter, BlockValues};
    use crate::key::{EntryKind, InternalKey, Tag};

    fn payload(entries: usize, interval: usize) -> Vec<u8> {
        let mut builder = BlockBuilder::with_hash_index(interval);
        for number in 0..entries {
            let key = format!("{number:05}");
            builder.add(InternalKey::new(key.as_bytes(), Tag::new(1, EntryKind::Put)), b"v", false);
        }
        builder.finish().to_vec()
    }

    #[test]
    fn every_entry_with_a_hash_byte_is_found_in_order_and_nothing_behind_the_last() {
        for (entries, interval) in [(1, 16), (3, 4), (16, 16), (70, 4), (700, 5)] {
            let payload = payload(entries, interval);
            let trailer = Trailer::of(&payload).unwrap();
            let bytes = trailer.hash_bytes();
            assert!(bytes.len() >= entries && bytes.len() < entries + interval);
            for byte in 0..=255 {
                let expected: Vec<usize> = (0..bytes.len()).filter(|&number| bytes[number] == byte).collect();
                let mut found = Vec::new();
                while let Some(number) = trailer.next_with(byte, found.last().map_or(0, |last| last + 1)) {
                    found.push(number);
                }
                assert_eq!(found, expected, "{byte} of {entries}");
            }
        }
    }

    #[test]
    fn a_group_of_entries_ends_at_the_next_restart_and_within_the_entries() {
        let mut payload = payload(70, 4);
        let trailer = Trailer::of(&payload).unwrap();
        let starts: Vec<_> = (0..18).map(|index| trailer.restart(index).unwrap()).collect();
        let (end, at) = (trailer.entries.len(), trailer.restarts_at());
        for (index, &start) in starts.iter().enumerate() {
            let next = starts.get(index + 1).copied().unwrap_or(end);
            assert_eq!(trailer.group_len(index, start), next - start);
        }
        payload[at + 4 * 9..][..4].copy_from_slice(&[0xff; 4]);
        payload[at + 4 * 13..][..4].copy_from_slice(&[0; 4]);
        let trailer = Trailer::of(&payload).unwrap();
        assert_eq!(trailer.group_len(8, starts[8]), end - starts[8]);
        assert_eq!(trailer.group_len(12, starts[12]), 0);
    }

    #[test]
    fn a_hash_index_that_lies_is_refused_by_who_walks_the_entries() {
        let verify = |payload: Vec<u8>| {
            let verified = BlockIter::new(payload.into(), BlockValues::Data).and_then(|block| block.verify());
            verified.err().map(|error| (error.what, error.offset as usize))
        };
        let good = payload(30, 4);
        let (entries, hash_bytes) = {
            let trailer = Trailer::of(&good).unwrap();
            (trailer.entries.len(), trailer.hash_bytes().len())
        };
        assert_eq!((verify(good.clone()), hash_bytes), (None, 32));
        for at in entries..entries + hash_bytes {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            let expected = if at < entries + 30 { at } else { entries };
            assert_eq!(verify(bad), Some(("hash index", expected)));
        }
        let mut bad = good[..entries].to_vec();
        bad.extend_from_slice(&good[entries..entries + 24]);
        bad.extend_from_slice(&good[entries + hash_bytes..]);
        *bad.last_mut().unwrap() = 3;
        assert_eq!(verify(bad).unwrap().0, "restart interval");
        let mut bad = good.clone();
        *bad.last_mut().unwrap() = 17;
        assert_eq!(verify(bad).unwrap().0, "restart count");
    }
}
