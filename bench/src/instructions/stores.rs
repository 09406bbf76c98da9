//! The initial stores. Each row works on a copy.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sievedb::{Db, KeyspaceOptions, Options, TimeSource, WriteBatch};

use super::{KEYS, VALUE_BYTES};
use crate::Result;
use crate::store::{self, KEY_BYTES};

const RUNS: u64 = 4;
const BATCH_ENTRIES: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Empty,
    OneRun,
    FourRuns,
    Buckets(u64),
}

/// More than 1 MiB, so that buckets do not share a run.
pub(super) const BUCKET_KEYS: u64 = 10_000;

const BUCKET: Duration = Duration::from_secs(3600);

impl Shape {
    fn runs(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::OneRun => 1,
            Self::FourRuns => RUNS,
            Self::Buckets(buckets) => buckets,
        }
    }

    pub(super) fn open(self, stores: &Path, dir: &Path, latencies: bool) -> Result<Db> {
        for file in fs::read_dir(stores.join(format!("{self:?}")))? {
            let file = file?;
            fs::copy(file.path(), dir.join(file.file_name()))?;
        }
        self.checked(self.options().latency_histograms(latencies).open(dir)?)
    }

    fn checked(self, db: Db) -> Result<Db> {
        let runs: u64 = db.stats().keyspaces.iter().map(|keyspace| keyspace.total().runs).sum();
        if runs == self.runs() { Ok(db) } else { Err(format!("{self:?} has {runs} runs").into()) }
    }
}

pub(super) fn make(stores: &Path, is_wanted: impl Fn(Shape) -> bool) -> Result<()> {
    let buckets = [1, 8, 24, 96].map(Shape::Buckets);
    let shapes = [Shape::Empty, Shape::OneRun, Shape::FourRuns].into_iter().chain(buckets);
    for shape in shapes.filter(|shape| is_wanted(*shape)) {
        let db = shape.options().open(stores.join(format!("{shape:?}")))?;
        let runs = shape.runs();
        for run in 0..runs {
            if let Shape::Buckets(_) = shape {
                db.default_keyspace().advance_time(BUCKET * (run as u32 + 1))?;
                fill(&db, run * BUCKET_KEYS..(run + 1) * BUCKET_KEYS)?;
            } else {
                fill(&db, run * KEYS / runs..(run + 1) * KEYS / runs)?;
            }
            db.flush()?;
        }
        shape.checked(db)?.close()?;
    }
    Ok(())
}

impl Shape {
    fn options(self) -> Options {
        let options = Options::new().memory_budget(1 << 30).background_threads(0);
        let Self::Buckets(buckets) = self else { return options };
        let expires = KeyspaceOptions::new().ttl(BUCKET * buckets as u32).ttl_buckets(buckets);
        options.default_keyspace(expires.time_source(TimeSource::Caller))
    }
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
