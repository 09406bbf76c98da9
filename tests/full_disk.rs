//! On a full disk, the store opens, reads, accepts deletes and frees space. An append beyond the file system's room
//! writes a part, and fails.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sievedb::fs::{CrashPolicy, MemFs, Op};
use sievedb::{Compression, Db, Durability, Error, KeyspaceOptions, Options, Result, WriteBatch};

use crate::support::faulty::{Call, Effect, FaultyFs};
use crate::support::sample::thorough;
use crate::support::store::{self, DIR};

const STEP: u32 = 70;

const RESERVE: u64 = 1 << 20;

fn options(fs: &MemFs) -> Options {
    let keyspace = KeyspaceOptions::new()
        .block_bytes(1024)
        .memtable_bytes(32 << 10)
        .table_bytes(32 << 10)
        .level_base_bytes(64 << 10)
        .level_ratio(4)
        .l0_runs(3)
        .compression(Compression::None);
    let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0).memory_budget(1 << 20);
    options.default_keyspace(keyspace).reserve_bytes(RESERVE)
}

fn open(fs: &MemFs) -> Result<Db> {
    options(fs).open(DIR)
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
}

fn key(n: u32) -> Vec<u8> {
    format!("key {n:06}").into_bytes()
}

fn value(n: u32) -> Vec<u8> {
    vec![n as u8; 500]
}

fn put(db: &Db, n: u32) -> Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(key(n), value(n));
    db.write_with(batch, if n.is_multiple_of(10) { Durability::Synced } else { Durability::Buffered })
}

/// Fills the disk. Returns the number of acknowledged writes. The next write was refused, but may be found later.
fn fill(db: &Db, fs: &MemFs) -> u32 {
    db.put("first", "v").unwrap();
    (0..1500).for_each(|n| put(db, n).unwrap());
    while db.step().unwrap() {}
    let full = 1540;
    (1500..full).for_each(|n| put(db, n).unwrap());
    db.sync().unwrap();
    assert!(has_reserve(fs));
    fs.set_room(Some(fs.used()));
    let error = put(db, full).unwrap_err();
    assert!(is_full(&error), "{error}");
    full
}

fn delete(db: &Db, from: u32) -> Result<()> {
    let mut batch = WriteBatch::new();
    for n in from..from + STEP {
        batch.delete(key(n));
    }
    db.write_with(batch, Durability::Synced)
}

fn contents(db: &Db, full: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let all = db.iter().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap());
    all.filter(|(found, _)| *found != key(full)).collect()
}

fn expected(full: u32, deleted: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let kept = (deleted..full).map(|n| (key(n), value(n)));
    kept.chain([(b"first".to_vec(), b"v".to_vec())]).collect()
}

fn has_reserve(fs: &MemFs) -> bool {
    store::files(fs).contains_key("RESERVE")
}

#[test]
fn a_store_on_a_full_disk_opens_reads_takes_deletes_and_compacts_itself_free() {
    for is_killed in [false, true] {
        let fs = MemFs::new();
        let db = open(&fs).unwrap();
        let full = fill(&db, &fs);
        let room = fs.used();
        assert_eq!(contents(&db, full), expected(full, 0));
        let fs = if is_killed { fs.crash(CrashPolicy::KeepAll) } else { fs };
        drop(db);

        let db = open(&fs).unwrap();
        assert_eq!(db.open_report().full_disk.is_some(), is_killed);
        assert_eq!(contents(&db, full), expected(full, 0));
        let deleted = full - 2 * STEP;
        (0..deleted).step_by(STEP as usize).for_each(|n| delete(&db, n).unwrap());
        assert_eq!(contents(&db, full), expected(full, deleted));
        let attempts: Vec<_> = (0..20).map(|_| (db.compact().err(), fs.used())).collect();
        assert!(attempts.last().unwrap().0.is_none(), "{attempts:?}");
        assert_eq!(contents(&db, full), expected(full, deleted));
        assert!(fs.used() < room / 2, "{} bytes", fs.used());
        put(&db, full).unwrap();
        while db.step().unwrap() {}
        assert!(has_reserve(&fs) && db.background_error().is_none());
        db.close().unwrap();
        let db = open(&fs).unwrap();
        assert_eq!(contents(&db, full), expected(full, deleted));
        assert!(db.get(key(full)).unwrap().is_some_and(|found| found == value(full)));
    }
}

