//! A checkpoint is complete or absent, and equals the store at one moment. The writer runs in the observer of the checkpoint's
//! file operations, so a seed determines the interleaving, and a lock held during an operation deadlocks the test.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use sievedb::fs::{CrashPolicy, Fs, MemFs, Op};
use sievedb::{Db, Durability, Error, FilterKind, FilterPolicy, Options, WriteBatch};

use crate::support::copies::{on_disk, opened_copy, path_of, prepared, sound};
use crate::support::hooked::HookedFs;
use crate::support::rng::Rng;
use crate::support::sample::thorough;
use crate::support::store::{self, Contents, DIR, contents, open_at};
use crate::support::workload::Workload;

const COPY: &str = "/copy";
const INCOMPLETE: &str = "/copy.checkpoint-incomplete";

fn is_of_copy(op: &Op<'_>) -> bool {
    path_of(op).starts_with(INCOMPLETE) || path_of(op).starts_with(COPY)
}

fn is_absent(fs: &MemFs) -> bool {
    let is_missing = |dir| fs.list(Path::new(dir)).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    is_missing(COPY) && is_missing(INCOMPLETE) && fs.files(Path::new(COPY)).is_empty()
}

fn differences(found: Result<Contents, String>, expected: &Contents) -> String {
    let counts = |contents: &Contents| {
        contents.iter().map(|(name, all)| (name.clone(), all.len())).collect::<Vec<_>>()
    };
    match found {
        Err(error) => error,
        Ok(found) if found == *expected => String::new(),
        Ok(found) => format!("{:?} instead of {:?}", counts(&found), counts(expected)),
    }
}

fn counts(fs: &MemFs, dir: &str) -> [usize; 4] {
    let files = fs.files(Path::new(dir));
    ["sst", "filter", "wal", ""].map(|end| {
        let has_end = |path: &Path| path.extension().map_or(end.is_empty(), |found| found == end);
        files.iter().filter(|(path, _)| has_end(path)).count()
    })
}

#[test]
fn a_checkpoint_links_the_files_that_do_not_change_and_is_a_store_of_its_own() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    db.sync().unwrap();
    let (links, appended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (linked, bytes) = (Arc::clone(&links), Arc::clone(&appended));
    fs.observe(move |_, op| {
        match op {
            Op::HardLink(..) => _ = linked.fetch_add(1, Ordering::Relaxed),
            Op::Append(path, more) if path.starts_with(INCOMPLETE) => {
                bytes.fetch_add(more.len() as u64, Ordering::Relaxed);
            }
            op => assert!(is_of_copy(&op) || path_of(&op) == Path::new("/"), "{op:?}"),
        }
        Ok(())
    });
    db.checkpoint(COPY).unwrap();
    fs.stop_observing();
    let [tables, filters, logs, _] = counts(&fs, DIR);
    assert!(tables > 3 && filters > 0 && logs > 2, "{tables} tables, {filters} filters, {logs} logs");
    let links = links.load(Ordering::Relaxed) as usize;
    assert_eq!(counts(&fs, COPY)[2], links - tables - filters + 1, "one log was written");
    assert!((tables + filters + logs - 2..tables + filters + logs).contains(&links), "{links} links");
    assert!(appended.load(Ordering::Relaxed) < 20_000, "{appended:?} bytes");
    let before = contents(&db).unwrap();
    assert_eq!(differences(sound(&fs, COPY), &before), "");
    let copy = open_at(&fs, COPY).unwrap();
    db.put("only in", "the store").unwrap();
    copy.put("only in", "the copy").unwrap();
    for db in [&db, &copy] {
        db.compact().unwrap();
        db.drop_keyspace("side").unwrap();
        db.flush().unwrap();
    }
    copy.close().unwrap();
    db.close().unwrap();
    for (dir, value) in [(DIR, "the store"), (COPY, "the copy")] {
        let found = sound(&fs, dir).unwrap();
        assert_eq!(found["default"][&b"only in"[..]][..], *value.as_bytes());
        assert_eq!((found.len(), found["default"].len()), (1, before["default"].len() + 1));
    }
}

