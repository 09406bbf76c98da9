//! What all tables of a store share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::{BlockCache, FileCache};
use crate::checksum::FileId;
use crate::fs::Fs;

/// Shared by the tables of a store.
#[derive(Debug)]
pub(crate) struct TableContext {
    pub(crate) fs: Arc<dyn Fs>,
    /// The directory in which filters that were rebuilt beside their tables lie.
    pub(crate) dir: PathBuf,
    /// The store to which the tables must belong.
    pub(crate) store_id: FileId,
    pub(crate) blocks: Arc<BlockCache>,
    pub(crate) files: Arc<FileCache>,
    pub(crate) io: TableIo,
}

/// How often tables went to the file or to the cache. Relaxed counters: for statistics and tests.
#[derive(Debug, Default)]
pub(crate) struct TableIo {
    /// Data blocks read from a file.
    pub(crate) data_block_reads: AtomicU64,
    /// Data blocks found in the cache.
    pub(crate) data_block_cache_hits: AtomicU64,
    /// Index blocks read from a file, roots included.
    pub(crate) index_block_reads: AtomicU64,
    /// Index blocks found in the cache; the root does not count, it is always in memory.
    pub(crate) index_block_cache_hits: AtomicU64,
    /// Chunks of long values read from a file.
    pub(crate) value_chunk_reads: AtomicU64,
    /// Blocks that failed their check and were read a second time.
    pub(crate) block_rereads: AtomicU64,
}

impl TableIo {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
