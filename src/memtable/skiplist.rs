//! The order of a memtable: an append-only skiplist, one writer at a time, readers without locks.
//!
//! Level 0 is a ring through the sentinel with links in both directions; the levels above only shorten the
//! search. One node in [`BRANCHING`] of a level is on the next one, too.
//!
//! To insert a node X between its neighbours P and N, under the writer's lock:
//!
//! 1. find P and N, and the nodes before X on the other levels;
//! 2. fill X, with its link back;
//! 3. link it: on level 0 `X.next = N`, then `P.next = X`, then `N.prev = X`; then likewise, without a link back, the
//!    upper levels from below. A link to X is stored with release.
//!
//! Nodes are never removed, and every link is read with acquire: a reader that sees X in a link sees all of
//! X that it goes on to: its entry, and its links from this level down.
//!
//! Readers search from the top. The writer need not: a key after all others needs no search, and for others it has an
//! index of all nodes by the first bytes of their keys (`index`). So it looks at no other node than those that it links:
//! in a large memtable each is a wait for memory, and such waits are most of the time of an insertion. Where the first
//! bytes do not tell keys apart, the place may be after the last of those that they do not tell apart, or among the first
//! few, or shortly after the node that was inserted last. Otherwise the writer searches as readers do; and so it does for
//! the few nodes that reach a level of which the index knows nothing.
//!
//! # A reader misses nothing that was complete before it started
//!
//! X is *complete* for a reader if its insertion happened before the reader's start (the writer published a
//! sequence number after inserting, the reader read it first). Entries that are not complete may or may not
//! be seen; their sequence numbers are larger than the reader's snapshot.
//!
//! *Forward.* For every node M < X, what a reader finds in `M.next` is some Y with M < Y <= X:
//! - If M was there when X was inserted, `M.next` was at most X when that insertion ended: either X was
//!   linked behind M, or M's successor was before X already. The stores to `M.next` come in the order of
//!   insertion and only ever put a node between M and its successor, so its value only decreases; and a
//!   read that happens after a store sees that store or a later one.
//! - If M was inserted after X, `M.next` began as the successor that M had then, which is at most X.
//!
//! So from any node before X, steps forward cannot jump over X. Upper levels cannot either: a search goes
//! along them only to nodes before its target, and ends with steps on level 0.
//!
//! *Backward.* The same with the signs turned: for every node M > X (the sentinel counts as after all),
//! `M.prev` is some Y with X <= Y < M. Between `P.next = X` and `N.prev = X` a reader may pass over X
//! backward but not forward: X was not complete then. Since step 3 is done in full before the next
//! insertion starts, `M.prev` is exactly M's predecessor whenever a later insertion reads it.

use std::cmp::Ordering;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering as Memory};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;

use super::NewEntry;
use super::arena::{self, Arena, Room};
use super::index::{self, Index, Slot};
use super::long::LongEntries;
use super::node::{Content, HEAD, HEIGHT_MAX, Node, NodeId, SHORT_BYTES_MAX};
use crate::key::{InternalKey, Tag, key_prefix};
use crate::sync::lock;

/// One node in this many of a level is on the next one.
const BRANCHING: u32 = 4;

/// State of the generator that draws heights. Fixed, so that the same insertions make the same list.
const HEIGHT_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// So many nodes that the index does not tell apart are passed; beyond, the search begins at the top. A new entry of a key is
/// before all others of that key.
const TIED_MAX: usize = 4;

/// What so many insertions read is read ahead together.
pub(crate) const GROUP_MAX: usize = 32;

/// Words of a memtable that is not in the caches of a core, or not all.
const FAR_WORDS: usize = if cfg!(test) { 1 << 8 } else { 1 << 18 };

pub(super) struct SkipList {
    arena: Arena,
    long: LongEntries,
    /// Levels in use. Only shortens the search: a reader that sees an old height finds the same.
    height: AtomicUsize,
    writer: Mutex<Writer>,
}

/// What only the writer needs.
struct Writer {
    random: u64,
    room: Room,
    /// The node that was inserted last.
    newest: NodeId,
    /// The last node of all on each level.
    last: [NodeId; HEIGHT_MAX],
    index: Index,
}

