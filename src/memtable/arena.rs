//! The memory of a memtable: words of 32 bits in chunks that never move and are freed together.
//!
//! A place is a chunk number and a word index. A chunk is a sixteenth as large as all chunks before it, up to
//! [`CHUNK_WORDS`]. Chunks are listed in regions of doubling size, so a place leads to its words in two loads. The
//! writer has its own list of chunks ([`Room`]), whose lookups take a third of the instructions.
//!
//! All words are atomic and initially zero, because readers read other words of a chunk while the writer fills it. A
//! reader gets a place from a link that was stored with release after the words of the place were filled.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

pub(super) type Place = u32;

const CHUNK_BITS: u32 = 16;

const CHUNK_WORDS: usize = 1 << CHUNK_BITS;

const FIRST_WORDS: usize = 128;

const GROWTH: usize = 16;

const CHUNKS_PER_DOUBLING: usize = 12;

const REGION_CHUNKS: u32 = 8;

const REGIONS: usize = (u32::BITS - CHUNK_BITS - REGION_CHUNKS.ilog2() + 1) as usize;

const FRAMING_BYTES: usize = 16 + 2 * size_of::<Chunk>();

pub(super) const CHUNK_BYTES: usize = CHUNK_WORDS * size_of::<AtomicU32>() + FRAMING_BYTES;

const LIST_BYTES: usize = (REGION_CHUNKS as usize * size_of::<OnceLock<Chunk>>()) << 3;

pub(super) const FIRST_BYTES: usize = FIRST_WORDS * size_of::<AtomicU32>()
    + FRAMING_BYTES
    + REGION_CHUNKS as usize * size_of::<OnceLock<Chunk>>();

type Chunk = Arc<[AtomicU32]>;

type Region = Box<[OnceLock<Chunk>]>;

#[derive(Default)]
pub(super) struct Arena {
    regions: [OnceLock<Region>; REGIONS],
}

pub(super) trait Words {
    fn words(&self, place: Place) -> &[AtomicU32];
}

impl Words for Arena {
    #[inline]
    fn words(&self, place: Place) -> &[AtomicU32] {
        let (region, chunk) = locate(place >> CHUNK_BITS);
        let found = self.regions[region].get().and_then(|chunks| chunks[chunk].get());
        &found.expect("a place is in a chunk")[place as usize % CHUNK_WORDS..]
    }
}

impl Words for Room {
    #[inline]
    fn words(&self, place: Place) -> &[AtomicU32] {
        &self.chunks[(place >> CHUNK_BITS) as usize][place as usize % CHUNK_WORDS..]
    }
}

impl Arena {
    fn add(&self, number: u32, chunk: Chunk) -> usize {
        let (region, at) = locate(number);
        let mut allocated = size_of_val(&*chunk) + FRAMING_BYTES;
        let chunks = self.regions[region].get_or_init(|| {
            let chunks: Region = (0..REGION_CHUNKS << region).map(|_| OnceLock::new()).collect();
            allocated += size_of_val(&*chunks);
            chunks
        });
        let taken = chunks[at].set(chunk).is_err();
        debug_assert!(!taken, "a chunk is added once");
        allocated
    }
}

#[inline]
fn locate(chunk: u32) -> (usize, usize) {
    let at = chunk + REGION_CHUNKS;
    let region = at.ilog2() - REGION_CHUNKS.ilog2();
    (region as usize, (at - (REGION_CHUNKS << region)) as usize)
}

#[derive(Default)]
pub(super) struct Room {
    chunks: Vec<Chunk>,
    words: usize,
    used: usize,
    total: usize,
}

impl Room {
    pub(super) fn words_taken(&self) -> usize {
        self.total
    }

    /// Returns the first word and the bytes allocated. Panics above 16 GiB.
    pub(super) fn take(&mut self, arena: &Arena, words: usize) -> (Place, usize) {
        debug_assert!(words <= CHUNK_WORDS, "{words} words");
        let mut allocated = 0;
        if words > self.words - self.used {
            let number = self.chunks.len() as u32;
            assert!(number < 1 << (u32::BITS - CHUNK_BITS), "a memtable takes less than 16 GiB");
            self.words = (self.total / GROWTH).clamp(FIRST_WORDS, CHUNK_WORDS).max(words);
            let chunk: Chunk = (0..self.words).map(|_| AtomicU32::new(0)).collect();
            allocated = arena.add(number, Arc::clone(&chunk));
            self.chunks.push(chunk);
            (self.used, self.total) = (0, self.total + self.words);
        }
        let place = (self.chunks.len() as Place - 1) << CHUNK_BITS | self.used as Place;
        self.used += words;
        (place, allocated)
    }
}

/// Maximum bytes allocated ahead of use, in addition to [`FIRST_BYTES`] per memtable: a chunk and a region. While
/// chunks grow, the region is smaller than the next chunk.
pub(super) fn ahead_max(bytes: usize, memtables: usize) -> usize {
    (bytes / (GROWTH / 2)).min(memtables.saturating_mul(CHUNK_BYTES + LIST_BYTES)) + bytes / 1024
}

/// Maximum bytes unused at the ends of chunks, for allocations of at most `most` bytes.
pub(super) fn left_over_max(bytes: usize, most: usize, memtables: usize) -> usize {
    let doublings = (bytes / memtables / (FIRST_WORDS * size_of::<AtomicU32>())).max(1).ilog2() as usize + 1;
    let small = doublings.min(CHUNK_WORDS.ilog2() as usize) * CHUNKS_PER_DOUBLING * memtables;
    bytes.min((small + bytes / CHUNK_BYTES) * (most + FRAMING_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_in_regions_each_of_twice_as_many_as_the_one_before() {
        let (mut region, mut at) = (0, 0);
        for chunk in 0..1 << (u32::BITS - CHUNK_BITS) {
            assert_eq!(locate(chunk), (region, at), "chunk {chunk}");
            at += 1;
            if at == (REGION_CHUNKS as usize) << region {
                (region, at) = (region + 1, 0);
            }
        }
        assert_eq!(region, REGIONS - 1);
    }

    #[test]
    fn places_do_not_overlap_and_chunks_grow_with_what_is_used() {
        let (arena, mut room) = (Arena::default(), Room::default());
        let (mut end, mut used, mut allocated) = (0, 0, 0);
        for words in (1..400).cycle().take(3000) {
            let (place, new) = room.take(&arena, words);
            assert!(place >= end && arena.words(place).len() >= words);
            assert!(std::ptr::eq(arena.words(place), room.words(place)));
            assert!(
                new == 0 || new <= FIRST_BYTES + ahead_max(allocated, 1) + 4 * words,
                "{new} after {allocated}"
            );
            end = place + words as Place;
            (used, allocated) = (used + 4 * words, allocated + new);
        }
        let most = used + left_over_max(used, 4 * 400, 1);
        assert!(allocated <= most + FIRST_BYTES + ahead_max(most, 1), "{allocated} for {used}");
    }
}
