//! The memtable: the newest entries of a keyspace, in memory, in the order of internal keys.
//!
//! The commit leader inserts the entries of a batch after it was appended to the log and before their
//! sequence numbers are published. Keys and values are copied. Meanwhile any number of readers look up keys and
//! scan, without locks. An entry is never changed or removed: a new value of a key is another entry, and a full
//! memtable is flushed and dropped as a whole.
//!
//! - `arena`: the memory, words in chunks that never move;
//! - `node`: an entry and its links in words; `long`: the entries that are too long for that;
//! - `list`: the nodes linked in the order of their keys, and why readers need no lock;
//! - `trie`: where places in the list are found; `digits`: the digits of keys by which it branches;
//! - `iter`: the cursor that flush and scans use;
//! - `filter`: a small Bloom filter, which saves most searches for absent keys;
//! - `spans`: the range deletes, apart from the entries.
//!
//! Concurrent insertions are allowed, but take turns: each holds a lock.
//!
//! # Memory
//!
//! [`Memtable::size_bytes`] is what the memory budget counts: all that is allocated for nodes, for long entries and
//! for the filter. An entry takes about 44 bytes in addition to its key and value: 24 for its node, at most 19 on average
//! for the trie, 2 for the filter, and the padding of the last words of key and value.
//!
//! Keys and values are in atomic words, because readers look at nodes while the rest of their chunk is written and no
//! code is unsafe. So what is read is copied; only the value of a long entry is shared. (With a slice for each entry, which
//! a value that is read shares, an entry took 86 bytes more than its key and value, and 600 instructions more to insert.)

mod arena;
mod digits;
mod filter;
mod iter;
mod list;
mod long;
mod node;
mod spans;
mod trie;

use std::any::Any;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) use iter::MemtableIter;
pub(crate) use list::{Entry, GROUP_MAX};
pub(crate) use spans::SpanStack;

use crate::hash::key_hash;
use crate::key::{EntryKind, SeqNo, Tag};
use digits::Target;
use filter::{KEYS_MIN, MemtableFilter};
use list::List;

/// An entry that is inserted.
#[derive(Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) tag: Tag,
    /// Empty if it is a tombstone.
    pub(crate) value: &'a [u8],
}

impl<'a> NewEntry<'a> {
    #[inline]
    fn target(&self) -> Target<'a> {
        Target::new(self.key, self.tag)
    }
}

/// What is newest about a key in a memtable.
#[derive(Clone, Copy)]
pub(crate) enum Newest<'a> {
    Entry(Entry<'a>),
    /// The number of a range delete over the key.
    RangeDelete(SeqNo),
}

impl<'a> Newest<'a> {
    pub(crate) fn seqno(&self) -> SeqNo {
        match self {
            Self::Entry(entry) => entry.tag().seqno(),
            Self::RangeDelete(seqno) => *seqno,
        }
    }

    /// The entry: a value or a tombstone.
    #[inline]
    pub(crate) fn entry(&self) -> Option<Entry<'a>> {
        match self {
            Self::Entry(entry) => Some(*entry),
            Self::RangeDelete(_) => None,
        }
    }

    /// The entry, if it is a put.
    #[inline]
    pub(crate) fn put(&self) -> Option<Entry<'a>> {
        self.entry().filter(|entry| entry.tag().kind() == EntryKind::Put)
    }
}

