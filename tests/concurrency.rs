mod interrupt;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sievedb::fs::{MemFs, Op};
use sievedb::{
    Compression, Db, Durability, Error, Iter, Keyspace, KeyspaceOptions, KeyspaceSnapshot, Options, Snapshot,
    Value, WriteBatch,
};

use crate::support::store::{self, DIR};
use interrupt::InterruptFs;

fn is(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn pairs(items: Iter) -> Pairs {
    items.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

#[test]
fn eight_synced_writers_share_their_syncs() {
    let fs = MemFs::new();
    fs.observe(|_, op| {
        if matches!(op, Op::Sync(_)) {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    });
    let db = store::open(&fs).unwrap();
    let before = db.stats();
    let (writers, each) = (8, 50);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let db = &db;
            scope.spawn(move || {
                for n in 0..each {
                    let mut batch = WriteBatch::new();
                    batch.put(format!("{writer}/{n}"), "v");
                    db.write_with(batch, Durability::Synced).unwrap();
                }
            });
        }
    });
    let after = db.stats();
    let writes = after.batches - before.batches;
    let syncs = after.log_syncs - before.log_syncs;
    println!(
        "{writes} synced writes of {writers} threads, {syncs} syncs: {:.1} a sync",
        writes as f64 / syncs as f64
    );
    assert_eq!(writes, writers * each);
    assert!(syncs * 2 <= writes, "{syncs} syncs for {writes} writes");
    let image = fs.crash(sievedb::fs::CrashPolicy::DropUnsynced);
    drop(db);
    assert_eq!(store::open(&image).unwrap().iter().count() as u64, writes);
}

#[test]
fn a_batch_larger_than_the_memtables_is_written_after_a_few_slow_flushes_whatever_others_write() {
    let fs = MemFs::new();
    let options = Options::new().fs(Arc::new(fs.clone())).memory_budget(1 << 20).background_threads(2);
    let db = options.open(DIR).unwrap();
    let flushes = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&flushes);
    fs.observe(move |_, op| {
        if matches!(op, Op::Create(path) if is(path, "sst")) {
            count.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1200));
        }
        Ok(())
    });
    let is_written = AtomicBool::new(false);
    let flushed = std::thread::scope(|scope| {
        for writer in 0..16u32 {
            let (db, is_written, flushes) = (&db, &is_written, &flushes);
            scope.spawn(move || {
                let mut n = 0u32;
                while !is_written.load(Ordering::Relaxed) && flushes.load(Ordering::Relaxed) < 20 {
                    db.put([writer, n].map(u32::to_be_bytes).concat(), [7; 1000]).unwrap();
                    n += 1;
                }
            });
        }
        while flushes.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let mut batch = WriteBatch::new();
        batch.put("large", vec![7; 2 << 20]);
        db.write(batch).unwrap();
        is_written.store(true, Ordering::Relaxed);
        flushes.load(Ordering::Relaxed)
    });
    assert!(flushed <= 8, "after {flushed} flushes");
    assert_eq!(db.get("large").unwrap().unwrap().len(), 2 << 20);
}

#[test]
fn a_snapshot_keeps_its_contents_across_flushes_compactions_and_deletes() {
    let db = store::open(&MemFs::new()).unwrap();
    let mut held: Vec<(Snapshot, Pairs)> = Vec::new();
    for round in 0..6u32 {
        for n in 0..300u32 {
            match (n + round) % 5 {
                0 => db.delete(n.to_be_bytes()).unwrap(),
                _ => db.put(n.to_be_bytes(), [round as u8; 40]).unwrap(),
            }
        }
        held.push((db.snapshot(), pairs(db.iter())));
        match round % 3 {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            _ => db.settle().unwrap(),
        }
    }
    for n in 0..300u32 {
        db.delete(n.to_be_bytes()).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.iter().count(), 0);
    let kept = db.stats().keyspaces[0].total().entries;
    for (snapshot, seen) in &held {
        assert_eq!(&pairs(snapshot.iter()), seen);
        for (key, value) in seen {
            assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        assert_eq!(seen.len(), 240);
    }
    assert!(kept >= 300, "{kept} entries hold what six snapshots see");
    drop(held);
    db.put("one more", "so that there is something to merge").unwrap();
    db.compact().unwrap();
    assert_eq!(db.stats().keyspaces[0].total().entries, 1, "nobody needs what the snapshots saw");
}

#[test]
fn an_iterator_made_before_its_keyspace_was_dropped_goes_on_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().default_keyspace(store::small()).open(dir.path()).unwrap();
    let keyspace = db.keyspace("short-lived", store::small()).unwrap();
    for n in 0..2000u32 {
        keyspace.put(n.to_be_bytes(), [n as u8; 50]).unwrap();
    }
    keyspace.flush().unwrap();
    keyspace.put(u32::MAX.to_be_bytes(), "in the memtable").unwrap();
    let (mut begun, whole) = (keyspace.iter(), keyspace.iter());
    let snapshot = db.snapshot();
    assert!(begun.next().is_some() && begun.next_back().is_some());
    db.drop_keyspace("short-lived").unwrap();
    db.settle().unwrap();
    let seen = snapshot.keyspace(&keyspace);
    assert!(matches!(keyspace.get("k"), Err(Error::KeyspaceDropped { .. })));
    assert!(matches!(seen.get("k"), Err(Error::KeyspaceDropped { .. })));
    assert!(matches!(seen.iter().next(), Some(Err(Error::KeyspaceDropped { .. }))));
    assert!(matches!(keyspace.iter().next_back(), Some(Err(Error::KeyspaceDropped { .. }))));
    let tables = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| is(path, "sst")).count()
    };
    assert!(tables() > 0, "the iterators hold them");
    assert_eq!(begun.count(), 1999);
    let keys: Vec<_> = whole.rev().map(|item| item.unwrap().0.to_vec()).collect();
    assert_eq!(keys.len(), 2001);
    assert!(keys.is_sorted_by(|a, b| a > b));
    db.settle().unwrap();
    assert_eq!(tables(), 0, "nobody holds them");
}

