use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sievedb::fs::{CrashPolicy, Fs, MemFs, Op};
use sievedb::{Db, Durability, Error, KeyspaceOptions, Options, WriteBatch};

fn put_synced(db: &Db, key: &str) -> sievedb::Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(key, "value");
    db.write_with(batch, Durability::Synced)
}

fn survey(dir: &Path) -> Vec<(PathBuf, u64)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut found: Vec<_> = entries.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect();
    found.sort();
    found
}

fn is_lost(result: sievedb::Result<()>) -> bool {
    match result {
        Err(Error::LockLost { .. }) => true,
        Err(Error::Poisoned { cause, .. }) => matches!(*cause, Error::LockLost { .. }),
        _ => false,
    }
}

#[test]
fn a_second_opening_in_this_process_is_reported_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let _db = Db::open(dir.path()).unwrap();
    let error = Db::open(dir.path()).unwrap_err();
    let expected = cfg!(unix);
    assert!(matches!(error, Error::Locked { by_this_process, .. } if by_this_process == expected), "{error}");
}

#[test]
fn a_directory_of_other_people_is_refused_by_name_and_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["bin", "lib", "000012.sst", "local", "include", "share"] {
        fs::write(dir.path().join(name), "theirs").unwrap();
    }
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    let before = survey(dir.path());
    let error = Db::open(dir.path()).unwrap_err();
    let Error::OtherFiles { found, count, .. } = &error else { panic!("{error}") };
    assert_eq!((found.len(), *count), (5, 6), "{error}");
    assert!(error.to_string().contains("bin, include, lib, local, share and 1 more"), "{error}");
    assert_eq!(survey(dir.path()), before);
    let db = Options::new().create_among_other_files(true).open(dir.path()).unwrap();
    db.put("a", "b").unwrap();
    db.close().unwrap();
    assert!(Db::open(dir.path()).unwrap().contains("a").unwrap());
    for (path, len) in before.iter().filter(|(path, _)| path.is_file()) {
        assert_eq!(fs::read(path).unwrap().len() as u64, *len, "{}", path.display());
    }
    let root_of_a_disk = tempfile::tempdir().unwrap();
    fs::create_dir(root_of_a_disk.path().join("lost+found")).unwrap();
    Db::open(root_of_a_disk.path()).unwrap();
}

#[cfg(unix)]
#[test]
fn a_directory_that_cannot_be_made_is_an_error_and_no_stack_overflow() {
    let error = Db::open("/proc/sievedb/store").unwrap_err();
    assert!(matches!(error, Error::Io { op: "create", .. }), "{error}");
}

#[cfg(unix)]
#[test]
fn a_pipe_or_a_link_in_the_place_of_lock_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    Db::open(dir.path()).unwrap().close().unwrap();
    let lock = dir.path().join("LOCK");
    fs::remove_file(&lock).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&lock).status().unwrap();
    assert!(made.success());
    let start = Instant::now();
    let error = Db::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Io { op: "lock", .. }), "{error}");
    Options::new().read_only().open(dir.path()).unwrap();
    assert!(Options::new().verify(dir.path()).unwrap().damage.is_empty());
    fs::remove_file(&lock).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("made"), &lock).unwrap();
    assert!(Db::open(dir.path()).is_err());
    assert!(!elsewhere.path().join("made").exists());
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[cfg(unix)]
#[test]
fn a_store_whose_lock_was_removed_admits_no_writer_and_acknowledges_no_synced_write() {
    for threads in [0, 2] {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().background_threads(threads).open(dir.path()).unwrap();
        put_synced(&db, "before").unwrap();
        fs::remove_file(dir.path().join("LOCK")).unwrap();
        assert!(matches!(Db::open(dir.path()), Err(Error::Locked { .. })), "the directory is locked too");
        assert!(Options::new().read_only().open(dir.path()).unwrap().contains("before").unwrap());
        // Like a process that follows only the name.
        File::create(dir.path().join("LOCK")).unwrap();
        assert!(is_lost(put_synced(&db, "unseen")));
        assert!(is_lost(db.put("later", "value")) && is_lost(db.flush()) && is_lost(db.sync()));
        assert_eq!(db.get("before").unwrap().unwrap(), b"value".as_slice());
        let left = survey(dir.path());
        assert!(is_lost(db.close()));
        assert_eq!(survey(dir.path()), left, "closing touches nothing");
        assert!(Db::open(dir.path()).unwrap().contains("before").unwrap());
    }
}

