use std::path::Path;

use sievedb::fs::{MemFs, Op};
use sievedb::{Db, FilterKind, FilterPolicy, Options};

use super::store::{self, Contents, contents, examine, open_at};
use super::workload::universe;

/// The path that an operation changes.
pub(crate) fn path_of<'a>(op: &Op<'a>) -> &'a Path {
    match *op {
        Op::CreateDir(path)
        | Op::SyncDir(path)
        | Op::Create(path)
        | Op::Append(path, _)
        | Op::SetLen(path, _)
        | Op::Sync(path)
        | Op::Remove(path)
        | Op::RemoveDir(path)
        | Op::Rename(path, _)
        | Op::HardLink(_, path) => path,
        _ => unreachable!("a new operation"),
    }
}

/// Makes a store with tables, separate filters, closed logs, and entries in the current log.
pub(crate) fn prepared(fs: &MemFs) -> Db {
    let db = store::open(fs).unwrap();
    let side = db.keyspace("side", store::small()).unwrap();
    for n in 0..120_u32 {
        db.put(n.to_be_bytes(), [7; 100]).unwrap();
        if n % 40 == 0 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    db.refilter(FilterPolicy::new(FilterKind::Ribbon).bits_per_key(12.0)).unwrap();
    side.put("old", "entry").unwrap();
    for n in 0..80_u32 {
        db.put((n * 3).to_be_bytes(), [9; 100]).unwrap();
        while db.step().unwrap() {}
    }
    db.put("last", "entry").unwrap();
    db
}

pub(crate) fn sound(fs: &MemFs, dir: &str) -> Result<Contents, String> {
    let db = open_at(fs, dir).map_err(|error| format!("{dir} does not open: {error}"))?;
    match db.open_report() {
        report if report.ignored.is_empty() => read_all(&db, dir),
        report => Err(format!("{dir}: {report:?}")),
    }
}

/// Reads all data of a store that must be undamaged, except for ignored files.
pub(crate) fn read_all(db: &Db, dir: &str) -> Result<Contents, String> {
    if !db.open_report().dropped.is_empty() {
        return Err(format!("{dir}: {:?}", db.open_report()));
    }
    let found = contents(db)?;
    let findings = examine(db, &found, &universe())?;
    if findings.is_sound() { Ok(found) } else { Err(format!("{dir}: {findings:?}")) }
}

pub(crate) fn on_disk(dir: &Path) -> Db {
    let db = Options::new().background_threads(1).open(dir).unwrap();
    for n in 0..2000_u32 {
        db.put(n.to_be_bytes(), [1; 50]).unwrap();
    }
    db.flush().unwrap();
    db.put("k", "v").unwrap();
    db
}

pub(crate) fn opened_copy(dir: &Path, value: &str) -> Db {
    let copy = Options::new().open(dir).unwrap();
    let found = (copy.iter().count(), copy.get("k").unwrap());
    assert_eq!((found.0, found.1.as_deref()), (2001, Some(value.as_bytes())), "{}", dir.display());
    assert!(copy.verify().unwrap().damage.is_empty());
    copy
}
