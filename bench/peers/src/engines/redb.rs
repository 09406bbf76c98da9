//! redb: a B-tree, for context. A commit without durability becomes durable with the next durable one.

use std::path::Path;

use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};

use crate::Result;
use crate::engine::{Adding, Batch, Engine, Seen, Settings, Writes, one_more, word};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("default");

type Reader = ReadOnlyTable<&'static [u8], &'static [u8]>;

pub(crate) struct Redb {
    reader: Option<Reader>,
    db: Database,
}

impl Redb {
    fn read<T>(&self, read: impl FnOnce(&Reader) -> Result<T>) -> Result<T> {
        match &self.reader {
            Some(reader) => read(reader),
            None => read(&self.db.begin_read()?.open_table(TABLE)?),
        }
    }

    fn commit(
        &self,
        synced: bool,
        change: impl FnOnce(&mut redb::Table<'_, &[u8], &[u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(if synced { Durability::Immediate } else { Durability::None })?;
        change(&mut transaction.open_table(TABLE)?)?;
        Ok(transaction.commit()?)
    }
}

fn look_at<'a>(
    entries: impl Iterator<
        Item = std::result::Result<
            (redb::AccessGuard<'a, &'static [u8]>, redb::AccessGuard<'a, &'static [u8]>),
            redb::StorageError,
        >,
    >,
) -> Result<Seen> {
    let mut seen = Seen::default();
    for entry in entries {
        let (key, value) = entry?;
        seen.entry(key.value(), value.value());
    }
    Ok(seen)
}

impl Engine for Redb {
    fn open(dir: &Path, settings: &Settings) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let db = Database::builder()
            .set_cache_size(settings.cache_bytes as usize)
            .create(dir.join("store.redb"))?;
        let reader = match settings.writes {
            Writes::None => Some(db.begin_read()?.open_table(TABLE)?),
            Writes::Some | Writes::Only => None,
        };
        let redb = Self { reader, db };
        if redb.reader.is_none() {
            redb.commit(true, |_| Ok(()))?;
        }
        Ok(redb)
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        self.read(|table| Ok(table.get(key)?.map(|value| word(value.value()))))
    }

    fn scan(&self, from: &[u8], entries: usize) -> Result<Seen> {
        self.read(|table| look_at(table.range(from..)?.take(entries)))
    }

    fn scan_back(&self, entries: usize) -> Result<Seen> {
        self.read(|table| look_at(table.iter()?.rev().take(entries)))
    }

    async fn put(&self, key: &[u8], value: &[u8], synced: bool) -> Result<()> {
        self.commit(synced, |table| {
            table.insert(key, value)?;
            Ok(())
        })
    }

    async fn write(&self, entries: &Batch) -> Result<()> {
        self.commit(false, |table| {
            for (key, value) in entries.iter() {
                table.insert(key, value)?;
            }
            Ok(())
        })
    }

    async fn delete(&self, key: &[u8]) -> Result<()> {
        self.commit(false, |table| {
            table.remove(key)?;
            Ok(())
        })
    }

    /// One writer at a time: no conflicts.
    async fn add(&self, keys: &[Vec<u8>], how: Adding) -> Result<u64> {
        self.commit(how.synced, |table| {
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.extend(table.get(key.as_slice())?.map(|value| one_more(value.value())));
            }
            how.between();
            for (key, value) in keys.iter().zip(&values) {
                table.insert(key.as_slice(), value.as_slice())?;
            }
            Ok(())
        })?;
        Ok(0)
    }

    fn settle(&self) -> Result<()> {
        self.commit(true, |_| Ok(()))
    }

    fn compact(&mut self) -> Result<()> {
        self.reader = None;
        self.db.compact()?;
        Ok(())
    }

    fn close(self) -> Result<()> {
        drop(self.reader);
        Ok(self.db.close()?)
    }
}