#[cfg(unix)]
#[test]
fn a_store_whose_directory_was_moved_touches_neither_that_one_nor_the_new_one() {
    type Deed = fn(&Db) -> sievedb::Result<()>;
    let deeds: [(&str, Deed); 6] = [
        ("a synced write", |db| put_synced(db, "unseen")),
        ("sync", |db| db.put("x", "y").and_then(|()| db.sync())),
        ("flush", |db| db.put("x", "y").and_then(|()| db.flush())),
        ("compact", Db::compact),
        ("a new keyspace", |db| db.keyspace("new", KeyspaceOptions::default()).map(drop)),
        ("close", |db| db.clone().close()),
    ];
    for (what, deed) in deeds {
        let parent = tempfile::tempdir().unwrap();
        let (path, moved) = (parent.path().join("db"), parent.path().join("moved"));
        let db = Options::new().background_threads(0).open(&path).unwrap();
        for round in 0..3 {
            put_synced(&db, &format!("before {round}")).unwrap();
            db.flush().unwrap();
        }
        fs::rename(&path, &moved).unwrap();
        let other = Options::new().reserve_bytes(0).open(&path).unwrap();
        put_synced(&other, "theirs").unwrap();
        let (theirs, tables) = (survey(&path), |dir: &Path| {
            survey(dir)
                .into_iter()
                .filter(|(path, _)| path.extension().is_some_and(|end| end == "sst"))
                .count()
        });
        let before = tables(&moved);
        let done = deed(&db);
        assert!(is_lost(done.clone()), "{what}: {done:?}");
        assert_eq!(survey(&path), theirs, "{what}");
        assert!(tables(&moved) >= before, "{what} removed a table");
        if what != "close" {
            assert!(db.get("before 0").unwrap().is_some(), "{what}: reads go on");
        }
        drop(db);
        assert_eq!(survey(&path), theirs, "{what}, then dropped");
        drop(other);
        assert!(Db::open(&path).unwrap().contains("theirs").unwrap());
        let found = Db::open(&moved).unwrap();
        assert!((0..3).all(|round| found.contains(format!("before {round}")).unwrap()), "{what}");
    }
}

