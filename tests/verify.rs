//! `verify` lists all damage with offset and keys, even if the store cannot be opened.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use sievedb::fs::MemFs;
use sievedb::{Concerned, Damage, Db, Error, KeyspaceOptions, VerifyReport, inspect};

use crate::support::store::{self, DIR};

const KEYS: usize = 1500;

fn key(n: usize) -> String {
    format!("key {n:05}")
}

fn sample() -> MemFs {
    let fs = MemFs::new();
    let roomy = store::small().memtable_bytes(1 << 20).table_bytes(1 << 20);
    let db = store::options(&fs).default_keyspace(roomy).open(DIR).unwrap();
    (0..KEYS).for_each(|n| db.put(key(n), format!("value {n}")).unwrap());
    db.compact().unwrap();
    db.put(key(7), "newer").unwrap();
    db.flush().unwrap();
    (0..100).for_each(|n| db.put(key(n), "in the log").unwrap());
    db.sync().unwrap();
    db.close().unwrap();
    fs
}

fn verify(fs: &MemFs) -> VerifyReport {
    let before = store::files(fs);
    let report = store::options(fs).verify(DIR).unwrap();
    assert!(store::files(fs) == before, "verify changed a file");
    report
}

fn paths(fs: &MemFs, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = store::files(fs).into_iter().filter(|(name, _)| name.ends_with(ending)).collect();
    files.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.len()));
    files.into_iter().map(|(name, _)| Path::new(DIR).join(name)).collect()
}

fn manifest(fs: &MemFs) -> PathBuf {
    let names = store::files(fs);
    Path::new(DIR).join(names.keys().find(|name| name.starts_with("MANIFEST")).unwrap())
}

fn change(fs: &MemFs, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs.files(path)[0].1.clone();
    change(&mut bytes);
    fs.overwrite(path, bytes);
}

fn flip(fs: &MemFs, path: &Path, offset: usize) {
    change(fs, path, |bytes| bytes[offset] ^= 1);
}

#[track_caller]
fn is_at(damage: &Damage, path: &Path) -> u64 {
    match &damage.error {
        Error::Corruption { file, offset, .. } if file == path => *offset,
        other => panic!("not in {}: {other}", path.display()),
    }
}

#[test]
fn a_verification_that_is_cancelled_after_any_file_ends_there() {
    let fs = sample();
    for is_damaged in [false, true] {
        if is_damaged {
            flip(&fs, &manifest(&fs), 40);
        }
        for at in 0.. {
            let mut calls = 0;
            let verified = store::options(&fs).verify_with(DIR, |_| {
                calls += 1;
                if calls > at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if let Ok(report) = verified {
                assert_eq!((calls, report.damage.is_empty()), (at, !is_damaged));
                assert!(at > 2, "{at} files");
                break;
            }
            assert_eq!(calls, at + 1, "it did not end");
            assert!(matches!(verified, Err(Error::Cancelled)));
        }
    }
}

#[test]
fn a_sound_store_verifies_open_or_closed_and_its_contents_are_counted() {
    let fs = sample();
    let report = verify(&fs);
    assert!(report.damage.is_empty() && report.dropped.is_empty() && report.ignored.is_empty(), "{report:?}");
    assert_eq!((report.tables, report.filters, report.entries), (2, 2, KEYS as u64 + 1));
    assert_eq!((report.logs, report.batches), (1, 100));
    assert!(report.edits > 0 && report.bytes > 0);
    let db = store::open_read_only(&fs).unwrap();
    let mut by_reader = db.verify().unwrap();
    assert_eq!(by_reader.as_of, db.open_report().as_of);
    by_reader.as_of = report.as_of;
    assert_eq!(format!("{by_reader:?}"), format!("{report:?}"));
    drop(db);

    let db = store::open(&fs).unwrap();
    db.put("one", "more").unwrap();
    let report = db.verify().unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    let live = verify(&fs);
    assert!(live.as_of.is_some_and(|as_of| as_of.in_use && as_of.seqno > 0), "{live:?}");
    assert_eq!((live.batches, live.damage.len()), (report.batches, 0), "{live:?}");
    db.close().unwrap();
    assert!(matches!(store::options(&fs).verify("/none"), Err(Error::NoStore { .. })));
}

#[test]
fn a_store_is_verified_while_it_is_written_to() {
    let fs = MemFs::new();
    let db = store::options(&fs).background_threads(1).open(DIR).unwrap();
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || {
            for n in 0..6000 {
                db.put(key(n * 7 % 3000), [b'v'; 40]).unwrap();
                if n % 20 == 0 {
                    db.sync().unwrap();
                }
            }
        })
    };
    let mut rounds = 0;
    while !writer.is_finished() || rounds < 3 {
        let report = db.verify().unwrap();
        assert!(report.damage.is_empty(), "{report:?}");
        rounds += 1;
    }
    writer.join().unwrap();
    db.close().unwrap();
    assert!(verify(&fs).damage.is_empty());
}

