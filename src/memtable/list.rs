//! The list of a memtable: its nodes in key order, with one writer and lock-free readers.
//!
//! The list is a ring through the sentinel, linked in both directions, with a trie of all nodes (`trie`). In a large
//! memtable, insertions and lookups mostly wait for memory, so both can follow the paths of several keys at once.
//!
//! To insert a node X between its neighbours P and N, under the writer's lock:
//!
//! 1. find P and N;
//! 2. fill X, with its links;
//! 3. link X: `P.next = X`, then `N.prev = X`, then in the trie. A link to X is stored with release.
//!
//! Nodes are never removed, and links are read with acquire: a reader that finds a link to X sees its entry and links.
//!
//! # A reader finds all entries that were complete before it started
//!
//! X is *complete* for a reader if the writer published a sequence number after inserting X, and the reader read it
//! before its start. The numbers of other entries are above the reader's snapshot.
//!
//! *Forward.* For every node M < X, a reader finds in `M.next` some Y with M < Y <= X:
//! - If M is older than X, `M.next` was at most X when the insertion of X ended, and later stores only decrease it.
//! - If M is newer than X, `M.next` began as M's successor at that time, which is at most X.
//!
//! *Backward.* By symmetry, the same holds for every node M > X and `M.prev`; the sentinel is after all nodes.
//! Between `P.next = X` and `N.prev = X`, a reader may pass over X, which is not complete yet. Step 3 ends before the
//! next insertion, so the writer reads the exact predecessor in `M.prev`.
//!
//! *Searches.* The node that the trie returns is next to the target, except for incomplete nodes between them. For
//! the neighbour on the other side, a search follows links.

use std::hint::black_box;
use std::sync::atomic::Ordering as Memory;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;

use super::NewEntry;
use super::arena::{self, Arena, Room, Words};
use super::digits::{Difference, TAG_AT, Target};
use super::long::{self, LongEntries};
use super::node::{Content, HEAD, Node, NodeId, SHORT_BYTES_MAX};
use super::trie::{self, Ahead, Found, Start};
use crate::key::{InternalKey, SeqNo, Tag};
use crate::sync::lock;

pub(crate) const GROUP_MAX: usize = 32;

const FAR_WORDS: usize = if cfg!(test) { 1 << 8 } else { 1 << 18 };

pub(super) const FAR_BYTES: usize = FAR_WORDS * size_of::<u32>();

pub(super) struct List {
    arena: Arena,
    long: LongEntries,
    writer: Mutex<Writer>,
}

struct Writer {
    room: Room,
    newest: NodeId,
}

#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    node: Node<'a>,
    long: &'a LongEntries,
}

impl<'a> Entry<'a> {
    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        self.node.tag()
    }

    #[inline]
    pub(super) fn next(&self) -> NodeId {
        self.node.next().load(Memory::Acquire)
    }

    /// `false` for a long entry.
    #[inline]
    pub(super) fn copy_short(&self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> bool {
        let is_short = self.node.long().is_none();
        if is_short {
            self.node.copy_key(key);
            self.node.copy_value(value);
        }
        is_short
    }

    pub(crate) fn copy_key(&self, key: &mut Vec<u8>) {
        match self.node.long() {
            None => self.node.copy_key(key),
            Some(number) => {
                key.clear();
                key.extend_from_slice(&self.long.get(number)[..self.node.key_len()]);
            }
        }
    }

    pub(crate) fn value(&self) -> Bytes {
        match self.node.long() {
            None => {
                let mut value = Vec::new();
                self.node.copy_value(&mut value);
                value.into()
            }
            Some(number) => self.long.get(number).slice(self.node.key_len()..),
        }
    }

    pub(super) fn long_value(&self) -> Option<&'a [u8]> {
        Some(&self.long.get(self.node.long()?)[self.node.key_len()..])
    }

    pub(super) fn copy_value(&self, value: &mut Vec<u8>) {
        self.node.copy_value(value);
    }

    #[inline]
    fn difference(&self, target: &Target<'_>) -> Difference {
        match self.node.long() {
            None => self.node.difference(target),
            Some(number) => {
                let key = &self.long.get(number)[..self.node.key_len()];
                long::difference(key, self.node.tag(), target)
            }
        }
    }
}

