//! Backups next to other backups, to pruning and to verification stay complete.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::Db;
use sievedb::fs::{Fs, MemFs};
use sievedb_backup::{Control, Repository, Restore, UNUSED_SECONDS_MIN};

use crate::common::{
    Clock, INCOMPLETE, REPO, RESTORED, backed_up, change, damage_a_table, names, path_of, prepared, remove,
    repository, repository_with, restore_with, restored, sound,
};
use crate::support::hooked::HookedFs;
use crate::support::store::contents;

/// Calls `other` at the operation of this number in a directory. Returns whether there was one.
fn at_operation(
    fs: &MemFs,
    dir: &'static str,
    at: u64,
    call: impl FnOnce(),
    other: impl Fn() + Send + Sync + 'static,
) -> bool {
    let (number, is_running) = (AtomicU64::new(0), AtomicBool::new(false));
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    fs.observe(move |_, op| {
        let counts = path_of(&op).starts_with(dir) && !is_running.load(Ordering::SeqCst);
        if counts && number.fetch_add(1, Ordering::SeqCst) == at {
            is_running.store(true, Ordering::SeqCst);
            other();
            is_running.store(false, Ordering::SeqCst);
            is_done.store(true, Ordering::SeqCst);
        }
        Ok(())
    });
    call();
    fs.stop_observing();
    done.load(Ordering::SeqCst)
}

/// Likewise, at the operation of this number of those in the repository, which include reading.
fn at_any_operation(
    fs: &MemFs,
    clock: &Clock,
    at: u64,
    call: impl FnOnce(&Repository),
    other: impl FnOnce() + Send + 'static,
) -> bool {
    let hooked = HookedFs::new(fs);
    let repository = repository_with(Arc::new(hooked.clone()), REPO, clock);
    let (at, mut other) = (hooked.operations() + at + 1, Some(other));
    hooked.set_hook(move |number| {
        if let Some(other) = other.take_if(|_| number == at) {
            other();
        }
    });
    call(&repository);
    hooked.operations() >= at
}

#[test]
fn two_backups_at_once_are_both_complete_whichever_operation_of_one_the_other_runs_at() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let (mut tried, mut is_earlier) = (0, false);
    for at in 0.. {
        for name in ["files", "backups"] {
            names(&fs, name).iter().for_each(|file| {
                fs.remove(&Path::new(REPO).join(name).join(file)).unwrap();
            });
        }
        let before = contents(&db).unwrap();
        let (other, writer) = (repository.clone(), db.clone());
        let by_other = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&by_other);
        let mut id = String::new();
        let was_reached = at_operation(
            &fs,
            REPO,
            at,
            || id = backed_up(&repository, &db).backup.id,
            move || {
                change(&writer);
                let id = backed_up(&other, &writer).backup.id;
                *noted.lock().unwrap() = Some((id, contents(&writer).unwrap()));
            },
        );
        if !was_reached {
            break;
        }
        tried += 1;
        let (other, after) = by_other.lock().unwrap().take().unwrap();
        if at % 5 == 0 {
            // The moment is later if the other one ran before the files were listed.
            let found = restored(&fs, &repository, &id);
            is_earlier |= found == before;
            assert!(found == before || !is_earlier && found == after, "{at}");
            assert!(restored(&fs, &repository, &other) == after, "{at}");
        }
        assert!(repository.verify(&mut Control::new()).unwrap().is_sound(), "{at}");
        assert!(names(&fs, "incomplete").is_empty());
    }
    assert!(tried > 50 && is_earlier, "{tried}");
}

#[test]
fn a_backup_stays_complete_when_files_that_it_counts_on_are_found_unused_and_deleted_meanwhile() {
    let (mut tried, mut deleted, mut removed) = (0, 0, 0);
    for at in 0.. {
        let (fs, clock) = (MemFs::new(), Clock::new());
        let (db, repository) = (prepared(&fs), repository(&fs, &clock));
        backed_up(&repository, &db);
        change(&db);
        let before = contents(&db).unwrap();
        let (other, writer, time) = (repository.clone(), db.clone(), clock.clone());
        let count = Arc::new(AtomicU64::new(0));
        let deletions = Arc::clone(&count);
        let mut id = String::new();
        let was_reached = at_operation(
            &fs,
            REPO,
            at,
            || id = backed_up(&repository, &db).backup.id,
            move || {
                // The next backup shares no tables.
                writer.compact().unwrap();
                backed_up(&other, &writer);
                other.prune(1).unwrap();
                time.pass(UNUSED_SECONDS_MIN + 1);
                deletions.store(other.prune(1).unwrap().deleted_files, Ordering::SeqCst);
            },
        );
        if !was_reached {
            break;
        }
        tried += 1;
        deleted += u64::from(count.load(Ordering::SeqCst) > 0);
        if repository.backups().unwrap().backups.iter().any(|backup| backup.id == id) {
            assert!(restored(&fs, &repository, &id) == before, "{at}");
        } else {
            // The other backup is newer, so the second `prune` has removed this one.
            removed += 1;
        }
        // Moved files are moved back.
        repository.prune(9).unwrap();
        clock.pass(UNUSED_SECONDS_MIN + 1);
        repository.prune(9).unwrap();
        assert!(repository.verify(&mut Control::new()).unwrap().is_sound(), "{at}");
        assert!(names(&fs, "unused").is_empty(), "{at}");
    }
    println!("{tried} operations, at {deleted} of them files were deleted");
    assert!(tried > 20 && deleted > 10 && removed <= 1, "{removed}");
}

