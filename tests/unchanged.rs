//! Opening a closed store does not change it; new files are created at its first change. Some stores were closed
//! incompletely, by a kill or power loss during the close. Their data and the synced writes of the first change must
//! survive a power loss before every operation of that change.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::fs::{CrashPolicy, MemFs, Op};
use sievedb::{Db, Durability, Error, KeyspaceOptions, Options, Result, WriteBatch};

use crate::support::parallel::{cases, caught};
use crate::support::sample::thorough;
use crate::support::store::{self, Contents, DIR, contents, examine};
use crate::support::workload::{Workload, universe};

const KEY: &str = "key 05";

fn open(fs: &MemFs) -> Result<Db> {
    Options::new().fs(Arc::new(fs.clone())).background_threads(0).memory_budget(1 << 20).open(DIR)
}

fn operations(fs: &MemFs) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    fs.observe(move |_, op| {
        counted.fetch_add((!matches!(op, Op::CreateDir(_))).into(), Ordering::Relaxed);
        Ok(())
    });
    count
}

fn closed(seed: u64, operations: u64) -> MemFs {
    let fs = MemFs::new();
    let mut workload = Workload::new(&fs, seed);
    workload.run(operations).unwrap();
    workload.close().unwrap();
    fs
}

/// Returns the files after the process or the machine died before an operation of the close.
fn all_closed(seed: u64, operations: u64) -> Vec<MemFs> {
    let fs = MemFs::new();
    let mut workload = Workload::new(&fs, seed);
    workload.run(operations).unwrap();
    let images = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    fs.observe(move |fs, _| {
        let policies = [CrashPolicy::KeepAll, CrashPolicy::DropUnsynced];
        taken.lock().unwrap().extend(policies.map(|policy| fs.crash(policy)));
        Ok(())
    });
    workload.close().unwrap();
    fs.stop_observing();
    let mut images = std::mem::take(&mut *images.lock().unwrap());
    images.push(fs);
    images
}

fn found(fs: &MemFs) -> Result<Contents, String> {
    let db = open(fs).map_err(|error| format!("does not open: {error}"))?;
    contents(&db)
}

fn with_key(contents: &Contents) -> Contents {
    let mut changed = contents.clone();
    changed.get_mut("default").unwrap().insert(Arc::from(KEY.as_bytes()), Arc::from(&b"new"[..]));
    changed
}

#[test]
fn opening_reading_verifying_and_closing_a_closed_store_changes_and_syncs_nothing() {
    let (mut with_tables, mut with_entries_in_logs) = (0, 0);
    for seed in 1..9 {
        let fs = closed(seed, 20 * seed);
        let before = store::files(&fs);
        let count = operations(&fs);
        for _ in 0..2 {
            let db = open(&fs).unwrap();
            let contents = contents(&db).unwrap();
            let findings = examine(&db, &contents, &universe()).unwrap();
            assert!(findings.is_sound(), "{findings:?}");
            drop(db.snapshot());
            with_tables += u64::from(before.keys().any(|name| name.ends_with(".sst")));
            with_entries_in_logs += u64::from(db.open_report().entries > 0);
            db.write_with(WriteBatch::new(), Durability::Buffered).unwrap();
            db.close().unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 0, "seed {seed}");
        assert!(store::files(&fs) == before, "seed {seed}");
        fs.stop_observing();
    }
    assert!(with_tables > 4 && with_entries_in_logs > 4, "{with_tables}, {with_entries_in_logs}");
}

type Change = (&'static str, fn(&Db) -> Result<()>);

const CHANGES: [Change; 7] = [
    ("put", |db| db.put(KEY, "new")),
    ("synced put", |db| {
        let mut batch = WriteBatch::new();
        batch.put(KEY, "new");
        db.write_with(batch, Durability::Synced)
    }),
    ("sync", |db| db.sync()),
    ("flush", |db| db.flush()),
    ("compact", |db| db.compact()),
    ("create", |db| db.keyspace("created", KeyspaceOptions::new()).map(drop)),
    ("step", |db| {
        while db.step()? {}
        Ok(())
    }),
];

fn without_created(mut contents: Contents) -> Contents {
    contents.remove("created");
    contents
}

fn lose_power(image: &MemFs, (name, change): Change, counts: &[AtomicU64; 3]) -> Result<(), String> {
    let count = operations(image);
    let db = open(image).map_err(|error| format!("does not open: {error}"))?;
    image.stop_observing();
    counts[0].fetch_add((count.load(Ordering::Relaxed) == 0).into(), Ordering::Relaxed);
    let before = contents(&db)?;
    let after = if name.ends_with("put") { with_key(&before) } else { before.clone() };
    let is_one_of = |fs: &MemFs, allowed: &[&Contents]| match without_created(found(fs)?) {
        found if allowed.contains(&&found) => Ok(()),
        found => {
            let count = |contents: &Contents| contents.values().map(|entries| entries.len()).sum::<usize>();
            let allowed: Vec<_> = allowed.iter().map(|contents| count(contents)).collect();
            Err(format!("other contents, {} entries instead of {allowed:?}", count(&found)))
        }
    };
    for policy in [CrashPolicy::DropUnsynced, CrashPolicy::Random(1), CrashPolicy::Random(2)] {
        is_one_of(&image.crash(policy), &[&before]).map_err(|what| format!("at once, {policy:?}: {what}"))?;
    }
    let images = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    image.observe(move |fs, op| {
        let mut taken = taken.lock().unwrap();
        let number = taken.len() as u64;
        let op: String = format!("{op:?}").chars().take(60).collect();
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, CrashPolicy::Random(number)] {
            taken.push((fs.crash(policy), format!("{op}, {policy:?}")));
        }
        Ok(())
    });
    change(&db).map_err(|error| error.to_string())?;
    image.stop_observing();
    let taken = std::mem::take(&mut *images.lock().unwrap());
    counts[1].fetch_add(taken.len() as u64, Ordering::Relaxed);
    for (crashed, when) in taken {
        is_one_of(&crashed, &[&before, &after]).map_err(|what| format!("{name}, before {when}: {what}"))?;
    }
    let is_synced = !matches!(name, "put");
    counts[2].fetch_add(is_synced.into(), Ordering::Relaxed);
    let left = image.crash(CrashPolicy::DropUnsynced);
    let allowed = if is_synced { vec![&after] } else { vec![&before, &after] };
    is_one_of(&left, &allowed).map_err(|what| format!("{name}, when it has returned: {what}"))?;
    if contents(&db).map(without_created)? != after {
        return Err(format!("{name}: the store does not show what it did"));
    }
    db.close().map_err(|error| error.to_string())?;
    is_one_of(&image.crash(CrashPolicy::DropUnsynced), &[&after]).map_err(|what| format!("closed: {what}"))
}

