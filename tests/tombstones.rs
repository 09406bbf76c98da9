//! Deleted keys leave nothing behind, and scans that meet many of them become fast again.

use std::sync::Arc;

use sievedb::fs::MemFs;
use sievedb::{Db, KeyspaceOptions, Options};

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

/// Does all work that there is; it comes to an end.
fn settle(db: &Db) {
    assert!((0..5000).any(|_| !db.step().unwrap()), "there is always more to do");
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
    settle(&db);
    let held = snapshot.as_ref().unwrap();
    assert!((0..KEYS).all(|n| held.contains(key(n)).unwrap() && !db.contains(key(n)).unwrap()));
    let newer = db.snapshot();
    drop(snapshot);
    settle(&db);
    assert_eq!(tables(&db), 0, "the other snapshot sees none of the keys");
    drop(newer);
}

/// Takes the first entry so often, and calls `between` after each. Returns how many hidden entries a call has
/// skipped.
fn pop(db: &Db, pops: u32, mut between: impl FnMut(&Db)) -> u64 {
    let before = db.stats().keyspaces[0].skipped_entries;
    for n in 0..pops {
        let (first, _) = db.iter().next().unwrap().unwrap();
        assert_eq!(&first[..], n.to_be_bytes());
        db.delete(first).unwrap();
        between(db);
        while db.step().unwrap() {}
    }
    (db.stats().keyspaces[0].skipped_entries - before) / u64::from(pops)
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
    // Otherwise it would skip every deleted entry each time: 3000 on average, and as many that they hide.
    let skipped = pop(&db, 6000, push);
    assert!(skipped < 1500, "{skipped} hidden entries a call");
    assert_eq!(db.iter().count(), 2000);
}

#[test]
fn scans_that_skip_many_deleted_entries_of_tables_have_them_compacted() {
    let keyspace = KeyspaceOptions::new().memtable_bytes(128 << 10).table_bytes(32 << 10);
    let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
    let db = options.default_keyspace(keyspace).open("/db").unwrap();
    (0..80_000u32).for_each(|n| db.put(n.to_be_bytes(), "job").unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    // Too few tombstones for the share that they are of all entries to be a reason.
    let pops = 5000;
    let skipped = pop(&db, pops, |_| ());
    assert!(skipped < 1500, "{skipped} hidden entries a call");
    assert_eq!(db.iter().count(), 80_000 - pops as usize);
}
