//! Damage in a repository is reported with file and offset, never restored silently; the rest is salvaged.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sievedb::fs::{Fs, MemFs, Op};
use sievedb::{FilterKind, FilterPolicy, ManifestCondition};
use sievedb_backup::{Control, Error, Repository, Restore};

use crate::common::{
    Clock, INCOMPLETE, REPO, RESTORED, backed_up, change, is_absent, prepared, remove, repository,
    restore_with, restored, sound_after_repair,
};
use crate::support::sample::thorough;
use crate::support::store::{Contents, contents};

fn files(fs: &MemFs) -> Vec<(PathBuf, Vec<u8>)> {
    fs.files(&Path::new(REPO).join("files"))
}

fn damaged(path: &Path) -> PathBuf {
    path.with_file_name(format!("{}.damaged", path.file_name().unwrap().to_str().unwrap()))
}

/// Verifying and restoring must name the same file and offset.
fn found(fs: &MemFs, repository: &Repository, file: &Path) -> Option<u64> {
    let error = restore_with(repository, Restore::new().at("2026")).unwrap_err();
    assert!(is_absent(fs, RESTORED) && is_absent(fs, INCOMPLETE));
    let Error::Damaged { file: named, offset, .. } = &error else { panic!("{}: {error}", file.display()) };
    assert_eq!(named, file, "{error}");
    let verified = repository.verify(&mut Control::new()).unwrap();
    assert_eq!(verified.damage.len(), 1, "{verified:?}");
    assert_eq!((&verified.damage[0].0.file, verified.damage[0].0.offset), (named, *offset));
    assert!(error.to_string().contains(&verified.damage[0].0.name));
    *offset
}

/// All values are right, and all losses are reported.
fn salvaged(fs: &MemFs, repository: &Repository, expected: &Contents, about: &str) -> bool {
    let restore = Restore::new().at("2026").salvage(true);
    let report = restore_with(repository, restore).unwrap_or_else(|error| panic!("{about}: {error}"));
    assert_eq!(report.damage.len(), 1, "{about}");
    let repair = report.repair.unwrap_or_else(|| panic!("{about}: it was not repaired"));
    let rest = sound_after_repair(fs, RESTORED);
    // Losses of a damaged log or manifest are not listed by key. A log that is cut near its beginning looks unused: only the list
    // of damaged files shows the loss.
    let is_log = report.damage[0].name.ends_with(".wal");
    let may_lack_any = is_log
        || !repair.lost_writes.is_empty()
        || !repair.dropped.is_empty()
        || !repair.doubtful.is_empty()
        || repair.manifest != ManifestCondition::Whole;
    for (name, entries) in expected {
        let found = rest.get(name);
        for (key, value) in entries {
            match found.and_then(|found| found.get(key)) {
                Some(found) if found == value => {}
                _ => assert!(may_lack_any || repair.may_have_lost(name, key), "{about}: {key:?} {repair:?}"),
            }
        }
    }
    let is_complete = repair.is_complete() && repair.dropped.is_empty() && !is_log;
    assert!(!is_complete || rest == *expected, "{about}: complete, but not equal");
    remove(fs, RESTORED);
    is_complete
}

/// Of damage: a name, the bytes, and the reported offset.
type Way = (&'static str, Option<Vec<u8>>, Option<u64>);

#[test]
fn every_damaged_cut_or_missing_file_is_named_with_its_offset_and_the_rest_is_salvaged() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    backed_up(&repository, &db);
    let expected = contents(&db).unwrap();
    let (mut cases, mut complete) = (0, 0);
    let all = files(&fs);
    for (number, (path, bytes)) in all.iter().enumerate() {
        let mut ways: Vec<Way> = Vec::new();
        for at in [0, 70, bytes.len() / 2, bytes.len() - 1] {
            let mut bad = bytes.clone();
            bad[at.min(bytes.len() - 1)] ^= 0x10;
            ways.push(("flipped", Some(bad), None));
        }
        for len in [0, 1, bytes.len() - 1] {
            ways.push(("cut", Some(bytes[..len].to_vec()), Some(len as u64)));
        }
        ways.push(("longer", Some([&bytes[..], &[0]].concat()), Some(bytes.len() as u64)));
        ways.push(("missing", None, None));
        for (at, (what, bad, offset)) in ways.into_iter().enumerate() {
            if !thorough() && (at + number) % 3 != 0 {
                continue;
            }
            let about = format!("{} {what} {at}", path.display());
            match bad {
                Some(bad) => fs.overwrite(path, bad),
                None => fs.remove(path).unwrap(),
            }
            assert_eq!(found(&fs, &repository, path), offset, "{about}");
            complete += u64::from(salvaged(&fs, &repository, &expected, &about));
            cases += 1;
            fs.overwrite(path, bytes.clone());
            let _ = fs.remove(&damaged(path));
        }
    }
    println!("{cases} cases, {complete} in which nothing was lost");
    assert!(cases > 60 && complete > 5);
    assert!(restored(&fs, &repository, "2026") == expected);
}

