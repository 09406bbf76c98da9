//! Backups and restores without failures.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::fs::MemFs;
use sievedb::{FileKind, FilterKind, FilterPolicy, LiveFiles, Options};
use sievedb_backup::{Control, Error, Repository, Restore, Stage};

use crate::common::{
    Clock, INCOMPLETE, REPO, RESTORED, backed_up, change, damage_a_table, is_absent, names, path_of,
    prepared, remove, repository, restore_with, restored, sound, sound_after_repair,
};
use crate::support::copies::{on_disk, opened_copy};
use crate::support::rng::Rng;
use crate::support::sample::thorough;
use crate::support::store::{self, DIR, contents, open_at};
use crate::support::workload::Workload;

#[test]
fn a_backup_of_an_unchanged_store_copies_nothing() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let first = backed_up(&repository, &db);
    assert_eq!((first.copied_files, first.copied_bytes), (first.backup.files, first.backup.bytes));
    assert!(first.backup.files > 20);
    let second = backed_up(&repository, &db);
    assert_eq!((second.copied_files, second.backup.bytes), (0, first.backup.bytes));
    assert_ne!(second.backup.id, first.backup.id);
    // A reopened store has another log and manifest.
    db.close().unwrap();
    let third = backed_up(&repository, &store::open_read_only(&fs).unwrap());
    assert!(third.copied_files <= 3, "{third:?}");
    let expected = contents(&store::open_read_only(&fs).unwrap()).unwrap();
    for backup in repository.backups().unwrap().backups {
        assert!(restored(&fs, &repository, &backup.id) == expected);
    }
    assert!(repository.verify(&mut Control::new()).unwrap().is_sound());
}

fn tables(live: &LiveFiles) -> BTreeSet<(String, u64)> {
    let tables = live.files().iter().filter(|file| matches!(file.kind(), FileKind::Table | FileKind::Filter));
    tables.map(|file| (file.name(), file.len())).collect()
}

#[test]
fn after_a_day_with_changes_of_one_percent_the_changed_tables_and_the_log_are_copied() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let db = store::open(&fs).unwrap();
    for n in 0..8000_u32 {
        db.put(n.to_be_bytes(), [1; 60]).unwrap();
        while db.step().unwrap() {}
    }
    db.flush().unwrap();
    db.settle().unwrap();
    let repository = repository(&fs, &clock);
    let first = backed_up(&repository, &db);
    let before = tables(&db.live_files().unwrap());
    // One percent: neighbours.
    for n in 4000..4080_u32 {
        db.put(n.to_be_bytes(), [2; 60]).unwrap();
    }
    db.flush().unwrap();
    db.settle().unwrap();
    db.put("in the", "log").unwrap();
    let after = tables(&db.live_files().unwrap());
    let changed: u64 = after.difference(&before).map(|(_, len)| len).sum();
    let second = backed_up(&repository, &db);
    let live = db.live_files().unwrap();
    let others =
        live.files().iter().filter(|file| !matches!(file.kind(), FileKind::Table | FileKind::Filter));
    let others: u64 = others.map(sievedb::LiveFile::len).sum();
    println!(
        "{} bytes; {} copied: {changed} of changed tables, {others} of log and manifest",
        first.backup.bytes, second.copied_bytes
    );
    assert!(second.copied_bytes >= changed && second.copied_bytes <= changed + others, "{second:?}");
    assert!(changed > 0 && second.copied_bytes * 4 < first.backup.bytes, "{second:?}");
    assert!(restored(&fs, &repository, &second.backup.id) == contents(&db).unwrap());
}

