//! A repository in memory next to a small store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use sievedb::fs::{Fs, MemFs, Op};
use sievedb::{Db, FilterKind, FilterPolicy, Options};
use sievedb_backup::{BackupReport, Control, Repository, Restore, RestoreReport};

use crate::support::store::{self, Contents, contents, examine, open_at};
use crate::support::workload::universe;

pub(crate) const REPO: &str = "/repo";
pub(crate) const RESTORED: &str = "/restored";
pub(crate) const INCOMPLETE: &str = "/restored.restore-incomplete";

/// Milliseconds since 1970, which a test sets. Each look at it is a millisecond later.
#[derive(Clone)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_795_678_105_123)))
    }

    pub(crate) fn set_back(&self, seconds: u64) {
        self.0.fetch_sub(seconds * 1000, Ordering::SeqCst);
    }

    pub(crate) fn pass(&self, seconds: u64) {
        self.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
}

pub(crate) fn repository_at(fs: &MemFs, dir: &str, clock: &Clock) -> Repository {
    let clock = clock.clone();
    let repository = Repository::create_with(Arc::new(fs.clone()), dir).unwrap();
    repository.clock(move || UNIX_EPOCH + Duration::from_millis(clock.0.fetch_add(1, Ordering::SeqCst)))
}

pub(crate) fn repository(fs: &MemFs, clock: &Clock) -> Repository {
    repository_at(fs, REPO, clock)
}

pub(crate) fn backed_up(repository: &Repository, db: &Db) -> BackupReport {
    let report = repository.backup(db, &mut Control::new()).unwrap();
    assert_eq!(report.backup.missing, 0);
    report
}

pub(crate) fn restore_with(
    repository: &Repository,
    restore: Restore,
) -> sievedb_backup::Result<RestoreReport> {
    // Small buffers.
    let options = Options::new().memory_budget(1 << 20);
    repository.restore(RESTORED, &restore.options(options), &mut Control::new())
}

pub(crate) fn remove(fs: &MemFs, dir: &str) {
    fs.files(Path::new(dir)).iter().for_each(|(path, _)| fs.remove(path).unwrap());
    fs.remove_dir(Path::new(dir)).unwrap();
}

/// Opens a store that must be sound, and reads everything in it.
pub(crate) fn sound(fs: &MemFs, dir: &str) -> Contents {
    let db = open_at(fs, dir).unwrap_or_else(|error| panic!("{dir} does not open: {error}"));
    assert!(db.open_report().ignored.is_empty(), "{dir}: {:?}", db.open_report());
    drop(db);
    sound_after_repair(fs, dir)
}

/// The same for a store that a repair has made: logs may be left over.
pub(crate) fn sound_after_repair(fs: &MemFs, dir: &str) -> Contents {
    let db = open_at(fs, dir).unwrap_or_else(|error| panic!("{dir} does not open: {error}"));
    let report = db.open_report();
    let are_left_over = report.ignored.iter().all(|file| file.why == "left over");
    assert!(report.dropped.is_empty() && are_left_over, "{dir}: {report:?}");
    let found = contents(&db).unwrap();
    let findings = examine(&db, &found, &universe()).unwrap();
    assert!(findings.is_sound(), "{dir}: {findings:?}");
    found
}

/// Restores a backup, and removes the restored store again.
pub(crate) fn restored(fs: &MemFs, repository: &Repository, id: &str) -> Contents {
    let report =
        restore_with(repository, Restore::new().at(id)).unwrap_or_else(|error| panic!("{id}: {error}"));
    assert!(report.damage.is_empty() && report.repair.is_none());
    assert!(is_absent(fs, INCOMPLETE));
    let found = sound(fs, RESTORED);
    remove(fs, RESTORED);
    found
}

pub(crate) fn is_absent(fs: &MemFs, dir: &str) -> bool {
    fs.list(Path::new(dir)).is_err() && fs.files(Path::new(dir)).is_empty()
}

/// A store with tables, filters in files of their own, closed logs, and entries in the log in use.
pub(crate) fn prepared(fs: &MemFs) -> Db {
    let db = store::open(fs).unwrap();
    let side = db.keyspace("side", store::small()).unwrap();
    for n in 0..120_u32 {
        db.put(n.to_be_bytes(), [7; 100]).unwrap();
        if n % 40 == 0 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    db.refilter(FilterPolicy::new(FilterKind::Ribbon).bits_per_key(12.0)).unwrap();
    // The entry of the other keyspace keeps the logs that follow.
    side.put("old", "entry").unwrap();
    for n in 0..80_u32 {
        db.put((n * 3).to_be_bytes(), [9; 100]).unwrap();
        while db.step().unwrap() {}
    }
    db.put("last", "entry").unwrap();
    db.sync().unwrap();
    db
}

/// Changes some of it: new tables, a shorter log, another keyspace.
pub(crate) fn change(db: &Db) {
    for n in 0..20_u32 {
        db.put(n.to_be_bytes(), [3; 100]).unwrap();
    }
    db.flush().unwrap();
    db.keyspace("new", store::small()).unwrap().put("new", "entry").unwrap();
    db.put("in the", "log").unwrap();
    db.sync().unwrap();
}

pub(crate) fn path_of<'a>(op: &Op<'a>) -> &'a Path {
    match *op {
        Op::CreateDir(path)
        | Op::SyncDir(path)
        | Op::Create(path)
        | Op::Append(path, _)
        | Op::SetLen(path, _)
        | Op::Sync(path)
        | Op::Remove(path)
        | Op::RemoveDir(path)
        | Op::Rename(path, _)
        | Op::HardLink(_, path) => path,
        _ => unreachable!("a new operation"),
    }
}

/// The files in a directory of the repository.
pub(crate) fn names(fs: &MemFs, dir: &str) -> Vec<String> {
    let all = fs.files(&Path::new(REPO).join(dir));
    all.into_iter().map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}