#[test]
fn each_damaged_block_is_listed_once_with_the_keys_around_it() {
    let fs = sample();
    let table = &paths(&fs, ".sst")[0];
    let places = [200, 5_000, 9_000];
    places.iter().for_each(|&place| flip(&fs, table, place));
    let report = verify(&fs);
    assert_eq!(report.damage.len(), places.len(), "{report:?}");
    let db = store::open_read_only(&fs).unwrap();
    let lost: Vec<_> = (0..KEYS).filter(|&n| n >= 100 && db.get(key(n)).is_err()).collect();
    assert!(lost.len() > 10 && lost.len() < 200, "{lost:?}");
    let mut concerned = Vec::new();
    for (damage, place) in report.damage.iter().zip(places) {
        assert!(is_at(damage, table) <= place as u64);
        let keys = damage.keys.as_ref().unwrap();
        assert_eq!(keys.keyspace.as_deref(), Some("default"));
        concerned.extend((100..KEYS).filter(|&n| (&keys.first..=&keys.last).contains(&&key(n).into_bytes())));
    }
    assert!(lost.iter().all(|n| concerned.contains(n)), "{lost:?} but {concerned:?}");
    assert!(concerned.len() <= lost.len() + 2 * places.len(), "{lost:?} but {concerned:?}");
}

