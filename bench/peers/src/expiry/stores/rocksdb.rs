use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use byteorder::{BigEndian, ByteOrder};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, CompactionDecision, DB, DBCompressionType, Options,
    ReadOptions, WriteBatch, WriteOptions,
};

use super::{Plan, Seen};
use crate::Result;
use crate::expiry::stream::{Id, TTL_MILLIS, in_order};

const FAMILY: &str = "default";

pub(super) struct Ttl {
    db: DB,
    now: Arc<AtomicU64>,
}

fn has_expired(value: &[u8], now: u64) -> bool {
    let time = if value.len() == 8 { BigEndian::read_u64(value) } else { 0 };
    time + TTL_MILLIS <= now
}

impl Ttl {
    pub(super) fn open(dir: &Path, plan: &Plan) -> Result<Self> {
        let now = Arc::new(AtomicU64::new(0));
        let mut tables = BlockBasedOptions::default();
        // SieveDB's share for tables, filters and blocks; memtables get the same too.
        tables.set_block_cache(&Cache::new_lru_cache((plan.memory_bytes / 8 * 5) as usize));
        tables.set_block_size(4096);
        tables.set_bloom_filter(10.0, false);
        tables.set_cache_index_and_filter_blocks(true);
        tables.set_cache_index_and_filter_blocks_with_high_priority(true);
        tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size((plan.memory_bytes / 8) as usize);
        options.set_max_write_buffer_number(2);
        options.set_target_file_size_base(plan.memory_bytes / 8);
        options.set_max_bytes_for_level_base(plan.memory_bytes / 2);
        options.set_max_background_jobs(2);
        options.set_ttl(plan.rocksdb_ttl);
        options.set_block_based_table_factory(&tables);
        let clock = Arc::clone(&now);
        options.set_compaction_filter("expired", move |_: u32, _: &[u8], value: &[u8]| {
            match has_expired(value, clock.load(Ordering::Relaxed)) {
                true => CompactionDecision::Remove,
                false => CompactionDecision::Keep,
            }
        });
        let families = [ColumnFamilyDescriptor::new(FAMILY, options.clone())];
        Ok(Self { db: DB::open_cf_descriptors(&options, dir, families)?, now })
    }
}

impl Seen for Ttl {
    fn insert(&mut self, now: u64, ids: &[Id]) -> Result<Vec<bool>> {
        self.now.store(now, Ordering::Relaxed);
        let family = self.db.cf_handle(FAMILY).ok_or("there is no default column family")?;
        let found = self.db.batched_multi_get_cf_opt(family, ids, false, &ReadOptions::default());
        let (mut batch, mut in_batch) = (WriteBatch::default(), std::collections::HashSet::new());
        let mut is_new = Vec::with_capacity(ids.len());
        for (id, value) in ids.iter().zip(found) {
            let is_known = value?.is_some_and(|value| !has_expired(&value, now));
            let is_accepted = !is_known && in_batch.insert(id);
            if is_accepted {
                batch.put(id, in_order(now));
            }
            is_new.push(is_accepted);
        }
        self.db.write_opt(batch, &WriteOptions::default())?;
        Ok(is_new)
    }

    fn debt(&self) -> Result<u64> {
        Ok(self.db.property_int_value("rocksdb.estimate-pending-compaction-bytes")?.unwrap_or(0))
    }
}
