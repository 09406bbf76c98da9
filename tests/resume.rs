//! Failed appends: the writer gets the error, writing resumes in new files, and power is lost at any operation.
//!
//! An append or rename fails without effect, with half of it, or with all of it. Readers never see the failed write; an
//! open after a power loss may find it until writing has resumed. All earlier synced writes are present. Buffered
//! writes are present once writing has resumed.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::filter::{FilterKind, FilterPolicy};
use sievedb::fs::{CrashPolicy, MemFs};
use sievedb::{Db, Durability, Error, Keyspace, Options, Result, WriteBatch};

use crate::support::faulty::{Call, Effect, FaultyFs};
use crate::support::sample::thorough;
use crate::support::store::{self, DIR};

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn open(fs: &FaultyFs) -> Db {
    store::options(&fs.mem).fs(Arc::new(fs.clone())).open(DIR).unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Batch,
    /// The close record of a full log.
    Close,
    /// The edit that begins a log.
    Log,
    /// The edit of a flush.
    Flush,
    /// The edit of a new keyspace.
    Creation,
}

impl Victim {
    const EACH: [Self; 5] = [Self::Batch, Self::Close, Self::Log, Self::Flush, Self::Creation];

    fn file(self) -> &'static str {
        match self {
            Self::Batch | Self::Close => "wal",
            Self::Log | Self::Flush | Self::Creation => "manifest",
        }
    }

    fn strike(self, db: &Db, users: &Keyspace) -> Result<()> {
        match self {
            Self::Batch => write_both(db, users, "lost", Durability::Synced),
            Self::Close | Self::Log => db.flush(),
            Self::Flush => db.step().map(drop),
            Self::Creation => db.keyspace("lost", store::small()).map(drop),
        }
    }
}

fn write_both(db: &Db, users: &Keyspace, key: &str, durability: Durability) -> Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(key, "v").put_in(users, key, "v");
    db.write_with(batch, durability)
}

fn prepare(fs: &FaultyFs) -> (Db, Keyspace) {
    let db = open(fs);
    let users = db.keyspace("users", store::small()).unwrap();
    write_both(&db, &users, "flushed", Durability::Buffered).unwrap();
    write_both(&db, &users, "deleted", Durability::Buffered).unwrap();
    db.flush().unwrap();
    write_both(&db, &users, "ghost", Durability::Buffered).unwrap();
    (0..30).for_each(|n| users.put(format!("fill {n:02}"), [7; 300]).unwrap());
    for key in ["deleted", "ghost"] {
        db.delete(key).unwrap();
        users.delete(key).unwrap();
    }
    write_both(&db, &users, "synced", Durability::Synced).unwrap();
    for key in ["buffered 1", "buffered 2"] {
        write_both(&db, &users, key, Durability::Buffered).unwrap();
    }
    assert!(db.stats().keyspace("users").unwrap().immutable_memtables > 1, "the first step flushes");
    (db, users)
}

#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Progress {
    InDoubt,
    /// The failed write is lost, and all acknowledged writes are durable.
    Resumed,
    /// The write `after` is durable too.
    Acknowledged,
}

