//! A live view: one moment of a store that another process may be writing to, without that writer's help.
//!
//! A live view equals what a `kill -9` of the writer at some moment during [`LiveView::take`] would have left. It takes no
//! lock and writes nothing. Opening for reading, `refresh` and `Options::verify` read a view like a store at rest.
//!
//! # Steps of an attempt
//!
//! 1. `CURRENT`, and the manifest that it names, to its present length. A later attempt reads only the edits that follow.
//! 2. Every log, table and filter that the manifest names is opened, unless an earlier attempt has opened it.
//! 3. Where each log ends ([`FrozenFile`]), the newest log first.
//! 4. `CURRENT` and the length of the manifest again. If either differs, the attempt has failed, and the next one begins.
//!
//! Nothing else is read before step 4, so an attempt takes little time however long the logs are, and a second one
//! takes less: it reads new edits and opens new files only. Batches and tables are read later, through the open
//! files.
//!
//! # Why that is one moment
//!
//! - *Tree*: no edit was appended between steps 1 and 4, because the manifest is only appended to and another manifest
//!   has another id. A file is removed only after the edit, or the `CURRENT`, that drops it is durable. So all files that
//!   the manifest names are there during the attempt, and a removed file stays readable through its open handle.
//! - *Logs*: a log is complete before the next one takes a batch, and is named before that. So if a log has a batch when
//!   step 3 looks at it, the older ones, which step 3 looks at later, have all of theirs. If it has none, the batches
//!   that the older ones gain meanwhile are a prefix of all batches. Either way the batches seen are a prefix without a hole. In the
//!   other order they would not be: the end of a log could be missed, and the beginning of the next one seen.
//! - *Both*: the last batch that is seen was complete between steps 1 and 4, and then the tree was as seen. Every
//!   promise before the end of a log names an edit that was durable, so the manifest has it.
//! - *Later reads* of a log see only bytes before its end. These may be more complete than in step 3, if an append was
//!   running then: a running append may count or not.
//!
//! # Damage
//!
//! An attempt may find a file missing, or a `CURRENT` or manifest that cannot be read. If that is because the writer has
//! replaced it, then that change was complete before, and the next attempt sees it. So a finding of two attempts in a
//! row is damage. The view then has the files as they are, and its reader reports the damage, as for a store at rest.
//!
//! If two attempts in a row find no `CURRENT`, the view has none either, and the logs are as they were before the second look:
//! a store that is created later has no part in the view.
//!
//! # A directory that was replaced
//!
//! Between two views, another store or a backup of the same store may have been put into the directory. Such a store may
//! give a number again that the views before know. A newer view continues the one before only if no number can mean
//! another file ([`History`]). Otherwise it begins with files and caches of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use super::view_files::{InMemory, Moment, ViewFile, ViewFiles, ViewFs};
use crate::checksum::FileId;
use crate::db::state::open_report::AsOf;
use crate::error::{Error, InFile, Result};
use crate::filename::{FileName, names_in};
use crate::fs::{FrozenFile, Fs, LockKind, ReadFile, is_out_of_files, open_files_limit};
use crate::manifest::current::Current;
use crate::manifest::log::ReadManifest;
use crate::manifest::state::{ManifestState, TablePlace};

/// How often a view is tried.
const TRIES_MAX: u64 = 64;

/// How many files are closed again if the process may open no more.
const SPARE_FILES: usize = 8;

/// One moment of a store; see the module.
#[derive(Debug, Clone)]
pub(in crate::db) struct LiveView {
    files: Arc<ViewFiles>,
    moment: Arc<Moment>,
    /// Keeps the tables and filters open.
    named: BTreeMap<FileName, ViewFile>,
    /// `None` if the store is damaged so that its files are unknown.
    seen: Option<Seen>,
}

/// The contents of the files that change when the store changes.
#[derive(Debug, Clone)]
struct Seen {
    current: Vec<u8>,
    manifest: OpenManifest,
    logs: BTreeMap<u64, FrozenFile>,
    as_of: AsOf,
    /// Above all numbers of files that the views under earlier manifests have seen.
    first_new: u64,
}

/// A manifest, read to `len`.
#[derive(Debug, Clone)]
struct OpenManifest {
    current: Current,
    file: Arc<dyn ReadFile>,
    len: u64,
    read: ReadManifest,
}

