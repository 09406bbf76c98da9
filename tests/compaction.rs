use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use sievedb::fs::{MemFs, Op};
use sievedb::{Compression, Db, Error, FilterKind, FilterPolicy, KeyspaceOptions, Options, Progress};

use crate::support::store::{self, DIR};

const KEYS: u32 = 6000;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn is_again(n: u32) -> bool {
    (n / 100).is_multiple_of(5)
}

/// Without filters, a table's length depends only on its entries.
fn plain() -> KeyspaceOptions {
    let filter = FilterPolicy::new(FilterKind::None);
    store::small().memtable_bytes(8 << 10).filter(filter).compression(Compression::None)
}

fn levels(fs: &MemFs) -> Db {
    let db = store::options(fs).default_keyspace(plain()).open(DIR).unwrap();
    (0..KEYS).for_each(|n| db.put(key(n), [7; 100]).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    (0..KEYS).filter(|n| is_again(*n)).for_each(|n| db.put(key(n), [8; 100]).unwrap());
    db.flush().unwrap();
    db
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "sst")
}

fn tables_bytes(fs: &MemFs) -> u64 {
    let tables = fs.files(Path::new(DIR)).into_iter().filter(|(path, _)| is_table(path));
    tables.map(|(_, bytes)| bytes.len() as u64).sum()
}

fn check(db: &Db) {
    for n in 0..KEYS {
        let expected = if is_again(n) { &[8; 100] } else { &[7; 100] };
        assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&expected[..]), "{n}");
    }
    assert!(db.verify().unwrap().damage.is_empty());
}

#[test]
fn level_0_never_has_more_than_three_times_the_runs_that_make_it_worth_compacting() {
    for threads in [0, 1, 2, 4] {
        let fs = MemFs::new();
        let most = KeyspaceOptions::new().memtable_bytes(16 << 10).l0_runs(4);
        let options = store::options(&fs).background_threads(threads).default_keyspace(most);
        let db = options.open(DIR).unwrap();
        let runs = Arc::new(AtomicU64::new(0));
        let (seen, store) = (Arc::clone(&runs), db.clone());
        fs.observe(move |_, op| {
            if matches!(op, Op::Create(path) if is_table(path)) {
                seen.fetch_max(store.stats().keyspaces[0].levels[0].runs, Ordering::Relaxed);
            }
            Ok(())
        });
        std::thread::scope(|scope| {
            for writer in 0..4u32 {
                let db = &db;
                scope.spawn(move || {
                    for n in 0..10_000u32 {
                        let key = (n * 4 + writer).wrapping_mul(2_654_435_761);
                        db.put(key.to_be_bytes(), [7; 100]).unwrap();
                    }
                });
            }
        });
        fs.stop_observing();
        let most = runs.load(Ordering::Relaxed);
        assert!((4..=12).contains(&most), "{most} runs with {threads} threads");
    }
}

#[test]
fn compacting_everything_takes_little_additional_space_and_makes_one_run() {
    let fs = MemFs::new();
    let db = levels(&fs);
    let before = tables_bytes(&fs);
    let most = Arc::new(AtomicU64::new(0));
    let peak = Arc::clone(&most);
    fs.observe(move |fs, op| {
        if matches!(op, Op::SyncDir(_) | Op::Remove(_)) {
            peak.fetch_max(tables_bytes(fs), Ordering::Relaxed);
        }
        Ok(())
    });
    let progress = Progress::new();
    db.compact_with(&progress).unwrap();
    fs.stop_observing();
    assert!(progress.bytes() > 0 && progress.bytes_done() == progress.bytes());
    let total = db.stats().keyspaces[0].total();
    assert_eq!((total.runs, total.entries, total.tombstones), (1, u64::from(KEYS), 0));
    let more = most.load(Ordering::Relaxed) - before;
    assert!(more < before / 4, "{more} bytes beside {before}");
    check(&db);
    let files = store::files(&fs).len();
    db.compact().unwrap();
    assert_eq!(store::files(&fs).len(), files, "there is nothing left to do");
}

