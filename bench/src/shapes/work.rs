use std::hint::black_box;
use std::path::Path;

use sievedb::{Db, Value};

use super::stores::{self, Layout};
use super::{KEYS, UNIT, VALUE_BYTES};
use crate::Result;
use crate::keys::KeyShape;

const SCAN_ENTRIES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Work {
    Puts,
    Batches,
    InsertNew,
    Gets,
    AbsentGets,
    AbsentBatches,
    Scan,
    ScanBack,
    ShortScans,
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
            Self::Flush | Self::Compaction => KEYS,
            _ => UNIT,
        }
    }

    fn writes(self) -> bool {
        matches!(self, Self::Puts | Self::Batches | Self::InsertNew)
    }

    fn once(self, db: &Db, keys: &[Vec<u8>]) -> Result<u64> {
        match self {
            Self::Puts => {
                keys.iter().try_for_each(|key| db.put(key, [7; VALUE_BYTES]))?;
                Ok(keys.len() as u64)
            }
            Self::Batches => Ok(stores::write(db, keys)?),
            Self::InsertNew => keys.chunks(1000).try_fold(0, |done, keys| {
                let new = db.insert_new_many(keys.iter().map(|key| (key, [7; VALUE_BYTES])))?;
                Ok(done + new.count() as u64)
            }),
            Self::Gets => keys.iter().try_fold(0, |found, key| Ok(found + u64::from(db.get(key)?.is_some()))),
            Self::AbsentGets => {
                keys.iter().try_fold(0, |absent, key| Ok(absent + u64::from(db.get(key)?.is_none())))
            }
            Self::AbsentBatches => keys.chunks(1000).try_fold(0, |absent, keys| {
                Ok(absent + db.multi_contains(keys)?.into_iter().filter(|&found| !found).count() as u64)
            }),
            Self::Scan => entries(db.iter().take(keys.len())),
            Self::ScanBack => entries(db.iter().rev().take(keys.len())),
            Self::ShortScans => keys.iter().step_by(SCAN_ENTRIES).try_fold(0, |passed, key| {
                Ok(passed + entries(db.range(&key[..]..).take(SCAN_ENTRIES))?.max(SCAN_ENTRIES as u64))
            }),
            Self::Flush => {
                db.flush()?;
                Ok(UNIT)
            }
            Self::Compaction => {
                db.compact()?;
                Ok(UNIT)
            }
        }
    }
}

pub(super) fn run(shape: KeyShape, layout: Layout, work: Work, stores: &Path, times: u64) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let db = layout.open(stores, shape, dir.path())?;
    let absent = matches!(work, Work::AbsentGets | Work::AbsentBatches);
    let present: Vec<_> = (0..KEYS).map(|index| shape.key(index)).collect();
    let written = if work.writes() { KEYS - 2 * UNIT } else { KEYS } as usize;
    if layout.runs() == 0 {
        stores::write(&db, &present[..written])?;
    } else {
        db.open_tables()?;
        black_box(entries(db.iter())?);
    }
    let keys = match absent {
        true => (0..2 * UNIT).map(|index| shape.absent_key(index)).collect(),
        false if work.writes() => present[written..].to_vec(),
        false => present,
    };
    for unit in 0..times as usize {
        let taken = work.once(&db, &keys[unit * UNIT as usize..][..UNIT as usize])?;
        if taken != UNIT {
            return Err(format!("{taken} of {UNIT} entries").into());
        }
    }
    if work.lengths() == [1, 2] && stores::runs(&db) != layout.runs() {
        return Err("the store was flushed or merged".into());
    }
    Ok(db.close()?)
}

fn entries(iter: impl Iterator<Item = sievedb::Result<(Value, Value)>>) -> Result<u64> {
    let mut entries = 0;
    for item in iter {
        black_box(item?);
        entries += 1;
    }
    Ok(entries)
}
