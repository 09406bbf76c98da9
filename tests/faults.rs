//! Every file operation fails once, or from then on, with `EIO` or "disk full"; every operation panics once.
//!
//! The caller gets an error with operation and file, or the store reports the failure and retries. Reads return the
//! acknowledged values. After reopening, with or without a power loss, the store has a prefix with all durable writes.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::fs::{CrashPolicy, MemFs, Op};
use sievedb::{Durability, Error, WriteBatch};

use crate::support::history::History;
use crate::support::parallel::cases;
use crate::support::sample::thorough;
use crate::support::store::{self, contents};
use crate::support::workload::{Workload, universe};

#[derive(Debug, Clone, Copy)]
struct Fault {
    seed: u64,
    at: u64,
    kind: Kind,
    forever: bool,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Error(io::ErrorKind),
    Panic,
}

const OPERATIONS: u64 = 120;
const PANIC: &str = "a file system that panics";

/// `ErrorKind` has no variant for EIO.
fn error(kind: io::ErrorKind) -> io::Error {
    match kind {
        io::ErrorKind::Other => io::Error::other("input/output error"),
        kind => kind.into(),
    }
}

struct Hit {
    op: Arc<Mutex<String>>,
    happened: Arc<AtomicBool>,
}

fn inject(fs: &MemFs, fault: Fault) -> Hit {
    let hit = Hit { op: Arc::default(), happened: Arc::default() };
    let (op_hit, happened, count) = (Arc::clone(&hit.op), Arc::clone(&hit.happened), AtomicU64::new(0));
    fs.observe(move |_, op| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        if number == fault.at || fault.forever && number > fault.at {
            if !happened.swap(true, Ordering::SeqCst) {
                *op_hit.lock().unwrap() = format!("{op:?}").chars().take(60).collect();
            }
            match fault.kind {
                Kind::Error(kind) => return Err(error(kind)),
                Kind::Panic => resume_unwind(Box::new(PANIC)),
            }
        }
        Ok(())
    });
    hit
}