#[test]
fn a_cancelled_compaction_keeps_its_finished_tables_and_leaves_nothing_else() {
    let fs = MemFs::new();
    let db = levels(&fs);
    let progress = Progress::new();
    let (cancels, made) = (progress.clone(), AtomicU64::new(0));
    let half = db.stats().keyspaces[0].total().tables / 2;
    fs.observe(move |_, op| {
        let is_new_table = matches!(op, Op::Create(path) if is_table(path));
        if is_new_table && made.fetch_add(1, Ordering::Relaxed) == half {
            cancels.cancel();
        }
        Ok(())
    });
    assert!(matches!(db.compact_with(&progress), Err(Error::Cancelled)));
    fs.stop_observing();
    assert!(progress.bytes_done() > 0 && progress.bytes_done() < progress.bytes());
    check(&db);
    let tables = store::files(&fs).keys().filter(|name| is_table(Path::new(name))).count();
    assert_eq!(tables as u64, db.stats().keyspaces[0].total().tables, "no files of the task it was at");
    db.put("later", "v").unwrap();
    db.compact().unwrap();
    assert_eq!(db.stats().keyspaces[0].total().runs, 1);
    check(&db);
}

#[test]
fn compacting_a_range_drops_the_entries_deleted_there() {
    let fs = MemFs::new();
    let db = levels(&fs);
    let held = db.snapshot();
    (1000..2000).for_each(|n| db.delete(key(n)).unwrap());
    db.flush().unwrap();
    drop(held);
    let tables = || store::files(&fs).into_keys().filter(|name| is_table(Path::new(name)));
    let before: HashSet<String> = tables().collect();
    db.compact_range(key(1000)..key(2000)).unwrap();
    let after = tables().count();
    let kept = tables().filter(|name| before.contains(name)).count();
    assert!(
        after < before.len() && kept > before.len() / 2,
        "{kept} of {} tables, {after} now",
        before.len()
    );
    assert_eq!(db.stats().keyspaces[0].total().tombstones, 0);
    assert_eq!(db.iter().count(), KEYS as usize - 1000);
    db.compact_range(key(KEYS)..).unwrap();
    assert!(db.verify().unwrap().damage.is_empty());
}

#[test]
fn compacting_continues_during_writes_and_background_work() {
    let fs = MemFs::new();
    let options = Options::new().fs(Arc::new(fs)).memory_budget(1 << 20).background_threads(2);
    let db = options.default_keyspace(store::small()).open(DIR).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0..KEYS).for_each(|n| db.put(key(n.reverse_bits() >> 16), n.to_le_bytes()).unwrap());
        });
        while !writer.is_finished() {
            db.compact().unwrap();
            db.compact_range(key(100)..key(200)).unwrap();
        }
    });
    db.compact().unwrap();
    let stats = db.stats();
    let (keyspace, total) = (&stats.keyspaces[0], stats.keyspaces[0].total());
    assert_eq!((keyspace.memtable_entries, total.runs, total.entries), (0, 1, u64::from(KEYS)));
    let expected: std::collections::BTreeSet<_> = (0..KEYS).map(|n| key(n.reverse_bits() >> 16)).collect();
    assert!(db.iter().map(|item| item.unwrap().0.to_vec()).eq(expected.iter().map(|key| key.to_vec())));
}

fn hold_first_table(fs: &MemFs) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (reaches, reached) = mpsc::channel();
    let (opens, gate) = mpsc::channel::<()>();
    let held = Mutex::new(Some((reaches, gate)));
    fs.observe(move |_, op| {
        if matches!(op, Op::Create(path) if is_table(path)) {
            let held = held.lock().unwrap().take();
            if let Some((reaches, gate)) = held {
                reaches.send(()).unwrap();
                let _ = gate.recv();
            }
        }
        Ok(())
    });
    (reached, opens)
}

#[test]
fn compacting_waits_for_tables_that_a_background_job_has_reserved() {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    for round in 0..4u8 {
        (0..5).for_each(|n| db.put(key(n), [round; 40]).unwrap());
        db.flush().unwrap();
    }
    assert_eq!(db.stats().keyspaces[0].levels[0].runs, 4);
    let (reached, opens) = hold_first_table(&fs);
    std::thread::scope(|scope| {
        let background = scope.spawn(|| db.settle());
        reached.recv_timeout(Duration::from_secs(60)).expect("the background makes a table");
        let ((ends, ended), caller) = (mpsc::channel(), &db);
        let caller = scope.spawn(move || {
            let compacted = caller.compact();
            ends.send(()).unwrap();
            compacted
        });
        let has_waited = ended.recv_timeout(Duration::from_millis(100)).is_err();
        drop(opens);
        background.join().unwrap().unwrap();
        assert!(has_waited, "it takes the tables of another job");
        caller.join().unwrap().unwrap();
    });
    let total = db.stats().keyspaces[0].total();
    assert_eq!((total.runs, total.entries), (1, 5));
    assert!((0..5).all(|n| db.get(key(n)).unwrap().as_deref() == Some(&[3; 40])));
    assert!(db.verify().unwrap().damage.is_empty());
}

