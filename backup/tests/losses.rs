//! Power losses and failures at every file operation: backups and restored stores are complete or absent.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::fs::{CrashPolicy, Fs, MemFs, Op};
use sievedb_backup::{Control, Error, Restore};

use crate::common::{
    Clock, INCOMPLETE, REPO, RESTORED, backed_up, change, damage_a_table, is_absent, names, path_of,
    prepared, remove, repository, restore_with, restored, sound, sound_after_repair,
};
use crate::support::sample::thorough;
use crate::support::store::{self, Contents, contents};

struct Image {
    fs: MemFs,
    about: String,
    is_end: bool,
}

/// The file system after a power loss before each operation, and after the last.
fn images(fs: &MemFs, call: impl FnOnce()) -> Vec<Image> {
    images_with(fs, 1, call)
}

/// With several images of random losses for each operation.
fn images_with(fs: &MemFs, randoms: u64, call: impl FnOnce()) -> Vec<Image> {
    let images = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    fs.observe(move |fs, op| {
        let mut taken = taken.lock().unwrap();
        let number = taken.len() as u64;
        let op = format!("{op:?}").chars().take(90).collect::<String>();
        let random = (number..number + randoms).map(CrashPolicy::Random);
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll].into_iter().chain(random) {
            taken.push(Image {
                fs: fs.crash(policy),
                about: format!("{policy:?} before {op}"),
                is_end: false,
            });
        }
        Ok(())
    });
    call();
    fs.stop_observing();
    let mut images = std::mem::take(&mut *images.lock().unwrap());
    let fs = fs.crash(CrashPolicy::DropUnsynced);
    images.push(Image { fs, about: "the end".into(), is_end: true });
    images
}

/// All, or some of each policy and the last ones.
fn sampled(images: Vec<Image>) -> impl Iterator<Item = Image> {
    let count = images.len();
    let is_wanted = move |at: usize| thorough() || at.is_multiple_of(8) || at + 15 > count;
    images.into_iter().enumerate().filter(move |(at, _)| is_wanted(*at)).map(|(_, image)| image)
}

/// Every backup must be complete and have the expected contents, in order. Returns the number of backups.
fn check(fs: &MemFs, clock: &Clock, expected: &[Contents], about: &str) -> usize {
    let repository = repository(fs, clock);
    let found = repository.backups().unwrap();
    assert!(found.unreadable.is_empty(), "{about}: {:?}", found.unreadable);
    let count = found.backups.len();
    for (backup, expected) in found.backups.iter().rev().zip(expected) {
        assert_eq!(backup.missing, 0, "{about}: {backup:?}");
        assert!(restored(fs, &repository, &backup.id) == *expected, "{about}: {}", backup.id);
    }
    let verified = repository.verify(&mut Control::new()).unwrap();
    assert!(verified.is_sound(), "{about}: {verified:?}");
    count
}

#[test]
fn after_a_power_loss_at_any_operation_of_a_backup_all_backups_are_complete_or_absent() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    backed_up(&repository, &db);
    let first = contents(&db).unwrap();
    change(&db);
    db.compact().unwrap();
    let second = contents(&db).unwrap();
    let images = images(&fs, || drop(backed_up(&repository, &db)));
    let (count, mut complete, mut absent) = (images.len(), 0, 0);
    for Image { fs, about, is_end } in sampled(images) {
        match check(&fs, &clock, &[first.clone(), second.clone()], &about) {
            1 => absent += 1,
            2 => complete += 1,
            other => panic!("{about}: {other} backups"),
        }
        assert!(!is_end || names(&fs, "backups").len() == 2);
        // The next backup succeeds, and leftovers are removed after a day.
        let db = store::open(&fs).unwrap();
        let again = crate::common::repository(&fs, &clock);
        let id = backed_up(&again, &db).backup.id;
        assert!(restored(&fs, &again, &id) == contents(&db).unwrap(), "{about}");
        clock.pass(sievedb_backup::UNUSED_SECONDS_MIN + 1);
        again.prune(9).unwrap();
        clock.pass(7 * sievedb_backup::UNUSED_SECONDS_MIN);
        again.prune(9).unwrap();
        assert!(names(&fs, "incomplete").is_empty() && names(&fs, "unused").is_empty(), "{about}");
        check(&fs, &clock, std::slice::from_ref(&first), &about);
    }
    println!("{count} images; of those tried the backup was complete in {complete}, absent in {absent}");
    assert!(count > 100 && complete >= 1 && absent > 15);
}

