//! Typical first calls of users of sled, fjall, RocksDB, redb or `BTreeMap`, without type annotations.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::ops::Bound;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use sievedb::fs::MemFs;
use sievedb::{
    Db, Durability, Error, IndexedBatch, KeyspaceOptions, Options, Snapshot, Stats, Value, WriteBatch,
};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

type Try = (&'static str, fn(Db) -> Outcome);

const TRIES: [Try; 72] = [
    ("1. text for keys and values", |db| {
        db.put("planet", "Saturn")?;
        assert_eq!(db.get("planet")?, Some("Saturn".into()));
        Ok(())
    }),
    ("2. byte strings and slices", |db| {
        db.put(b"planet", b"Saturn")?;
        assert_eq!(db.get(b"planet")?.unwrap(), b"Saturn");
        let (key, value): (&[u8], &[u8]) = (b"k", b"v");
        db.put(key, value)?;
        assert_eq!(db.get(key)?.as_deref(), Some(value));
        Ok(())
    }),
    ("3. vectors, owned and borrowed", |db| {
        let (key, value) = (vec![1, 2], vec![3, 4]);
        db.put(&key, &value)?;
        assert_eq!(db.get(&key)?.unwrap(), value);
        db.put(key, value)?;
        Ok(())
    }),
    ("4. strings made by format!", |db| {
        for n in 0..3 {
            db.put(format!("user:{n}"), format!("name {n}"))?;
        }
        assert_eq!(db.get(format!("user:{}", 2))?.unwrap(), "name 2");
        Ok(())
    }),
    ("5. numbers as keys", |db| {
        (0..300u64).try_for_each(|n| db.put(n.to_be_bytes(), n.to_string()))?;
        let (key, value) = db.last()?.unwrap();
        assert_eq!((u64::from_be_bytes(key[..].try_into()?), value), (299, "299".into()));
        Ok(())
    }),
    ("6. Bytes for keys and values, and out again", |db| {
        db.put(Bytes::from_static(b"k"), Bytes::from("v"))?;
        let value: Bytes = db.get("k")?.unwrap().into();
        assert_eq!(value, "v");
        Ok(())
    }),
    ("7. a value compared with text", |db| {
        db.put("k", "v")?;
        let value = db.get("k")?.unwrap();
        assert_eq!(value, "v");
        assert_eq!("v", value);
        assert_eq!(value, *"v");
        assert_eq!(value, "v".to_string());
        Ok(())
    }),
    ("8. a value into a Vec<u8>", |db| {
        db.put("k", "v")?;
        let value: Vec<u8> = db.get("k")?.unwrap().into();
        assert_eq!(value, b"v");
        Ok(())
    }),
    ("9. a value into a String", |db| {
        db.put("k", "größe")?;
        let text = String::from_utf8(db.get("k")?.unwrap().into())?;
        assert_eq!(text, "größe");
        assert_eq!(std::str::from_utf8(&db.get("k")?.unwrap())?, "größe");
        Ok(())
    }),
    ("10. a value printed", |db| {
        db.put("k", "v")?;
        let value = db.get("k")?.unwrap();
        assert_eq!(format!("{value} {value:?}"), r#"v b"v""#);
        Ok(())
    }),
    ("11. a default for an absent key", |db| {
        let value = db.get("k")?.unwrap_or_else(|| "default".into());
        assert_eq!(value, "default");
        assert!(db.get("k")?.unwrap_or_default().is_empty());
        Ok(())
    }),
    ("12. if let Some", |db| {
        db.put("k", "v")?;
        if let Some(value) = db.get("k")? {
            assert_eq!(value.len(), 1);
        }
        assert!(db.get("absent")?.is_none());
        Ok(())
    }),
    ("13. a counter that is parsed and written back", |db| {
        for _ in 0..3 {
            let count: u32 = match db.get("count")? {
                Some(value) => value.to_string().parse()?,
                None => 0,
            };
            db.put("count", (count + 1).to_string())?;
        }
        assert_eq!(db.get("count")?.unwrap(), "3");
        Ok(())
    }),
    ("14. values as keys of a map", |db| {
        db.put("a", "1")?;
        let map: HashMap<Value, Value> = db.iter().collect::<Result<_, _>>()?;
        assert_eq!(map[&b"a"[..]], "1");
        Ok(())
    }),
    ("15. sled: contains_key is contains", |db| {
        assert!(!db.contains("k")?);
        db.put("k", "")?;
        assert!(db.contains("k")?);
        Ok(())
    }),
    ("16. delete, also what is not there", |db| {
        db.put("k", "v")?;
        db.delete("k")?;
        db.delete("never there")?;
        assert!(db.is_empty()?);
        Ok(())
    }),
    ("17. sled: what insert answers, replace does", |db| {
        assert_eq!(db.replace("k", "old")?, None);
        assert_eq!(db.replace("k", "new")?, Some("old".into()));
        Ok(())
    }),
    ("18. sled: what remove answers", |db| {
        db.put("k", "v")?;
        assert_eq!(db.remove("k")?.unwrap(), "v");
        assert_eq!(db.remove("k")?, None);
        Ok(())
    }),
    ("19. sled: compare_and_swap is compare_and_set", |db| {
        assert!(db.compare_and_set("k", None, Some(b"1"))?.is_ok());
        let refused = db.compare_and_set("k", Some(b"7"), Some(b"8"))?.unwrap_err();
        assert_eq!(refused.found.unwrap(), "1");
        Ok(())
    }),
    ("20. sled: fetch_and_update is update; a new key, or not", |db| {
        db.update("k", |value| Some([value.unwrap_or_default(), b"+"].concat()))?;
        assert_eq!(db.get("k")?.unwrap(), "+");
        assert!(!db.insert_if_absent("k", "")? && db.insert_if_absent("other", "")?);
        assert_eq!(db.insert_new_many([("k", ""), ("third", "")])?.iter().collect::<Vec<_>>(), [false, true]);
        Ok(())
    }),
    ("21. a for loop over the store", |db| {
        db.put("a", "1")?;
        let mut seen = Vec::new();
        for item in &db {
            let (key, value) = item?;
            seen.push((key.to_vec(), value.to_vec()));
        }
        assert_eq!(seen, [(b"a".to_vec(), b"1".to_vec())]);
        Ok(())
    }),
    ("22. iter, rev", |db| {
        letters(&db)?;
        let keys: Vec<_> = db.iter().rev().map(|item| item.unwrap().0).collect();
        assert_eq!(keys, ["d", "c", "b", "a"]);
        Ok(())
    }),
    ("23. range(..)", |db| {
        letters(&db)?;
        assert_eq!(db.range(..).count(), 4);
        Ok(())
    }),
    ("24. ranges of text", |db| {
        letters(&db)?;
        let counts = [db.range("a".."c").count(), db.range("b"..).count(), db.range(..="c").count()];
        assert_eq!(counts, [2, 3, 3]);
        Ok(())
    }),
    ("25. a range of byte strings, of vectors and of arrays", |db| {
        letters(&db)?;
        assert_eq!(db.range(b"b"..=b"c").count(), 2);
        assert_eq!(db.range(b"b".as_slice()..b"cc").count(), 2);
        assert_eq!(db.range(vec![b'b']..vec![b'd']).count(), 2);
        assert_eq!(db.range([b'b']..).count(), 3);
        let (from, to) = (String::from("a"), String::from("b"));
        assert_eq!(db.range(&from..&to).count(), 1);
        Ok(())
    }),
    ("26. a pair of bounds", |db| {
        letters(&db)?;
        assert_eq!(db.range((Bound::Excluded("a"), Bound::Unbounded)).count(), 3);
        Ok(())
    }),
    ("27. sled: pop_min and pop_max are pop_first and pop_last", |db| {
        letters(&db)?;
        assert_eq!(db.pop_first()?, Some(("a".into(), "1".into())));
        assert_eq!(db.pop_last()?, Some(("d".into(), "4".into())));
        assert_eq!(db.range("c".."a").count(), 0);
        Ok(())
    }),
    ("28. sled: scan_prefix is prefix", |db| {
        (0..3).try_for_each(|n| db.put(format!("user:{n}"), ""))?;
        db.put("visit:1", "")?;
        assert_eq!(db.prefix("user:").count(), 3);
        Ok(())
    }),
    ("29. the first of a prefix, from the back", |db| {
        (0..3).try_for_each(|n| db.put(format!("user:{n}"), format!("{n}")))?;
        let (_, newest) = db.prefix("user:").next_back().transpose()?.unwrap();
        assert_eq!(newest, "2");
        Ok(())
    }),
    ("30. pages: take, then go on behind the last key", |db| {
        letters(&db)?;
        let page: Vec<_> = db.keys().take(2).collect::<Result<_, _>>()?;
        let next = (Bound::Excluded(page.last().unwrap()), Bound::Unbounded);
        assert_eq!(db.range(next).next().unwrap()?.0, "c");
        Ok(())
    }),
    ("31. fjall: keys and values, also of a prefix", |db| {
        letters(&db)?;
        let keys = db.keys().collect::<Result<Vec<_>, _>>()?;
        let values = db.values().rev().collect::<Result<Vec<_>, _>>()?;
        assert_eq!((keys, values), (vec!["a".into(), "b".into(), "c".into(), "d".into()], reversed()));
        let keys: Vec<String> = db.prefix("b").keys().map(|key| key.unwrap().to_string()).collect();
        assert_eq!(keys, ["b"]);
        Ok(())
    }),
    ("32. collected into a BTreeMap", |db| {
        letters(&db)?;
        let map = db.iter().collect::<Result<BTreeMap<_, _>, _>>()?;
        assert_eq!(map.len(), 4);
        Ok(())
    }),
    ("33. BTreeMap: first_key_value and last_key_value are first and last", |db| {
        assert_eq!((db.first()?, db.last()?), (None, None));
        letters(&db)?;
        assert_eq!(db.first()?, Some(("a".into(), "1".into())));
        assert_eq!(db.last()?, Some(("d".into(), "4".into())));
        Ok(())
    }),
    ("34. len and is_empty", |db| {
        assert!(db.is_empty()? && db.len()? == 0);
        letters(&db)?;
        assert!(!db.is_empty()? && db.len()? == 4);
        Ok(())
    }),
    ("35. RocksDB: estimate-num-keys is approximate_len", |db| {
        letters(&db)?;
        assert_eq!(db.approximate_len(), 4);
        Ok(())
    }),
    ("36. RocksDB: get_approximate_sizes is approximate_size", |db| {
        letters(&db)?;
        db.flush()?;
        assert!(db.approximate_size("a".."z")? > 0 && db.approximate_size(..)? > 0);
        Ok(())
    }),
    ("37. RocksDB: a raw iterator, from the first on", |db| {
        letters(&db)?;
        let mut cursor = db.cursor(..);
        let mut keys = Vec::new();
        cursor.seek_first()?;
        while cursor.is_valid() {
            keys.push(cursor.key().unwrap().to_vec());
            cursor.next()?;
        }
        assert_eq!(keys.concat(), b"abcd");
        Ok(())
    }),
    ("38. RocksDB: seek and seek_for_prev", |db| {
        letters(&db)?;
        let mut cursor = db.cursor(..);
        cursor.seek("bb")?;
        assert_eq!(cursor.key(), Some(&b"c"[..]));
        cursor.seek_for_prev("bb")?;
        assert_eq!(cursor.value()?, Some("2".into()));
        Ok(())
    }),
    ("39. RocksDB: forwards, then backwards", |db| {
        letters(&db)?;
        let mut cursor = db.cursor(..);
        assert!(cursor.seek("c")? && cursor.next()? && cursor.prev()? && cursor.prev()?);
        assert_eq!(cursor.key(), Some(&b"b"[..]));
        Ok(())
    }),
    ("40. RocksDB: bounds of an iterator", |db| {
        letters(&db)?;
        let mut cursor = db.cursor("b".."d");
        assert!(cursor.seek_last()?);
        assert_eq!(cursor.entry()?, Some(("c".into(), "3".into())));
        assert!(!cursor.next()? && !cursor.is_valid());
        Ok(())
    }),
    ("41. long values are not read before they are needed", |db| {
        db.put("photo", vec![7; 1 << 20])?;
        let (_, photo) = db.iter().lazy().next().unwrap()?;
        assert_eq!((photo.len(), photo.read()?.len()), (1 << 20, 1 << 20));
        Ok(())
    }),
    ("42. RocksDB: multi_get", |db| {
        letters(&db)?;
        assert_eq!(db.multi_get(&["a", "z"])?, [Some("1".into()), None]);
        assert_eq!(db.multi_contains(&[b"a", b"z"])?, [true, false]);
        Ok(())
    }),
    ("43. RocksDB: key_may_exist is may_contain", |db| {
        db.put("k", "v")?;
        assert!(db.may_contain("k") && !db.may_contain("other"));
        Ok(())
    }),
    ("44. a batch", |db| {
        let mut batch = WriteBatch::new();
        batch.put("from", "90");
        batch.put("to", "110");
        batch.delete("pending");
        db.write(batch)?;
        assert_eq!(db.len()?, 2);
        Ok(())
    }),
    ("45. a batch in one expression", |db| {
        db.write(WriteBatch::new().put("a", "1").put("b", "2").delete("c"))?;
        assert_eq!(db.len()?, 2);
        Ok(())
    }),
    ("46. a batch that is used again", |db| {
        let mut batch = WriteBatch::new();
        for round in 0..3 {
            batch.clear();
            batch.put("round", round.to_string());
            db.write(&batch)?;
        }
        assert_eq!(db.get("round")?.unwrap(), "2");
        Ok(())
    }),
    ("47. a batch collected from pairs, and extended", |db| {
        let map = BTreeMap::from([("a", "1"), ("b", "2")]);
        let mut batch: WriteBatch = map.into_iter().collect();
        batch.extend((0..10u32).map(|n| (n.to_be_bytes(), n.to_string())));
        db.write(batch)?;
        assert_eq!(db.len()?, 12);
        Ok(())
    }),
    ("48. sled: apply_batch; RocksDB: write_opt with sync", |db| {
        let batch: WriteBatch = [("a", "1")].into_iter().collect();
        db.write_with(batch, Durability::Synced)?;
        Ok(())
    }),
    ("49. a synced put, and a synced delete", |db| {
        db.put_with("k", "v", Durability::Synced)?;
        db.delete_with("k", Durability::Synced)?;
        assert!(!db.contains("k")?);
        Ok(())
    }),
    ("50. sled: flush, fjall: persist are sync", |db| {
        db.put("k", "v")?;
        db.sync()?;
        Ok(())
    }),
    ("51. sled: open_tree is open_keyspace", |db| {
        let users = db.open_keyspace("users")?;
        users.put("ada", "1815")?;
        assert!(!db.contains("ada")?);
        assert_eq!(db.open_keyspace("users")?.get("ada")?.unwrap(), "1815");
        Ok(())
    }),
    ("52. fjall: a keyspace with options", |db| {
        let users = db.keyspace("users", KeyspaceOptions::default())?;
        assert_eq!((users.name(), users.len()?), ("users", 0));
        Ok(())
    }),
    ("53. sled: tree_names, RocksDB: list_cf are keyspaces", |db| {
        db.open_keyspace("users")?;
        assert_eq!(db.keyspaces(), ["default", "users"]);
        db.drop_keyspace("users")?;
        assert_eq!(db.keyspaces(), ["default"]);
        Ok(())
    }),
    ("54. everything of a store works on a keyspace", |db| {
        let users = db.open_keyspace("users")?;
        letters_of(&users)?;
        for item in &users {
            item?;
        }
        assert_eq!((users.first()?.unwrap().0, users.range("b"..).count()), ("a".into(), 3));
        assert!(users.cursor(..).seek("c")?);
        users.put_with("z", "26", Durability::Synced)?;
        assert_eq!(users.approximate_len(), 5);
        Ok(())
    }),
    ("55. a batch over two keyspaces", |db| {
        let (names, ids) = (db.open_keyspace("names")?, db.open_keyspace("ids")?);
        let mut batch = WriteBatch::new();
        batch.put_in(&names, "ada", "1").put_in(&ids, "1", "ada");
        db.write(batch)?;
        assert_eq!((names.len()?, ids.len()?), (1, 1));
        Ok(())
    }),
    ("56. redb: a read transaction is a snapshot", |db| {
        db.put("k", "old")?;
        let snapshot = db.snapshot();
        db.put("k", "new")?;
        assert_eq!(snapshot.get("k")?.unwrap(), "old");
        assert_eq!((&snapshot).into_iter().count(), 1);
        Ok(())
    }),
    ("57. everything that reads works on a snapshot", |db| {
        letters(&db)?;
        let users = db.open_keyspace("users")?;
        letters_of(&users)?;
        let snapshot: Snapshot = db.snapshot();
        db.delete("a")?;
        users.delete("a")?;
        let of_users = snapshot.keyspace(&users);
        assert_eq!((snapshot.len()?, of_users.len()?), (4, 4));
        assert_eq!(
            (snapshot.first()?, of_users.first()?),
            (Some(("a".into(), "1".into())), of_users.first()?)
        );
        assert!(snapshot.cursor(..).seek("a")? && of_users.keys().next().is_some());
        Ok(())
    }),
    ("58. a store shared by threads, by clones or in an Arc", |db| {
        let shared = Arc::new(db.clone());
        let writers = (0..4u32).map(|n| {
            let (db, shared) = (db.clone(), Arc::clone(&shared));
            thread::spawn(move || db.put(n.to_be_bytes(), "").and_then(|()| shared.contains("k")))
        });
        for writer in writers.collect::<Vec<_>>() {
            assert!(!writer.join().unwrap()?);
        }
        assert_eq!(db.len()?, 4);
        Ok(())
    }),
    ("59. a struct that holds an iterator", |db| {
        struct Pages {
            entries: sievedb::Iter<'static>,
        }
        letters(&db)?;
        let mut pages = Pages { entries: db.iter() };
        drop(db);
        assert_eq!(pages.entries.next().unwrap()?.0, "a");
        Ok(())
    }),
    ("60. statistics, printed", |db| {
        letters(&db)?;
        let stats: Stats = db.stats();
        assert!(stats.to_string().contains("batches 4, entries 4"), "{stats}");
        Ok(())
    }),
    ("61. within a function that returns io::Result", |db| {
        fn copy(db: &Db, mut to: impl Write) -> std::io::Result<()> {
            for item in db {
                let (key, value) = item?;
                writeln!(to, "{key}\t{value}")?;
            }
            Ok(())
        }
        let mut out = Vec::new();
        letters(&db)?;
        copy(&db, &mut out)?;
        assert_eq!(out, b"a\t1\nb\t2\nc\t3\nd\t4\n");
        Ok(())
    }),
    ("62. an error that is looked at", |db| {
        db.drop_keyspace("never there").expect_err("there is no such keyspace");
        match db.put(vec![0; 1 << 20], "") {
            Err(Error::LimitExceeded { what, limit, .. }) => {
                assert_eq!((what, limit), ("key length", 65_536))
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }),
    ("63. options, and opening twice", |_| {
        let dir = tempfile::tempdir()?;
        let db = Options::new().memory_budget(64 << 20).open(dir.path())?;
        db.put("k", "v")?;
        assert!(matches!(Db::open(dir.path()), Err(Error::Locked { .. })));
        drop(db);
        assert_eq!(Db::open(dir.path())?.get("k")?.unwrap(), "v");
        Ok(())
    }),
    ("64. flush, compact, close", |db| {
        letters(&db)?;
        db.flush()?;
        db.compact()?;
        db.compact_range("a".."c")?;
        assert!(db.verify()?.damage.is_empty());
        db.close()?;
        Ok(())
    }),
    ("65. a transaction, as in fjall and RocksDB", |db| {
        let tx = db.transaction();
        tx.put("a", "1");
        tx.delete("b");
        assert_eq!(tx.get("a")?.unwrap(), "1");
        assert!(tx.contains("a")? && !db.contains("a")?);
        tx.commit()?;
        assert!(db.contains("a")?);
        Ok(())
    }),
    ("66. a transaction over tables, as in redb", |db| {
        let users = db.open_keyspace("users")?;
        let tx = db.transaction();
        {
            let table = tx.keyspace(&users);
            table.put("ada", "1815");
            table.put("grace", "1906");
            assert_eq!(table.range("a"..="b").count(), 1);
        }
        tx.commit_with(Durability::Synced)?;
        assert_eq!(users.len()?, 2);
        Ok(())
    }),
    ("67. a closure that is run again, as in sled", |db| {
        db.put("from", "90")?;
        let left = db.transact(|tx| {
            let from: i64 = tx.get("from")?.map_or(0, |from| from.to_string().parse().unwrap());
            tx.put("from", (from - 10).to_string());
            tx.put("to", "10");
            Ok(from - 10)
        })?;
        assert_eq!((left, db.get("to")?.unwrap()), (80, "10".into()));
        Ok(())
    }),
    ("68. a conflict is an error to match", |db| {
        let (one, other) = (db.transaction(), db.transaction());
        for tx in [&one, &other] {
            if tx.get("seat")?.is_none() {
                tx.put("seat", "taken");
            }
        }
        one.commit()?;
        assert!(matches!(other.commit(), Err(Error::Conflict { .. })));
        Ok(())
    }),
    ("69. iterate and write in one transaction", |db| {
        letters(&db)?;
        let tx = db.transaction();
        for item in &tx {
            let (key, value) = item?;
            tx.put(key, format!("{value}{value}"));
        }
        for item in tx.prefix("a") {
            tx.delete(item?.0);
        }
        let last = tx.range(..).next_back().transpose()?;
        assert_eq!(last, Some(("d".into(), "44".into())));
        tx.commit()?;
        assert_eq!(db.first()?.unwrap().1, "22");
        Ok(())
    }),
    ("70. roll back, and drop", |db| {
        let tx = db.transaction();
        tx.put("k", "v");
        drop(tx);
        let tx = db.transaction();
        tx.put("k", "v").delete("l");
        tx.rollback();
        tx.commit()?;
        assert!(db.is_empty()?);
        Ok(())
    }),
    ("71. a transaction in another thread, and many keys", |db| {
        letters(&db)?;
        let tx = db.transaction();
        let tx = thread::spawn(move || {
            let values = tx.multi_get(&["a", "x"])?;
            assert_eq!(values, [Some("1".into()), None]);
            Ok::<_, Error>(tx)
        });
        let tx = tx.join().unwrap()?;
        assert!(tx.get_untracked("a")?.is_some() && tx.snapshot().contains("a")?);
        tx.commit()?;
        Ok(())
    }),
    ("72. a batch with an index, as in RocksDB", |db| {
        letters(&db)?;
        let mut batch = IndexedBatch::new();
        batch.put("e", "5").delete("a");
        assert_eq!(batch.over(&db).get("e")?.unwrap(), "5");
        let keys = batch.over(&db).keys().rev().collect::<Result<Vec<_>, _>>()?;
        assert_eq!(keys, ["e", "d", "c", "b"]);
        assert!(batch.over(&db.snapshot()).get("a")?.is_none());
        db.write(batch)?;
        assert_eq!(db.len()?, 4);
        Ok(())
    }),
];

fn letters(db: &Db) -> Outcome {
    letters_of(&db.default_keyspace())
}

fn letters_of(keyspace: &sievedb::Keyspace) -> Outcome {
    for (key, value) in [("c", "3"), ("a", "1"), ("d", "4"), ("b", "2")] {
        keyspace.put(key, value)?;
    }
    Ok(())
}

fn reversed() -> Vec<Value> {
    ["4", "3", "2", "1"].map(Value::from).into()
}

#[test]
fn the_first_calls_of_users_of_other_stores_compile_and_work_as_expected() {
    for (at, (name, attempt)) in TRIES.into_iter().enumerate() {
        assert!(name.starts_with(&format!("{}. ", at + 1)), "{name}");
        let db = Options::new().fs(Arc::new(MemFs::new())).open("/db").unwrap();
        attempt(db).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