impl LiveView {
    /// The store in `dir` now. Its tables and filters are held open, up to `open_max` of them.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`] if it changes faster than it can be looked at, [`Error::NoStore`] if there is no such directory,
    /// [`Error::LimitExceeded`] if too few files can be open, [`Error::Io`].
    pub(in crate::db) fn take(fs: &Arc<dyn Fs>, dir: &Path, open_max: usize) -> Result<Self> {
        Taking::new(ViewFiles::new(Arc::clone(fs), dir, open_max))?.take()
    }

    /// The same store now; `None` if nothing has changed. Files that it still has are not opened again.
    ///
    /// # Errors
    ///
    /// Those of [`LiveView::take`].
    pub(in crate::db) fn newer(&self) -> Result<Option<Self>> {
        if self.is_unchanged()? {
            return Ok(None);
        }
        let mut taking = Taking::new(Arc::clone(&self.files))?;
        taking.named = self.named.clone();
        taking.manifest = self.seen.as_ref().and_then(|seen| seen.manifest.reopened(&self.files));
        taking.before = self.seen.as_ref().map(|seen| (seen, &self.named));
        taking.take().map(Some)
    }

    fn is_unchanged(&self) -> Result<bool> {
        let Some(seen) = &self.seen else { return Ok(false) };
        if read_current(&self.files)?.as_ref() != Some(&seen.current) {
            return Ok(false);
        }
        // By their names: the directory may have other files now. If one cannot be read, the attempts find out why.
        let open = |path: &Path| self.files.fs.open(path);
        let manifest = open(&seen.manifest.read.path).and_then(|manifest| manifest.len());
        let is_unchanged = |(&number, log): (&u64, &FrozenFile)| {
            let now = open(&self.files.path(FileName::Log(number))).and_then(FrozenFile::now);
            now.is_ok_and(|now| now.ends_like(log))
        };
        Ok(manifest.is_ok_and(|len| len == seen.manifest.len) && seen.logs.iter().all(is_unchanged))
    }

    /// The store as it was, as a file system that refuses every change.
    pub(in crate::db) fn fs(&self) -> Arc<dyn Fs> {
        let moment = Some(Arc::clone(&self.moment));
        Arc::new(ViewFs { files: Arc::clone(&self.files), moment })
    }

    /// The file system that it was taken from.
    pub(in crate::db) fn unlocked(&self) -> &Arc<dyn Fs> {
        &self.files.fs
    }

    /// The tables and filters of this view and of those that it is refreshed to.
    pub(super) fn files(&self) -> &Arc<ViewFiles> {
        &self.files
    }

    /// When it was taken. `None` if the store is damaged so that its files are unknown.
    pub(in crate::db) fn as_of(&self) -> Option<AsOf> {
        self.seen.as_ref().map(|seen| seen.as_of)
    }
}

fn read_current(files: &ViewFiles) -> Result<Option<Vec<u8>>> {
    let path = files.path(FileName::Current);
    let read = files.fs.open(&path).and_then(|file| file.read_to_vec(file.len()?.min(1 << 10) as usize, 0));
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|error| Error::io("read", &path, error)),
    }
}

impl OpenManifest {
    /// The same, in the file that has its name now. `None` if that is shorter.
    fn reopened(&self, files: &ViewFiles) -> Option<Self> {
        let file = files.fs.open(&self.read.path).ok()?;
        (file.len().ok()? >= self.len).then(|| Self { file, ..self.clone() })
    }

    fn len(&self) -> Result<u64> {
        self.file.len().map_err(|error| Error::io("read", &self.read.path, error))
    }

    /// Whether no edit was appended since it was read.
    fn is_whole(&self) -> Result<bool> {
        Ok(self.len()? == self.len)
    }
}

/// What identifies a table or filter.
type Identity = (FileId, u32);

/// The files of a manifest by their numbers. A view continues another one if no number can mean two files.
struct History<'v> {
    state: &'v ManifestState,
    store_id: FileId,
}

impl<'v> History<'v> {
    fn of(manifest: &'v OpenManifest) -> Self {
        Self { state: &manifest.read.state, store_id: manifest.current.store_id }
    }