fn operations(seed: u64) -> u64 {
    let fs = MemFs::new();
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    fs.observe(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let mut workload = Workload::new(&fs, seed);
    workload.run(OPERATIONS).unwrap();
    workload.close().unwrap();
    count.load(Ordering::SeqCst)
}

#[test]
fn an_operation_that_fails_is_reported_and_costs_nothing_that_was_durable() {
    let mut faults = Vec::new();
    for seed in 1..=2 {
        for at in 0..operations(seed) {
            for (index, kind) in [io::ErrorKind::Other, io::ErrorKind::StorageFull].into_iter().enumerate() {
                let kind = Kind::Error(kind);
                for forever in [false, true] {
                    if thorough() || at % 4 == 2 * index as u64 + u64::from(forever) {
                        faults.push(Fault { seed, at, kind, forever });
                    }
                }
            }
        }
    }
    let outcomes =
        cases(&faults, |fault| fail_and_reopen(*fault).map_err(|what| format!("{fault:?}: {what}")));
    let count = |outcome| outcomes.iter().filter(|found| **found == outcome).count();
    let (refused, survived) = (count(Outcome::Failed), count(Outcome::Survived));
    println!("{} faults: {refused} reported, {survived} without effect", faults.len());
    let least = if thorough() { 1000 } else { 500 };
    assert!(refused > least && survived > 10, "{refused} {survived}");
}

#[test]
fn a_file_system_that_panics_costs_nothing_that_was_durable() {
    let faults: Vec<Fault> = (1..=2)
        .flat_map(|seed| (0..operations(seed)).map(move |at| (seed, at)))
        .filter(|(_, at)| thorough() || at.is_multiple_of(2))
        .map(|(seed, at)| Fault { seed, at, kind: Kind::Panic, forever: false })
        .collect();
    let outcomes =
        cases(&faults, |fault| fail_and_reopen(*fault).map_err(|what| format!("{fault:?}: {what}")));
    let least = if thorough() { 1000 } else { 500 };
    assert!(outcomes.len() > least, "{} panics", outcomes.len());
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum Outcome {
    Failed,
    /// All calls succeeded: the failed operation was optional, retried, or reported by the open.
    Survived,
}

fn fail_and_reopen(fault: Fault) -> Result<Outcome, String> {
    let fs = MemFs::new();
    let hit = inject(&fs, fault);
    let mut workload = Workload::new(&fs, fault.seed);
    let (history, doing) = (workload.history(), workload.doing());
    let work = AssertUnwindSafe(|| workload.run(OPERATIONS).and_then(|()| workload.close()));
    let result = catch_unwind(work);
    let op = hit.op.lock().unwrap().clone();
    let context = |what: String| format!("{op} failed during {}: {what}", doing.lock().unwrap());
    if !hit.happened.load(Ordering::SeqCst) {
        return Err("the fault was never reached".into());
    }
    let outcome = match &result {
        Ok(Ok(())) if op.starts_with("Remove") || op.starts_with("SetLen") || workload.told() > 0 => {
            Outcome::Survived
        }
        Ok(Ok(())) => return Err(context("no call says so".into())),
        Ok(Err(error)) => {
            is_typed(error).map_err(context)?;
            Outcome::Failed
        }
        Err(payload) if payload.downcast_ref() == Some(&PANIC) => Outcome::Failed,
        Err(_) => return Err(context("another panic".into())),
    };
    if let Some(db) = workload.db() {
        still_reads(db, &history.lock().unwrap()).map_err(context)?;
    }
    let after_power_loss = fs.crash(CrashPolicy::DropUnsynced);
    drop(workload);
    fs.stop_observing();
    for (fs, what) in [(&fs, "opened again"), (&after_power_loss, "after a power loss")] {
        reopens(fs, &history.lock().unwrap()).map_err(|wrong| context(format!("{what}: {wrong}")))?;
    }
    Ok(outcome)
}

fn is_typed(error: &Error) -> Result<(), String> {
    let is_above = |op: &str, path: &Path| op == "sync" && Path::new(store::DIR).starts_with(path);
    match error {
        Error::Io { op, path, source, .. }
            if !op.is_empty() && (path.starts_with(store::DIR) || is_above(op, path)) =>
        {
            let text = source.to_string();
            let is_ours = source.kind() == io::ErrorKind::StorageFull || text.contains("input/output error");
            if is_ours { Ok(()) } else { Err(format!("another error: {text}")) }
        }
        Error::Panicked { message, .. } if &**message == PANIC => Ok(()),
        Error::Poisoned { cause, .. } => is_typed(cause),
        other => Err(format!("not an I/O error: {other:?}")),
    }
}

fn still_reads(db: &sievedb::Db, history: &History) -> Result<(), String> {
    let found = contents(db).map_err(|error| format!("does not read: {error}"))?;
    history.find_from(history.written().saturating_sub(1), &found)?;
    let findings = store::examine(db, &found, &universe())?;
    findings.errors.first().map_or(Ok(()), |error| Err(format!("does not read: {error}")))
}

fn reopens(fs: &MemFs, history: &History) -> Result<(), String> {
    let db = store::open(fs).map_err(|error| error.to_string())?;
    history.find(&contents(&db)?)?;
    db.put("key 01", "writable again").map_err(|error| error.to_string())?;
    db.settle().map_err(|error| error.to_string())?;
    match db.verify().map_err(|error| error.to_string())?.damage.first() {
        Some(damage) => Err(damage.to_string()),
        None => db.close().map_err(|error| error.to_string()),
    }
}

#[test]
fn a_failed_sync_disables_writing_for_good_and_reads_go_on() {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    let put = |key: &str, durability| {
        let mut batch = WriteBatch::new();
        batch.put(key, "v");
        db.write_with(batch, durability)
    };
    put("durable", Durability::Synced).unwrap();
    let syncs = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&syncs);
    fs.observe(move |_, op| match op {
        Op::Sync(path) if path.extension().is_some_and(|extension| extension == "wal") => {
            counter.fetch_add(1, Ordering::SeqCst);
            if counter.load(Ordering::SeqCst) == 1 { Err(error(io::ErrorKind::Other)) } else { Ok(()) }
        }
        _ => Ok(()),
    });
    assert!(matches!(put("lost", Durability::Synced), Err(Error::Io { op: "sync", .. })));
    for _ in 0..3 {
        assert!(matches!(put("refused", Durability::Buffered), Err(Error::Poisoned { .. })));
        assert!(matches!(put("refused", Durability::Synced), Err(Error::Poisoned { .. })));
        assert!(matches!(db.sync(), Err(Error::Poisoned { .. })));
        assert!(matches!(db.flush(), Err(Error::Poisoned { .. })));
        assert!(matches!(db.compact(), Err(Error::Poisoned { .. })));
        assert!(matches!(db.step(), Err(Error::Poisoned { .. })));
        assert_eq!(db.get("durable").unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(db.get("refused").unwrap(), None);
    }
    assert!(matches!(db.close(), Err(Error::Poisoned { .. })));
    assert_eq!(syncs.load(Ordering::SeqCst), 1, "a sync that failed was tried again");
    let db = store::open(&fs.crash(CrashPolicy::DropUnsynced)).unwrap();
    assert_eq!(db.get("durable").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(db.get("refused").unwrap(), None);
}

#[test]
fn a_compaction_that_stops_because_writing_has_ended_returns_the_reason() {
    let fs = MemFs::new();
    let keyspace = store::small().memtable_bytes(256 << 10);
    let db = store::options(&fs).default_keyspace(keyspace).open(store::DIR).unwrap();
    for key in 0..3000 {
        db.put(format!("key {key:04}"), "v").unwrap();
    }
    db.flush().unwrap();
    let (writer, begun) = (db.clone(), AtomicBool::new(false));
    fs.observe(move |_, op| match op {
        Op::Sync(path) if path.extension().is_some_and(|end| end == "wal") => {
            Err(error(io::ErrorKind::Other))
        }
        Op::Create(path) if path.extension().is_some_and(|end| end == "sst") => {
            if !begun.swap(true, Ordering::SeqCst) {
                let (mut batch, writer) = (WriteBatch::new(), writer.clone());
                batch.put("k", "v");
                let written = std::thread::spawn(move || writer.write_with(batch, Durability::Synced)).join();
                assert!(matches!(written.unwrap(), Err(Error::Io { op: "sync", .. })));
            }
            Ok(())
        }
        _ => Ok(()),
    });
    let stopped = db.compact();
    assert!(matches!(stopped, Err(Error::Poisoned { .. })), "{stopped:?}");
    fs.stop_observing();
}

#[test]
fn an_open_that_fails_anywhere_changes_nothing_that_the_next_open_finds() {
    let fs = MemFs::new();
    let mut workload = Workload::new(&fs, 3);
    workload.run(150).unwrap();
    let history = workload.history();
    let image = fs.crash(CrashPolicy::KeepAll);
    let expected = contents(&store::open(&image.crash(CrashPolicy::KeepAll)).unwrap()).unwrap();
    history.lock().unwrap().find(&expected).unwrap();
    let mut at = 0;
    loop {
        let image = fs.crash(CrashPolicy::KeepAll);
        let hit = inject(
            &image,
            Fault { seed: 3, at, kind: Kind::Error(io::ErrorKind::StorageFull), forever: true },
        );
        let opened = store::open(&image).map(drop);
        if !hit.happened.load(Ordering::SeqCst) {
            break;
        }
        if let Err(error) = &opened {
            is_typed(error).unwrap_or_else(|what| panic!("operation {at} of opening: {what}"));
        }
        image.stop_observing();
        let db = store::open(&image)
            .unwrap_or_else(|error| panic!("after operation {at} of opening failed: {error}"));
        assert_eq!(contents(&db).unwrap(), expected, "after operation {at} of opening failed");
        at += 1;
    }
    assert!(at > 5, "opening does only {at} operations");
    assert!(!fs.files(Path::new(store::DIR)).is_empty());
}