fn check(image: &MemFs, progress: Progress) -> Result<(), String> {
    let db = store::open(image).map_err(|error| format!("does not open: {error}"))?;
    let users = db.existing_keyspace("users").ok_or("keyspace users is gone")?;
    let has = |key: &str| {
        let both = (db.contains(key), users.contains(key));
        match both {
            (Ok(one), Ok(other)) if one == other => Ok(one),
            other => Err(format!("{key}: {other:?}")),
        }
    };
    for key in ["flushed", "synced"] {
        if !has(key)? {
            return Err(format!("{key} is gone"));
        }
    }
    let buffered = [has("buffered 1")?, has("buffered 2")?];
    let (lost, after) = (has("lost")?, has("after")?);
    let has_all = buffered == [true; 2];
    let is_prefix = buffered != [false, true] && (has_all || !lost && !after);
    let what = format!("buffered {buffered:?}, lost {lost}, after {after}");
    if has("deleted")? || has("ghost")? || !is_prefix || lost && after {
        return Err(what);
    }
    let has_lost = lost || db.existing_keyspace("lost").is_some();
    if progress >= Progress::Resumed && (!has_all || has_lost) {
        return Err(format!("although writing has resumed: {what}"));
    }
    if progress == Progress::Acknowledged && !after {
        return Err("the write after it is gone".into());
    }
    if (0..30).any(|n| !users.contains(format!("fill {n:02}")).unwrap_or(false)) && has_all {
        return Err("an older write is gone".into());
    }
    write_both(&db, &users, "again", Durability::Synced).map_err(|error| error.to_string())?;
    db.flush().map_err(|error| error.to_string())?;
    match db.verify().map_err(|error| error.to_string())?.damage.first() {
        Some(damage) => Err(damage.to_string()),
        None => db.close().map_err(|error| error.to_string()),
    }
}

/// A failed sync of a log or manifest is not retried.
fn ends_writing(call: Call<'_>) -> bool {
    matches!(call, Call::Sync(_)) && ["wal", "manifest"].contains(&&*call.kind())
}

fn policies(seed: u64) -> [CrashPolicy; 4] {
    let random = |n| CrashPolicy::Random(seed << 8 | n);
    [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, random(1), random(2)]
}

/// The victim's first append fails, and later operations fail by `second`; power is lost at each of these operations.
/// Returns the number of operations and of images.
fn fail(victim: Victim, (effect, cause): (Effect, Cause), second: Option<(u64, Effect)>) -> (u64, u64) {
    let fs = FaultyFs::new(&MemFs::new());
    let (db, users) = prepare(&fs);
    let has_failed = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(Mutex::new(Progress::InDoubt));
    let (count, images) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (failed, seen, counted, checked) =
        (Arc::clone(&has_failed), Arc::clone(&progress), Arc::clone(&count), Arc::clone(&images));
    fs.judge(move |mem, call| {
        if !failed.load(Ordering::SeqCst) {
            let is_victim = matches!(call, Call::Append(_)) && call.kind() == victim.file();
            let is_header = mem
                .files(DIR.as_ref())
                .iter()
                .any(|(path, bytes)| matches!(call, Call::Append(at) if at == path) && bytes.is_empty());
            if is_victim && !is_header {
                failed.store(true, Ordering::SeqCst);
                return Some((effect, cause()));
            }
            return None;
        }
        if matches!(call, Call::Open(_)) {
            return None;
        }
        let number = counted.fetch_add(1, Ordering::SeqCst);
        let step = if second.is_some() { 5 } else { 1 };
        for policy in policies(number).into_iter().filter(|_| number.is_multiple_of(step)) {
            checked.fetch_add(1, Ordering::SeqCst);
            if let Err(wrong) = check(&mem.crash(policy), *seen.lock().unwrap()) {
                panic!("{victim:?} {effect:?} {second:?}, {policy:?} before {number} ({call:?}): {wrong}");
            }
        }
        match second {
            Some((at, effect)) if at == number && !ends_writing(call) => Some((effect, full())),
            _ => None,
        }
    });
    let context = format!("{victim:?} {effect:?} {second:?}");
    let error = victim.strike(&db, &users).expect_err(&context);
    assert!(matches!(error, Error::Io { .. }), "{context}: {error}");
    assert!(has_failed.load(Ordering::SeqCst), "{context}");
    assert!(!db.contains("lost").unwrap() && !users.contains("lost").unwrap());
    let resumed = (0..3).any(|_| db.flush().is_ok());
    assert!(resumed && db.stats().disabled.is_none(), "{context}: {:?}", db.stats().disabled);
    *progress.lock().unwrap() = Progress::Resumed;
    assert!(db.existing_keyspace("lost").is_none() && db.contains("buffered 2").unwrap());
    while write_both(&db, &users, "after", Durability::Synced).is_err() {}
    *progress.lock().unwrap() = Progress::Acknowledged;
    while db.settle().is_err() || db.background_error().is_some() {}
    for policy in policies(0) {
        check(&fs.mem.crash(policy), Progress::Acknowledged)
            .unwrap_or_else(|wrong| panic!("{context}: {wrong}"));
    }
    match db.close() {
        Ok(()) => {}
        Err(error) => assert!(second.is_some() && matches!(error, Error::Io { .. }), "{context}: {error}"),
    }
    fs.recover();
    check(&fs.mem, Progress::Acknowledged).unwrap_or_else(|wrong| panic!("{context}, closed: {wrong}"));
    (count.load(Ordering::SeqCst), images.load(Ordering::SeqCst))
}