fn append(db: &Db, stream: &str) {
    db.put(format!("{stream}1"), "old").unwrap();
    let snapshot = db.snapshot();
    ["1", "2"].into_iter().for_each(|end| db.put(format!("{stream}{end}"), "new").unwrap());
    db.flush().unwrap();
    drop(snapshot);
}

fn append_during_compaction(of_level_1: &[&str], of_level_0: &[&str], meanwhile: &[&str]) {
    let fs = MemFs::new();
    let keyspace = || store::small().l0_runs(1).level_base_bytes(64 << 10);
    let options = || store::options(&fs).default_keyspace(keyspace());
    let db = options().open(DIR).unwrap();
    for stream in of_level_1 {
        append(&db, stream);
        while db.step().unwrap() {}
    }
    of_level_0.iter().for_each(|stream| append(&db, stream));
    let tables = |level: usize| db.stats().keyspaces[0].levels[level].tables as usize;
    assert_eq!((tables(0), tables(1)), (of_level_0.len(), of_level_1.len()));
    let (reached, opens) = hold_first_table(&fs);
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| db.compact());
        reached.recv_timeout(Duration::from_secs(60)).expect("the compaction makes a table");
        for stream in meanwhile {
            append(&db, stream);
            while db.step().unwrap() {}
        }
        drop(opens);
        compacting.join().unwrap().unwrap();
    });
    fs.stop_observing();
    let check = |db: &Db| {
        for stream in [of_level_1, of_level_0, meanwhile].concat() {
            for key in ["1", "2"].map(|end| format!("{stream}{end}")) {
                assert_eq!(db.get(&key).unwrap().as_deref(), Some(&b"new"[..]), "{key}");
            }
        }
        assert!(db.verify().unwrap().damage.is_empty());
    };
    check(&db);
    while db.step().unwrap() {}
    check(&db);
    db.close().unwrap();
    check(&options().open(DIR).unwrap());
}

#[test]
fn streams_appended_during_a_compaction_keep_every_key_and_the_store_opens_again() {
    append_during_compaction(&["a", "z"], &[], &["m", "n", "o", "p"]);
    append_during_compaction(&["a", "e", "s", "z"], &["a", "z"], &["m", "n", "o", "p"]);
}

#[test]
fn a_large_task_is_split_over_idle_threads_and_published_once() {
    let fs = MemFs::new();
    let keyspace = KeyspaceOptions::new().memtable_bytes(2 << 20).table_bytes(2 << 10).l0_runs(100);
    let options = Options::new().fs(Arc::new(fs.clone())).background_threads(4).default_keyspace(keyspace);
    let db = options.open(DIR).unwrap();
    for round in 0..2u8 {
        (0..KEYS).for_each(|n| db.put(key(n), [round; 40]).unwrap());
        db.flush().unwrap();
    }
    db.put(key(1), "newest").unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    let before = db.stats().compactions;
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&threads);
    fs.observe(move |_, op| {
        if matches!(op, Op::Create(path) if is_table(path)) {
            seen.lock().unwrap().insert(std::thread::current().id());
        }
        Ok(())
    });
    db.compact().unwrap();
    fs.stop_observing();
    assert!(threads.lock().unwrap().len() > 1, "one thread did it all");
    assert_eq!(db.stats().compactions - before, 1);
    let total = db.stats().keyspaces[0].total();
    assert_eq!((total.runs, total.entries, total.tombstones), (1, u64::from(KEYS), 0));
    for n in 0..KEYS {
        let expected = if n == 1 { &b"newest"[..] } else { &[1; 40] };
        assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(expected), "{n}");
    }
    assert!(db.verify().unwrap().damage.is_empty());
}
