//! Small stores in memory. [`examine`] reads every key and many absent keys in every way, and verifies: each answer
//! must be right, or an error that names a file. [`contents`] is for undamaged stores.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sievedb::fs::MemFs;
use sievedb::{Compression, Db, Error, Keyspace, KeyspaceOptions, Options};

pub(crate) const DIR: &str = "/db";

pub(crate) type Entries = BTreeMap<Arc<[u8]>, Arc<[u8]>>;

pub(crate) type Contents = BTreeMap<String, Entries>;

pub(crate) fn small() -> KeyspaceOptions {
    KeyspaceOptions::new()
        .block_bytes(512)
        .memtable_bytes(4 << 10)
        .table_bytes(2 << 10)
        .level_base_bytes(8 << 10)
        .level_ratio(4)
        .l0_runs(3)
        .compression_at(1, Compression::Lz4)
}

/// Uses no threads, so tests are deterministic.
pub(crate) fn options(fs: &MemFs) -> Options {
    Options::new()
        .fs(Arc::new(fs.clone()))
        .background_threads(0)
        .memory_budget(1 << 20)
        .audit_absent(2)
        .reserve_bytes(4 << 10)
        .default_keyspace(small())
}

pub(crate) fn open(fs: &MemFs) -> sievedb::Result<Db> {
    options(fs).open(DIR)
}

pub(crate) fn open_at(fs: &MemFs, dir: &str) -> sievedb::Result<Db> {
    options(fs).open(dir)
}

pub(crate) fn open_read_only(fs: &MemFs) -> sievedb::Result<Db> {
    options(fs).read_only().open(DIR)
}

pub(crate) fn files(fs: &MemFs) -> BTreeMap<String, Vec<u8>> {
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    fs.files(Path::new(DIR)).into_iter().map(|(path, bytes)| (name(&path), bytes)).collect()
}

fn keyspace(db: &Db, name: &str) -> Result<Keyspace, String> {
    db.existing_keyspace(name).ok_or_else(|| format!("keyspace {name} is listed and not there"))
}

pub(crate) fn contents(db: &Db) -> Result<Contents, String> {
    let mut contents = Contents::new();
    for name in db.keyspaces() {
        let mut entries = Entries::new();
        for item in keyspace(db, &name)?.iter() {
            let (key, value) = item.map_err(|error| format!("scan of {name}: {error}"))?;
            entries.insert(Arc::from(&key[..]), Arc::from(&value[..]));
        }
        contents.insert(name, entries);
    }
    Ok(contents)
}

#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<Error>,
    pub(crate) damage: Vec<Error>,
    pub(crate) unusable_filters: u64,
}

impl Findings {
    pub(crate) fn is_sound(&self) -> bool {
        self.errors.is_empty() && self.damage.is_empty() && self.unusable_filters == 0
    }
}

/// An `Err` is a wrong answer.
pub(crate) fn examine(db: &Db, expected: &Contents, absent: &[Vec<u8>]) -> Result<Findings, String> {
    let mut findings = Findings::default();
    let names = db.keyspaces();
    if !names.iter().eq(expected.keys()) && !is_permutation(&names, expected) {
        return Err(format!("keyspaces are {names:?}, not {:?}", expected.keys()));
    }
    for (name, entries) in expected {
        let keyspace = keyspace(db, name)?;
        let mut found = |error| findings.errors.push(error);
        look_up(&keyspace, entries, absent, &mut found).map_err(|wrong| format!("{name}: {wrong}"))?;
        scan("forward", keyspace.iter(), entries.iter(), &mut found)
            .map_err(|wrong| format!("{name}: {wrong}"))?;
        scan("reverse", keyspace.iter().rev(), entries.iter().rev(), &mut found)
            .map_err(|wrong| format!("{name}: {wrong}"))?;
    }
    let stats = db.stats();
    findings.unusable_filters = stats.unusable_filters;
    if stats.audit_failures > 0 {
        return Err(format!("{} filters denied a key that is there", stats.audit_failures));
    }
    let verified = db.verify().map_err(|error| format!("verify: {error}"))?;
    findings.damage = verified.damage.into_iter().map(|damage| damage.error).collect();
    for error in findings.errors.iter().chain(&findings.damage) {
        names_its_place(error)?;
    }
    Ok(findings)
}

