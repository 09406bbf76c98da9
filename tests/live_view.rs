//! A concurrent reader sees one moment of the store. The writer runs in hooks of the reader's file operations
//! ([`HookedFs`]), so a seed or the number of an operation determines the interleaving. The reader must see the
//! contents after one of the writer's operations since the opening began.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use sievedb::fs::{CrashPolicy, Fs, MemFs};
use sievedb::{Db, Error, FilterKind, FilterPolicy, Keyspace, KeyspaceOptions, Options, WriteBatch};

use crate::support::hooked::HookedFs;
use crate::support::rng::Rng;
use crate::support::store::{self, Contents, DIR};
use crate::support::workload::Workload;

const SEEDS: std::ops::Range<u64> = 0..6;
const VIEWS: usize = 8;

struct Writer {
    workload: Workload,
    states: Vec<Contents>,
}

impl Writer {
    fn new(fs: &MemFs, seed: u64) -> Self {
        let mut workload = Workload::new(fs, seed);
        workload.run(150).unwrap();
        let states = vec![workload.history().lock().unwrap().newest()];
        Self { workload, states }
    }

    fn step(&mut self) {
        self.workload.run(1).unwrap();
        let newest = self.workload.history().lock().unwrap().newest();
        if self.states.last() != Some(&newest) {
            self.states.push(newest);
        }
    }

    fn newest(&self) -> usize {
        self.states.len() - 1
    }
}

fn reader(fs: &HookedFs) -> Options {
    store::options(&MemFs::new()).fs(Arc::new(fs.clone())).read_only()
}

fn run_between(fs: &HookedFs, writer: &Arc<Mutex<Writer>>, seed: u64, one_in: u64) {
    let (writer, mut rng) = (Arc::clone(writer), Rng::new(seed));
    fs.set_hook(move |_| {
        if rng.one_in(one_in) {
            (0..=rng.below(3)).for_each(|_| writer.lock().unwrap().step());
        }
    });
}

/// Returns the number of the matching state from `oldest` to `newest`.
fn check(db: &Db, writer: &Arc<Mutex<Writer>>, (oldest, newest): (usize, usize), about: &str) -> usize {
    let found = store::contents(db).unwrap_or_else(|error| panic!("{about}: {error}"));
    let writer: MutexGuard<'_, Writer> = writer.lock().unwrap();
    let is_found = |&number: &usize| writer.states[number] == found;
    let earlier = (0..oldest).rev().find(is_found);
    (oldest..=newest).find(is_found).unwrap_or_else(|| panic!("{about}: earlier it was {earlier:?}"))
}

#[test]
fn a_view_and_its_refresh_are_one_moment_for_any_writes_between_their_operations() {
    let (mut views, mut given_up, mut changed, mut tries) = (0, 0, 0, 0);
    for seed in SEEDS {
        let mem = MemFs::new();
        let writer = Arc::new(Mutex::new(Writer::new(&mem, seed)));
        let newest = || writer.lock().unwrap().newest();
        let fs = HookedFs::new(&mem);
        for view in 0..VIEWS {
            let about = format!("seed {seed}, view {view}");
            let one_in = [3, 8, 16, 40][view % 4];
            run_between(&fs, &writer, seed * 1000 + view as u64, one_in);
            let oldest = newest();
            let mut db = match reader(&fs).open(DIR) {
                Err(error @ Error::Changed { .. }) => {
                    assert!(error.to_string().contains("64 attempts"), "{about}: {error}");
                    given_up += 1;
                    continue;
                }
                opened => opened.unwrap_or_else(|error| panic!("{about}: {error}")),
            };
            let as_of = db.open_report().as_of.unwrap();
            let report = db.open_report();
            assert!(report.dropped.is_empty() && report.ignored.is_empty(), "{about}: {report:?}");
            tries += as_of.tries;
            views += 1;
            run_between(&fs, &writer, view as u64, 20);
            let number = check(&db, &writer, (oldest, newest()), &about);
            let damage = db.verify().unwrap();
            assert!(damage.damage.is_empty() && damage.changed.is_empty(), "{about}: {damage:?}");
            let (earlier, snapshot, mut last) = (db.clone(), db.snapshot(), number);
            for refresh in 0..3 {
                let (oldest, about) = (newest(), format!("{about}, refresh {refresh}"));
                run_between(&fs, &writer, seed * 100 + refresh, one_in);
                let refreshed = db.refresh();
                run_between(&fs, &writer, view as u64, 20);
                let range = match refreshed {
                    Err(Error::Changed { .. }) => (last, last),
                    refreshed => {
                        changed += u64::from(refreshed.unwrap_or_else(|error| panic!("{about}: {error}")));
                        (oldest, newest())
                    }
                };
                last = check(&db, &writer, range, &about);
            }
            assert_eq!(check(&earlier, &writer, (number, number), &about), number, "it keeps its moment");
            let count = writer.lock().unwrap().states[number]["default"].len();
            assert_eq!(snapshot.iter().count(), count, "{about}");
            fs.remove_hook();
        }
    }
    println!("{views} views in {tries} tries, {given_up} given up, {changed} times refreshed");
    assert!(views > 40 && changed > 80 && tries > 2 * views && given_up < views / 4);
}

