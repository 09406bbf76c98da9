//! Builds the payload of a data or index block, entry by entry: `(add)* finish`.
//!
//! ```text
//! payload   entry* · hash index? · restart offsets
//! ```
//!
//! A restart is an entry that shares no bytes with the previous one; the list at the end ([`trailer`](super::trailer))
//! has its offset. The first entry and then every `interval`th are restarts. The interval is at most
//! [`RESTART_INTERVAL_MAX`], which bounds the memory of backward readers.
//!
//! In a data block, the interval is 4 or 8 if a restart's offset and unshared bytes are at most a 64th of the bytes
//! before it, else 16. If entries average at least 64 bytes, the block has a hash index, one byte per entry.

use crate::codec::put_u32;
use crate::key::{InternalKey, common_prefix, replace_rest};

use super::entry::{EncodedHead, HEAD_BYTES_MAX, encode};
use super::trailer::{RESTART_INTERVAL_MAX, hash_byte, last_number};

const INDEX_INTERVAL: usize = 4;

const CHEAP_INTERVALS: [usize; 2] = [4, 8];

/// A search structure is cheap if it adds at most one byte to this many.
const CHEAP_PART: usize = 64;

/// With more entries, hash bytes would repeat too often, and a search by restarts is faster.
const HASHED_ENTRIES_MAX: usize = 256;

const OFFSET_BYTES: usize = 4;

/// Keys must strictly ascend.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    aids: Aids,
    shape: Shape,
    payload: Vec<u8>,
    restarts: Vec<u32>,
    hash_bytes: Vec<u8>,
    /// The last user key; from the previous block until an entry is added.
    last_user_key: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    interval: usize,
    restarts: usize,
    since_restart: usize,
}