#[test]
fn after_an_append_that_fails_writing_resumes_and_power_may_be_lost_at_any_operation() {
    let mut images = 0;
    for victim in Victim::EACH {
        for effect in Effect::EACH {
            for cause in [full as Cause, broken] {
                let (operations, checked) = fail(victim, (effect, cause), None);
                assert!(operations > 20, "{victim:?}: resuming does only {operations} operations");
                images += checked;
            }
        }
    }
    println!("{images} images");
}

#[test]
fn a_second_failure_while_writing_resumes_costs_nothing_either() {
    let (mut cases, mut images) = (0, 0);
    let firsts = [(Victim::Batch, Effect::Half, full as Cause), (Victim::Flush, Effect::All, broken)];
    for (victim, effect, cause) in firsts {
        let (operations, _) = fail(victim, (effect, cause), None);
        for at in 0..operations {
            for (index, second) in Effect::EACH.into_iter().enumerate() {
                if !thorough() && at % 6 != 2 * index as u64 {
                    continue;
                }
                cases += 1;
                images += fail(victim, (effect, cause), Some((at, second))).1;
            }
        }
    }
    println!("{cases} second failures, {images} images");
}

/// [`fail`] with two writers that both succeed at the end. Returns the number of images.
fn resume_together(victim: Victim, cause: Cause) -> u64 {
    let fs = FaultyFs::new(&MemFs::new());
    let (db, users) = prepare(&fs);
    let has_failed = AtomicBool::new(false);
    let progress = Arc::new(Mutex::new(Progress::InDoubt));
    let images = Arc::new(AtomicU64::new(0));
    let (seen, checked) = (Arc::clone(&progress), Arc::clone(&images));
    fs.judge(move |mem, call| {
        if !has_failed.load(Ordering::SeqCst) {
            let is_victim = matches!(call, Call::Append(_)) && call.kind() == victim.file();
            return (is_victim && !has_failed.swap(true, Ordering::SeqCst)).then(|| (Effect::Half, cause()));
        }
        if matches!(call, Call::Open(_)) {
            return None;
        }
        let progress = *seen.lock().unwrap();
        for policy in policies(checked.load(Ordering::SeqCst)) {
            checked.fetch_add(1, Ordering::SeqCst);
            if let Err(wrong) = check(&mem.crash(policy), progress) {
                panic!("{victim:?} {}, {policy:?} before {call:?}: {wrong}", cause());
            }
        }
        None
    });
    victim.strike(&db, &users).expect_err("an append fails");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Err(error) = write_both(&db, &users, "after", Durability::Synced) {
                    assert!(matches!(error, Error::Io { .. }), "{error}");
                }
                *progress.lock().unwrap() = Progress::Acknowledged;
                assert!((0..3).any(|_| db.flush().is_ok()));
            });
        }
    });
    fs.recover();
    db.close().unwrap();
    check(&fs.mem, Progress::Acknowledged).unwrap();
    images.load(Ordering::SeqCst)
}

#[test]
fn two_threads_that_resume_at_once_lose_nothing_if_power_is_lost_at_any_operation() {
    let mut images = 0;
    for victim in [Victim::Batch, Victim::Flush] {
        for cause in [full as Cause, broken] {
            images += resume_together(victim, cause);
        }
    }
    println!("{images} images");
    assert!(images > 400, "{images} images");
}

