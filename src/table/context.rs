//! The shared state of all tables of a store.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::FileCache;
use crate::error::Error;
use crate::file_header::StoreIds;
use crate::filename::FileName;
use crate::fs::Fs;
use crate::memory::Memory;

#[derive(Debug)]
pub(crate) struct TableContext {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) store_ids: StoreIds,
    pub(crate) hash_seed: u64,
    pub(crate) memory: Arc<Memory>,
    pub(crate) files: Arc<FileCache>,
    pub(crate) trust: FilterTrust,
    pub(crate) io: TableIo,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FilterTrust {
    pub(crate) strict: bool,
    pub(crate) audit_one_in: u64,
}

impl TableContext {
    pub(crate) fn forget(&self, name: FileName) {
        if let Some(number) = name.number() {
            self.files.remove(number);
        }
    }

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

#[derive(Debug, Default)]
pub(crate) struct TableIo {
    pub(crate) data_block_reads: AtomicU64,
    pub(crate) data_block_cache_hits: AtomicU64,
    /// Includes root blocks.
    pub(crate) index_block_reads: AtomicU64,
    /// Excludes root blocks, which stay in memory.
    pub(super) index_block_cache_hits: AtomicU64,
    pub(crate) value_chunk_reads: AtomicU64,
    pub(crate) filter_page_reads: AtomicU64,
    pub(crate) filter_page_cache_hits: AtomicU64,
    pub(crate) unusable_filters: AtomicU64,
    pub(crate) audited: AtomicU64,
    pub(crate) audit_failures: AtomicU64,
    /// Blocks and filter pages read again after a failed check.
    pub(crate) block_rereads: AtomicU64,
}

impl TableIo {
    pub(crate) fn note_unusable_filter(&self, table: u64, error: &Error) {
        Self::count(&self.unusable_filters);
        tracing::warn!(table, %error, "a filter cannot be used; the table is read without it");
    }

    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