#[test]
fn several_stores_share_a_repository_and_checkpoints_share_tables() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let first = backed_up(&repository, &db);
    db.checkpoint("/copy").unwrap();
    let copy = open_at(&fs, "/copy").unwrap();
    copy.put("only in", "the copy").unwrap();
    let of_copy = backed_up(&repository, &copy);
    // Filters have another header in each store, so their contents are compared.
    let live = tables(&db.live_files().unwrap());
    let tables = live.iter().filter(|(name, _)| name.ends_with(".sst")).count() as u64;
    assert!(tables > 3);
    assert!(of_copy.backup.files - of_copy.copied_files >= tables, "{of_copy:?}");
    assert_ne!(of_copy.backup.store_id, first.backup.store_id);
    // With two stores, a backup or a store must be named.
    let error = restore_with(&repository, Restore::new()).unwrap_err();
    assert!(
        matches!(&error, Error::Ambiguous { detail, .. } if detail.contains(&first.backup.id)),
        "{error}"
    );
    let store: String = first.backup.store_id.iter().map(|byte| format!("{byte:02x}")).collect();
    for begin in [&store[..5], &store] {
        assert_eq!(
            restore_with(&repository, Restore::new().store(begin)).unwrap().backup.id,
            first.backup.id
        );
        remove(&fs, RESTORED);
    }
    assert!(restored(&fs, &repository, &first.backup.id) == contents(&db).unwrap());
    assert!(restored(&fs, &repository, &of_copy.backup.id) == contents(&copy).unwrap());
    // Also if the only index of one of them cannot be read.
    let path = Path::new(REPO).join(format!("backups/{}.index", first.backup.id));
    let index = fs.files(&path)[0].1.clone();
    fs.overwrite(&path, Vec::new());
    let error = restore_with(&repository, Restore::new()).unwrap_err().to_string();
    assert!(error.contains(&first.backup.id) && error.contains("another store"), "{error}");
    fs.overwrite(&path, index);
    // The restored store's first backup finds its tables.
    restore_with(&repository, Restore::new().at(&*first.backup.id)).unwrap();
    let again = open_at(&fs, RESTORED).unwrap();
    again.put("only", "restored").unwrap();
    let of_restored = backed_up(&repository, &again);
    assert!(of_restored.backup.files - of_restored.copied_files >= tables, "{of_restored:?}");
    let stores: BTreeSet<[u8; 16]> =
        repository.backups().unwrap().backups.iter().map(|backup| backup.store_id).collect();
    assert_eq!(stores.len(), 3);
    let expected = contents(&again).unwrap();
    again.close().unwrap();
    remove(&fs, RESTORED);
    assert!(restored(&fs, &repository, &of_restored.backup.id) == expected);
}

#[test]
fn filters_that_two_stores_have_built_for_shared_tables_are_not_mixed_up() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let origin = backed_up(&repository, &db).backup.id;
    let refiltered = |dir: &str| {
        let to = repository.restore(dir, &Restore::new().at(&*origin), &mut Control::new());
        to.unwrap();
        let db = open_at(&fs, dir).unwrap();
        db.refilter(FilterPolicy::new(FilterKind::Bloom).bits_per_key(9.0)).unwrap();
        db
    };
    let [one, two] = ["/one", "/two"].map(refiltered);
    let filters = |db: &sievedb::Db| {
        let live = db.live_files().unwrap();
        let filters = live.files().iter().filter(|file| file.kind() == FileKind::Filter);
        let identity = |file: &sievedb::LiveFile| (file.name(), file.file_id(), file.checksum(), file.len());
        filters.map(identity).collect::<BTreeSet<_>>()
    };
    assert!(!filters(&one).is_empty() && filters(&one) == filters(&two), "they look the same");
    repository.prune(1).unwrap();
    for db in [&one, &two] {
        let id = backed_up(&repository, db).backup.id;
        assert!(restored(&fs, &repository, &id) == contents(db).unwrap());
    }
}

#[test]
fn a_clock_that_was_set_back_does_not_make_a_new_backup_older() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    clock.pass(10 * 365 * 86_400);
    let first = backed_up(&repository, &db).backup;
    clock.set_back(10 * 365 * 86_400);
    change(&db);
    let second = backed_up(&repository, &db).backup;
    assert!(second.time > first.time && second.id > first.id);
    assert_eq!(repository.prune(1).unwrap().removed, [first.id]);
    assert!(restored(&fs, &repository, &second.id) == contents(&db).unwrap());
}