fn broken() -> io::Error {
    io::Error::other("input/output error")
}

fn out_of_files() -> io::Error {
    io::Error::from_raw_os_error(24)
}

type Row = fn(&Call<'_>) -> bool;

type Cause = fn() -> io::Error;

const PASSING: [(&str, Row, Cause); 12] = [
    ("create a table", |call| matches!(call, Call::Create(_)) && call.kind() == "sst", full),
    ("create a table", |call| matches!(call, Call::Create(_)) && call.kind() == "sst", out_of_files),
    ("write a table", |call| matches!(call, Call::Append(_)) && call.kind() == "sst", full),
    ("write a table", |call| matches!(call, Call::Append(_)) && call.kind() == "sst", broken),
    ("sync a table", |call| matches!(call, Call::Sync(_)) && call.kind() == "sst", broken),
    ("create a log", |call| matches!(call, Call::Create(_)) && call.kind() == "wal", full),
    ("create a log", |call| matches!(call, Call::Create(_)) && call.kind() == "wal", out_of_files),
    ("sync the directory", |call| matches!(call, Call::SyncDir), full),
    ("sync the directory", |call| matches!(call, Call::SyncDir), out_of_files),
    ("append to the log", |call| matches!(call, Call::Append(_)) && call.kind() == "wal", full),
    ("append to the log", |call| matches!(call, Call::Append(_)) && call.kind() == "wal", broken),
    ("append to the manifest", |call| matches!(call, Call::Append(_)) && call.kind() == "manifest", full),
];

#[test]
fn a_passing_failure_is_reported_loses_nothing_and_ends_by_itself() {
    for threads in [0, 2] {
        for (row, is_hit, error) in PASSING {
            let context = format!("{row}: {}, {threads} threads", error());
            let fs = FaultyFs::new(&MemFs::new());
            prepare(&fs).0.close().unwrap();
            let options = store::options(&fs.mem).fs(Arc::new(fs.clone())).background_threads(threads);
            let db = options.open(DIR).unwrap();
            let users = db.existing_keyspace("users").unwrap();
            users.put("more", "v").unwrap();
            fs.judge(move |_, call| is_hit(&call).then(|| (Effect::None, error())));
            let failed = users.flush().and_then(|()| db.compact()).and_then(|()| users.compact());
            let failed = failed.expect_err(&context);
            assert!(matches!(failed, Error::Io { .. }), "{context}: {failed}");
            let stats = db.stats();
            assert_eq!((stats.disabled, stats.keyspaces[0].total().set_aside_tables), (None, 0), "{context}");
            assert_eq!(stats.keyspaces[1].total().set_aside_tables, 0, "{context}");
            fs.recover();
            users.flush().unwrap_or_else(|error| panic!("{context}: {error}"));
            write_both(&db, &users, "after", Durability::Synced).unwrap();
            assert!((0..=threads).any(|_| db.settle().is_ok()), "{context}: {:?}", db.settle());
            for result in [users.compact(), db.compact(), db.settle()] {
                result.unwrap_or_else(|error| panic!("{context}: {error}"));
            }
            assert!(db.background_error().is_none(), "{context}: {:?}", db.background_error());
            let tables: u64 = db.stats().keyspaces.iter().map(|keyspace| keyspace.total().tables).sum();
            let files = store::files(&fs.mem);
            let left = files.keys().filter(|name| name.ends_with(".sst")).count();
            assert_eq!(left as u64, tables, "{context}: {:?}", files.keys());
            assert!(users.contains("more").unwrap() && users.contains("buffered 2").unwrap());
            db.close().unwrap();
            check(&fs.mem, Progress::Acknowledged).unwrap_or_else(|wrong| panic!("{context}: {wrong}"));
        }
    }
}

#[test]
fn a_filter_that_cannot_be_opened_for_lack_of_open_files_is_used_later() {
    let fs = FaultyFs::new(&MemFs::new());
    let keys = |end: &'static str| (1000..2000).map(move |key| format!("{key}{end}"));
    let db = open(&fs);
    keys("").for_each(|key| db.put(key, "v").unwrap());
    db.compact().unwrap();
    db.default_keyspace().refilter(FilterPolicy::new(FilterKind::BlockedBloom)).unwrap();
    db.close().unwrap();

    let options = || store::options(&fs.mem).fs(Arc::new(fs.clone())).background_threads(0);
    for strict in [false, true] {
        let db = options().strict_filters(strict).open(DIR).unwrap();
        let absent = || keys(" absent").filter(|key| !db.contains(key).unwrap()).count();
        fs.judge(|_, call| {
            (matches!(call, Call::Open(_)) && call.kind() == "filter").then(|| (Effect::None, out_of_files()))
        });
        assert_eq!(absent(), 1000);
        assert!(keys("").all(|key| db.contains(key).unwrap()));
        let stats = db.stats();
        assert_eq!((stats.unusable_filters, stats.keyspaces[0].total().filter.negatives), (0, 0));
        fs.recover();
        assert_eq!(absent(), 1000);
        let total = db.stats().keyspaces[0].total();
        assert!(total.filter.negatives > 900 && total.unusable_filters == 0, "{:?}", total.filter);
        while db.step().unwrap() {}
        assert_eq!(db.stats().rebuilt_filters, 0);
        db.close().unwrap();
    }
}

#[test]
fn a_table_that_cannot_be_opened_for_a_compaction_is_not_set_aside() {
    for error in [broken, out_of_files] {
        let fs = FaultyFs::new(&MemFs::new());
        prepare(&fs).0.close().unwrap();
        let db = open(&fs);
        let users = db.existing_keyspace("users").unwrap();
        let old: Vec<String> = store::files(&fs.mem).into_keys().collect();
        let is_old = move |path: &Path| old.iter().any(|name| path.ends_with(name));
        fs.judge(move |_, call| match call {
            Call::Open(path) if is_old(path) && call.kind() == "sst" => Some((Effect::None, error())),
            _ => None,
        });
        users.put("more", "v").unwrap();
        users.flush().unwrap();
        for _ in 0..2 {
            assert!(matches!(users.compact(), Err(Error::Io { op: "open", .. })));
        }
        let stats = db.stats();
        assert_eq!((stats.disabled, stats.keyspaces[1].total().set_aside_tables), (None, 0));
        fs.recover();
        users.compact().unwrap();
        assert!(users.contains("more").unwrap() && users.contains("buffered 2").unwrap());
        assert_eq!(db.stats().keyspaces[1].total().runs, 1);
    }
}

const FINAL: [(&str, Row); 3] = [
    ("the log", |call| matches!(call, Call::Sync(_)) && call.kind() == "wal"),
    ("the manifest", |call| matches!(call, Call::Sync(_)) && call.kind() == "manifest"),
    ("the directory", |call| matches!(call, Call::SyncDir)),
];

#[test]
fn a_failed_sync_of_log_manifest_or_directory_ends_writing_until_the_next_opening() {
    for (row, is_hit) in FINAL {
        let fs = FaultyFs::new(&MemFs::new());
        let (db, users) = prepare(&fs);
        fs.judge(move |_, call| is_hit(&call).then(|| (Effect::None, broken())));
        assert!(matches!(db.flush(), Err(Error::Io { op: "sync", .. })), "{row}");
        fs.recover();
        for _ in 0..2 {
            assert!(matches!(db.put("refused", "v"), Err(Error::Poisoned { .. })), "{row}");
            assert!(matches!(users.flush(), Err(Error::Poisoned { .. })), "{row}");
            assert!(matches!(db.step(), Err(Error::Poisoned { .. })), "{row}");
            assert!(db.contains("buffered 2").unwrap() && db.stats().disabled.is_some());
        }
        for policy in policies(1) {
            check(&fs.mem.crash(policy), Progress::InDoubt).unwrap_or_else(|wrong| panic!("{row}: {wrong}"));
        }
        assert!(matches!(db.close(), Err(Error::Poisoned { .. })), "{row}");
        drop(users);
        check(&fs.mem, Progress::InDoubt).unwrap_or_else(|wrong| panic!("{row}, closed: {wrong}"));
    }
}

#[test]
fn a_synced_write_whose_promise_cannot_be_appended_is_acknowledged_and_stays() {
    for effect in Effect::EACH {
        let fs = FaultyFs::new(&MemFs::new());
        let (db, users) = prepare(&fs);
        let synced = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&synced);
        fs.judge(move |_, call| {
            let is_log = call.kind() == "wal";
            seen.fetch_or(is_log && matches!(call, Call::Sync(_)), Ordering::SeqCst);
            let is_promise = is_log && matches!(call, Call::Append(_)) && seen.load(Ordering::SeqCst);
            is_promise.then(|| (effect, full()))
        });
        write_both(&db, &users, "after", Durability::Synced).unwrap();
        assert!(synced.load(Ordering::SeqCst));
        let told = db.background_error();
        assert!(matches!(told, Some(Error::Io { op: "append to", .. })), "{told:?}");
        for policy in policies(2) {
            check(&fs.mem.crash(policy), Progress::Acknowledged).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
        assert!(write_both(&db, &users, "again", Durability::Synced).is_err());
        fs.recover();
        write_both(&db, &users, "again", Durability::Synced).unwrap();
        assert!(db.background_error().is_none() && db.contains("again").unwrap());
    }
}

#[test]
fn a_file_that_cannot_be_removed_is_reported_and_removed_later() {
    let fs = FaultyFs::new(&MemFs::new());
    let (db, users) = prepare(&fs);
    fs.judge(|_, call| matches!(call, Call::Remove(_)).then(|| (Effect::None, broken())));
    db.flush().and_then(|()| users.flush()).and_then(|()| db.compact()).unwrap();
    while db.step().unwrap() {}
    assert!(matches!(db.background_error(), Some(Error::Io { op: "remove", .. })));
    fs.recover();
    db.settle().unwrap();
    assert!(db.background_error().is_none());
    let tables: u64 = db.stats().keyspaces.iter().map(|keyspace| keyspace.total().tables).sum();
    assert_eq!(store::files(&fs.mem).keys().filter(|name| name.ends_with(".sst")).count() as u64, tables);
}

#[test]
fn closing_a_store_whose_writing_is_suspended_keeps_acknowledged_writes() {
    for effect in Effect::EACH {
        let fs = FaultyFs::new(&MemFs::new());
        let (db, users) = prepare(&fs);
        fs.judge(move |_, call| {
            let is_new = matches!(call, Call::Append(_)) && ["wal", "sst"].contains(&&*call.kind());
            is_new.then(|| (effect, full()))
        });
        assert!(write_both(&db, &users, "lost", Durability::Buffered).is_err());
        assert!(write_both(&db, &users, "lost", Durability::Buffered).is_err());
        drop(users);
        assert!(matches!(db.close(), Err(Error::Io { .. })));
        fs.recover();
        check(&fs.mem, Progress::InDoubt).unwrap_or_else(|wrong| panic!("{effect:?}: {wrong}"));
        assert!(store::open(&fs.mem).unwrap().contains("buffered 2").unwrap());
    }
}

#[test]
fn a_long_manifest_whose_replacement_fails_costs_nothing() {
    let creates: Row = |call| matches!(call, Call::Create(_)) && call.kind() == "manifest";
    let renames: Row = |call| matches!(call, Call::Rename);
    for (is_hit, effect) in [(creates, Effect::None), (renames, Effect::None), (renames, Effect::All)] {
        let fs = FaultyFs::new(&MemFs::new());
        let (db, users) = prepare(&fs);
        let hit = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&hit);
        fs.judge(move |_, call| {
            let fails = is_hit(&call) && !seen.swap(true, Ordering::SeqCst);
            fails.then(|| (effect, full()))
        });
        let keyspace = db.default_keyspace();
        let mut runs = 0;
        while !hit.load(Ordering::SeqCst) {
            runs += 1;
            keyspace.set_options(store::small().l0_runs(1 + runs % 9)).unwrap();
        }
        assert!(db.background_error().is_some() && db.stats().disabled.is_none());
        for policy in policies(3) {
            check(&fs.mem.crash(policy), Progress::InDoubt)
                .unwrap_or_else(|wrong| panic!("{effect:?}: {wrong}"));
            let options = Options::new().fs(Arc::new(fs.mem.crash(policy))).background_threads(0);
            let found = options.open(DIR).unwrap().default_keyspace().options();
            assert_eq!(found, store::small().l0_runs(1 + runs % 9));
        }
        write_both(&db, &users, "after", Durability::Synced).unwrap();
        keyspace.set_options(store::small().l0_runs(7)).unwrap();
        check(&fs.mem.crash(CrashPolicy::DropUnsynced), Progress::Acknowledged).unwrap();
        db.close().unwrap();
        drop(users);
        let manifests = store::files(&fs.mem).into_keys().filter(|name| name.starts_with("MANIFEST"));
        assert_eq!(manifests.count(), 1);
        check(&fs.mem, Progress::Acknowledged).unwrap();
    }
}

