//! A live view: a consistent state of a store that another process may be writing to.
//!
//! It equals the store after a `kill -9` of the writer during [`LiveView::take`], which holds no lock and changes
//! nothing. Opening for reading, `refresh` and `Options::verify` read a view like a store at rest.
//!
//! # Steps of an attempt
//!
//! 1. Read `CURRENT` and its manifest up to its present length. A later attempt reads only new edits.
//! 2. Open every log, table and filter of the manifest that is not open.
//! 3. Take the end of each log ([`FrozenFile`]), newest first.
//! 4. Read `CURRENT` and the manifest's length again. If either differs, repeat.
//!
//! So the duration of an attempt does not depend on the length of the logs. Batches and tables are read later,
//! through the open files.
//!
//! # Why the state is consistent
//!
//! - *Tree*: no edit was appended between steps 1 and 4, because a manifest is append-only and another manifest has
//!   another id. A file is removed only after the edit or `CURRENT` that drops it is durable. So all named files
//!   exist during the attempt; open handles keep removed files readable.
//! - *Logs*: a log is complete before the next one takes a batch. If a log has a batch in step 3, the older logs, whose
//!   ends are taken later, are complete. Otherwise their batches are a prefix of all batches.
//! - *Both*: the last batch in the view was complete between steps 1 and 4. Every promise before the end of a log
//!   names a durable edit, which is in the manifest.
//! - *Later reads* of a log stop at the end taken in step 3. An append that runs in step 3 may or may not count.
//!
//! # Damage
//!
//! A missing file, or an unreadable `CURRENT` or manifest, may be due to a replacement, which is complete at the next
//! attempt. So a finding is damage only if two consecutive attempts agree. The view then contains the files in this
//! state, and its reader reports the damage.
//!
//! If two consecutive attempts find no `CURRENT`, the view has the logs found before the second one, so that a store
//! created later is not part of it.
//!
//! # Replaced directories
//!
//! Since the last view, the directory may have been replaced by another store or a backup, which may reuse file
//! numbers. A newer view continues the previous one only if no number can mean another file ([`History`]). Otherwise
//! the newer view has its own files and caches.

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
use crate::number_map::{NumberMap, NumberSet};
use crate::sorting::sort_by;

const TRIES_MAX: u64 = 64;

const SPARE_FILES: usize = 8;

#[derive(Debug, Clone)]
pub(in crate::db) struct LiveView {
    files: Arc<ViewFiles>,
    moment: Arc<Moment>,
    named: NumberMap<FileName, ViewFile>,
    /// `None` if `CURRENT` or its manifest is missing or damaged.
    seen: Option<Seen>,
}

#[derive(Debug, Clone)]
struct Seen {
    current: Vec<u8>,
    manifest: OpenManifest,
    logs: NumberMap<u64, FrozenFile>,
    as_of: AsOf,
    first_new: u64,
}

#[derive(Debug, Clone)]
struct OpenManifest {
    current: Current,
    file: Arc<dyn ReadFile>,
    len: u64,
    read: ReadManifest,
}

impl LiveView {
    /// Takes a view of the store in `dir` that holds up to `open_max` tables and filters open.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`] if the store changes faster than it can be read, [`Error::NoStore`] if the directory is
    /// missing, [`Error::LimitExceeded`] if too few files can be opened, [`Error::Io`].
    pub(in crate::db) fn take(fs: &Arc<dyn Fs>, dir: &Path, open_max: usize) -> Result<Self> {
        Taking::new(ViewFiles::new(Arc::clone(fs), dir, open_max))?.take()
    }

    /// Returns `None` if the store is unchanged. Known files are not opened again.
    ///
    /// # Errors
    ///
    /// See [`LiveView::take`].
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
        // Opened by name, because the directory may have other files now. The attempts report unreadable ones.
        let open = |path: &Path| self.files.fs.open(path);
        let manifest = open(&seen.manifest.read.path).and_then(|manifest| manifest.len());
        let is_unchanged = |(&number, log): (&u64, &FrozenFile)| {
            let now = open(&self.files.path(FileName::Log(number))).and_then(FrozenFile::now);
            now.is_ok_and(|now| now.ends_like(log))
        };
        Ok(manifest.is_ok_and(|len| len == seen.manifest.len) && seen.logs.iter().all(is_unchanged))
    }

    pub(in crate::db) fn fs(&self) -> Arc<dyn Fs> {
        let moment = Some(Arc::clone(&self.moment));
        Arc::new(ViewFs { files: Arc::clone(&self.files), moment })
    }

    pub(in crate::db) fn unlocked(&self) -> &Arc<dyn Fs> {
        &self.files.fs
    }

    pub(super) fn files(&self) -> &Arc<ViewFiles> {
        &self.files
    }

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
    fn reopened(&self, files: &ViewFiles) -> Option<Self> {
        let file = files.fs.open(&self.read.path).ok()?;
        (file.len().ok()? >= self.len).then(|| Self { file, ..self.clone() })
    }

    fn len(&self) -> Result<u64> {
        self.file.len().map_err(|error| Error::io("read", &self.read.path, error))
    }

    fn is_whole(&self) -> Result<bool> {
        Ok(self.len()? == self.len)
    }
}

