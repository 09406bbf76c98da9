//! Copies of the listed files equal the store at one moment, under concurrent operations.

use std::collections::BTreeMap;
use std::path::Path;

use sievedb::fs::MemFs;
use sievedb::{Error, FileKind, LiveFile, LiveFiles};

use crate::support::store::{self, DIR, contents, examine, open_at};
use crate::support::workload::{Workload, universe};

const COPY: &str = "/copy";

type Identity = (FileKind, String, [u8; 16], u32, u64);

fn identity(file: &LiveFile) -> Identity {
    (file.kind(), file.name(), file.file_id(), file.checksum(), file.len())
}

fn bytes(file: &LiveFile) -> sievedb::Result<Vec<u8>> {
    let open = file.open()?;
    assert_eq!(open.len().unwrap(), file.len());
    Ok(open.read_to_vec(file.len() as usize, 0).unwrap_or_else(|error| panic!("{}: {error}", file.name())))
}

fn copied(live: &LiveFiles) -> sievedb::Result<MemFs> {
    let fs = MemFs::new();
    sievedb::fs::Fs::create_dir(&fs, Path::new(COPY)).unwrap();
    for file in live.files() {
        fs.overwrite(&Path::new(COPY).join(file.name()), bytes(file)?);
    }
    Ok(fs)
}

fn assert_is(fs: &MemFs, expected: &store::Contents, about: &str) {
    let db = open_at(fs, COPY).unwrap_or_else(|error| panic!("{about}: {error}"));
    let report = db.open_report();
    assert!(report.dropped.is_empty() && report.ignored.is_empty(), "{about}: {report:?}");
    let found = contents(&db).unwrap();
    assert!(found == *expected, "{about}: other contents");
    assert!(examine(&db, &found, &universe()).unwrap().is_sound(), "{about}");
}

#[test]
fn copies_of_the_files_are_the_moment_of_the_list_whatever_the_store_does_until_they_are_copied() {
    let (mut open, mut closed, mut kept) = (0, 0, 0);
    for seed in 0..12 {
        let fs = MemFs::new();
        let mut workload = Workload::new(&fs, seed);
        for round in 0..12 {
            workload.run(30).unwrap();
            let about = format!("seed {seed}, {round}");
            let db = workload.db().unwrap().clone();
            let (live, expected) = if round % 3 == 2 {
                let reader = store::open_read_only(&fs).unwrap();
                (reader.live_files().unwrap(), contents(&reader).unwrap())
            } else {
                (db.live_files().unwrap(), contents(&db).unwrap())
            };
            drop(db);
            let before: Vec<Vec<u8>> = live.files().iter().map(|file| bytes(file).unwrap()).collect();
            workload.run(25).unwrap();
            let copy = match copied(&live) {
                Ok(copy) => copy,
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    closed += 1;
                    continue;
                }
                Err(error) => panic!("{about}: {error}"),
            };
            let after = live.files().iter().map(|file| bytes(file).unwrap());
            assert!(before.into_iter().eq(after), "{about}: a file has changed");
            assert_is(&copy, &expected, &about);
            open += 1;
            let names: Vec<String> = live.files().iter().map(LiveFile::name).collect();
            let named = names.iter().filter(|name| !name.starts_with("CURRENT"));
            let now = store::files(&fs);
            drop(live);
            workload.run(5).unwrap();
            let left = store::files(&fs);
            kept += named.filter(|name| now.contains_key(*name) && !left.contains_key(*name)).count();
        }
    }
    println!(
        "{open} lists copied, {closed} of stores that were closed; {kept} files were kept for a list only"
    );
    assert!(open > 80 && closed > 5 && kept > 50);
}

#[test]
fn files_of_the_same_identity_have_the_same_bytes_also_in_checkpoints() {
    let (mut known, mut again) = (BTreeMap::<Identity, Vec<u8>>::new(), 0);
    let fs = MemFs::new();
    let mut workload = Workload::new(&fs, 7);
    for _ in 0..40 {
        workload.run(8).unwrap();
        let db = workload.db().unwrap().clone();
        db.checkpoint(COPY).unwrap();
        let copy = open_at(&fs, COPY).unwrap();
        for live in [db.live_files().unwrap(), copy.live_files().unwrap()] {
            for file in live.files() {
                let found = bytes(file).unwrap();
                match known.insert(identity(file), found.clone()) {
                    Some(before) if before == found => again += 1,
                    Some(_) => panic!("{} has other bytes", file.name()),
                    None => {}
                }
            }
        }
        copy.close().unwrap();
        fs.files(Path::new(COPY)).iter().for_each(|(path, _)| sievedb::fs::Fs::remove(&fs, path).unwrap());
        sievedb::fs::Fs::remove_dir(&fs, Path::new(COPY)).unwrap();
    }
    let kinds: std::collections::BTreeSet<FileKind> = known.keys().map(|identity| identity.0).collect();
    println!("{} files of {kinds:?}, {again} seen again", known.len());
    assert!(again > 200 && kinds.len() == 5);
}

#[test]
fn the_files_of_a_closed_store_cannot_be_listed_and_a_list_keeps_the_store_open() {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    db.put("k", "v").unwrap();
    let live = db.live_files().unwrap();
    assert!(live.seqno() >= 1);
    drop(db);
    assert!(matches!(store::open(&fs), Err(Error::Locked { .. })));
    let file = live.files()[0].clone();
    drop(live);
    assert!(matches!(store::open(&fs), Err(Error::Locked { .. })));
    drop(file);
    let db = store::open(&fs).unwrap();
    let other = db.clone();
    db.close().unwrap();
    assert!(matches!(other.live_files(), Err(Error::Closed)));
    assert!(fs.files(Path::new(DIR)).iter().any(|(path, _)| path.ends_with("CURRENT")));
}
