use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use sievedb::fs::{CrashPolicy, MemFs};
use sievedb::{Db, Error, IndexedBatch, KeyspaceOptions, Options, WriteBatch};

use crate::support::store::{self, DIR};

const PLACES: [Place; 5] =
    [Place::Memtable, Place::OldTables, Place::NewTables, Place::Compacted, Place::Replayed];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Memtable,
    OldTables,
    NewTables,
    Compacted,
    Replayed,
}

fn open() -> (MemFs, Db) {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    (fs, db)
}

/// Without automatic flushes and audits of filters.
fn roomy(fs: &MemFs) -> Db {
    let keyspace = store::small().memtable_bytes(1 << 20).table_bytes(1 << 20);
    store::options(fs).audit_absent(0).default_keyspace(keyspace).open(DIR).unwrap()
}

fn keys(db: &Db) -> String {
    let key = |key: sievedb::Result<sievedb::Value>| String::from_utf8(key.unwrap().to_vec()).unwrap();
    let up: Vec<_> = db.keys().map(key).collect();
    let mut down: Vec<_> = db.keys().rev().map(key).collect();
    down.reverse();
    assert_eq!(up, down);
    up.join(" ")
}

fn deleted(place: Place, put: &str, ranges: &[(&str, &str)]) -> (MemFs, Db) {
    let fs = MemFs::new();
    let mut db = roomy(&fs);
    for key in put.split(' ') {
        db.put(key, key).unwrap();
    }
    if place != Place::Memtable && place != Place::Replayed {
        db.flush().unwrap();
        db.settle().unwrap();
    }
    let snapshot = (place == Place::Compacted).then(|| db.snapshot());
    ranges.iter().for_each(|(start, end)| db.delete_range(start..end).unwrap());
    match place {
        Place::Memtable | Place::OldTables => {}
        Place::NewTables => db.flush().unwrap(),
        Place::Compacted => db.compact().unwrap(),
        Place::Replayed => {
            let image = fs.crash(CrashPolicy::KeepAll);
            db = roomy(&image);
            return (image, db);
        }
    }
    drop(snapshot);
    (fs, db)
}

#[test]
fn scans_lookups_and_seeks_find_no_deleted_key_wherever_entries_and_ranges_are() {
    let put = "a b c d e f g h i j k l m";
    let ranges = [("b", "d"), ("c", "f"), ("g", "l"), ("h", "i"), ("x", "y"), ("f", "f\0")];
    for place in PLACES {
        let (_fs, db) = deleted(place, put, &ranges);
        assert_eq!(keys(&db), "a l m", "{place:?}");
        let wanted = |key: &str| ["a", "l", "m"].contains(&key);
        for key in put.split(' ') {
            assert_eq!(db.get(key).unwrap().is_some(), wanted(key), "{place:?} {key}");
            assert!(db.may_contain(key) || !wanted(key));
        }
        let all: Vec<_> = put.split(' ').collect();
        let found = db.multi_contains(&all).unwrap();
        assert!(found.iter().zip(&all).all(|(found, key)| *found == wanted(key)), "{place:?}");

        let mut cursor = db.cursor(..);
        let at = |cursor: &sievedb::Cursor<'_>| {
            cursor.key().map(|key| String::from_utf8(key.to_vec()).unwrap()).unwrap_or_default()
        };
        for (sought, next, previous) in [
            ("", "a", ""),
            ("a", "a", "a"),
            ("a\0", "l", "a"),
            ("b", "l", "a"),
            ("c", "l", "a"),
            ("f", "l", "a"),
            ("k\u{ff}", "l", "a"),
            ("l", "l", "l"),
            ("l\0", "m", "l"),
            ("m", "m", "m"),
            ("z", "", "m"),
        ] {
            cursor.seek(sought).unwrap();
            assert_eq!(at(&cursor), next, "{place:?}: seek {sought}");
            cursor.seek_for_prev(sought).unwrap();
            assert_eq!(at(&cursor), previous, "{place:?}: seek for prev {sought}");
        }
        cursor.seek("a").unwrap();
        assert!(cursor.next().unwrap() && at(&cursor) == "l", "{place:?}");
        assert!(cursor.prev().unwrap() && at(&cursor) == "a", "{place:?}");
        assert!(!cursor.prev().unwrap());
        let count = |from: &str, to: &str| db.range(from..to).count();
        assert_eq!((count("c", "l"), count("c", "m"), count("a", "h")), (0, 1, 1), "{place:?}");
        assert_eq!(db.first().unwrap().unwrap().0, "a");
        assert_eq!(db.last().unwrap().unwrap().0, "m");
        assert_eq!(db.len().unwrap(), 3);
        db.put("e", "again").unwrap();
        assert_eq!(keys(&db), "a e l m", "{place:?}");
        assert_eq!(db.pop_first().unwrap().unwrap().0, "a");
        assert_eq!(db.pop_first().unwrap().unwrap().0, "e");
        assert_eq!(keys(&db), "l m");
        assert!(db.verify().unwrap().damage.is_empty());
    }
}