pub(super) struct Inserter<'a> {
    list: &'a List,
    writer: MutexGuard<'a, Writer>,
}

impl<'a> Inserter<'a> {
    /// Inserts copies of the entries. A duplicate of an internal key precedes the existing entry. Returns the bytes
    /// allocated.
    ///
    /// # Panics
    ///
    /// If the short entries take 16 GiB.
    #[inline]
    pub(super) fn insert_all(&mut self, entries: &[NewEntry<'_>]) -> usize {
        let mut allocated = 0;
        for group in entries.chunks(GROUP_MAX) {
            let ahead = self.list.read_ahead(&self.writer.room, group);
            for (at, entry) in group.iter().enumerate() {
                let start = ahead.as_ref().map_or(Start::ROOT, |ahead| ahead[at].start);
                allocated += self.list.insert(&mut self.writer, entry, start);
            }
        }
        allocated
    }

    /// The order is exact if sequence numbers were inserted in ascending order.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let (list, last) = (self.list, self.writer.newest);
        let ids = std::iter::successors(Some(last), |&id| Some(list.node(id).inserted_before()));
        ids.take_while(|&id| id != HEAD).map(|id| list.entry(id))
    }
}

impl List {
    pub(super) const EMPTY_BYTES: usize = arena::FIRST_BYTES;

    pub(super) fn new() -> (Self, usize) {
        let (arena, mut room) = (Arena::default(), Room::default());
        let sentinel = Content::Short(&[], &[0; size_of::<NodeId>()]);
        let (head, allocated) = room.take(&arena, sentinel.words());
        debug_assert_eq!(head, HEAD);
        Node::at(&arena, HEAD).fill(Tag::newest_at(0), HEAD, sentinel);
        debug_assert_eq!(allocated, Self::EMPTY_BYTES);
        let writer = Mutex::new(Writer { room, newest: HEAD });
        (Self { arena, long: LongEntries::default(), writer }, allocated)
    }