fn check(image: &MemFs, full: u32, deleted: u32) {
    let db = open(image).unwrap();
    let found = contents(&db, full);
    assert!([deleted, deleted + STEP].iter().any(|&n| found == expected(full, n)), "{} keys", found.len());
    assert!(db.verify().unwrap().damage.is_empty());
    db.close().unwrap();
    let db = open(image).unwrap();
    assert!(contents(&db, full) == found, "closing on a full disk changes what is there");
}

#[test]
fn power_lost_at_any_operation_on_a_full_disk_costs_no_acknowledged_write() {
    let fs = MemFs::new();
    let db = open(&fs).unwrap();
    let full = 1540;
    let (deleted, operations) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (seen, counted) = (Arc::clone(&deleted), Arc::clone(&operations));
    let step = if thorough() { 1 } else { 17 };
    assert_eq!(fill(&db, &fs), full);
    fs.observe(move |fs, _| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        if number.is_multiple_of(step) {
            let random = CrashPolicy::Random(u64::from(number));
            for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, random] {
                check(&fs.crash(policy), full, seen.load(Ordering::SeqCst));
            }
        }
        Ok(())
    });
    for from in (0..full - 2 * STEP).step_by(STEP as usize) {
        delete(&db, from).unwrap();
        deleted.store(from + STEP, Ordering::SeqCst);
    }
    let attempts = (0..20).find(|_| db.compact().is_ok());
    assert!(attempts.is_some());
    while db.step().unwrap() {}
    fs.stop_observing();
    assert!(has_reserve(&fs) && operations.load(Ordering::SeqCst) > 100, "{operations:?} operations");
    put(&db, full).unwrap();
}

#[test]
fn a_cut_log_is_intact_up_to_the_cut_and_later_bytes_do_not_count() {
    let fs = MemFs::new();
    let db = open(&fs).unwrap();
    let full = fill(&db, &fs);
    let is_log = |path: &PathBuf| path.extension().is_some_and(|end| end == "wal");
    let logs = || fs.files(DIR.as_ref()).into_iter().filter(|(path, _)| is_log(path));
    let (cut, bytes) = logs().next_back().unwrap();
    delete(&db, 0).unwrap();
    assert!(logs().count() > 1 && logs().any(|log| log == (cut.clone(), bytes.clone())));
    let image = |bytes: Vec<u8>| {
        let image = fs.crash(CrashPolicy::KeepAll);
        image.set_room(None);
        image.overwrite(&cut, bytes);
        image
    };
    let db = open(&image([&bytes[..], &[7; 3000]].concat())).unwrap();
    assert_eq!(db.open_report().dropped, []);
    assert!(contents(&db, full) == expected(full, STEP));
    let written = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    let mut flipped = bytes.clone();
    flipped[written - 300] ^= 1;
    for damaged in [flipped, bytes[..written - 300].to_vec()] {
        let damaged = image(damaged);
        assert!(open(&damaged).unwrap_err().is_corruption());
        assert!(!options(&damaged).verify(DIR).unwrap().damage.is_empty());
    }
}

#[test]
fn a_store_opens_whose_logs_hold_a_full_memtable_for_which_the_disk_has_no_room() {
    let fs = MemFs::new();
    let keyspace = KeyspaceOptions::new().memtable_bytes(256 << 10).compression(Compression::None);
    let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0).memory_budget(4 << 20);
    // More space than an open needs, and less than a flush needs.
    let options = options.default_keyspace(keyspace).reserve_bytes(128 << 10);
    let db = options.clone().open(DIR).unwrap();
    while db.step().unwrap() {}
    let immutables = || db.stats().keyspaces[0].immutable_memtables;
    let full = (0..).find(|&n| put(&db, n).is_ok() && immutables() == 1).unwrap() + 1;
    (0..STEP).for_each(|n| db.delete(key(n)).unwrap());
    db.sync().unwrap();
    fs.set_room(Some(fs.used()));
    assert!(has_reserve(&fs) && is_full(&db.step().unwrap_err()));
    assert!(is_full(&db.delete(key(STEP)).unwrap_err()), "a flush and a compaction have no room");

    let image = fs.crash(CrashPolicy::KeepAll);
    let options = options.fs(Arc::new(image.clone()));
    let left = |from| (from..full).map(|n| (key(n), value(n))).collect::<BTreeMap<_, _>>();
    let db = options.clone().open(DIR).unwrap();
    assert!(db.open_report().full_disk.is_some());
    assert!(contents(&db, full) == left(STEP));
    image.set_room(None);
    db.delete(key(STEP)).unwrap();
    while db.step().unwrap() {}
    db.put(key(full), "v").unwrap();
    db.close().unwrap();
    assert!(contents(&options.open(DIR).unwrap(), full) == left(STEP + 1));
}