/// An internal key that is searched for.
struct Target<'a> {
    prefix: u64,
    key: InternalKey<'a>,
}

impl<'a> Target<'a> {
    #[inline]
    fn new(key: InternalKey<'a>) -> Self {
        Self { prefix: key_prefix(key.user), key }
    }
}

/// The place of a target.
struct Place {
    /// That of its first bytes in the index.
    slot: Slot,
    /// Whether all nodes with the same first bytes are before it.
    is_last: bool,
    /// The last node before it, on each level that its node is to reach.
    before: [NodeId; HEIGHT_MAX],
    /// The first one not before it on level 0.
    after: NodeId,
}

/// An entry of the list. Its key and value are copied, unless the entry is long.
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

    /// Puts the user key into a buffer.
    pub(crate) fn copy_key(&self, key: &mut Vec<u8>) {
        match self.node.long() {
            None => self.node.copy_key(key),
            Some(number) => {
                key.clear();
                key.extend_from_slice(&self.long.get(number)[..self.node.key_len()]);
            }
        }
    }

    /// The value: a copy of it, or of a long entry a share.
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

    /// The value of a long entry where it lies.
    pub(super) fn long_value(&self) -> Option<&'a [u8]> {
        Some(&self.long.get(self.node.long()?)[self.node.key_len()..])
    }

    /// Puts the value of an entry that is not long into a buffer.
    pub(super) fn copy_value(&self, value: &mut Vec<u8>) {
        self.node.copy_value(value);
    }

    /// Compares the user key with a key of the same prefix.
    fn compare(&self, key: &[u8]) -> Ordering {
        match self.node.long() {
            None => self.node.compare(key),
            Some(number) => self.long.get(number)[..self.node.key_len()].cmp(key),
        }
    }
}

/// Inserts into a list, alone as long as it exists.
pub(super) struct Inserter<'a> {
    list: &'a SkipList,
    writer: MutexGuard<'a, Writer>,
}

impl<'a> Inserter<'a> {
    /// Inserts copies of entries and says how many bytes were allocated. An entry whose internal key is there already comes
    /// before the old one.
    ///
    /// # Panics
    ///
    /// When the entries that are not long take 16 GiB.
    #[inline]
    pub(super) fn insert_all(&mut self, entries: &[NewEntry<'_>]) -> usize {
        let mut allocated = 0;
        for group in entries.chunks(GROUP_MAX) {
            self.list.read_ahead(&self.writer, group);
            for entry in group {
                allocated += self.list.insert(&mut self.writer, entry);
            }
        }
        allocated
    }

    /// All entries, those with the largest sequence numbers first, if they were inserted in ascending order.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let (list, last) = (self.list, self.writer.newest);
        let ids = std::iter::successors(Some(last), |&id| Some(list.node(id).inserted_before()));
        ids.take_while(|&id| id != HEAD).map(|id| list.entry(id))
    }
}

impl SkipList {
    /// What is allocated for an empty list, and for the first nodes in its index.
    pub(super) const EMPTY_BYTES: usize = arena::FIRST_BYTES + index::FIRST_BYTES;

    /// An empty list, and how many bytes were allocated for it.
    pub(super) fn new() -> (Self, usize) {
        let (arena, mut room) = (Arena::default(), Room::default());
        let sentinel = Content::Short(&[], &[]);
        let (head, allocated) = room.take(&arena, sentinel.words(HEIGHT_MAX));
        debug_assert_eq!(head, HEAD);
        Node::at(&arena, HEAD).fill(HEIGHT_MAX, Tag::newest_at(0), HEAD, sentinel);
        let (last, index) = ([HEAD; HEIGHT_MAX], Index::new());
        let writer = Mutex::new(Writer { random: HEIGHT_SEED, room, newest: HEAD, last, index });
        debug_assert_eq!(allocated, arena::FIRST_BYTES);
        (Self { arena, long: LongEntries::default(), height: AtomicUsize::new(1), writer }, Self::EMPTY_BYTES)
    }

