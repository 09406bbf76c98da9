//! The memtable: the newest entries of a keyspace, in memory, in the order of internal keys.
//!
//! The commit leader inserts copies of a batch's entries after appending the batch to the log and before publishing
//! the sequence numbers. Readers take no locks. Entries are never changed or removed; a full memtable is flushed and
//! dropped as a whole.
//!
//! - `arena`: words in chunks that never move;
//! - `node`: an entry and its links; `long`: entries too long for a node;
//! - `list`: the nodes in key order, and the proof of lock-free reads;
//! - `trie`: the search for keys; `digits`: its branches;
//! - `iter`, `filter`, `spans`: the cursor, a Bloom filter, the range deletes.
//!
//! # Memory
//!
//! [`Memtable::size_bytes`] counts all allocations. An entry takes about 46 bytes in addition to key and value: 24 for
//! its node, on average at most 19 for the trie, 2 for the filter, and padding.
//!
//! Short keys and values are in atomic words (`arena`), which cannot be borrowed as slices, so reads copy them.

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
use list::{FAR_BYTES, List};

#[derive(Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) tag: Tag,
    pub(crate) value: &'a [u8],
}

impl<'a> NewEntry<'a> {
    #[inline]
    fn target(&self) -> Target<'a> {
        Target::new(self.key, self.tag)
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Newest<'a> {
    Entry(Entry<'a>),
    RangeDelete(SeqNo),
}

impl<'a> Newest<'a> {
    pub(crate) fn seqno(&self) -> SeqNo {
        match self {
            Self::Entry(entry) => entry.tag().seqno(),
            Self::RangeDelete(seqno) => *seqno,
        }
    }

    #[inline]
    pub(crate) fn entry(&self) -> Option<Entry<'a>> {
        match self {
            Self::Entry(entry) => Some(*entry),
            Self::RangeDelete(_) => None,
        }
    }

    #[inline]
    pub(crate) fn put(&self) -> Option<Entry<'a>> {
        self.entry().filter(|entry| entry.tag().kind() == EntryKind::Put)
    }
}

