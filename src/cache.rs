//! The two caches that all tables of a store share.
//!
//! [`BlockCache`] holds decompressed payloads of blocks, and pages of filters. A key has the file and the whole block
//! handle, so a damaged handle finds no cached block. If several threads miss a block, one reads it for all; the cache
//! crate's function for this is not used, because it allocates memory. A block that is missed again soon
//! ([`recent_misses`](mod@recent_misses)) is kept like a block that was hit.
//!
//! [`FileCache`] holds open files by table number. Evicted blocks and files stay alive for their users. File numbers
//! are unique within a store, so a reader starts with new caches if another store replaces its directory.

mod recent_misses;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, UnitWeighter, Weighter};

use crate::block::{BlockHandle, BlockKind};
use crate::error::Result;
use crate::fs::ReadFile;
use crate::sync::lock;

use recent_misses::RecentMisses;

/// Memory of a cached block besides its payload: 104 bytes for its slot, table entry and tag; 64 for the owner of the
/// shared buffer; 40 for envelope and allocator.
const BLOCK_OVERHEAD_BYTES: u64 = 208;

const TYPICAL_BLOCK_BYTES: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockKey {
    file: u64,
    handle: BlockHandle,
    kind: Option<BlockKind>,
}

impl BlockKey {
    pub(crate) fn block(file: u64, handle: BlockHandle, kind: BlockKind) -> Self {
        Self { file, handle, kind: Some(kind) }
    }

    pub(crate) fn filter_page(file: u64, offset: u64, len: u64) -> Self {
        Self { file, handle: BlockHandle { offset, len }, kind: None }
    }

    /// The high bits are mixed best.
    fn mixed(&self) -> u64 {
        (self.file << 40 ^ self.handle.offset).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Hash for BlockKey {
    /// Leaves out kind and length: each offset has one valid combination.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.file);
        state.write_u64(self.handle.offset);
    }
}

#[derive(Clone)]
struct BlockWeighter;

impl Weighter<BlockKey, Bytes> for BlockWeighter {
    fn weight(&self, _: &BlockKey, payload: &Bytes) -> u64 {
        payload.len() as u64 + BLOCK_OVERHEAD_BYTES
    }
}

pub(crate) struct BlockCache {
    blocks: Cache<BlockKey, Bytes, BlockWeighter>,
    /// Bytes of payloads read through the cache that are still in memory.
    alive: Arc<AtomicU64>,
    reading: Box<[Reading; 1024]>,
    misses: RecentMisses,
}

#[derive(Default)]
struct Reading {
    waiting: AtomicUsize,
    last: Mutex<Option<(BlockKey, Bytes)>>,
}

struct Counted {
    payload: Bytes,
    alive: Arc<AtomicU64>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.payload.len() as u64, Ordering::Relaxed);
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl BlockCache {
    pub(crate) fn new(capacity: u64) -> Self {
        let items = (capacity / TYPICAL_BLOCK_BYTES).clamp(16, 1 << 24) as usize;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(capacity)
            .ghost_allocation(0.0)
            .build()
            .expect("both capacities are set");
        let hasher = DefaultHashBuilder::default();
        Self {
            blocks: Cache::with_options(options, BlockWeighter, hasher, DefaultLifecycle::default()),
            alive: Arc::default(),
            reading: Box::new(std::array::from_fn(|_| Reading::default())),
            misses: RecentMisses::new(items),
        }
    }

    pub(crate) fn get(&self, key: &BlockKey) -> Option<Bytes> {
        self.blocks.get(key)
    }

    /// If a read fails, the next waiting thread reads.
    pub(crate) fn get_or_read(&self, key: BlockKey, read: impl FnOnce() -> Result<Bytes>) -> Result<Bytes> {
        match self.blocks.get(&key) {
            Some(payload) => Ok(payload),
            None => self.read_after_miss(key, read),
        }
    }

    pub(crate) fn read_after_miss(
        &self,
        key: BlockKey,
        read: impl FnOnce() -> Result<Bytes>,
    ) -> Result<Bytes> {
        let Reading { waiting, last } = self.reading(key);
        waiting.fetch_add(1, Ordering::Relaxed);
        let mut last = lock(last);
        waiting.fetch_sub(1, Ordering::Relaxed);
        let found = match &*last {
            Some((of, payload)) if *of == key => Some(payload.clone()),
            _ => self.blocks.peek(&key),
        };
        let payload = found.map_or_else(|| read().map(|payload| self.insert(key, payload)), Ok);
        let others = waiting.load(Ordering::Relaxed) > 0;
        *last = payload.as_ref().ok().filter(|_| others).map(|payload| (key, payload.clone()));
        payload
    }

    fn insert(&self, key: BlockKey, payload: Bytes) -> Bytes {
        self.alive.fetch_add(payload.len() as u64, Ordering::Relaxed);
        let payload = Bytes::from_owner(Counted { payload, alive: Arc::clone(&self.alive) });
        self.blocks.insert(key, payload.clone());
        if self.misses.note(key.mixed()) {
            self.blocks.get(&key);
        }
        payload
    }

    fn reading(&self, key: BlockKey) -> &Reading {
        &self.reading[(key.mixed() >> 54) as usize]
    }

    pub(crate) fn set_capacity(&self, capacity: u64) {
        // The cache rounds the part of each shard up.
        self.blocks.set_capacity(capacity - capacity % self.blocks.num_shards() as u64);
    }

    pub(crate) fn is_half_full(&self) -> bool {
        self.blocks.weight() >= self.blocks.capacity() / 2
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.weight()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of evicted payloads in use. Exact only while no thread reads.
    pub(crate) fn held_bytes(&self) -> u64 {
        let overhead = self.blocks.len() as u64 * BLOCK_OVERHEAD_BYTES;
        (self.alive.load(Ordering::Relaxed) + overhead).saturating_sub(self.bytes())
    }
}

pub(crate) struct FileCache {
    files: Cache<u64, Arc<dyn ReadFile>>,
}

impl fmt::Debug for FileCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileCache").field("open", &self.len()).finish_non_exhaustive()
    }
}

