//! The files and backups that are kept or deleted.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use sievedb::fs::{Fs, MemFs, Op};
use sievedb_backup::{Control, Error, UNUSED_SECONDS_MIN};

use crate::common::{Clock, REPO, backed_up, change, names, prepared, repository, restored};
use crate::support::store::{contents, open_at};

#[test]
fn files_are_deleted_a_day_after_they_were_found_unused_and_not_before() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let first = backed_up(&repository, &db).backup.id;
    change(&db);
    db.compact().unwrap();
    let second = backed_up(&repository, &db).backup.id;
    let expected = contents(&db).unwrap();
    let nothing = repository.prune(2).unwrap();
    assert_eq!((nothing.removed.len(), nothing.kept, nothing.unused_files), (0, 2, 0));
    let marked = repository.prune(1).unwrap();
    assert_eq!((&marked.removed[..], marked.kept), (&[first][..], 1));
    assert!(marked.unused_files > 5 && marked.deleted_files == 0);
    assert_eq!(names(&fs, "unused").len() as u64, marked.unused_files);
    clock.pass(UNUSED_SECONDS_MIN - 2);
    assert_eq!(repository.prune(1).unwrap().deleted_files, 0);
    clock.pass(2);
    let deleted = repository.prune(1).unwrap();
    assert_eq!((deleted.deleted_files, deleted.unused_files), (marked.unused_files, 0));
    assert!(deleted.deleted_bytes > 1000 && names(&fs, "unused").is_empty());
    assert!(restored(&fs, &repository, &second) == expected);
    assert!(repository.verify(&mut Control::new()).unwrap().is_sound());
}

#[test]
fn the_newest_complete_backups_of_each_store_are_kept() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    db.checkpoint("/copy").unwrap();
    let copy = open_at(&fs, "/copy").unwrap();
    let mut ids = Vec::new();
    for _ in 0..3 {
        for db in [&db, &copy] {
            ids.push(backed_up(&repository, db).backup.id);
            change(db);
        }
    }
    // Incomplete, so it does not count.
    let only = repository.backups().unwrap().backups[0].clone();
    let newest = fs.files(&Path::new(REPO).join("files"));
    let log = newest.iter().filter(|(_, bytes)| bytes[8] == 3).max_by_key(|(_, bytes)| bytes.len());
    let before = repository.backups().unwrap().backups.iter().filter(|backup| backup.missing > 0).count();
    assert_eq!((before, &only.id), (0, &ids[5]));
    fs.remove(&log.unwrap().0).unwrap();
    let incomplete: Vec<_> =
        repository.backups().unwrap().backups.into_iter().filter(|backup| backup.missing > 0).collect();
    assert_eq!(incomplete.len(), 1);
    let report = repository.prune(1).unwrap();
    let left: Vec<String> =
        repository.backups().unwrap().backups.into_iter().map(|backup| backup.id).collect();
    let is_newest = ids[4..].contains(&incomplete[0].id);
    assert_eq!((report.kept, left.len()), if is_newest { (3, 3) } else { (2, 2) });
    assert!(ids[4..].iter().all(|id| left.contains(id)), "{left:?} of {ids:?}");
}

#[test]
fn nothing_is_deleted_while_an_index_cannot_be_read() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let id = backed_up(&repository, &db).backup.id;
    db.compact().unwrap();
    backed_up(&repository, &db);
    let index = Path::new(REPO).join("backups").join(format!("{id}.index"));
    let mut bytes = fs.files(&index).remove(0).1;
    bytes[100] ^= 1;
    fs.overwrite(&index, bytes);
    let files = names(&fs, "files");
    let error = repository.prune(1).unwrap_err();
    assert!(matches!(&error, Error::Damaged { file, .. } if *file == index), "{error}");
    assert_eq!((names(&fs, "files"), names(&fs, "unused").len()), (files, 0));
    fs.remove(&index).unwrap();
    assert!(repository.prune(1).unwrap().unused_files > 5);
}