#[test]
fn checkpoints_are_one_moment_for_any_writes_at_each_of_their_operations() {
    let (mut complete, mut closed, mut with_logs) = (0, 0, 0);
    for seed in 0..if thorough() { 40 } else { 6 } {
        let fs = MemFs::new();
        let mut workload = Workload::new(&fs, seed);
        workload.run(120).unwrap();
        let workload = Arc::new(Mutex::new(workload));
        let history = workload.lock().unwrap().history();
        let states = Arc::new(Mutex::new(Vec::new()));
        for number in 0..6 {
            let db = workload.lock().unwrap().db().unwrap().clone();
            *states.lock().unwrap() = vec![history.lock().unwrap().newest()];
            let (working, is_working) = (Arc::clone(&workload), AtomicBool::new(false));
            let (noted, read) = (Arc::clone(&states), Arc::clone(&history));
            let rng = Mutex::new(Rng::new(seed * 100 + number));
            fs.observe(move |_, op| {
                if is_of_copy(&op) && !is_working.swap(true, Ordering::SeqCst) {
                    for _ in 0..rng.lock().unwrap().below(4) {
                        working.lock().unwrap().run(1).unwrap();
                        noted.lock().unwrap().push(read.lock().unwrap().newest());
                    }
                    is_working.store(false, Ordering::SeqCst);
                }
                Ok(())
            });
            let made = if number % 3 == 2 { db.checkpoint_flushed(COPY) } else { db.checkpoint(COPY) };
            drop(db);
            fs.stop_observing();
            if let Err(error) = made {
                assert!(matches!(error, Error::Closed), "seed {seed}, {number}: {error}");
                assert!(is_absent(&fs), "seed {seed}, {number}");
                closed += 1;
                continue;
            }
            complete += 1;
            with_logs += u64::from(counts(&fs, COPY)[2] > 0);
            let power_lost = fs.crash(CrashPolicy::DropUnsynced);
            let found = sound(&fs, COPY).unwrap_or_else(|error| panic!("seed {seed}, {number}: {error}"));
            let moment = states.lock().unwrap().iter().position(|state| *state == found);
            assert!(moment.is_some(), "seed {seed}, {number}: no moment of the store");
            assert_eq!(
                differences(sound(&power_lost, COPY), &found),
                "",
                "seed {seed}, {number}: it is durable"
            );
            let mut from = COPY.to_owned();
            for _ in 0..2 {
                let to = format!("{from}+");
                let copy = open_at(&fs, &from).unwrap();
                copy.checkpoint(&to).unwrap();
                copy.compact().unwrap();
                drop(copy);
                assert_eq!(differences(sound(&fs, &to), &found), "", "seed {seed}, {number}: {to}");
                remove(&fs, &from);
                from = to;
            }
            remove(&fs, &from);
            workload.lock().unwrap().run(20).unwrap();
        }
        let newest = history.lock().unwrap().newest();
        let found = contents(workload.lock().unwrap().db().unwrap());
        assert_eq!(differences(found, &newest), "", "seed {seed}");
    }
    println!("{complete} checkpoints, {with_logs} with logs; {closed} of stores that were closed meanwhile");
    assert!(complete > 15 && closed > 2 && with_logs > 10);
}

fn remove(fs: &MemFs, dir: &str) {
    fs.files(Path::new(dir)).iter().for_each(|(path, _)| fs.remove(path).unwrap());
    fs.remove_dir(Path::new(dir)).unwrap();
}