    pub(super) fn inserter(&self) -> Inserter<'_> {
        Inserter { list: self, writer: lock(&self.writer) }
    }

    /// Reads the paths of several entries with overlapping memory accesses, and returns the starts of their searches.
    /// Returns `None` if the memtable fits into the caches of a core, or if the entries are after all others.
    fn read_ahead(&self, room: &Room, entries: &[NewEntry<'_>]) -> Option<[Ahead; GROUP_MAX]> {
        if entries.len() < 2 || room.words_taken() < FAR_WORDS || self.is_last(room, &entries[0]) {
            return None;
        }
        let searches = follow_together(room, entries.len(), |at| entries[at].target());
        let mut read = 0;
        for search in &searches[..entries.len()] {
            let node = Node::at(room, search.place);
            for link in [node.prev(), node.next()] {
                read ^= Node::at(room, link.load(Memory::Relaxed)).key_len();
            }
        }
        black_box(read);
        Some(searches)
    }

    fn is_last(&self, room: &Room, entry: &NewEntry<'_>) -> bool {
        let last = Node::at(room, HEAD).prev().load(Memory::Relaxed);
        last != HEAD && self.difference(room, last, &entry.target()).is_after()
    }

    #[inline]
    fn insert(&self, writer: &mut Writer, entry: &NewEntry<'_>, start: Start) -> usize {
        let &NewEntry { key, tag, value } = entry;
        let Writer { room, newest } = writer;
        let (content, long) = if key.len() + value.len() <= SHORT_BYTES_MAX {
            (Content::Short(key, value), 0)
        } else {
            let (number, allocated) = self.long.add(key, value);
            (Content::Long(number, key.len()), allocated)
        };
        let (id, allocated) = room.take(&self.arena, content.words());
        let found = self.find(room, start, &entry.target());
        let near = Node::at(room, found.near);
        let (before, after) = if found.difference.is_after() {
            (found.near, near.next().load(Memory::Relaxed))
        } else {
            (near.prev().load(Memory::Relaxed), found.near)
        };
        let node = Node::at(room, id);
        node.fill(tag, *newest, content);
        node.prev().store(before, Memory::Relaxed);
        node.next().store(after, Memory::Relaxed);
        Node::at(room, before).next().store(id, Memory::Release);
        Node::at(room, after).prev().store(id, Memory::Release);
        *newest = id;
        allocated + long + trie::add(room, &self.arena, &found, id)
    }

    #[inline]
    fn find(&self, memory: &impl Words, start: Start, target: &Target<'_>) -> Found {
        trie::find(memory, start, target, &|id| self.difference(memory, id, target))
    }

    #[inline]
    fn difference(&self, memory: &impl Words, id: NodeId, target: &Target<'_>) -> Difference {
        #[cfg(test)]
        tests::COMPARED.with(|compared| compared.set(compared.get() + 1));
        Entry { node: Node::at(memory, id), long: &self.long }.difference(target)
    }

    fn is_at_or_after(&self, id: NodeId, target: &Target<'_>) -> bool {
        id == HEAD || !self.difference(&self.arena, id, target).is_after()
    }

    #[inline]
    fn node(&self, id: NodeId) -> Node<'_> {
        Node::at(&self.arena, id)
    }

    pub(super) fn ahead_max(&self, size_bytes: usize) -> usize {
        arena::FIRST_BYTES + arena::ahead_max(size_bytes, 1) + self.long.ahead_max()
    }

    #[inline]
    pub(super) fn entry(&self, id: NodeId) -> Entry<'_> {
        Entry { node: self.node(id), long: &self.long }
    }

    pub(super) fn newest(&self, user_key: &[u8], seqno: SeqNo) -> Option<Entry<'_>> {
        self.newest_from(Start::ROOT, Target::new(user_key, Tag::newest_at(seqno)))
    }

    /// [`List::newest`] of up to [`GROUP_MAX`] user keys, with overlapping memory accesses. Calls `found` with the
    /// index of each key that has an entry.
    pub(super) fn newest_of_many<'l>(
        &'l self,
        user_keys: &[&[u8]],
        seqno: SeqNo,
        mut found: impl FnMut(usize, Entry<'l>),
    ) {
        let target = |at: usize| Target::new(user_keys[at], Tag::newest_at(seqno));
        let searches = follow_together(&self.arena, user_keys.len(), target);
        for (at, search) in searches[..user_keys.len()].iter().enumerate() {
            if let Some(entry) = self.newest_from(search.start, target(at)) {
                found(at, entry);
            }
        }
    }

    fn newest_from(&self, start: Start, target: Target<'_>) -> Option<Entry<'_>> {
        let found = self.find(&self.arena, start, &target);
        if found.difference.at < TAG_AT {
            return None;
        }
        let id = self.first_from(&found, &target);
        let is_same =
            id == found.near || id != HEAD && self.difference(&self.arena, id, &target).at >= TAG_AT;
        is_same.then(|| self.entry(id))
    }

    /// [`HEAD`] is before the first node and after the last.
    #[inline]
    pub(super) fn next(&self, id: NodeId) -> NodeId {
        self.node(id).next().load(Memory::Acquire)
    }

    #[inline]
    pub(super) fn prev(&self, id: NodeId) -> NodeId {
        self.node(id).prev().load(Memory::Acquire)
    }

    pub(super) fn at_or_after(&self, target: InternalKey<'_>) -> NodeId {
        let target = Target::new(target.user, target.tag);
        self.first_from(&self.find(&self.arena, Start::ROOT, &target), &target)
    }

    #[inline]
    fn first_from(&self, found: &Found, target: &Target<'_>) -> NodeId {
        if !found.difference.is_after() {
            return found.near;
        }
        let mut at = self.next(found.near);
        while !self.is_at_or_after(at, target) {
            at = self.next(at);
        }
        at
    }

    pub(super) fn before(&self, target: InternalKey<'_>) -> NodeId {
        let target = Target::new(target.user, target.tag);
        let found = self.find(&self.arena, Start::ROOT, &target);
        if found.difference.is_after() {
            return found.near;
        }
        let mut at = self.prev(found.near);
        while at != HEAD && self.is_at_or_after(at, &target) {
            at = self.prev(at);
        }
        at
    }
}