fn grow(path: &Path, len: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_grown_to_a_tebibyte_keeps_neither_opening_nor_verifying_busy() {
    let made = tempfile::tempdir().unwrap();
    let db = Options::new().background_threads(0).open(made.path()).unwrap();
    let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
    // The entry of the other keyspace keeps the closed log in use.
    other.put("k", "v").unwrap();
    put_synced(&db, "in a table").unwrap();
    db.default_keyspace().flush().unwrap();
    put_synced(&db, "in the log").unwrap();
    let files: Vec<_> = survey(made.path()).into_iter().map(|(path, _)| path).collect();
    let logs = files.iter().filter(|path| path.extension().is_some_and(|end| end == "wal")).count();
    assert_eq!(logs, 2, "{files:?}");
    for file in &files {
        let name = file.file_name().unwrap();
        let dir = tempfile::tempdir().unwrap();
        files
            .iter()
            .for_each(|path| assert!(fs::copy(path, dir.path().join(path.file_name().unwrap())).is_ok()));
        fs::write(dir.path().join("000999.wal"), b"a stray").unwrap();
        grow(&dir.path().join("000999.wal"), 1 << 40);
        grow(&dir.path().join(name), 1 << 40);
        let start = Instant::now();
        let verified = Options::new().verify(dir.path()).unwrap();
        let opened = Options::new().open(dir.path());
        let took = start.elapsed();
        assert!(took < Duration::from_secs(10), "{name:?} took {took:?}");
        let name = name.to_str().unwrap();
        if name == "CURRENT" || name.ends_with(".sst") {
            assert!(!verified.damage.is_empty(), "{name} has one length");
            continue;
        }
        let db = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(db.contains("in a table").unwrap() && db.contains("in the log").unwrap(), "{name}");
        assert!(verified.damage.is_empty(), "{name}: {:?}", verified.damage);
        let is_told = name != "LOCK" && !name.ends_with(".wal");
        assert_eq!(!verified.dropped.is_empty(), is_told, "{name}");
    }
}

const DEEP: &str = "/a/b/db";

fn in_memory(fs: &MemFs) -> Options {
    Options::new().fs(Arc::new(fs.clone())).background_threads(0)
}

fn survives(fs: &MemFs) -> bool {
    let db = in_memory(fs).open(DEEP).unwrap();
    put_synced(&db, "k").unwrap();
    let image = fs.crash(CrashPolicy::DropUnsynced);
    in_memory(&image).create_if_missing(false).open(DEEP).is_ok_and(|db| db.contains("k").unwrap())
}

#[test]
fn a_synced_write_survives_a_power_loss_whoever_made_the_directories() {
    for made in ["/", "/a", "/a/b", DEEP] {
        let fs = MemFs::new();
        fs.create_dir(Path::new(made)).unwrap();
        assert!(survives(&fs), "{made} was there, and not durable");
    }
}

#[test]
fn a_synced_write_survives_a_power_loss_after_a_creation_that_was_interrupted_anywhere() {
    for at in 0.. {
        let fs = MemFs::new();
        let (failed, count) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
        let was = Arc::clone(&failed);
        fs.observe(move |_, _| match count.fetch_add(1, Ordering::SeqCst) {
            now if now == at => {
                was.store(1, Ordering::SeqCst);
                Err(io::Error::from(io::ErrorKind::Other))
            }
            _ => Ok(()),
        });
        let _ = in_memory(&fs).open(DEEP);
        fs.stop_observing();
        if failed.load(Ordering::SeqCst) == 0 {
            assert!(at > 10);
            break;
        }
        assert!(survives(&fs), "operation {at} of the first opening failed");
    }
}

#[test]
fn a_repair_into_a_directory_that_is_there_is_durable_when_it_is_done() {
    let fs = MemFs::new();
    let db = in_memory(&fs).open("/old").unwrap();
    put_synced(&db, "k").unwrap();
    db.close().unwrap();
    fs.create_dir(Path::new(DEEP)).unwrap();
    assert!(in_memory(&fs).repair("/old", DEEP).unwrap().is_complete());
    let image = fs.crash(CrashPolicy::DropUnsynced);
    assert!(in_memory(&image).create_if_missing(false).open(DEEP).unwrap().contains("k").unwrap());
}

fn refuse_syncs(fs: &MemFs, of: Option<&'static str>, error: impl Fn() -> io::Error + Send + Sync + 'static) {
    fs.observe(move |_, op| match op {
        Op::SyncDir(dir) if of.is_none_or(|of| dir == Path::new(of)) => Err(error()),
        _ => Ok(()),
    });
}

#[test]
fn a_parent_that_cannot_be_synced_is_named_each_time() {
    let fs = MemFs::new();
    refuse_syncs(&fs, Some("/a/b"), || io::ErrorKind::PermissionDenied.into());
    for _ in 0..2 {
        let error = in_memory(&fs).open(DEEP).unwrap_err();
        let is_named = |path: &Path| path == Path::new("/a/b");
        assert!(matches!(&error, Error::Io { op: "sync", path, .. } if is_named(path)), "{error}");
    }
    fs.stop_observing();
    assert!(survives(&fs));
}

#[test]
fn a_file_system_that_syncs_no_directories_is_used_and_reported() {
    let fs = MemFs::new();
    assert!(!in_memory(&fs).open("/synced").unwrap().open_report().directory_syncs_refused);
    for kind in [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported] {
        let fs = MemFs::new();
        refuse_syncs(&fs, None, move || kind.into());
        let db = in_memory(&fs).open(DEEP).unwrap();
        assert!(db.open_report().created && db.open_report().directory_syncs_refused);
        put_synced(&db, "k").unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
        db.put("l", "v").unwrap();
        let image = fs.crash(CrashPolicy::KeepAll);
        refuse_syncs(&image, None, move || kind.into());
        let again = in_memory(&image).open(DEEP).unwrap();
        assert!(again.open_report().directory_syncs_refused && again.contains("l").unwrap());
    }
}
