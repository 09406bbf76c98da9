use std::hint::black_box;
use std::path::Path;

use sievedb::{Db, NewKeys, Value, WriteBatch};

use super::stores::{self, Shape};
use super::{KEYS, VALUE_BYTES};
use crate::store::{self, KEY_BYTES};
use crate::{Result, random};

type Keys = Vec<[u8; KEY_BYTES]>;

const SCANS: u64 = 2000;

const BATCH: usize = 1000;

#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Write,
    Contains,
    Insert,
    InsertThen,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    AbsentGets,
    AbsentBatches(usize),
    PresentGets,
    Puts,
    AscendingPuts,
    Inserts,
    Batches(Call),
    SeenBatches(Call),
    Scan,
    ScanBack,
    ShortScans(usize),
    Flush,
    Compaction,
}

impl Work {
    pub(super) fn lengths(self) -> [u64; 2] {
        match self {
            Self::Flush | Self::Compaction => [0, 1],
            _ => [1, 2],
        }
    }

    pub(super) fn items(self) -> u64 {
        match self {
            Self::Puts | Self::AscendingPuts | Self::Inserts | Self::Batches(_) => KEYS / 2,
            Self::ShortScans(1) => SCANS,
            Self::ShortScans(entries) => SCANS * entries as u64,
            _ => KEYS,
        }
    }

    fn keys(self) -> Keys {
        let present = || (0..KEYS).map(store::key).collect::<Keys>();
        let sorted = || {
            let mut keys = present();
            keys.sort_unstable();
            keys
        };
        match self {
            Self::AbsentGets | Self::AbsentBatches(_) => (0..KEYS).map(store::absent_key).collect(),
            Self::PresentGets | Self::Puts | Self::Inserts | Self::Batches(_) | Self::SeenBatches(_) => {
                present()
            }
            Self::AscendingPuts => sorted(),
            Self::ShortScans(entries) => {
                let (sorted, end) = (sorted(), KEYS - entries as u64);
                let places = (0..2 * SCANS).map(|scan| random::below(random::number(30, scan), end) as usize);
                places.map(|place| sorted[place]).collect()
            }
            Self::Scan | Self::ScanBack | Self::Flush | Self::Compaction => Keys::new(),
        }
    }

    fn reads_blocks(self) -> bool {
        matches!(
            self,
            Self::PresentGets | Self::SeenBatches(_) | Self::Scan | Self::ScanBack | Self::ShortScans(_)
        )
    }

    fn once(self, db: &Db, keys: &Keys, unit: u64) -> Result<()> {
        let part = |items: u64| &keys[(unit * items) as usize..((unit + 1) * items) as usize];
        match self {
            Self::AbsentGets => check(tally(keys, |key| Ok(db.get(key)?.is_some()))?, 0),
            Self::PresentGets => check(tally(keys, |key| Ok(db.get(key)?.is_some()))?, KEYS),
            Self::AbsentBatches(size) => keys.chunks(size).try_for_each(|keys| {
                let found = db.multi_contains(keys)?;
                check(found.into_iter().filter(|&found| found).count() as u64, 0)
            }),
            Self::Puts | Self::AscendingPuts => {
                part(self.items()).iter().try_for_each(|key| Ok(db.put(key, [7; VALUE_BYTES])?))
            }
            Self::Inserts => {
                let is_new = |key: &[u8; KEY_BYTES]| Ok(db.insert_if_absent(key, [7; VALUE_BYTES])?);
                check(tally(part(self.items()), is_new)?, self.items())
            }
            Self::Batches(call) => {
                part(self.items()).chunks(BATCH).try_for_each(|keys| call.of(db, keys, BATCH))
            }
            Self::SeenBatches(call) => keys.chunks(BATCH).try_for_each(|keys| call.of(db, keys, 0)),
            Self::Scan => check(entries(db.iter())?, KEYS),
            Self::ScanBack => check(entries(db.iter().rev())?, KEYS),
            Self::ShortScans(size) => part(SCANS)
                .iter()
                .try_for_each(|key| check(entries(db.range(&key[..]..).take(size))?, size as u64)),
            Self::Flush => Ok(db.flush()?),
            Self::Compaction => Ok(db.compact()?),
        }
    }
}

impl Call {
    fn of(self, db: &Db, keys: &[[u8; KEY_BYTES]], new: usize) -> Result<()> {
        let entries = keys.iter().map(|key| (key, [7; VALUE_BYTES]));
        let counted = match self {
            Self::Write => {
                db.write(WriteBatch::from_iter(entries))?;
                new
            }
            Self::Contains => db.multi_contains(keys)?.into_iter().filter(|&found| !found).count(),
            Self::Insert => db.insert_new_many(entries)?.count(),
            Self::InsertThen => {
                let then = |new: &NewKeys, batch: &mut WriteBatch| {
                    batch.put("count", new.count().to_le_bytes());
                    Ok(())
                };
                db.insert_new_many_then(entries, then)?.count()
            }
        };
        check(counted as u64, new as u64)
    }
}

pub(super) fn run(shape: Shape, work: Work, stores: &Path, times: u64, latencies: bool) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let db = shape.open(stores, dir.path(), latencies)?;
    db.open_tables()?;
    let keys = work.keys();
    match work {
        Work::Flush => stores::fill(&db, 0..KEYS)?,
        _ if work.reads_blocks() => check(entries(db.iter())?, KEYS)?,
        _ => {}
    }
    let before = db.stats().data_block_reads;
    (0..times).try_for_each(|unit| work.once(&db, &keys, unit))?;
    if work.reads_blocks() {
        check(db.stats().data_block_reads, before)?;
    }
    Ok(db.close()?)
}

fn tally(keys: &[[u8; KEY_BYTES]], is_found: impl Fn(&[u8; KEY_BYTES]) -> Result<bool>) -> Result<u64> {
    keys.iter().try_fold(0, |found, key| Ok(found + u64::from(is_found(key)?)))
}

fn entries(iter: impl Iterator<Item = sievedb::Result<(Value, Value)>>) -> Result<u64> {
    let mut entries = 0;
    for item in iter {
        black_box(item?);
        entries += 1;
    }
    Ok(entries)
}

fn check(counted: u64, expected: u64) -> Result<()> {
    if counted == expected { Ok(()) } else { Err(format!("{counted}, not {expected}").into()) }
}
