//! The shared state of all tables of a store: file system, memory, open files, counters.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::FileCache;
use crate::error::Error;
use crate::file_header::StoreIds;
use crate::filename::FileName;
use crate::fs::Fs;
use crate::memory::Memory;

/// Shared by the tables of a store.
#[derive(Debug)]
pub(crate) struct TableContext {
    pub(crate) fs: Arc<dyn Fs>,
    /// The directory of tables and of separate filter files.
    pub(crate) dir: PathBuf,
    /// The ids that the tables and filters may bear.
    pub(crate) store_ids: StoreIds,
    /// The store's secret seed of the key hash.
    pub(crate) hash_seed: u64,
    /// The memory budget; cached blocks are a part of it.
    pub(crate) memory: Arc<Memory>,
    pub(crate) files: Arc<FileCache>,
    pub(crate) trust: FilterTrust,
    pub(crate) io: TableIo,
}

/// How far filters are trusted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FilterTrust {
    /// Whether a lookup that needs an unusable filter fails, instead of treating it as "maybe".
    pub(crate) strict: bool,
    /// One in this many "absent" answers of a filter is checked against the data; 0: none is.
    pub(crate) audit_one_in: u64,
}

impl TableContext {
    /// Closes a cached file that is about to be removed.
    pub(crate) fn forget(&self, name: FileName) {
        if let Some(number) = name.number() {
            self.files.remove(number);
        }
    }

    /// A context over an empty file system.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn for_tests() -> Self {
        Self {
            fs: Arc::new(crate::fs::MemFs::new()),
            dir: PathBuf::from("/db"),
            store_ids: StoreIds::of([0; 16]),
            hash_seed: 0,
            memory: Memory::new(2 << 20, 2 << 18),
            files: Arc::new(FileCache::new(8)),
            trust: FilterTrust::default(),
            io: TableIo::default(),
        }
    }
}

/// How often tables read from a file or from the cache. Relaxed counters, for statistics and tests.
#[derive(Debug, Default)]
pub(crate) struct TableIo {
    /// Data blocks read from a file.
    pub(crate) data_block_reads: AtomicU64,
    /// Data blocks found in the cache.
    pub(crate) data_block_cache_hits: AtomicU64,
    /// Index blocks read from a file, roots included.
    pub(crate) index_block_reads: AtomicU64,
    /// Index blocks found in the cache. The root is not counted: it is always in memory.
    pub(super) index_block_cache_hits: AtomicU64,
    /// Chunks of long values read from a file.
    pub(crate) value_chunk_reads: AtomicU64,
    /// Pages of filters not in memory that were read from a file.
    pub(crate) filter_page_reads: AtomicU64,
    /// Pages of filters not in memory that were found in the cache.
    pub(crate) filter_page_cache_hits: AtomicU64,
    /// Filters found to be damaged, unknown, of another table, or wrong.
    pub(crate) unusable_filters: AtomicU64,
    /// "Absent" answers of filters that were checked against the data.
    pub(crate) audited: AtomicU64,
    /// Filters that this check found to be wrong.
    pub(crate) audit_failures: AtomicU64,
    /// Blocks and pages of filters that failed their check and were read a second time.
    pub(crate) block_rereads: AtomicU64,
}

impl TableIo {
    /// Counts and reports a filter that cannot be used; its table is read without it.
    pub(crate) fn note_unusable_filter(&self, table: u64, error: &Error) {
        Self::count(&self.unusable_filters);
        tracing::warn!(table, %error, "a filter cannot be used; the table is read without it");
    }

    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
