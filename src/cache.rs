//! The two caches that all tables of a store share.
//!
//! [`BlockCache`] holds decompressed payloads of blocks, by (file number, offset), up to a number of bytes.
//! If several threads miss a block at once, one of them reads it and the others wait. (Not by the cache's own
//! means, which allocate for each miss.) An evicted block stays
//! in memory while a caller holds a slice of it; it then counts not against the cache but separately
//! ([`BlockCache::held_bytes`]). Pages of paged filters are cached too, under separate keys
//! ([`filter_page`]), so that no block can be mistaken for such a page, whatever a file states.
//!
//! [`FileCache`] holds open files, by table number, up to a number of handles. An evicted file is opened
//! again at the next read; a file in use stays open for its users.
//!
//! File numbers are never reused, so neither cache can return a block of another file. [`FileCache::remove`]
//! drops a removed file, so that its space on disk is freed; its blocks age out.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, UnitWeighter, Weighter};

use crate::error::Result;
use crate::fs::ReadFile;
use crate::sync::lock;

/// What a cached block takes in addition to its payload, in bytes: key, slot, ghost entry, the header of the
/// shared buffer.
const BLOCK_OVERHEAD_BYTES: u64 = 128;

/// Typical length of a block, from which the number of slots is estimated.
const TYPICAL_BLOCK_BYTES: u64 = 4096;

/// The place of a block in the store: number of the file, offset.
type BlockKey = (u64, u64);

/// The offset under which a page of a filter is cached. No file is long enough to have a block there.
pub(crate) fn filter_page(offset: u64) -> u64 {
    offset | 1 << 63
}

#[derive(Clone)]
struct BlockWeighter;

impl Weighter<BlockKey, Bytes> for BlockWeighter {
    fn weight(&self, _: &BlockKey, payload: &Bytes) -> u64 {
        payload.len() as u64 + BLOCK_OVERHEAD_BYTES
    }
}

/// Decompressed blocks, up to a number of bytes.
pub(crate) struct BlockCache {
    blocks: Cache<BlockKey, Bytes, BlockWeighter>,
    /// Total length of the payloads read through the cache that are still alive.
    alive: Arc<AtomicU64>,
    /// A thread that reads a block holds one of these.
    reading: Box<[Mutex<()>; 1024]>,
}

/// A payload that is counted while a slice of it is held. It has the reference count of all slices.
struct Counted<P: AsRef<[u8]>> {
    payload: P,
    alive: Arc<AtomicU64>,
}

impl<P: AsRef<[u8]>> Counted<P> {
    fn new(payload: P, alive: &Arc<AtomicU64>) -> Self {
        alive.fetch_add(payload.as_ref().len() as u64, Ordering::Relaxed);
        Self { payload, alive: Arc::clone(alive) }
    }
}

impl<P: AsRef<[u8]>> AsRef<[u8]> for Counted<P> {
    fn as_ref(&self) -> &[u8] {
        self.payload.as_ref()
    }
}