fn prepared() -> (MemFs, Db, Keyspace) {
    let mem = MemFs::new();
    let db = store::open(&mem).unwrap();
    let side = db.keyspace("side", store::small()).unwrap();
    for n in 0..60_u32 {
        db.put(n.to_be_bytes(), [7; 100]).unwrap();
        side.put(n.to_be_bytes(), [8; 60]).unwrap();
    }
    db.flush().unwrap();
    while db.step().unwrap() {}
    for n in 0.. {
        db.put((n * 2_u32).to_be_bytes(), [9; 100]).unwrap();
        while db.step().unwrap() {}
        if logs(&mem, |_| true) == 2 {
            break;
        }
    }
    (mem, db, side)
}

fn logs(mem: &MemFs, is_counted: fn(usize) -> bool) -> usize {
    let is_log = |(name, bytes): &(&String, &Vec<u8>)| name.ends_with(".wal") && is_counted(bytes.len());
    store::files(mem).iter().filter(is_log).count()
}

type Script = fn(&MemFs, Db, Keyspace, &mut dyn FnMut(&Db)) -> Db;

const SCRIPTS: [(&str, Script); 7] = [
    ("one write", |_, db, _, note| {
        db.put("one", "write").unwrap();
        note(&db);
        db
    }),
    ("a log ends and the next one begins", |mem, db, _, note| {
        for n in 0.. {
            db.put(format!("more {n}"), [1; 100]).unwrap();
            note(&db);
            if logs(mem, |len| len > 64) == 2 && n % 2 == 1 {
                break;
            }
        }
        db
    }),
    ("a log ends, is stated to have ended, and a third one begins", |_, db, side, note| {
        for n in 0..120_u32 {
            db.put(format!("more {n}"), [1; 100]).unwrap();
            note(&db);
            side.put(format!("more {n}"), [2; 50]).unwrap();
            note(&db);
            if n % 3 == 0 {
                db.step().unwrap();
            }
        }
        db
    }),
    ("everything is flushed and compacted", |_, db, _, note| {
        db.put("before", "the flush").unwrap();
        note(&db);
        db.flush().unwrap();
        db.compact().unwrap();
        db.put("after", "the compaction").unwrap();
        note(&db);
        db
    }),
    ("a keyspace is dropped, and then that is noted in another", |_, db, _, note| {
        db.drop_keyspace("side").unwrap();
        note(&db);
        db.put("side", "was dropped").unwrap();
        note(&db);
        db
    }),
    ("a keyspace is made and written to in one batch with another", |_, db, side, note| {
        let made = db.keyspace("made", store::small()).unwrap();
        note(&db);
        let mut batch = WriteBatch::new();
        batch.put("made", "now").put_in(&made, "k", "v").delete_in(&side, 7_u32.to_be_bytes());
        db.write(batch).unwrap();
        note(&db);
        db
    }),
    ("the store is closed, opened again and written to", |mem, db, side, note| {
        drop(side);
        db.close().unwrap();
        let db = store::open(mem).unwrap();
        note(&db);
        db.put("opened", "again").unwrap();
        note(&db);
        db.flush().unwrap();
        db
    }),
];