impl FileCache {
    pub(crate) fn new(files: usize) -> Self {
        let options = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(files)
            .weight_capacity(files as u64)
            .build()
            .expect("both capacities are set");
        let hasher = DefaultHashBuilder::default();
        Self { files: Cache::with_options(options, UnitWeighter, hasher, DefaultLifecycle::default()) }
    }

    pub(crate) fn get_or_open(
        &self,
        number: u64,
        open: impl FnOnce() -> Result<Arc<dyn ReadFile>>,
    ) -> Result<Arc<dyn ReadFile>> {
        match self.files.get(&number) {
            Some(file) => Ok(file),
            None => self.files.get_or_insert_with(&number, open),
        }
    }

    pub(crate) fn remove(&self, number: u64) {
        self.files.remove(&number);
    }

    pub(crate) fn close_one(&self) -> bool {
        self.files.iter().any(|(number, _)| self.files.remove(&number).is_some())
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// A data block at this offset.
    fn at(file: u64, offset: u64) -> BlockKey {
        BlockKey::block(file, BlockHandle { offset, len: 10 }, BlockKind::Data)
    }

    fn block(len: usize) -> Result<Bytes> {
        Ok(Bytes::from(vec![1; len]))
    }

    #[test]
    fn a_block_is_read_once_and_an_error_is_not_cached() {
        let cache = BlockCache::new(1 << 20);
        let refused = cache.get_or_read(at(1, 64), || Err(Error::Closed));
        assert!(refused.is_err());
        assert_eq!(cache.get_or_read(at(1, 64), || block(10)).unwrap().len(), 10);
        assert_eq!(
            cache.get_or_read(at(1, 64), || -> Result<Bytes> { panic!("is cached") }).unwrap().len(),
            10
        );
        assert!(cache.get(&at(1, 65)).is_none() && cache.get(&at(2, 64)).is_none());
        assert_eq!(cache.bytes(), 10 + BLOCK_OVERHEAD_BYTES);
    }

    #[test]
    fn threads_that_need_a_block_get_it_from_the_one_that_reads_it_also_if_it_is_not_cached() {
        for (capacity, is_cached) in [(1 << 20, true), (1, false)] {
            let cache = BlockCache::new(capacity);
            let Reading { waiting, last } = cache.reading(at(1, 64));
            let reads = AtomicU64::new(0);
            let read = &|| {
                reads.fetch_add(1, Ordering::Relaxed);
                block(10)
            };
            std::thread::scope(|scope| {
                let cache = &cache;
                let others = || {
                    for _ in 0..2 {
                        scope.spawn(|| assert_eq!(cache.get_or_read(at(1, 64), read).unwrap().len(), 10));
                    }
                    while waiting.load(Ordering::Relaxed) < 2 {
                        std::thread::yield_now();
                    }
                    read()
                };
                cache.get_or_read(at(1, 64), others).unwrap();
            });
            assert_eq!((reads.load(Ordering::Relaxed), cache.get(&at(1, 64)).is_some()), (1, is_cached));
            assert!(lock(last).is_none(), "nobody waits any more");
        }
    }

    #[test]
    fn after_a_read_that_failed_the_next_thread_that_waits_reads() {
        let cache = BlockCache::new(1 << 20);
        let waiting = &cache.reading(at(1, 64)).waiting;
        std::thread::scope(|scope| {
            let failed = cache.get_or_read(at(1, 64), || {
                scope.spawn(|| assert_eq!(cache.get_or_read(at(1, 64), || block(10)).unwrap().len(), 10));
                while waiting.load(Ordering::Relaxed) < 1 {
                    std::thread::yield_now();
                }
                Err(Error::Closed)
            });
            assert!(failed.is_err());
        });
    }

    #[test]
    fn evicted_blocks_are_counted_until_their_last_slice_is_dropped() {
        let cache = BlockCache::new(1 << 16);
        let read = |offset| cache.get_or_read(at(1, offset), || block(4000)).unwrap();
        let slices: Vec<Bytes> = (0..10).map(|offset| read(offset).slice(5..6)).collect();
        assert_eq!(cache.held_bytes(), 0, "all of them are in the cache");
        cache.set_capacity(0);
        assert_eq!((cache.bytes(), cache.held_bytes()), (0, 40_000));
        cache.set_capacity(1 << 16);
        let again = read(0);
        assert_eq!(cache.held_bytes(), 40_000, "the block is there twice");
        let twice = slices.clone();
        drop(slices);
        assert_eq!(cache.held_bytes(), 40_000);
        drop((twice, again));
        assert_eq!((cache.held_bytes(), cache.bytes()), (0, 4000 + BLOCK_OVERHEAD_BYTES));
    }

    #[test]
    fn the_capacity_is_kept_whatever_is_read() {
        for capacity in [0, 100, 1 << 16, 1 << 20] {
            let cache = BlockCache::new(capacity);
            for offset in 0..2000 {
                let len = (offset as usize * 37) % 9000;
                assert_eq!(cache.get_or_read(at(1, offset), || block(len)).unwrap().len(), len);
                assert!(cache.bytes() <= capacity, "{} of {capacity}", cache.bytes());
            }
        }
    }

    /// Hits in percent in a cache of 500 blocks; its capacity often changes. A request is a block number and whether
    /// it is counted; requests of scans are not.
    fn hits(request: impl Fn(u64) -> (u64, bool)) -> f64 {
        const BLOCKS: u64 = 500;
        static PAYLOAD: [u8; 3888] = [0; 3888];
        let weight = PAYLOAD.len() as u64 + BLOCK_OVERHEAD_BYTES;
        let cache = BlockCache::new(BLOCKS * weight);
        let (mut hits, mut counted) = (0, 0);
        for number in 0..100_000 {
            if number % 100 == 0 {
                cache.set_capacity((BLOCKS - 8) * weight);
                cache.set_capacity(BLOCKS * weight);
            }
            let (block, is_counted) = request(number);
            let mut is_hit = true;
            let read = || {
                is_hit = false;
                Ok(Bytes::from_static(&PAYLOAD))
            };
            cache.get_or_read(at(1, 4116 * block), read).unwrap();
            if number >= 25_000 && is_counted {
                counted += 1;
                hits += u64::from(is_hit);
            }
        }
        100.0 * hits as f64 / counted as f64
    }

    /// SplitMix64, scaled to 0..=1.
    fn fraction(stream: u64, number: u64) -> f64 {
        let mut mixed = (stream << 40 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as f64 / u64::MAX as f64
    }

    #[test]
    fn hot_blocks_stay_through_scans_and_new_hot_blocks_replace_them_whatever_the_capacity_does() {
        // Zipf's law, exponent 1.
        let zipf = |number| 5000_f64.powf(fraction(1, number)) as u64;
        let scanned = |number| if number % 5 == 0 { (10_000 + number, false) } else { (zipf(number), true) };
        let shifting = |number: u64| match fraction(2, number) < 0.9 {
            true => (number / 2500 * 250 + (250.0 * fraction(3, number)) as u64, true),
            false => (100_000 + (5000.0 * fraction(4, number)) as u64, true),
        };
        let measured = [
            ("uniform", hits(|number| ((1000.0 * fraction(5, number)) as u64, true)), 47.0),
            ("zipf", hits(|number| (zipf(number), true)), 68.0),
            ("zipf during a scan", hits(scanned), 68.0),
            ("shifting", hits(shifting), 65.0),
        ];
        println!("{measured:.1?}");
        measured.iter().for_each(|(name, hits, least)| assert!(hits >= least, "{name}: {hits:.1}"));
    }

    #[test]
    fn no_more_files_stay_open_than_the_limit() {
        use crate::fs::{Fs, MemFs};
        let fs = MemFs::new();
        let path = std::path::Path::new("/f");
        fs.overwrite(path, vec![1]);
        for capacity in [1, 3, 100] {
            let cache = FileCache::new(capacity);
            for round in 0..400 {
                cache.get_or_open(round % 200, || Ok(fs.open(path).unwrap())).unwrap();
                assert!(cache.len() <= capacity);
            }
            cache.remove(199);
            let open = cache.len();
            assert_eq!((0..).take_while(|_| cache.close_one()).count(), open);
            assert_eq!(cache.len(), 0);
        }
    }
}