type Identity = (FileId, u32);

struct History<'v> {
    state: &'v ManifestState,
    store_id: FileId,
}

impl<'v> History<'v> {
    fn of(manifest: &'v OpenManifest) -> Self {
        Self { state: &manifest.read.state, store_id: manifest.current.store_id }
    }

    fn files(&self) -> NumberMap<u64, Identity> {
        let mut files = NumberMap::new();
        for place in self.state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
            let meta = &place.meta;
            files.insert(meta.number, (meta.file_id, meta.footer_checksum));
            let beside = meta.filters.iter().filter_map(|filter| Some((filter.file?, filter)));
            files.extend(beside.map(|(number, filter)| (number, (meta.file_id, filter.header_checksum))));
        }
        files
    }

    /// Whether all files below `first_new` are files of `before`.
    ///
    /// A writer that opens a store continues the old manifest's numbers in a new manifest, so an unknown file below
    /// `first_new` may reuse a number. If the file was only added to the old manifest, new caches do no harm.
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

struct Taking<'v> {
    before: Option<(&'v Seen, &'v NumberMap<FileName, ViewFile>)>,
    files: Arc<ViewFiles>,
    listed: Vec<OsString>,
    manifest: Option<OpenManifest>,
    named: NumberMap<FileName, ViewFile>,
    logs: NumberMap<u64, Arc<dyn ReadFile>>,
    /// If the last attempt found no `CURRENT`: the logs before this attempt.
    no_current: Option<NumberMap<FileName, Option<Arc<dyn ReadFile>>>>,
    open_max: usize,
    suspect: Option<String>,
    missing: NumberSet<FileName>,
    tries: u64,
}