#[test]
fn a_store_with_a_reserve_opens_however_little_else_is_free() {
    let fs = MemFs::new();
    let options = |fs: &MemFs| Options::new().fs(Arc::new(fs.clone())).background_threads(0);
    let db = options(&fs).open(DIR).unwrap();
    (0..3).for_each(|n| put(&db, n).unwrap());
    while db.step().unwrap() {}
    db.sync().unwrap();
    for free in (0..4000).step_by(if thorough() { 1 } else { 13 }) {
        let image = fs.crash(CrashPolicy::KeepAll);
        image.set_room(Some(fs.used() + free));
        let db = options(&image).open(DIR).unwrap_or_else(|error| panic!("{free} bytes: {error}"));
        assert!(contents(&db, 3) == (0..3).map(|n| (key(n), value(n))).collect(), "{free} bytes");
        db.delete(key(0)).unwrap();
        image.set_room(None);
        put(&db, 1).unwrap();
        drop(db);
        let image = image.crash(CrashPolicy::KeepAll);
        let db = options(&image).open(DIR).unwrap();
        assert!(contents(&db, 3) == (1..3).map(|n| (key(n), value(n))).collect(), "{free} bytes");
    }
}

#[test]
fn a_store_on_a_full_disk_opens_although_its_reserve_cannot_be_read() {
    let mem = MemFs::new();
    let db = open(&mem).unwrap();
    (0..100).for_each(|n| put(&db, n).unwrap());
    db.sync().unwrap();
    let image = mem.crash(CrashPolicy::KeepAll);
    image.overwrite(&Path::new(DIR).join("RESERVE"), vec![7; 100]);
    let fs = FaultyFs::new(&image);
    fs.judge(|_, call| match call {
        Call::Open(path) if path.ends_with("RESERVE") => Some((Effect::None, io::Error::other("unreadable"))),
        _ => None,
    });
    // Enough space for a new log, but not for a copy of the log's contents.
    image.set_room(Some(image.used() + (8 << 10)));
    let db = options(&image).fs(Arc::new(fs)).open(DIR).unwrap();
    assert!(db.open_report().full_disk.is_some());
    assert!(contents(&db, 100) == (0..100).map(|n| (key(n), value(n))).collect());
}

#[test]
fn a_store_opens_if_the_disk_is_full_at_the_first_promise_of_its_new_log() {
    let fs = MemFs::new();
    let db = open(&fs).unwrap();
    (0..3).for_each(|n| put(&db, n).unwrap());
    while db.step().unwrap() {}
    db.sync().unwrap();
    for is_freed in [true, false] {
        let image = fs.crash(CrashPolicy::KeepAll);
        let is_renamed = AtomicBool::new(false);
        image.observe(move |_, op| {
            is_renamed.fetch_or(matches!(op, Op::Rename(..)), Ordering::SeqCst);
            let is_log = |path: &Path| path.extension().is_some_and(|end| end == "wal");
            match op {
                Op::Append(path, _) if is_log(path) && is_renamed.load(Ordering::SeqCst) => {
                    Err(io::ErrorKind::StorageFull.into())
                }
                _ => Ok(()),
            }
        });
        let db = open(&image).unwrap();
        assert!(db.open_report().full_disk.is_some());
        image.stop_observing();
        if !is_freed {
            image.set_room(Some(image.used()));
        }
        db.delete(key(0)).unwrap();
        // The reserve kept is more than such a small store needs.
        put(&db, 3).unwrap();
        let image = image.crash(CrashPolicy::KeepAll);
        let db = open(&image).unwrap();
        let expected: BTreeMap<_, _> = (1..4).map(|n| (key(n), value(n))).collect();
        assert!(contents(&db, 9) == expected);
    }
}

