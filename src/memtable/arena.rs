//! The nodes of a memtable: slots that are filled once, never move and are never freed one by one.
//!
//! A node has a number, and a link is a number, so no node owns another and nothing has to be freed while
//! readers walk: the whole arena is freed with the memtable. Slots lie in chunks, and chunks in regions, each
//! of which is as large as all before it, so that an almost empty memtable is small:
//!
//! 1. region 0 has [`FIRST_SLOTS`] slots, region r has 2^(r-1) times as many;
//! 2. a region is one chunk as long as it has no more than [`CHUNK_SLOTS`] slots; beyond, it is chunks of
//!    that size, allocated one by one: allocating half a megabyte takes no noticeable time, half the memtable
//!    would.
//!
//! Region, chunk and slot of a node are computed from its number. A slot has two parts, because a search
//! visits many nodes and reads little of each:
//!
//! - [`Links`], half a cache line: the lower links and the first bytes of the key. All atomic, and already
//!   there (as zeros) when the chunk is made;
//! - [`Entry`], set once: the entry itself, read when the first bytes of two keys are equal.
//!
//! One node in a thousand is *tall*: it reaches levels whose links are not in [`Links`], and has a [`Tower`]
//! with these. Tall nodes have regions of their own; the number says which a node is.
//!
//! A reader gets the number of a node from a link that was stored, with release, after the slot was filled.
//! So it sees the slot filled.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use byteorder::{ByteOrder, LittleEndian};
use bytes::{BufMut, Bytes, BytesMut};

use crate::key::{InternalKey, Tag, key_prefix};

/// Number of a node. [`HEAD`] is the sentinel.
pub(super) type NodeId = u32;

/// The sentinel before the first entry and after the last: the list is a ring. The first tall node.
pub(super) const HEAD: NodeId = 0;

/// In the numbers of nodes that are not tall.
const LOW: NodeId = 1 << 31;

const FIRST_BITS: u32 = 2;
const CHUNK_BITS: u32 = 12;

/// Slots of region 0.
const FIRST_SLOTS: usize = 1 << FIRST_BITS;

/// Slots of the largest chunks.
const CHUNK_SLOTS: usize = 1 << CHUNK_BITS;

const SLOT_BYTES: usize = size_of::<Links>() + size_of::<OnceLock<Entry>>();

/// The most bytes of one slot, and of a whole chunk of slots that are not tall.
pub(super) const SLOT_BYTES_MAX: usize = SLOT_BYTES + size_of::<Tower>();
pub(super) const CHUNK_BYTES_MAX: usize = CHUNK_SLOTS * SLOT_BYTES;

/// What is allocated for the sentinel: the first region of tall nodes.
pub(super) const FIRST_BYTES: usize = size_of::<OnceLock<Chunk>>() + FIRST_SLOTS * SLOT_BYTES_MAX;

/// Regions that all numbers of 31 bits need.
const REGIONS: usize = (u32::BITS - FIRST_BITS) as usize;

/// Levels whose links are in the slot.
pub(super) const LOW_LEVELS: usize = 5;

/// Levels of the highest nodes: enough for 4^12, or 16 million, entries; beyond, searches slowly lengthen.
pub(super) const HEIGHT_MAX: usize = 12;

/// Links of the levels that one node in a thousand reaches.
type Tower = [AtomicU32; HEIGHT_MAX - LOW_LEVELS];

/// What a search needs of a node.
#[derive(Default)]
#[repr(align(32))]
pub(super) struct Links {
    /// The first bytes of the user key, see [`key_prefix`].
    prefix: AtomicU64,
    /// The next nodes on the lower levels.
    next: [AtomicU32; LOW_LEVELS],
    pub(super) prev: AtomicU32,
}

impl Links {
    #[inline]
    pub(super) fn prefix(&self) -> u64 {
        self.prefix.load(Ordering::Relaxed)
    }
}

/// What a node is there for.
pub(super) struct Entry {
    /// Length of the user key u32 · user key · value.
    data: Bytes,
    pub(super) tag: Tag,
}

/// Bytes of [`Entry::data`] in front of the key.
pub(super) const KEY_LEN_BYTES: usize = 4;

impl Entry {
    /// The entry with these data, which [`put_data`] has made.
    pub(super) fn new(data: Bytes, tag: Tag) -> Self {
        Self { data, tag }
    }

    #[inline]
    fn key_end(&self) -> usize {
        KEY_LEN_BYTES + LittleEndian::read_u32(&self.data) as usize
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.data[KEY_LEN_BYTES..self.key_end()]
    }

    pub(super) fn value(&self) -> Bytes {
        self.data.slice(self.key_end()..)
    }

    pub(super) fn lent_value(&self) -> &[u8] {
        &self.data[self.key_end()..]
    }

    pub(super) fn internal_key(&self) -> InternalKey<'_> {
        InternalKey::new(self.key(), self.tag)
    }
}

