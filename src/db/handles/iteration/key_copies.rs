//! Copies of scanned keys. Short keys need no allocation; others share chunks.
//!
//! Each chunk is as large as all earlier chunks together, at most [`CHUNK_BYTES`]; a retained key keeps its chunk
//! alive. A key of more than [`SHARED_BYTES_MAX`] that does not fit gets its own allocation.

use bytes::BytesMut;

use crate::db::queues::value::Value;

const CHUNK_BYTES: usize = 1 << 10;

const FIRST_CHUNK_BYTES: usize = 64;

const SHARED_BYTES_MAX: usize = CHUNK_BYTES / 8;

#[derive(Default)]
pub(super) struct KeyCopies {
    room: BytesMut,
    chunks: usize,
}

impl KeyCopies {
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