    /// All tables, and the filters in files of their own.
    fn files(&self) -> BTreeMap<u64, Identity> {
        let mut files = BTreeMap::new();
        for place in self.state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
            let meta = &place.meta;
            files.insert(meta.number, (meta.file_id, meta.footer_checksum));
            let beside = meta.filters.iter().filter_map(|filter| Some((filter.file?, filter)));
            files.extend(beside.map(|(number, filter)| (number, (meta.file_id, filter.header_checksum))));
        }
        files
    }

    /// Whether this continues `before`: it has no files below the number `first_new` except those of `before`.
    ///
    /// A writer that opens a store gives numbers from the next one of the old manifest on, and begins a new manifest. So a
    /// file below `first_new` that the view before lacks may have the number of another file that a view has seen. If it was
    /// added to the old manifest after that view, new caches are unnecessary, and cost only time.
    fn continues(&self, before: &Self, first_new: u64) -> bool {
        let known = before.files();
        let is_known = |(number, file): (u64, Identity)| match known.get(&number) {
            Some(known) => *known == file,
            None => number >= first_new,
        };
        self.store_id == before.store_id
            && self.state.hash_seed == before.state.hash_seed
            && self.state.next_file >= before.state.next_file
            && self.files().into_iter().all(is_known)
    }
}

/// The attempts to take a view.
struct Taking<'v> {
    /// The view that this one is to continue, and its tables and filters.
    before: Option<(&'v Seen, &'v BTreeMap<FileName, ViewFile>)>,
    files: Arc<ViewFiles>,
    /// The names in the directory before the first attempt.
    listed: Vec<OsString>,
    manifest: Option<OpenManifest>,
    named: BTreeMap<FileName, ViewFile>,
    logs: BTreeMap<u64, Arc<dyn ReadFile>>,
    /// If the last attempt found no `CURRENT`: that there is none, and the logs before this attempt.
    no_current: Option<BTreeMap<FileName, Option<Arc<dyn ReadFile>>>>,
    open_max: usize,
    /// The error of the last attempt, if `CURRENT` or the manifest could not be read.
    suspect: Option<String>,
    missing: BTreeSet<FileName>,
    tries: u64,
}

/// Why an attempt was not the last one.
enum Again {
    /// For this reason.
    Changed(&'static str),
    Failed(Error),
}

impl From<Error> for Again {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Taking<'_> {
    fn new(files: Arc<ViewFiles>) -> Result<Self> {
        let listed = out_of_files(names_in(&*files.fs, &files.dir))?;
        Ok(Self {
            before: None,
            listed,
            manifest: None,
            named: BTreeMap::new(),
            logs: BTreeMap::new(),
            no_current: None,
            open_max: files.open_max,
            suspect: None,
            missing: BTreeSet::new(),
            tries: 0,
            files,
        })
    }

    fn take(mut self) -> Result<LiveView> {
        let mut last = "";
        while self.tries < TRIES_MAX {
            // No pause at first: most often the second attempt succeeds.
            sleep(Duration::from_millis(self.tries / 4));
            self.tries += 1;
            match self.attempt() {
                Ok(seen) => return Ok(self.finish(seen)),
                Err(Again::Changed(why)) => last = why,
                Err(Again::Failed(error)) => return Err(error),
            }
        }
        let detail = format!("no moment of it was seen in {TRIES_MAX} tries; in the last one {last}");
        Err(Error::changed(&self.files.dir, detail))
    }

    /// `None`: the store is damaged so that its files are unknown.
    fn attempt(&mut self) -> Result<Option<Seen>, Again> {
        let bytes = match self.current() {
            Ok(None) => return self.find_no_current(),
            Ok(Some(bytes)) => bytes,
            Err(error) => return self.suspect(error, "CURRENT could not be read"),
        };
        self.no_current = None;
        if let Err(error) = self.read_manifest(&bytes) {
            self.manifest = None;
            return self.suspect(error, "the manifest could not be read");
        }
        self.suspect = None;
        let first_new = self.first_new();
        self.open_named()?;
        let logs = self.freeze_logs()?;
        let time = SystemTime::now();
        let manifest = self.manifest.as_ref().expect("it was read");
        if out_of_files(read_current(&self.files))?.as_ref() != Some(&bytes) {
            return Err(Again::Changed("CURRENT was replaced"));
        }
        if !manifest.is_whole()? {
            return Err(Again::Changed("an edit was appended to the manifest"));
        }
        let as_of = AsOf { time, seqno: 0, in_use: self.is_in_use(), tries: self.tries };
        Ok(Some(Seen { current: bytes, manifest: manifest.clone(), logs, as_of, first_new }))
    }

    /// Step 1: `CURRENT`, if there is one and it is intact.
    fn current(&self) -> Result<Option<Vec<u8>>> {
        let bytes = out_of_files(read_current(&self.files))?;
        bytes.as_ref().map(|bytes| decode(bytes, &self.files.path(FileName::Current))).transpose()?;
        Ok(bytes)
    }