/// Appends the data of an entry.
pub(super) fn put_data(out: &mut BytesMut, key: &[u8], value: &[u8]) {
    out.put_u32_le(key.len() as u32);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

struct Chunk {
    links: Box<[Links]>,
    entries: Box<[OnceLock<Entry>]>,
    /// Of tall nodes.
    towers: Box<[Tower]>,
}

impl Chunk {
    fn new(slots: usize, is_tall: bool) -> Self {
        Self {
            links: (0..slots).map(|_| Links::default()).collect(),
            entries: (0..slots).map(|_| OnceLock::new()).collect(),
            towers: (0..if is_tall { slots } else { 0 }).map(|_| Tower::default()).collect(),
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.links) + size_of_val(&*self.entries) + size_of_val(&*self.towers)
    }
}

/// The chunks of a region, each made when it is first needed.
type Region = Box<[OnceLock<Chunk>]>;

/// All nodes of one memtable: the tall ones and the others.
pub(super) struct Arena {
    /// The regions of tall nodes, then those of the others.
    regions: [OnceLock<Region>; 2 * REGIONS],
}

/// The number of the `index`th node, which is tall or not. `None` if there are too many.
pub(super) fn node_id(index: u32, is_tall: bool) -> Option<NodeId> {
    (index < LOW).then_some(if is_tall { index } else { index | LOW })
}

impl Arena {
    pub(super) fn new() -> Self {
        Self { regions: [const { OnceLock::new() }; 2 * REGIONS] }
    }

    #[inline]
    fn region(&self, id: NodeId, region: usize) -> &OnceLock<Region> {
        &self.regions[region + if id & LOW == 0 { 0 } else { REGIONS }]
    }

    /// The chunk of a node, and its slot there.
    #[inline]
    fn chunk(&self, id: NodeId) -> (&Chunk, usize) {
        let (region, chunk, slot) = locate(id);
        let found = self.region(id, region).get().and_then(|chunks| chunks[chunk].get());
        (found.expect("a linked node is in its chunk"), slot)
    }

    /// The links of a node whose number was read from a link.
    #[inline]
    pub(super) fn links(&self, id: NodeId) -> &Links {
        let (chunk, slot) = self.chunk(id);
        &chunk.links[slot]
    }

    /// The entry of a node whose number was read from a link.
    #[inline]
    pub(super) fn entry(&self, id: NodeId) -> &Entry {
        let (chunk, slot) = self.chunk(id);
        chunk.entries[slot].get().expect("a linked node is in its slot")
    }

    /// The link from a node to the next on `level`, which it must reach. `links` are those of `id`.
    #[inline]
    pub(super) fn next<'a>(&'a self, id: NodeId, links: &'a Links, level: usize) -> &'a AtomicU32 {
        match links.next.get(level) {
            Some(next) => next,
            None => {
                let (chunk, slot) = self.chunk(id);
                &chunk.towers[slot][level - LOW_LEVELS]
            }
        }
    }

    /// Fills the slot `id`, all but its links, and returns how many bytes were allocated for slots. Numbers are
    /// given in order.
    pub(super) fn fill(&self, id: NodeId, entry: Entry) -> usize {
        let (region, chunk, slot) = locate(id);
        let mut allocated = 0;
        let chunks = self.region(id, region).get_or_init(|| {
            let chunks: Region = (0..chunks_of(region)).map(|_| OnceLock::new()).collect();
            allocated += size_of_val(&*chunks);
            chunks
        });
        let chunk = chunks[chunk].get_or_init(|| {
            let chunk = Chunk::new(slots_of(region).min(CHUNK_SLOTS), id & LOW == 0);
            allocated += chunk.bytes();
            chunk
        });
        chunk.links[slot].prefix.store(key_prefix(entry.key()), Ordering::Relaxed);
        let taken = chunk.entries[slot].set(entry).is_err();
        debug_assert!(!taken, "a slot is filled once");
        allocated
    }
}

/// The most that is allocated at once, beside a chunk of slots, in a memtable of so many bytes: the list of the
/// chunks of a region, and a chunk of tall nodes, of which there is one in a thousand.
pub(super) fn sparse_bytes_max(size_bytes: usize) -> usize {
    FIRST_BYTES + size_bytes / 512
}

/// Region of a node, chunk in the region and slot in the chunk.
#[inline]
fn locate(id: NodeId) -> (usize, usize, usize) {
    let id = (id & !LOW) as usize;
    if id < FIRST_SLOTS {
        return (0, 0, id);
    }
    let doublings = id.ilog2() - FIRST_BITS;
    let within = id - (FIRST_SLOTS << doublings);
    (1 + doublings as usize, within >> CHUNK_BITS, within & (CHUNK_SLOTS - 1))
}

fn slots_of(region: usize) -> usize {
    FIRST_SLOTS << region.saturating_sub(1)
}

fn chunks_of(region: usize) -> usize {
    slots_of(region).div_ceil(CHUNK_SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_in_order_and_every_chunk_is_filled_before_the_next() {
        let (mut region, mut chunk, mut slot) = (0, 0, 0);
        for id in 0..100_000 {
            assert_eq!(locate(id), (region, chunk, slot), "node {id}");
            assert_eq!(locate(id | LOW), (region, chunk, slot), "node {id}");
            slot += 1;
            if slot == slots_of(region).min(CHUNK_SLOTS) {
                (chunk, slot) = (chunk + 1, 0);
            }
            if chunk == chunks_of(region) {
                (region, chunk) = (region + 1, 0);
            }
        }
    }

    #[test]
    fn the_last_number_has_a_slot() {
        assert_eq!(locate(u32::MAX), (REGIONS - 1, chunks_of(REGIONS - 1) - 1, CHUNK_SLOTS - 1));
    }

    #[test]
    fn links_take_half_a_cache_line() {
        assert_eq!((size_of::<Links>(), align_of::<Links>()), (32, 32));
        assert_eq!(SLOT_BYTES, 80);
    }
}
