use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use sievedb::filter::{FilterKind, FilterPolicy};
use sievedb::fs::{CrashPolicy, MemFs, Op};
use sievedb::{Db, Error, KeyspaceOptions, Options};

const DIR: &str = "/db";

const PATIENCE: Duration = Duration::from_secs(180);

fn options(fs: &MemFs) -> Options {
    Options::new().fs(Arc::new(fs.clone())).background_threads(0).memory_budget(1 << 20)
}

fn ends_with(path: &Path, end: &str) -> bool {
    path.to_string_lossy().ends_with(end)
}

#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |open| !*open).unwrap());
    }
}

fn ends<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(run()));
    result.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} does not end"))
}

#[test]
fn a_writer_that_waits_for_a_flush_goes_on_when_the_keyspace_is_dropped() {
    let fs = MemFs::new();
    let db = options(&fs).background_threads(2).open(DIR).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::new().memtable_bytes(2000)).unwrap();
    let (gate, reached) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (held, arrived) = (Arc::clone(&gate), Arc::clone(&reached));
    fs.observe(move |_, op| {
        if matches!(op, Op::Create(path) if ends_with(path, ".sst")) {
            arrived.open();
            held.pass();
        }
        Ok(())
    });
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let written = (0..200_u32).try_for_each(|n| keyspace.put(n.to_be_bytes(), [7; 500]));
        done.send(written)
    });
    reached.pass();
    thread::sleep(Duration::from_millis(300));
    db.drop_keyspace("k").unwrap();
    gate.open();
    let written = ended.recv_timeout(PATIENCE).expect("the writer goes on");
    assert!(matches!(written, Ok(()) | Err(Error::KeyspaceDropped { .. })), "{written:?}");
    ends("a put elsewhere", move || db.put("a", "b")).unwrap();
}

#[test]
fn options_that_are_set_while_their_keyspace_is_dropped_harm_nothing_else() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::new()).unwrap();
    let setting = Arc::new(Mutex::new(None));
    let (slot, once) = (Arc::clone(&setting), AtomicBool::new(false));
    fs.observe(move |_, op| {
        if matches!(op, Op::Sync(path) if path.to_string_lossy().contains("MANIFEST"))
            && !once.swap(true, Ordering::SeqCst)
        {
            let keyspace = keyspace.clone();
            let set = move || keyspace.set_options(KeyspaceOptions::new().l0_runs(2));
            *slot.lock().unwrap() = Some(thread::spawn(set));
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    });
    db.drop_keyspace("k").unwrap();
    let set = setting.lock().unwrap().take().unwrap().join().unwrap();
    assert!(matches!(set, Err(Error::KeyspaceDropped { .. })), "{set:?}");
    db.put("a", "b").unwrap();
}

#[test]
fn new_filters_requested_while_options_are_set_keep_those_options() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::new()).unwrap();
    let policy = FilterPolicy::new(FilterKind::Bloom).bits_per_key(7.0);
    let refiltering = Arc::new(Mutex::new(None));
    let (slot, other) = (Arc::clone(&refiltering), Mutex::new(Some(keyspace.clone())));
    fs.observe(move |_, op| {
        if matches!(op, Op::Sync(path) if path.to_string_lossy().contains("MANIFEST"))
            && let Some(keyspace) = other.lock().unwrap().take()
        {
            *slot.lock().unwrap() = Some(thread::spawn(move || keyspace.refilter(policy)));
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    });
    let set = KeyspaceOptions::new().l0_runs(2);
    keyspace.set_options(set.clone()).unwrap();
    refiltering.lock().unwrap().take().unwrap().join().unwrap().unwrap();
    assert_eq!(keyspace.options(), set.clone().filter(policy));
    drop((keyspace, db));
    fs.stop_observing();
    let db = options(&fs).open(DIR).unwrap();
    assert_eq!(db.existing_keyspace("k").unwrap().options(), set.filter(policy), "and on the disk");
}

