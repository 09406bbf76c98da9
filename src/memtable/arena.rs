//! The memory of a memtable: words of 32 bits in chunks that never move and are freed together.
//!
//! A place is a number: that of the chunk, and the word in it. A chunk is a sixteenth as large as all before it, up to
//! [`CHUNK_WORDS`], so that little of a small memtable is unused, and allocating one takes no noticeable time. The
//! chunks are listed in regions, each of twice as many as the one before, which are made when they are needed. So a
//! place leads to its words by two loads, and nothing has to be replaced when the memtable grows.
//!
//! The writer has the chunks in a list of its own ([`Room`]), which no reader sees: it finds a word with a third of the
//! instructions.
//!
//! All words are atomic and there (as zeros) when a chunk is made: the writer fills them while readers look at
//! others in the same chunk. A reader gets a place from a link that was stored, with release, after the words that
//! it leads to were filled. So it sees them filled.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

/// A word: that of the chunk in its upper bits.
pub(super) type Place = u32;

const CHUNK_BITS: u32 = 16;

/// Words of the largest chunks.
const CHUNK_WORDS: usize = 1 << CHUNK_BITS;

/// Words of the first chunk, and of the smallest.
const FIRST_WORDS: usize = 128;

/// All chunks together are so many times as large as the next, unless that is one of the smallest or the largest.
const GROWTH: usize = 16;

/// The most chunks with which the words double.
const CHUNKS_PER_DOUBLING: usize = 12;

/// Chunks of the first region.
const REGION_CHUNKS: u32 = 8;

/// Regions that all chunks need.
const REGIONS: usize = (u32::BITS - CHUNK_BITS - REGION_CHUNKS.ilog2() + 1) as usize;

/// What a chunk takes beside its words: two reference counts, and its place in the list of the writer, which may have as
/// many free ones.
const FRAMING_BYTES: usize = 16 + 2 * size_of::<Chunk>();

/// Bytes of the largest chunks.
pub(super) const CHUNK_BYTES: usize = CHUNK_WORDS * size_of::<AtomicU32>() + FRAMING_BYTES;

/// Bytes of the list that the first chunk of [`CHUNK_WORDS`] is in, the fourth.
const LIST_BYTES: usize = (REGION_CHUNKS as usize * size_of::<OnceLock<Chunk>>()) << 3;

/// Bytes of the first chunk, and of the list that it is in.
pub(super) const FIRST_BYTES: usize = FIRST_WORDS * size_of::<AtomicU32>()
    + FRAMING_BYTES
    + REGION_CHUNKS as usize * size_of::<OnceLock<Chunk>>();

type Chunk = Arc<[AtomicU32]>;

/// Some chunks, each made when it is first needed.
type Region = Box<[OnceLock<Chunk>]>;

/// All chunks of one memtable.
#[derive(Default)]
pub(super) struct Arena {
    regions: [OnceLock<Region>; REGIONS],
}

/// Leads from places to words: that of readers, or that of the writer.
pub(super) trait Words {
    /// The words from this place, which was read from a link or has been taken, to the end of its chunk.
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
    /// Adds a chunk, and returns how many bytes were allocated.
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

/// Region of a chunk, and its number there.
#[inline]
fn locate(chunk: u32) -> (usize, usize) {
    let at = chunk + REGION_CHUNKS;
    let region = at.ilog2() - REGION_CHUNKS.ilog2();
    (region as usize, (at - (REGION_CHUNKS << region)) as usize)
}

/// The writer's view of an arena: its words, and what of them is not used yet. Hands out one word after the other.
#[derive(Default)]
pub(super) struct Room {
    chunks: Vec<Chunk>,
    /// Of the last chunk: its words, and those that are used.
    words: usize,
    used: usize,
    /// Words of all chunks.
    total: usize,
}

impl Room {
    /// Words of all chunks.
    pub(super) fn words_taken(&self) -> usize {
        self.total
    }

    /// Takes so many words, and returns the first and how many bytes were allocated for them.
    ///
    /// # Panics
    ///
    /// When there are 2^16 chunks, which take 16 GiB.
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

/// The most that is allocated ahead of what it is for, because there are so many bytes in so many memtables, beside
/// [`FIRST_BYTES`] for each: a chunk, and a list of chunks. As long as chunks grow, no list is larger than the next chunk.
pub(super) fn ahead_max(bytes: usize, memtables: usize) -> usize {
    (bytes / (GROWTH / 2)).min(memtables.saturating_mul(CHUNK_BYTES + LIST_BYTES)) + bytes / 1024
}

/// The most that is left over at the ends of chunks when so many bytes are taken, at most `most` at once, of so many
/// memtables: as often as a chunk is full.
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