#[test]
fn with_threads_writing_resumes_by_itself_and_writers_wait_for_the_next_attempt() {
    fail_with_threads(|db| db.delete("ghost").unwrap());
}

#[test]
fn a_closed_store_on_a_full_disk_begins_to_write_by_itself_once_there_is_room() {
    fail_with_threads(|_| {});
}

fn fail_with_threads(begin: impl Fn(&Db)) {
    let fs = FaultyFs::new(&MemFs::new());
    prepare(&fs).0.close().unwrap();
    let options = store::options(&fs.mem).fs(Arc::new(fs.clone())).background_threads(2);
    let db = options.open(DIR).unwrap();
    let users = db.existing_keyspace("users").unwrap();
    begin(&db);
    fs.judge(|_, call| matches!(call, Call::Append(_)).then(|| (Effect::Half, full())));
    assert!(write_both(&db, &users, "lost", Durability::Buffered).is_err());
    while db.stats().background_failures < 3 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(!db.contains("lost").unwrap() && db.contains("buffered 2").unwrap());
    assert!(write_both(&db, &users, "lost", Durability::Buffered).is_err(), "the next attempt fails too");
    assert!(db.keyspace("lost", store::small()).is_err() && db.flush().is_err());
    fs.recover();
    while db.background_error().is_some() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    write_both(&db, &users, "after", Durability::Synced).unwrap();
    check(&fs.mem.crash(CrashPolicy::DropUnsynced), Progress::Acknowledged).unwrap();
}

#[test]
fn a_store_whose_writing_has_ended_removes_the_files_that_nothing_needs() {
    let fs = FaultyFs::new(&MemFs::new());
    let (db, users) = prepare(&fs);
    db.flush().and_then(|()| users.flush()).unwrap();
    let reader = users.iter();
    users.compact().unwrap();
    let tables = || store::files(&fs.mem).keys().filter(|name| name.ends_with(".sst")).count();
    let before = tables();
    fs.judge(|_, call| matches!(call, Call::Sync(_)).then(|| (Effect::None, broken())));
    assert!(write_both(&db, &users, "lost", Durability::Synced).is_err());
    assert!(matches!(db.step(), Err(Error::Poisoned { .. })));
    assert_eq!(tables(), before, "a reader needs them");
    drop(reader);
    assert!(matches!(db.step(), Err(Error::Poisoned { .. })));
    assert!(tables() < before);
    check(&fs.mem.crash(CrashPolicy::DropUnsynced), Progress::InDoubt).unwrap();
}
