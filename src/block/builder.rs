//! Builds the payload of a data or index block, entry by entry: `(add)* finish`.
//!
//! ```text
//! payload   entry* · restart offset u32 * n · n u32
//! ```
//!
//! A restart is an entry that shares nothing with the entry before; its offset in the payload is in the list at
//! the end. A search is binary over the restarts, then linear. The first entry is always a restart. Where others
//! are is the writer's choice and not stored, but there are never more than [`RESTART_INTERVAL_MAX`] entries from
//! one to the next: that bounds what a reader holds to walk backwards.
//!
//! In a data block a restart is made as soon as it is cheap: after [`CHEAP_INTERVAL`] entries, if its offset and
//! the bytes that it does not share are a 64th of what was written since the last one. So a lookup passes two or
//! three entries where keys share little or values are long, for one byte an entry; where much is shared,
//! restarts are rare. (A hash index of the block would take as many bytes, and lead to a restart too.)

use crate::codec::{put_u32, varint_len};
use crate::key::InternalKey;

use super::entry::{common_prefix, encode};

/// Entries between restarts in an index block, which is searched often.
const INDEX_INTERVAL: usize = 4;

/// Fewest entries between restarts in a data block.
const CHEAP_INTERVAL: usize = 4;

/// A restart is cheap if it adds at most one byte to so many.
const CHEAP_PART: usize = 64;

/// Most entries from one restart to the next in any block.
pub(super) const RESTART_INTERVAL_MAX: usize = 16;

/// Bytes of a restart offset.
const OFFSET_BYTES: usize = 4;

/// A block that is being built. The caller adds keys in strictly ascending order.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    /// Entries after which a restart is made if it is cheap, and in any case.
    cheap_interval: usize,
    interval: usize,
    payload: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    last_user_key: Vec<u8>,
}

impl BlockBuilder {
    /// For a data block.
    pub(crate) fn for_data() -> Self {
        Self { cheap_interval: CHEAP_INTERVAL, ..Self::new(RESTART_INTERVAL_MAX) }
    }

    /// For an index block.
    pub(crate) fn for_index() -> Self {
        Self::new(INDEX_INTERVAL)
    }

    /// With a restart every `interval` entries.
    pub(crate) fn new(interval: usize) -> Self {
        debug_assert!((1..=RESTART_INTERVAL_MAX).contains(&interval));
        Self {
            cheap_interval: interval,
            interval,
            payload: Vec::new(),
            restarts: Vec::new(),
            since_restart: 0,
            last_user_key: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// Length of the payload if it were finished now.
    pub(crate) fn size(&self) -> usize {
        self.payload.len() + OFFSET_BYTES * self.restarts.len() + 4
    }

    /// Length of the payload with one more entry.
    pub(crate) fn size_with(&self, key: InternalKey<'_>, value_len: usize) -> usize {
        let (shared, is_restart) = self.shared_with(key.user);
        let unshared = key.user.len() - shared;
        let numbers = [shared as u64, unshared as u64, key.tag.to_u64(), (value_len as u64) << 1];
        let head: usize = numbers.iter().map(|&n| varint_len(n)).sum();
        let restart = if is_restart { OFFSET_BYTES } else { 0 };
        self.size() + head + unshared + value_len + restart
    }

    /// Appends an entry; `chunked` says that `value` is an encoded [`ChunkRef`](super::ChunkRef).
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8], chunked: bool) {
        let (shared, is_restart) = self.shared_with(key.user);
        if is_restart {
            self.restarts.push(self.payload.len() as u32);
            self.since_restart = 0;
        }
        encode(&mut self.payload, shared, &key.user[shared..], key.tag, value, chunked);
        self.since_restart += 1;
        self.last_user_key.truncate(shared);
        self.last_user_key.extend_from_slice(&key.user[shared..]);
    }

    /// The finished payload. [`BlockBuilder::clear`] makes the builder ready for the next one.
    pub(crate) fn finish(&mut self) -> &[u8] {
        for &restart in &self.restarts {
            put_u32(&mut self.payload, restart);
        }
        put_u32(&mut self.payload, self.restarts.len() as u32);
        &self.payload
    }

    /// Removes all entries and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        self.restarts.clear();
        self.since_restart = 0;
        self.last_user_key.clear();
    }

    /// How many bytes the next entry shares with the last one, and whether it is a restart, which shares none.
    fn shared_with(&self, user: &[u8]) -> (usize, bool) {
        let Some(&restart) = self.restarts.last() else { return (0, true) };
        if self.since_restart == self.interval {
            return (0, true);
        }
        let shared = common_prefix(&self.last_user_key, user);
        let written = self.payload.len() - restart as usize;
        let is_cheap = (OFFSET_BYTES + shared) * CHEAP_PART <= written;
        if self.since_restart >= self.cheap_interval && is_cheap { (0, true) } else { (shared, false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{EntryKind, Tag};

    #[test]
    fn the_predicted_size_is_the_size() {
        for mut builder in [BlockBuilder::new(4), BlockBuilder::for_data()] {
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

    /// How many restarts and how many bytes a data block of a hundred entries has.
    fn restarts_and_bytes(
        mut builder: BlockBuilder,
        key: fn(u64) -> Vec<u8>,
        value_len: usize,
    ) -> (usize, usize) {
        for number in 0..100 {
            let key = key(number);
            let key = InternalKey::new(&key, Tag::new(0, EntryKind::Put));
            builder.add(key, &vec![1; value_len], false);
        }
        (builder.restarts.len(), builder.finish().len())
    }

    #[test]
    fn restarts_are_dense_where_they_are_cheap_and_rare_where_they_are_not() {
        let differ: fn(u64) -> Vec<u8> = |number| vec![number as u8 + 1; 16];
        let share: fn(u64) -> Vec<u8> = |number| format!("https://example.org/{number:04}").into_bytes();
        for (key, value_len, restarts) in
            [(differ, 100, 25), (differ, 4, 10), (share, 100, 7), (share, 2000, 25)]
        {
            let (found, bytes) = restarts_and_bytes(BlockBuilder::for_data(), key, value_len);
            assert_eq!(found, restarts, "values of {value_len}");
            let (least, least_bytes) = restarts_and_bytes(BlockBuilder::new(16), key, value_len);
            assert!(least == 7 && bytes <= least_bytes + least_bytes / 50, "{bytes}, {least_bytes}");
        }
    }
}
