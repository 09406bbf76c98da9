//! The order of a memtable: an append-only skiplist, one writer at a time, readers without locks.
//!
//! Level 0 is a ring through the sentinel with links in both directions; the levels above only shorten the
//! search. One node in [`BRANCHING`] of a level is on the next one, too.
//!
//! To insert a node X between its neighbours P and N, under the writer's lock:
//!
//! 1. find P and N, and the nodes before X on the other levels;
//! 2. build X with all its links already set, and put it in its slot;
//! 3. link it: `P.next = X`, then `N.prev = X`, then the upper levels from below, each with release.
//!
//! Nodes are never removed, and every link is read with acquire: whoever sees X in a link sees all of X.
//!
//! # A reader misses nothing that was complete before it started
//!
//! Say that X was *complete* for a reader if its insertion happened before the reader's start (the writer
//! published a sequence number after inserting, the reader read it first). Entries that are not complete
//! may or may not be seen; their sequence numbers are larger than the reader's snapshot.
//!
//! *Forward.* For every node M < X, what a reader finds in `M.next` is some Y with M < Y <= X:
//! - If M was there when X was inserted, `M.next` was at most X when that insertion ended: either X was
//!   linked behind M, or M's successor was before X already. The stores to `M.next` come in the order of
//!   insertion and only ever put a node between M and its successor, so its value only decreases; and a
//!   read that happens after a store sees that store or a later one.
//! - If M was inserted after X, `M.next` was built as the successor that M had then, which is at most X.
//!
//! So from any node before X, steps forward cannot jump over X. Upper levels cannot either: a search goes
//! along them only to nodes before its target, and ends with steps on level 0.
//!
//! *Backward.* The same with the signs turned: for every node M > X (the sentinel counts as after all),
//! `M.prev` is some Y with X <= Y < M. Between `P.next = X` and `N.prev = X` a reader may pass over X
//! backward but not forward: X was not complete then. Since step 3 is done in full before the next
//! insertion starts, `M.prev` is exactly M's predecessor whenever a later insertion reads it.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering as Memory};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::arena::{Arena, HEAD, Node, NodeId, key_prefix};
use crate::key::{InternalKey, Tag};

/// Levels of the highest nodes: enough for 4^12, or 16 million, entries; beyond, searches slowly lengthen.
const HEIGHT_MAX: usize = 12;

/// One node in this many of a level is on the next one.
const BRANCHING: u32 = 4;

/// State of the generator that draws heights. Fixed, so that the same insertions make the same list.
const HEIGHT_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Per level, a node.
type Path = [NodeId; HEIGHT_MAX];

pub(super) struct SkipList {
    arena: Arena,
    /// Levels in use. Only shortens the search: a reader that sees an old height finds the same.
    height: AtomicUsize,
    writer: Mutex<Writer>,
}

/// What only the writer needs.
struct Writer {
    random: u64,
    /// Number of the next node.
    nodes: NodeId,
    /// The last node of each level: the path of an insertion at the end.
    tail: Path,
}

/// An internal key that is searched for.
struct Target<'a> {
    prefix: u64,
    key: InternalKey<'a>,
}

impl<'a> Target<'a> {
    fn new(key: InternalKey<'a>) -> Self {
        Self { prefix: key_prefix(key.user), key }
    }

    #[inline]
    fn is_after(&self, node: &Node) -> bool {
        match node.prefix.cmp(&self.prefix) {
            Ordering::Equal => node.internal_key() < self.key,
            order => order.is_lt(),
        }
    }
}

impl SkipList {
    /// An empty list, and how many bytes were allocated for it.
    pub(super) fn new() -> (Self, usize) {
        let list = Self {
            arena: Arena::new(),
            height: AtomicUsize::new(1),
            writer: Mutex::new(Writer { random: HEIGHT_SEED, nodes: HEAD + 1, tail: [HEAD; HEIGHT_MAX] }),
        };
        let head = Node {
            prefix: 0,
            key: Bytes::new(),
            tag: Tag::newest_at(0),
            value: Bytes::new(),
            next: AtomicU32::new(HEAD),
            prev: AtomicU32::new(HEAD),
            upper: (1..HEIGHT_MAX).map(|_| AtomicU32::new(HEAD)).collect(),
        };
        let allocated = tower_bytes(HEIGHT_MAX) + list.arena.fill(HEAD, head);
        (list, allocated)
    }

