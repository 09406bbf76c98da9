use std::path::Path;

use sievedb::{Db, Durability, KeyspaceOptions, Options, WriteBatch};

use crate::Result;
use crate::engine::{Adding, Batch, Engine, Seen, Settings, Writes, one_more, word};

#[derive(Debug)]
pub(crate) struct SieveDb(Db);

/// One budget for all memory: for reads the others' cache size, for writes also memory for memtables.
fn memory_budget(settings: &Settings) -> u64 {
    settings.cache_bytes
        + match settings.writes {
            Writes::None => 0,
            Writes::Some => settings.memtable_bytes,
            Writes::Only => 3 * settings.memtable_bytes,
        }
}

impl Engine for SieveDb {
    fn open(dir: &Path, settings: &Settings) -> Result<Self> {
        let keyspace = KeyspaceOptions::new()
            .memtable_bytes(settings.memtable_bytes as usize)
            .table_bytes(settings.table_bytes)
            .level_base_bytes(settings.level_base_bytes);
        let mut options =
            Options::new().memory_budget(memory_budget(settings) as usize).default_keyspace(keyspace);
        if let Writes::Only = settings.writes {
            // One memtable is written while another is flushed, as in RocksDB.
            options = options.memtable_budget(2 * settings.memtable_bytes as usize);
        }
        Ok(Self(options.open(dir)?))
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.0.get(key)?.map(|value| word(&value)))
    }

    fn count_present(&self, keys: &[Vec<u8>]) -> Result<usize> {
        Ok(self.0.multi_contains(keys)?.into_iter().filter(|&present| present).count())
    }

    fn scan(&self, from: &[u8], entries: usize) -> Result<Seen> {
        let mut seen = Seen::default();
        for entry in self.0.range(from..).take(entries) {
            let (key, value) = entry?;
            seen.entry(&key, &value);
        }
        Ok(seen)
    }

    fn scan_back(&self, entries: usize) -> Result<Seen> {
        let mut seen = Seen::default();
        for entry in self.0.iter().rev().take(entries) {
            let (key, value) = entry?;
            seen.entry(&key, &value);
        }
        Ok(seen)
    }

    async fn put(&self, key: &[u8], value: &[u8], synced: bool) -> Result<()> {
        if !synced {
            return Ok(self.0.put(key, value)?);
        }
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        Ok(self.0.write_with(batch, Durability::Synced)?)
    }

    async fn write(&self, entries: &Batch) -> Result<()> {
        let mut batch = WriteBatch::new();
        for (key, value) in entries.iter() {
            batch.put(key, value);
        }
        Ok(self.0.write(batch)?)
    }

    async fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.0.delete(key)?)
    }

    async fn add(&self, keys: &[Vec<u8>], how: Adding) -> Result<u64> {
        let mut runs = 0;
        let mut values = Vec::with_capacity(keys.len());
        let durability = if how.synced { Durability::Synced } else { Durability::Buffered };
        self.0.transact_with(durability, |transaction| {
            runs += 1;
            values.clear();
            for key in keys {
                values.extend(transaction.get(key)?.map(|value| one_more(&value)));
            }
            how.between();
            for (key, value) in keys.iter().zip(&values) {
                transaction.put(key, value);
            }
            Ok(())
        })?;
        Ok(runs - 1)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.0.settle()?)
    }

    fn compact(&mut self) -> Result<()> {
        Ok(self.0.compact()?)
    }

    fn blocks(&self) -> Option<u64> {
        let stats = self.0.stats();
        Some(
            stats.data_block_reads
                + stats.data_block_cache_hits
                + stats.filter_page_reads
                + stats.filter_page_cache_hits,
        )
    }

    fn shape(&self) -> Option<String> {
        let stats = self.0.stats();
        let levels = stats.keyspaces.first()?.levels.iter().enumerate();
        let levels: Vec<_> = levels
            .filter(|(_, level)| level.tables > 0)
            .map(|(number, level)| format!("L{number}: {} in {}", level.tables, level.runs))
            .collect();
        Some(levels.join(", "))
    }

    fn close(self) -> Result<()> {
        Ok(self.0.close()?)
    }
}
