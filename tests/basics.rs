use sievedb::fs::Fs;
use sievedb::{Db, Durability, Error, KeyspaceOptions, Options, WriteBatch};

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_put_key_is_present_until_it_is_deleted_also_after_reopening() {
    let dir = dir();
    let db = Db::open(dir.path()).unwrap();
    assert!(db.open_report().created);
    db.put("a", "1").unwrap();
    db.put("", "empty key").unwrap();
    db.put("b", "").unwrap();
    db.put("a", "2").unwrap();
    db.delete("never there").unwrap();
    for _ in 0..3 {
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(db.get("").unwrap().as_deref(), Some(&b"empty key"[..]));
        assert_eq!(db.get("b").unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(db.get("c").unwrap(), None);
        db.flush().unwrap();
        db.compact().unwrap();
    }
    db.close().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert!(!db.open_report().created);
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"2"[..]));
    db.delete("a").unwrap();
    assert!(!db.contains("a").unwrap());
    drop(db);
    let db = Db::open(dir.path()).unwrap();
    assert!(!db.contains("a").unwrap());
    assert_eq!(
        db.iter().map(|item| item.unwrap().0.to_vec()).collect::<Vec<_>>(),
        [b"".to_vec(), b"b".to_vec()]
    );
}

#[test]
fn a_second_writer_is_refused_with_locked_and_readers_exclude_no_one() {
    let dir = dir();
    let db = Db::open(dir.path()).unwrap();
    assert!(matches!(Db::open(dir.path()), Err(Error::Locked { .. })));
    let one = Options::new().read_only().open(dir.path()).unwrap();
    assert!(one.open_report().as_of.unwrap().in_use);
    drop(db);
    let two = Options::new().read_only().open(dir.path()).unwrap();
    assert!(!two.open_report().as_of.unwrap().in_use);
    assert!(matches!(one.put("k", "v"), Err(Error::ReadOnly)));
    let db = Db::open(dir.path()).unwrap();
    assert!(matches!(Db::open(dir.path()), Err(Error::Locked { .. })), "two writers stay excluded");
    db.put("k", "v").unwrap();
    assert!(!one.contains("k").unwrap() && !two.contains("k").unwrap());
}

#[test]
fn a_batch_over_several_keyspaces_is_one_write() {
    let dir = dir();
    let db = Db::open(dir.path()).unwrap();
    let users = db.keyspace("users", KeyspaceOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("count", "1").put_in(&users, "1", "Ada").delete_in(&users, "0");
    db.write_with(batch, Durability::Synced).unwrap();
    assert_eq!(users.get("1").unwrap().as_deref(), Some(&b"Ada"[..]));
    assert_eq!(db.get("1").unwrap(), None);
    drop((db, users));
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.keyspaces(), ["default", "users"]);
    let users = db.existing_keyspace("users").unwrap();
    assert_eq!(users.get("1").unwrap().as_deref(), Some(&b"Ada"[..]));
    db.drop_keyspace("users").unwrap();
    assert!(matches!(users.get("1"), Err(Error::KeyspaceDropped { .. })));
    assert!(matches!(users.put("1", ""), Err(Error::KeyspaceDropped { .. })));
    let again = db.keyspace("users", KeyspaceOptions::default()).unwrap();
    assert_eq!(again.get("1").unwrap(), None);
    drop((again, users));
    db.close().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.existing_keyspace("users").unwrap().iter().count(), 0);
}

#[test]
fn a_hundred_thousand_keys_are_found_and_as_many_absent_ones_are_not() {
    let dir = dir();
    let options =
        KeyspaceOptions::new().memtable_bytes(1 << 20).table_bytes(1 << 20).level_base_bytes(4 << 20);
    let db = Options::new().default_keyspace(options).open(dir.path()).unwrap();
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    for n in 0..100_000 {
        db.put(key(n), [7; 100]).unwrap();
    }
    let check = |db: &Db| {
        for n in 0..100_000 {
            assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&[7; 100][..]), "{n}");
        }
        for n in 100_000..200_000 {
            assert_eq!(db.get(key(n)).unwrap(), None);
        }
    };
    check(&db);
    db.settle().unwrap();
    check(&db);
    println!("{:#?}", db.stats());
    db.compact().unwrap();
    check(&db);
    assert!(db.verify().unwrap().damage.is_empty(), "{:?}", db.verify().unwrap().damage);
    drop(db);
    let db = Db::open(dir.path()).unwrap();
    check(&db);
    assert_eq!(db.iter().count(), 100_000);
    assert_eq!(db.iter().rev().count(), 100_000);
}