impl Shape {
    fn empty(interval: usize) -> Self {
        Self { interval, restarts: 0, since_restart: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aids {
    Restarts,
    #[cfg(any(test, fuzzing))]
    HashIndex,
    Cheap,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    shared: usize,
    head: EncodedHead,
    shape: Shape,
    entries_len: usize,
}

impl BlockBuilder {
    pub(crate) fn for_data() -> Self {
        Self { aids: Aids::Cheap, ..Self::new(RESTART_INTERVAL_MAX) }
    }

    pub(crate) fn for_index() -> Self {
        Self::new(INDEX_INTERVAL)
    }

    pub(crate) fn new(interval: usize) -> Self {
        debug_assert!((1..=RESTART_INTERVAL_MAX).contains(&interval));
        Self {
            aids: Aids::Restarts,
            shape: Shape::empty(interval),
            payload: Vec::new(),
            restarts: Vec::new(),
            hash_bytes: Vec::new(),
            last_user_key: Vec::new(),
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn with_hash_index(interval: usize) -> Self {
        Self { aids: Aids::HashIndex, ..Self::new(interval) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    pub(crate) fn size(&self) -> usize {
        self.size_of(self.payload.len(), self.shape)
    }

    pub(crate) fn entries_len(&self) -> usize {
        self.payload.len()
    }

    pub(crate) fn size_with(&self, key: InternalKey<'_>, value_len: usize) -> usize {
        let place = self.place(key, value_len, false, self.common(key.user));
        self.size_of(place.entries_len, place.shape)
    }

    pub(crate) fn last_user_key(&self) -> &[u8] {
        &self.last_user_key
    }

    #[inline(always)]
    pub(crate) fn common(&self, user_key: &[u8]) -> usize {
        common_prefix(&self.last_user_key, user_key)
    }

    /// If `chunked`, the value is an encoded [`ChunkRef`](super::ChunkRef). `common`: see [`BlockBuilder::common`].
    #[inline(always)]
    pub(crate) fn place(
        &self,
        key: InternalKey<'_>,
        value_len: usize,
        chunked: bool,
        common: usize,
    ) -> Place {
        let (shared, shape) = self.next(common);
        let unshared = key.user.len() - shared;
        let head = EncodedHead::new(shared, unshared, key.tag, value_len, chunked);
        Place { shared, head, shape, entries_len: self.payload.len() + head.len + unshared + value_len }
    }

    pub(crate) fn fits(&self, place: &Place, size_max: usize) -> bool {
        self.size_of(place.entries_len, place.shape) <= size_max
    }

    fn size_of(&self, entries_len: usize, shape: Shape) -> usize {
        entries_len + shape.restarts * (self.hash_interval(entries_len, shape) + OFFSET_BYTES) + 4
    }

    fn hash_interval(&self, entries_len: usize, shape: Shape) -> usize {
        let interval = if shape.restarts > 1 { shape.interval } else { shape.since_restart };
        let is_there = match self.aids {
            Aids::Restarts => false,
            #[cfg(any(test, fuzzing))]
            Aids::HashIndex => true,
            Aids::Cheap => {
                let bytes = shape.restarts * interval;
                bytes <= HASHED_ENTRIES_MAX && bytes * CHEAP_PART <= entries_len
            }
        };
        if is_there { interval } else { 0 }
    }

    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8], chunked: bool) {
        self.add_at(&self.place(key, value.len(), chunked, self.common(key.user)), key, value);
    }

    /// Adds an entry. An upper bound of the size usually decides, without a [`Place`].
    #[inline(always)]
    pub(crate) fn add_with_room(
        &mut self,
        key: InternalKey<'_>,
        value: &[u8],
        common: usize,
        size_max: usize,
    ) -> bool {
        let entries_len = self.payload.len() + HEAD_BYTES_MAX + key.user.len() + value.len();
        let most = entries_len + entries_len / CHEAP_PART + (self.restarts.len() + 1) * OFFSET_BYTES + 4;
        if most > size_max || self.aids != Aids::Cheap {
            return false;
        }
        self.add_at(&self.place(key, value.len(), false, common), key, value);
        true
    }

    #[inline(always)]
    pub(crate) fn add_at(&mut self, place: &Place, key: InternalKey<'_>, value: &[u8]) {
        let &Place { shared, ref head, shape, .. } = place;
        if shape.restarts > self.restarts.len() {
            self.restarts.push(self.payload.len() as u32);
        }
        self.shape = shape;
        let suffix = &key.user[shared..];
        encode(&mut self.payload, head, suffix, value);
        if self.aids != Aids::Restarts {
            self.hash_bytes.push(hash_byte(key.user));
        }
        replace_rest(&mut self.last_user_key, shared, suffix);
    }

    pub(crate) fn finish(&mut self) -> &[u8] {
        let interval = self.hash_interval(self.payload.len(), self.shape);
        if interval > 0 {
            self.hash_bytes.resize(self.restarts.len() * interval, 0);
            self.payload.extend_from_slice(&self.hash_bytes);
        }
        for &restart in &self.restarts {
            put_u32(&mut self.payload, restart);
        }
        put_u32(&mut self.payload, last_number(self.restarts.len(), interval));
        &self.payload
    }

    pub(crate) fn clear(&mut self) {
        let is_decided_anew = self.aids == Aids::Cheap;
        self.shape = Shape::empty(if is_decided_anew { RESTART_INTERVAL_MAX } else { self.shape.interval });
        self.payload.clear();
        self.restarts.clear();
        self.hash_bytes.clear();
    }

    #[inline(always)]
    fn next(&self, common: usize) -> (usize, Shape) {
        let Shape { mut interval, restarts, since_restart } = self.shape;
        let mut shared = 0;
        let mut is_restart = restarts == 0 || since_restart == interval;
        if !is_restart {
            shared = common;
            let decides =
                self.aids == Aids::Cheap && restarts == 1 && CHEAP_INTERVALS.contains(&since_restart);
            if decides && (OFFSET_BYTES + shared) * CHEAP_PART <= self.payload.len() {
                (is_restart, shared, interval) = (true, 0, since_restart);
            }
        }
        match is_restart {
            true => (shared, Shape { interval, restarts: restarts + 1, since_restart: 1 }),
            false => (shared, Shape { interval, restarts, since_restart: since_restart + 1 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Trailer;
    use crate::key::{EntryKind, Tag};

    #[test]
    fn the_predicted_size_is_the_size() {
        let with_hash_index = BlockBuilder::with_hash_index(5);
        for mut builder in [BlockBuilder::new(4), BlockBuilder::for_data(), with_hash_index] {
            for i in 0..1000u64 {
                let key = format!("{:08}", i * i);
                let key = InternalKey::new(key.as_bytes(), Tag::new(i % 5 * 1000, EntryKind::Put));
                let value = vec![1; i as usize % 300];
                let predicted = builder.size_with(key, value.len());
                builder.add(key, &value, false);
                assert_eq!(builder.size(), predicted);
            }
            let size = builder.size();
            assert_eq!(builder.finish().len(), size);
            builder.clear();
            assert!(builder.is_empty());
            assert_eq!(builder.size(), 4);
        }
    }

    #[test]
    fn an_entry_for_which_there_is_room_is_added_as_any_other_and_fits() {
        let mut had_room = 0;
        for (value_len, size_max) in (0..300).zip((100..).step_by(20)) {
            let (mut quick, mut exact) = (BlockBuilder::for_data(), BlockBuilder::for_data());
            for number in 0.. {
                let key = format!("{:07}", number * value_len * value_len);
                let key = InternalKey::new(key.as_bytes(), Tag::new(number as u64 % 300, EntryKind::Put));
                let value = vec![7; value_len * (number % 3)];
                let common = quick.common(key.user);
                let fits = exact.fits(&exact.place(key, value.len(), false, common), size_max);
                if !quick.add_with_room(key, &value, common, size_max) {
                    break;
                }
                assert!(fits, "values of {value_len}");
                exact.add(key, &value, false);
                had_room += 1;
            }
            assert_eq!(quick.finish(), exact.finish(), "values of {value_len}");
        }
        assert!(had_room > 1000, "{had_room}");
        let key = InternalKey::new(b"key", Tag::newest_at(0));
        assert!(!BlockBuilder::for_index().add_with_room(key, b"", 0, 4096));
    }

    #[test]
    fn a_block_of_many_entries_has_no_hash_index() {
        for (entries, hash_bytes) in [(256, 256), (257, 0), (10_000, 0)] {
            let mut builder = BlockBuilder::for_data();
            for number in 0..entries as u32 {
                let key = InternalKey { user: &number.to_be_bytes(), tag: Tag::newest_at(0) };
                builder.add(key, &[1; 300], false);
            }
            assert_eq!(Trailer::of(builder.finish()).unwrap().hash_bytes().len(), hash_bytes, "{entries}");
        }
    }

    /// Builds a data block of a hundred entries and returns the number of restarts, the bytes of the hash index, and
    /// the bytes of the block.
    fn shape(mut builder: BlockBuilder, key: fn(u64) -> Vec<u8>, value_len: usize) -> (usize, usize, usize) {
        for number in 0..100 {
            let key = key(number);
            let key = InternalKey::new(&key, Tag::new(0, EntryKind::Put));
            builder.add(key, &vec![1; value_len], false);
        }
        let payload = builder.finish();
        let trailer = Trailer::of(payload).unwrap();
        (trailer.restart_count(), trailer.hash_bytes().len(), payload.len())
    }

    #[test]
    fn restarts_are_dense_and_a_hash_index_is_there_where_that_is_cheap() {
        let differ: fn(u64) -> Vec<u8> = |number| vec![number as u8 + 1; 16];
        let share: fn(u64) -> Vec<u8> = |number| format!("https://example.org/{number:04}").into_bytes();
        for (key, value_len, restarts, hash_bytes) in [
            (differ, 100, 25, 100),
            (differ, 20, 13, 0),
            (differ, 4, 7, 0),
            (share, 100, 7, 112),
            (share, 2000, 25, 100),
        ] {
            let (found, found_bytes, bytes) = shape(BlockBuilder::for_data(), key, value_len);
            assert_eq!((found, found_bytes), (restarts, hash_bytes), "values of {value_len}");
            let (least, none, least_bytes) = shape(BlockBuilder::new(16), key, value_len);
            assert!(
                (least, none) == (7, 0) && bytes <= least_bytes + least_bytes / 32,
                "{bytes}, {least_bytes}"
            );
        }
    }

    #[test]
    fn the_hash_index_of_a_block_with_few_entries_has_a_byte_for_each() {
        for entries in 1..=4 {
            let mut builder = BlockBuilder::for_data();
            for number in 0..entries {
                builder.add(InternalKey::new(&[number as u8], Tag::newest_at(0)), &[1; 900], false);
            }
            assert_eq!(Trailer::of(builder.finish()).unwrap().hash_bytes().len(), entries);
        }
    }
}