#[test]
fn at_each_operation_of_an_opening_a_writer_can_do_anything_at_once() {
    for (name, script) in SCRIPTS {
        let (mut at, mut retried) = (0, 0);
        loop {
            at += 1;
            let (mem, db, side) = prepared();
            let states = Arc::new(Mutex::new(vec![store::contents(&db).unwrap()]));
            let (noted, fs) = (Arc::clone(&states), HookedFs::new(&mem));
            let writer = Arc::new(Mutex::new(Some((db, side))));
            let (writes, writers_disk) = (Arc::clone(&writer), mem.clone());
            let kept = Arc::new(Mutex::new(None));
            let keep = Arc::clone(&kept);
            fs.set_hook(move |number| {
                if number == at {
                    let (db, side) = writes.lock().unwrap().take().unwrap();
                    let mut note = |db: &Db| noted.lock().unwrap().push(store::contents(db).unwrap());
                    *keep.lock().unwrap() = Some(script(&writers_disk, db, side, &mut note));
                }
            });
            let db = reader(&fs).open(DIR).unwrap_or_else(|error| panic!("{name}, operation {at}: {error}"));
            let operations = fs.operations();
            let found =
                store::contents(&db).unwrap_or_else(|error| panic!("{name}, operation {at}: {error}"));
            let moment = states.lock().unwrap().iter().position(|state| *state == found);
            assert!(moment.is_some(), "{name}, operation {at}: no moment of the store");
            let verified = db.verify().unwrap();
            assert!(verified.damage.is_empty(), "{name}, operation {at}: {verified:?}");
            retried += u64::from(db.open_report().as_of.unwrap().tries > 1);
            if operations < at {
                assert_eq!(moment, Some(0), "{name}");
                break;
            }
        }
        println!("{name}: at each of {at} operations; {retried} openings took a second attempt");
        let has_no_edit = ["one write", "a log ends and the next one begins"].contains(&name);
        assert!(at > 30 && (retried == 0) == has_no_edit, "{name}");
    }
}

#[test]
fn a_view_of_an_unchanged_store_takes_one_attempt_and_a_refresh_changes_nothing() {
    let (mem, db, _) = prepared();
    let fs = HookedFs::new(&mem);
    let mut view = reader(&fs).open(DIR).unwrap();
    let as_of = view.open_report().as_of.unwrap();
    assert!((as_of.tries, as_of.in_use) == (1, true) && as_of.seqno > 120, "{as_of:?}");
    let before = fs.operations();
    assert!(!view.refresh().unwrap());
    let operations = fs.operations() - before;
    assert!(operations < 20, "{operations} operations to find that nothing has changed");
    let counted = || fs.operations();
    db.put("k", "v").unwrap();
    assert!(view.refresh().unwrap() && view.contains("k").unwrap());
    view.open_tables().unwrap();
    let before = counted();
    db.put("k", "w").unwrap();
    assert!(view.refresh().unwrap());
    view.open_tables().unwrap();
    assert_eq!(view.get("k").unwrap().unwrap(), b"w");
    let operations = counted() - before;
    assert!(operations < 60, "{operations} operations: tables stay open");
    assert!(matches!(db.clone().refresh(), Err(Error::InvalidArgument { .. })));
    let mut closed = view.clone();
    view.close().unwrap();
    assert!(matches!(closed.refresh(), Err(Error::Closed)));
}

