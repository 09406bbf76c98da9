//! Where the nodes of a memtable live: slots that are filled once, never move and are never taken back.
//!
//! A node has a number, and a link is a number, so no node owns another and nothing has to be reclaimed
//! while readers walk: the whole arena goes when the last owner of the memtable does. Slots stand in chunks
//! that grow with the arena, so that an almost empty memtable is small and a full one wastes little:
//!
//! 1. chunk 0 has [`FIRST_SLOTS`] slots;
//! 2. from there on each doubling of the arena is made of [`PIECES`] chunks of equal size. At most a
//!    quarter of what stands before them is allocated and not yet used.
//!
//! Chunk and slot of a node are computed from its number, so reading a node is two acquire loads (both
//! `OnceLock`s) and no search. Whoever knows the number of a node read it from a link that was stored, with
//! release, after the slot was filled; so the slot is filled for them, too.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use bytes::Bytes;

use crate::key::{InternalKey, Tag};

/// Number of a node. [`HEAD`] is the sentinel.
pub(super) type NodeId = u32;

/// The sentinel before the first entry and after the last: the list is a ring.
pub(super) const HEAD: NodeId = 0;

const FIRST_BITS: u32 = 4;
const PIECE_BITS: u32 = 2;

/// Slots of chunk 0.
const FIRST_SLOTS: usize = 1 << FIRST_BITS;

/// Chunks in each doubling of the arena.
const PIECES: usize = 1 << PIECE_BITS;

/// Chunks that all numbers of 32 bits need.
const CHUNKS: usize = 1 + (u32::BITS - FIRST_BITS) as usize * PIECES;

/// One entry and its links.
pub(super) struct Node {
    /// The first eight bytes of the user key, see [`key_prefix`].
    pub(super) prefix: u64,
    pub(super) key: Bytes,
    pub(super) tag: Tag,
    pub(super) value: Bytes,
    pub(super) next: AtomicU32,
    pub(super) prev: AtomicU32,
    /// The next nodes on the levels above 0; most nodes have none.
    pub(super) upper: Box<[AtomicU32]>,
}

impl Node {
    pub(super) fn internal_key(&self) -> InternalKey<'_> {
        InternalKey::new(&self.key, self.tag)
    }

    /// The link to the next node on `level`.
    #[inline]
    pub(super) fn link(&self, level: usize) -> &AtomicU32 {
        if level == 0 { &self.next } else { &self.upper[level - 1] }
    }
}

/// The first eight bytes of a user key as a number, filled up with zeros. If two prefixes differ, the keys
/// compare as they do: a byte that is filled up is zero, and a key sorts before those it is a prefix of.
#[inline]
pub(super) fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            key.iter().enumerate().fold(0, |prefix, (at, &byte)| prefix | u64::from(byte) << (56 - 8 * at))
        }
    }
}

type Slot = OnceLock<Node>;

/// All nodes of one memtable.
pub(super) struct Arena {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
}

impl Arena {
    pub(super) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// The node with this number, which must have been read from a link.
    #[inline]
    pub(super) fn node(&self, id: NodeId) -> &Node {
        let (chunk, slot) = locate(id);
        let found = self.chunks[chunk].get().and_then(|slots| slots[slot].get());
        found.expect("a linked node is in its slot")
    }

    /// Fills the slot `id` and says how many bytes were allocated for slots. Numbers are given in order.
    pub(super) fn fill(&self, id: NodeId, node: Node) -> usize {
        let (chunk, slot) = locate(id);
        let mut allocated = 0;
        let slots = self.chunks[chunk].get_or_init(|| {
            let slots: Box<[Slot]> = (0..chunk_slots(chunk)).map(|_| Slot::new()).collect();
            allocated = size_of_val(&*slots);
            slots
        });
        let taken = slots[slot].set(node).is_err();
        debug_assert!(!taken, "a slot is filled once");
        allocated
    }
}

/// Chunk and slot of a node.
#[inline]
fn locate(id: NodeId) -> (usize, usize) {
    let id = id as usize;
    if id < FIRST_SLOTS {
        return (0, id);
    }
    let doubling = id.ilog2() - FIRST_BITS;
    let within = id - (FIRST_SLOTS << doubling);
    let slot_bits = FIRST_BITS - PIECE_BITS + doubling;
    let chunk = 1 + doubling as usize * PIECES + (within >> slot_bits);
    (chunk, within & ((1 << slot_bits) - 1))
}

fn chunk_slots(chunk: usize) -> usize {
    match chunk {
        0 => FIRST_SLOTS,
        _ => (FIRST_SLOTS / PIECES) << ((chunk - 1) / PIECES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_in_order_and_every_chunk_is_filled_before_the_next() {
        let (mut chunk, mut slot) = (0, 0);
        for id in 0..100_000 {
            assert_eq!(locate(id), (chunk, slot), "node {id}");
            slot += 1;
            if slot == chunk_slots(chunk) {
                (chunk, slot) = (chunk + 1, 0);
            }
        }
    }

    #[test]
    fn the_last_number_has_a_slot() {
        let (chunk, slot) = locate(u32::MAX);
        assert_eq!(chunk, CHUNKS - 1);
        assert_eq!(slot, chunk_slots(chunk) - 1);
    }

    #[test]
    fn prefixes_never_contradict_the_order_of_keys() {
        let keys: [&[u8]; 9] =
            [b"", b"\0", b"\0\0\0\0\0\0\0\0\0", b"a", b"a\0", b"a\0b", b"abcdefgh", b"abcdefghi", b"\xff"];
        for a in keys {
            for b in keys {
                assert!(
                    key_prefix(a) == key_prefix(b) || (key_prefix(a) < key_prefix(b)) == (a < b),
                    "{a:?} {b:?}"
                );
            }
        }
    }
}
