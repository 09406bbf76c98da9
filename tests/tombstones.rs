use std::collections::BTreeMap;
use std::sync::Arc;

use sievedb::fs::MemFs;
use sievedb::{Db, KeyspaceOptions, Options};

use crate::support::rng::Rng;
use crate::support::store;

const KEYS: u32 = 5000;

fn key(n: u32) -> [u8; 4] {
    // Adjacent keys are written at distant times.
    n.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

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

fn skipped<T>(db: &Db, call: impl FnOnce(&Db) -> T) -> (u64, T) {
    let count = || db.stats().keyspaces[0].skipped_entries;
    let before = count();
    let result = call(db);
    (count() - before, result)
}

/// A call passes 16 keys, each with a tombstone and a hidden value, before it searches for an empty range. Twice that
/// is allowed.
const SKIPPED_MAX: u64 = 2 * 2 * 16;

fn without_threads() -> Db {
    let keyspace = KeyspaceOptions::new().memtable_bytes(128 << 10).table_bytes(32 << 10);
    let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
    options.default_keyspace(keyspace).open("/db").unwrap()
}

#[test]
fn a_queue_skips_few_deleted_entries_however_long_it_is_used() {
    let db = without_threads();
    let mut end = 0u32;
    let mut push = |db: &Db| {
        db.put(end.to_be_bytes(), "job").unwrap();
        end += 1;
    };
    (0..1000).for_each(|_| push(&db));
    for n in 0..4000u32 {
        let (skipped, popped) = skipped(&db, |db| db.pop_first().unwrap().unwrap());
        assert_eq!(popped.0, n.to_be_bytes());
        assert!(skipped <= SKIPPED_MAX, "{skipped} hidden entries by call {n}");
        push(&db);
        while n % 1000 < 200 && db.step().unwrap() {}
    }
    assert_eq!(db.iter().count(), 1000);
}

#[test]
fn both_ends_of_drained_entries_are_found_in_few_steps_in_memtables_and_in_tables() {
    const KEYS: u32 = 3000;
    for is_flushed in [false, true] {
        let db = without_threads();
        (0..KEYS).for_each(|n| db.put(n.to_be_bytes(), "entry").unwrap());
        if is_flushed {
            db.flush().unwrap();
        }
        for n in 0..KEYS / 3 {
            let (down, last) = skipped(&db, |db| db.pop_last().unwrap().unwrap());
            let (up, first) = skipped(&db, |db| db.pop_first().unwrap().unwrap());
            assert!(first.0 == n.to_be_bytes() && last.0 == (KEYS - 1 - n).to_be_bytes());
            assert!(up <= SKIPPED_MAX && down <= SKIPPED_MAX, "{up} and {down} by call {n}, {is_flushed}");
        }
        let mut cursor = db.cursor(..);
        for n in 0..KEYS {
            let expected = |n: u32| ((KEYS / 3)..(2 * KEYS / 3)).contains(&n).then(|| n.to_be_bytes());
            let (up, _) = skipped(&db, |_| cursor.seek(n.to_be_bytes()).unwrap());
            assert_eq!(cursor.key(), expected(n.max(KEYS / 3)).as_ref().map(|key| &key[..]));
            let (down, _) = skipped(&db, |_| cursor.seek_for_prev(n.to_be_bytes()).unwrap());
            assert_eq!(cursor.key(), expected(n.min(2 * KEYS / 3 - 1)).as_ref().map(|key| &key[..]));
            let (inside, is_empty) = skipped(&db, |db| db.range(..n.to_be_bytes()).next().is_none());
            assert_eq!(is_empty, n <= KEYS / 3);
            let most = up.max(down).max(inside);
            assert!(most <= SKIPPED_MAX, "{most} hidden entries at {n}, {is_flushed}");
        }
    }
}

#[test]
fn many_keys_that_were_deleted_at_once_are_passed_by_one_scan_and_jumped_over_by_the_next_ones() {
    let db = without_threads();
    (0..3000u32).for_each(|n| db.put(n.to_be_bytes(), "entry").unwrap());
    db.flush().unwrap();
    let snapshot = db.snapshot();
    (0..2000u32).for_each(|n| db.delete(n.to_be_bytes()).unwrap());
    let first = |db: &Db| skipped(db, |db| db.first().unwrap().unwrap().0);
    let (skipped, key) = first(&db);
    assert!(skipped == 4000 && key == 2000u32.to_be_bytes(), "{skipped}");
    for _ in 0..10 {
        let (skipped, key) = first(&db);
        assert!(skipped <= SKIPPED_MAX && key == 2000u32.to_be_bytes(), "{skipped}");
    }
    assert_eq!(snapshot.first().unwrap().unwrap().0, 0u32.to_be_bytes());
    for n in [1000u32, 1500, 500] {
        db.put(n.to_be_bytes(), "again").unwrap();
        let (skipped, key) = first(&db);
        assert!(skipped <= SKIPPED_MAX && key == n.min(1000).to_be_bytes(), "{skipped}");
    }
    assert_eq!(snapshot.iter().count(), 3000);
}

#[test]
fn many_queues_in_one_keyspace_are_each_drained_in_few_steps() {
    const QUEUES: u32 = 20;
    let db = without_threads();
    let key = |queue: u32, n: u32| format!("queue {queue:03} {n:05}");
    (0..QUEUES * 200).for_each(|n| db.put(key(n % QUEUES, n / QUEUES), "job").unwrap());
    db.flush().unwrap();
    for n in 0..QUEUES * 200 {
        let prefix = format!("queue {:03} ", n % QUEUES);
        let (skipped, first) = skipped(&db, |db| db.prefix(&prefix).keys().next().unwrap().unwrap());
        assert!(skipped <= SKIPPED_MAX, "{skipped} hidden entries by call {n}");
        assert_eq!(first, key(n % QUEUES, n / QUEUES));
        db.delete(first).unwrap();
    }
    assert!(db.is_empty().unwrap());
}

#[test]
fn scans_of_ranges_that_are_deleted_and_written_again_agree_with_a_sorted_map() {
    const KEYS: u64 = 600;
    let key = |n: u64| (n as u16).to_be_bytes();
    for seed in 0..3 {
        let mut rng = Rng::new(seed);
        let db = without_threads();
        let mut model = BTreeMap::new();
        let (mut snapshots, mut jumped) = (Vec::new(), 0);
        for step in 0..800 {
            let at = rng.below(KEYS);
            match rng.below(12) {
                0 => (at..(at + 300).min(KEYS)).for_each(|n| {
                    db.put(key(n), key(step)).unwrap();
                    model.insert(key(n), key(step));
                }),
                1..=3 => (at..(at + 200).min(KEYS)).for_each(|n| {
                    db.delete(key(n)).unwrap();
                    model.remove(&key(n));
                }),
                4 | 5 => {
                    db.put(key(at), key(step)).unwrap();
                    model.insert(key(at), key(step));
                }
                6 if rng.below(4) == 0 => db.flush().unwrap(),
                6 => drop(db.step().unwrap()),
                7 if snapshots.len() < 3 => snapshots.push((db.snapshot(), model.clone())),
                7 => drop(snapshots.swap_remove(rng.below(3) as usize)),
                8 => {
                    let transaction = db.transaction();
                    transaction.put(key(at), "own");
                    let end = rng.below(KEYS);
                    transaction.delete(key(end));
                    let mut own = model.clone();
                    own.insert(key(at), *b"ow");
                    own.remove(&key(end));
                    let keys: Vec<_> = transaction.keys().map(|key| key.unwrap().to_vec()).collect();
                    assert!(keys.iter().eq(own.keys().map(|key| &key[..])), "seed {seed}, step {step}");
                }
                _ => {
                    let pairs = |iter: sievedb::Iter<'_>| {
                        iter.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
                            .collect::<Vec<_>>()
                    };
                    let expected = |model: &BTreeMap<[u8; 2], [u8; 2]>| {
                        let entries = model.range(key(at)..);
                        entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<Vec<_>>()
                    };
                    let found = pairs(db.range(key(at)..));
                    let (skipped, first) = skipped(&db, |db| db.range(key(at)..).next().is_some());
                    assert_eq!(first, !found.is_empty());
                    let is_far = found.first().is_none_or(|(first, _)| first[..] > key(at + 100)[..]);
                    jumped += u64::from(is_far && (1..=SKIPPED_MAX).contains(&skipped));
                    assert_eq!(found, expected(&model), "seed {seed}, step {step}");
                    let back: Vec<_> =
                        db.range(..key(at)).keys().rev().map(|key| key.unwrap().to_vec()).collect();
                    let below = model.range(..key(at)).rev();
                    assert!(back.iter().eq(below.map(|(key, _)| &key[..])), "seed {seed}, step {step}");
                    for (snapshot, model) in &snapshots {
                        assert_eq!(
                            pairs(snapshot.range(key(at)..)),
                            expected(model),
                            "seed {seed}, step {step}"
                        );
                    }
                }
            }
        }
        assert!(jumped > 5, "or the test shows nothing: {jumped}");
    }
}

#[test]
fn scans_that_skip_many_deleted_entries_of_tables_have_them_compacted() {
    let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap();
    (0..80_000u32).for_each(|n| db.put(n.to_be_bytes(), "entry").unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    (0..10_000u32).step_by(2).for_each(|n| db.delete(n.to_be_bytes()).unwrap());
    db.flush().unwrap();
    settle(&db);
    let scan = || {
        let (skipped, found) = skipped(&db, |db| db.range(..10_000u32.to_be_bytes()).count());
        while db.step().unwrap() {}
        assert_eq!(found, 5000);
        skipped
    };
    assert_eq!(scan(), 10_000);
    let later: u64 = (0..40).map(|_| scan()).sum();
    assert!(later < 300_000, "{later} hidden entries");
    assert_eq!(scan(), 0);
}