    /// There is no store if the attempt before has found no `CURRENT` either.
    fn find_no_current(&mut self) -> Result<Option<Seen>, Again> {
        if self.no_current.is_some() {
            return Ok(None);
        }
        let mut frozen = BTreeMap::from([(FileName::Current, None)]);
        for name in self.listed.iter().filter_map(|name| FileName::parse(name.to_str()?)) {
            // The reader of the view reports a log that cannot be opened.
            if let FileName::Log(_) = name
                && let Ok(log) = self.files.fs.open(&self.files.path(name)).and_then(FrozenFile::now)
            {
                frozen.insert(name, Some(Arc::new(log) as Arc<dyn ReadFile>));
            }
        }
        self.no_current = Some(frozen);
        Err(Again::Changed("CURRENT was missing"))
    }

    /// The number above all that the views under earlier manifests have seen. Begins with new files if the manifest does
    /// not continue that of the view before.
    fn first_new(&mut self) -> u64 {
        let (Some((before, _)), Some(manifest)) = (self.before, &self.manifest) else { return 0 };
        let (old, is_other) = (&before.manifest, manifest.current != before.manifest.current);
        let is_other = is_other || manifest.len < old.len;
        let first_new = if is_other { self.files.next_number() } else { before.first_new };
        if History::of(manifest).continues(&History::of(old), first_new) {
            return first_new;
        }
        self.before = None;
        self.files = ViewFiles::new(Arc::clone(&self.files.fs), &self.files.dir, self.files.open_max);
        self.named.clear();
        0
    }

    /// Step 1: the edits of the manifest that were not read yet.
    fn read_manifest(&mut self, bytes: &[u8]) -> Result<()> {
        let current = decode(bytes, &self.files.path(FileName::Current))?;
        if self.manifest.as_ref().is_none_or(|manifest| manifest.current != current) {
            let path = self.files.path(FileName::Manifest(current.manifest));
            let opened = self.files.fs.open(&path).map_err(|error| Error::io("open", &path, error));
            let (file, read) = (out_of_files(opened)?, ReadManifest::empty(path));
            self.manifest = Some(OpenManifest { current, file, len: 0, read });
            // An earlier attempt may have opened files of a store that has been replaced.
            self.named = self.before.map(|(_, named)| named.clone()).unwrap_or_default();
            self.logs.clear();
        }
        let manifest = self.manifest.as_mut().expect("it was opened");
        let len = manifest.len()?;
        if len != manifest.len {
            let damage = manifest.read.read_edits(&*manifest.file, &current, Some(len))?;
            damage.map_or(Ok(()), Err)?;
            manifest.len = len;
        }
        Ok(())
    }

    /// An error is damage if the attempt before has found the same.
    fn suspect(&mut self, error: Error, why: &'static str) -> Result<Option<Seen>, Again> {
        if matches!(error, Error::LimitExceeded { .. }) {
            return Err(error.into());
        }
        let suspect = Some(error.to_string());
        if self.suspect == suspect {
            return Ok(None);
        }
        self.suspect = suspect;
        Err(Again::Changed(why))
    }

    /// Step 2. A file that is missing for the second time is damage.
    fn open_named(&mut self) -> Result<(), Again> {
        let state = &self.manifest.as_ref().expect("it was read").read.state;
        let places = state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        let names: BTreeSet<FileName> = places.flat_map(TablePlace::files).collect();
        let newest = state.logs.keys().next_back().copied().unwrap_or(0);
        let listed = self.listed.iter().filter_map(|name| FileName::parse(name.to_str()?));
        let later = listed.filter_map(|name| match name {
            FileName::Log(number) if number > newest => Some(number),
            _ => None,
        });
        let logs: BTreeSet<u64> = state.logs.keys().copied().chain(later).collect();
        self.named.retain(|name, _| names.contains(name));
        self.logs.retain(|number, _| logs.contains(number));
        let mut missing = BTreeSet::new();
        for number in logs {
            if self.logs.contains_key(&number) || self.open_log(number)? {
                continue;
            }
            if number <= newest {
                missing.insert(FileName::Log(number));
            } else {
                let name = FileName::Log(number).to_string();
                self.listed.retain(|listed| *listed != *name);
            }
        }
        let mut held = self.named.values().filter(|file| file.is_held()).count();
        for name in names {
            if !self.named.contains_key(&name) && !self.open_file(name, &mut held) {
                missing.insert(name);
            }
        }
        let is_damage = missing.is_subset(&self.missing);
        self.missing = missing;
        if is_damage { Ok(()) } else { Err(Again::Changed("a file was removed")) }
    }