#[test]
fn after_a_power_loss_at_any_operation_the_store_is_whole_and_the_checkpoint_complete_or_absent() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    let expected = contents(&db).unwrap();
    let images = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    fs.observe(move |fs, op| {
        let mut taken = taken.lock().unwrap();
        let number = taken.len() as u64;
        let policies = [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, CrashPolicy::Random(number)];
        taken.extend(policies.map(|policy| (fs.crash(policy), policy, format!("{op:?}"))));
        Ok(())
    });
    db.checkpoint(COPY).unwrap();
    fs.stop_observing();
    let mut images = std::mem::take(&mut *images.lock().unwrap());
    images.push((fs.crash(CrashPolicy::DropUnsynced), CrashPolicy::DropUnsynced, "the end".into()));
    let (count, mut complete, mut interrupted) = (images.len(), 0, 0);
    for (image, policy, op) in images {
        let about = format!("{policy:?} before {}", op.chars().take(80).collect::<String>());
        if image.list(Path::new(COPY)).is_ok() {
            assert_eq!(differences(sound(&image, COPY), &expected), "", "{about}");
            complete += 1;
        } else {
            assert_ne!(op, "the end");
            interrupted += u64::from(image.list(Path::new(INCOMPLETE)).is_ok());
            let db = store::open(&image).unwrap_or_else(|error| panic!("{about}: {error}"));
            let left = contents(&db).unwrap();
            assert!(left["default"].len() >= 120 && left.len() == 2, "{about}");
            db.checkpoint(COPY).unwrap_or_else(|error| panic!("{about}: {error}"));
            drop(db);
            assert_eq!(differences(sound(&image, COPY), &left), "", "{about}");
        }
        assert!(image.list(Path::new(INCOMPLETE)).is_err(), "{about}");
    }
    println!("{count} images: the checkpoint complete in {complete}, interrupted in {interrupted}");
    assert!(count > 90 && complete > 1 && interrupted > 30);
}

#[test]
fn a_failure_at_any_operation_leaves_nothing_and_the_store_goes_on() {
    let mut failures = 0;
    let fs = MemFs::new();
    let db = prepared(&fs);
    db.sync().unwrap();
    let expected = contents(&db).unwrap();
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        for at in 0.. {
            let (number, failed) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
            let has_failed = Arc::clone(&failed);
            fs.observe(move |_, op| {
                let is_it = is_of_copy(&op) || matches!(op, Op::SyncDir(dir) if dir == Path::new("/"));
                if is_it && number.fetch_add(1, Ordering::SeqCst) == at {
                    has_failed.store(true, Ordering::SeqCst);
                    return Err(kind.into());
                }
                Ok(())
            });
            let made = db.checkpoint(COPY);
            fs.stop_observing();
            if !failed.load(Ordering::SeqCst) {
                made.unwrap();
                remove(&fs, COPY);
                break;
            }
            failures += 1;
            let error = made.expect_err("an operation failed");
            assert!(matches!(&error, Error::Io { source, .. } if source.kind() == kind), "{at}: {error}");
            assert!(is_absent(&fs), "{at}: {error}");
            db.put("after", "the failure").unwrap();
            db.delete("after").unwrap();
            db.checkpoint(COPY).unwrap();
            assert_eq!(differences(sound(&fs, COPY), &expected), "", "{at}");
            remove(&fs, COPY);
        }
    }
    db.close().unwrap();
    assert_eq!(differences(sound(&fs, DIR), &expected), "");
    assert!(failures > 60, "{failures}");
}

#[test]
fn files_are_copied_where_links_are_refused() {
    for kind in [ErrorKind::CrossesDevices, ErrorKind::PermissionDenied, ErrorKind::TooManyLinks] {
        let fs = MemFs::new();
        let db = prepared(&fs);
        fs.observe(move |_, op| match op {
            Op::HardLink(..) => Err(kind.into()),
            _ => Ok(()),
        });
        db.checkpoint(COPY).unwrap();
        fs.stop_observing();
        let expected = contents(&db).unwrap();
        let copy = fs.crash(CrashPolicy::DropUnsynced);
        db.close().unwrap();
        remove(&copy, DIR);
        assert_eq!(differences(sound(&copy, COPY), &expected), "", "{kind}");
    }
}