enum Again {
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
            named: NumberMap::new(),
            logs: NumberMap::new(),
            no_current: None,
            open_max: files.open_max,
            suspect: None,
            missing: NumberSet::new(),
            tries: 0,
            files,
        })
    }

    fn take(mut self) -> Result<LiveView> {
        let mut last = "";
        while self.tries < TRIES_MAX {
            // The second attempt usually succeeds without a pause.
            sleep(Duration::from_millis(self.tries / 4));
            self.tries += 1;
            match self.attempt() {
                Ok(seen) => return Ok(self.finish(seen)),
                Err(Again::Changed(why)) => last = why,
                Err(Again::Failed(error)) => return Err(error),
            }
        }
        let detail = format!("no consistent state was seen in {TRIES_MAX} attempts; in the last one, {last}");
        Err(Error::changed(&self.files.dir, detail))
    }

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

    fn current(&self) -> Result<Option<Vec<u8>>> {
        let bytes = out_of_files(read_current(&self.files))?;
        bytes.as_ref().map(|bytes| decode(bytes, &self.files.path(FileName::Current))).transpose()?;
        Ok(bytes)
    }

    /// The store is missing if the previous attempt found no `CURRENT` either.
    fn find_no_current(&mut self) -> Result<Option<Seen>, Again> {
        if self.no_current.is_some() {
            return Ok(None);
        }
        let mut frozen = NumberMap::new();
        frozen.insert(FileName::Current, None);
        for name in self.listed.iter().filter_map(|name| FileName::parse(name.to_str()?)) {
            if let FileName::Log(_) = name
                && let Ok(log) = self.files.fs.open(&self.files.path(name)).and_then(FrozenFile::now)
            {
                frozen.insert(name, Some(Arc::new(log) as Arc<dyn ReadFile>));
            }
        }
        self.no_current = Some(frozen);
        Err(Again::Changed("CURRENT was missing"))
    }

    /// Returns a number above all those of earlier manifests. If the manifest does not continue the previous view's,
    /// starts with new files.
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
        self.named = NumberMap::new();
        0
    }

    /// Step 1: new edits.
    fn read_manifest(&mut self, bytes: &[u8]) -> Result<()> {
        let current = decode(bytes, &self.files.path(FileName::Current))?;
        if self.manifest.as_ref().is_none_or(|manifest| manifest.current != current) {
            let path = self.files.path(FileName::Manifest(current.manifest));
            let opened = self.files.fs.open(&path).map_err(|error| Error::io("open", &path, error));
            let (file, read) = (out_of_files(opened)?, ReadManifest::empty(path));
            self.manifest = Some(OpenManifest { current, file, len: 0, read });
            // An earlier attempt may have opened files of a store that was since replaced.
            self.named = self.before.map(|(_, named)| named.clone()).unwrap_or_default();
            self.logs = NumberMap::new();
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

    /// An error that two attempts report is damage.
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

    /// Step 2.
    fn open_named(&mut self) -> Result<(), Again> {
        let state = &self.manifest.as_ref().expect("it was read").read.state;
        let places = state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        let names = NumberSet::from_iter(places.flat_map(TablePlace::files));
        let newest = state.logs.keys().next_back().copied().unwrap_or(0);
        let listed = self.listed.iter().filter_map(|name| FileName::parse(name.to_str()?));
        let later = listed.filter_map(|name| match name {
            FileName::Log(number) if number > newest => Some(number),
            _ => None,
        });
        let logs = NumberSet::from_iter(state.logs.keys().copied().chain(later));
        self.named.retain(|name, _| names.contains(name));
        self.logs.retain(|number, _| logs.contains(number));
        let mut missing = NumberSet::new();
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

    /// Returns `false` if the log is missing. The view's reader reports unreadable logs.
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

    /// Returns `false` if the file is missing. Keeps the file open unless `held` is at the limit.
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

    fn hold_fewer(&mut self, held: &mut usize) {
        let last = self.named.iter().rev().filter(|(_, file)| file.is_held()).take(SPARE_FILES);
        let last: Vec<FileName> = last.map(|(name, _)| *name).collect();
        for name in last {
            if let Some(file) = self.named.get_mut(&name) {
                file.release();
                *held -= 1;
            }
        }
        self.open_max = *held;
    }

    /// Step 3, newest first.
    fn freeze_logs(&self) -> Result<NumberMap<u64, FrozenFile>> {
        let mut logs = NumberMap::new();
        for (&number, file) in self.logs.iter().rev() {
            let frozen = FrozenFile::now(Arc::clone(file));
            let path = || self.files.path(FileName::Log(number));
            logs.insert(number, frozen.map_err(|error| Error::io("read", &path(), error))?);
        }
        Ok(logs)
    }

    /// The lock is released at once; a writer that finds it held retries.
    fn is_in_use(&self) -> bool {
        let lock = self.files.fs.lock(&self.files.path(FileName::Lock), LockKind::Shared);
        lock.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn finish(self, seen: Option<Seen>) -> LiveView {
        let Self { files, listed, named, missing, .. } = self;
        let Some(seen) = seen else {
            let moment = Moment { frozen: self.no_current.unwrap_or_default(), names: listed };
            return LiveView { files, moment: Arc::new(moment), named: NumberMap::new(), seen: None };
        };
        files.add_view(seen.manifest.read.state.next_file);
        let mut frozen: NumberMap<FileName, Option<Arc<dyn ReadFile>>> = NumberMap::new();
        frozen.insert(FileName::Current, Some(Arc::new(InMemory(seen.current.clone()))));
        let OpenManifest { current, file, len, .. } = &seen.manifest;
        let manifest = FrozenFile::first_bytes(Arc::clone(file), *len);
        frozen.insert(FileName::Manifest(current.manifest), Some(Arc::new(manifest)));
        for (&number, log) in &seen.logs {
            frozen.insert(FileName::Log(number), Some(Arc::new(log.clone())));
        }
        // Files that a writer is creating or removing are not leftovers.
        let is_other = |name: &OsString| match name.to_str().and_then(FileName::parse) {
            Some(name) => !seen.as_of.in_use && !missing.contains(&name),
            None => true,
        };
        let others = listed.into_iter().filter(is_other);
        let seen_names = frozen.keys().chain(named.keys()).map(|name| OsString::from(name.to_string()));
        let mut names: Vec<OsString> = others.chain(seen_names).collect();
        sort_by(&mut names, Ord::cmp);
        names.dedup();
        let moment = Arc::new(Moment { frozen, names });
        LiveView { files, moment, named, seen: Some(seen) }
    }
}

fn decode(bytes: &[u8], path: &Path) -> Result<Current> {
    Current::decode(bytes).map_err(|error| error.in_file(path, 0))
}

/// Adds the limit of open files to the error if it is reached.
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
