//! Builds the payload of a data or index block, entry by entry: `(add)* finish`.
//!
//! ```text
//! payload   entry* · restart offset u32 * n · n u32
//! ```
//!
//! Every `interval` entries one is a restart: it shares nothing with the entry before, and its offset in the
//! payload is in the list at the end. A search is binary over the restarts, then linear. The first entry is
//! always a restart. The interval is the writer's choice and not stored, but never more than
//! [`RESTART_INTERVAL_MAX`]: that bounds what a reader holds to walk backwards.

use crate::codec::{put_u32, varint_len};
use crate::key::InternalKey;

use super::entry::{common_prefix, encode};

/// Entries between restarts in a data block.
pub(crate) const DATA_RESTART_INTERVAL: usize = 16;

/// Entries between restarts in an index block. Fewer, because an index block is searched often.
pub(crate) const INDEX_RESTART_INTERVAL: usize = 4;

/// Most entries from one restart to the next in any block.
pub(super) const RESTART_INTERVAL_MAX: usize = 16;

/// A block that is being built. The caller adds keys in strictly ascending order.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    interval: usize,
    payload: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    last_user_key: Vec<u8>,
}

impl BlockBuilder {
    pub(crate) fn new(interval: usize) -> Self {
        debug_assert!((1..=RESTART_INTERVAL_MAX).contains(&interval));
        Self {
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
        self.payload.len() + 4 * self.restarts.len() + 4
    }

    /// Length of the payload with one more entry.
    pub(crate) fn size_with(&self, key: InternalKey<'_>, value_len: usize) -> usize {
        let shared = self.shared_with(key.user);
        let unshared = key.user.len() - shared;
        let numbers = [shared as u64, unshared as u64, key.tag.to_u64(), (value_len as u64) << 1];
        let head: usize = numbers.iter().map(|&n| varint_len(n)).sum();
        let restart = if self.restart_is_due() { 4 } else { 0 };
        self.size() + head + unshared + value_len + restart
    }

    /// Appends an entry; `chunked` says that `value` is an encoded [`ChunkRef`](super::ChunkRef).
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8], chunked: bool) {
        let shared = self.shared_with(key.user);
        if self.restart_is_due() {
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

    fn restart_is_due(&self) -> bool {
        self.is_empty() || self.since_restart == self.interval
    }

    fn shared_with(&self, user: &[u8]) -> usize {
        if self.restart_is_due() { 0 } else { common_prefix(&self.last_user_key, user) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{EntryKind, Tag};

    #[test]
    fn the_predicted_size_is_the_size() {
        let mut builder = BlockBuilder::new(4);
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