/// Returns the number of damaged files, which must be marked.
fn verify(repository: &Repository) -> usize {
    let report = repository.verify(&mut Control::new()).unwrap();
    assert!(report.not_marked.is_none(), "{report:?}");
    report.damage.len()
}

#[test]
fn verifications_at_each_operation_of_another_or_of_a_backup_leave_the_right_markers() {
    for is_backup in [false, true] {
        let mut tried = 0;
        for at in 0.. {
            let (fs, clock) = (MemFs::new(), Clock::new());
            let (db, repository) = (prepared(&fs), repository(&fs, &clock));
            let id = backed_up(&repository, &db).backup.id;
            damage_a_table(&fs);
            let other = repository.clone();
            let was_reached = match is_backup {
                true => {
                    verify(&repository);
                    let call = || drop(backed_up(&repository, &db));
                    at_operation(&fs, REPO, at, call, move || _ = verify(&other))
                }
                false => {
                    let call = || assert_eq!(verify(&repository), 1);
                    at_operation(&fs, REPO, at, call, move || assert_eq!(verify(&other), 1))
                }
            };
            if !was_reached {
                break;
            }
            tried += 1;
            let found = repository.backups().unwrap().backups;
            assert!(found.iter().all(|backup| backup.missing == u64::from(!is_backup)), "{at}: {found:?}");
            assert_eq!(verify(&repository), usize::from(!is_backup), "{at}");
            backed_up(&repository, &db);
            assert!(restored(&fs, &repository, &id) == contents(&db).unwrap(), "{at}");
        }
        assert!(tried >= if is_backup { 10 } else { 2 }, "{tried}");
    }
}

/// The damaged table is marked, and no index names it.
fn with_an_unused_damaged_table(fs: &MemFs, clock: &Clock) -> (Db, Repository, PathBuf) {
    let (db, repository) = (prepared(fs), repository(fs, clock));
    let id = backed_up(&repository, &db).backup.id;
    let path = damage_a_table(fs);
    assert_eq!(verify(&repository), 1);
    fs.remove(&Path::new(REPO).join("backups").join(format!("{id}.index"))).unwrap();
    (db, repository, path)
}

#[test]
fn a_damaged_file_is_not_taken_for_the_intact_one_that_is_found_unused_meanwhile() {
    let mut tried = 0;
    for at in 0.. {
        let (fs, clock) = (MemFs::new(), Clock::new());
        let (db, repository, _) = with_an_unused_damaged_table(&fs, &clock);
        // By another machine, whose clock is fast.
        clock.pass(3000);
        repository.prune(1).unwrap();
        clock.set_back(3000);
        let (other, mut id) = (repository.clone(), String::new());
        let call = || id = backed_up(&repository, &db).backup.id;
        if !at_operation(&fs, REPO, at, call, move || drop(other.prune(1).unwrap())) {
            break;
        }
        tried += 1;
        assert_eq!(verify(&repository), 0, "{at}");
        assert!(restored(&fs, &repository, &id) == contents(&db).unwrap(), "{at}");
    }
    assert!(tried > 30, "{tried}");
}

#[test]
fn a_damaged_file_keeps_its_marker_when_two_calls_find_it_unused() {
    let mut tried = 0;
    for at in 0.. {
        let (fs, clock) = (MemFs::new(), Clock::new());
        let (_db, repository, path) = with_an_unused_damaged_table(&fs, &clock);
        let call = |repository: &Repository| drop(repository.prune(1).unwrap());
        if !at_any_operation(&fs, &clock, at, call, move || drop(repository.prune(1).unwrap())) {
            break;
        }
        tried += 1;
        let content = path.file_name().unwrap().to_str().unwrap();
        assert!(names(&fs, "unused").iter().any(|name| name.ends_with(content)), "{at}");
        assert!(names(&fs, "files").contains(&format!("{content}.damaged")), "{at}");
    }
    assert!(tried > 10, "{tried}");
}

#[test]
fn a_restore_is_not_disturbed_by_backups_and_by_pruning_others() {
    let mut tried = 0;
    for at in (0..).step_by(7) {
        let (fs, clock) = (MemFs::new(), Clock::new());
        let (db, repository) = (prepared(&fs), repository(&fs, &clock));
        let expected = contents(&db).unwrap();
        backed_up(&repository, &db);
        let (other, writer) = (repository.clone(), db.clone());
        let mut done = None;
        let was_reached = at_operation(
            &fs,
            INCOMPLETE,
            at,
            || done = Some(restore_with(&repository, Restore::new())),
            move || {
                writer.compact().unwrap();
                change(&writer);
                backed_up(&other, &writer);
                other.prune(1).unwrap();
            },
        );
        if !was_reached {
            break;
        }
        tried += 1;
        // Its files were found unused, and stay for another day.
        done.unwrap().unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(sound(&fs, RESTORED) == expected, "{at}");
        remove(&fs, RESTORED);
    }
    assert!(tried > 20, "{tried}");
}