#[test]
fn a_file_missing_in_two_attempts_in_a_row_is_damage_and_not_a_change() {
    let (mem, db, _) = prepared();
    let files = store::files(&mem);
    let first = |end: &str| Path::new(DIR).join(files.keys().find(|name| name.ends_with(end)).unwrap());
    let manifest = files.keys().find(|name| name.starts_with("MANIFEST")).unwrap();
    for path in [first(".sst"), first(".wal"), Path::new(DIR).join(manifest)] {
        let image = mem.crash(CrashPolicy::KeepAll);
        image.remove(&path).unwrap();
        let error = store::open_read_only(&image).unwrap_err();
        assert!(matches!(&error, Error::Corruption { file, .. } if *file == path), "{error}");
        let report = store::options(&image).verify(DIR).unwrap();
        assert!(report.changed.is_empty() && !report.damage.is_empty(), "{report:?}");
    }
    let damaged = first(".sst");
    let mut bytes = files[damaged.file_name().unwrap().to_str().unwrap()].clone();
    bytes[200] ^= 1;
    mem.overwrite(&damaged, bytes);
    let (fs, mut n) = (HookedFs::new(&mem), 0_u32);
    let writes = db.clone();
    fs.set_hook(move |_| {
        n += 1;
        if n.is_multiple_of(8) {
            writes.put(format!("later {n}"), [3; 50]).unwrap();
        }
    });
    let report = reader(&fs).verify(DIR).unwrap();
    assert!(report.as_of.unwrap().in_use && report.changed.is_empty(), "{report:?}");
    assert!(report.damage.iter().all(|damage| damage.error.to_string().contains(".sst")), "{report:?}");
    assert_eq!(report.damage.len(), 1, "{report:?}");
}

#[test]
fn a_file_that_the_limit_does_not_let_a_view_hold_is_a_change_and_no_damage_once_it_is_removed() {
    let mem = MemFs::new();
    let db = store::open(&mem).unwrap();
    for n in 0..2000_u32 {
        db.put(n.to_be_bytes(), [n as u8; 100]).unwrap();
    }
    db.compact().unwrap();
    let tables = db.stats().keyspaces[0].total().tables;
    assert!(tables > 30, "{tables}");
    let view = |limit| store::options(&mem).open_files_max(limit).read_only().open(DIR).unwrap();
    let (few, all) = (view(8), view(tables as usize));
    assert_eq!(view(8).iter().filter(|item| item.is_ok()).count(), 2000);
    for n in 0..2000_u32 {
        db.put(n.to_be_bytes(), "new").unwrap();
    }
    db.compact().unwrap();
    assert!(all.iter().all(|item| item.unwrap().1.len() == 100), "removed files are read");
    assert!(all.verify().unwrap().changed.is_empty());
    let error = few.iter().find_map(Result::err).expect("most files are gone");
    assert!(
        matches!(&error, Error::Changed { .. }) && error.to_string().contains("at most 8 files"),
        "{error}"
    );
    let report = few.verify().unwrap();
    assert!(report.damage.is_empty() && report.changed.len() as u64 == tables - 8, "{report:?}");
}

fn fill(db: &Db, value: &str) {
    for n in 0..300_u32 {
        db.put(n.to_be_bytes(), format!("{value} {n} {}", "x".repeat(60))).unwrap();
    }
    db.flush().unwrap();
}

#[test]
fn clones_of_a_reader_that_are_refreshed_separately_keep_their_tables() {
    let mem = MemFs::new();
    let db = store::open(&mem).unwrap();
    db.put("a", "b").unwrap();
    let mut one = store::open_read_only(&mem).unwrap();
    let (mut two, mut three) = (one.clone(), one.clone());
    fill(&db, "old");
    assert!(one.refresh().unwrap() && two.refresh().unwrap() && three.refresh().unwrap());
    fill(&db, "new");
    db.compact().unwrap();
    while db.step().unwrap() {}
    assert!(two.refresh().unwrap());
    drop(three);
    for (reader, value) in [(&one, &b"old"[..]), (&two, b"new")] {
        let found: Vec<_> = reader.iter().map(Result::unwrap).collect();
        assert_eq!(found.len(), 301);
        assert!(found.iter().all(|(key, found)| key[..] == *b"a" || found.starts_with(value)));
        let report = reader.verify().unwrap();
        assert!(report.damage.is_empty() && report.changed.is_empty(), "{report:?}");
    }
}

fn put_in_place(mem: &MemFs, files: Vec<(PathBuf, Vec<u8>)>) {
    mem.files(Path::new(DIR)).iter().for_each(|(path, _)| mem.remove(path).unwrap());
    files.into_iter().for_each(|(path, bytes)| mem.overwrite(&path, bytes));
}