#[test]
fn after_a_power_loss_at_any_operation_of_the_first_backup_the_next_one_succeeds() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let db = prepared(&fs);
    let expected = contents(&db).unwrap();
    let images = images(&fs, || drop(backed_up(&repository(&fs, &clock), &db)));
    let mut tried = 0;
    for Image { fs, about, is_end } in sampled(images) {
        // If it does not exist, it is created.
        let found = check(&fs, &clock, std::slice::from_ref(&expected), &about);
        assert!(found == 1 || !is_end, "{about}");
        let db = store::open(&fs).unwrap();
        let id = backed_up(&repository(&fs, &clock), &db).backup.id;
        assert!(restored(&fs, &repository(&fs, &clock), &id) == contents(&db).unwrap(), "{about}");
        tried += 1;
    }
    assert!(tried > 30, "{tried}");
}

#[test]
fn after_a_power_loss_at_any_operation_of_replacing_a_damaged_file_no_backup_with_it_counts_as_complete() {
    for is_unused in [false, true] {
        let (fs, clock) = (MemFs::new(), Clock::new());
        let (db, repository) = (prepared(&fs), repository(&fs, &clock));
        let id = backed_up(&repository, &db).backup.id;
        let expected = contents(&db).unwrap();
        let path = damage_a_table(&fs);
        assert_eq!(repository.verify(&mut Control::new()).unwrap().damage.len(), 1);
        if is_unused {
            // As if the index was written after the search for unused files.
            let dir = Path::new(REPO).join("unused");
            fs.create_dir(&dir).unwrap();
            fs.sync_dir(Path::new(REPO)).unwrap();
            fs.rename(&path, &dir.join(format!("1-{}", path.file_name().unwrap().to_str().unwrap())))
                .unwrap();
            fs.sync_dir(&dir).and_then(|()| fs.sync_dir(path.parent().unwrap())).unwrap();
        }
        let images = images_with(&fs, 6, || assert_eq!(backed_up(&repository, &db).copied_files, 1));
        let (count, mut complete, mut incomplete) = (images.len(), 0, 0);
        for Image { fs, about, is_end } in images {
            let again = crate::common::repository(&fs, &clock);
            let found = again.backups().unwrap();
            assert!(found.unreadable.is_empty(), "{about}");
            let missing: u64 = found.backups.iter().map(|backup| backup.missing).sum();
            let verified = again.verify(&mut Control::new()).unwrap();
            match missing {
                0 => assert!(verified.is_sound(), "{about}: {verified:?}"),
                _ => assert!((found.backups.len(), missing) == (1, 1) && !is_end, "{about}: {found:?}"),
            }
            complete += u64::from(missing == 0);
            incomplete += missing;
            backed_up(&again, &store::open(&fs).unwrap());
            assert!(again.verify(&mut Control::new()).unwrap().is_sound(), "{about}");
            assert!(restored(&fs, &again, &id) == expected, "{about}");
            assert!(names(&fs, "unused").is_empty(), "{about}");
            again.prune(9).unwrap();
            assert!(names(&fs, "files").iter().all(|name| !name.ends_with(".damaged")), "{about}");
        }
        println!("{count} images; the backup was complete in {complete}, incomplete in {incomplete}");
        assert!(complete > 10 && incomplete > 50);
    }
}