    /// Inserts an entry and says how many bytes were allocated for its node. An entry whose internal key is
    /// there already comes before the old one.
    ///
    /// # Panics
    ///
    /// When there are 2^32 entries, which take 480 GB.
    pub(super) fn insert(&self, key: Bytes, tag: Tag, value: Bytes) -> usize {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path_to(&writer, &Target::new(InternalKey::new(&key, tag)));
        let height = writer.draw_height();
        let id = writer.nodes;
        writer.nodes = id.checked_add(1).expect("a memtable has fewer than 2^32 entries");

        let after: Path = std::array::from_fn(|level| self.next_on(level, path[level]));
        let node = Node {
            prefix: key_prefix(&key),
            key,
            tag,
            value,
            next: AtomicU32::new(after[0]),
            prev: AtomicU32::new(path[0]),
            upper: (1..height).map(|level| AtomicU32::new(after[level])).collect(),
        };
        let allocated = tower_bytes(height) + self.arena.fill(id, node);

        self.node(path[0]).next.store(id, Memory::Release);
        self.node(after[0]).prev.store(id, Memory::Release);
        for level in 0..height {
            if level > 0 {
                self.node(path[level]).link(level).store(id, Memory::Release);
            }
            if after[level] == HEAD {
                writer.tail[level] = id;
            }
        }
        self.height.fetch_max(height, Memory::Relaxed);
        allocated
    }

    /// The last node before `target` on each level.
    fn path_to(&self, writer: &Writer, target: &Target<'_>) -> Path {
        let last = writer.tail[0];
        if last == HEAD || target.is_after(self.node(last)) {
            return writer.tail;
        }
        let mut path = [HEAD; HEIGHT_MAX];
        self.search(target, |level, node| path[level] = node);
        path
    }

    /// The neighbours of `target`: the last node before it and the first one not before it. `visit` is
    /// given the last node before it on each level.
    #[inline]
    fn search(&self, target: &Target<'_>, mut visit: impl FnMut(usize, NodeId)) -> (NodeId, NodeId) {
        let (mut before, mut after) = (HEAD, HEAD);
        let mut node = self.node(HEAD);
        for level in (0..self.height.load(Memory::Relaxed)).rev() {
            loop {
                let next = node.link(level).load(Memory::Acquire);
                // `after` is known not to be before the target: no need to look at it on each level.
                if next == HEAD || next == after {
                    after = next;
                    break;
                }
                let next_node = self.node(next);
                if !target.is_after(next_node) {
                    after = next;
                    break;
                }
                (before, node) = (next, next_node);
            }
            visit(level, before);
        }
        (before, after)
    }

    fn next_on(&self, level: usize, id: NodeId) -> NodeId {
        self.node(id).link(level).load(Memory::Acquire)
    }

    #[inline]
    pub(super) fn node(&self, id: NodeId) -> &Node {
        self.arena.node(id)
    }

    /// The node after `id`, or [`HEAD`] after the last; the first if `id` is [`HEAD`].
    #[inline]
    pub(super) fn next(&self, id: NodeId) -> NodeId {
        self.next_on(0, id)
    }

    /// The node before `id`, or [`HEAD`] before the first; the last if `id` is [`HEAD`].
    #[inline]
    pub(super) fn prev(&self, id: NodeId) -> NodeId {
        self.node(id).prev.load(Memory::Acquire)
    }

    /// The first node at or after `target`, or [`HEAD`].
    pub(super) fn at_or_after(&self, target: InternalKey<'_>) -> NodeId {
        self.search(&Target::new(target), |_, _| ()).1
    }

    /// The last node before `target`, or [`HEAD`].
    pub(super) fn before(&self, target: InternalKey<'_>) -> NodeId {
        self.search(&Target::new(target), |_, _| ()).0
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

/// What the allocator takes for the upper links of a node of this height: multiples of 16 bytes, 8 of which
/// are its own, and never less than 32.
fn tower_bytes(height: usize) -> usize {
    match height - 1 {
        0 => 0,
        links => (links * size_of::<AtomicU32>() + 8).next_multiple_of(16).max(32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;

    fn numbers(list: &SkipList, level: usize) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut at = list.next_on(level, HEAD);
        while at != HEAD {
            found.push(at);
            at = list.next_on(level, at);
        }
        found
    }

    fn insert(list: &SkipList, number: u32) {
        let key = Bytes::copy_from_slice(&number.to_be_bytes());
        list.insert(key, Tag::new(1, EntryKind::Put), Bytes::new());
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
    fn ascending_insertions_keep_every_level_linked_to_its_end() {
        let (list, _) = SkipList::new();
        (0..5000).for_each(|number| insert(&list, number));
        let writer = list.writer.lock().unwrap();
        for level in 0..HEIGHT_MAX {
            let nodes = numbers(&list, level);
            assert!(nodes.is_sorted());
            assert_eq!(writer.tail[level], nodes.last().copied().unwrap_or(HEAD), "level {level}");
        }
    }
}
