//! The bytes of keys and values, in chunks that many entries share.
//!
//! Each entry has a slice of a chunk; all slices of a chunk share one reference count. A chunk is as large as all
//! before it, up to [`CHUNK_BYTES`], so that an almost empty memtable is small. An entry of more than
//! [`SHARED_BYTES_MAX`] has an allocation of its own, so what is left over at the end of a chunk is a fifteenth of
//! it at most.

use bytes::{Bytes, BytesMut};

use super::arena::{KEY_LEN_BYTES, put_data};

/// Bytes of the largest chunks.
const CHUNK_BYTES: usize = 16 << 10;

/// Bytes of the first chunk.
const FIRST_CHUNK_BYTES: usize = 256;

/// The largest entry that shares a chunk with others.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES / 16;

/// What an allocation takes beside its bytes: a reference count, and what the allocator adds to both.
const FRAMING_BYTES: usize = 64;

/// Where the writer of a memtable puts the bytes of entries.
#[derive(Default)]
pub(super) struct Data {
    /// The rest of the last chunk.
    room: BytesMut,
    /// The bytes of all chunks.
    chunks: usize,
}

impl Data {
    /// Copies an entry. Returns its bytes and how many were allocated.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> (Bytes, usize) {
        let len = KEY_LEN_BYTES + key.len() + value.len();
        if len > SHARED_BYTES_MAX {
            let mut own = BytesMut::with_capacity(len);
            put_data(&mut own, key, value);
            return (own.freeze(), len + FRAMING_BYTES);
        }
        let mut allocated = 0;
        if len > self.room.capacity() {
            let chunk = self.chunks.clamp(FIRST_CHUNK_BYTES, CHUNK_BYTES).max(len);
            self.room = BytesMut::with_capacity(chunk);
            self.chunks += chunk;
            allocated = chunk + FRAMING_BYTES;
        }
        put_data(&mut self.room, key, value);
        (self.room.split().freeze(), allocated)
    }
}

/// The most that is allocated for entries whose keys and values have so many bytes, beside the unused rest of the
/// last chunk.
pub(super) fn bytes_max(entries: usize, bytes: usize) -> usize {
    let bytes = bytes + entries * KEY_LEN_BYTES;
    // Of entries that share chunks, what is lost at the end of a chunk and its framing: less than a tenth. Of each
    // of the others, the framing: less than that too.
    bytes + (bytes / 10).min(entries * (SHARED_BYTES_MAX / 10 + FRAMING_BYTES)) + FRAMING_BYTES
}

/// The most that the unused rest of the last chunk takes in a memtable of so many bytes.
pub(super) fn unused_max(size_bytes: usize) -> usize {
    size_bytes.clamp(FIRST_CHUNK_BYTES, CHUNK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{EntryKind, Tag};
    use crate::memtable::arena::Entry;

    #[test]
    fn entries_come_back_and_take_little_more_than_their_bytes() {
        for len in [0, 1, 8, 100, 300, 1000, SHARED_BYTES_MAX - KEY_LEN_BYTES, SHARED_BYTES_MAX, 5000, 40_000]
        {
            let (mut data, mut kept, mut allocated, mut bytes) = (Data::default(), Vec::new(), 0, 0);
            for number in 0..500usize {
                let (key, value) = (vec![number as u8; len / 3], vec![!number as u8; len - len / 3]);
                let (stored, new) = data.add(&key, &value);
                (allocated, bytes) = (allocated + new, bytes + len);
                kept.push((Entry::new(stored, Tag::new(1, EntryKind::Put)), key, value));
            }
            for (entry, key, value) in &kept {
                assert_eq!((entry.key(), &entry.value()[..]), (&key[..], &value[..]));
            }
            let most = bytes_max(kept.len(), bytes) + 2 * CHUNK_BYTES;
            assert!((bytes..=most).contains(&allocated), "{allocated} for {bytes}, {len} each");
        }
    }
}