/// An ordered map from internal keys to values, to which entries are only added.
pub(crate) struct Memtable {
    list: List,
    filter: MemtableFilter,
    spans: SpanStack,
    hash_seed: u64,
    entries: AtomicU64,
    tombstones: AtomicU64,
    size_bytes: AtomicUsize,
    seqno_max: AtomicU64,
    /// What is dropped with the memtable.
    kept: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Memtable {
    /// The largest memtable that is not flushed: leaves room, in the 16 GiB that places count, for the largest batch.
    pub(crate) const FLUSH_BYTES_MAX: usize = 3 << 30;

    /// What a memtable may take that cannot be flushed, in bytes: the 16 GiB, without what is left over in small chunks.
    pub(crate) const BYTES_MAX: u64 = 15 << 30;

    /// An empty memtable that will be flushed when it occupies about `flush_bytes`; `hash_seed` is the seed
    /// of the hashes passed to [`Memtable::get`].
    pub(crate) fn new(flush_bytes: usize, hash_seed: u64) -> Self {
        let (list, allocated) = List::new();
        Self {
            list,
            filter: MemtableFilter::new(flush_bytes),
            spans: SpanStack::new(),
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

    /// Inserts an entry; see [`Memtable::insert_group`].
    #[cfg(any(test, fuzzing))]
    pub(crate) fn insert(&self, key: &[u8], tag: Tag, value: &[u8]) -> bool {
        self.insert_group(&[NewEntry { key, tag, value }])
    }

    /// Inserts entries one after the other. Their keys and values are read ahead, a few entries at once: so the processor
    /// waits once for memory that is not in its caches, and not for each. Returns whether the memtable takes more memory
    /// now.
    pub(crate) fn insert_all<'e>(&self, entries: impl Iterator<Item = NewEntry<'e>>) -> bool {
        let (mut entries, mut has_grown) = (entries.fuse(), false);
        let mut group = [NewEntry { key: &[], tag: Tag::newest_at(0), value: &[] }; GROUP_MAX];
        loop {
            let mut count = 0;
            group.iter_mut().zip(&mut entries).for_each(|(place, entry)| {
                *place = entry;
                count += 1;
            });
            let group = &group[..count];
            let ends = |bytes: &[u8]| {
                u32::from(*bytes.first().unwrap_or(&0)) + u32::from(*bytes.last().unwrap_or(&0))
            };
            black_box(group.iter().map(|entry| ends(entry.key) + ends(entry.value)).sum::<u32>());
            has_grown |= self.insert_group(group);
            if count < GROUP_MAX {
                return has_grown;
            }
        }
    }

    /// Inserts entries; each O(length of its key), and O(log n) if keys are random. No two entries have the same key and
    /// sequence number. Returns whether the memtable takes more memory now. In a large one, [`GROUP_MAX`] entries
    /// together take less time than one by one.
    pub(crate) fn insert_group(&self, entries: &[NewEntry<'_>]) -> bool {
        let mut inserter = self.list.inserter();
        let mut allocated = inserter.insert_all(entries);
        let before = self.len();
        if self.filter.is_made() {
            entries.iter().for_each(|entry| self.filter.insert(key_hash(self.hash_seed, entry.key)));
        } else if before + entries.len() as u64 >= KEYS_MIN {
            let mut key = Vec::new();
            let hashes = inserter.newest_first().map(|entry| {
                entry.copy_key(&mut key);
                key_hash(self.hash_seed, &key)
            });
            allocated += self.filter.make(hashes);
        }
        // Nobody else inserts: a load and a store are enough.
        let seqno_max = entries.iter().map(|entry| entry.tag.seqno()).max().unwrap_or(0);
        self.seqno_max.store(seqno_max.max(self.seqno_max.load(Ordering::Relaxed)), Ordering::Relaxed);
        let tombstones = entries.iter().filter(|entry| entry.tag.kind() == EntryKind::Delete).count() as u64;
        self.tombstones.store(self.tombstones() + tombstones, Ordering::Relaxed);
        self.entries.store(before + entries.len() as u64, Ordering::Relaxed);
        if allocated > 0 {
            self.size_bytes.store(self.size_bytes() + allocated, Ordering::Relaxed);
        }
        allocated > 0
    }

    /// Inserts a range delete of `start..end`; if the end is empty, of all keys from `start` on. It is newer than those
    /// before. Afterwards the memtable takes more memory.
    pub(crate) fn delete_range(&self, start: &[u8], end: &[u8], seqno: SeqNo) {
        let _turn = self.list.inserter();
        let allocated = self.spans.insert(start, (!end.is_empty()).then_some(end), seqno);
        self.seqno_max.store(seqno.max(self.seqno_max.load(Ordering::Relaxed)), Ordering::Relaxed);
        self.size_bytes.store(self.size_bytes() + allocated, Ordering::Relaxed);
    }

    /// What the memtable says of a key at `seqno`: its newest entry or a range delete that is newer. `hash` is the
    /// [`key_hash`] of the key.
    #[inline]
    pub(crate) fn get(&self, hash: u64, user_key: &[u8], seqno: SeqNo) -> Option<Newest<'_>> {
        // A range delete is counted before its sequence number is published, like an entry.
        if !self.spans.is_empty() {
            return self.get_under_spans(hash, user_key, seqno);
        }
        self.newest_entry(hash, user_key, seqno).map(Newest::Entry)
    }

    #[inline(never)]
    fn get_under_spans(&self, hash: u64, user_key: &[u8], seqno: SeqNo) -> Option<Newest<'_>> {
        let (entry, span) = (self.newest_entry(hash, user_key, seqno), self.spans.covering(user_key, seqno));
        match (entry, span) {
            (Some(entry), _) if span.is_none_or(|span| span < entry.tag().seqno()) => {
                Some(Newest::Entry(entry))
            }
            (_, span) => span.map(Newest::RangeDelete),
        }
    }

    /// The newest entry of a user key with a sequence number of at most `seqno`: a value or a tombstone.
    #[inline(always)]
    fn newest_entry(&self, hash: u64, user_key: &[u8], seqno: SeqNo) -> Option<Entry<'_>> {
        // An entry is counted after it is linked, and before its sequence number is published.
        if matches!(self.len(), 0) || !self.filter.may_contain(hash) {
            return None;
        }
        self.search(user_key, seqno)
    }