#[test]
fn closing_waits_for_a_running_compaction_and_the_next_open_finds_its_tables() {
    let fs = MemFs::new();
    let small = KeyspaceOptions::new().table_bytes(2 << 10).block_bytes(512);
    let options = options(&fs).memory_budget(16 << 20).default_keyspace(small);
    let db = options.clone().open(DIR).unwrap();
    for round in [7, 8] {
        for n in 0..400_u32 {
            db.put(n.to_be_bytes(), [round; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    let (paused, go) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (arrived, held, outputs) = (Arc::clone(&paused), Arc::clone(&go), AtomicU64::new(0));
    fs.observe(move |_, op| {
        if matches!(op, Op::Create(path) if ends_with(path, ".sst"))
            && outputs.fetch_add(1, Ordering::SeqCst) == 1
        {
            arrived.open();
            held.pass();
        }
        Ok(())
    });
    let compacting = db.clone();
    let compaction = thread::spawn(move || compacting.compact());
    paused.pass();
    let closing = thread::spawn(move || db.close());
    thread::sleep(Duration::from_millis(100));
    assert!(matches!(options.clone().open(DIR), Err(Error::Locked { .. })), "the store is still in use");
    go.open();
    closing.join().unwrap().unwrap();
    let compacted = compaction.join().unwrap();
    assert!(matches!(compacted, Ok(()) | Err(Error::Closed)), "{compacted:?}");
    fs.stop_observing();
    let db = options.open(DIR).unwrap();
    assert!((0..400_u32).all(|n| db.get(n.to_be_bytes()).unwrap().unwrap() == [8; 100].as_slice()));
    assert!(db.verify().unwrap().damage.is_empty());
}

#[test]
fn many_keyspaces_with_little_in_them_take_little_memory_also_after_reopening() {
    let fs = MemFs::new();
    let options = options(&fs).memory_budget(64 << 20);
    let db = options.clone().open(DIR).unwrap();
    for n in 0..500 {
        db.keyspace(&n.to_string(), KeyspaceOptions::new()).unwrap().put("k", "v").unwrap();
    }
    let memory = |db: &Db| db.stats().keyspaces.iter().map(|stats| stats.memtable_bytes).sum::<u64>();
    assert!(memory(&db) < 4 << 20, "{}", memory(&db));
    db.close().unwrap();
    let db = options.open(DIR).unwrap();
    assert_eq!(db.open_report().entries, 500);
    assert!(memory(&db) < 4 << 20, "{}", memory(&db));
}

#[test]
fn a_memtable_size_over_the_budget_is_reduced_to_it() {
    let fs = MemFs::new();
    for bytes in [1 << 30, usize::MAX] {
        let keyspace = KeyspaceOptions::new().memtable_bytes(bytes);
        let db = options(&fs).default_keyspace(keyspace).open(DIR).unwrap();
        for n in 0..5_000_u32 {
            db.put(n.to_be_bytes(), [1; 100]).unwrap();
        }
        assert!(
            db.stats().keyspaces[0].memtable_bytes <= 2 << 20,
            "four memtables of a quarter, and filters"
        );
    }
}

#[test]
fn an_open_that_fails_on_a_full_disk_leaves_no_files() {
    let fs = MemFs::new();
    let roomy = options(&fs).memory_budget(64 << 20);
    let db = roomy.open(DIR).unwrap();
    let other = db.keyspace("other", KeyspaceOptions::new()).unwrap();
    for n in 0..2000_u32 {
        db.put(n.to_be_bytes(), [7; 500]).unwrap();
        other.put(n.to_be_bytes(), [7; 500]).unwrap();
    }
    db.sync().unwrap();
    let fs = fs.crash(CrashPolicy::DropUnsynced);
    let bytes = |fs: &MemFs| fs.files(Path::new(DIR)).iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    let before = bytes(&fs);
    fs.observe(move |fs, op| match op {
        Op::Append(..) if bytes(fs) > before + 1_500_000 => Err(std::io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    });
    for _ in 0..3 {
        let opened = options(&fs).memory_budget(64 << 20).open(DIR);
        assert!(matches!(opened, Err(Error::Io { .. })), "{opened:?}");
        assert_eq!(bytes(&fs), before);
    }
    fs.stop_observing();
    let db = options(&fs).memory_budget(64 << 20).open(DIR).unwrap();
    assert_eq!(db.iter().count(), 2000);
}

#[test]
fn a_panic_in_a_writer_returns_errors_to_the_other_writers() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    db.put("before", "").unwrap();
    fs.observe(|_, op| match op {
        Op::Append(path, _) if ends_with(path, ".wal") => panic!("a file system that panics"),
        _ => Ok(()),
    });
    let panicking = db.clone();
    let put = ends("the put", move || panicking.put("a", "b"));
    assert!(
        matches!(&put, Err(Error::Panicked { message, .. }) if message.contains("that panics")),
        "{put:?}"
    );
    fs.stop_observing();
    let second = db.clone();
    let put = ends("the next put", move || second.put("a", "b"));
    assert!(matches!(put, Err(Error::Poisoned { .. })), "{put:?}");
    assert!(db.contains("before").unwrap());
}

fn is_panicked(error: &Error) -> bool {
    match error {
        Error::Panicked { message, .. } => &**message == "a file system that panics",
        Error::Poisoned { cause, .. } => is_panicked(cause),
        _ => false,
    }
}

fn panic_at(fs: &MemFs, is_it: impl Fn(Op<'_>) -> bool + Send + Sync + 'static) {
    fs.observe(move |_, op| if is_it(op) { panic!("a file system that panics") } else { Ok(()) });
}

#[test]
fn a_panic_in_a_background_job_fails_the_store_and_no_call_waits_forever() {
    type IsIt = fn(Op<'_>) -> bool;
    let jobs: [(&str, IsIt); 4] = [
        ("creating a table", |op| matches!(op, Op::Create(path) if ends_with(path, ".sst"))),
        ("syncing a table", |op| matches!(op, Op::Sync(path) if ends_with(path, ".sst"))),
        ("removing a log", |op| matches!(op, Op::Remove(path) if ends_with(path, ".wal"))),
        ("publishing", |op| matches!(op, Op::Append(path, _) if path.to_string_lossy().contains("MANIFEST"))),
    ];
    for (what, is_it) in jobs {
        for threads in [0, 1, 2] {
            let fs = MemFs::new();
            let db = options(&fs).background_threads(threads).open(DIR).unwrap();
            db.put("before", "").unwrap();
            panic_at(&fs, is_it);
            let writer = db.clone();
            let written =
                ends(what, move || (0..20_000_u32).try_for_each(|n| writer.put(n.to_be_bytes(), [7; 500])));
            assert!(written.as_ref().is_err_and(is_panicked), "{what}, {threads} threads: {written:?}");
            for call in [Db::flush, Db::compact, Db::sync, Db::settle] {
                let db = db.clone();
                let result = ends(what, move || call(&db));
                assert!(result.as_ref().is_err_and(is_panicked), "{what}, {threads} threads: {result:?}");
            }
            assert!(db.contains("before").unwrap());
            let closed = ends(what, move || db.close());
            assert!(closed.as_ref().is_err_and(is_panicked), "{what}, {threads} threads: {closed:?}");
            fs.stop_observing();
            assert!(options(&fs).open(DIR).unwrap().contains("before").unwrap());
        }
    }
}

#[test]
fn a_panic_while_one_syncs_for_others_is_an_error_for_all_of_them() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    panic_at(&fs, |op| matches!(op, Op::Sync(path) if ends_with(path, ".wal")));
    let syncing: Vec<_> = (0..4_u32)
        .map(|n| {
            let db = db.clone();
            thread::spawn(move || db.put(n.to_be_bytes(), "v").and_then(|()| db.sync()))
        })
        .collect();
    for result in
        ends("syncing", move || syncing.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>())
    {
        assert!(result.as_ref().is_err_and(is_panicked), "{result:?}");
    }
}

#[test]
fn many_threads_can_step_while_one_writes_and_one_compacts() {
    const KEYS: u64 = 10_000;
    let fs = MemFs::new();
    let small = KeyspaceOptions::new()
        .table_bytes(4 << 10)
        .block_bytes(512)
        .memtable_bytes(16 << 10)
        .level_base_bytes(64 << 10)
        .l0_runs(2);
    let db = options(&fs).memory_budget(16 << 20).default_keyspace(small).open(DIR).unwrap();
    let finished = Arc::new(AtomicBool::new(false));
    let (done, ended) = mpsc::channel();
    for worker in 0..6 {
        let (db, finished, done) = (db.clone(), Arc::clone(&finished), done.clone());
        thread::spawn(move || {
            match worker {
                0 => {
                    for n in 0..KEYS {
                        db.put(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), [7; 50]).unwrap();
                    }
                    finished.store(true, Ordering::SeqCst);
                }
                1 => {
                    while !finished.load(Ordering::SeqCst) {
                        db.compact().unwrap();
                        thread::sleep(Duration::from_millis(20));
                    }
                }
                _ => {
                    while !finished.load(Ordering::SeqCst) {
                        db.step().unwrap();
                    }
                }
            }
            done.send(worker)
        });
    }
    for _ in 0..6 {
        ended.recv_timeout(PATIENCE).expect("nobody waits for ever");
    }
    assert_eq!(db.iter().count() as u64, KEYS);
}
