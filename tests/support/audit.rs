//! Checks the order of file operations of one working thread. Durable data are derived from the operations alone.
//! Conditions before each operation:
//!
//! - *append to a manifest*: every table and filter is durable, with its name;
//! - *append a record to a log*: every older log is durable, so there is no gap;
//! - *rename `CURRENT.new`*: its bytes are synced, and its manifest is durable, with its name;
//! - *remove a table, a filter, a log or a manifest*: the current manifest is synced and `CURRENT` durable;
//! - *create*: the name was never used, except `CURRENT.new`; *rename*: only `CURRENT` is replaced;
//! - *append*, *set a length* (of a log, at least the length of its contents): the file was created since the opening.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sievedb::fs::{MemFs, Op};

use super::store::{self, DIR};

#[derive(Debug, Clone, Default)]
struct File {
    bytes: Vec<u8>,
    synced: usize,
    /// Whether the directory was synced since the file was created.
    named: bool,
    /// Whether the file existed when the audit began.
    found: bool,
}

impl File {
    fn is_durable(&self) -> bool {
        self.named && self.is_synced()
    }

    fn is_synced(&self) -> bool {
        self.synced == self.bytes.len()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Audit {
    files: BTreeMap<String, File>,
    names_used: BTreeSet<String>,
    pub(crate) checks: BTreeMap<&'static str, u64>,
    pub(crate) violations: Vec<String>,
}

impl Audit {
    pub(crate) fn of(fs: &MemFs) -> Self {
        let mut audit = Self::default();
        for (name, bytes) in store::files(fs) {
            audit.names_used.insert(name.clone());
            audit.files.insert(name, File { synced: bytes.len(), bytes, named: true, found: true });
        }
        audit
    }

    pub(crate) fn watch(fs: &MemFs) -> Arc<Mutex<Self>> {
        let audit = Arc::new(Mutex::new(Self::of(fs)));
        let books = Arc::clone(&audit);
        fs.observe(move |_, op| {
            books.lock().unwrap().note(op);
            Ok(())
        });
        audit
    }

    pub(crate) fn note(&mut self, op: Op<'_>) {
        match op {
            Op::CreateDir(_) => {}
            Op::SyncDir(dir) if dir != Path::new(DIR) => {}
            Op::SyncDir(_) => self.files.values_mut().for_each(|file| file.named = true),
            Op::Create(path) => self.create(&name(path)),
            Op::Append(path, bytes) => self.append(&name(path), bytes),
            Op::Sync(path) => {
                if let Some(file) = self.files.get_mut(&name(path)) {
                    file.synced = file.bytes.len();
                }
            }
            Op::SetLen(path, len) => self.set_len(&name(path), len),
            Op::Rename(from, to) => self.rename(&name(from), &name(to)),
            Op::Remove(path) => self.remove(&name(path)),
            other => self.violations.push(format!("{other:?} is not expected here")),
        }
    }

    fn check(&mut self, rule: &'static str, broken: impl IntoIterator<Item = String>) {
        *self.checks.entry(rule).or_default() += 1;
        self.violations.extend(broken.into_iter().map(|how| format!("{rule}: {how}")));
    }

    fn create(&mut self, name: &str) {
        let reused = name != "CURRENT.new" && !self.names_used.insert(name.to_owned());
        self.check("a name is never used twice", reused.then(|| name.to_owned()));
        self.files.insert(name.to_owned(), File::default());
    }

    fn append(&mut self, name: &str, bytes: &[u8]) {
        if name.starts_with("MANIFEST") {
            for (kind, rule) in [
                (".sst", "tables are durable before the manifest"),
                (".filter", "filters are durable before the manifest"),
            ] {
                let files: Vec<_> = self.files.iter().filter(|(other, _)| other.ends_with(kind)).collect();
                let is_checked = !files.is_empty();
                let loose = files.into_iter().filter(|(_, file)| !file.is_durable());
                let broken: Vec<_> =
                    loose.map(|(other, _)| format!("{name} is written, {other} is not durable")).collect();
                if is_checked {
                    self.check(rule, broken);
                }
            }
        }
        let is_header = self.files.get(name).is_some_and(|file| file.bytes.is_empty());
        if name.ends_with(".wal") && !is_header {
            let older = |other: &String| other.ends_with(".wal") && other.as_str() < name;
            let torn = self.files.iter().filter(|(other, file)| older(other) && !file.is_durable());
            let broken: Vec<_> =
                torn.map(|(older, _)| format!("{name} is written, {older} is not durable")).collect();
            self.check("a log is durable before the next is written", broken);
        }
        let found = self.files.get(name).is_none_or(|file| file.found);
        self.check("what was found is never written", found.then(|| name.to_owned()));
        if let Some(file) = self.files.get_mut(name) {
            file.bytes.extend_from_slice(bytes);
        }
    }

    fn set_len(&mut self, name: &str, len: u64) {
        let holds = |file: &File| !file.found && file.bytes.len() as u64 <= len;
        let is_right = name.ends_with(".wal") && self.files.get(name).is_some_and(holds);
        self.check("only a log has room behind what it holds", (!is_right).then(|| format!("{name}: {len}")));
    }

    fn rename(&mut self, from: &str, to: &str) {
        let wrong = (from, to) != ("CURRENT.new", "CURRENT");
        self.check("only CURRENT is replaced", wrong.then(|| format!("{from} over {to}")));
        let Some(mut file) = self.files.remove(from) else { return };
        let manifest = file.bytes.get(64..72).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        let manifest = format!("MANIFEST-{:06}", manifest.unwrap_or(0));
        let unsynced = (!file.is_synced()).then(|| "its own bytes are not synced".to_owned());
        let unready = (!self.files.get(&manifest).is_some_and(File::is_durable))
            .then(|| format!("{manifest} is not durable"));
        self.check("CURRENT names what is durable", unsynced.into_iter().chain(unready));
        file.named = false;
        self.files.insert(to.to_owned(), file);
    }

    fn remove(&mut self, name: &str) {
        if name != "CURRENT.new" && self.files.contains_key(name) {
            let unsynced = self.files.iter().filter(|(other, file)| {
                other.as_str() == "CURRENT" && !file.is_durable()
                    || other.starts_with("MANIFEST") && !file.is_synced()
            });
            let broken: Vec<_> =
                unsynced.map(|(other, _)| format!("{name} goes, {other} is not durable")).collect();
            self.check("the new state is durable before old files go", broken);
        }
        self.files.remove(name);
    }
}

fn name(path: &Path) -> String {
    debug_assert!(path.starts_with(DIR));
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