fn follow_together<'t>(
    memory: &impl Words,
    mut count: usize,
    target: impl Fn(usize) -> Target<'t>,
) -> [Ahead; GROUP_MAX] {
    let mut searches = [Ahead::new(memory); GROUP_MAX];
    let mut under_way: [usize; GROUP_MAX] = std::array::from_fn(|search| search);
    while count > 0 {
        let mut others = 0;
        for at in 0..count {
            let search = under_way[at];
            if searches[search].step(memory, &target(search)) {
                under_way[others] = search;
                others += 1;
            }
        }
        count = others;
    }
    searches
}

#[cfg(test)]
mod tests {
    use super::super::trie::tests::BRANCHES;
    use super::super::{digits::END, trie};
    use super::*;
    use crate::key::EntryKind;

    thread_local! {
        /// Number of entries that searches of this thread have compared with their targets.
        pub(super) static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    fn ids(list: &List) -> Vec<NodeId> {
        let ids = std::iter::successors(Some(list.next(HEAD)), |&id| Some(list.next(id)));
        ids.take_while(|&id| id != HEAD).collect()
    }

    fn key_of(list: &List, id: NodeId) -> Vec<u8> {
        let mut key = Vec::new();
        list.entry(id).copy_key(&mut key);
        key
    }

    fn tag(seqno: u64) -> Tag {
        Tag::new(seqno, EntryKind::Put)
    }

    fn insert(list: &List, key: &[u8], seqno: u64) -> usize {
        list.inserter().insert_all(&[NewEntry { key, tag: tag(seqno), value: &[] }])
    }

    fn mixed(number: u32) -> u32 {
        number.wrapping_mul(0x9e37_79b9)
    }

    /// Keys that differ in their first bytes, after them, or in few bytes; versions of few keys; keys that are
    /// prefixes of others, including zeros; and long keys.
    const KEYS: [fn(u32) -> Vec<u8>; 8] = [
        |key| mixed(key).to_be_bytes().to_vec(),
        |key| [&b"the same"[..], &mixed(key).to_be_bytes()].concat(),
        |key| [&(key >> 24).to_be_bytes()[..], b"same", &mixed(key).to_be_bytes()].concat(),
        |key| (key % 50).to_be_bytes().to_vec(),
        |key| vec![0; (key % 70) as usize],
        |key| (0..mixed(key) >> 29).map(|at| (mixed(key) >> at & 1) as u8).collect(),
        |key| format!("https://example.org/page/{}?x=7", mixed(key) >> 8).into_bytes(),
        |key| [&[b'k'; 1030][..], &mixed(key).to_be_bytes()[..3]].concat(),
    ];

    #[test]
    fn links_backward_mirror_links_forward_after_every_insertion() {
        for key in KEYS {
            let (list, _) = List::new();
            for number in 0..if cfg!(miri) { 30 } else { 300 } {
                insert(&list, &key(number), number.into());
                let mut at = HEAD;
                loop {
                    let next = list.next(at);
                    assert_eq!(list.prev(next), at);
                    at = next;
                    if at == HEAD {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn insertions_in_and_out_of_order_keep_the_list_sorted_and_every_node_in_the_trie() {
        let numbers_max = if cfg!(miri) { 150 } else { 3000u32 };
        for (to_key, group) in KEYS.into_iter().flat_map(|key| [1, 7, GROUP_MAX].map(|group| (key, group))) {
            let (list, _) = List::new();
            let mut all = Vec::new();
            for number in 0..numbers_max {
                let key = to_key(match number % 100 {
                    0..50 => number << 16,
                    50..80 => (number - number % 100) << 16 | number,
                    _ => mixed(number),
                });
                all.push((key, tag(u64::from(number))));
            }
            for group in all.chunks(group) {
                let entries: Vec<_> =
                    group.iter().map(|(key, tag)| NewEntry { key, tag: *tag, value: &[] }).collect();
                list.inserter().insert_all(&entries);
            }
            let found = ids(&list);
            assert_eq!(found.len(), all.len());
            assert!(
                found.is_sorted_by_key(|&id| (key_of(&list, id), std::cmp::Reverse(list.entry(id).tag())))
            );
            for id in found {
                let (key, tag) = (key_of(&list, id), list.entry(id).tag());
                let of_key = list.find(&list.arena, Start::ROOT, &Target::new(&key, tag));
                assert_eq!((of_key.near, of_key.difference.at), (id, END));
            }
        }
    }

    #[test]
    fn a_search_compares_two_entries_at_most_and_passes_few_branches_whatever_keys_have_in_common() {
        for key in KEYS {
            let (list, _) = List::new();
            for number in 0..20_000 {
                COMPARED.set(0);
                BRANCHES.set(0);
                insert(&list, &key(number), number.into());
                assert!(COMPARED.get() <= 2, "{} entries", COMPARED.get());
                assert!(BRANCHES.get() <= 60, "{} branches", BRANCHES.get());
            }
            for number in (0..20_000).step_by(7) {
                COMPARED.set(0);
                BRANCHES.set(0);
                list.newest(&key(number), 10_000);
                list.at_or_after(InternalKey::new(&key(mixed(number)), tag(10_000)));
                list.before(InternalKey::new(&key(mixed(number)), tag(10_000)));
                assert!(COMPARED.get() <= 8, "{} entries", COMPARED.get());
                assert!(BRANCHES.get() <= 180, "{} branches", BRANCHES.get());
            }
        }
    }

    #[test]
    fn entries_take_no_more_of_the_trie_than_it_says_however_keys_are_distributed() {
        // Branches that are full, or have one link more than the next smaller size.
        let sparse = |fan_out: u32| {
            move |number: u32| {
                let digit = |at| (number / fan_out.pow(at) % fan_out) as u8;
                (0..8).rev().map(|at| digit(at) << 4).collect::<Vec<u8>>()
            }
        };
        let sparse = [2, 3, 5, 9, 16].map(sparse);
        let keys = KEYS.map(|key| Box::new(key) as Box<dyn Fn(u32) -> Vec<u8>>).into_iter();
        for key in keys.chain(sparse.map(|key| Box::new(key) as _)) {
            let (list, _) = List::new();
            let mut taken = 0;
            let entries = if cfg!(miri) { 200 } else { 5000u32 };
            for number in 0..entries {
                let place = |list: &List| list.inserter().writer.room.take(&list.arena, 0).0;
                let (key, before) = (key(number), place(&list));
                insert(&list, &key, number.into());
                let words = (place(&list) - before) as usize;
                let content = if key.len() > SHORT_BYTES_MAX {
                    Content::Long(0, key.len())
                } else {
                    Content::Short(&key, &[])
                };
                // Words left over at the end of a chunk are not counted.
                let branch = words - content.words();
                taken += if branch <= trie::BRANCH_BYTES_MAX / size_of::<NodeId>() { branch } else { 0 };
            }
            let most = entries as usize * trie::ENTRY_BYTES_MAX;
            assert!(taken * size_of::<NodeId>() <= most, "{taken} words for {entries} entries");
        }
    }
}