    /// [`Memtable::newest_entry`] without the filter.
    #[inline(never)]
    fn search(&self, user_key: &[u8], seqno: SeqNo) -> Option<Entry<'_>> {
        self.list.newest(user_key, seqno)
    }

    /// A cursor that is not positioned yet.
    pub(crate) fn iter(self: &Arc<Self>) -> MemtableIter {
        MemtableIter::new(Arc::clone(self))
    }

    /// All entries: of those that the commit leader has inserted, the largest sequence numbers first. Waits while an
    /// entry is inserted.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = Entry<'_>> {
        self.list.inserter().newest_first()
    }

    /// Number of entries, tombstones and old versions included, without range deletes.
    pub(crate) fn len(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// How many of them are tombstones.
    pub(crate) fn tombstones(&self) -> u64 {
        self.tombstones.load(Ordering::Relaxed)
    }

    /// Whether there are neither entries nor range deletes.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && self.spans.is_empty()
    }

    /// The range deletes.
    pub(crate) fn spans(&self) -> &SpanStack {
        &self.spans
    }

    /// Memory that the memtable takes, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// The most that inserting entries into so many memtables adds to all of them, beside what each has to grow by
    /// ([`Memtable::growth_max`]), if the keys and values have so many bytes together.
    ///
    /// How large a chunk is depends on what is before it. So what is allocated ahead of the entries it is for is bounded
    /// by what the memtable had and by what the entries take themselves.
    ///
    /// That of range deletes is in [`SpanStack::bytes_max`].
    pub(crate) fn bytes_max(entries: usize, bytes: usize, memtables: usize) -> usize {
        // The longer the entries in nodes, the more is allocated beside them; those that are long are in no node.
        let short = bytes.min(entries.saturating_mul(node::SHORT_BYTES_MAX));
        let nodes =
            entries.saturating_mul(node::OVERHEAD_BYTES_MAX + trie::BRANCH_BYTES_MAX).saturating_add(short);
        let node_max = node::OVERHEAD_BYTES_MAX + node::SHORT_BYTES_MAX;
        let nodes = nodes.saturating_add(arena::left_over_max(nodes, node_max, memtables));
        let long = (bytes - short).saturating_add(long::overhead_max(entries, bytes, memtables));
        nodes.saturating_add(arena::ahead_max(nodes, memtables)).saturating_add(long)
    }

    /// The most that a memtable allocates ahead of entries, as far as what it has already bounds that; the filter.
    pub(crate) fn growth_max(&self) -> usize {
        self.list.ahead_max(self.size_bytes()) + self.filter.bytes() + self.spans.growth_max()
    }

    /// [`Memtable::growth_max`] of a memtable that is not there yet, itself included.
    pub(crate) fn first_growth_max(flush_bytes: usize) -> usize {
        let empty = size_of::<Self>() + List::EMPTY_BYTES;
        let ahead = arena::FIRST_BYTES + arena::ahead_max(empty, 1);
        empty + ahead + MemtableFilter::new(flush_bytes).bytes()
    }

    /// Largest sequence number, `None` if the memtable is empty.
    pub(crate) fn seqno_max(&self) -> Option<SeqNo> {
        (!self.is_empty()).then(|| self.seqno_max.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