#[test]
fn a_key_that_newer_filters_deny_stays_deleted() {
    for level in 0..3 {
        let fs = MemFs::new();
        let db = roomy(&fs);
        (0..500_u32).for_each(|n| db.put(n.to_be_bytes(), [7; 40]).unwrap());
        db.compact().unwrap();
        if level == 1 {
            (1000..1200_u32).for_each(|n| db.put(n.to_be_bytes(), [7; 40]).unwrap());
        }
        let snapshot = db.snapshot();
        db.delete_range(100_u32.to_be_bytes()..300_u32.to_be_bytes()).unwrap();
        db.flush().unwrap();
        if level == 2 {
            db.settle().unwrap();
        }
        db.open_tables().unwrap();
        for reopened in [false, true] {
            let db = if reopened { roomy(&fs.crash(CrashPolicy::KeepAll)) } else { db.clone() };
            let there = |n: u32| db.get(n.to_be_bytes()).unwrap().is_some();
            assert!((0..500).all(|n| there(n) != (100..300).contains(&n)), "{level} {reopened}");
        }
        let keyspace = db.default_keyspace();
        let then = snapshot.keyspace(&keyspace);
        assert!((0..500_u32).all(|n| then.contains(n.to_be_bytes()).unwrap()));
    }
}

#[test]
fn snapshots_iterators_and_readers_of_older_moments_see_the_deleted_keys() {
    let (_fs, db) = open();
    (0..100_u32).for_each(|n| db.put(n.to_be_bytes(), "v").unwrap());
    let mut seen = Vec::new();
    for round in 0..20_u32 {
        seen.push((db.snapshot(), db.len().unwrap()));
        db.delete_range((5 * round).to_be_bytes()..(5 * round + 3).to_be_bytes()).unwrap();
    }
    let mut held = db.iter();
    let left = db.len().unwrap();
    assert_eq!(left, 40);
    db.clear().unwrap();
    assert!(db.is_empty().unwrap());
    for flushed in [false, true] {
        for (snapshot, len) in &seen {
            assert_eq!(snapshot.len().unwrap(), *len, "{flushed}");
            assert_eq!(snapshot.keys().rev().count() as u64, *len);
        }
        db.compact().unwrap();
    }
    assert_eq!(held.by_ref().map(Result::unwrap).count(), 40);
}

#[test]
fn entries_of_one_batch_count_in_their_order() {
    let (fs, db) = open();
    let other = db.keyspace("other", KeyspaceOptions::new()).unwrap();
    db.put("b", "old").unwrap();
    other.put("b", "old").unwrap();
    let mut batch = WriteBatch::new();
    batch
        .put("a", "1")
        .delete_range("a".."c")
        .put("b", "2")
        .delete_prefix_in(&other, "b")
        .put_in(&other, "c", "3");
    batch.delete_range("z".."z");
    assert_eq!(batch.len(), 5, "a range of no key is no entry");
    db.write(batch).unwrap();
    let image = store::open(&fs.crash(CrashPolicy::KeepAll)).unwrap();
    for db in [&db, &image] {
        assert_eq!(db.get("a").unwrap(), None);
        assert_eq!(db.get("b").unwrap().unwrap(), b"2"[..]);
        let other = db.existing_keyspace("other").unwrap();
        assert_eq!((other.get("b").unwrap(), other.len().unwrap()), (None, 1));
    }
}

