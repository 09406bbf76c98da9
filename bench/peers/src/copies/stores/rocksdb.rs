use std::path::Path;

use rocksdb::backup::{BackupEngine, BackupEngineOptions, RestoreOptions};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Env, IteratorMode, Options, WaitForCompactOptions,
    WriteBatch,
};

use super::{Entries, Store, digest};
use crate::Result;

pub(super) struct Copied(DB);

impl Copied {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&Cache::new_lru_cache(160 << 20));
        tables.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size(32 << 20);
        options.set_max_background_jobs(2);
        options.set_block_based_table_factory(&tables);
        Ok(Self(DB::open(&options, dir)?))
    }
}

fn engine(repository: &Path) -> Result<BackupEngine> {
    Ok(BackupEngine::open(&BackupEngineOptions::new(repository)?, &Env::new()?)?)
}

impl Store for Copied {
    fn write(&self, entries: Entries<'_>) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in entries {
            batch.put(key, value);
        }
        Ok(self.0.write(batch)?)
    }

    fn settle(&self) -> Result<()> {
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        Ok(self.0.wait_for_compact(&wait)?)
    }

    fn checkpoint(&self, to: &Path) -> Result<()> {
        Ok(Checkpoint::new(&self.0)?.create_checkpoint(to)?)
    }

    fn backup(&self, repository: &Path) -> Result<()> {
        // Includes its log, as SieveDB's backup does; a flush would cost the writer more.
        Ok(engine(repository)?.create_new_backup(&self.0)?)
    }

    fn restore(&self, repository: &Path, to: &Path) -> Result<()> {
        // Compares checksums while it copies, as SieveDB does, which also verifies the restored store.
        Ok(engine(repository)?.restore_from_latest_backup(to, to, &RestoreOptions::default())?)
    }

    fn digest(&self) -> Result<u64> {
        digest_of(&self.0)
    }

    fn digest_of(&self, dir: &Path) -> Result<u64> {
        digest_of(&DB::open(&Options::default(), dir)?)
    }
}

fn digest_of(db: &DB) -> Result<u64> {
    let mut sum = 0;
    for entry in db.iterator(IteratorMode::Start) {
        let (key, value) = entry?;
        sum = digest(sum, &key, &value);
    }
    Ok(sum)
}
