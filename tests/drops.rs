use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sievedb::fs::MemFs;
use sievedb::{
    Db, Error, FilterKind, FilterPolicy, IndexedBatch, Keyspace, KeyspaceOptions, Options, WriteBatch,
};

use crate::support::faulty::{Call, FaultyFs};
use crate::support::store::DIR;

type Work = fn(&Keyspace) -> sievedb::Result<()>;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn options(fs: &FaultyFs) -> Options {
    Options::new().fs(Arc::new(fs.clone())).background_threads(0)
}

fn dropped_at_the_next_open() -> (FaultyFs, Db) {
    let fs = FaultyFs::new(&MemFs::new());
    let db = options(&fs).open(DIR).unwrap();
    for round in 0..2u32 {
        for name in NAMES {
            let keyspace = db.keyspace(name, KeyspaceOptions::new()).unwrap();
            (0..3000u32).for_each(|n| keyspace.put(n.to_be_bytes(), round.to_be_bytes()).unwrap());
            keyspace.flush().unwrap();
        }
    }
    db.close().unwrap();
    let db = options(&fs).open(DIR).unwrap();
    let (handle, is_dropped) = (db.clone(), AtomicBool::new(false));
    fs.judge(move |_, call| {
        let is_table = matches!(call, Call::Open(_)) && call.kind() == "sst";
        if is_table && !is_dropped.swap(true, Ordering::SeqCst) {
            handle.drop_keyspace("a").unwrap();
        }
        None
    });
    (fs, db)
}

fn policy() -> FilterPolicy {
    FilterPolicy::new(FilterKind::Bloom).bits_per_key(13.0)
}

#[test]
fn work_on_a_keyspace_that_is_dropped_meanwhile_ends_with_an_error_that_names_the_keyspace() {
    let works: [(&str, Work); 3] = [
        ("compact", Keyspace::compact),
        ("compact_range", |keyspace| keyspace.compact_range(0u32.to_be_bytes()..2900u32.to_be_bytes())),
        ("refilter", |keyspace| keyspace.refilter(policy())),
    ];
    for (name, work) in works {
        let (fs, db) = dropped_at_the_next_open();
        let result = work(&db.existing_keyspace("a").unwrap());
        assert!(
            matches!(&result, Err(Error::KeyspaceDropped { name, .. }) if name == "a"),
            "{name}: {result:?}"
        );
        assert!(!db.keyspaces().contains(&"a".to_owned()));
        fs.recover();
        db.put("k", "v").unwrap();
        assert!(db.background_error().is_none());
    }
}

#[test]
fn work_on_all_keyspaces_goes_on_after_one_was_dropped_meanwhile() {
    let (fs, db) = dropped_at_the_next_open();
    db.compact().unwrap();
    fs.recover();
    let tables = |db: &Db| {
        db.stats().keyspaces.iter().map(|each| (each.name.clone(), each.total().tables)).collect::<Vec<_>>()
    };
    let left = [("default".to_owned(), 0), ("b".to_owned(), 1), ("c".to_owned(), 1)];
    assert_eq!(tables(&db), left);

    let (fs, db) = dropped_at_the_next_open();
    db.refilter(policy()).unwrap();
    fs.recover();
    assert_eq!(db.stats().rebuilt_filters, 4);
}

#[test]
fn a_batch_over_a_dropped_keyspace_is_refused_by_its_name() {
    let db = options(&FaultyFs::new(&MemFs::new())).open(DIR).unwrap();
    let keyspace = db.keyspace("users", KeyspaceOptions::new()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("k", "v");
    batch.put_in(&keyspace, "k", "v");
    db.drop_keyspace("users").unwrap();
    let named = |result: sievedb::Result<()>| match result {
        Err(Error::KeyspaceDropped { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(named(db.write(&batch)), "users");
    let mut indexed = IndexedBatch::new();
    indexed.put_in(&keyspace, "k", "v");
    assert_eq!(named(db.write(&indexed)), "users");
    let transaction = db.transaction();
    transaction.keyspace(&keyspace).put("k", "v");
    assert_eq!(named(transaction.commit()), "users");
    assert!(!db.contains("k").unwrap(), "nothing of a refused batch is written");
}