#[test]
fn an_unreadable_reserve_is_reported_and_removed_as_soon_as_possible() {
    let mem = MemFs::new();
    let db = open(&mem).unwrap();
    while db.step().unwrap() {}
    drop(db);
    let fs = FaultyFs::new(&mem);
    fs.judge(|_, call| match call {
        Call::Open(path) if path.ends_with("RESERVE") => Some((Effect::None, io::Error::other("unreadable"))),
        _ => None,
    });
    let db = options(&mem).fs(Arc::new(fs.clone())).open(DIR).unwrap();
    while db.step().unwrap() {}
    assert!(db.background_error().unwrap().to_string().contains("unreadable"));
    mem.set_room(Some(mem.used()));
    assert!(is_full(&put(&db, 0).unwrap_err()) && db.delete(key(0)).is_err() && has_reserve(&mem));
    fs.recover();
    db.delete(key(0)).unwrap();
    assert!(!has_reserve(&mem) && is_full(&put(&db, 0).unwrap_err()));
    mem.set_room(None);
    let start = Instant::now();
    while let Err(error) = put(&db, 0) {
        assert!(is_full(&error) && start.elapsed() < Duration::from_secs(60), "{error}");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(has_reserve(&mem) && db.background_error().is_none());
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    Reading,
    Removing,
    Creating,
}

impl Broken {
    const EACH: [Self; 4] = [Self::Nothing, Self::Reading, Self::Removing, Self::Creating];

    fn fails(self, call: Call<'_>) -> bool {
        match (self, call) {
            (Self::Reading, Call::Open(path))
            | (Self::Removing, Call::Remove(path))
            | (Self::Creating, Call::Create(path)) => path.ends_with("RESERVE"),
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Settle,
    Step,
    Wait,
}

#[derive(Debug, Clone, Copy)]
struct FreedDisk {
    way: Way,
    threads: usize,
    tells_free: bool,
    broken: Broken,
    reserve: Option<u64>,
}

impl FreedDisk {
    fn open(&self, fs: &FaultyFs) -> Db {
        let keyspace = KeyspaceOptions::new().memtable_bytes(32 << 10).compression(Compression::None);
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(self.threads);
        let options = options.memory_budget(1 << 20).default_keyspace(keyspace);
        self.reserve.map_or(options.clone(), |bytes| options.reserve_bytes(bytes)).open(DIR).unwrap()
    }

    fn set_broken(&self, fs: &FaultyFs) {
        let broken = self.broken;
        fs.judge(move |_, call| broken.fails(call).then(|| (Effect::None, io::Error::other("broken"))));
        fs.tells_free.store(self.tells_free, Ordering::SeqCst);
    }

    fn takes_put(&self, db: &Db, fs: &FaultyFs) -> bool {
        fs.tells_free.store(false, Ordering::SeqCst);
        fs.judge(|_, call| {
            let finds_out = matches!(call, Call::Open(path) if path.ends_with("RESERVE"));
            finds_out.then(|| (Effect::None, io::ErrorKind::StorageFull.into()))
        });
        let is_taken = put(db, 0).is_ok();
        self.set_broken(fs);
        is_taken
    }

    fn run(&self) {
        let mem = MemFs::new();
        let fs = FaultyFs::new(&mem);
        fs.tells_free.store(self.tells_free, Ordering::SeqCst);
        let db = self.open(&fs);
        (0..100).for_each(|n| put(&db, n).unwrap());
        db.settle().unwrap();
        while self.reserve != Some(0) && !has_reserve(&mem) {
            db.step().unwrap();
        }
        self.set_broken(&fs);
        mem.set_room(Some(mem.used()));
        let refused = (100..2000).find_map(|n| put(&db, n).err()).expect("the disk is full");
        assert!(is_full(&refused), "{self:?}: {refused}");
        mem.set_room(None);
        let start = Instant::now();
        while db.background_error().is_some_and(|error| is_full(&error)) || !self.takes_put(&db, &fs) {
            match self.way {
                Way::Settle => drop(db.settle()),
                Way::Step => drop(db.step()),
                Way::Wait => std::thread::sleep(Duration::from_millis(5)),
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{self:?}: {:?}", db.background_error());
        }
    }
}

#[test]
fn puts_are_accepted_again_without_a_put_for_any_knowledge_of_the_disk_and_its_reserve() {
    for (way, threads) in [(Way::Settle, 0), (Way::Step, 0), (Way::Settle, 2), (Way::Wait, 2)] {
        for tells_free in [true, false] {
            for broken in Broken::EACH {
                for reserve in [None, Some(0), Some(RESERVE)] {
                    FreedDisk { way, threads, tells_free, broken, reserve }.run();
                }
            }
        }
    }
}