#[test]
fn backups_are_one_moment_whatever_a_writer_does_at_each_of_their_operations() {
    let (mut made, mut closed) = (0, 0);
    for seed in 0..if thorough() { 40 } else { 5 } {
        let (fs, clock) = (MemFs::new(), Clock::new());
        let repository = repository(&fs, &clock);
        let mut workload = Workload::new(&fs, seed);
        workload.run(100).unwrap();
        let workload = Arc::new(Mutex::new(workload));
        let history = workload.lock().unwrap().history();
        let states = Arc::new(Mutex::new(Vec::new()));
        let mut all = Vec::new();
        for number in 0..6 {
            let db = match number % 3 {
                2 => store::open_read_only(&fs).unwrap(),
                _ => workload.lock().unwrap().db().unwrap().clone(),
            };
            *states.lock().unwrap() = vec![history.lock().unwrap().newest()];
            let (working, is_working) = (Arc::clone(&workload), AtomicBool::new(false));
            let (noted, read) = (Arc::clone(&states), Arc::clone(&history));
            let rng = Mutex::new(Rng::new(seed * 100 + number));
            fs.observe(move |_, op| {
                if path_of(&op).starts_with(REPO) && !is_working.swap(true, Ordering::SeqCst) {
                    for _ in 0..rng.lock().unwrap().below(3) {
                        working.lock().unwrap().run(1).unwrap();
                        noted.lock().unwrap().push(read.lock().unwrap().newest());
                    }
                    is_working.store(false, Ordering::SeqCst);
                }
                Ok(())
            });
            let report = repository.backup(&db, &mut Control::new());
            drop(db);
            fs.stop_observing();
            match report {
                Ok(report) => {
                    let found = restored(&fs, &repository, &report.backup.id);
                    let is_moment = states.lock().unwrap().contains(&found);
                    assert!(is_moment, "seed {seed}, {number}: no moment of the store");
                    all.push((report.backup.id, found));
                    made += 1;
                }
                // The store was reopened meanwhile, which ends the protection of its files.
                Err(Error::Store(_)) => closed += 1,
                Err(error) => panic!("seed {seed}, {number}: {error}"),
            }
            workload.lock().unwrap().run(15).unwrap();
        }
        for (id, expected) in all {
            assert!(restored(&fs, &repository, &id) == expected, "seed {seed}: {id}");
        }
    }
    println!("{made} backups, {closed} of stores that were closed meanwhile");
    assert!(made > 15);
}

