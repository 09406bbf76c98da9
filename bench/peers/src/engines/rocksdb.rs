//! RocksDB. By default indexes and filters are on the heap without a limit; in the variants they are in the cache, whole or
//! partitioned.

use std::path::Path;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, BottommostLevelCompaction, Cache, ColumnFamilyDescriptor,
    CompactOptions, DB, DBCompressionType, DataBlockIndexType, FlushOptions, Options, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};

use crate::Result;
use crate::engine::{Batch, Engine, Seen, Settings, word};

const HEAP: u8 = 0;
const HASHED: u8 = 1;
const CACHED: u8 = 2;
const PARTITIONED: u8 = 3;

pub(crate) type Rocks = Variant<HEAP>;
pub(crate) type RocksHashed = Variant<HASHED>;
pub(crate) type RocksCached = Variant<CACHED>;
/// In partitions of 4 KiB, with pinned top levels.
pub(crate) type RocksPartitioned = Variant<PARTITIONED>;

const FAMILY: &str = "default";

pub(crate) struct Variant<const KIND: u8> {
    db: DB,
    reads: ReadOptions,
    buffered: WriteOptions,
    synced: WriteOptions,
}

/// From this size on the clock cache, with fewer locks, is faster.
const CLOCK_CACHE_BYTES: u64 = 32 << 20;

fn table_options(kind: u8, cache_bytes: u64) -> BlockBasedOptions {
    let mut options = BlockBasedOptions::default();
    let cache = if cache_bytes >= CLOCK_CACHE_BYTES {
        Cache::new_hyper_clock_cache(cache_bytes as usize, 0)
    } else {
        Cache::new_lru_cache(cache_bytes as usize)
    };
    options.set_block_cache(&cache);
    options.set_block_size(4096);
    options.set_bloom_filter(10.0, false);
    if kind == HASHED {
        options.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        options.set_data_block_hash_ratio(0.75);
    }
    if kind == CACHED || kind == PARTITIONED {
        options.set_cache_index_and_filter_blocks(true);
        options.set_cache_index_and_filter_blocks_with_high_priority(true);
        options.set_pin_l0_filter_and_index_blocks_in_cache(true);
    }
    if kind == PARTITIONED {
        options.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        options.set_partition_filters(true);
        options.set_metadata_block_size(4096);
        options.set_pin_top_level_index_and_filter(true);
    }
    options
}

impl<const KIND: u8> Engine for Variant<KIND> {
    fn open(dir: &Path, settings: &Settings) -> Result<Self> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size(settings.memtable_bytes as usize);
        options.set_max_background_jobs(2);
        options.set_target_file_size_base(settings.table_bytes);
        options.set_max_bytes_for_level_base(settings.level_base_bytes);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options.set_block_based_table_factory(&table_options(KIND, settings.cache_bytes));
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        Ok(Self {
            // The call for many keys takes a column family handle.
            db: DB::open_cf_descriptors(
                &options,
                dir,
                [ColumnFamilyDescriptor::new(FAMILY, options.clone())],
            )?,
            reads: ReadOptions::default(),
            buffered: WriteOptions::default(),
            synced,
        })
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.db.get_pinned_opt(key, &self.reads)?.map(|value| word(&value)))
    }

    fn count_present(&self, keys: &[Vec<u8>]) -> Result<usize> {
        let family = self.db.cf_handle(FAMILY).ok_or("there is no default column family")?;
        let values = self.db.batched_multi_get_cf_opt(family, keys, false, &self.reads);
        values.into_iter().try_fold(0, |count, value| Ok(count + usize::from(value?.is_some())))
    }

    fn scan(&self, from: &[u8], entries: usize) -> Result<Seen> {
        let mut seen = Seen::default();
        let mut iter = self.db.raw_iterator();
        iter.seek(from);
        while let Some((key, value)) = iter.item().filter(|_| seen.entries < entries as u64) {
            seen.entry(key, value);
            iter.next();
        }
        iter.status()?;
        Ok(seen)
    }

    fn scan_back(&self, entries: usize) -> Result<Seen> {
        let mut seen = Seen::default();
        let mut iter = self.db.raw_iterator();
        iter.seek_to_last();
        while let Some((key, value)) = iter.item().filter(|_| seen.entries < entries as u64) {
            seen.entry(key, value);
            iter.prev();
        }
        iter.status()?;
        Ok(seen)
    }

    async fn put(&self, key: &[u8], value: &[u8], synced: bool) -> Result<()> {
        Ok(self.db.put_opt(key, value, if synced { &self.synced } else { &self.buffered })?)
    }

    async fn write(&self, entries: &Batch) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in entries.iter() {
            batch.put(key, value);
        }
        Ok(self.db.write_opt(batch, &self.buffered)?)
    }

    async fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_opt(key, &self.buffered)?)
    }

    fn flush(&self) -> Result<()> {
        let mut options = FlushOptions::default();
        options.set_wait(true);
        Ok(self.db.flush_opt(&options)?)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.db.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn compact(&mut self) -> Result<()> {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn shape(&self) -> Option<String> {
        let mut levels = vec![0; 7];
        for file in self.db.live_files().ok()? {
            *levels.get_mut(file.level as usize)? += 1;
        }
        let levels = levels.iter().enumerate().filter(|(_, tables)| **tables > 0);
        Some(levels.map(|(number, tables)| format!("L{number}: {tables}")).collect::<Vec<_>>().join(", "))
    }

    fn close(self) -> Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}