#[test]
fn the_offset_is_that_of_the_damaged_part_of_a_long_file() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let options = sievedb::Options::new().fs(std::sync::Arc::new(fs.clone())).background_threads(0);
    let db = options.open("/db").unwrap();
    for n in 0..40_u32 {
        let noise: Vec<u8> =
            (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ n as u8).collect();
        db.put(n.to_be_bytes(), noise).unwrap();
    }
    db.flush().unwrap();
    let repository = repository(&fs, &clock);
    backed_up(&repository, &db);
    let (path, bytes) = files(&fs).into_iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
    assert!(bytes.len() > 3 << 20);
    for (at, offset) in [(0, 0), ((1 << 20) - 1, 0), (1 << 20, 1 << 20), ((3 << 20) + 5, 3 << 20)] {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        fs.overwrite(&path, bad);
        assert_eq!(found(&fs, &repository, &path), Some(offset));
        fs.remove(&damaged(&path)).unwrap();
    }
}

#[test]
fn a_file_that_verifying_has_found_damaged_is_copied_again_by_the_next_backup() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let older = backed_up(&repository, &db).backup.id;
    let expected = contents(&db).unwrap();
    db.put("more", "in the log").unwrap();
    let newer = backed_up(&repository, &db).backup.id;
    let (path, bytes) = files(&fs)
        .into_iter()
        .filter(|(_, bytes)| bytes[8] == 1)
        .max_by_key(|(_, bytes)| bytes.len())
        .unwrap();
    let mut bad = bytes.clone();
    bad[100] ^= 1;
    fs.overwrite(&path, bad.clone());
    let newest = backed_up(&repository, &db);
    assert_eq!(newest.copied_files, 0, "only lengths are checked");
    let newest = newest.backup.id;
    let verify = || repository.verify(&mut Control::new()).unwrap();
    fs.observe(|_, op| match op {
        Op::Create(..) => Err(ErrorKind::ReadOnlyFilesystem.into()),
        _ => Ok(()),
    });
    let verified = verify();
    fs.stop_observing();
    assert!(verified.damage.len() == 1 && verified.not_marked.is_some(), "{verified:?}");
    for _ in 0..2 {
        let verified = verify();
        assert_eq!((verified.damage.len(), verified.not_marked.is_none()), (1, true));
        assert_eq!((fs.files(&path)[0].1 == bad, &fs.files(&damaged(&path))[0].1[..]), (true, &[][..]));
    }
    assert!(repository.backups().unwrap().backups.iter().all(|backup| backup.missing == 1));
    assert!(matches!(restore_with(&repository, Restore::new()), Err(Error::NoBackup { .. })));
    assert!(matches!(restore_with(&repository, Restore::new().at(&*older)), Err(Error::Damaged { .. })));
    for (salvage, id) in [(Restore::new(), &newest), (Restore::new().at(&*older), &older)] {
        let report = restore_with(&repository, salvage.salvage(true)).unwrap();
        assert_eq!((&report.damage[0].file, &report.backup.id), (&path, id));
        remove(&fs, RESTORED);
    }
    // A file that is found intact loses its marker.
    fs.overwrite(&path, bytes.clone());
    assert!(verify().is_sound() && fs.files(&damaged(&path)).is_empty());
    assert!(restored(&fs, &repository, &newer) == contents(&db).unwrap());
    let mut bad = bytes.clone();
    bad[100] ^= 1;
    fs.overwrite(&path, bad.clone());
    verify();
    // Pruning keeps both as long as they are used.
    repository.prune(9).unwrap();
    assert!(!fs.files(&damaged(&path)).is_empty() && !fs.files(&path).is_empty());
    let healed = backed_up(&repository, &db);
    assert_eq!((healed.copied_files, healed.copied_bytes), (1, bytes.len() as u64));
    assert!(fs.files(&damaged(&path)).is_empty() && fs.files(&path)[0].1 == bytes);
    assert!(verify().is_sound() && restored(&fs, &repository, &older) == expected);
    // A marker is removed with its file.
    fs.overwrite(&path, bad);
    verify();
    db.compact().unwrap();
    backed_up(&repository, &db);
    repository.prune(1).unwrap();
    assert!(!fs.files(&damaged(&path)).is_empty() && fs.files(&path).is_empty());
    clock.pass(sievedb_backup::UNUSED_SECONDS_MIN + 1);
    repository.prune(1).unwrap();
    assert!(fs.files(&damaged(&path)).is_empty());
}

