use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use surrealkv::{Durability, Error, LSMIterator, Mode, Options, Transaction, Tree, TreeBuilder};
use tokio::runtime::{Builder, Runtime};

use crate::Result;
use crate::engine::{Adding, Batch, Engine, Seen, Settings, Writes, one_more, word};
use crate::machine;

const WORKERS: usize = 11;

pub(crate) struct SurrealKv {
    reader: Option<Transaction>,
    tree: Tree,
    runtime: Runtime,
}

impl SurrealKv {
    fn read<T>(&self, read: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
        match &self.reader {
            Some(reader) => read(reader),
            None => read(&self.tree.begin_with_mode(Mode::ReadOnly)?),
        }
    }

    fn writer(&self) -> Result<Transaction> {
        Ok(self.tree.begin_with_mode(Mode::WriteOnly)?)
    }
}

impl Engine for SurrealKv {
    fn open(dir: &Path, settings: &Settings) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_time().build()?;
        let mut options = Options::new();
        options.max_bytes_for_level = settings.level_base_bytes;
        options.target_file_size = settings.table_bytes;
        let tree = {
            let _entered = runtime.enter();
            TreeBuilder::with_options(options)
                .with_path(dir.into())
                .with_block_size(4096)
                .without_compression()
                .with_max_memtable_size(settings.memtable_bytes as usize)
                .with_block_cache_capacity(settings.cache_bytes)
                .build()?
        };
        let reader = match settings.writes {
            Writes::None => Some(tree.begin_with_mode(Mode::ReadOnly)?),
            Writes::Some | Writes::Only => None,
        };
        Ok(Self { reader, tree, runtime })
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        self.read(|reader| Ok(reader.get(key)?.map(|value| word(&value))))
    }

    fn scan(&self, from: &[u8], entries: usize) -> Result<Seen> {
        self.read(|reader| {
            let mut seen = Seen::default();
            let mut iter = reader.scan(from..)?;
            iter.seek_first()?;
            while iter.valid() && seen.entries < entries as u64 {
                seen.entry(iter.key().user_key(), &iter.value_ref()?);
                iter.next()?;
            }
            Ok(seen)
        })
    }

    fn scan_back(&self, entries: usize) -> Result<Seen> {
        self.read(|reader| {
            let mut seen = Seen::default();
            let mut iter = reader.iter()?;
            iter.seek_last()?;
            while iter.valid() && seen.entries < entries as u64 {
                seen.entry(iter.key().user_key(), &iter.value_ref()?);
                iter.prev()?;
            }
            Ok(seen)
        })
    }

    async fn put(&self, key: &[u8], value: &[u8], synced: bool) -> Result<()> {
        let mut writer = self.writer()?;
        if synced {
            writer.set_durability(Durability::Immediate);
        }
        writer.set(key, value)?;
        Ok(writer.commit().await?)
    }

    async fn write(&self, entries: &Batch) -> Result<()> {
        let mut writer = self.writer()?;
        for (key, value) in entries.iter() {
            writer.set(key, value)?;
        }
        Ok(writer.commit().await?)
    }

    async fn delete(&self, key: &[u8]) -> Result<()> {
        let mut writer = self.writer()?;
        writer.delete(key)?;
        Ok(writer.commit().await?)
    }

    /// surrealkv checks only written keys for conflicts; here every read key is written. A commit reports the conflict before the
    /// other commit is visible, so another task runs before the retry.
    async fn add(&self, keys: &[Vec<u8>], how: Adding) -> Result<u64> {
        let mut values = Vec::with_capacity(keys.len());
        for conflicts in 0.. {
            let mut transaction = self.tree.begin_with_mode(Mode::ReadWrite)?;
            if how.synced {
                transaction.set_durability(Durability::Immediate);
            }
            for key in keys {
                values.extend(transaction.get(key)?.map(|value| one_more(&value)));
            }
            how.between();
            for (key, value) in keys.iter().zip(values.drain(..)) {
                transaction.set(key, value)?;
            }
            match transaction.commit().await {
                Ok(_) => return Ok(conflicts),
                Err(Error::TransactionWriteConflict) => tokio::task::yield_now().await,
                Err(error) => return Err(error.into()),
            }
        }
        unreachable!("the transaction had too many conflicts")
    }

    fn settle(&self) -> Result<()> {
        machine::wait_until_idle(machine::QUIET);
        Ok(())
    }

    fn compact(&mut self) -> Result<()> {
        Ok(self.tree.compact_range(None, None, &Default::default())?)
    }

    fn close(self) -> Result<()> {
        drop(self.reader);
        Ok(self.runtime.block_on(self.tree.close())?)
    }

    fn run_clients<T, F>(&self, clients: Vec<F>) -> Result<Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let tasks: Vec<_> = clients.into_iter().map(|client| self.runtime.spawn(client)).collect();
        self.runtime.block_on(async {
            let mut results = Vec::new();
            for task in tasks {
                results.push(task.await??);
            }
            Ok(results)
        })
    }
}

const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Arc<SurrealKv>>();
};
