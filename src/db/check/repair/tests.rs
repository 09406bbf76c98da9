//! Surveys: origins of tables, and a manifest that lost its end exactly between two edits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::report::{ManifestCondition, RepairReport};
use crate::db::handles::store::Db;
use crate::filename::FileName;
use crate::fs::{Fs, MemFs};
use crate::inspect::TableFacts;
use crate::options::{KeyspaceOptions, Options};
use crate::table::Origin;

const DIR: &str = "/db";
const NEW: &str = "/new";

fn options(fs: &MemFs) -> Options {
    Options::new().fs(Arc::new(fs.clone())).background_threads(0).memory_budget(1 << 20)
}

fn files(fs: &MemFs, part: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs.files(Path::new(DIR)).into_iter();
    files.filter(|(path, _)| path.to_str().expect("names are text").contains(part)).collect()
}

fn origins(fs: &MemFs) -> BTreeMap<u64, Origin> {
    let of = |path: PathBuf| {
        let file = fs.open(&path).unwrap();
        let facts = TableFacts::read(&file, &path, None).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(FileName::Table(number)) = FileName::parse(name) else { panic!("{name}") };
        (number, *facts.properties.unwrap().origin.expect("every table states its origin"))
    };
    files(fs, ".sst").into_keys().map(of).collect()
}

#[test]
fn tables_of_flushes_and_compactions_say_whose_they_are_and_what_they_replaced() {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    let users = db.keyspace("users", KeyspaceOptions::new()).unwrap();
    let flush = |value: &str| {
        let before = origins(&fs);
        users.put("first", value).unwrap();
        users.put("last", value).unwrap();
        let newest = db.snapshot().seqno();
        users.flush().unwrap();
        let after = origins(&fs);
        let (&number, origin) = after.iter().find(|(number, _)| !before.contains_key(number)).unwrap();
        assert_eq!((origin.keyspace, &origin.name[..], origin.newest), (1, "users", newest));
        assert_eq!((&origin.replaced, &origin.earlier), (&vec![], &vec![]));
        (number, newest)
    };
    let compact = || {
        users.compact().unwrap();
        let after = origins(&fs);
        assert_eq!(after.len(), 1);
        after.into_iter().next().unwrap()
    };
    let ((one, _), (two, newest)) = (flush("a"), flush("b"));
    let (three, origin) = compact();
    assert_eq!((origin.keyspace, &origin.name[..], origin.newest), (1, "users", newest));
    assert_eq!((origin.replaced, origin.earlier), (vec![two, one], vec![]));
    let (four, newest) = flush("c");
    let (_, origin) = compact();
    assert_eq!((origin.keyspace, &origin.name[..], origin.newest), (1, "users", newest));
    assert_eq!((origin.replaced, origin.earlier), (vec![four, three], vec![two, one]));
}

fn with_lost_edits(later: impl FnOnce(&Db)) -> MemFs {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).unwrap();
    db.put("old", "value").unwrap();
    db.flush().unwrap();
    let manifest = files(&fs, "MANIFEST");
    later(&db);
    db.close().unwrap();
    for (path, bytes) in manifest {
        assert!(files(&fs, "MANIFEST")[&path].len() > bytes.len());
        fs.overwrite(&path, bytes);
    }
    fs
}

fn with_a_lost_edit() -> MemFs {
    let fs = with_lost_edits(|db| {
        db.put("new", "value").unwrap();
        db.flush().unwrap();
    });
    assert_eq!(files(&fs, ".sst").len(), 2);
    fs
}

fn spoil_end(fs: &MemFs, path: &Path) {
    let mut table = files(fs, ".sst").remove(path).unwrap();
    let footer = table.len() - 128;
    let index = u64::from_le_bytes(table[footer..footer + 8].try_into().unwrap()) as usize;
    table[index..].fill(0);
    fs.overwrite(path, table);
}

fn repair(fs: &MemFs) -> (RepairReport, Db) {
    let report = options(fs).repair(DIR, NEW).unwrap();
    (report, options(fs).open(NEW).unwrap())
}