/// Cancels `call` at each report of its progress in turn, which must end it; `after` checks the state. Returns the number of
/// cancelled calls.
fn cancel_each(
    mut call: impl FnMut(&mut Control<'_>) -> sievedb_backup::Result<()>,
    mut after: impl FnMut(),
) -> u64 {
    let mut cancelled = 0;
    loop {
        let mut calls = 0;
        let mut control = Control::new().watch(|_| {
            calls += 1;
            if calls > cancelled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let done = call(&mut control);
        drop(control);
        match done {
            Err(Error::Cancelled) => assert_eq!(calls, cancelled + 1, "it did not end at once"),
            done => {
                done.unwrap();
                return cancelled;
            }
        }
        cancelled += 1;
        after();
    }
}

#[test]
fn a_cancelled_backup_verification_or_restore_ends_at_once_and_leaves_nothing_half_done() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let backed_up = cancel_each(
        |control| repository.backup(&db, control).map(drop),
        || assert!(names(&fs, "incomplete").is_empty() && names(&fs, "backups").is_empty()),
    );
    let before = fs.files(Path::new(REPO));
    let restore = |restore: &Restore| {
        let cancelled = cancel_each(
            |control| repository.restore(RESTORED, restore, control).map(drop),
            || assert!(is_absent(&fs, RESTORED) && is_absent(&fs, INCOMPLETE)),
        );
        let found = sound_after_repair(&fs, RESTORED);
        remove(&fs, RESTORED);
        (cancelled, found)
    };
    let (restored, found) = restore(&Restore::new());
    assert!(found == contents(&db).unwrap() && fs.files(Path::new(REPO)) == before);
    let path = damage_a_table(&fs);
    let marker = format!("{}.damaged", path.file_name().unwrap().to_str().unwrap());
    let verified = cancel_each(
        |control| repository.verify(control).map(|report| assert_eq!(report.damage.len(), 1)),
        || assert!(names(&fs, "files").iter().all(|name| !name.ends_with(".damaged") || *name == marker)),
    );
    assert_eq!(fs.files(Path::new(REPO)).len(), before.len() + 1);
    let (salvaged, found) = restore(&Restore::new().salvage(true));
    assert!(found != contents(&db).unwrap());
    println!(
        "{backed_up} backups, {restored} restores, {verified} verifications, {salvaged} salvages were cancelled"
    );
    assert!(backed_up > 15 && restored > 35 && verified > 15 && salvaged > 35);
}

#[test]
fn a_backup_does_not_copy_again_the_files_that_an_interrupted_one_has_copied() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let total: u64 = db.live_files().unwrap().files().iter().map(sievedb::LiveFile::len).sum();
    let mut there = 0;
    for half in [total / 3, total * 2 / 3] {
        let stop = |progress: sievedb_backup::Progress| {
            if progress.bytes_done > half { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let interrupted = repository.backup(&db, &mut Control::new().watch(stop));
        assert!(matches!(interrupted, Err(Error::Cancelled)));
        let files = fs.files(&Path::new(REPO).join("files"));
        let now = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        assert!(there < now && now < total, "{there} {now} of {total}");
        there = now;
    }
    // Also if they were found unused.
    assert!(repository.prune(1).unwrap().unused_files > 5);
    let report = backed_up(&repository, &db);
    assert_eq!(report.copied_bytes, total - there);
    assert!(restored(&fs, &repository, &report.backup.id) == contents(&db).unwrap());
}

#[test]
fn progress_counts_every_byte() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let mut last = None;
    let report = repository
        .backup(
            &db,
            &mut Control::new().watch(|progress| {
                last = Some(progress);
                ControlFlow::Continue(())
            }),
        )
        .unwrap();
    let last = last.unwrap();
    assert_eq!(
        (last.stage, last.bytes_done, last.bytes),
        (Stage::Copying, report.copied_bytes, last.bytes_done)
    );
}

#[test]
fn files_that_are_only_compared_count_for_progress_and_for_the_rate() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let first = backed_up(&repository, &db).backup;
    sievedb::fs::Fs::remove(&fs, &Path::new(REPO).join("backups").join(format!("{}.index", first.id)))
        .unwrap();
    let mut at = Vec::new();
    let watch = |progress: sievedb_backup::Progress| {
        let done = progress.bytes_done;
        at.push(done);
        // It waits.
        let waits = done > 0 && at.iter().filter(|&&other| other == done).count() > 2;
        if waits { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let paced = repository.backup(&db, &mut Control::new().limit_rate(1).watch(watch));
    assert!(matches!(paced, Err(Error::Cancelled)));
    // Filters of a copy have the same lengths and other bytes: they are compared, and then copied.
    backed_up(&repository, &db);
    db.checkpoint("/copy").unwrap();
    let mut last = None;
    let watch = |progress| {
        last = Some(progress);
        ControlFlow::Continue(())
    };
    let copy = open_at(&fs, "/copy").unwrap();
    let report = repository.backup(&copy, &mut Control::new().watch(watch)).unwrap();
    let last: sievedb_backup::Progress = last.unwrap();
    assert!(last.bytes_done == last.bytes && last.bytes > report.copied_bytes, "{last:?} {report:?}");
}

#[test]
fn what_makes_no_sense_is_refused_with_typed_errors() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let db = prepared(&fs);
    let shared: Arc<MemFs> = Arc::new(fs.clone());
    let open = |dir: &str| Repository::open_with(shared.clone(), dir);
    assert!(matches!(open(REPO), Err(Error::NoRepository { .. })));
    for is_store in [Repository::create_with(shared.clone(), DIR), open(DIR)] {
        assert!(matches!(is_store, Err(Error::NoRepository { detail, .. }) if detail == "it is a store"));
    }
    sievedb::fs::Fs::create_dir(&fs, Path::new("/letters")).unwrap();
    fs.overwrite(Path::new("/letters/letter.txt"), b"Dear".to_vec());
    assert!(matches!(Repository::create_with(shared.clone(), "/letters"), Err(Error::OtherFiles { .. })));
    let inside = crate::common::repository_at(&fs, "/db/backups", &clock);
    assert!(matches!(inside.backup(&db, &mut Control::new()), Err(Error::InvalidArgument { .. })));
    let repository = repository(&fs, &clock);
    assert!(fs.files(Path::new(DIR)).iter().all(|(path, _)| !path.starts_with("/db/backups")));
    assert!(sievedb::fs::Fs::list(&fs, Path::new("/db/backups")).is_err(), "it was not created");
    assert!(matches!(restore_with(&repository, Restore::new()), Err(Error::NoBackup { .. })));
    let id = backed_up(&repository, &db).backup.id;
    open(REPO).unwrap();
    change(&db);
    backed_up(&repository, &db);
    let at = |at: &str| restore_with(&repository, Restore::new().at(at));
    assert!(matches!(at("nothing like this"), Err(Error::NoBackup { .. })));
    let error = at(&id[..4]).unwrap_err();
    assert!(matches!(&error, Error::Ambiguous { detail, .. } if detail.contains(&id)), "{error}");
    assert!(matches!(at(""), Err(Error::InvalidArgument { .. })));
    let of = |store: &str| restore_with(&repository, Restore::new().store(store));
    assert!(matches!(of(""), Err(Error::InvalidArgument { .. })));
    assert!(matches!(of("xyz"), Err(Error::NoBackup { .. })));
    assert!(matches!(repository.prune(0), Err(Error::InvalidArgument { .. })));
    let to = |dir: &str| repository.restore(dir, &Restore::new(), &mut Control::new());
    assert!(
        matches!(to(DIR), Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists)
    );
    assert!(matches!(to("/repo/restored"), Err(Error::InvalidArgument { .. })));
    assert!(matches!(to("/"), Err(Error::InvalidArgument { .. })));
    let lock = Path::new("/there.restore-incomplete/LOCK");
    fs.overwrite(Path::new("/there.restore-incomplete/letters.txt"), b"Dear".to_vec());
    assert!(matches!(to("/there"), Err(Error::OtherFiles { found, .. }) if found == "letters.txt"));
    assert!(fs.files(lock).is_empty(), "nothing was written");
    sievedb::fs::Fs::remove(&fs, Path::new("/there.restore-incomplete/letters.txt")).unwrap();
    sievedb::fs::Fs::create_dir(&fs, lock.parent().unwrap()).unwrap();
    let held = sievedb::fs::Fs::lock(&fs, lock, sievedb::fs::LockKind::Exclusive).unwrap();
    assert!(matches!(to("/there"), Err(Error::Locked { .. })));
    drop(held);
    fs.overwrite(Path::new("/there.restore-incomplete/letters.txt"), b"Dear".to_vec());
    assert!(matches!(to("/there"), Err(Error::OtherFiles { found, .. }) if found == "letters.txt"));
    sievedb::fs::Fs::remove(&fs, Path::new("/there.restore-incomplete/letters.txt")).unwrap();
    to("/there").unwrap();
    sound(&fs, "/there");
}

#[test]
fn a_store_on_the_disk_is_backed_up_next_to_its_writer_and_restored() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = on_disk(&at("db"));
    let repository = Repository::create(at("repo")).unwrap();
    let reader = Options::new().read_only().open(at("db")).unwrap();
    db.compact().unwrap();
    db.put("k", "w").unwrap();
    // The reader's view has files that the writer removed.
    let by_reader = backed_up(&repository, &reader).backup.id;
    let by_writer = backed_up(&repository, &db).backup.id;
    std::fs::remove_dir_all(at("db")).unwrap();
    for (id, value) in [(by_reader, "v"), (by_writer, "w")] {
        let report = repository.restore(at(&id), &Restore::new().at(&*id), &mut Control::new()).unwrap();
        assert_eq!(report.backup.id, id);
        opened_copy(&at(&id), value);
    }
    // An unreadable index may be the newest.
    let unreadable = at("repo/backups/20991231T000000.000Z-00000000-00000000.index");
    std::fs::create_dir(&unreadable).unwrap();
    let error = repository.restore(at("none"), &Restore::new(), &mut Control::new()).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if *path == unreadable), "{error}");
    std::fs::remove_dir(&unreadable).unwrap();
    assert!(Repository::open(at("repo")).unwrap().verify(&mut Control::new()).unwrap().is_sound());
    let entries = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(entries, 3, "the repository and two stores");
}

#[test]
fn no_directory_above_the_repository_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = on_disk(&at("db"));
    let error = Repository::create(at("disk/repo")).unwrap().backup(&db, &mut Control::new()).unwrap_err();
    assert!(
        matches!(&error, Error::Io { op: "create", .. }) && error.to_string().ends_with("/disk"),
        "{error}"
    );
    assert!(!at("disk").exists());
    std::fs::create_dir(at("disk")).unwrap();
    backed_up(&Repository::create(at("disk/repo")).unwrap(), &db);
}
