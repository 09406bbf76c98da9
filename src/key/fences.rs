//! Ascending keys in searchable form. A search touches a few cache lines, and reads common bytes of keys only once.
//!
//! ```text
//! common   the common first bytes of all keys
//! parts    for each key the next eight bytes, as a number
//! groups   keys with equal parts, and fences of the bytes behind these parts
//! ```
//!
//! A group has one or more keys with bytes after their parts. Groups exist as far as there is room. If the part of the
//! searched key belongs to keys without a group, the keys themselves must be compared.

use std::cmp::Ordering;

use super::{common_prefix, key_prefix};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyFences {
    common: Box<[u8]>,
    parts: Box<[u64]>,
    groups: Box<[Group]>,
}

#[derive(Debug, PartialEq, Eq)]
struct Group {
    start: u32,
    behind: Behind,
}

#[derive(Debug, PartialEq, Eq)]
enum Behind {
    One(Box<[u8]>),
    Several(Box<KeyFences>),
}

pub(crate) const PART_BYTES: usize = size_of::<u64>();

const DEPTH_MAX: usize = 16;

impl KeyFences {
    /// Groups take at most `room` bytes. `rests` has the bytes after the common ones, for the first keys or for all
    /// keys. Only these keys can be in groups.
    pub(crate) fn new(common: Box<[u8]>, parts: Box<[u64]>, rests: &[&[u8]], mut room: usize) -> Self {
        let groups = Self::groups(&parts, rests, PART_BYTES, DEPTH_MAX, &mut room);
        Self { common, parts, groups }
    }

    fn groups(parts: &[u64], keys: &[&[u8]], skipped: usize, depth: usize, room: &mut usize) -> Box<[Group]> {
        let (mut groups, mut end) = (Vec::new(), 0);
        for equal in parts.chunk_by(|a, b| a == b) {
            let start = end;
            end += equal.len();
            let Some(keys) = keys.get(start..end) else { break };
            let behind = Behind::of(keys, skipped, depth, room);
            groups.extend(behind.map(|behind| Group { start: start as u32, behind }));
        }
        groups.into()
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The memory in bytes, without the fences themselves.
    pub(crate) fn bytes(&self) -> usize {
        let groups = self.groups.iter().map(|group| size_of::<Group>() + group.behind.bytes());
        self.common.len() + size_of_val(&*self.parts) + groups.sum::<usize>()
    }

    /// Returns the number of the first key at or after `key`, or `None` if the keys must be compared.
    #[inline]
    pub(crate) fn find(&self, mut key: &[u8]) -> Option<usize> {
        let (mut level, mut before) = (self, 0);
        loop {
            let Some(rest) = key.strip_prefix(&*level.common) else {
                return Some(before + if key < &*level.common { 0 } else { level.parts.len() });
            };
            let part = key_prefix(rest);
            let index = level.parts.partition_point(|&other| other < part);
            if level.parts.get(index).is_none_or(|&other| other != part) {
                return Some(before + index);
            }
            let group = level.groups.binary_search_by_key(&(index as u32), |group| group.start).ok()?;
            (key, before) = (rest.get(PART_BYTES..)?, before + index);
            level = match &level.groups[group].behind {
                Behind::Several(level) => level,
                Behind::One(other) => {
                    return match key.cmp(other) {
                        Ordering::Less => Some(before),
                        Ordering::Greater => Some(before + 1),
                        Ordering::Equal => None,
                    };
                }
            }
        }
    }
}

impl Behind {
    /// Returns `None` if there is too little room, or for shorter keys: their padded parts may equal parts of other
    /// keys.
    fn of(keys: &[&[u8]], skipped: usize, depth: usize, room: &mut usize) -> Option<Self> {
        let keys_behind = || keys.iter().map(|key| key.get(skipped..));
        let (first, last) = (keys_behind().next()??, keys_behind().next_back()??);
        let common = &first[..common_prefix(first, last)];
        let is_one = keys.len() == 1;
        let level_bytes = if is_one { 0 } else { size_of::<KeyFences>() + keys.len() * PART_BYTES };
        if depth == 0 || (is_one && first.is_empty()) || keys_behind().any(|key| key.is_none()) {
            return None;
        }
        *room = room.checked_sub(size_of::<Group>() + common.len() + level_bytes)?;
        if is_one {
            return Some(Self::One(first.into()));
        }
        let skipped = skipped + common.len();
        let parts: Box<[u64]> = keys.iter().map(|key| key_prefix(&key[skipped..])).collect();
        let groups = KeyFences::groups(&parts, keys, skipped + PART_BYTES, depth - 1, room);
        Some(Self::Several(Box::new(KeyFences { common: common.into(), parts, groups })))
    }

