//! A store of many tables under a low limit of open files.
//!
//! The test runs itself as a process under a limit set by the shell, and counts the open files of that process.

use std::process::Command;

use sievedb::{Db, Options};

use crate::support::store;

const TABLES: u32 = 60;
const OPEN_FILES_MAX: usize = 8;
/// Allows three streams, the lock, a log, a manifest and a table being written, the directory, cached tables, and some
/// files of the test.
const LIMIT: usize = 40;
const CHILD: &str = "SIEVEDB_TEST_FEW_FILES";
const NAME: &str = "fd::many_tables_are_read_and_written_under_a_low_limit_of_open_files";

fn open_now() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count())
}

fn read_all(db: &Db, before: usize) {
    let check = || {
        let open = open_now();
        assert!(open <= before + OPEN_FILES_MAX + 6, "{open} files are open, {before} were before");
        assert!(db.stats().open_files <= OPEN_FILES_MAX as u64);
    };
    for n in 0..TABLES {
        for key in [n, 1000 + n] {
            assert_eq!(db.get(key.to_be_bytes()).unwrap().unwrap()[..], [n as u8; 100], "{key}");
        }
        assert!(!db.contains((500 + n).to_be_bytes()).unwrap());
        check();
    }
    let (mut forward, mut backward) = (db.iter(), db.iter().rev());
    for _ in 0..2 * TABLES {
        forward.next().unwrap().unwrap();
        backward.next().unwrap().unwrap();
        check();
    }
    assert!(forward.next().is_none() && backward.next().is_none());
}

fn work(threads: usize) {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = store::small().l0_runs(1000).memtable_bytes(1 << 20);
        let options = Options::new().open_files_max(OPEN_FILES_MAX).default_keyspace(options);
        options.background_threads(threads).open(dir.path()).unwrap()
    };
    let before = open_now();
    let db = open();
    for n in 0..TABLES {
        db.put(n.to_be_bytes(), [n as u8; 100]).unwrap();
        db.put((1000 + n).to_be_bytes(), [n as u8; 100]).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(db.stats().keyspaces[0].total().tables, u64::from(TABLES));
    read_all(&db, before);
    drop(db);
    let db = open();
    read_all(&db, before);
    let seen = db.snapshot();
    db.compact().unwrap();
    assert!(db.stats().keyspaces[0].total().tables < 10);
    read_all(&db, before);
    assert_eq!(seen.iter().count(), 2 * TABLES as usize);
    assert!(db.verify().unwrap().damage.is_empty());
}

fn use_up_files() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

fn work_without_room(threads: usize) {
    let dir = tempfile::tempdir().unwrap();
    let options = store::small().l0_runs(1000).memtable_bytes(1 << 20);
    let options = Options::new().open_files_max(LIMIT).default_keyspace(options);
    let db = options.background_threads(threads).open(dir.path()).unwrap();
    for n in 0..TABLES {
        db.put(n.to_be_bytes(), [n as u8; 100]).unwrap();
        db.flush().unwrap();
    }
    let all = || assert_eq!(db.iter().filter(|item| item.is_ok()).count(), TABLES as usize);
    all();
    let held = use_up_files();
    for n in 0..TABLES {
        assert!(db.contains(n.to_be_bytes()).unwrap(), "{n}");
    }
    for _ in 0..3 {
        db.put(0_u32.to_be_bytes(), "again").unwrap();
        db.flush().unwrap();
    }
    db.compact().unwrap();
    assert!(db.verify().unwrap().damage.is_empty());
    let stats = db.stats();
    assert_eq!((stats.unusable_filters, stats.keyspaces[0].total().set_aside_tables), (0, 0));
    drop(held);
    all();
}