    /// Waits until nobody else inserts.
    pub(super) fn inserter(&self) -> Inserter<'_> {
        Inserter { list: self, writer: lock(&self.writer) }
    }

    /// Reads what is read when these entries are inserted, so that the waits for memory coincide. It is not worth that in the
    /// caches of a core.
    fn read_ahead(&self, writer: &Writer, entries: &[NewEntry<'_>]) {
        let Writer { room, last, index, .. } = writer;
        let node_of = |id| Node::of_writer(room, id);
        let last = node_of(last[0]);
        let is_behind = |entry: &NewEntry<'_>| self.is_behind(&last, &Target::new(entry.internal_key()));
        if entries.len() < 2 || room.words_taken() < FAR_WORDS || is_behind(&entries[0]) {
            return;
        }
        let mut slots = [Slot::default(); GROUP_MAX];
        let (slots, mut read) = (&mut slots[..entries.len()], 0);
        let prefix = |entry: &NewEntry<'_>| key_prefix(entry.key);
        for (slot, entry) in slots.iter_mut().zip(entries) {
            *slot = index.find_leaf(prefix(entry));
            read ^= index.leaf_len(*slot) as u32;
        }
        for (slot, entry) in slots.iter_mut().zip(entries) {
            *slot = index.find_in_leaf(*slot, prefix(entry));
        }
        let mut ids = [HEAD; GROUP_MAX];
        let ids = &mut ids[..entries.len()];
        ids.iter_mut().zip(&*slots).for_each(|(id, slot)| *id = index.before(*slot));
        ids.iter_mut().for_each(|id| *id = node_of(*id).next(0).load(Memory::Relaxed));
        ids.iter().for_each(|&id| read ^= node_of(id).prev().load(Memory::Relaxed));
        black_box(read);
    }

    #[inline]
    fn insert(&self, writer: &mut Writer, entry: &NewEntry<'_>) -> usize {
        let &NewEntry { key, tag, value } = entry;
        let height = writer.draw_height();
        let (content, long) = if key.len() + value.len() <= SHORT_BYTES_MAX {
            (Content::Short(key, value), 0)
        } else {
            let (number, allocated) = self.long.add(key, value);
            (Content::Long(number, key), allocated)
        };
        let (id, mut allocated) = writer.room.take(&self.arena, content.words(height));
        let target = Target::new(entry.internal_key());
        let Place { slot, is_last, before, after } = self.place(writer, &target, height);
        let Writer { room, newest, last, index, .. } = writer;
        let node_of = |id| Node::of_writer(room, id);
        let node = node_of(id);
        node.fill(height, tag, *newest, content);
        node.prev().store(before[0], Memory::Relaxed);
        node.next(0).store(after, Memory::Relaxed);
        node_of(before[0]).next(0).store(id, Memory::Release);
        node_of(after).prev().store(id, Memory::Release);
        *newest = id;
        if after == HEAD {
            last[0] = id;
        }
        for level in 1..height {
            let link = node_of(before[level]).next(level);
            let after = link.load(Memory::Relaxed);
            node.next(level).store(after, Memory::Relaxed);
            link.store(id, Memory::Release);
            if after == HEAD {
                last[level] = id;
            }
        }
        if height > self.height.load(Memory::Relaxed) {
            self.height.store(height, Memory::Relaxed);
        }
        allocated += index.add(slot, target.prefix, (id, height), is_last);
        allocated + long
    }

    /// The place of a target whose node is to have this height.
    #[inline]
    fn place(&self, writer: &Writer, target: &Target<'_>, height: usize) -> Place {
        let Writer { room, last, index, .. } = writer;
        let node_of = |id| Node::of_writer(room, id);
        if self.is_behind(&node_of(last[0]), target) {
            let slot = index.find_last(target.prefix);
            return Place { slot, is_last: true, before: *last, after: HEAD };
        }
        let slot = index.find(target.prefix);
        let tied = index.last_with(slot, target.prefix);
        let is_last = tied.is_none_or(|last| self.is_before(&node_of(last), target));
        let found = if is_last {
            let before = tied.unwrap_or_else(|| index.before(slot));
            let next = || node_of(before).next(0).load(Memory::Relaxed);
            let after = if tied.is_none() { index.only(slot) } else { None };
            Some((before, after.unwrap_or_else(next)))
        } else {
            self.neighbours_among_tied(writer, target, slot)
        };
        if let Some((before, after)) = found
            && let Some(before) = self.before_on_levels(writer, target, slot, before, height)
        {
            return Place { slot, is_last, before, after };
        }
        let (before, after) = self.neighbours_from_top(writer, target, height);
        Place { slot, is_last, before, after }
    }

    /// The last nodes before the target on the levels of a node of this height; that on level 0 is known. `None`: it takes
    /// a search.
    #[inline]
    fn before_on_levels(
        &self,
        writer: &Writer,
        target: &Target<'_>,
        slot: Slot,
        before: NodeId,
        height: usize,
    ) -> Option<[NodeId; HEIGHT_MAX]> {
        let mut all = [HEAD; HEIGHT_MAX];
        all[0] = before;
        if height > index::LEVELS + 1 {
            return None;
        }
        for (level, before) in all.iter_mut().enumerate().take(height).skip(1) {
            *before = self.walk_few(writer, target, level, writer.index.high_before(slot, level))?.0;
        }
        Some(all)
    }

    /// The neighbours of a target on level 0 among nodes with the same first bytes, of which the last is not before it.
    /// `None`: it takes a search.
    #[inline(never)]
    fn neighbours_among_tied(
        &self,
        writer: &Writer,
        target: &Target<'_>,
        slot: Slot,
    ) -> Option<(NodeId, NodeId)> {
        let newest = Node::of_writer(&writer.room, writer.newest);
        let is_after_newest = newest.prefix() == target.prefix && self.is_behind(&newest, target);
        let nearest = if is_after_newest { self.walk_few(writer, target, 0, newest.id) } else { None };
        nearest.or_else(|| self.walk_few(writer, target, 0, writer.index.before(slot)))
    }

    /// The last node on a level before the target, and the next, if at most [`TIED_MAX`] nodes are passed from one that is
    /// before it.
    #[inline]
    fn walk_few(
        &self,
        writer: &Writer,
        target: &Target<'_>,
        level: usize,
        from: NodeId,
    ) -> Option<(NodeId, NodeId)> {
        let node_of = |id| Node::of_writer(&writer.room, id);
        let mut before = from;
        for _ in 0..=TIED_MAX {
            let next = node_of(before).next(level).load(Memory::Relaxed);
            if next == HEAD || !self.is_before(&node_of(next), target) {
                return Some((before, next));
            }
            #[cfg(test)]
            tests::PASSED.with(|passed| passed.set(passed.get() + 1));
            before = next;
        }
        None
    }

    /// The last nodes before the target on all levels up to those of a node of this height, and the one after it on level 0.
    #[inline(never)]
    fn neighbours_from_top(
        &self,
        writer: &Writer,
        target: &Target<'_>,
        height: usize,
    ) -> ([NodeId; HEIGHT_MAX], NodeId) {
        let node_of = |id| Node::of_writer(&writer.room, id);
        let levels = self.height.load(Memory::Relaxed).max(height);
        let (mut at, mut before, mut after) = (node_of(HEAD), [HEAD; HEIGHT_MAX], HEAD);
        for level in (0..levels).rev() {
            at = self.walk(&node_of, target, level, at, &mut after);
            before[level] = at.id;
        }
        (before, after)
    }

    /// Whether a node comes before the target. The sentinel does not.
    fn is_behind(&self, node: &Node<'_>, target: &Target<'_>) -> bool {
        node.id != HEAD && self.is_before(node, target)
    }

    /// Whether a node comes before the target.
    #[inline]
    fn is_before(&self, node: &Node<'_>, target: &Target<'_>) -> bool {
        let prefix = node.prefix();
        prefix < target.prefix || prefix == target.prefix && self.entry_is_before(node, target)
    }

    /// The same if the first bytes of their keys do not decide.
    #[inline(never)]
    fn entry_is_before(&self, node: &Node<'_>, target: &Target<'_>) -> bool {
        let entry = Entry { node: *node, long: &self.long };
        entry.compare(target.key.user).then_with(|| target.key.tag.cmp(&node.tag())).is_lt()
    }

    /// The last node on a level before `target`, from a node that is before it. `after` is known not to be before it,
    /// and becomes the node after the one that is returned.
    #[inline(always)]
    fn walk<'a>(
        &self,
        node_of: &impl Fn(NodeId) -> Node<'a>,
        target: &Target<'_>,
        level: usize,
        from: Node<'a>,
        after: &mut NodeId,
    ) -> Node<'a> {
        let mut before = from;
        loop {
            let next = before.next(level).load(Memory::Acquire);
            if next == HEAD || next == *after {
                *after = next;
                return before;
            }
            let node = node_of(next);
            if !self.is_before(&node, target) {
                *after = next;
                return before;
            }
            #[cfg(test)]
            tests::PASSED.with(|passed| passed.set(passed.get() + 1));
            before = node;
        }
    }

    /// The neighbours of `target`: the last node before it and the first one not before it.
    #[inline]
    fn search(&self, target: InternalKey<'_>) -> (NodeId, NodeId) {
        let target = Target::new(target);
        let (mut before, mut after) = (self.node(HEAD), HEAD);
        for level in (0..self.height.load(Memory::Relaxed)).rev() {
            before = self.walk(&|id| self.node(id), &target, level, before, &mut after);
        }
        (before.id, after)
    }

    #[inline]
    fn node(&self, id: NodeId) -> Node<'_> {
        Node::at(&self.arena, id)
    }

    /// The most that is allocated ahead of entries in a memtable of so many bytes.
    pub(super) fn ahead_max(&self, size_bytes: usize) -> usize {
        arena::FIRST_BYTES + arena::ahead_max(size_bytes, 1) + index::AHEAD_BYTES + self.long.ahead_max()
    }

    /// The entry of a node, not of [`HEAD`].
    #[inline]
    pub(super) fn entry(&self, id: NodeId) -> Entry<'_> {
        Entry { node: self.node(id), long: &self.long }
    }

    /// The entry of a node, if it is not [`HEAD`] and has this user key.
    pub(super) fn entry_of(&self, id: NodeId, user_key: &[u8]) -> Option<Entry<'_>> {
        let entry = self.entry(id);
        let is_same =
            id != HEAD && entry.node.prefix() == key_prefix(user_key) && entry.compare(user_key).is_eq();
        is_same.then_some(entry)
    }

    /// The node after `id`, or [`HEAD`] after the last; the first if `id` is [`HEAD`].
    #[inline]
    pub(super) fn next(&self, id: NodeId) -> NodeId {
        self.node(id).next(0).load(Memory::Acquire)
    }

    /// The node before `id`, or [`HEAD`] before the first; the last if `id` is [`HEAD`].
    #[inline]
    pub(super) fn prev(&self, id: NodeId) -> NodeId {
        self.node(id).prev().load(Memory::Acquire)
    }

    /// The first node at or after `target`, or [`HEAD`].
    pub(super) fn at_or_after(&self, target: InternalKey<'_>) -> NodeId {
        self.search(target).1
    }

    /// The last node before `target`, or [`HEAD`].
    pub(super) fn before(&self, target: InternalKey<'_>) -> NodeId {
        self.search(target).0
    }
}