#[test]
fn reversed_ranges_dropped_keyspaces_and_readers_are_refused_and_nothing_is_written() {
    let (fs, db) = open();
    db.put("k", "v").unwrap();
    let gone = db.keyspace("gone", KeyspaceOptions::new()).unwrap();
    db.drop_keyspace("gone").unwrap();
    let before = db.stats().entries;
    let is_invalid = |result: sievedb::Result<()>| matches!(result, Err(Error::InvalidArgument { .. }));
    assert!(is_invalid(db.delete_range("l".."k")));
    assert!(is_invalid(db.delete_range((Bound::Excluded("l"), Bound::Included("k")))));
    let mut batch = WriteBatch::new();
    batch.put("half", "of it").delete_range("l".."k");
    assert!(is_invalid(db.write(batch)));
    let mut batch = IndexedBatch::new();
    batch.delete_range("l".."k");
    assert!(is_invalid(batch.over(&db).get("k").map(drop)));
    let tx = db.transaction();
    tx.put("half", "of it").delete_range("l".."k");
    assert!(is_invalid(tx.commit()));
    let is_dropped = |result: sievedb::Result<()>| matches!(result, Err(Error::KeyspaceDropped { .. }));
    assert!(is_dropped(gone.delete_range("a".."b")) && is_dropped(gone.clear()));
    assert!(is_dropped(gone.delete_range("a".."a")), "also if there is nothing to do");
    let mut batch = WriteBatch::new();
    batch.put("half", "of it").delete_range_in(&gone, ..);
    assert!(is_dropped(db.write(batch)));
    assert!(matches!(db.delete_range(vec![0; 65_537]..), Err(Error::LimitExceeded { .. })));
    db.delete_range("k".."k").unwrap();
    db.delete_range((Bound::Excluded("k"), Bound::Excluded("k"))).unwrap();
    db.delete_range(.."").unwrap();
    assert_eq!((db.stats().entries, keys(&db)), (before, "k".into()));
    let closed = db.clone();
    db.close().unwrap();
    assert!(matches!(closed.clear(), Err(Error::Closed)));
    drop(closed);
    let reader = store::open_read_only(&fs).unwrap();
    assert!(matches!(reader.clear(), Err(Error::ReadOnly)));
    assert!(matches!(reader.delete_range("a".."a"), Err(Error::ReadOnly)));
}

#[test]
fn conditional_writes_see_a_range_delete_between_their_lookup_and_their_write() {
    let (_fs, db) = open();
    db.put("k", "1").unwrap();
    let mut seen = Vec::new();
    let updated = db.update("k", |value| {
        seen.push(value.map(<[u8]>::to_vec));
        if seen.len() == 1 {
            db.delete_range("a".."z").unwrap();
        }
        Some([value.unwrap_or(b"0"), b"+"].concat())
    });
    assert_eq!(updated.unwrap().unwrap(), b"0+"[..], "the deleted value is not revived");
    assert_eq!(seen, [Some(b"1".to_vec()), None]);
    for flushed in [false, true] {
        db.put("k", "1").unwrap();
        db.delete_prefix("k").unwrap();
        if flushed {
            db.flush().unwrap();
        }
        assert!(db.compare_and_set("k", Some(b"1"), Some(b"2")).unwrap().is_err());
        assert!(db.remove("k").unwrap().is_none());
        assert!(db.insert_if_absent("k", "new").unwrap());
        assert!(!db.insert_if_absent("k", "new").unwrap());
        assert_eq!(db.insert_new_many([("k", ""), ("l", "")]).unwrap().count(), usize::from(!flushed));
    }
}

