//! fjall. Metadata blocks are partitioned from level 3 on by default, in a variant on every level. The database is opened with
//! optimistic transactions; other calls use the plain database inside.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::{HashRatioPolicy, PartitioningPolicy};
use fjall::{Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, PersistMode, Readable};

use crate::Result;
use crate::engine::{Adding, Batch, Engine, Seen, Settings, one_more, word};

const PLAIN: u8 = 0;
const HASHED: u8 = 1;
const PARTITIONED: u8 = 2;

pub(crate) type Fjall = Variant<PLAIN>;
pub(crate) type FjallHashed = Variant<HASHED>;
pub(crate) type FjallPartitioned = Variant<PARTITIONED>;

pub(crate) struct Variant<const KIND: u8> {
    keyspace: Keyspace,
    db: OptimisticTxDatabase,
}

impl<const KIND: u8> Engine for Variant<KIND> {
    fn open(dir: &Path, settings: &Settings) -> Result<Self> {
        let db =
            OptimisticTxDatabase::builder(dir).cache_size(settings.cache_bytes).worker_threads(2).open()?;
        let keyspace = db.inner().keyspace("default", || {
            let tree = Leveled::default().with_table_target_size(settings.table_bytes);
            let options = KeyspaceCreateOptions::default()
                .max_memtable_size(settings.memtable_bytes)
                .compaction_strategy(Arc::new(tree));
            match KIND {
                HASHED => options.data_block_hash_ratio_policy(HashRatioPolicy::all(1.33)),
                PARTITIONED => options
                    .filter_block_partitioning_policy(PartitioningPolicy::all(true))
                    .index_block_partitioning_policy(PartitioningPolicy::all(true)),
                _ => options,
            }
        })?;
        Ok(Self { keyspace, db })
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.keyspace.get(key)?.map(|value| word(&value)))
    }

    fn count_present(&self, keys: &[Vec<u8>]) -> Result<usize> {
        keys.iter().try_fold(0, |count, key| Ok(count + usize::from(self.keyspace.contains_key(key)?)))
    }

    fn scan(&self, from: &[u8], entries: usize) -> Result<Seen> {
        let mut seen = Seen::default();
        for entry in self.keyspace.range(from..).take(entries) {
            let (key, value) = entry.into_inner()?;
            seen.entry(&key, &value);
        }
        Ok(seen)
    }

    fn scan_back(&self, entries: usize) -> Result<Seen> {
        let mut seen = Seen::default();
        for entry in self.keyspace.iter().rev().take(entries) {
            let (key, value) = entry.into_inner()?;
            seen.entry(&key, &value);
        }
        Ok(seen)
    }

    async fn put(&self, key: &[u8], value: &[u8], synced: bool) -> Result<()> {
        if !synced {
            return Ok(self.keyspace.insert(key, value)?);
        }
        let mut batch = self.db.inner().batch().durability(Some(PersistMode::SyncData));
        batch.insert(&self.keyspace, key, value);
        Ok(batch.commit()?)
    }

    async fn write(&self, entries: &Batch) -> Result<()> {
        let mut batch = self.db.inner().batch();
        for (key, value) in entries.iter() {
            batch.insert(&self.keyspace, key, value);
        }
        Ok(batch.commit()?)
    }

    async fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.keyspace.remove(key)?)
    }

    async fn add(&self, keys: &[Vec<u8>], how: Adding) -> Result<u64> {
        let mut values = Vec::with_capacity(keys.len());
        for conflicts in 0.. {
            let mut transaction = self.db.write_tx()?;
            if how.synced {
                transaction = transaction.durability(Some(PersistMode::SyncData));
            }
            for key in keys {
                values.extend(transaction.get(&self.keyspace, key)?.map(|value| one_more(&value)));
            }
            how.between();
            for (key, value) in keys.iter().zip(values.drain(..)) {
                transaction.insert(&self.keyspace, key.as_slice(), value);
            }
            if transaction.commit()?.is_ok() {
                return Ok(conflicts);
            }
        }
        unreachable!("the transaction had too many conflicts")
    }

    fn flush(&self) -> Result<()> {
        Ok(self.keyspace.rotate_memtable_and_wait()?)
    }

    fn settle(&self) -> Result<()> {
        let db = self.db.inner();
        while db.outstanding_flushes() > 0 || db.active_compactions() > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<()> {
        Ok(self.keyspace.major_compact()?)
    }

    fn shape(&self) -> Option<String> {
        Some(format!("L0: {}, all: {}", self.keyspace.l0_table_count(), self.keyspace.table_count()))
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}