impl Writer {
    fn draw_height(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // The high bits of a xorshift are its better ones.
        let zeros = self.random.leading_zeros() / BRANCHING.ilog2();
        HEIGHT_MAX.min(1 + zeros as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;

    fn numbers(list: &SkipList, level: usize) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut at = list.node(HEAD).next(level).load(Memory::Acquire);
        while at != HEAD {
            found.push(at);
            at = list.node(at).next(level).load(Memory::Acquire);
        }
        found
    }

    fn key_of(list: &SkipList, id: NodeId) -> Vec<u8> {
        let mut key = Vec::new();
        list.entry(id).copy_key(&mut key);
        key
    }

    fn insert(list: &SkipList, number: u32) {
        let (key, tag) = (&number.to_be_bytes()[..], Tag::new(1, EntryKind::Put));
        list.inserter().insert_all(&[NewEntry { key, tag, value: &[] }]);
    }

    #[test]
    fn every_level_is_a_sorted_part_of_the_one_below_of_about_a_quarter() {
        let (list, _) = SkipList::new();
        for number in 0..20_000u32 {
            insert(&list, number.wrapping_mul(0x9e37_79b9));
        }
        let mut below = numbers(&list, 0);
        assert_eq!(below.len(), 20_000);
        for level in 1..5 {
            let here = numbers(&list, level);
            let ratio = below.len() as f64 / here.len() as f64;
            assert!((2.5..6.0).contains(&ratio), "level {level}: {ratio}");
            let mut rest = below.iter();
            assert!(here.iter().all(|id| rest.any(|other| other == id)), "level {level}");
            below = here;
        }
    }

    #[test]
    fn links_backward_mirror_links_forward_after_every_insertion() {
        let (list, _) = SkipList::new();
        for number in 0..300u32 {
            insert(&list, number.wrapping_mul(0x9e37_79b9) >> 20);
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

    #[test]
    fn insertions_in_and_out_of_order_keep_every_level_sorted() {
        // The first bytes tell all keys apart, none, or few; the last are versions of few keys.
        let keys: [fn(u32) -> Vec<u8>; 4] = [
            |key| key.to_be_bytes().to_vec(),
            |key| [&b"the same"[..], &key.to_be_bytes()].concat(),
            |key| [&(key >> 24).to_be_bytes()[..], b"same", &key.to_be_bytes()].concat(),
            |key| (key % 50).to_be_bytes().to_vec(),
        ];
        let numbers_max = if cfg!(miri) { 150 } else { 3000u32 };
        for (to_key, group) in keys.into_iter().flat_map(|key| [1, 7, GROUP_MAX].map(|group| (key, group))) {
            let (list, _) = SkipList::new();
            let mut all = Vec::new();
            for number in 0..numbers_max {
                let key = to_key(match number % 100 {
                    0..50 => number << 16,
                    50..80 => (number - number % 100) << 16 | number,
                    _ => number.wrapping_mul(0x9e37_79b9),
                });
                all.push((key, Tag::new(u64::from(number), EntryKind::Put)));
            }
            for group in all.chunks(group) {
                let entries: Vec<_> =
                    group.iter().map(|(key, tag)| NewEntry { key, tag: *tag, value: &[] }).collect();
                list.inserter().insert_all(&entries);
                let writer = list.writer.lock().unwrap();
                for (level, &last) in writer.last.iter().enumerate() {
                    assert_eq!(list.node(last).next(level).load(Memory::Acquire), HEAD, "level {level}");
                }
            }
            let entry_of = |&id: &NodeId| (key_of(&list, id), std::cmp::Reverse(list.entry(id).tag()));
            for level in 0..HEIGHT_MAX {
                let found = numbers(&list, level);
                assert!(found.is_sorted_by_key(entry_of), "level {level}");
                let higher = if level + 1 < HEIGHT_MAX { numbers(&list, level + 1) } else { Vec::new() };
                let mut rest = found.iter();
                assert!(higher.iter().all(|id| rest.any(|other| other == id)), "level {level}");
            }
            assert_eq!(numbers(&list, 0).len(), all.len());
        }
    }

    thread_local! {
        /// Nodes that searches of this thread went past.
        pub(super) static PASSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn a_group_of_keys_with_the_same_first_bytes_passes_few_nodes() {
        let (list, _) = SkipList::new();
        let numbers: Vec<u32> = (0..3200).map(|number: u32| number.wrapping_mul(0x9e37_79b9)).collect();
        let keys: Vec<_> =
            numbers.iter().map(|number| format!("the same {number:010}").into_bytes()).collect();
        let tag = Tag::new(1, EntryKind::Put);
        let before = NewEntry { key: b"before", tag, value: &[] };
        list.inserter().insert_all(&[before]);
        for keys in keys.chunks(GROUP_MAX) {
            PASSED.set(0);
            let entries: Vec<_> = keys.iter().map(|key| NewEntry { key, tag, value: &[] }).collect();
            list.inserter().insert_all(&entries);
            assert!(PASSED.get() < 40 * GROUP_MAX, "{} nodes", PASSED.get());
        }
    }
}
