//! A cache-line blocked Bloom filter over the keys of a memtable. One writer sets bits while readers probe without a
//! lock: a key's bits are set before its sequence number is published.
//!
//! It is created at [`KEYS_MIN`] entries: with fewer, a search is as fast. Its size is derived from the size at which
//! the memtable is flushed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hash::reduce;

const ENTRY_BYTES_MIN: usize = 80;

/// The minimum, with entries of [`ENTRY_BYTES_MIN`]: one absent key in 200 is a false positive.
const BITS_PER_KEY: usize = 12;

pub(super) const KEYS_MIN: u64 = 1024;

const PROBES: u32 = 6;

const WORDS: usize = 8;
const LINE_BITS: usize = WORDS * 64;

/// An odd number that derives the bits from the hash.
const BITS_MIX: u64 = 0xd6e8_feb8_6659_fd93;

#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; WORDS]);

pub(super) struct MemtableFilter {
    lines: usize,
    filled: OnceLock<Box<[Line]>>,
}

impl MemtableFilter {
    pub(super) fn new(memtable_bytes: usize) -> Self {
        let keys = memtable_bytes / ENTRY_BYTES_MIN;
        Self { lines: keys.saturating_mul(BITS_PER_KEY).div_ceil(LINE_BITS).max(1), filled: OnceLock::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.lines * size_of::<Line>()
    }

    pub(super) fn is_made(&self) -> bool {
        self.filled.get().is_some()
    }

    pub(super) fn make(&self, hashes: impl Iterator<Item = u64>) -> usize {
        let lines: Box<[Line]> = (0..self.lines).map(|_| Line::default()).collect();
        hashes.for_each(|hash| add(&lines, hash));
        let _ = self.filled.set(lines);
        self.bytes()
    }

    pub(super) fn insert(&self, hash: u64) {
        if let Some(lines) = self.filled.get() {
            add(lines, hash);
        }
    }

    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let Some(lines) = self.filled.get() else { return true };
        let line = &lines[reduce(hash, lines.len() as u64) as usize];
        positions(hash).all(|(word, bit)| line.0[word].load(Ordering::Relaxed) & bit != 0)
    }
}

fn add(lines: &[Line], hash: u64) {
    let line = &lines[reduce(hash, lines.len() as u64) as usize];
    for (word, bit) in positions(hash) {
        // There is one writer, so a load and a store are enough.
        let word = &line.0[word];
        word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
    }
}

#[inline]
fn positions(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    let mixed = hash.wrapping_mul(BITS_MIX);
    let mixed = mixed ^ (mixed >> 32);
    (0..PROBES).map(move |probe| {
        let place = (mixed >> (9 * probe)) as usize % LINE_BITS;
        (place / 64, 1 << (place % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::key_hash;

    #[test]
    fn every_key_is_found_and_few_others_are() {
        // A smaller size for Miri, which interprets each access.
        let (bytes, absent) = if cfg!(miri) { (16 << 10, 1_000) } else { (1 << 20, 100_000) };
        let filter = MemtableFilter::new(bytes);
        let keys = (bytes / ENTRY_BYTES_MIN) as u64;
        let hash = |n: u64| key_hash(5, &n.to_le_bytes());
        assert!(filter.may_contain(hash(0)), "before it is made it knows nothing");
        let allocated = filter.make((0..keys / 2).map(hash));
        (keys / 2..keys).for_each(|n| filter.insert(hash(n)));
        assert!((0..keys).all(|n| filter.may_contain(hash(n))));
        let found = (keys..keys + absent).filter(|&n| filter.may_contain(hash(n))).count() as u64;
        assert!((absent / 1000..absent * 12 / 1000).contains(&found), "{found} of {absent} absent keys");
        assert!((keys as usize..2 * keys as usize).contains(&allocated), "{allocated} bytes for {keys} keys");
    }

    #[test]
    fn a_memtable_of_no_size_has_a_line() {
        let filter = MemtableFilter::new(0);
        assert_eq!(filter.make(std::iter::once(7)), 64);
        assert!(filter.may_contain(7));
    }
}