#[test]
fn a_file_that_was_found_unused_is_used_again() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let id = backed_up(&repository, &db).backup.id;
    let index = Path::new(REPO).join("backups").join(format!("{id}.index"));
    let bytes = fs.files(&index).remove(0).1;
    // As if another process wrote the index meanwhile.
    fs.remove(&index).unwrap();
    assert!(repository.prune(1).unwrap().unused_files > 20);
    assert!(names(&fs, "files").is_empty());
    fs.overwrite(&index, bytes);
    assert_eq!(repository.backups().unwrap().backups[0].missing, 0);
    assert!(restored(&fs, &repository, &id) == contents(&db).unwrap());
    // A backup takes them back.
    let unused = names(&fs, "unused").len();
    assert_eq!(backed_up(&repository, &db).copied_files, 0);
    assert_eq!((names(&fs, "files").len(), names(&fs, "unused").len()), (unused, 0));
    // So does the next call, which finds the index.
    fs.remove(&index).unwrap();
    let other = repository.backups().unwrap().backups.remove(0).id;
    let index = Path::new(REPO).join("backups").join(format!("{other}.index"));
    let bytes = fs.files(&index).remove(0).1;
    fs.remove(&index).unwrap();
    repository.prune(1).unwrap();
    fs.overwrite(&index, bytes);
    clock.pass(UNUSED_SECONDS_MIN + 1);
    let report = repository.prune(1).unwrap();
    assert_eq!((report.deleted_files, names(&fs, "files").len()), (0, unused));
}

#[test]
fn files_that_other_programs_leave_next_to_an_index_are_no_backups() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let id = backed_up(&repository, &db).backup.id;
    change(&db);
    backed_up(&repository, &db);
    let index = fs.files(&Path::new(REPO).join("backups").join(format!("{id}.index"))).remove(0).1;
    for name in
        [format!("{id} (conflicted copy)"), format!("{id} 2"), format!("._{id}"), format!("{id}\u{1b}[2J")]
    {
        fs.overwrite(&Path::new(REPO).join("backups").join(format!("{name}.index")), index.clone());
    }
    let found = repository.backups().unwrap();
    assert_eq!((found.backups.len(), found.unreadable.len()), (2, 0));
    assert!(repository.prune(2).unwrap().removed.is_empty());
}

#[test]
fn an_unused_file_does_not_replace_the_one_in_use() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    backed_up(&repository, &db);
    repository.prune(1).unwrap();
    let name = names(&fs, "files").remove(0);
    let unused = Path::new(REPO).join("unused");
    fs.create_dir(&unused).unwrap();
    fs.overwrite(&unused.join(format!("1-{name}")), b"damaged".to_vec());
    repository.prune(1).unwrap();
    assert!(names(&fs, "unused").is_empty());
    assert!(repository.verify(&mut Control::new()).unwrap().is_sound());
}

#[test]
fn on_a_full_disk_the_files_that_were_set_aside_are_deleted_before_more_are() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    backed_up(&repository, &db);
    change(&db);
    db.compact().unwrap();
    let last = backed_up(&repository, &db).backup.id;
    assert!(repository.prune(1).unwrap().unused_files > 0);
    clock.pass(UNUSED_SECONDS_MIN + 1);
    fs.remove(&Path::new(REPO).join("backups").join(format!("{last}.index"))).unwrap();
    // A removed file makes room for new names.
    let has_room = AtomicBool::new(false);
    fs.observe(move |_, op| {
        has_room.fetch_or(matches!(op, Op::Remove(..)), Ordering::SeqCst);
        match op {
            Op::Create(..) | Op::Rename(..) if !has_room.load(Ordering::SeqCst) => {
                Err(ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    });
    let report = repository.prune(1).unwrap();
    assert!(report.deleted_files > 0 && report.unused_files > 0, "{report:?}");
}