    /// `false` if the log is missing. The reader of the view reports a log that cannot be opened.
    fn open_log(&mut self, number: u64) -> Result<bool> {
        let path = self.files.path(FileName::Log(number));
        match self.files.fs.open(&path) {
            Ok(file) => drop(self.logs.insert(number, file)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) if is_out_of_files(&error) => return Err(too_few_files()),
            Err(_) => {}
        }
        Ok(true)
    }

    /// `false` if the table or filter is missing. If `held` is at the limit, it is not held open.
    fn open_file(&mut self, name: FileName, held: &mut usize) -> bool {
        let file = match self.files.fs.open(&self.files.path(name)) {
            Ok(file) => Some(file).filter(|_| *held < self.open_max),
            Err(error) if error.kind() == ErrorKind::NotFound => return false,
            Err(error) => {
                if is_out_of_files(&error) {
                    self.hold_fewer(held);
                }
                None
            }
        };
        *held += usize::from(file.is_some());
        self.named.insert(name, self.files.name(name, file));
        true
    }

    /// Closes some files, and holds no more from now on.
    fn hold_fewer(&mut self, held: &mut usize) {
        for file in self.named.values_mut().rev().filter(|file| file.is_held()).take(SPARE_FILES) {
            file.release();
            *held -= 1;
        }
        self.open_max = *held;
    }

    /// Step 3: the logs, the newest first.
    fn freeze_logs(&self) -> Result<BTreeMap<u64, FrozenFile>> {
        let freeze = |(&number, file): (&u64, &Arc<dyn ReadFile>)| {
            let frozen = FrozenFile::now(Arc::clone(file));
            let path = || self.files.path(FileName::Log(number));
            Ok((number, frozen.map_err(|error| Error::io("read", &path(), error))?))
        };
        self.logs.iter().rev().map(freeze).collect()
    }

    /// Whether a writer has the store open. The lock is released at once; a writer that finds it held tries again.
    fn is_in_use(&self) -> bool {
        let lock = self.files.fs.lock(&self.files.path(FileName::Lock), LockKind::Shared);
        lock.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn finish(self, seen: Option<Seen>) -> LiveView {
        let Self { files, listed, named, missing, .. } = self;
        let Some(seen) = seen else {
            let moment = Moment { frozen: self.no_current.unwrap_or_default(), names: listed };
            return LiveView { files, moment: Arc::new(moment), named: BTreeMap::new(), seen: None };
        };
        files.add_view(seen.manifest.read.state.next_file);
        let mut frozen: BTreeMap<FileName, Option<Arc<dyn ReadFile>>> = BTreeMap::new();
        frozen.insert(FileName::Current, Some(Arc::new(InMemory(seen.current.clone()))));
        let OpenManifest { current, file, len, .. } = &seen.manifest;
        let manifest = FrozenFile::first_bytes(Arc::clone(file), *len);
        frozen.insert(FileName::Manifest(current.manifest), Some(Arc::new(manifest)));
        for (&number, log) in &seen.logs {
            frozen.insert(FileName::Log(number), Some(Arc::new(log.clone())));
        }
        // A writer makes files that it names later, and removes others: those are not left over.
        let is_other = |name: &OsString| match name.to_str().and_then(FileName::parse) {
            Some(name) => !seen.as_of.in_use && !missing.contains(&name),
            None => true,
        };
        let others = listed.into_iter().filter(is_other);
        let seen_names = frozen.keys().chain(named.keys()).map(|name| OsString::from(name.to_string()));
        let names: BTreeSet<OsString> = others.chain(seen_names).collect();
        let moment = Arc::new(Moment { frozen, names: names.into_iter().collect() });
        LiveView { files, moment, named, seen: Some(seen) }
    }
}

fn decode(bytes: &[u8], path: &Path) -> Result<Current> {
    Current::decode(bytes).map_err(|error| error.in_file(path, 0))
}

/// Names the limit if the process may open no more files.
fn out_of_files<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| match &error {
        Error::Io { source, .. } if is_out_of_files(source) => too_few_files(),
        _ => error,
    })
}

fn too_few_files() -> Error {
    let limit = open_files_limit().unwrap_or(0);
    Error::limit("number of open files", limit, limit.saturating_add(1))
}