#[test]
fn an_intact_file_that_replaces_a_damaged_one_during_its_verification_stays() {
    let mut tried = 0;
    for at in 0.. {
        let (fs, clock) = (MemFs::new(), Clock::new());
        let (db, repository) = (prepared(&fs), repository(&fs, &clock));
        let id = backed_up(&repository, &db).backup.id;
        let (path, bytes) = files(&fs).remove(3);
        let mut bad = bytes.clone();
        bad[bytes.len() / 2] ^= 1;
        fs.overwrite(&path, bad);
        let (replaced, intact, number) = (path.clone(), bytes.clone(), AtomicU64::new(0));
        fs.observe(move |fs, _| {
            if number.fetch_add(1, Ordering::SeqCst) == at {
                fs.overwrite(&replaced, intact.clone());
            }
            Ok(())
        });
        repository.verify(&mut Control::new()).unwrap();
        fs.stop_observing();
        if fs.files(&path)[0].1 != bytes {
            break;
        }
        tried += 1;
        assert!(repository.verify(&mut Control::new()).unwrap().is_sound(), "{at}");
        assert!(restored(&fs, &repository, &id) == contents(&db).unwrap(), "{at}");
    }
    assert!(tried >= 2, "{tried}");
}

#[test]
fn a_file_that_is_cut_or_longer_is_copied_again_by_the_next_backup() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    backed_up(&repository, &db);
    let (path, bytes) = files(&fs).remove(3);
    for bad in [bytes[..bytes.len() - 1].to_vec(), [&bytes[..], &[0]].concat()] {
        fs.overwrite(&path, bad);
        assert_eq!(backed_up(&repository, &db).copied_files, 1);
        assert!(repository.verify(&mut Control::new()).unwrap().is_sound());
    }
}

#[test]
fn a_backup_whose_files_are_missing_is_passed_over_and_copied_again_by_the_next_backup() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let first = backed_up(&repository, &db).backup.id;
    let before: BTreeMap<PathBuf, Vec<u8>> = files(&fs).into_iter().collect();
    let expected = contents(&db).unwrap();
    change(&db);
    backed_up(&repository, &db);
    let only_second = files(&fs).into_iter().find(|(path, _)| !before.contains_key(path)).unwrap();
    fs.remove(&only_second.0).unwrap();
    let missing: Vec<u64> =
        repository.backups().unwrap().backups.iter().map(|backup| backup.missing).collect();
    assert_eq!(missing, [1, 0]);
    let report = restore_with(&repository, Restore::new()).unwrap();
    assert_eq!(report.backup.id, first);
    assert!(crate::common::sound(&fs, RESTORED) == expected);
    remove(&fs, RESTORED);
    let third = backed_up(&repository, &db);
    assert!(third.copied_files >= 1);
    assert!(restored(&fs, &repository, &third.backup.id) == contents(&db).unwrap());
    assert!(repository.backups().unwrap().backups.iter().all(|backup| backup.missing == 0));
    files(&fs).iter().for_each(|(path, _)| fs.remove(path).unwrap());
    assert!(matches!(restore_with(&repository, Restore::new()), Err(Error::NoBackup { .. })));
}

#[test]
fn a_damaged_index_is_listed_and_the_other_backups_are_restored() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let first = backed_up(&repository, &db).backup.id;
    let expected = contents(&db).unwrap();
    change(&db);
    let second = backed_up(&repository, &db).backup.id;
    let path = Path::new(REPO).join("backups").join(format!("{second}.index"));
    let good = fs.files(&path).remove(0).1;
    for at in [0, 20, 64, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs.overwrite(&path, bad);
        let found = repository.backups().unwrap();
        assert_eq!((found.backups.len(), found.unreadable.len()), (1, 1));
        assert!(matches!(&found.unreadable[0], Error::Damaged { file, .. } if *file == path), "{at}");
        assert!(matches!(restore_with(&repository, Restore::new().at(&*second)), Err(Error::Damaged { .. })));
        assert!(!repository.verify(&mut Control::new()).unwrap().is_sound());
        assert!(restored(&fs, &repository, &first) == expected);
        assert_eq!(restore_with(&repository, Restore::new()).unwrap().backup.id, first);
        remove(&fs, RESTORED);
        let next = backed_up(&repository, &db).backup.id;
        assert!(restored(&fs, &repository, &next) == contents(&db).unwrap());
        fs.remove(&Path::new(REPO).join("backups").join(format!("{next}.index"))).unwrap();
    }
    // A newer version's index is not damage.
    let mut newer = good.clone();
    newer[10] = 2;
    let sum = crc32fast::hash(&[&newer[32..48], &0_u64.to_le_bytes(), &newer[..60]].concat());
    newer[60..64].copy_from_slice(&sum.to_le_bytes());
    fs.overwrite(&path, newer);
    let found = repository.backups().unwrap();
    assert!(matches!(&found.unreadable[0], Error::Unsupported { .. }), "{:?}", found.unreadable);
}

