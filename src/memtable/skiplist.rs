//! The order of a memtable: an append-only skiplist, one writer at a time, readers without locks.
//!
//! Level 0 is a ring through the sentinel with links in both directions; the levels above only shorten the
//! search. One node in [`BRANCHING`] of a level is on the next one, too.
//!
//! To insert a node X between its neighbours P and N, under the writer's lock:
//!
//! 1. find P and N, and the nodes before X on the other levels;
//! 2. put X in its slot, with all its own links set;
//! 3. link it: `P.next = X`, then `N.prev = X`, then the upper levels from below, each with release.
//!
//! Nodes are never removed, and every link is read with acquire: a reader that sees X in a link sees all of
//! X.
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

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering as Memory};

use bytes::BytesMut;

use super::arena::{self, Arena, Entry, HEAD, HEIGHT_MAX, LOW_LEVELS, Links, NodeId, node_id, put_data};
use super::data::Data;
use crate::key::{InternalKey, Tag, key_prefix};
use crate::sync::lock;

/// One node in this many of a level is on the next one.
const BRANCHING: u32 = 4;

/// State of the generator that draws heights. Fixed, so that the same insertions make the same list.
const HEIGHT_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A node and its links.
type Node<'a> = (NodeId, &'a Links);

/// Per level, a node.
type Path<'a> = [Node<'a>; HEIGHT_MAX];

pub(super) struct SkipList {
    arena: Arena,
    /// Levels in use. Only shortens the search: a reader that sees an old height finds the same.
    height: AtomicUsize,
    writer: Mutex<Writer>,
}

/// What only the writer needs.
struct Writer {
    random: u64,
    /// How many nodes are tall, the sentinel too, and how many are not.
    tall: u32,
    low: u32,
    data: Data,
    /// The last node of each level: the path of an insertion at the end.
    tail: [NodeId; HEIGHT_MAX],
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
}

impl SkipList {
    /// What is allocated for an empty list.
    pub(super) const EMPTY_BYTES: usize = arena::FIRST_BYTES;

    /// An empty list, and how many bytes were allocated for it.
    pub(super) fn new() -> (Self, usize) {
        let list = Self {
            arena: Arena::new(),
            height: AtomicUsize::new(1),
            writer: Mutex::new(Writer {
                random: HEIGHT_SEED,
                tall: 1,
                low: 0,
                data: Data::default(),
                tail: [HEAD; HEIGHT_MAX],
            }),
        };
        let mut nothing = BytesMut::new();
        put_data(&mut nothing, &[], &[]);
        let allocated = list.arena.fill(HEAD, Entry::new(nothing.freeze(), Tag::newest_at(0)));
        (list, allocated)
    }

    /// Inserts a copy of an entry and says how many bytes were allocated. An entry whose internal key is there
    /// already comes before the old one.
    ///
    /// # Panics
    ///
    /// When there are 2^31 entries, which take a sixth of a terabyte without their keys.
    pub(super) fn insert(&self, key: &[u8], tag: Tag, value: &[u8]) -> usize {
        let mut writer = lock(&self.writer);
        let height = writer.draw_height();
        let path = self.path_to(&writer, &Target::new(InternalKey::new(key, tag)), height);
        let id = writer.next_id(height);
        let (data, allocated) = writer.data.add(key, value);

        let allocated = allocated + self.arena.fill(id, Entry::new(data, tag));
        let links = self.arena.links(id);
        let mut after = [HEAD; HEIGHT_MAX];
        for (level, &before) in path[..height].iter().enumerate() {
            after[level] = self.next_on(before, level).load(Memory::Relaxed);
            self.next_on((id, links), level).store(after[level], Memory::Relaxed);
        }
        links.prev.store(path[0].0, Memory::Relaxed);

        self.next_on(path[0], 0).store(id, Memory::Release);
        self.arena.links(after[0]).prev.store(id, Memory::Release);
        for (level, &before) in path[..height].iter().enumerate().skip(1) {
            self.next_on(before, level).store(id, Memory::Release);
        }
        self.height.fetch_max(height, Memory::Relaxed);
        for level in (0..height).filter(|&level| after[level] == HEAD) {
            writer.tail[level] = id;
        }
        allocated
    }