#[test]
fn a_reader_is_refreshed_to_another_store_that_was_put_into_the_directory() {
    let mem = MemFs::new();
    let db = store::open(&mem).unwrap();
    fill(&db, "first");
    let mut reader = store::open_read_only(&mem).unwrap();
    let earlier = reader.clone();
    let all_start = |reader: &Db, start: &[u8]| {
        let found: Vec<_> = reader.iter().map(Result::unwrap).collect();
        found.len() == 300 && found.iter().all(|(_, value)| value.starts_with(start))
    };
    assert!(all_start(&reader, b"first"));
    db.close().unwrap();
    put_in_place(&mem, Vec::new());
    let db = store::open(&mem).unwrap();
    fill(&db, "second");
    assert!(reader.refresh().unwrap());
    assert!(all_start(&reader, b"second") && all_start(&earlier, b"first"));
}

#[test]
fn a_reader_whose_directory_has_another_store_by_now_copies_no_file_of_that_store() {
    let entries = |db: &Db| {
        db.iter().map(Result::unwrap).map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<Vec<_>>()
    };
    for reads in [false, true] {
        let mem = MemFs::new();
        let copy = Path::new("/copy");
        let db = store::open(&mem).unwrap();
        fill(&db, "first");
        let first = entries(&db);
        db.close().unwrap();
        let reader = store::open_read_only(&mem).unwrap();
        if reads {
            assert_eq!(entries(&reader), first);
        }
        put_in_place(&mem, Vec::new());
        let db = store::open(&mem).unwrap();
        fill(&db, "second");
        match reader.checkpoint(copy) {
            Ok(()) => {
                let copied =
                    Options::new().fs(Arc::new(mem.clone())).background_threads(0).open(copy).unwrap();
                assert_eq!(entries(&copied), first);
                assert!(copied.verify().unwrap().damage.is_empty());
            }
            Err(error) => {
                assert!(matches!(error, Error::Changed { .. } | Error::Io { .. }), "{error}");
                assert!(mem.files(copy).is_empty());
            }
        }
    }
}

fn bare(mem: &MemFs) -> Options {
    let none = FilterPolicy::new(FilterKind::None);
    store::options(mem).default_keyspace(KeyspaceOptions::new().filter(none))
}

fn replace_by_a_backup(compacts: bool) {
    let mem = MemFs::new();
    let db = bare(&mem).open(DIR).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let backup = mem.files(Path::new(DIR));
    let mut reader = bare(&mem).read_only().open(DIR).unwrap();
    let mut behind = reader.clone();
    let names = || store::files(&mem).into_keys().filter(|name| name.ends_with(".sst")).collect::<Vec<_>>();
    let begin = |value: &str| {
        let db = bare(&mem).open(DIR).unwrap();
        db.put("a", value).unwrap();
        db.flush().unwrap();
        (db, names())
    };
    let (db, first) = begin("one");
    assert!(reader.refresh().unwrap());
    let value = |reader: &Db| reader.get("a").unwrap().unwrap();
    assert_eq!(value(&reader), b"one");
    if compacts {
        db.compact().unwrap();
        while db.step().unwrap() {}
        assert!(reader.refresh().unwrap());
        assert_eq!(value(&reader), b"one");
    }
    drop(db);
    put_in_place(&mem, backup.clone());
    if !compacts {
        assert!(reader.refresh().unwrap(), "the backup has another state");
        assert!(!reader.contains("a").unwrap() && reader.contains("k").unwrap());
        put_in_place(&mem, backup);
    }
    let (db, second) = begin("two");
    assert_eq!(first, second);
    for n in 0..10_u32 {
        db.put(n.to_be_bytes(), "more").unwrap();
        db.flush().unwrap();
    }
    assert!(reader.refresh().unwrap() && behind.refresh().unwrap());
    assert_eq!([value(&reader), value(&behind)], [b"two"; 2]);
}

#[test]
fn a_reader_is_refreshed_to_a_backup_of_the_store_that_took_its_place_and_gave_a_number_again() {
    replace_by_a_backup(false);
}

#[test]
fn cached_blocks_of_a_table_that_was_compacted_away_are_not_read_for_one_of_the_same_number_in_a_backup() {
    replace_by_a_backup(true);
}