#[test]
fn a_lost_edit_is_noticed_by_what_a_log_promised_of_the_manifest() {
    let fs = with_a_lost_edit();
    let (report, db) = repair(&fs);
    assert_eq!(report.manifest, ManifestCondition::Cut, "{report:#?}");
    assert_eq!((report.certain_keys(), report.doubtful_keys()), (1, 1), "{report:#?}");
    assert_eq!(db.get("old").unwrap().as_deref(), Some(&b"value"[..]));
    let doubtful = db.existing_keyspace("doubtful").expect("there is a doubtful key");
    assert_eq!(doubtful.get("new").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn behind_a_lost_edit_a_table_that_names_no_keyspace_makes_every_key_doubtful() {
    let fs = with_a_lost_edit();
    spoil_end(&fs, files(&fs, ".sst").keys().next_back().unwrap());
    let (report, db) = repair(&fs);
    assert_eq!(report.manifest, ManifestCondition::Cut, "{report:#?}");
    assert_eq!((report.certain_keys(), report.doubtful_keys()), (0, 2), "{report:#?}");
    assert!(db.iter().next().is_none());
}

#[test]
fn a_newer_table_that_names_its_keyspace_does_not_vouch_for_one_that_names_none() {
    let fs = with_lost_edits(|db| {
        db.delete("old").unwrap();
        db.flush().unwrap();
        db.put("new", "value").unwrap();
        db.flush().unwrap();
    });
    let tables: Vec<PathBuf> = files(&fs, ".sst").into_keys().collect();
    assert_eq!(tables.len(), 3);
    // The newest table shows that no later table is missing.
    spoil_end(&fs, &tables[1]);
    let (report, db) = repair(&fs);
    assert_eq!(report.manifest, ManifestCondition::Cut, "{report:#?}");
    assert_eq!(report.certain_keys(), 0, "{report:#?}");
    assert_eq!(db.get("old").unwrap(), None, "it was deleted");
}

/// Keys 0 to 99. Range deletes hide 10 to 39 in a table, and 60 and above in the log; 20 and 70 were put later.
fn with_range_deletes(fs: &MemFs) -> Vec<Vec<u8>> {
    let db = options(fs).open(DIR).unwrap();
    let key = |number: u8| vec![number];
    (0..100).for_each(|number| db.put(key(number), "old").unwrap());
    db.compact().unwrap();
    db.put(key(200), "flushed").unwrap();
    db.delete_range(key(10)..key(40)).unwrap();
    db.put(key(20), "new").unwrap();
    db.flush().unwrap();
    db.delete_range(key(60)..).unwrap();
    db.put(key(70), "new").unwrap();
    let expected: Vec<_> = db.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    db.close().unwrap();
    assert_eq!(expected, (0..10).chain([20]).chain(40..60).chain([70]).map(key).collect::<Vec<_>>());
    expected
}

fn keys_of(db: &Db) -> Vec<Vec<u8>> {
    db.iter().map(|entry| entry.unwrap().0.to_vec()).collect()
}

#[test]
fn range_deletes_of_tables_and_logs_hide_what_they_hid() {
    let fs = MemFs::new();
    let expected = with_range_deletes(&fs);
    let report = options(&fs).repair(DIR, NEW).unwrap();
    assert!(report.lost_entries.is_empty() && report.doubtful.is_empty(), "{report:?}");
    assert_eq!(keys_of(&options(&fs).open(NEW).unwrap()), expected);
}

#[test]
fn spans_that_cannot_be_read_make_the_keys_under_them_doubtful() {
    let fs = MemFs::new();
    let expected = with_range_deletes(&fs);
    let table = files(&fs, ".sst").into_iter().find(|(path, bytes)| {
        let file = fs.open(path).unwrap();
        let facts = TableFacts::read(&file, path, None).unwrap();
        facts.has_spans() && !bytes.is_empty()
    });
    let (path, mut bytes) = table.unwrap();
    let file = fs.open(&path).unwrap();
    let spans = TableFacts::read(&file, &path, None).unwrap().properties.unwrap().spans.unwrap();
    bytes[spans.blocks[0].offset as usize + 25] ^= 1;
    fs.overwrite(&path, bytes);
    let report = options(&fs).repair(DIR, NEW).unwrap();
    let file = path.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(report.lost_entries.iter().map(|lost| &lost.file).collect::<Vec<_>>(), [&file]);
    let db = options(&fs).open(NEW).unwrap();
    let certain = keys_of(&db);
    assert!(certain.iter().all(|key| expected.contains(key)), "{certain:?}");
    let doubtful = db.keyspace("doubtful", KeyspaceOptions::new()).unwrap();
    let doubtful: Vec<_> = doubtful.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    assert!((10..40).filter(|number| *number != 20).all(|number| doubtful.contains(&vec![number])));
}
