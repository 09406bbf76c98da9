//! Deleted keys leave nothing behind, and scans that meet many of them become fast again.

use std::sync::Arc;

use sievedb::fs::MemFs;
use sievedb::{Db, Options};

use crate::support::store;

const KEYS: u32 = 5000;

fn key(n: u32) -> [u8; 4] {
    // Neighbours are written far apart.
    n.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

/// A store of several levels, of which every key has been deleted and every delete flushed.
fn all_deleted(fs: &MemFs, before_deleting: impl FnOnce(&Db)) -> Db {
    let db = store::open(fs).unwrap();
    (0..KEYS).for_each(|n| db.put(key(n), [7; 40]).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    before_deleting(&db);
    (0..KEYS).for_each(|n| db.delete(key(n)).unwrap());
    db.flush().unwrap();
    db
}

fn tables(db: &Db) -> u64 {
    db.stats().keyspaces[0].total().tables
}

#[test]
fn a_store_whose_keys_are_all_deleted_is_empty_once_settled() {
    let fs = MemFs::new();
    let db = all_deleted(&fs, |_| {});
    db.settle().unwrap();
    assert_eq!(tables(&db), 0);
    assert_eq!(db.iter().count(), 0);
    assert!(db.verify().unwrap().damage.is_empty());
    // Also if the last keys are deleted one by one, and written again in between.
    for n in 0..50 {
        db.put(key(n), "again").unwrap();
        db.put(key(n + 1), "kept").unwrap();
        db.flush().unwrap();
        db.delete(key(n)).unwrap();
        db.flush().unwrap();
    }
    db.settle().unwrap();
    assert_eq!(db.iter().count(), 1);
    db.delete(key(50)).unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    assert_eq!(tables(&db), 0);
}

#[test]
fn tombstones_that_a_snapshot_held_back_go_when_it_is_released() {
    let fs = MemFs::new();
    let mut snapshot = None;
    let db = all_deleted(&fs, |db| snapshot = Some(db.snapshot()));
    db.settle().unwrap();
    let held = snapshot.as_ref().unwrap();
    assert!((0..KEYS).all(|n| held.contains(key(n)).unwrap() && !db.contains(key(n)).unwrap()));
    assert!(!db.step().unwrap(), "there is nothing to do as long as the snapshot is there");
    let newer = db.snapshot();
    drop(snapshot);
    assert!(db.step().unwrap());
    db.settle().unwrap();
    assert_eq!(tables(&db), 0, "the other snapshot sees none of the keys");
    drop(newer);
}

#[test]
fn a_queue_skips_few_deleted_entries_however_long_it_is_used() {
    let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap();
    let mut end = 0u32;
    let mut push = |db: &Db| {
        db.put(end.to_be_bytes(), "job").unwrap();
        end += 1;
    };
    (0..2000).for_each(|_| push(&db));
    let pops = 6000u32;
    for n in 0..pops {
        let (first, _) = db.iter().next().unwrap().unwrap();
        assert_eq!(&first[..], n.to_be_bytes());
        db.delete(first).unwrap();
        push(&db);
        while db.step().unwrap() {}
    }
    assert_eq!(db.iter().count(), 2000);
    let stats = &db.stats().keyspaces[0];
    // Otherwise it would skip every deleted entry each time: 6000 on average.
    let skipped = stats.skipped_entries / u64::from(pops);
    assert!(skipped < 1500, "{skipped} hidden entries a call");
}