#[test]
fn handles_can_be_sent_and_shared_and_own_their_state() {
    fn owned<T: Send + Sync + 'static>() {}
    owned::<Db>();
    owned::<Keyspace>();
    owned::<Snapshot>();
    owned::<KeyspaceSnapshot>();
    owned::<Iter>();
    owned::<Value>();
    owned::<WriteBatch>();
    owned::<Error>();
    fn cloned<T: Clone>() {}
    cloned::<Db>();
    cloned::<Keyspace>();
    cloned::<Snapshot>();
    cloned::<KeyspaceSnapshot>();
    cloned::<Value>();
}

#[test]
fn the_last_handle_of_any_kind_closes_the_store_and_not_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let locked = || matches!(Db::open(dir.path()), Err(Error::Locked { .. }));
    for kind in 0..5 {
        let db = Db::open(dir.path()).unwrap();
        db.put("k", format!("{kind}")).unwrap();
        let handle: Box<dyn std::any::Any> = match kind {
            0 => Box::new(db.clone()),
            1 => Box::new(db.keyspace("other", KeyspaceOptions::new()).unwrap()),
            2 => Box::new(db.snapshot()),
            3 => Box::new(db.snapshot().keyspace(&db.default_keyspace())),
            _ => Box::new(db.iter()),
        };
        drop(db);
        assert!(locked(), "handle of kind {kind}");
        drop(handle);
        let db = Db::open(dir.path()).unwrap();
        assert!(db.open_report().dropped.is_empty());
        assert_eq!(db.get("k").unwrap().unwrap(), format!("{kind}").as_bytes());
    }
}

#[test]
fn a_value_outlives_the_store_it_is_from() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let long = vec![7; 100_000];
    db.put("table", "in a block").unwrap();
    db.put("long", &long).unwrap();
    db.flush().unwrap();
    db.put("memory", "in the memtable").unwrap();
    let values = ["table", "long", "memory"].map(|key| db.get(key).unwrap().unwrap());
    let entries: Vec<(Value, Value)> = db.iter().map(Result::unwrap).collect();
    db.drop_keyspace("none").unwrap_err();
    db.compact().unwrap();
    db.close().unwrap();
    drop(dir);
    let copies = values.clone();
    drop(values);
    assert_eq!(
        copies.each_ref().map(|value| &value[..]),
        [&b"in a block"[..], &long[..], b"in the memtable"]
    );
    let keys: Vec<&[u8]> = entries.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [&b"long"[..], b"memory", b"table"]);
}

#[test]
fn a_long_value_is_read_whole_when_a_compaction_removes_its_table_between_two_reads() {
    let long: Vec<u8> = (0..2_500_000u32).map(|n| (n / 1000) as u8).collect();
    type Lookup = fn(&Db) -> sievedb::Result<Vec<u8>>;
    let lookups: [(&str, Lookup); 4] = [
        ("get", |db| db.get("long").map(|value| value.unwrap().to_vec())),
        ("multi_get", |db| db.multi_get(&["a", "long"]).map(|values| values[1].as_ref().unwrap().to_vec())),
        ("get of a snapshot", |db| db.snapshot().get("long").map(|value| value.unwrap().to_vec())),
        ("iterator", |db| db.range("long"..).next().unwrap().map(|(_, value)| value.to_vec())),
    ];
    for (name, lookup) in lookups {
        let mut happened = 0;
        for reads_before in 0.. {
            let fs = InterruptFs::new();
            let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0);
            let db = options.default_keyspace(store::small()).open(DIR).unwrap();
            db.put("long", &long).unwrap();
            db.put("a", "1").unwrap();
            db.flush().unwrap();
            db.put("b", "2").unwrap();
            db.flush().unwrap();
            assert!(lookup(&db).unwrap() == long);
            let other = db.clone();
            fs.arm(reads_before, move || {
                other.compact().unwrap();
                other.settle().unwrap();
            });
            let found =
                lookup(&db).unwrap_or_else(|error| panic!("{name}, after {reads_before} reads: {error}"));
            assert!(found == long, "{name}, after {reads_before} reads");
            if fs.disarm() {
                break;
            }
            happened += 1;
        }
        assert!(happened >= 6, "{name}: three chunks take {happened} reads");
    }
}

