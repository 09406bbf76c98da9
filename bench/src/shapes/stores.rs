use std::fs;
use std::path::{Path, PathBuf};

use sievedb::{Db, KeyspaceOptions, Options, WriteBatch};

use super::{KEYS, VALUE_BYTES};
use crate::Result;
use crate::keys::KeyShape;
use crate::random::number;

pub(super) const TABLE_BYTES: u64 = 1 << 20;

const RUNS: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Layout {
    Empty,
    Memtable,
    OneRun,
    FourRuns,
}

impl Layout {
    pub(super) fn runs(self) -> u64 {
        match self {
            Self::Empty | Self::Memtable => 0,
            Self::OneRun => 1,
            Self::FourRuns => RUNS,
        }
    }

    pub(super) fn open(self, stores: &Path, shape: KeyShape, dir: &Path) -> Result<Db> {
        if self.runs() > 0 {
            for file in fs::read_dir(self.place(stores, shape))? {
                let file = file?;
                fs::copy(file.path(), dir.join(file.file_name()))?;
            }
        }
        let db = options().open(dir)?;
        if runs(&db) == self.runs() { Ok(db) } else { Err(format!("{self:?} has {} runs", runs(&db)).into()) }
    }

    fn place(self, stores: &Path, shape: KeyShape) -> PathBuf {
        stores.join(format!("{shape:?}-{self:?}"))
    }
}

pub(super) fn runs(db: &Db) -> u64 {
    db.stats().keyspaces.iter().map(|keyspace| keyspace.total().runs).sum()
}

pub(super) fn make(stores: &Path, shape: KeyShape) -> Result<()> {
    let db = options().open(Layout::OneRun.place(stores, shape))?;
    write(&db, &(0..KEYS).map(|index| shape.key(index)).collect::<Vec<_>>())?;
    db.compact()?;
    db.close()?;
    let db = options().open(Layout::FourRuns.place(stores, shape))?;
    for run in 0..RUNS {
        let keys = (0..KEYS).filter(|&index| number(60, index) % RUNS == run);
        write(&db, &keys.map(|index| shape.key(index)).collect::<Vec<_>>())?;
        db.flush()?;
    }
    Ok(db.close()?)
}

fn options() -> Options {
    let keyspace =
        KeyspaceOptions::new().memtable_bytes(1 << 30).table_bytes(TABLE_BYTES).l0_runs(2 * RUNS as usize);
    Options::new().memory_budget(4 << 30).background_threads(0).default_keyspace(keyspace)
}

pub(super) fn write(db: &Db, keys: &[Vec<u8>]) -> sievedb::Result<u64> {
    for keys in keys.chunks(1000) {
        let mut batch = WriteBatch::new();
        keys.iter().for_each(|key| _ = batch.put(key, [7; VALUE_BYTES]));
        db.write(batch)?;
    }
    Ok(keys.len() as u64)
}
