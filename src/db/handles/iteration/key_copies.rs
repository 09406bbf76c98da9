//! Copies of the keys that a scan passes. Short ones take no allocation; others share chunks.
//!
//! A chunk is as large as all before it, up to [`CHUNK_BYTES`], so that a short scan takes little. A key that is
//! kept keeps its chunk alive, as a value keeps its block. A key of more than [`SHARED_BYTES_MAX`] has an
//! allocation of its own, unless there is room left.

use bytes::BytesMut;

use crate::db::queues::value::Value;

/// Bytes of the largest chunks.
const CHUNK_BYTES: usize = 1 << 10;

/// Bytes of the first chunk.
const FIRST_CHUNK_BYTES: usize = 64;

/// The largest key that shares a chunk with others.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES / 8;

/// Where a scan puts the keys that it yields.
#[derive(Default)]
pub(super) struct KeyCopies {
    /// The rest of the last chunk.
    room: BytesMut,
    /// The bytes of all chunks.
    chunks: usize,
}

impl KeyCopies {
    /// A copy of a key.
    #[inline]
    pub(in crate::db) fn copy(&mut self, key: &[u8]) -> Value {
        Value::short(key).unwrap_or_else(|| self.copy_long(key))
    }

    fn copy_long(&mut self, key: &[u8]) -> Value {
        if key.len() > self.room.capacity() {
            if key.len() > SHARED_BYTES_MAX {
                return Value::from(key);
            }
            self.start_chunk(key.len());
        }
        self.room.extend_from_slice(key);
        Value::new(self.room.split().freeze())
    }

    fn start_chunk(&mut self, least: usize) {
        let bytes = self.chunks.clamp(FIRST_CHUNK_BYTES, CHUNK_BYTES).max(least);
        self.room = BytesMut::with_capacity(bytes);
        self.chunks += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_keys_of_all_lengths_stay_as_they_were() {
        let keys: Vec<Vec<u8>> =
            (0..2000usize).map(|n| vec![n as u8; n * 7919 % (3 * SHARED_BYTES_MAX)]).collect();
        let mut copies = KeyCopies::default();
        let copied: Vec<Value> = keys.iter().map(|key| copies.copy(key)).collect();
        assert_eq!(copied, keys);
    }
}
