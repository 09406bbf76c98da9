//! The memtable: the newest entries of a keyspace, in memory, in the order of internal keys.
//!
//! The commit leader inserts the entries of a batch after it was appended to the log and before their
//! sequence numbers are published. Keys and values are copied. Meanwhile any number of readers look up keys and
//! scan, without locks. An entry is never changed or removed: a new value of a key is another entry, and a full
//! memtable is flushed and dropped as a whole.
//!
//! - `arena`: nodes in slots that never move;
//! - `data`: the bytes of keys and values, in chunks;
//! - `skiplist`: the nodes linked in the order of their keys, and why readers need no lock;
//! - `iter`: the cursor that flush and scans use;
//! - `filter`: a small Bloom filter, which saves most searches for absent keys.
//!
//! Concurrent insertions are allowed, but take turns: each holds a lock.
//!
//! # Memory
//!
//! [`Memtable::size_bytes`] is what the memory budget counts: all that is allocated for slots, for the filter and
//! for the bytes of keys and values. An entry takes about 86 bytes beside its key and value: a slot of 80, the
//! length of its key, two bytes of filter. (A slice for each entry, which a value that is read shares, is most of
//! it. Without one a value would be copied whenever it is read; and what a reader may look at while the rest of
//! its chunk is written has to have an owner of its own, if no code is unsafe.)

mod arena;
mod data;
mod filter;
mod iter;
mod skiplist;

use std::any::Any;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

pub(crate) use iter::MemtableIter;

use crate::hash::key_hash;
use crate::key::{EntryKind, InternalKey, SeqNo, Tag};
use arena::HEAD;
use filter::{KEYS_MIN, MemtableFilter};
use skiplist::SkipList;

/// An ordered map from internal keys to values, to which entries are only added.
pub(crate) struct Memtable {
    list: SkipList,
    filter: MemtableFilter,
    hash_seed: u64,
    entries: AtomicU64,
    tombstones: AtomicU64,
    size_bytes: AtomicUsize,
    seqno_max: AtomicU64,
    /// What is dropped with the memtable.
    kept: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Memtable {
    /// An empty memtable that will be flushed when it occupies about `flush_bytes`; `hash_seed` is the seed
    /// of the hashes passed to [`Memtable::get`].
    pub(crate) fn new(flush_bytes: usize, hash_seed: u64) -> Self {
        let (list, allocated) = SkipList::new();
        Self {
            list,
            filter: MemtableFilter::new(flush_bytes),
            hash_seed,
            entries: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            size_bytes: AtomicUsize::new(size_of::<Self>() + allocated),
            seqno_max: AtomicU64::new(0),
            kept: OnceLock::new(),
        }
    }

    /// Keeps a value until the memtable is dropped; only the first one. For counting those that only iterators
    /// keep alive.
    pub(crate) fn keep(&self, value: impl Any + Send + Sync) {
        let _ = self.kept.set(Box::new(value));
    }

    /// Inserts an entry; O(log n), O(1) if it sorts after all others. The value of a tombstone is empty.
    /// No two entries have the same key and sequence number.
    pub(crate) fn insert(&self, key: &[u8], tag: Tag, value: &[u8]) {
        if self.filter.is_made() {
            self.filter.insert(key_hash(self.hash_seed, key));
        }
        let allocated = self.list.insert(key, tag, value);
        if allocated > 0 {
            self.charge(allocated);
        }
        self.seqno_max.fetch_max(tag.seqno(), Ordering::Relaxed);
        if tag.kind() == EntryKind::Delete {
            self.tombstones.fetch_add(1, Ordering::Relaxed);
        }
        if self.entries.fetch_add(1, Ordering::Relaxed) + 1 == KEYS_MIN {
            let hashes = self.list.keys().map(|key| key_hash(self.hash_seed, key));
            self.charge(self.filter.make(hashes));
        }
    }

    fn charge(&self, bytes: usize) {
        self.size_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The newest entry of a user key with a sequence number of at most `seqno`: a value or a tombstone.
    /// `hash` is the [`key_hash`] of the key.
    #[inline]
    pub(crate) fn get(&self, hash: u64, user_key: &[u8], seqno: SeqNo) -> Option<(Tag, Bytes)> {
        // An entry is counted after it is linked, and before its sequence number is published.
        if self.is_empty() || !self.filter.may_contain(hash) {
            return None;
        }
        self.search(user_key, seqno)
    }

    /// [`Memtable::get`] without the filter.
    #[inline(never)]
    fn search(&self, user_key: &[u8], seqno: SeqNo) -> Option<(Tag, Bytes)> {
        let found = self.list.at_or_after(InternalKey::new(user_key, Tag::newest_at(seqno)));
        if found == HEAD {
            return None;
        }
        let entry = self.list.entry(found);
        (entry.key() == user_key).then(|| (entry.tag, entry.value()))
    }

    /// A cursor that is not positioned yet.
    pub(crate) fn iter(self: &Arc<Self>) -> MemtableIter {
        MemtableIter::new(Arc::clone(self))
    }

    /// The keys and tags of all entries: of what the commit leader has inserted, the largest sequence numbers
    /// first. Waits while an entry is inserted.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = (&[u8], Tag)> {
        self.list.newest_first().map(|entry| (entry.key(), entry.tag))
    }

    /// Number of entries, tombstones and old versions included.
    pub(crate) fn len(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// How many of them are tombstones.
    pub(crate) fn tombstones(&self) -> u64 {
        self.tombstones.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that the memtable takes, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// The most that inserting entries into so many memtables adds to all of them, beside what each has to grow by
    /// ([`Memtable::growth_max`]), if the keys and values have so many bytes together.
    ///
    /// A chunk of slots or of data is at most as large as everything before it. So what is allocated ahead of the
    /// entries it is for is bounded by what the memtable had and by what the entries take themselves.
    pub(crate) fn bytes_max(entries: usize, bytes: usize, memtables: usize) -> usize {
        let slots = entries * arena::SLOT_BYTES_MAX;
        let data = data::bytes_max(entries, bytes);
        let slots_ahead = slots.min(memtables * arena::CHUNK_BYTES_MAX);
        let data_ahead = data.min(memtables * data::unused_max(usize::MAX));
        slots + slots_ahead + data + data_ahead
    }

    /// The most that a memtable allocates ahead of entries, as far as what it has already bounds that; the filter.
    pub(crate) fn growth_max(&self) -> usize {
        Self::growth_of(self.size_bytes()) + self.filter.bytes()
    }

    /// [`Memtable::growth_max`] of a memtable that is not there yet, itself included.
    pub(crate) fn first_growth_max(flush_bytes: usize) -> usize {
        let empty = size_of::<Self>() + SkipList::EMPTY_BYTES;
        empty + Self::growth_of(empty) + MemtableFilter::new(flush_bytes).bytes()
    }

    fn growth_of(size_bytes: usize) -> usize {
        let chunks = size_bytes.min(arena::CHUNK_BYTES_MAX) + data::unused_max(size_bytes);
        chunks + arena::sparse_bytes_max(size_bytes)
    }

    /// Largest sequence number, `None` if there are no entries.
    pub(crate) fn seqno_max(&self) -> Option<SeqNo> {
        (!self.is_empty()).then(|| self.seqno_max.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
