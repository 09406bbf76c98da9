//! Range deletes in tables, from the flush to the deepest level.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Db;
use crate::db::state::switch_points::in_order;
use crate::error::{Error, Result};
use crate::fs::{CrashPolicy, MemFs};
use crate::limits::KEY_BYTES_MAX;
use crate::options::{KeyspaceOptions, Options};
use crate::version::TableHandle;

fn options(fs: &MemFs) -> Options {
    let keyspace = KeyspaceOptions::new().block_bytes(512).table_bytes(4 << 10).level_base_bytes(16 << 10);
    Options::new().fs(Arc::new(fs.clone())).background_threads(0).default_keyspace(keyspace.level_ratio(4))
}

fn open(fs: &MemFs) -> Db {
    options(fs).open("/db").unwrap()
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn fill(db: &Db, numbers: std::ops::Range<u32>) {
    numbers.for_each(|number| db.put(key(number), number.to_be_bytes().repeat(8)).unwrap());
    db.flush().unwrap();
}

fn tables(db: &Db) -> Vec<(usize, Arc<TableHandle>)> {
    let version = Arc::clone(&db.engine().keyspaces.default_tree().view().version);
    version.all_tables().map(|(level, table)| (level, Arc::clone(table))).collect()
}

fn keys(db: &Db) -> Vec<Vec<u8>> {
    db.iter().map(|entry| entry.unwrap().0.to_vec()).collect()
}

fn deep(db: &Db) {
    for round in 0..6 {
        fill(db, round * 300..round * 300 + 600);
        while db.step().unwrap() {}
    }
    db.compact().unwrap();
    fill(db, 0..900);
    db.settle().unwrap();
    assert!(tables(db).len() > 10, "{}", tables(db).len());
}

fn blocks_read(db: &Db) -> u64 {
    db.engine().context.io.data_block_reads.load(Ordering::Relaxed)
}

#[test]
fn clear_and_settle_leave_no_tables_and_read_none() {
    let db = open(&MemFs::new());
    deep(&db);
    let read = blocks_read(&db);
    db.clear().unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    assert_eq!((tables(&db).len(), keys(&db).len()), (0, 0));
    assert_eq!(blocks_read(&db), read);
    assert!(db.verify().unwrap().damage.is_empty());
}

#[test]
fn tables_that_a_snapshot_needs_stay_until_it_is_released() {
    let db = open(&MemFs::new());
    deep(&db);
    let (before, snapshot) = (keys(&db), db.snapshot());
    db.delete_range(key(100)..key(1900)).unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    db.compact().unwrap();
    let seen: Vec<_> = snapshot.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    assert!(seen == before, "{} of {}", seen.len(), before.len());
    let left: Vec<_> = before.iter().filter(|own| **own < key(100) || **own >= key(1900)).cloned().collect();
    assert!(keys(&db) == left, "{} of {}", keys(&db).len(), left.len());
    let all = tables(&db).len();
    drop(snapshot);
    db.settle().unwrap();
    assert!(tables(&db).len() < all / 2, "{} of {all}", tables(&db).len());
    assert!(tables(&db).iter().all(|(_, table)| table.meta.spans.is_none()), "nothing is below");
    assert!(keys(&db) == left);
}

#[test]
fn compact_rewrites_tables_for_their_range_deletes_alone() {
    for reopens in [false, true] {
        let fs = MemFs::new();
        let mut db = open(&fs);
        fill(&db, 0..100);
        db.compact().unwrap();
        let snapshot = db.snapshot();
        db.clear().unwrap();
        db.compact().unwrap();
        assert_eq!((snapshot.iter().count(), keys(&db).len()), (100, 0));
        drop(snapshot);
        if reopens {
            db.close().unwrap();
            db = open(&fs);
        }
        db.compact().unwrap();
        assert_eq!(tables(&db).len(), 0, "{reopens}");
    }
}

/// The successor of a key of maximum length that ends with ff is shorter.
#[test]
fn a_table_does_not_end_behind_a_longest_key_under_a_span_if_the_next_key_is_shorter() {
    let last = [vec![b'a'; KEY_BYTES_MAX - 1], vec![0xff]].concat();
    let next = [vec![b'a'; KEY_BYTES_MAX - 2], b"b".to_vec()].concat();
    let fs = MemFs::new();
    let db = open(&fs);
    [&next[..], b"z"].into_iter().for_each(|key| db.put(key, "old").unwrap());
    db.flush().unwrap();
    let snapshot = db.snapshot();
    db.clear().unwrap();
    [&last[..], &next[..], b"b"].into_iter().for_each(|key| db.put(key, "new").unwrap());
    let check = |db: &Db| {
        assert_eq!(db.get(&next).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(keys(db), [&last[..], &next[..], b"b"]);
        assert!(db.verify().unwrap().damage.is_empty());
    };
    let image = fs.crash(CrashPolicy::KeepAll);
    db.flush().unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
    assert_eq!(snapshot.iter().count(), 2);
    let options = Options::new().fs(Arc::new(image.clone())).background_threads(0).memory_budget(1 << 20);
    let db = options.open("/db").unwrap();
    check(&db);
    db.close().unwrap();
    check(&open(&image));
}

#[test]
fn a_range_delete_is_at_one_moment_among_inserts_transactions_and_flushes_in_every_order() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let db = open(&MemFs::new());
        ["a", "k"].into_iter().for_each(|key| db.put(key, "old").unwrap());
        if seed % 3 > 0 {
            db.flush().unwrap();
        }
        let delete = || db.delete_range("a".."z").map(|()| "deleted");
        let insert = || Ok(if db.insert_if_absent("k", "new")? { "inserted" } else { "refused" });
        let copy = || {
            let tx = db.transaction();
            let answer = if tx.get("a")?.is_some() { "present" } else { "absent" };
            tx.put("b", answer);
            match tx.commit() {
                Ok(()) => Ok(answer),
                Err(Error::Conflict { .. }) => Ok("conflict"),
                Err(error) => Err(error),
            }
        };
        let flush = || {
            db.flush()?;
            db.compact().map(|()| "flushed")
        };
        let results = in_order(seed, [&delete, &insert, &copy, &flush]).map(Result::unwrap);
        let value = |key: &str| db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap());
        let context = format!("order {seed}: {results:?}");
        assert_eq!(value("a"), None, "{context}");
        let (inserted, copied) =
            (results[1] == "inserted", (results[2] == "absent").then(|| "absent".to_owned()));
        assert_eq!(value("k"), inserted.then(|| "new".to_owned()), "{context}");
        assert_eq!(value("b"), copied, "{context}");
        outcomes.insert(results);
    }
    assert!(outcomes.len() >= 4, "{outcomes:?}");
}