#[test]
fn others_write_and_flush_at_each_operation_of_a_checkpoint() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    let (asks, asked) = mpsc::channel::<()>();
    let (answers, answered) = mpsc::channel();
    let writer = db.clone();
    let thread = std::thread::spawn(move || {
        for n in 0.. {
            if asked.recv().is_err() {
                return n;
            }
            writer.put(format!("written {n}"), "meanwhile").unwrap();
            writer.flush().unwrap();
            answers.send(()).unwrap();
        }
        unreachable!()
    });
    let checkpoints = std::thread::current().id();
    let (asks, answered) = (Mutex::new(Some(asks)), Mutex::new(answered));
    let stuck = Arc::new(Mutex::new(Vec::new()));
    let is_stuck = Arc::clone(&stuck);
    fs.observe(move |_, op| {
        if std::thread::current().id() == checkpoints
            && is_of_copy(&op)
            && is_stuck.lock().unwrap().is_empty()
        {
            asks.lock().unwrap().as_ref().unwrap().send(()).unwrap();
            if answered.lock().unwrap().recv_timeout(Duration::from_secs(20)).is_err() {
                is_stuck.lock().unwrap().push(format!("{op:?}"));
            }
        }
        Ok(())
    });
    db.checkpoint(COPY).unwrap();
    fs.stop_observing();
    assert_eq!(*stuck.lock().unwrap(), [""; 0], "a writer waits for the checkpoint");
    let written = thread.join().unwrap();
    assert!(written > 15, "{written}");
    // The directory is created before the moment is chosen.
    assert_eq!(
        sound(&fs, COPY).unwrap()["default"].keys().filter(|key| key.starts_with(b"written")).count(),
        1
    );
}

#[test]
fn the_log_is_durable_up_to_the_moment_before_anything_is_linked() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    db.put("not synced", "before").unwrap();
    let images = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    fs.observe(move |fs, op| {
        if matches!(op, Op::HardLink(..)) {
            taken.lock().unwrap().push(fs.crash(CrashPolicy::DropUnsynced));
        }
        Ok(())
    });
    db.checkpoint(COPY).unwrap();
    fs.stop_observing();
    let first = images.lock().unwrap().remove(0);
    let found = contents(&store::open(&first).unwrap());
    assert_eq!(differences(found, &contents(&db).unwrap()), "");
}

fn work(db: &Db, thread: u64, begun: &AtomicU64, done: &AtomicU64, stop: &AtomicBool) {
    let rng = &mut Rng::new(thread);
    let log = db.keyspace("log", store::small()).unwrap();
    let mut rounds = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        rounds += 1;
        match thread {
            0 | 1 => {
                let [from, to] = [rng.below(12), rng.below(12)].map(|n| format!("account {n}"));
                let transferred = db.transact(|tx| {
                    for (account, amount) in [(&from, -1), (&to, 1)] {
                        let before = tx.get(account)?.map_or(0, |value| balance(&value));
                        tx.put(account, (before + amount).to_be_bytes());
                    }
                    Ok(())
                });
                transferred.unwrap();
            }
            2 => {
                let next = begun.fetch_add(1, Ordering::SeqCst) + 1;
                let mut batch = WriteBatch::new();
                batch.put("counter", next.to_be_bytes()).put_in(&log, next.to_be_bytes(), [5; 60]);
                let durability =
                    if next.is_multiple_of(16) { Durability::Synced } else { Durability::Buffered };
                db.write_with(batch, durability).unwrap();
                done.store(next, Ordering::SeqCst);
            }
            3 | 4 => {
                let key = format!("taken {}", rng.below(5000));
                db.insert_if_absent(key, thread.to_be_bytes()).unwrap();
                db.update("updates", |value| Some((value.map_or(0, balance) + 1).to_be_bytes().into()))
                    .unwrap();
            }
            5 => {
                let name = format!("temporary {}", rounds % 3);
                match db.existing_keyspace(&name) {
                    Some(_) => db.drop_keyspace(&name).unwrap(),
                    None => {
                        let made = db.keyspace(&name, store::small()).unwrap();
                        let mut batch = WriteBatch::new();
                        (0..9_u8).for_each(|n| _ = batch.put_in(&made, [n], [n; 300]));
                        db.write(batch).unwrap();
                    }
                }
            }
            _ => match rounds % 4 {
                0 => db.compact().unwrap(),
                1 => db
                    .refilter(FilterPolicy::new(FilterKind::Bloom).bits_per_key(8.0 + rng.below(4) as f64))
                    .unwrap(),
                _ => db.flush().unwrap(),
            },
        }
    }
}

fn balance(value: &[u8]) -> i64 {
    i64::from_be_bytes(value.try_into().unwrap())
}