impl<P: AsRef<[u8]>> Drop for Counted<P> {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.payload.as_ref().len() as u64, Ordering::Relaxed);
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl BlockCache {
    /// A cache of at most `capacity` bytes, overhead included.
    pub(crate) fn new(capacity: u64) -> Self {
        let items = (capacity / TYPICAL_BLOCK_BYTES).clamp(16, 1 << 24) as usize;
        Self {
            blocks: Cache::with_weighter(items, capacity, BlockWeighter),
            alive: Arc::default(),
            reading: Box::new([const { Mutex::new(()) }; 1024]),
        }
    }

    pub(crate) fn get(&self, file: u64, offset: u64) -> Option<Bytes> {
        self.blocks.get(&(file, offset))
    }

    /// Returns the block from the cache, or else from `read`, and then caches it. Threads that need the same
    /// block at the same time call `read` one after another, and only as long as it is not in the cache.
    pub(crate) fn get_or_read<P: AsRef<[u8]> + Send + 'static>(
        &self,
        file: u64,
        offset: u64,
        read: impl FnOnce() -> Result<P>,
    ) -> Result<Bytes> {
        let key = (file, offset);
        if let Some(payload) = self.blocks.get(&key) {
            return Ok(payload);
        }
        let _one_reads = lock(self.reading(key));
        if let Some(payload) = self.blocks.peek(&key) {
            return Ok(payload);
        }
        let payload = Bytes::from_owner(Counted::new(read()?, &self.alive));
        self.blocks.insert(key, payload.clone());
        Ok(payload)
    }

    /// What threads that read this block wait for. Others may have the same.
    fn reading(&self, (file, offset): BlockKey) -> &Mutex<()> {
        let mixed = (file << 40 ^ offset).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.reading[(mixed >> 54) as usize]
    }

    /// Changes the capacity; excess blocks are evicted before this returns.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        self.blocks.set_capacity(capacity);
        // Each shard gets its part rounded up.
        let more = self.blocks.capacity().saturating_sub(capacity);
        if more > 0 {
            self.blocks.set_capacity(capacity.saturating_sub(more));
        }
    }

    /// Bytes held, overhead included.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.weight()
    }

    /// Bytes of payloads that are no longer in the cache but of which a slice is held. Exact only while
    /// nothing is read.
    pub(crate) fn held_bytes(&self) -> u64 {
        let overhead = self.blocks.len() as u64 * BLOCK_OVERHEAD_BYTES;
        (self.alive.load(Ordering::Relaxed) + overhead).saturating_sub(self.bytes())
    }
}

/// Open files, up to a number of handles.
pub(crate) struct FileCache {
    files: Cache<u64, Arc<dyn ReadFile>>,
}

impl fmt::Debug for FileCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileCache").field("open", &self.len()).finish_non_exhaustive()
    }
}

impl FileCache {
    /// A cache of at most `files` open files.
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

    /// Returns the open file with this number; calls `open` if it is not in the cache.
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

    /// Closes a file that is about to be removed.
    pub(crate) fn remove(&self, number: u64) {
        self.files.remove(&number);
    }

    /// Closes one file, if any is cached. Readers of that file keep it open until they are done.
    pub(crate) fn close_one(&self) -> bool {
        // Another thread may take away the same one first.
        self.files.iter().any(|(number, _)| self.files.remove(&number).is_some())
    }

    /// Number of open files.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::error::Error;

    fn block(len: usize) -> Result<Bytes> {
        Ok(Bytes::from(vec![1; len]))
    }

    #[test]
    fn a_block_is_read_once_and_an_error_is_not_cached() {
        let cache = BlockCache::new(1 << 20);
        let refused = cache.get_or_read(1, 64, || Err::<Bytes, _>(Error::Closed));
        assert!(refused.is_err());
        assert_eq!(cache.get_or_read(1, 64, || block(10)).unwrap().len(), 10);
        assert_eq!(cache.get_or_read(1, 64, || -> Result<Bytes> { panic!("is cached") }).unwrap().len(), 10);
        assert!(cache.get(1, 65).is_none() && cache.get(2, 64).is_none());
        assert_eq!(cache.bytes(), 10 + BLOCK_OVERHEAD_BYTES);
    }

    #[test]
    fn a_thread_that_needs_a_block_which_another_is_reading_waits_for_it() {
        let cache = BlockCache::new(1 << 20);
        let (reads, is_asking) = (AtomicU64::new(0), AtomicBool::new(false));
        let read = &|| {
            reads.fetch_add(1, Ordering::Relaxed);
            block(10)
        };
        std::thread::scope(|scope| {
            let (cache, is_asking) = (&cache, &is_asking);
            cache
                .get_or_read(1, 64, || {
                    scope.spawn(move || {
                        is_asking.store(true, Ordering::Release);
                        cache.get_or_read(1, 64, read).unwrap();
                    });
                    while !is_asking.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    // However late the other thread comes, it finds the block.
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    read()
                })
                .unwrap();
        });
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn evicted_blocks_are_counted_until_their_last_slice_is_dropped() {
        let cache = BlockCache::new(1 << 16);
        let read = |offset| cache.get_or_read(1, offset, || block(4000)).unwrap();
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
                assert_eq!(cache.get_or_read(1, offset, || block(len)).unwrap().len(), len);
                assert!(cache.bytes() <= capacity, "{} of {capacity}", cache.bytes());
            }
        }
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