#[test]
fn an_iterator_that_failed_at_a_long_value_stays_failed() {
    let fs = MemFs::new();
    let plain = store::small().compression(Compression::None);
    let open = || store::options(&fs).default_keyspace(plain.clone()).open(DIR).unwrap();
    let db = open();
    let value = |n: u8| vec![n; 50_000];
    for n in 1..=5 {
        db.put([n], value(n)).unwrap();
    }
    db.compact().unwrap();
    drop(db);
    let mut damaged = 0;
    for (name, mut bytes) in store::files(&fs).into_iter().filter(|(name, _)| name.ends_with(".sst")) {
        if let Some(at) = bytes.windows(1000).position(|part| part == vec![3; 1000]) {
            bytes[at + 500] ^= 1;
            fs.overwrite(&Path::new(DIR).join(name), bytes);
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    let db = open();
    assert!(db.get([3]).unwrap_err().is_corruption());
    assert_eq!(db.get([4]).unwrap().unwrap(), value(4));
    let mut forward = db.iter();
    let mut backward = db.iter().rev();
    let mut both = db.iter();
    assert_eq!(both.next_back().unwrap().unwrap().1, value(5));
    for n in [1, 2] {
        assert_eq!(forward.next().unwrap().unwrap().1, value(n));
        assert_eq!(backward.next().unwrap().unwrap().1, value(6 - n));
        assert_eq!(both.next().unwrap().unwrap().1, value(n));
    }
    assert!(forward.next().unwrap().unwrap_err().is_corruption());
    assert!(backward.next().unwrap().unwrap_err().is_corruption());
    assert!(both.next().unwrap().unwrap_err().is_corruption());
    for _ in 0..3 {
        assert!(forward.next().is_none() && backward.next().is_none());
        assert!(both.next().is_none() && both.next_back().is_none());
    }
}

/// Waiting memtables, the active memtable, and one for the entries of a group.
const MEMTABLES_MAX: u64 = 3 + 1 + 1;

#[test]
fn writers_are_slowed_by_degrees_while_flushes_are_slow_and_memory_stays_bounded() {
    let memtable_bytes = 64 << 10;
    let fs = MemFs::new();
    fs.observe(|_, op| {
        if matches!(op, Op::Append(path, _) | Op::Sync(path) if is(path, "sst")) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    let options = store::small().memtable_bytes(memtable_bytes).table_bytes(1 << 20).block_bytes(4096);
    let options = Options::new().fs(Arc::new(fs)).background_threads(2).default_keyspace(options);
    let db = options.open(DIR).unwrap();
    let (most, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let writers = 3;
    std::thread::scope(|scope| {
        let (db, most, done) = (&db, &most, &done);
        let sampler = scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                most.fetch_max(db.stats().keyspaces[0].memtable_bytes, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        let handles: Vec<_> = (0..writers)
            .map(|writer: u32| {
                scope.spawn(move || {
                    for n in 0..1500u32 {
                        db.put([writer.to_be_bytes(), n.to_be_bytes()].concat(), [n as u8; 1000]).unwrap();
                    }
                })
            })
            .collect();
        let ended: Vec<_> = handles.into_iter().map(|handle| handle.join()).collect();
        done.store(true, Ordering::Release);
        sampler.join().unwrap();
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    let stats = db.stats();
    let (delays, longest, all) = (stats.write_delays, stats.longest_write_delay, stats.write_delay);
    let most = most.load(Ordering::Relaxed);
    println!(
        "{delays} delays, {all:?} altogether, the longest {longest:?}; at most {most} bytes in memtables"
    );
    assert!(most <= MEMTABLES_MAX * memtable_bytes as u64, "{most}");
    assert!(delays > 2 * stats.flushes, "{delays} delays, {} flushes", stats.flushes);
    assert!(!longest.is_zero() && longest <= all, "{longest:?} of {all:?}");
    assert_eq!(db.iter().count(), writers as usize * 1500);
}

#[test]
fn without_threads_a_writer_that_would_have_to_wait_does_the_work_itself() {
    let db = store::open(&MemFs::new()).unwrap();
    for n in 0..5000u32 {
        db.put(n.wrapping_mul(0x9e37_79b9).to_be_bytes(), [n as u8; 100]).unwrap();
        if n % 100 == 0 {
            let stats = &db.stats().keyspaces[0];
            assert!(stats.immutable_memtables <= 3, "{stats:?}");
            assert!(stats.levels[0].runs <= 3 * 9, "{stats:?}");
            assert!(stats.memtable_bytes <= MEMTABLES_MAX * (4 << 10), "{stats:?}");
        }
    }
    let stats = db.stats();
    assert!(stats.flushes > 50 && stats.compactions > 0, "{stats:?}");
    assert_eq!(db.iter().count(), 5000);
}