#[test]
fn after_a_power_loss_at_any_operation_of_a_restore_the_store_is_complete_or_absent() {
    for is_damaged in [false, true] {
        let (fs, clock) = (MemFs::new(), Clock::new());
        let (db, repository) = (prepared(&fs), repository(&fs, &clock));
        let id = backed_up(&repository, &db).backup.id;
        let expected = contents(&db).unwrap();
        drop(db);
        remove(&fs, store::DIR);
        if is_damaged {
            damage_a_table(&fs);
        }
        let restore = || Restore::new().at(&*id).salvage(is_damaged);
        let images = images(&fs, || drop(restore_with(&repository, restore()).unwrap()));
        let salvaged = sound_after_repair(&fs, RESTORED);
        assert!((salvaged == expected) != is_damaged);
        let (count, mut complete, mut interrupted) = (images.len(), 0, 0);
        for Image { fs, about, is_end } in sampled(images) {
            let again = crate::common::repository(&fs, &clock);
            if fs.list(Path::new(RESTORED)).is_ok() {
                complete += 1;
                assert!(fs.files(&Path::new(INCOMPLETE).join("image")).is_empty(), "{about}");
            } else {
                assert!(!is_end);
                interrupted += u64::from(fs.list(Path::new(INCOMPLETE)).is_ok());
                restore_with(&again, restore()).unwrap_or_else(|error| panic!("{about}: {error}"));
                assert!(is_absent(&fs, INCOMPLETE), "{about}");
            }
            assert!(sound_after_repair(&fs, RESTORED) == salvaged, "{about}");
        }
        println!(
            "{count} images; of those tried the store was complete in {complete}, interrupted in {interrupted}"
        );
        assert!(count > 200 && complete > 1 && interrupted > 15);
    }
}

#[test]
fn after_a_power_loss_at_any_operation_of_pruning_the_remaining_backups_are_complete() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let mut expected = Vec::new();
    for _ in 0..3 {
        backed_up(&repository, &db);
        expected.push(contents(&db).unwrap());
        change(&db);
        db.compact().unwrap();
    }
    // One call marks, the other deletes.
    let mut all = images(&fs, || drop(repository.prune(2).unwrap()));
    clock.pass(sievedb_backup::UNUSED_SECONDS_MIN + 1);
    all.extend(images(&fs, || assert!(repository.prune(1).unwrap().deleted_files > 0)));
    let count = all.len();
    for Image { fs, about, .. } in sampled(all) {
        let left = names(&fs, "backups").len();
        assert!((1..=3).contains(&left), "{about}");
        assert_eq!(check(&fs, &clock, &expected[3 - left..], &about), left, "{about}");
        crate::common::repository(&fs, &clock).prune(1).unwrap();
        assert_eq!(check(&fs, &clock, &expected[2..], &about), 1, "{about}");
    }
    println!("{count} images");
    assert!(count > 60);
}

/// Calls `call` with each operation failing in turn, until none fails. `after` checks the state after a failure.
fn with_each_failure(
    fs: &MemFs,
    mut call: impl FnMut() -> sievedb_backup::Result<()>,
    mut after: impl FnMut(&Error, &str),
) -> u64 {
    let mut failures = 0;
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        for at in 0.. {
            let (number, failed) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
            let (has_failed, what) = (Arc::clone(&failed), Arc::new(Mutex::new(String::new())));
            let doing = Arc::clone(&what);
            fs.observe(move |_, op| {
                let path = path_of(&op);
                let is_it = [REPO, RESTORED, INCOMPLETE].iter().any(|dir| path.starts_with(dir))
                    || matches!(op, Op::SyncDir(dir) if dir == Path::new("/"));
                if is_it && number.fetch_add(1, Ordering::SeqCst) == at {
                    has_failed.store(true, Ordering::SeqCst);
                    *doing.lock().unwrap() = format!("{op:?}").chars().take(90).collect();
                    return Err(kind.into());
                }
                Ok(())
            });
            let done = call();
            fs.stop_observing();
            if !failed.load(Ordering::SeqCst) {
                done.unwrap();
                break;
            }
            failures += 1;
            let about = format!("{at}, {kind}: {}", what.lock().unwrap());
            match done {
                Err(error) => after(&error, &about),
                Ok(()) => panic!("{about}: an operation failed, and the call did not"),
            }
        }
    }
    failures
}

