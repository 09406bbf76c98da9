//! The memtable: the newest entries of a keyspace, in memory, in the order of internal keys.
//!
//! The commit leader inserts the entries of a batch after it was appended to the log and before their
//! sequence numbers are published. Keys and values are slices of the batch. Meanwhile any number of readers
//! look up keys and scan, without locks. An entry is never changed or removed: a new value of a key is
//! another entry, and a full memtable is flushed and dropped as a whole.
//!
//! - `arena`: nodes in slots that never move;
//! - `skiplist`: the nodes linked in the order of their keys, and why readers need no lock;
//! - `iter`: the cursor that flush and scans use;
//! - `filter`: a small Bloom filter, which saves most searches for absent keys.
//!
//! Concurrent insertions are allowed, but take turns: each holds a lock.
//!
//! # Memory
//!
//! [`Memtable::size_bytes`] is what the memory budget counts: allocated slots, links, the bytes of keys and
//! values, and [`ENTRY_FRAMING_BYTES`] per entry for the overhead of its batch or of the allocator. Each
//! batch takes [`BATCH_FRAMING_BYTES`] more, which `db/apply` charges.

mod arena;
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

/// Overhead per entry beside the bytes of its key and value: kind and lengths in the batch, or what the
/// allocator rounds up.
const ENTRY_FRAMING_BYTES: usize = 12;

/// Overhead of a batch that a memtable keeps alive, beside its entries: its header, its reference count, and
/// what the allocator adds to both. For [`Memtable::charge`].
pub(crate) const BATCH_FRAMING_BYTES: usize = 64;

/// The most that an entry takes beside its key and value, unless slots for many entries are allocated at once
/// ([`Memtable::growth_max`]).
pub(crate) const ENTRY_BYTES_MAX: usize = arena::SLOT_BYTES_MAX + ENTRY_FRAMING_BYTES;

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
    pub(crate) fn insert(&self, key: Bytes, tag: Tag, value: Bytes) {
        let data = key.len() + value.len();
        if self.filter.is_made() {
            self.filter.insert(key_hash(self.hash_seed, &key));
        }
        let allocated = self.list.insert(key, tag, value);
        self.charge(allocated + data + ENTRY_FRAMING_BYTES);
        self.seqno_max.fetch_max(tag.seqno(), Ordering::Relaxed);
        if tag.kind() == EntryKind::Delete {
            self.tombstones.fetch_add(1, Ordering::Relaxed);
        }
        if self.entries.fetch_add(1, Ordering::Relaxed) + 1 == KEYS_MIN {
            let hashes = self.list.keys().map(|key| key_hash(self.hash_seed, key));
            self.charge(self.filter.make(hashes));
        }
    }

    /// Counts memory that entries keep alive beside their own bytes.
    pub(crate) fn charge(&self, bytes: usize) {
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
        (entry.key == user_key).then(|| (entry.tag, entry.value.clone()))
    }

    /// A cursor that is not positioned yet.
    pub(crate) fn iter(self: &Arc<Self>) -> MemtableIter {
        MemtableIter::new(Arc::clone(self))
    }

    /// The keys and tags of all entries, those first that were inserted last: of what the commit leader has
    /// inserted, the largest sequence numbers first. Waits while an entry is inserted.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = (&Bytes, Tag)> {
        self.list.newest_first().map(|entry| (&entry.key, entry.tag))
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

    /// The most bytes that one insertion adds beside the entry itself: a chunk of slots, which is at most as
    /// large as everything before it, and the filter.
    pub(crate) fn growth_max(&self) -> usize {
        self.size_bytes().min(arena::CHUNK_BYTES_MAX) + self.filter.bytes()
    }

    /// [`Memtable::growth_max`] of the first insertion, the empty memtable included.
    pub(crate) fn first_growth_max(flush_bytes: usize) -> usize {
        let empty = size_of::<Self>() + SkipList::EMPTY_BYTES;
        2 * empty + MemtableFilter::new(flush_bytes).bytes()
    }

    /// Largest sequence number, `None` if there are no entries.
    pub(crate) fn seqno_max(&self) -> Option<SeqNo> {
        (!self.is_empty()).then(|| self.seqno_max.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