#[test]
fn verify_lists_damage_in_manifest_log_and_table_of_a_store_that_cannot_be_opened() {
    let fs = sample();
    let (log, table, manifest) = (&paths(&fs, ".wal")[0], &paths(&fs, ".sst")[0], &manifest(&fs));
    flip(&fs, table, 200);
    flip(&fs, log, 1_000);
    flip(&fs, log, 3_000);
    flip(&fs, manifest, 100);
    assert!(store::open_read_only(&fs).is_err());
    let report = verify(&fs);
    let of = |path: &Path| {
        let in_file =
            |damage: &&Damage| matches!(&damage.error, Error::Corruption { file, .. } if file == path);
        report.damage.iter().filter(in_file).count()
    };
    assert_eq!((of(manifest), of(log), of(table), report.damage.len()), (1, 2, 1, 4), "{report:?}");
    for damage in &report.damage {
        let Error::Corruption { file, .. } = &damage.error else { panic!("{damage:?}") };
        match damage.concerns() {
            Concerned::Unflushed => assert_eq!(file, log),
            Concerned::Any => assert_eq!(file, manifest),
            Concerned::Keys(_) => assert_eq!(file, table),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((report.tables, report.filters), (2, 2));
    let Some(keys) = &report.damage.iter().find_map(|damage| damage.keys.as_ref()) else {
        panic!("{report:?}")
    };
    assert_eq!((&keys.keyspace, &keys.first[..]), (&None, key(0).as_bytes()));
}

/// Offsets of the fragments of a log that are whole records of more than a hundred bytes.
fn records(log: &[u8]) -> Vec<usize> {
    const PAGE: usize = 32 << 10;
    let (mut at, mut found) = (64, Vec::new());
    while at + 16 <= log.len() {
        let len = usize::from(u16::from_le_bytes([log[at + 4], log[at + 5]]));
        if log[at + 6] & 3 == 3 && len > 100 {
            found.push(at);
        }
        at += (16 + len).next_multiple_of(8);
        if PAGE - at % PAGE < 16 {
            at = at.next_multiple_of(PAGE);
        }
    }
    found
}

#[test]
fn verify_lists_all_damage_of_a_log() {
    let fs = MemFs::new();
    let roomy = store::small().memtable_bytes(1 << 20);
    let db = store::options(&fs).memory_budget(16 << 20).default_keyspace(roomy).open(DIR).unwrap();
    (0..1400).for_each(|n| db.put(key(n), [b'v'; 150]).unwrap());
    db.sync().unwrap();
    db.close().unwrap();
    let log = &paths(&fs, ".wal")[0];
    let bytes = fs.files(log)[0].1.clone();
    let places: Vec<usize> = records(&bytes).into_iter().step_by(2).take(600).collect();
    assert_eq!(places.len(), 600);
    places.iter().for_each(|place| flip(&fs, log, place + 50));
    let report = verify(&fs);
    assert_eq!((report.damage.len(), report.omitted), (600, 0));
    for (damage, place) in report.damage.iter().zip(places) {
        assert_eq!((is_at(damage, log), damage.concerns()), (place as u64, Concerned::Unflushed));
    }
}

fn printed(bytes: &[u8]) -> (Vec<(u64, &'static str, String)>, u64) {
    let mut damage = Vec::new();
    let view = inspect::View::new().detail(inspect::Detail::Shape);
    let report = inspect::describe_bytes(bytes, &view, &mut |event: &inspect::Event<'_>| {
        if let inspect::Event::Damage(found) = event {
            damage.push((found.offset, found.what, found.detail.clone()));
        }
        Ok(())
    });
    let report = report.unwrap();
    assert_eq!(report.is_intact(), damage.is_empty());
    (damage, report.torn_bytes)
}

#[test]
fn printer_and_verify_agree_on_logs_and_manifests_with_any_bit_flipped() {
    let (fs, copy) = (MemFs::new(), MemFs::new());
    let db: Db = store::open(&fs).unwrap();
    for name in ["second", "third"] {
        db.keyspace(name, KeyspaceOptions::new()).unwrap();
    }
    for n in 0..12 {
        db.put(key(n), "value").unwrap();
        if n % 5 == 4 {
            db.sync().unwrap();
        }
    }
    sievedb::fs::Fs::create_dir(&copy, Path::new(DIR)).unwrap();
    for (name, mut bytes) in store::files(&fs) {
        if name.ends_with(".wal") {
            store::leave_little_room(&mut bytes);
        }
        copy.overwrite(&Path::new(DIR).join(name), bytes);
    }
    drop(db);
    let log = paths(&copy, ".wal").pop().unwrap();
    for path in [log, manifest(&copy)] {
        let good = copy.files(&path)[0].1.clone();
        let (mut corrupt, mut torn) = (0, 0);
        for bit in (0..8 * good.len()).step_by(3) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let (expected, torn_bytes) = printed(&bad);
            copy.overwrite(&path, bad);
            let report = verify(&copy);
            let mut found: Vec<_> = report
                .damage
                .iter()
                .filter_map(|damage| match &damage.error {
                    Error::Corruption { file, offset, what, detail, .. } if *file == path => {
                        Some((*offset, *what, detail.to_string()))
                    }
                    _ => None,
                })
                .collect();
            found.retain(|(_, _, detail)| !detail.starts_with("it ends with edit"));
            let dropped = report.dropped.iter().find(|tail| tail.file == path).map_or(0, |tail| tail.bytes);
            if bit / 8 < 64 {
                assert!(!found.is_empty() && !expected.is_empty(), "bit {bit}: {report:?}");
                continue;
            }
            assert_eq!(found, expected, "{}, bit {bit}", path.display());
            assert!(!expected.is_empty() || dropped == torn_bytes, "{}, bit {bit}", path.display());
            corrupt += u32::from(!expected.is_empty());
            torn += u32::from(torn_bytes > 0);
        }
        copy.overwrite(&path, good);
        assert!(corrupt > 10 && torn > 10, "{}: {corrupt}, {torn}", path.display());
    }
}

#[test]
fn without_current_the_newest_manifest_is_used() {
    for change_current in [|_: &mut Vec<u8>| {}, |bytes: &mut Vec<u8>| bytes[70] ^= 1] {
        let fs = sample();
        let current = Path::new(DIR).join("CURRENT");
        change(&fs, &current, change_current);
        if store::open_read_only(&fs).is_ok() {
            sievedb::fs::Fs::remove(&fs, &current).unwrap();
        }
        let report = verify(&fs);
        assert_eq!(report.damage.len(), 1, "{report:?}");
        is_at(&report.damage[0], &current);
        assert_eq!((report.tables, report.filters, report.logs), (2, 2, 1));
    }
}

#[test]
fn missing_and_unreferenced_files_are_named() {
    let fs = sample();
    let tables = paths(&fs, ".sst");
    let log = &paths(&fs, ".wal")[0];
    let stray = fs.files(&tables[1])[0].1.clone();
    fs.overwrite(&Path::new(DIR).join("000777.sst"), stray);
    fs.overwrite(&Path::new(DIR).join("000778.filter"), vec![1; 100]);
    fs.overwrite(&Path::new(DIR).join("notes.txt"), b"mine".to_vec());
    let report = verify(&fs);
    assert!(report.damage.is_empty(), "{report:?}");
    let ignored: Vec<_> = report.ignored.iter().map(|file| (file.name.as_str(), file.why)).collect();
    let expected = [
        ("notes.txt", "not a name of a store's file"),
        ("000777.sst", "left over"),
        ("000778.filter", "named like a file of the store, but is none"),
    ];
    assert_eq!(ignored, expected);

    sievedb::fs::Fs::remove(&fs, &tables[0]).unwrap();
    sievedb::fs::Fs::remove(&fs, log).unwrap();
    let report = verify(&fs);
    assert_eq!(report.damage.len(), 2, "{report:?}");
    is_at(&report.damage[0], log);
    is_at(&report.damage[1], &tables[0]);
    let keys = report.damage[1].keys.as_ref().unwrap();
    assert_eq!((&keys.first[..], &keys.last[..]), (key(0).as_bytes(), key(KEYS - 1).as_bytes()));
}

#[test]
fn verify_walks_a_table_that_cannot_be_opened() {
    let fs = sample();
    let table = &paths(&fs, ".sst")[0];
    change(&fs, table, |bytes| *bytes.last_mut().unwrap() ^= 1);
    flip(&fs, table, 5_000);
    let report = verify(&fs);
    let offsets: Vec<u64> = report.damage.iter().map(|damage| is_at(damage, table)).collect();
    let len = fs.files(table)[0].1.len() as u64;
    assert!(offsets.len() == 2 && offsets[0] <= 5_000 && offsets[1] > len - 200, "{report:?}");
}

#[test]
fn a_torn_tail_is_not_reported_as_damage() {
    let (fs, copy) = (MemFs::new(), MemFs::new());
    let db: Db = store::open(&fs).unwrap();
    (0..10).for_each(|n| db.put(key(n), "value").unwrap());
    sievedb::fs::Fs::create_dir(&copy, Path::new(DIR)).unwrap();
    for (name, bytes) in store::files(&fs) {
        let cut = if name.ends_with(".wal") { bytes.len() - 3 } else { bytes.len() };
        copy.overwrite(&Path::new(DIR).join(name), bytes[..cut].to_vec());
    }
    drop(db);
    let report = verify(&copy);
    assert!(report.damage.is_empty() && report.dropped.len() == 1, "{report:?}");
    assert_eq!((report.batches, report.logs), (9, 1));
}