fn check_moment(db: &Db, (done, begun): (u64, impl Fn() -> u64)) -> Result<(), String> {
    let found = contents(db)?;
    let (entries, log) = (&found["default"], &found["log"]);
    let accounts = entries.iter().filter(|(key, _)| key.starts_with(b"account"));
    let sum: i64 = accounts.map(|(_, value)| balance(value)).sum();
    let counter = entries.get(&b"counter"[..]).map_or(0, |value| balance(value) as u64);
    let is_whole =
        |(name, all): (&String, &store::Entries)| !name.starts_with("temp") || [0, 9].contains(&all.len());
    let damage = db.verify().map_err(|error| error.to_string())?.damage;
    match damage.is_empty() && found.iter().all(is_whole) && sum == 0 && counter == log.len() as u64 {
        true if (done..=begun()).contains(&counter) => Ok(()),
        _ => {
            Err(format!("sum {sum}, counter {counter} from {done} on, {} in the log, {damage:?}", log.len()))
        }
    }
}

#[test]
fn checkpoints_next_to_threads_that_do_everything_open_verify_and_are_one_moment() {
    let fs = MemFs::new();
    let options = store::options(&fs).memory_budget(4 << 20).background_threads(2);
    let db = options.open(DIR).unwrap();
    let (begun, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    db.keyspace("log", store::small()).unwrap();
    let count = if thorough() { 40 } else { 12 };
    std::thread::scope(|scope| {
        for thread in 0..7 {
            let (db, begun, done, stop) = (&db, &begun, &done, &stop);
            scope.spawn(move || work(db, thread, begun, done, stop));
        }
        let checked = crate::support::parallel::caught(|| {
            for number in 0..count {
                let before = done.load(Ordering::SeqCst);
                let flushed = number % 5 == 4;
                let made = if flushed { db.checkpoint_flushed(COPY) } else { db.checkpoint(COPY) };
                made.map_err(|error| format!("{number}: {error}"))?;
                let copy = open_at(&fs, COPY).map_err(|error| format!("{number}: {error}"))?;
                check_moment(&copy, (before, || begun.load(Ordering::SeqCst)))
                    .map_err(|wrong| format!("{number}: {wrong}"))?;
                copy.close().map_err(|error| error.to_string())?;
                remove(&fs, COPY);
            }
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        checked.unwrap();
    });
    println!("{count} checkpoints while {} batches were counted", done.into_inner());
    let left = db.verify().unwrap();
    assert!(left.damage.is_empty());
    db.close().unwrap();
    assert!(sound(&fs, DIR).is_ok());
}

#[test]
fn a_checkpoint_after_a_flush_has_no_log() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    db.checkpoint_flushed(COPY).unwrap();
    assert_eq!(counts(&fs, COPY)[2], 0);
    let copy = open_at(&fs, COPY).unwrap();
    assert_eq!(copy.open_report().batches, 0);
    assert_eq!(differences(contents(&copy), &contents(&db).unwrap()), "");
}

#[test]
fn a_checkpoint_of_a_closed_store_that_was_opened_changes_nothing_in_it() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    db.flush().unwrap();
    db.put("in the", "log").unwrap();
    db.close().unwrap();
    let before = fs.files(Path::new(DIR));
    let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0);
    let db = options.open(DIR).unwrap();
    let expected = contents(&db).unwrap();
    fs.observe(|_, op| {
        assert!(!path_of(&op).starts_with(DIR), "{op:?}");
        Ok(())
    });
    db.checkpoint(COPY).unwrap();
    db.close().unwrap();
    fs.stop_observing();
    assert!(fs.files(Path::new(DIR)) == before);
    assert_eq!(differences(sound(&fs, COPY), &expected), "");
}

