//! A repository in memory next to a small store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use sievedb::fs::{Fs, MemFs};
use sievedb::{Db, Options};
use sievedb_backup::{BackupReport, Control, Repository, Restore, RestoreReport};

use crate::support::copies;
pub(crate) use crate::support::copies::path_of;
use crate::support::store::{self, Contents, open_at};

pub(crate) const REPO: &str = "/repo";
pub(crate) const RESTORED: &str = "/restored";
pub(crate) const INCOMPLETE: &str = "/restored.restore-incomplete";

/// Set by tests; each reading adds a millisecond.
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
    repository_with(Arc::new(fs.clone()), dir, clock)
}

pub(crate) fn repository_with(fs: Arc<dyn Fs>, dir: &str, clock: &Clock) -> Repository {
    let clock = clock.clone();
    let repository = Repository::create_with(fs, dir).unwrap();
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

/// Must be sound.
pub(crate) fn sound(fs: &MemFs, dir: &str) -> Contents {
    copies::sound(fs, dir).unwrap_or_else(|error| panic!("{error}"))
}

/// Ignores logs that a repair left over.
pub(crate) fn sound_after_repair(fs: &MemFs, dir: &str) -> Contents {
    let db = open_at(fs, dir).unwrap_or_else(|error| panic!("{dir} does not open: {error}"));
    let report = db.open_report();
    assert!(report.ignored.iter().all(|file| file.why == "left over"), "{dir}: {report:?}");
    copies::read_all(&db, dir).unwrap_or_else(|error| panic!("{error}"))
}

/// Removes the restored store again.
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

/// With files of every kind, all durable.
pub(crate) fn prepared(fs: &MemFs) -> Db {
    let db = copies::prepared(fs);
    db.sync().unwrap();
    db
}

/// In the first block of the longest one in the repository.
pub(crate) fn damage_a_table(fs: &MemFs) -> PathBuf {
    let files = fs.files(&Path::new(REPO).join("files")).into_iter();
    let (path, mut bytes) = files.filter(|(_, bytes)| bytes[8] == 1).max_by_key(|file| file.1.len()).unwrap();
    bytes[100] ^= 1;
    fs.overwrite(&path, bytes);
    path
}

/// Makes new tables, a shorter log, another keyspace.
pub(crate) fn change(db: &Db) {
    for n in 0..20_u32 {
        db.put(n.to_be_bytes(), [3; 100]).unwrap();
    }
    db.flush().unwrap();
    db.keyspace("new", store::small()).unwrap().put("new", "entry").unwrap();
    db.put("in the", "log").unwrap();
    db.sync().unwrap();
}

pub(crate) fn names(fs: &MemFs, dir: &str) -> Vec<String> {
    let all = fs.files(&Path::new(REPO).join(dir));
    all.into_iter().map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}