#[test]
fn a_store_that_was_damaged_before_its_backup_is_found_by_a_verification_and_by_a_restore() {
    let (fs, clock) = (MemFs::new(), Clock::new());
    let (db, repository) = (prepared(&fs), repository(&fs, &clock));
    let expected = contents(&db).unwrap();
    db.close().unwrap();
    let tables = fs.files(Path::new("/db")).into_iter();
    let (path, mut bytes) =
        tables.filter(|(_, bytes)| bytes.get(8) == Some(&1)).max_by_key(|file| file.1.len()).unwrap();
    bytes[100] ^= 1;
    fs.overwrite(&path, bytes);
    backed_up(&repository, &crate::support::store::open_read_only(&fs).unwrap());
    let name = path.file_name().unwrap().to_str().unwrap();
    for _ in 0..2 {
        let verified = repository.verify(&mut Control::new()).unwrap();
        let [(damaged, ids)] = &verified.damage[..] else { panic!("{verified:?}") };
        assert!(
            damaged.was_copied_damaged() && damaged.offset.is_some() && damaged.name == name,
            "{damaged}"
        );
        assert_eq!((ids.len(), repository.backups().unwrap().backups[0].missing), (1, 0), "it is not marked");
    }
    let error = restore_with(&repository, Restore::new()).unwrap_err();
    assert!(
        matches!(&error, Error::Unsound { damage, .. } if damage[0].to_string().contains(name)),
        "{error}"
    );
    assert!(is_absent(&fs, RESTORED) && is_absent(&fs, INCOMPLETE));
    let report = restore_with(&repository, Restore::new().salvage(true)).unwrap();
    assert!(report.damage.is_empty() && !report.repair.unwrap().is_complete());
    let rest = sound_after_repair(&fs, RESTORED);
    let default = &rest["default"];
    assert!(!default.is_empty() && default.len() < expected["default"].len());
    assert!(default.iter().all(|(key, value)| expected["default"].get(key) == Some(value)));
}

#[test]
fn a_damaged_filter_counts_only_for_the_backups_before_a_separate_filter_replaced_it() {
    for at in [10, 200] {
        let (fs, clock) = (MemFs::new(), Clock::new());
        let (db, repository) = (prepared(&fs), repository(&fs, &clock));
        db.compact().unwrap();
        let expected = contents(&db).unwrap();
        db.close().unwrap();
        let tables = fs.files(Path::new("/db")).into_iter();
        let (path, intact) =
            tables.filter(|(_, bytes)| bytes.get(8) == Some(&1)).max_by_key(|file| file.1.len()).unwrap();
        let filter = (4096..intact.len()).step_by(4096).find(|&at| intact[at..].starts_with(b"\x89SVF"));
        let mut bad = intact;
        bad[filter.unwrap() + at] ^= 1;
        fs.overwrite(&path, bad.clone());
        let before = backed_up(&repository, &crate::support::store::open_read_only(&fs).unwrap()).backup.id;
        let db = crate::support::store::open_at(&fs, "/db").unwrap();
        db.refilter(FilterPolicy::new(FilterKind::Bloom).bits_per_key(9.0)).unwrap();
        assert!(db.verify().unwrap().damage.is_empty());
        let after = backed_up(&repository, &db).backup.id;
        let verify = || repository.verify(&mut Control::new()).unwrap();
        let found = verify();
        let [(damaged, ids)] = &found.damage[..] else { panic!("{found:?}") };
        assert!(damaged.was_copied_damaged() && *ids == [before.clone()], "{at}: {found:?}");
        fs.remove(&Path::new(REPO).join("backups").join(format!("{before}.index"))).unwrap();
        assert!(verify().is_sound(), "{at}: {:?}", verify());
        assert!(restored(&fs, &repository, &after) == expected);
        // The other bytes of the table are checked.
        db.close().unwrap();
        bad[100] ^= 1;
        fs.overwrite(&path, bad);
        for dir in ["backups", "files"] {
            fs.files(&Path::new(REPO).join(dir)).iter().for_each(|(path, _)| fs.remove(path).unwrap());
        }
        backed_up(&repository, &crate::support::store::open_read_only(&fs).unwrap());
        let found = verify();
        assert!(found.damage.iter().all(|(damaged, _)| damaged.was_copied_damaged()), "{found:?}");
        assert_eq!(found.damage.len(), 1, "{found:?}");
    }
}