#[test]
fn a_range_delete_in_the_log_alone_drops_no_table() {
    let fs = MemFs::new();
    let db = open(&fs);
    deep(&db);
    let before = keys(&db);
    db.clear().unwrap();
    while db.step().unwrap() {}
    db.settle().unwrap();
    assert!(keys(&db).is_empty());
    let db = open(&fs.crash(CrashPolicy::DropUnsynced));
    assert!(keys(&db) == before, "{} of {}", keys(&db).len(), before.len());
}

#[test]
fn bounds_include_spans_so_that_no_table_is_moved_past_what_it_hides() {
    let db = open(&MemFs::new());
    fill(&db, 500..520);
    db.compact().unwrap();
    db.put(key(0), "v").unwrap();
    db.delete_range(key(400)..key(510)).unwrap();
    db.flush().unwrap();
    let newest = tables(&db).into_iter().find(|(level, _)| *level == 0).unwrap().1;
    assert_eq!((&newest.meta.smallest[..], &newest.meta.largest[..]), (&key(0)[..], &key(510)[..]));
    let expected: Vec<_> = [0].into_iter().chain(510..520).map(key).collect();
    assert_eq!(keys(&db), expected);
    for _ in 0..3 {
        db.compact().unwrap();
        assert_eq!(keys(&db), expected);
    }
    assert!(tables(&db).iter().all(|(_, table)| table.meta.spans.is_none()), "it has reached the bottom");
}

#[test]
fn a_put_over_a_range_delete_that_is_kept_stays_visible() {
    let db = open(&MemFs::new());
    fill(&db, 0..20);
    db.compact().unwrap();
    fill(&db, 5..6);
    let snapshot = db.snapshot();
    db.delete_range(key(0)..key(10)).unwrap();
    fill(&db, 3..4);
    for _ in 0..3 {
        db.settle().unwrap();
        db.compact().unwrap();
        assert_eq!(keys(&db), [3].into_iter().chain(10..20).map(key).collect::<Vec<_>>());
        assert_eq!(snapshot.iter().count(), 20);
    }
}

#[test]
fn histories_of_range_deletes_in_small_tables_agree_with_a_map() {
    for seed in 1..=6u64 {
        let fs = MemFs::new();
        let (mut db, mut model, mut state) = (open(&fs), BTreeMap::new(), seed);
        let mut next = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as u32) % below
        };
        let mut snapshots = Vec::new();
        for round in 0..120u32 {
            match next(8) {
                0..3 => {
                    let start = next(2000);
                    for number in start..start + next(150) {
                        db.put(key(number), round.to_be_bytes().repeat(6)).unwrap();
                        model.insert(key(number), round);
                    }
                }
                3 => {
                    let (start, len) = (next(2000), 1 + next(400));
                    db.delete_range(key(start)..key(start + len)).unwrap();
                    model.retain(|own, _| *own < key(start) || *own >= key(start + len));
                }
                4 => {
                    let start = 1500 + next(500);
                    db.delete_range([&key(start)[..], b"x"].concat()..).unwrap();
                    model.retain(|own, _| *own <= key(start));
                }
                5 => db.flush().unwrap(),
                6 => db.settle().unwrap(),
                _ if next(3) == 0 => db.compact().unwrap(),
                _ if snapshots.len() > 2 => drop(snapshots.remove(0)),
                _ => snapshots.push((db.snapshot(), model.clone())),
            }
            let found: Vec<_> = keys(&db);
            assert!(found.iter().eq(model.keys()), "seed {seed}, round {round}");
            for (snapshot, model) in &snapshots {
                let found: Vec<_> = snapshot.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
                assert!(found.iter().eq(model.keys()), "seed {seed}, round {round}, snapshot");
            }
            let number = next(2100);
            assert_eq!(db.contains(key(number)).unwrap(), model.contains_key(&key(number)));
            if next(20) == 0 {
                snapshots.clear();
                db.close().unwrap();
                db = open(&fs);
                let damage = db.verify().unwrap().damage;
                assert!(damage.is_empty(), "seed {seed}, round {round}");
            }
        }
        drop(snapshots);
        db.clear().unwrap();
        db.flush().unwrap();
        db.settle().unwrap();
        assert_eq!(tables(&db).len(), 0, "seed {seed}");
    }
}