    /// The last node before `target` on each level below `height`.
    fn path_to(&self, writer: &Writer, target: &Target<'_>, height: usize) -> Path<'_> {
        let head = (HEAD, self.arena.links(HEAD));
        let mut path = [head; HEIGHT_MAX];
        let last = writer.tail[0];
        if last == HEAD || self.is_before(last, self.arena.links(last), target) {
            for (node, &id) in path[..height].iter_mut().zip(&writer.tail) {
                *node = (id, self.arena.links(id));
            }
        } else {
            self.search(target, |level, node| path[level] = node);
        }
        path
    }

    /// The link of a node to the next on a level.
    #[inline]
    fn next_on<'a>(&'a self, (id, links): Node<'a>, level: usize) -> &'a AtomicU32 {
        self.arena.next(id, links, level)
    }

    /// Whether a node, whose links these are, comes before the target.
    #[inline]
    fn is_before(&self, id: NodeId, links: &Links, target: &Target<'_>) -> bool {
        let prefix = links.prefix();
        prefix < target.prefix || prefix == target.prefix && self.entry_is_before(id, target)
    }

    /// The same if the first bytes of their keys do not decide.
    #[inline(never)]
    fn entry_is_before(&self, id: NodeId, target: &Target<'_>) -> bool {
        self.arena.entry(id).internal_key() < target.key
    }

    /// The neighbours of `target`: the last node before it and the first one not before it. `visit` is
    /// given the last node before it on each level.
    #[inline]
    fn search<'a>(&'a self, target: &Target<'_>, mut visit: impl FnMut(usize, Node<'a>)) -> (NodeId, NodeId) {
        let (mut before, mut after) = (HEAD, HEAD);
        let mut links = self.arena.links(HEAD);
        for level in (0..self.height.load(Memory::Relaxed)).rev() {
            loop {
                let next = self.arena.next(before, links, level).load(Memory::Acquire);
                // `after` is known not to be before the target, and is not compared again on each level.
                if next == HEAD || next == after {
                    after = next;
                    break;
                }
                let next_links = self.arena.links(next);
                if !self.is_before(next, next_links, target) {
                    after = next;
                    break;
                }
                (before, links) = (next, next_links);
            }
            visit(level, (before, links));
        }
        (before, after)
    }

    fn link(&self, id: NodeId, level: usize) -> &AtomicU32 {
        self.arena.next(id, self.arena.links(id), level)
    }

    /// The user keys of all entries, in order; one for each entry.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let first = self.next(HEAD);
        let ids = std::iter::successors(Some(first), |&id| Some(self.next(id)));
        ids.take_while(|&id| id != HEAD).map(|id| self.entry(id).key())
    }

    /// All entries, those with the largest sequence numbers first, if they were inserted in ascending order.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Entry> {
        let (mut tall, mut low) = {
            let writer = lock(&self.writer);
            ((1..writer.tall).rev().peekable(), (0..writer.low).rev().peekable())
        };
        let entry = |index: &u32, is_tall| node_id(*index, is_tall).map(|id| self.arena.entry(id));
        std::iter::from_fn(move || {
            let tallest = tall.peek().and_then(|index| entry(index, true));
            let lowest = low.peek().and_then(|index| entry(index, false));
            let is_tall = match (tallest, lowest) {
                (Some(tall), Some(low)) => tall.tag.seqno() > low.tag.seqno(),
                (tall, _) => tall.is_some(),
            };
            if is_tall {
                tall.next();
                tallest
            } else {
                low.next();
                lowest
            }
        })
    }

    /// The entry of a node, not of [`HEAD`].
    #[inline]
    pub(super) fn entry(&self, id: NodeId) -> &Entry {
        self.arena.entry(id)
    }

    /// The node after `id`, or [`HEAD`] after the last; the first if `id` is [`HEAD`].
    #[inline]
    pub(super) fn next(&self, id: NodeId) -> NodeId {
        self.link(id, 0).load(Memory::Acquire)
    }

    /// The node before `id`, or [`HEAD`] before the first; the last if `id` is [`HEAD`].
    #[inline]
    pub(super) fn prev(&self, id: NodeId) -> NodeId {
        self.arena.links(id).prev.load(Memory::Acquire)
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
    fn next_id(&mut self, height: usize) -> NodeId {
        let is_tall = height > LOW_LEVELS;
        let nodes = if is_tall { &mut self.tall } else { &mut self.low };
        let id = node_id(*nodes, is_tall).expect("a memtable has fewer than 2^31 entries");
        *nodes += 1;
        id
    }

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
        let mut at = list.link(HEAD, level).load(Memory::Acquire);
        while at != HEAD {
            found.push(at);
            at = list.link(at, level).load(Memory::Acquire);
        }
        found
    }

    fn insert(list: &SkipList, number: u32) {
        list.insert(&number.to_be_bytes(), Tag::new(1, EntryKind::Put), &[]);
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
            assert!(nodes.is_sorted_by_key(|&id| list.entry(id).key()));
            assert_eq!(writer.tail[level], nodes.last().copied().unwrap_or(HEAD), "level {level}");
        }
    }
}