#[test]
fn a_keyspace_that_is_hardly_written_does_not_keep_old_logs_alive() {
    let dir = dir();
    let small = KeyspaceOptions::new().memtable_bytes(256 << 10).table_bytes(1 << 20);
    let options = Options::new().log_bytes_max(2 << 20).default_keyspace(small.clone());
    let db = options.open(dir.path()).unwrap();
    let cold = db.keyspace("cold", small).unwrap();
    cold.put("once", "upon a time").unwrap();
    for n in 0..100_000_u32 {
        db.put(n.to_be_bytes(), [1; 100]).unwrap();
    }
    db.settle().unwrap();
    let stats = db.stats();
    assert!(stats.log_bytes < 4 << 20, "{} bytes of logs", stats.log_bytes);
    assert_eq!(stats.keyspace("cold").unwrap().memtable_entries, 0, "it was flushed");
    assert_eq!(cold.get("once").unwrap().unwrap(), b"upon a time");
}

#[test]
fn a_manifest_that_has_grown_long_is_replaced() {
    let dir = dir();
    let fs = std::sync::Arc::new(sievedb::fs::MemFs::new());
    let db = Options::new().fs(fs.clone()).background_threads(0).open(dir.path()).unwrap();
    db.put("k", "v").unwrap();
    let keyspace = db.default_keyspace();
    let manifests = || {
        let names = fs.list(dir.path()).unwrap().into_iter();
        names.filter(|name| name.to_string_lossy().contains("MANIFEST")).collect::<Vec<_>>()
    };
    let first = manifests();
    let mut edits = 0;
    while manifests() == first {
        keyspace.set_options(KeyspaceOptions::new().l0_runs(1 + edits % 9)).unwrap();
        edits += 1;
        assert!(edits < 200_000, "it is never replaced");
    }
    assert_eq!(manifests().len(), 1);
    keyspace.set_options(KeyspaceOptions::new().l0_runs(7)).unwrap();
    db.close().unwrap();
    let db = Options::new().fs(fs.clone()).open(dir.path()).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), b"v");
    assert_eq!(db.default_keyspace().options(), KeyspaceOptions::new().l0_runs(7));
}

#[test]
fn nothing_is_left_of_keys_that_were_all_deleted() {
    let dir = dir();
    let small = KeyspaceOptions::new().memtable_bytes(64 << 10).table_bytes(32 << 10);
    let db = Options::new().default_keyspace(small).open(dir.path()).unwrap();
    for n in 0..5_000_u32 {
        db.put(n.to_be_bytes(), [1; 100]).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.stats().keyspaces[0].total().entries, 5_000);
    let snapshot = db.snapshot();
    for n in 0..5_000_u32 {
        db.delete(n.to_be_bytes()).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(snapshot.iter().count(), 5_000, "a snapshot keeps what it sees");
    assert_eq!(db.iter().count(), 0);
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!(db.stats().keyspaces[0].total().tables, 0);
    let left = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
    let is_counted = |name: &str| !name.starts_with("MANIFEST") && name != "RESERVE";
    let left = left.filter(|entry| is_counted(&entry.file_name().to_string_lossy()));
    assert!(left.map(|entry| entry.metadata().unwrap().len()).sum::<u64>() < 1000);
}

#[test]
fn compacting_replaces_a_damaged_filter() {
    let dir = dir();
    let db = Db::open(dir.path()).unwrap();
    for n in 0..5_000_u32 {
        db.put(n.to_be_bytes(), "").unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    let mut table = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let table = table.find(|path| path.extension().is_some_and(|extension| extension == "sst")).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    let filter = bytes.len() / 4096 * 4096;
    let magic = (0..filter).step_by(4096).rev().find(|&at| bytes[at..].starts_with(b"\x89SVFLT")).unwrap();
    bytes[magic + 300] ^= 1;
    std::fs::write(&table, bytes).unwrap();

    // Background threads would rebuild the filter.
    let db = Options::new().background_threads(0).open(dir.path()).unwrap();
    assert!((0..5_000_u32).all(|n| db.contains(n.to_be_bytes()).unwrap()));
    assert!(!db.contains("absent").unwrap());
    assert_eq!(db.stats().unusable_filters, 1);
    assert_eq!(db.verify().unwrap().damage.len(), 1);
    db.compact().unwrap();
    assert!(db.verify().unwrap().damage.is_empty());
    db.open_tables().unwrap();
    assert!(!db.may_contain(vec![9; 9]));
}