fn defaults_fit() {
    let dir = tempfile::tempdir().unwrap();
    let options = store::small().l0_runs(1000).memtable_bytes(1 << 20);
    let db = Options::new().default_keyspace(options).background_threads(0).open(dir.path()).unwrap();
    for n in 0..TABLES {
        db.put(n.to_be_bytes(), "v").unwrap();
        db.flush().unwrap();
    }
    assert_eq!(db.iter().count(), TABLES as usize);
    assert!(db.stats().open_files <= (LIMIT / 4) as u64, "{}", db.stats().open_files);
}

fn read_next_to_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let options = store::small().l0_runs(1000).memtable_bytes(1 << 20);
    let options =
        Options::new().open_files_max(OPEN_FILES_MAX).default_keyspace(options).background_threads(0);
    let db = options.open(dir.path()).unwrap();
    for n in 0..TABLES {
        db.put(n.to_be_bytes(), [n as u8; 100]).unwrap();
        db.flush().unwrap();
    }
    let before = open_now();
    let view = Options::new().read_only().open(dir.path()).unwrap();
    // Half of the limit is for tables; a manifest and logs are open too.
    assert!((LIMIT / 2..LIMIT / 2 + 5).contains(&(open_now() - before)), "{} files", open_now() - before);
    assert_eq!(view.iter().filter(|item| item.is_ok()).count(), TABLES as usize);
    drop(view);
    let mut held = use_up_files();
    let error = Options::new().read_only().open(dir.path()).unwrap_err();
    assert!(error.to_string().contains(&format!("over the limit of {LIMIT}")), "{error}");
    held.truncate(held.len().saturating_sub(12));
    let view = Options::new().read_only().open(dir.path()).unwrap();
    assert_eq!(view.iter().filter(|item| item.is_ok()).count(), TABLES as usize);
    drop((view, held));
}

fn removed_and_open(dir: &std::path::Path) -> usize {
    let is_removed = |entry: std::io::Result<std::fs::DirEntry>| {
        let target = entry.ok().and_then(|entry| std::fs::read_link(entry.path()).ok());
        target
            .is_some_and(|target| target.starts_with(dir) && target.to_string_lossy().ends_with("(deleted)"))
    };
    std::fs::read_dir("/proc/self/fd").unwrap().map(is_removed).filter(|&removed| removed).count()
}

#[test]
fn a_view_keeps_removed_files_open_until_the_last_handle_of_that_moment_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().background_threads(0).default_keyspace(store::small());
    let db = options.open(dir.path()).unwrap();
    let write = |value: u8| {
        (0..600_u32).for_each(|n| db.put(n.to_be_bytes(), [value; 100]).unwrap());
        db.compact().unwrap();
    };
    write(1);
    let mut view = Options::new().read_only().open(dir.path()).unwrap();
    assert_eq!(removed_and_open(dir.path()), 0);
    view.open_tables().unwrap();
    write(2);
    assert!(removed_and_open(dir.path()) > 5);
    let snapshot = view.snapshot();
    assert!(view.refresh().unwrap());
    assert!(view.iter().all(|item| item.unwrap().1[..] == [2; 100]));
    assert!(snapshot.iter().all(|item| item.unwrap().1[..] == [1; 100]), "the snapshot reads removed files");
    assert!(removed_and_open(dir.path()) > 5);
    drop(snapshot);
    assert_eq!(removed_and_open(dir.path()), 0, "nothing needs them any more");
}

#[test]
fn many_tables_are_read_and_written_under_a_low_limit_of_open_files() {
    if std::env::var_os(CHILD).is_some() {
        assert!(open_now() > 0, "open files can be counted");
        [0, 2].into_iter().for_each(work);
        [0, 2].into_iter().for_each(work_without_room);
        defaults_fit();
        read_next_to_a_writer();
        return;
    }
    let program = std::env::current_exe().unwrap();
    let limited = format!("ulimit -n {LIMIT} && exec \"$0\" --exact {NAME} --test-threads 1 --nocapture");
    let output = Command::new("sh").arg("-c").arg(limited).arg(program).env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