fn is_of_the_system(error: &Error) -> bool {
    match error {
        Error::Io { .. } => true,
        Error::Store(error) => matches!(error, sievedb::Error::Io { .. }),
        _ => false,
    }
}

#[test]
fn a_failure_at_any_operation_of_a_backup_leaves_all_others_and_the_store_as_they_were() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let mut expected = Vec::new();
    backed_up(&repository, &db);
    expected.push(contents(&db).unwrap());
    change(&db);
    db.compact().unwrap();
    let mut round = 0_u32;
    let failures = with_each_failure(
        &fs,
        || repository.backup(&db, &mut Control::new()).map(drop),
        |error, about| {
            assert!(is_of_the_system(error), "{about}: {error}");
            assert!(names(&fs, "incomplete").is_empty(), "{about}");
            let found = repository.backups().unwrap();
            assert!(found.unreadable.is_empty() && found.backups.iter().all(|backup| backup.missing == 0));
            // The next call copies again.
            for _ in 0..2 {
                clock.pass(sievedb_backup::UNUSED_SECONDS_MIN + 1);
                repository.prune(9).unwrap();
            }
            round += 1;
            db.put(round.to_be_bytes(), [5; 60]).unwrap();
        },
    );
    let ids = repository.backups().unwrap().backups;
    assert!(restored(&fs, &repository, &ids[0].id) == contents(&db).unwrap());
    assert!(restored(&fs, &repository, &ids.last().unwrap().id) == expected[0]);
    assert!(repository.verify(&mut Control::new()).unwrap().is_sound());
    println!("{failures} failures");
    assert!(failures > 30, "{failures}");
}

#[test]
fn a_failure_at_any_operation_of_a_restore_leaves_no_store_and_an_intact_repository() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    backed_up(&repository, &db);
    let expected = contents(&db).unwrap();
    let before = fs.files(Path::new(REPO));
    let mut removals = 0;
    let failures = with_each_failure(
        &fs,
        || {
            let done = restore_with(&repository, Restore::new()).map(drop);
            fs.stop_observing();
            if !is_absent(&fs, RESTORED) {
                // Only the building directory could not be removed.
                removals += u64::from(done.is_err());
                assert!(sound(&fs, RESTORED) == expected);
                remove(&fs, RESTORED);
            }
            done
        },
        |error, about| {
            assert!(is_of_the_system(error), "{about}: {error}");
            assert!(is_absent(&fs, RESTORED), "{about}: {error}");
            restore_with(&repository, Restore::new()).unwrap_or_else(|error| panic!("{about}: {error}"));
            assert!(is_absent(&fs, INCOMPLETE), "{about}");
            remove(&fs, RESTORED);
        },
    );
    assert!(fs.files(Path::new(REPO)) == before);
    println!("{failures} failures, {removals} of removals after the store had its name");
    assert!(failures > 100 && removals > 1);
}

#[test]
fn a_failure_at_any_operation_of_pruning_is_made_good_by_the_next_call() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let prepare = || {
        for _ in 0..2 {
            change(&db);
            db.compact().unwrap();
            backed_up(&repository, &db);
        }
        clock.pass(sievedb_backup::UNUSED_SECONDS_MIN + 1);
    };
    prepare();
    let failures = with_each_failure(
        &fs,
        || repository.prune(1).map(drop),
        |error, about| {
            assert!(is_of_the_system(error), "{about}: {error}");
            assert!(repository.verify(&mut Control::new()).unwrap().is_sound(), "{about}");
            prepare();
        },
    );
    repository.prune(1).unwrap();
    let ids = repository.backups().unwrap().backups;
    assert!(ids.len() == 1 && restored(&fs, &repository, &ids[0].id) == contents(&db).unwrap());
    println!("{failures} failures");
    assert!(failures > 20, "{failures}");
}