pub(crate) struct Memtable {
    list: List,
    filter: MemtableFilter,
    spans: SpanStack,
    hash_seed: u64,
    entries: AtomicU64,
    tombstones: AtomicU64,
    size_bytes: AtomicUsize,
    seqno_min: AtomicU64,
    seqno_max: AtomicU64,
    kept: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Memtable {
    /// Leaves room for the largest batch within the 16 GiB that an arena can address.
    pub(crate) const FLUSH_BYTES_MAX: usize = 3 << 30;

    pub(crate) const BYTES_MAX: u64 = 15 << 30;

    /// The memtable is flushed at about `flush_bytes`. `hash_seed` is the seed of the hashes passed to
    /// [`Memtable::get`].
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
            seqno_min: AtomicU64::new(SeqNo::MAX),
            seqno_max: AtomicU64::new(0),
            kept: OnceLock::new(),
        }
    }

    /// Keeps a value until the memtable is dropped: a guard that counts the bytes of memtables kept alive only by
    /// iterators. Call at most once.
    pub(crate) fn keep(&self, value: impl Any + Send + Sync) {
        let _ = self.kept.set(Box::new(value));
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn insert(&self, key: &[u8], tag: Tag, value: &[u8]) -> bool {
        self.insert_group(&[NewEntry { key, tag, value }])
    }

    /// Inserts entries in groups, with prefetching. Returns whether memory was allocated.
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

    /// O(length of the key) per entry, or O(log n) for random keys. Pairs of key and sequence number must be unique.
    /// Returns whether memory was allocated.
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
        let seqnos = entries.iter().map(|entry| entry.tag.seqno());
        let (least, most) =
            seqnos.fold((SeqNo::MAX, 0), |(least, most), seqno| (seqno.min(least), seqno.max(most)));
        self.cover(least, most);
        let tombstones = entries.iter().filter(|entry| entry.tag.kind() == EntryKind::Delete).count() as u64;
        self.tombstones.store(self.tombstones() + tombstones, Ordering::Relaxed);
        self.entries.store(before + entries.len() as u64, Ordering::Relaxed);
        if allocated > 0 {
            self.size_bytes.store(self.size_bytes() + allocated, Ordering::Relaxed);
        }
        allocated > 0
    }

    /// The range delete must be newer than all range deletes in the memtable. An empty end means no end.
    pub(crate) fn delete_range(&self, start: &[u8], end: &[u8], seqno: SeqNo) {
        let _turn = self.list.inserter();
        let allocated = self.spans.insert(start, (!end.is_empty()).then_some(end), seqno);
        self.cover(seqno, seqno);
        self.size_bytes.store(self.size_bytes() + allocated, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self, hash: u64, user_key: &[u8], seqno: SeqNo) -> Option<Newest<'_>> {
        // A span is counted before its sequence number is published, like an entry.
        if !self.spans.is_empty() {
            return self.get_under_spans(hash, user_key, seqno);
        }
        self.newest_entry(hash, user_key, seqno).map(Newest::Entry)
    }

    /// [`Memtable::get`] of the keys at the indices `numbers`. Calls `found` with each index whose key has an entry or
    /// range delete.
    pub(crate) fn get_many<'m>(
        &'m self,
        user_keys: &[&[u8]],
        hashes: &[u64],
        numbers: impl Iterator<Item = usize>,
        seqno: SeqNo,
        mut found: impl FnMut(usize, Newest<'m>),
    ) {
        if self.size_bytes() < FAR_BYTES || !self.spans.is_empty() {
            for number in numbers {
                if let Some(newest) = self.get(hashes[number], user_keys[number], seqno) {
                    found(number, newest);
                }
            }
            return;
        }
        let mut maybe = numbers.filter(|&number| self.filter.may_contain(hashes[number]));
        loop {
            let (mut group, mut keys, mut count) = ([0; GROUP_MAX], [&[][..]; GROUP_MAX], 0);
            for (place, number) in group.iter_mut().zip(&mut maybe) {
                *place = number;
                keys[count] = user_keys[number];
                count += 1;
            }
            let tell = |at: usize, entry| found(group[at], Newest::Entry(entry));
            self.list.newest_of_many(&keys[..count], seqno, tell);
            if count < GROUP_MAX {
                return;
            }
        }
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

    #[inline(always)]
    fn newest_entry(&self, hash: u64, user_key: &[u8], seqno: SeqNo) -> Option<Entry<'_>> {
        // An entry is linked, then counted, then made visible.
        if matches!(self.len(), 0) || !self.filter.may_contain(hash) {
            return None;
        }
        self.search(user_key, seqno)
    }

    #[inline(never)]
    fn search(&self, user_key: &[u8], seqno: SeqNo) -> Option<Entry<'_>> {
        self.list.newest(user_key, seqno)
    }

    pub(crate) fn iter(self: &Arc<Self>) -> MemtableIter {
        MemtableIter::new(Arc::clone(self))
    }

    /// Largest sequence numbers first. Waits for a running insertion.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = Entry<'_>> {
        self.list.inserter().newest_first()
    }

    pub(crate) fn len(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn tombstones(&self) -> u64 {
        self.tombstones.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && self.spans.is_empty()
    }

    pub(crate) fn spans(&self) -> &SpanStack {
        &self.spans
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Maximum growth of memtables by these entries, in addition to [`Memtable::growth_max`] of each memtable and
    /// [`SpanStack::bytes_max`].
    pub(crate) fn bytes_max(entries: usize, bytes: usize, memtables: usize) -> usize {
        let short = bytes.min(entries.saturating_mul(node::SHORT_BYTES_MAX));
        let nodes =
            entries.saturating_mul(node::OVERHEAD_BYTES_MAX + trie::BRANCH_BYTES_MAX).saturating_add(short);
        let node_max = node::OVERHEAD_BYTES_MAX + node::SHORT_BYTES_MAX;
        let nodes = nodes.saturating_add(arena::left_over_max(nodes, node_max, memtables));
        let long = (bytes - short).saturating_add(long::overhead_max(entries, bytes, memtables));
        nodes.saturating_add(arena::ahead_max(nodes, memtables)).saturating_add(long)
    }

    pub(crate) fn growth_max(&self) -> usize {
        self.list.ahead_max(self.size_bytes()) + self.filter.bytes() + self.spans.growth_max()
    }

    pub(crate) fn first_growth_max(flush_bytes: usize) -> usize {
        let empty = size_of::<Self>() + List::EMPTY_BYTES;
        let ahead = arena::FIRST_BYTES + arena::ahead_max(empty, 1);
        empty + ahead + MemtableFilter::new(flush_bytes).bytes()
    }

    /// The caller holds the list's `Inserter`, so a load and a store are enough.
    #[inline]
    fn cover(&self, least: SeqNo, most: SeqNo) {
        self.seqno_min.store(least.min(self.seqno_min.load(Ordering::Relaxed)), Ordering::Relaxed);
        self.seqno_max.store(most.max(self.seqno_max.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    pub(crate) fn seqno_min(&self) -> Option<SeqNo> {
        (!self.is_empty()).then(|| self.seqno_min.load(Ordering::Relaxed))
    }

    pub(crate) fn seqno_max(&self) -> Option<SeqNo> {
        (!self.is_empty()).then(|| self.seqno_max.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