fn is_permutation(names: &[String], expected: &Contents) -> bool {
    names.len() == expected.len() && names.iter().all(|name| expected.contains_key(name))
}

fn look_up(
    keyspace: &Keyspace,
    entries: &Entries,
    absent: &[Vec<u8>],
    found: &mut impl FnMut(Error),
) -> Result<(), String> {
    let absent = absent.iter().filter(|key| !entries.contains_key(&key[..])).map(|key| (&key[..], None));
    let wanted: Vec<(&[u8], Option<&[u8]>)> =
        entries.iter().map(|(key, value)| (&key[..], Some(&value[..]))).chain(absent).collect();
    for &(key, value) in &wanted {
        match keyspace.get(key) {
            Ok(got) if got.as_deref() == value => {}
            Ok(got) => return Err(format!("get({}) gave {}", show(key), describe(got.as_deref(), value))),
            Err(error) => found(error),
        }
        match keyspace.contains(key) {
            Ok(got) if got == value.is_some() => {}
            Ok(got) => return Err(format!("contains({}) gave {got}", show(key))),
            Err(error) => found(error),
        }
        if value.is_some() && !keyspace.may_contain(key) {
            return Err(format!("may_contain({}) denies a key that is there", show(key)));
        }
    }
    let keys: Vec<&[u8]> = wanted.iter().map(|(key, _)| *key).collect();
    match keyspace.multi_get(&keys) {
        Ok(got) if got.iter().map(|value| value.as_deref()).eq(wanted.iter().map(|(_, value)| *value)) => {}
        Ok(_) => return Err("multi_get differs".into()),
        Err(error) => found(error),
    }
    Ok(())
}

fn scan<'e>(
    what: &str,
    mut items: impl Iterator<Item = sievedb::Result<(sievedb::Value, sievedb::Value)>>,
    mut expected: impl Iterator<Item = (&'e Arc<[u8]>, &'e Arc<[u8]>)>,
    found: &mut impl FnMut(Error),
) -> Result<(), String> {
    loop {
        match (items.next(), expected.next()) {
            (None, None) => return Ok(()),
            (Some(Err(error)), _) => {
                found(error);
                return match items.next() {
                    Some(Ok((key, _))) => {
                        Err(format!("{what} scan goes on to {} after an error", show(&key)))
                    }
                    _ => Ok(()),
                };
            }
            (Some(Ok((key, value))), Some((wanted, wanted_value))) => {
                if key[..] != wanted[..] {
                    return Err(format!("{what} scan gave {} instead of {}", show(&key), show(wanted)));
                }
                if value[..] != wanted_value[..] {
                    let difference = describe(Some(&value), Some(wanted_value));
                    return Err(format!("{what} scan: {} has {difference}", show(&key)));
                }
            }
            (Some(Ok((key, _))), None) => return Err(format!("{what} scan invents {}", show(&key))),
            (None, Some((wanted, _))) => return Err(format!("{what} scan ends before {}", show(wanted))),
        }
    }
}

/// Requires a file and an offset, or the name of a newer format.
pub(crate) fn names_its_place(error: &Error) -> Result<(), String> {
    match error {
        Error::Corruption { file, .. } | Error::Unsupported { file, .. } if file.starts_with(DIR) => Ok(()),
        other => Err(format!("an error that does not say where: {other:?}")),
    }
}

pub(crate) fn show(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&key[..key.len().min(40)]))
}

fn describe(got: Option<&[u8]>, wanted: Option<&[u8]>) -> String {
    let short = |value: Option<&[u8]>| {
        value.map_or("nothing".to_owned(), |value| {
            format!("{} {} bytes", show(&value[..value.len().min(12)]), value.len())
        })
    };
    format!("{} instead of {}", short(got), short(wanted))
}

pub(crate) fn written(log: &[u8]) -> usize {
    log.iter().rposition(|&byte| byte != 0).map_or(0, |last| (last + 1).next_multiple_of(8))
}

/// Cuts most of the preallocated space, so that a test can try every byte.
pub(crate) fn leave_little_room(log: &mut Vec<u8>) {
    log.truncate(written(log) + 40);
}