#[test]
fn transactions_conflict_with_a_range_delete_of_keys_they_read_present_or_absent() {
    for place in ["memtable", "table", "kept"] {
        let (_fs, db) = open();
        (0..50_u32).for_each(|n| db.put(format!("k{n:02}"), "v").unwrap());
        let conflicts = |read: &dyn Fn(&sievedb::Transaction), range: (&str, &str)| {
            let tx = db.transaction();
            read(&tx);
            tx.put("own", "");
            db.delete_range(range.0..range.1).unwrap();
            match place {
                "table" => db.flush().unwrap(),
                "kept" => db.compact().unwrap(),
                _ => {}
            }
            match tx.commit() {
                Ok(()) => false,
                Err(Error::Conflict { .. }) => true,
                Err(error) => panic!("{error}"),
            }
        };
        assert!(conflicts(&|tx| drop(tx.get("k10").unwrap()), ("k10", "k11")), "{place}");
        assert!(conflicts(&|tx| drop(tx.get("absent").unwrap()), ("a", "b")), "{place}: a phantom");
        assert!(!conflicts(&|tx| drop(tx.get("k12").unwrap()), ("k13", "k14")), "{place}");
        assert!(conflicts(&|tx| assert!(tx.range("x".."z").next().is_none()), ("y", "y1")), "{place}");
        assert!(!conflicts(&|tx| assert!(tx.range("x".."y").next().is_none()), ("y", "y1")), "{place}");
        assert!(!conflicts(&|tx| _ = tx.delete_range("k20".."k30"), ("k20", "k30")), "{place}");
    }
}

#[test]
fn a_transaction_and_a_batch_hide_their_deletes_from_themselves_only() {
    let (_fs, db) = open();
    "a b c d e".split(' ').for_each(|key| db.put(key, "v").unwrap());
    db.flush().unwrap();
    db.put("c", "w").unwrap();
    let tx = db.transaction();
    tx.put("bb", "own").delete_range("b".."d").put("bc", "own");
    let seen: Vec<_> = tx.keys().map(|key| key.unwrap().to_vec()).collect();
    assert_eq!(seen, [&b"a"[..], b"bc", b"d", b"e"]);
    let mut seen: Vec<_> = tx.keys().rev().map(|key| key.unwrap().to_vec()).collect();
    seen.reverse();
    assert_eq!(seen, [&b"a"[..], b"bc", b"d", b"e"]);
    assert_eq!(tx.multi_contains(&["a", "b", "bb", "bc", "c"]).unwrap(), [true, false, false, true, false]);
    let mut cursor = tx.cursor(..);
    assert!(cursor.seek("b").unwrap() && *cursor.key().unwrap() == *b"bc");
    assert!(cursor.next().unwrap() && *cursor.key().unwrap() == *b"d");
    assert!(cursor.prev().unwrap() && *cursor.key().unwrap() == *b"bc");
    drop(cursor);
    assert_eq!(keys(&db), "a b c d e");
    tx.commit().unwrap();
    assert_eq!(keys(&db), "a bc d e");
}

#[test]
fn scans_over_own_range_deletes_teach_others_nothing() {
    let (_fs, db) = open();
    (0..200_u32).for_each(|n| db.put(n.to_be_bytes(), "v").unwrap());
    (0..100_u32).for_each(|n| db.delete(n.to_be_bytes()).unwrap());
    let tx = db.transaction();
    tx.delete_range(120_u32.to_be_bytes()..180_u32.to_be_bytes());
    (0..3).for_each(|_| assert_eq!(tx.iter().count(), 40));
    assert_eq!(db.iter().count(), 100, "the ranges of a transaction are there for others");
}

#[test]
fn a_reader_of_a_store_in_use_sees_range_deletes_when_it_refreshes() {
    let (fs, db) = open();
    (0..100_u32).for_each(|n| db.put(n.to_be_bytes(), "v").unwrap());
    let mut reader = store::open_read_only(&fs).unwrap();
    for flushed in [false, true] {
        db.delete_range(..if flushed { 80_u32 } else { 40 }.to_be_bytes()).unwrap();
        if flushed {
            db.flush().unwrap();
        }
        let before = reader.len().unwrap();
        reader.refresh().unwrap();
        assert_eq!((before, reader.len().unwrap()), if flushed { (60, 20) } else { (100, 60) });
    }
}

fn blocks<T>(db: &Db, call: impl FnOnce() -> T) -> u64 {
    let count = || {
        let stats = db.stats();
        stats.data_block_reads + stats.data_block_cache_hits
    };
    let before = count();
    call();
    count() - before
}