#[test]
fn the_number_of_operations_grows_with_the_number_of_tables_only() {
    let (tables_max, mut seen) = (if thorough() { 10_000 } else { 400 }, Vec::new());
    for tables in [tables_max / 4, tables_max] {
        let fs = MemFs::new();
        let keyspace = store::small().table_bytes(1 << 10).l0_runs(1);
        let db =
            store::options(&fs).memory_budget(64 << 20).default_keyspace(keyspace.memtable_bytes(16 << 20));
        let db = db.open(DIR).unwrap();
        for n in 0..tables as u32 {
            db.put(n.to_be_bytes(), [0; 1100]).unwrap();
        }
        db.flush().unwrap();
        let [found, ..] = counts(&fs, DIR);
        assert!(found * 10 > tables * 9, "{found} tables");
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        fs.observe(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        db.checkpoint(COPY).unwrap();
        fs.stop_observing();
        seen.push(count.load(Ordering::Relaxed) - found as u64);
        println!("{found} tables: {} operations", count.load(Ordering::Relaxed));
        assert_eq!(counts(&fs, COPY)[0], found);
    }
    assert!(seen.iter().all(|&others| others < 30), "{seen:?} besides the links");
}

#[test]
fn a_view_is_copied_unchanged_for_any_writes_at_each_operation() {
    let (mut complete, mut changed) = (0, 0);
    for seed in 0..6 {
        let mem = MemFs::new();
        let mut workload = Workload::new(&mem, seed);
        workload.run(150).unwrap();
        let workload = Arc::new(Mutex::new(workload));
        let fs = HookedFs::new(&mem);
        let reader = |open_files| {
            let options = store::options(&MemFs::new()).fs(Arc::new(fs.clone())).read_only();
            options.open_files_max(open_files).open(DIR).unwrap()
        };
        for number in 0..4 {
            let db = reader(if number == 3 { 8 } else { 1000 });
            let expected = contents(&db).unwrap();
            let (writer, mut rng) = (Arc::clone(&workload), Rng::new(seed * 10 + number));
            fs.set_hook(move |_| {
                if rng.one_in(4) {
                    (0..=rng.below(12)).for_each(|_| writer.lock().unwrap().run(1).unwrap());
                }
            });
            let made = db.checkpoint(COPY);
            fs.remove_hook();
            match made {
                Ok(()) => {
                    complete += 1;
                    assert_eq!(differences(sound(&mem, COPY), &expected), "", "seed {seed}, {number}");
                    remove(&mem, COPY);
                }
                Err(Error::Changed { .. }) => changed += 1,
                Err(error) => panic!("seed {seed}, {number}: {error}"),
            }
            assert!(is_absent(&mem), "seed {seed}, {number}");
        }
    }
    println!("{complete} checkpoints, {changed} of views that did not hold a file");
    assert!(complete >= 18);
}

#[test]
fn an_unsuitable_place_for_a_checkpoint_is_refused() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    let io_kind = |made: sievedb::Result<()>| match made {
        Err(Error::Io { source, .. }) => source.kind(),
        made => panic!("{made:?}"),
    };
    fs.create_dir(Path::new("/there")).unwrap();
    assert_eq!(io_kind(db.checkpoint("/there")), ErrorKind::AlreadyExists);
    for inside in [DIR, "/db/copy", "/db/a/b", "/"] {
        assert!(matches!(db.checkpoint(inside), Err(Error::InvalidArgument { .. })), "{inside}");
    }
    fs.create_dir(Path::new(INCOMPLETE)).unwrap();
    fs.create(&Path::new(INCOMPLETE).join("letters.txt")).unwrap();
    assert!(matches!(db.checkpoint(COPY), Err(Error::OtherFiles { count: 1, .. })));
    fs.remove(&Path::new(INCOMPLETE).join("letters.txt")).unwrap();
    let lock = fs.lock(&Path::new(INCOMPLETE).join("LOCK"), sievedb::fs::LockKind::Exclusive).unwrap();
    assert!(matches!(db.checkpoint(COPY), Err(Error::Locked { .. })));
    drop(lock);
    db.checkpoint(COPY).unwrap();
    assert_eq!(io_kind(db.checkpoint(COPY)), ErrorKind::AlreadyExists);
    let reader = store::open_read_only(&fs).unwrap();
    assert!(matches!(reader.checkpoint_flushed("/flushed"), Err(Error::ReadOnly)));
    let other = db.clone();
    db.close().unwrap();
    assert!(matches!(other.checkpoint("/closed"), Err(Error::Closed)));
    assert!(
        fs.list(Path::new("/closed")).is_err()
            && fs.list(Path::new("/closed.checkpoint-incomplete")).is_err()
    );
}

