//! The initial stores of the rows. Each row works on a copy.

use std::fs;
use std::path::Path;

use sievedb::{Db, Options, WriteBatch};

use super::{KEYS, VALUE_BYTES};
use crate::Result;
use crate::store::{self, KEY_BYTES};

/// Runs of the larger store: as many as level 0 has before it is merged.
const RUNS: u64 = 4;
const BATCH_ENTRIES: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Empty,
    OneRun,
    FourRuns,
}

impl Shape {
    fn runs(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::OneRun => 1,
            Self::FourRuns => RUNS,
        }
    }

    /// Opens a store of this shape in `dir`: a copy of the one in `stores`.
    pub(super) fn open(self, stores: &Path, dir: &Path, latencies: bool) -> Result<Db> {
        for file in fs::read_dir(stores.join(format!("{self:?}")))? {
            let file = file?;
            fs::copy(file.path(), dir.join(file.file_name()))?;
        }
        self.checked(options().latency_histograms(latencies).open(dir)?)
    }

    /// Fails if the store has another shape.
    fn checked(self, db: Db) -> Result<Db> {
        let runs: u64 = db.stats().keyspaces.iter().map(|keyspace| keyspace.total().runs).sum();
        if runs == self.runs() { Ok(db) } else { Err(format!("{self:?} has {runs} runs").into()) }
    }
}

/// Makes a store of each shape in a directory below `stores`.
pub(super) fn make(stores: &Path) -> Result<()> {
    for shape in [Shape::Empty, Shape::OneRun, Shape::FourRuns] {
        let db = options().open(stores.join(format!("{shape:?}")))?;
        let runs = shape.runs();
        for run in 0..runs {
            fill(&db, run * KEYS / runs..(run + 1) * KEYS / runs)?;
            db.flush()?;
        }
        shape.checked(db)?.close()?;
    }
    Ok(())
}

fn options() -> Options {
    Options::new().memory_budget(1 << 30).background_threads(0)
}

pub(super) fn fill(db: &Db, numbers: std::ops::Range<u64>) -> Result<()> {
    let keys: Vec<[u8; KEY_BYTES]> = numbers.map(store::key).collect();
    for keys in keys.chunks(BATCH_ENTRIES) {
        let mut batch = WriteBatch::new();
        keys.iter().for_each(|key| _ = batch.put(key, [7; VALUE_BYTES]));
        db.write(batch)?;
    }
    Ok(())
}
