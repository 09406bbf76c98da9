//! Every limit from both sides: a value within the limit is read back, and a larger value is refused without a change.

use std::sync::Arc;

use sievedb::fs::MemFs;
use sievedb::limits::{
    BATCH_BYTES_MAX, KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, VALUE_BYTES_MAX, VALUE_CHUNK_BYTES,
    VALUE_INLINE_MAX,
};
use sievedb::{
    Compression, Db, Durability, Error, FilterAllocation, FilterKind, FilterPolicy, KeyspaceOptions, Options,
    Value, WriteBatch,
};

use crate::support::store::{self, DIR};

fn is_over(result: sievedb::Result<()>, what: &str, limit: usize) {
    match result {
        Err(Error::LimitExceeded { what: found, limit: max, .. }) => {
            assert_eq!((found, max), (what, limit as u64))
        }
        other => panic!("{what}: {other:?}"),
    }
}

fn invalid<T>(result: sievedb::Result<T>) {
    match result {
        Err(Error::InvalidArgument { what, .. }) => assert!(!what.is_empty()),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was accepted"),
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at >> 12) as u8 ^ (at >> 20) as u8).collect()
}

fn in_every_state(fs: &MemFs, db: Db, check: impl Fn(&Db)) {
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
    assert!(db.verify().unwrap().damage.is_empty());
    db.close().unwrap();
    let db = store::open(fs).unwrap();
    check(&db);
    drop(db);
    check(&store::open(fs).unwrap());
}

#[test]
fn keys_up_to_64_kib_are_keys_and_a_longer_one_is_refused() {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    let lengths = [0, 1, 1023, 1024, 1025, 32 << 10, KEY_BYTES_MAX - 1, KEY_BYTES_MAX];
    let keys: Vec<Vec<u8>> = lengths.iter().flat_map(|&len| [vec![b'a'; len], vec![0xff; len]]).collect();
    for key in &keys {
        db.put(key, (key.len() as u32).to_le_bytes()).unwrap();
    }
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    is_over(db.put(&long, "v"), "key length", KEY_BYTES_MAX);
    is_over(db.delete(&long), "key length", KEY_BYTES_MAX);
    let mut batch = WriteBatch::new();
    batch.put("before", "").put(&long, "").put("after", "");
    is_over(db.write(batch), "key length", KEY_BYTES_MAX);
    let present = keys.iter().collect::<std::collections::BTreeSet<_>>();
    in_every_state(&fs, db, |db| {
        for key in &present {
            assert_eq!(db.get(key).unwrap().unwrap()[..], (key.len() as u32).to_le_bytes());
        }
        assert_eq!(db.get(&long).unwrap(), None);
        assert_eq!(db.range(long.clone()..).count(), present.iter().filter(|key| ***key > long).count());
        assert!(db.iter().map(|item| item.unwrap().0.to_vec()).eq(present.iter().map(|key| key.to_vec())));
        assert!(
            db.iter()
                .rev()
                .map(|item| item.unwrap().0.to_vec())
                .eq(present.iter().rev().map(|key| key.to_vec()))
        );
    });
}