#[test]
fn a_store_whose_writing_is_disabled_is_copied_through_a_handle_for_reading() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    let mut batch = WriteBatch::new();
    batch.put("synced", "value");
    db.write_with(batch, Durability::Synced).unwrap();
    fs.observe(|_, op| match op {
        Op::Sync(_) => Err(ErrorKind::Other.into()),
        _ => Ok(()),
    });
    db.put("not", "synced").unwrap();
    assert!(db.sync().is_err());
    fs.stop_observing();
    assert!(matches!(db.checkpoint(COPY), Err(Error::Poisoned { .. })));
    assert!(is_absent(&fs));
    store::open_read_only(&fs).unwrap().checkpoint(COPY).unwrap();
    assert!(sound(&fs, COPY).unwrap()["default"].contains_key(&b"synced"[..]));
}

#[test]
fn a_checkpoint_resumes_writing_that_is_suspended_or_returns_its_error() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    db.sync().unwrap();
    fs.observe(|_, op| match op {
        Op::Append(path, _) | Op::Create(path) if path.starts_with(DIR) => Err(ErrorKind::Other.into()),
        _ => Ok(()),
    });
    assert!(db.put("not", "written").is_err());
    assert!(matches!(db.checkpoint(COPY), Err(Error::Io { .. })));
    assert!(is_absent(&fs));
    store::open_read_only(&fs).unwrap().checkpoint("/by a reader").unwrap();
    fs.stop_observing();
    db.checkpoint(COPY).unwrap();
    db.put("again", "written").unwrap();
    for dir in [COPY, "/by a reader"] {
        let found = sound(&fs, dir).unwrap();
        assert!(found["default"].contains_key(&b"last"[..]) && !found["default"].contains_key(&b"not"[..]));
    }
}

#[test]
fn a_checkpoint_that_finds_no_space_leaves_nothing_and_does_not_suspend_the_store() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    db.sync().unwrap();
    fs.set_room(Some(fs.used() + 3000));
    let error = db.checkpoint(COPY).unwrap_err();
    assert!(matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::StorageFull), "{error}");
    assert!(is_absent(&fs) && db.background_error().is_none());
    fs.set_room(None);
    db.put("after", "that").unwrap();
    db.checkpoint(COPY).unwrap();
}

fn numbered(fs: &MemFs, dir: &str, end: &str) -> Vec<std::path::PathBuf> {
    let paths = fs.files(Path::new(dir)).into_iter().map(|(path, _)| path);
    paths.filter(|path| path.extension().is_some_and(|found| found == end)).collect()
}

