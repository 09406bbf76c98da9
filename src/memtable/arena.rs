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
//! A reader gets the number of a node from a link that was stored, with release, after the slot was filled.
//! So it sees the slot filled.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;

use crate::key::{InternalKey, Tag, key_prefix};

/// Number of a node. [`HEAD`] is the sentinel.
pub(super) type NodeId = u32;

/// The sentinel before the first entry and after the last: the list is a ring.
pub(super) const HEAD: NodeId = 0;

const FIRST_BITS: u32 = 4;
const CHUNK_BITS: u32 = 12;

/// Slots of region 0.
const FIRST_SLOTS: usize = 1 << FIRST_BITS;

/// Slots of the largest chunks.
const CHUNK_SLOTS: usize = 1 << CHUNK_BITS;

/// The most bytes of one slot with its tower, and of a whole chunk without towers.
pub(super) const SLOT_BYTES_MAX: usize =
    size_of::<Links>() + size_of::<OnceLock<Entry>>() + size_of::<Tower>();
pub(super) const CHUNK_BYTES_MAX: usize = CHUNK_SLOTS * (size_of::<Links>() + size_of::<OnceLock<Entry>>());

/// What is allocated for the sentinel: region 0 and a tower.
pub(super) const FIRST_BYTES: usize = size_of::<OnceLock<Chunk>>()
    + FIRST_SLOTS * (size_of::<Links>() + size_of::<OnceLock<Entry>>())
    + size_of::<Tower>();

/// Regions that all numbers of 32 bits need.
const REGIONS: usize = 1 + (u32::BITS - FIRST_BITS) as usize;

/// Levels whose links are in the slot.
const LOW_LEVELS: usize = 5;

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
    pub(super) key: Bytes,
    pub(super) tag: Tag,
    pub(super) value: Bytes,
    tower: Option<Box<Tower>>,
}

impl Entry {
    /// The entry of a node of this height.
    pub(super) fn new(key: Bytes, tag: Tag, value: Bytes, height: usize) -> Self {
        let tower = (height > LOW_LEVELS).then(Box::default);
        Self { key, tag, value, tower }
    }

    pub(super) fn internal_key(&self) -> InternalKey<'_> {
        InternalKey::new(&self.key, self.tag)
    }
}

struct Chunk {
    links: Box<[Links]>,
    entries: Box<[OnceLock<Entry>]>,
}

impl Chunk {
    fn new(slots: usize) -> Self {
        Self {
            links: (0..slots).map(|_| Links::default()).collect(),
            entries: (0..slots).map(|_| OnceLock::new()).collect(),
        }
    }
}

/// The chunks of a region, each made when it is first needed.
type Region = Box<[OnceLock<Chunk>]>;

/// All nodes of one memtable.
pub(super) struct Arena {
    regions: [OnceLock<Region>; REGIONS],
}

impl Arena {
    pub(super) fn new() -> Self {
        Self { regions: [const { OnceLock::new() }; REGIONS] }
    }

    /// The chunk of a node, and its slot there.
    #[inline]
    fn chunk(&self, id: NodeId) -> (&Chunk, usize) {
        let (region, chunk, slot) = locate(id);
        let found = self.regions[region].get().and_then(|chunks| chunks[chunk].get());
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
            None => self.high_link(id, level - LOW_LEVELS),
        }
    }

    #[cold]
    fn high_link(&self, id: NodeId, at: usize) -> &AtomicU32 {
        let tower = self.entry(id).tower.as_ref();
        &tower.expect("a node that is linked on a high level has a tower")[at]
    }

    /// Fills the slot `id`, all but its links, and returns how many bytes were allocated. Numbers are given
    /// in order.
    pub(super) fn fill(&self, id: NodeId, entry: Entry) -> usize {
        let (region, chunk, slot) = locate(id);
        let mut allocated = if entry.tower.is_some() { size_of::<Tower>() } else { 0 };
        let chunks = self.regions[region].get_or_init(|| {
            let chunks: Region = (0..chunks_of(region)).map(|_| OnceLock::new()).collect();
            allocated += size_of_val(&*chunks);
            chunks
        });
        let chunk = chunks[chunk].get_or_init(|| {
            let chunk = Chunk::new(slots_of(region).min(CHUNK_SLOTS));
            allocated += size_of_val(&*chunk.links) + size_of_val(&*chunk.entries);
            chunk
        });
        chunk.links[slot].prefix.store(key_prefix(&entry.key), Ordering::Relaxed);
        let taken = chunk.entries[slot].set(entry).is_err();
        debug_assert!(!taken, "a slot is filled once");
        allocated
    }
}

/// Region of a node, chunk in the region and slot in the chunk.
#[inline]
fn locate(id: NodeId) -> (usize, usize, usize) {
    let id = id as usize;
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
    }
}