#[test]
fn keys_that_are_too_long_to_exist_are_bounds_and_searched_for_like_others() {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    let padded = |start: &[u8], len: usize, end: &[u8]| {
        let mut key = start.to_vec();
        key.resize(len, 0);
        key.extend_from_slice(end);
        key
    };
    let mut present: Vec<Vec<u8>> = [0, 1, 2, 3, 4, KEY_BYTES_MAX].map(|len| padded(b"", len, b"")).into();
    present.extend([1, 2, KEY_BYTES_MAX].map(|len| padded(b"x", len, b"")));
    for _ in 0..3 {
        present.iter().for_each(|key| db.put(key, (key.len() as u32).to_le_bytes()).unwrap());
    }
    let starts: [&[u8]; 3] = [b"", b"x", b"y"];
    let lengths = [KEY_BYTES_MAX + 1, KEY_BYTES_MAX + 9, 70_000, 1 << 17, 1 << 20];
    let probes = starts.into_iter().flat_map(|start| {
        let ends: [&[u8]; 3] = [b"", &[1], &[0xe0]];
        lengths.into_iter().flat_map(move |len| ends.map(|end| padded(start, len, end)))
    });
    let probes: Vec<_> = probes.collect();
    in_every_state(&fs, db, |db| {
        let keys = |items: &mut dyn Iterator<Item = sievedb::Result<(Value, Value)>>| {
            items.map(|item| item.unwrap().0.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(keys(&mut db.iter()), present);
        for probe in &probes {
            assert_eq!((db.get(probe).unwrap(), db.contains(probe).unwrap()), (None, false));
            assert_eq!(db.multi_contains(std::slice::from_ref(probe)).unwrap(), [false]);
            let split = present.partition_point(|key| key < probe);
            let backward = |part: &[Vec<u8>]| part.iter().rev().cloned().collect::<Vec<_>>();
            assert_eq!(keys(&mut db.range(probe.clone()..)), present[split..]);
            assert_eq!(keys(&mut db.range(..probe.clone())), present[..split]);
            assert_eq!(keys(&mut db.range(..=probe.clone()).rev()), backward(&present[..split]));
            assert_eq!(keys(&mut db.range(probe.clone()..).rev()), backward(&present[split..]));
        }
    });
}

#[test]
fn values_around_every_boundary_of_the_format_come_back_whole() {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    let around = |at: usize| [at - 1, at, at + 1];
    let lengths: Vec<usize> = [0, 1]
        .into_iter()
        .chain(around(VALUE_INLINE_MAX))
        .chain(around(VALUE_CHUNK_BYTES))
        .chain(around(3 * VALUE_CHUNK_BYTES))
        .collect();
    for &len in &lengths {
        db.put((len as u32).to_be_bytes(), pattern(len)).unwrap();
    }
    in_every_state(&fs, db, |db| {
        let mut forward = db.iter();
        for &len in &lengths {
            assert!(db.get((len as u32).to_be_bytes()).unwrap().unwrap() == pattern(len), "{len}");
            assert!(forward.next().unwrap().unwrap().1 == pattern(len), "{len}");
        }
        assert!(forward.next().is_none());
    });
}

#[test]
fn a_value_of_256_mib_is_kept_a_longer_one_is_refused_and_so_is_a_batch_over_1_gib() {
    let largest = pattern(VALUE_BYTES_MAX);
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().background_threads(0).open(dir.path()).unwrap();
    db.put("small", "as it was").unwrap();
    is_over(db.put("small", vec![0; VALUE_BYTES_MAX + 1]), "value length", VALUE_BYTES_MAX);
    let mut batch = WriteBatch::new();
    batch.put("other", "").put("small", vec![0; VALUE_BYTES_MAX + 1]);
    is_over(db.write(batch), "value length", VALUE_BYTES_MAX);

    let room = BATCH_BYTES_MAX - BATCH_BYTES_MAX / 4 + 100;
    let mut batch = WriteBatch::with_capacity(room);
    let zeros = vec![0; VALUE_BYTES_MAX];
    for n in 0..4u8 {
        batch.put([n], &zeros);
    }
    assert!(batch.len() == 3 && batch.size_bytes() <= room, "the fourth was not even copied");
    is_over(db.write_with(batch, Durability::Synced), "batch size", BATCH_BYTES_MAX);
    let many = db.insert_new_many((0..4u8).map(|n| ([n], &zeros)));
    is_over(many.map(drop), "batch size", BATCH_BYTES_MAX);
    let followed = db.insert_new_many_then((0..3u8).map(|n| ([n], &zeros)), |_, batch| {
        batch.put([3], &zeros);
        Ok(())
    });
    is_over(followed.map(drop), "batch size", BATCH_BYTES_MAX);
    drop(zeros);
    assert!(!db.contains([0]).unwrap() && !db.contains("other").unwrap());
    assert_eq!(db.get("small").unwrap().unwrap(), b"as it was");
    assert_eq!(db.stats().entries, 1);

    db.put("hundred", &largest[..100 << 20]).unwrap();
    db.flush().unwrap();
    db.put("largest", &largest).unwrap();
    assert!(db.get("largest").unwrap().unwrap() == largest);
    db.flush().unwrap();
    assert!(db.get("largest").unwrap().unwrap() == largest);
    drop(db);
    let db = Options::new().background_threads(0).open(dir.path()).unwrap();
    assert!(db.get("hundred").unwrap().unwrap()[..] == largest[..100 << 20]);
    let (key, value) = db.iter().nth(1).unwrap().unwrap();
    assert!(key == b"largest" && value == largest);
}

#[test]
fn a_keyspace_has_a_name_of_1_to_255_bytes() {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    let options = KeyspaceOptions::new;
    invalid(db.keyspace("", options()));
    let longest = "ä".repeat(KEYSPACE_NAME_BYTES_MAX / 2) + "a";
    assert_eq!(longest.len(), KEYSPACE_NAME_BYTES_MAX);
    db.keyspace(&longest, options()).unwrap().put("k", "v").unwrap();
    let long = longest.clone() + "a";
    is_over(db.keyspace(&long, options()).map(drop), "keyspace name length", KEYSPACE_NAME_BYTES_MAX);
    invalid(db.drop_keyspace("none of this name"));
    invalid(db.drop_keyspace("default"));
    invalid(db.keyspace("odd", options().block_bytes(1)));
    assert_eq!(db.keyspaces(), ["default", &longest]);
    drop(db);
    let db = store::open(&fs).unwrap();
    assert_eq!(db.keyspaces(), ["default", &longest]);
    assert_eq!(db.existing_keyspace(&longest).unwrap().get("k").unwrap().unwrap(), b"v");
    assert!(db.existing_keyspace(&long).is_none());
}

#[test]
fn every_call_that_a_read_only_or_closed_store_cannot_do_is_refused() {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    db.put("k", "v").unwrap();
    let (other, snapshot, keyspace) = (db.clone(), db.snapshot(), db.default_keyspace());
    db.close().unwrap();
    let mut batch = WriteBatch::new();
    batch.put("k", "w");
    let closed: Vec<Error> = [
        other.get("k").err(),
        other.contains("k").err(),
        other.multi_get(&["k"]).err(),
        other.multi_contains(&["k"]).err(),
        other.put("k", "w").err(),
        other.delete("k").err(),
        other.write(batch.clone()).err(),
        other.write(WriteBatch::new()).err(),
        other.sync().err(),
        other.flush().err(),
        other.compact().err(),
        other.settle().err(),
        other.keyspace("new", KeyspaceOptions::new()).err(),
        other.keyspace("default", KeyspaceOptions::new()).err(),
        other.drop_keyspace("default").err(),
        other.iter().next().and_then(Result::err),
        snapshot.get("k").err(),
        snapshot.iter().next_back().and_then(Result::err),
        keyspace.get("k").err(),
        keyspace.put("k", "w").err(),
        keyspace.set_options(KeyspaceOptions::new()).err(),
    ]
    .into_iter()
    .enumerate()
    .map(|(call, error)| error.unwrap_or_else(|| panic!("call {call} went well")))
    .collect();
    assert!(closed.iter().all(|error| matches!(error, Error::Closed)), "{closed:?}");
    other.close().unwrap();

    let before = store::files(&fs);
    let reader = store::open_read_only(&fs).unwrap();
    let read_only: Vec<Option<Error>> = vec![
        reader.put("k", "w").err(),
        reader.delete("k").err(),
        reader.write(batch).err(),
        reader.sync().err(),
        reader.flush().err(),
        reader.compact().err(),
        reader.keyspace("new", KeyspaceOptions::new()).err(),
        reader.drop_keyspace("default").err(),
        reader.default_keyspace().set_options(KeyspaceOptions::new()).err(),
    ];
    assert!(read_only.iter().all(|error| matches!(error, Some(Error::ReadOnly))), "{read_only:?}");
    assert_eq!(reader.get("k").unwrap().unwrap(), b"v");
    assert_eq!(reader.snapshot().iter().count(), 1);
    reader.close().unwrap();
    assert!(store::files(&fs) == before, "a reader writes nothing at all");
}

#[test]
fn options_out_of_range_are_refused_before_anything_is_made() {
    let fs = MemFs::new();
    let keyspace = KeyspaceOptions::new;
    let filter =
        |kind, policy: fn(FilterPolicy) -> FilterPolicy| keyspace().filter(policy(FilterPolicy::new(kind)));
    let wrong = [
        keyspace().block_bytes(511),
        keyspace().block_bytes((1 << 20) + 1),
        keyspace().table_bytes(1023),
        keyspace().l0_runs(0),
        keyspace().l0_runs(1001),
        keyspace().level_ratio(1),
        keyspace().level_ratio(1001),
        filter(FilterKind::Bloom, |policy| policy.bits_per_key(0.0)),
        filter(FilterKind::Bloom, |policy| policy.bits_per_key(-1.0)),
        filter(FilterKind::Auto, |policy| policy.bits_per_key(64.1)),
        filter(FilterKind::Auto, |policy| policy.bits_per_key(f64::NAN)),
        filter(FilterKind::BlockedBloom, |policy| policy.false_positive_rate(0.0)),
        filter(FilterKind::BlockedBloom, |policy| policy.false_positive_rate(1.0)),
        filter(FilterKind::BlockedBloom, |policy| policy.false_positive_rate(f64::INFINITY)),
    ];
    for options in &wrong {
        invalid(Options::new().fs(Arc::new(fs.clone())).default_keyspace(options.clone()).open(DIR));
    }
    for options in [
        Options::new().memory_budget((1 << 20) - 1),
        Options::new().open_files_max(7),
        Options::new().background_threads(257),
    ] {
        invalid(options.fs(Arc::new(fs.clone())).open(DIR));
    }
    assert!(store::files(&fs).is_empty(), "nothing was made");
    let db = store::open(&fs).unwrap();
    for options in wrong {
        invalid(db.keyspace("odd", options.clone()));
        invalid(db.default_keyspace().set_options(options));
    }
    assert_eq!(db.keyspaces(), ["default"]);
    assert_eq!(db.default_keyspace().options(), store::small());
}

#[test]
fn options_stay_with_their_keyspace_until_they_are_changed() {
    let fs = MemFs::new();
    let open = |options: Option<&KeyspaceOptions>| {
        let store = Options::new().fs(Arc::new(fs.clone())).background_threads(0);
        match options {
            Some(options) => store.default_keyspace(options.clone()).open(DIR).unwrap(),
            None => store.open(DIR).unwrap(),
        }
    };
    let own = KeyspaceOptions::new()
        .filter(
            FilterPolicy::new(FilterKind::BlockedBloom)
                .false_positive_rate(0.0123)
                .allocation(FilterAllocation::Optimal),
        )
        .block_bytes(700)
        .compression(Compression::Lz4)
        .compression_at(3, Compression::None)
        .table_bytes(5000)
        .memtable_bytes(6000)
        .l0_runs(7)
        .level_base_bytes(80_000)
        .level_ratio(9);
    let other = KeyspaceOptions::new().block_bytes(900);
    let db = open(Some(&own));
    assert_eq!(db.keyspace("other", other.clone()).unwrap().options(), other);
    assert_eq!(db.keyspace("other", own.clone()).unwrap().options(), other);
    drop(db);
    let db = open(None);
    assert_eq!(db.default_keyspace().options(), own);
    assert_eq!(db.existing_keyspace("other").unwrap().options(), other);
    db.existing_keyspace("other").unwrap().set_options(own.clone()).unwrap();
    assert_eq!(db.existing_keyspace("other").unwrap().options(), own);
    drop(db);
    let db = open(Some(&other));
    assert_eq!(db.default_keyspace().options(), other);
    assert_eq!(db.existing_keyspace("other").unwrap().options(), own);
    drop(db);
    assert_eq!(open(None).default_keyspace().options(), other);
}

#[test]
fn changed_options_shape_the_tables_that_are_written_from_then_on() {
    let db = store::open(&MemFs::new()).unwrap();
    let keyspace =
        db.keyspace("k", KeyspaceOptions::new().filter(FilterPolicy::new(FilterKind::None))).unwrap();
    let total = |db: &Db| db.stats().keyspace("k").unwrap().total();
    for n in 0..2000u32 {
        keyspace.put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    keyspace.compact().unwrap();
    let before = total(&db);
    assert_eq!((before.tables, before.filter_keys), (1, 0));
    let bloom = FilterPolicy::new(FilterKind::Bloom).bits_per_key(12.0);
    let options = KeyspaceOptions::new().filter(bloom).compression(Compression::Lz4).table_bytes(10_000);
    keyspace.set_options(options).unwrap();
    assert_eq!(total(&db).filter_keys, 0, "what is written stays as it is");
    keyspace.put(0u32.to_be_bytes(), [7; 100]).unwrap();
    keyspace.compact().unwrap();
    let after = total(&db);
    assert!(after.tables > 1 && after.bytes < before.bytes, "{after:?}");
    assert_eq!((after.filter_keys, after.keys), (2000, 2000));
}

#[test]
fn a_dropped_keyspace_counts_for_no_memory_any_more() {
    let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).memory_budget(1 << 20);
    let db = options.open(DIR).unwrap();
    for round in 0..20 {
        let keyspace = db.keyspace("short-lived", KeyspaceOptions::new().memtable_bytes(1 << 20)).unwrap();
        for n in 0..50u8 {
            keyspace.put([round, n], [0; 1000]).unwrap();
        }
        db.drop_keyspace("short-lived").unwrap();
    }
    for n in 0..100u8 {
        db.put([n], "").unwrap();
    }
    let stats = db.stats();
    assert_eq!(
        (stats.flushes, stats.keyspaces[0].immutable_memtables),
        (0, 0),
        "nothing was sealed for want of room"
    );
}