    fn bytes(&self) -> usize {
        match self {
            Self::One(bytes) => bytes.len(),
            Self::Several(level) => size_of::<KeyFences>() + level.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Vec<Vec<u8>> {
        let mut random = 5u64;
        let mut below = |most: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % most
        };
        let words: [&[u8]; 5] = [b"usr/share/", b"a", b"locale/de_DE/LC_MESSAGES/", b"x\0", b"/"];
        let key = |_| (0..1 + below(5)).flat_map(|_| words[below(5) as usize]).copied().collect();
        let mut keys: Vec<Vec<u8>> = (0..300).map(key).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    fn fences(keys: &[&[u8]], room: usize) -> KeyFences {
        let common = match keys {
            [first, .., last] => &first[..common_prefix(first, last)],
            _ => &[],
        };
        let rests: Vec<&[u8]> = keys.iter().map(|key| &key[common.len()..]).collect();
        let parts = rests.iter().map(|rest| key_prefix(rest)).collect();
        KeyFences::new(common.into(), parts, &rests, room)
    }

    #[test]
    fn fences_lead_to_the_first_key_at_or_after_any_other_that_no_zeros_distinguish() {
        let keys = keys();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let (all, none) = (fences(&keys, usize::MAX), fences(&keys, 0));
        let (mut known, mut known_without_groups) = (0, 0);
        for key in &keys {
            for searched in [key.to_vec(), [key, &b"0"[..]].concat(), key[..key.len() - 1].to_vec()] {
                let expected = keys.partition_point(|key| *key < &searched[..]);
                for (fences, known) in [(&all, &mut known), (&none, &mut known_without_groups)] {
                    let found = fences.find(&searched);
                    assert!(found.is_none_or(|found| found == expected), "{searched:?}: {found:?}");
                    *known += usize::from(found.is_some());
                }
                let is_key = keys.contains(&&searched[..]);
                let has_zeros = keys.iter().any(|key| key.starts_with(&searched) && key.contains(&0));
                assert!(is_key || has_zeros || all.find(&searched).is_some(), "{searched:?}");
            }
        }
        assert!(
            known > 2 * known_without_groups && known_without_groups > 0,
            "{known}, {known_without_groups}"
        );
        assert_eq!(fences(&[], 9).find(b"a"), Some(0));
    }

    #[test]
    fn groups_take_no_more_room_than_there_is_however_deep_they_are() {
        for (len, room) in [(2, 100), (5, 1000), (200, 1000), (200, 1 << 20)] {
            let keys: Vec<Vec<u8>> = (1..=len).map(|len| b"12345678".repeat(len)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let found = fences(&keys, room);
            let (mut depth, mut level) = (0, &found);
            while let Some(Group { behind: Behind::Several(below), .. }) = level.groups.first() {
                (level, depth) = (below, depth + 1);
            }
            let is_as_deep = if room == 1 << 20 { depth == DEPTH_MAX } else { depth < DEPTH_MAX };
            assert!(is_as_deep && (len != 5 || depth > 1), "{depth} of {len}");
            assert!(found.bytes() <= 8 + 8 * len + room);
            assert_eq!((found.find(b"1"), found.find(b"2")), (Some(0), Some(len)));
        }
    }
}