#[test]
fn a_table_a_filter_or_a_log_of_another_store_is_refused_in_a_checkpoint() {
    for end in ["sst", "filter", "wal"] {
        let (fs, other) = (MemFs::new(), MemFs::new());
        let db = prepared(&fs);
        db.checkpoint(COPY).unwrap();
        drop(prepared(&other));
        let path = numbered(&fs, COPY, end).remove(0);
        let theirs = Path::new(DIR).join(path.file_name().unwrap());
        let theirs = other.files(&theirs).remove(0).1;
        fs.overwrite(&path, theirs);
        let damage = store::options(&fs).verify(COPY).unwrap().damage;
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(damage.iter().any(|damage| damage.to_string().contains(name)), "{end}: {damage:?}");
        let mut ours = fs.files(&Path::new(DIR).join(path.file_name().unwrap())).remove(0).1;
        ours[16] ^= 1;
        let checked = [&ours[32..48], &0_u64.to_le_bytes(), &ours[..60]].concat();
        let crc = crc32(&checked);
        ours[60..64].copy_from_slice(&crc.to_le_bytes());
        fs.overwrite(&path, ours);
        let damage = store::options(&fs).verify(COPY).unwrap().damage;
        assert_eq!(damage.len(), 1, "{end}: {damage:?}");
        assert!(damage[0].error.to_string().contains("another store"), "{end}: {}", damage[0]);
        if end == "wal" {
            assert!(open_at(&fs, COPY).unwrap_err().to_string().contains("another store"));
        }
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn leftovers_with_the_id_of_the_store_that_was_copied_are_removed() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    db.checkpoint(COPY).unwrap();
    for end in ["sst", "filter", "wal"] {
        let from = numbered(&fs, DIR, end).remove(0);
        fs.hard_link(&from, &Path::new(COPY).join(format!("000900.{end}"))).unwrap();
    }
    let copy = open_at(&fs, COPY).unwrap();
    assert_eq!(copy.open_report().ignored.len(), 3);
    drop(copy);
    assert!(sound(&fs, COPY).is_ok());
    assert!(fs.files(Path::new(COPY)).iter().all(|(path, _)| !path.to_string_lossy().contains("000900")));
    let theirs = fs
        .files(Path::new(COPY))
        .into_iter()
        .find(|(path, _)| path.extension().is_some_and(|end| end == "wal"));
    fs.overwrite(&Path::new(DIR).join("000900.wal"), theirs.unwrap().1);
    db.close().unwrap();
    let ignored = &store::open(&fs).unwrap().open_report().ignored.clone();
    assert_eq!(ignored[0].why, "named like a file of the store, but is none");
}

#[test]
fn a_damaged_checkpoint_is_repaired_with_and_without_its_manifest() {
    let fs = MemFs::new();
    let db = prepared(&fs);
    db.checkpoint(COPY).unwrap();
    let expected = contents(&db).unwrap();
    fs.remove(&Path::new(COPY).join("CURRENT")).unwrap();
    let report = store::options(&fs).repair(COPY, "/repaired").unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(differences(sound(&fs, "/repaired"), &expected), "");
    let manifest =
        fs.files(Path::new(COPY)).into_iter().find(|(path, _)| path.to_string_lossy().contains("MANIFEST"));
    fs.remove(&manifest.unwrap().0).unwrap();
    let damage = store::options(&fs).verify(COPY).unwrap().damage;
    assert_eq!(damage.len(), 1, "CURRENT: {damage:?}");
    let report = store::options(&fs).repair(COPY, "/doubtful").unwrap();
    let keys = report.doubtful.iter().map(|range| range.keys).sum::<u64>();
    assert_eq!(keys, expected["default"].len() as u64 + 1, "{report:?}");
}

#[test]
fn a_store_on_the_disk_is_copied_by_its_writer_and_by_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = on_disk(&at("db"));
    db.checkpoint(at("copy")).unwrap();
    let reader = Options::new().read_only().open(at("db")).unwrap();
    db.compact().unwrap();
    db.put("k", "w").unwrap();
    reader.checkpoint(at("by a reader")).unwrap();
    for name in ["copy", "by a reader"] {
        let copy = opened_copy(&at(name), "v");
        copy.put("only", "here").unwrap();
    }
    assert!(!db.contains("only").unwrap());
    std::fs::write(at("file"), "text").unwrap();
    for (name, kind) in [
        ("file", ErrorKind::AlreadyExists),
        ("copy", ErrorKind::AlreadyExists),
        ("no/copy", ErrorKind::NotFound),
    ] {
        let error = db.checkpoint(at(name)).unwrap_err();
        assert!(matches!(&error, Error::Io { source, .. } if source.kind() == kind), "{name}: {error}");
    }
    assert!(matches!(db.checkpoint(at("db/copy")), Err(Error::InvalidArgument { .. })));
    let mut names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["by a reader", "copy", "db", "file"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_store_is_copied_to_another_file_system() {
    use std::os::unix::fs::MetadataExt;
    let Ok(there) = tempfile::tempdir_in("/dev/shm") else { return println!("skipped: no /dev/shm") };
    let here = tempfile::tempdir().unwrap();
    let device = |dir: &Path| std::fs::metadata(dir).unwrap().dev();
    if device(there.path()) == device(here.path()) {
        return println!("skipped: one file system");
    }
    let db = Options::new().background_threads(0).open(here.path().join("db")).unwrap();
    db.put("flushed", "value").unwrap();
    db.flush().unwrap();
    db.put("logged", "value").unwrap();
    db.checkpoint(there.path().join("copy")).unwrap();
    let copy = Options::new().open(there.path().join("copy")).unwrap();
    assert!(copy.iter().count() == 2 && copy.verify().unwrap().damage.is_empty());
}