#[test]
fn scans_and_seeks_jump_over_keys_deleted_in_older_sources() {
    let (_fs, db) = open();
    (0..20_000_u32).for_each(|n| db.put(n.to_be_bytes(), [7; 40]).unwrap());
    db.compact().unwrap();
    let all = blocks(&db, || assert_eq!(db.iter().count(), 20_000));
    let snapshot = db.snapshot();
    for flushed in [false, true] {
        db.delete_range(10_u32.to_be_bytes()..19_990_u32.to_be_bytes()).unwrap();
        if flushed {
            db.flush().unwrap();
        }
        let passed = blocks(&db, || assert_eq!(db.iter().count(), 20))
            + blocks(&db, || assert_eq!(db.iter().rev().count(), 20))
            + blocks(&db, || assert_eq!(db.range(5000_u32.to_be_bytes()..).count(), 10));
        assert!(passed < 30 && all > 1000, "{passed} of {all} blocks");
    }
    drop(snapshot);
}

#[test]
fn alternating_range_deletes_and_lookups_give_the_right_answers_without_a_flush() {
    let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
    let db = options.open(DIR).unwrap();
    let len = 20_000_u32;
    let key = |n: u32| n.to_be_bytes();
    (0..100).for_each(|n| db.put(key(n * len / 50), "v").unwrap());
    for n in 0..len {
        db.delete_range(key(n)..key(2 * len - n)).unwrap();
        assert!(db.get(key(n)).unwrap().is_none());
    }
    assert_eq!((db.stats().flushes, db.iter().count()), (0, 0));
    db.put(key(len), "v").unwrap();
    assert_eq!(db.iter().count(), 1);
    db.flush().unwrap();
    assert_eq!(db.iter().count(), 1);
}

#[test]
fn memtables_of_range_deletes_alone_are_flushed_by_their_size_within_the_budget() {
    let (fs, db) = open();
    for n in 0..20_000_u32 {
        db.delete_range(n.to_be_bytes()..(n + 100_000).to_be_bytes()).unwrap();
        if n.is_multiple_of(500) {
            let memory = db.stats().memory;
            assert!(memory.total() <= memory.budget, "{memory:?}");
            while db.step().unwrap() {}
        }
    }
    assert!(db.stats().flushes > 10);
    db.put(7_u32.to_be_bytes(), "v").unwrap();
    db.settle().unwrap();
    let image = store::open(&fs.crash(CrashPolicy::KeepAll)).unwrap();
    assert_eq!(image.iter().count(), 1);
}

#[test]
fn a_log_in_a_keyspace_stays_flat() {
    let (_fs, db) = open();
    let (mut next, mut model, mut sizes) = (0_u64, BTreeMap::new(), Vec::new());
    for round in 0..40 {
        let first = next;
        for _ in 0..1000 {
            db.put(next.to_be_bytes(), [7; 20]).unwrap();
            model.insert(next, ());
            next += 1;
        }
        db.delete_range(..(first + 900).to_be_bytes()).unwrap();
        db.delete_range((next - 50).to_be_bytes()..).unwrap();
        model.retain(|key, ()| (first + 900..next - 50).contains(key));
        while db.step().unwrap() {}
        let found: Vec<_> = db.keys().map(|key| key.unwrap().to_vec()).collect();
        assert!(
            found.iter().eq(model.keys().map(|key| key.to_be_bytes().to_vec()).collect::<Vec<_>>().iter())
        );
        if round >= 10 {
            let total = db.stats().keyspaces[0].total();
            sizes.push((total.bytes, total.tables));
        }
    }
    let (first, last) = sizes.split_at(sizes.len() / 2);
    let most = |sizes: &[(u64, u64)]| sizes.iter().copied().fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    let (first, last) = (most(first), most(last));
    assert!(last.0 <= first.0 * 3 / 2 && last.1 <= first.1 * 3 / 2 + 1, "{first:?} {last:?} {sizes:?}");
    db.clear().unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    let total = db.stats().keyspaces[0].total();
    assert_eq!((total.tables, db.len().unwrap()), (0, 0), "nothing is left");
}