#[test]
fn the_memory_of_the_memtables_before_a_refresh_is_released() {
    let mem = MemFs::new();
    let options = || store::options(&mem).memory_budget(16 << 20).default_keyspace(KeyspaceOptions::new());
    let db = options().open(DIR).unwrap();
    for n in 0..2000_u32 {
        db.put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    let open = || options().read_only().open(DIR).unwrap();
    let mut reader = open();
    for round in 0..40_u32 {
        db.put("round", round.to_be_bytes()).unwrap();
        assert!(reader.refresh().unwrap());
    }
    assert_eq!(reader.stats().memory.memtables, open().stats().memory.memtables);
}

#[test]
fn the_rest_of_an_append_that_ends_with_zeros_is_a_change() {
    let mem = MemFs::new();
    let db = store::options(&mem).default_keyspace(KeyspaceOptions::new()).open(DIR).unwrap();
    db.put("zeros", [0; 3000]).unwrap();
    let image = mem.crash(CrashPolicy::KeepAll);
    let is_log = |(path, bytes): &(PathBuf, Vec<u8>)| {
        path.extension().is_some_and(|end| end == "wal") && bytes.len() > 3000
    };
    let (path, whole) = image.files(Path::new(DIR)).into_iter().find(is_log).unwrap();
    image.overwrite(&path, whole[..whole.len() - 1000].to_vec());
    let mut reader = store::open_read_only(&image).unwrap();
    assert!(!reader.contains("zeros").unwrap());
    image.overwrite(&path, whole);
    assert!(reader.refresh().unwrap() && reader.contains("zeros").unwrap());
}

#[test]
fn a_store_that_is_created_while_it_is_opened_for_reading_is_there_or_not() {
    let (mem, images) = (MemFs::new(), Arc::new(Mutex::new(Vec::new())));
    let taken = Arc::clone(&images);
    mem.create_dir(Path::new(DIR)).unwrap();
    mem.observe(move |mem, _| {
        taken.lock().unwrap().push(mem.crash(CrashPolicy::KeepAll));
        Ok(())
    });
    let db = store::open(&mem).unwrap();
    mem.stop_observing();
    db.put("k", "v").unwrap();
    let (images, mut found) = (std::mem::take(&mut *images.lock().unwrap()), [0, 0]);
    for (number, image) in images.iter().enumerate() {
        for at in 1.. {
            let now = image.crash(CrashPolicy::KeepAll);
            let (fs, rest, whole) = (HookedFs::new(&now), now.clone(), mem.files(Path::new(DIR)));
            fs.set_hook(move |operation| {
                if operation == at {
                    whole.iter().for_each(|(path, bytes)| rest.overwrite(path, bytes.clone()));
                }
            });
            match reader(&fs).open(DIR) {
                Ok(db) => found[usize::from(db.contains("k").unwrap())] += 1,
                Err(Error::NoStore { .. }) => found[0] += 1,
                Err(error) => panic!("image {number}, operation {at}: {error}"),
            }
            if fs.operations() < at {
                break;
            }
        }
    }
    println!("{} images; the store was there {found:?}", images.len());
    assert!(images.len() > 5 && found[0] > images.len() && found[1] > images.len(), "{found:?}");
}

#[test]
fn at_each_operation_of_a_verification_by_the_writer_it_can_go_on_in_the_next_log() {
    let mut at = 0;
    loop {
        at += 1;
        let mem = MemFs::new();
        let fs = HookedFs::of_writer(&mem);
        let db = store::options(&mem).fs(Arc::new(fs.clone())).open(DIR).unwrap();
        for n in 0_u32.. {
            db.put(n.to_be_bytes(), [9; 100]).unwrap();
            while db.step().unwrap() {}
            if logs(&mem, |_| true) == 2 {
                break;
            }
        }
        let (writes, files, before) = (db.clone(), mem.clone(), fs.operations());
        fs.set_hook(move |number| {
            if number == before + at {
                let mut more = (0..1000_u32).map(|n| format!("more {n}"));
                while logs(&files, |len| len > 64) < 2 {
                    writes.put(more.next().unwrap(), [1; 100]).unwrap();
                }
            }
        });
        let report = db.verify().unwrap();
        assert!(report.damage.is_empty(), "operation {at}: {report:?}");
        if fs.operations() < before + at {
            break;
        }
    }
    assert!(at > 10, "{at}");
}