#[test]
fn opened_data_survive_a_power_loss_before_each_operation_of_the_first_change() {
    let seeds = if thorough() { 12 } else { 3 };
    let counts: [AtomicU64; 3] = Default::default();
    cases(&(1..=seeds).collect::<Vec<u64>>(), |&seed| {
        for (number, image) in all_closed(seed, 30 * seed).iter().enumerate() {
            for change in CHANGES {
                let image = image.crash(CrashPolicy::KeepAll);
                caught(|| lose_power(&image, change, &counts))
                    .map_err(|what| format!("seed {seed}, image {number}: {what}"))?;
            }
        }
        Ok::<_, String>(())
    });
    let [unchanged, images, synced] = counts.map(AtomicU64::into_inner);
    println!("{unchanged} stores opened unchanged, {images} images, {synced} synced changes");
    assert!(unchanged >= 10 * seeds && images > 500 * seeds, "the workload has become too small");
}

#[test]
fn a_store_that_was_opened_twice_and_read_is_the_same_after_a_power_loss() {
    let mut unchanged = 0;
    for seed in 1..4 {
        for image in all_closed(seed, 40) {
            let before = found(&image).unwrap();
            let count = operations(&image);
            let db = open(&image).unwrap();
            assert!(contents(&db).unwrap() == before);
            unchanged += u64::from(count.load(Ordering::Relaxed) == 0);
            image.stop_observing();
            for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, CrashPolicy::Random(seed)] {
                assert!(found(&image.crash(policy)).unwrap() == before, "seed {seed}, {policy:?}");
            }
        }
    }
    assert!(unchanged > 6, "{unchanged}");
}

#[test]
fn a_first_change_that_fails_changes_nothing_and_the_next_one_is_made() {
    let closed = closed(5, 100);
    let fs = closed.crash(CrashPolicy::KeepAll);
    let (db, count) = (open(&fs).unwrap(), operations(&fs));
    db.put(KEY, "new").unwrap();
    let operations = count.load(Ordering::Relaxed);
    assert!(operations > 10, "{operations}");
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        for at in 0..operations {
            let fs = closed.crash(CrashPolicy::KeepAll);
            let db = open(&fs).unwrap();
            let before = contents(&db).unwrap();
            let (count, failed_sync) = (AtomicU64::new(0), Arc::new(Mutex::new(false)));
            let is_sync = Arc::clone(&failed_sync);
            fs.observe(move |_, op| {
                if count.fetch_add(1, Ordering::Relaxed) != at {
                    return Ok(());
                }
                *is_sync.lock().unwrap() = matches!(op, Op::Sync(_) | Op::SyncDir(_));
                Err(kind.into())
            });
            let when = format!("{kind}, operation {at}");
            let is_either = |contents: &Contents| *contents == before || *contents == with_key(&before);
            let first = db.put(KEY, "new");
            assert!(first.is_ok() || contents(&db).unwrap() == before, "{when}");
            assert!(is_either(&found(&fs.crash(CrashPolicy::KeepAll)).unwrap()), "{when}");
            assert!(is_either(&found(&fs.crash(CrashPolicy::DropUnsynced)).unwrap()), "{when}");
            match db.put(KEY, "new") {
                Ok(()) => {
                    db.sync().unwrap();
                    let durable = found(&fs.crash(CrashPolicy::DropUnsynced)).unwrap();
                    assert!(durable == with_key(&before), "{when}");
                }
                Err(Error::Poisoned { .. }) => assert!(*failed_sync.lock().unwrap(), "{when}"),
                Err(error) => panic!("{when}: {first:?}, then {error}"),
            }
            let _ = db.close();
            fs.stop_observing();
            assert!(is_either(&found(&fs).unwrap()), "{when}");
        }
    }
}

#[test]
fn sessions_that_write_little_leave_few_logs_and_lose_nothing() {
    let fs = MemFs::new();
    for n in 0..60u32 {
        let db = open(&fs).unwrap();
        db.put(n.to_be_bytes(), "v").unwrap();
        assert_eq!(db.iter().count(), n as usize + 1);
        db.close().unwrap();
        let logs = fs
            .files(Path::new(DIR))
            .iter()
            .filter(|(path, _)| path.extension() == Some("wal".as_ref()))
            .count();
        assert!(logs <= 10, "{logs} logs after {n} sessions");
    }
}
