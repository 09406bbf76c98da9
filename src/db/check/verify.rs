//! Verifies a store: reads and compares all files.
//!
//! 1. `CURRENT` and its manifest; without `CURRENT`, the newest readable manifest.
//! 2. Logs: records, order, end, promises.
//! 3. Tables and their filters, by [`inspect`](crate::inspect). Tables of a run must not overlap.
//! 4. Missing and foreign files.
//!
//! If the manifest is damaged, every table and log is checked separately, and none is reported as missing or extra.
//!
//! An open store is verified as of one point in time, which views and open logs preserve. Otherwise a live view
//! ([`live_view`](crate::db::open::live_view)) is verified.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::checksum::FileId;
use crate::db::engine::Engine;
use crate::db::handles::stats::expiry_stats::ExpiryStats;
use crate::db::handles::store::Db;
use crate::db::open::live_view::LiveView;
use crate::db::open::recover::{
    Listing, Purpose, Replay, Strays, check_never_used, ignored_strays, last_used, list, open_log,
};
use crate::db::open::steps::shared;
use crate::db::state::open_report::{AsOf, DroppedTail, IgnoredFile};
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES, StoreIds};
use crate::filename::FileName;
use crate::filter::{self, Header};
use crate::fs::{FrozenFile, Fs, ReadFile};
use crate::inspect::{Keys, verify_framed, verify_table};
use crate::key::SeqNo;
use crate::manifest::current::Current;
use crate::manifest::log::{ReadManifest, read_prefix};
use crate::manifest::overlap::{Bounds, Overlap, Runs};
use crate::manifest::state::{KeyspaceState, ManifestState, TablePlace};
use crate::number_map::NumberSet;
use crate::options::Options;
use crate::table::{Table, TableContext};
use crate::table_meta::TableMeta;

const LIST_BYTES_MAX: usize = 512 << 20;

const PIECE_BYTES: usize = 512;

/// Result of a verification.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Manifest edits read.
    pub edits: u64,
    /// Logs read.
    pub logs: u64,
    /// Batches in the logs.
    pub batches: u64,
    /// Tables read.
    pub tables: u64,
    /// Size of the tables according to the manifest, in bytes.
    pub bytes: u64,
    /// Entries of the tables according to the manifest.
    pub entries: u64,
    /// Filters probed with every key of their table.
    pub filters: u64,
    /// Buckets of time, horizon and next expiry of each keyspace whose entries expire, by name. Entries that are only
    /// in logs are not included. Empty if the manifest is damaged.
    pub expiry: BTreeMap<String, ExpiryStats>,
    /// The verified state. `None` if the writer verifies its own store, or if `CURRENT` or its manifest is unreadable.
    pub as_of: Option<AsOf>,
    /// [`Error::Changed`] for each file that a writer removed during the verification. This is not damage; it happens
    /// only if there are more files than can be held open: see [`Options::read_only`].
    pub changed: Vec<Error>,
    /// Torn ends that were never durable, a result of a crash. They are not damage.
    pub dropped: Vec<DroppedTail>,
    /// Foreign files, with the reason. They are not damage. For a store open for writing, only files with foreign
    /// names are listed.
    pub ignored: Vec<IgnoredFile>,
    /// All damage: at most 100 000 items for each table and log, and 512 MiB in all.
    pub damage: Vec<Damage>,
    /// Damage beyond these limits.
    pub omitted: u64,
}

/// An item of damage.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Damage {
    /// The damage, with file and offset.
    pub error: Error,
    /// First and last affected key, for a table with known bounds. `None`: see [`Damage::concerns`].
    pub keys: Option<DamagedKeys>,
}

/// Keys affected by damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concerned<'a> {
    /// Only keys of one table in this range.
    Keys(&'a DamagedKeys),
    /// Keys written after the last flush of their keyspace: a log is damaged.
    Unflushed,
    /// Any key: manifest, `CURRENT` or a table's bounds are unreadable.
    Any,
}

impl Damage {
    /// The affected keys, as precisely as known.
    #[must_use]
    pub fn concerns(&self) -> Concerned<'_> {
        if let Some(keys) = &self.keys {
            return Concerned::Keys(keys);
        }
        let file = match &self.error {
            Error::Corruption { file, .. } | Error::Unsupported { file, .. } => Some(file),
            Error::Io { path, .. } => Some(path),
            _ => None,
        };
        match file.and_then(|file| FileName::parse(file.file_name()?.to_str()?)) {
            Some(FileName::Log(_)) => Concerned::Unflushed,
            _ => Concerned::Any,
        }
    }
}

/// The affected keys, from `first` to `last` inclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedKeys {
    /// The keyspace, if the manifest names it.
    pub keyspace: Option<String>,
    /// First key.
    pub first: Vec<u8>,
    /// Last key.
    pub last: Vec<u8>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        match self.concerns() {
            Concerned::Keys(DamagedKeys { first, last, .. }) if first == last => {
                write!(f, "; key {}", first.escape_ascii())
            }
            Concerned::Keys(DamagedKeys { first, last, .. }) => {
                write!(f, "; keys {} to {}", first.escape_ascii(), last.escape_ascii())
            }
            Concerned::Unflushed => write!(f, "; keys that were written after the last flush"),
            Concerned::Any => write!(f, "; any key"),
        }
    }
}

/// Progress of a verification.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Verified bytes of tables and logs.
    pub bytes_done: u64,
    /// Bytes of all tables and logs.
    pub bytes: u64,
}

impl Options {
    /// Verifies the store in `path` without opening it, as of one point in time if it is in use; see
    /// [`Options::read_only`]. Continues after damage, and writes nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// sievedb::Db::open(dir.path())?.close()?;
    /// let report = sievedb::Options::new().verify(dir.path())?;
    /// assert!(report.damage.is_empty());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoStore`]; [`Error::Changed`] if a writer changes the store faster than it can be read; [`Error::Io`]
    /// if the directory cannot be listed. Damage and unreadable files are not errors.
    pub fn verify(&self, path: impl AsRef<Path>) -> Result<VerifyReport> {
        self.verify_with(path, |_| ControlFlow::Continue(()))
    }

    /// [`Options::verify`] with a callback after each file, which can cancel the call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// sievedb::Db::open(dir.path())?.close()?;
    /// sievedb::Options::new().verify_with(dir.path(), |done| {
    ///     println!("{} of {} bytes", done.bytes_done, done.bytes);
    ///     std::ops::ControlFlow::Continue(())
    /// })?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`], and the errors of [`Options::verify`].
    pub fn verify_with(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(VerifyProgress) -> ControlFlow<()>,
    ) -> Result<VerifyReport> {
        self.validate()?;
        let dir = path.as_ref();
        let view = LiveView::take(&self.fs, dir, self.view_files_max())?;
        verify_view(dir, &self.clone().fs(view.fs()), view.as_of(), &mut progress)
    }
}

impl Db {
    /// Reads manifest, logs and tables from disk, without caches. Checks checksums, key order, counts, indexes, each
    /// filter with every key of its table, and consistency between files. Changes nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// assert!(db.verify()?.damage.is_empty());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]. Damage and unreadable files are not errors.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.engine().verify()
    }
}

impl Engine {
    fn verify(&self) -> Result<VerifyReport> {
        self.lifecycle.check_open()?;
        let (fs, dir) = (&*self.files.fs, &*self.files.dir);
        let mut silent = |_| ControlFlow::Continue(());
        let mut verifier = Verifier::new(dir, &self.options, &mut silent);
        let guard = self.manifest.lock();
        let Some(in_memory) = guard.as_ref().map(|manifest| manifest.state()) else {
            drop(guard);
            return verify_view(dir, &self.options, self.report.as_of, &mut |_| ControlFlow::Continue(()));
        };
        let is_whole = match verifier.read_current().map(|current| verifier.read_manifest(&current)) {
            Some(Some((manifest, true))) => {
                let (found, expected) = (manifest.state.mark, in_memory.mark);
                if found != expected && !self.lifecycle.has_failed() {
                    let detail = format!("it ends with {found:?}, but {expected:?} was written");
                    verifier.damaged(Error::corruption(&manifest.path, 0, "manifest", detail));
                }
                Some(manifest)
            }
            _ => None,
        };
        let purpose = if is_whole.is_some() { Purpose::CheckOpen } else { Purpose::CheckAlone };
        let mut manifest = is_whole.unwrap_or_else(|| no_manifest(dir));
        manifest.state = in_memory.clone();
        let _pinned: Vec<_> = self.keyspaces.all().iter().map(|tree| tree.view()).collect();
        let numbers = manifest.state.logs.keys();
        let paths: Vec<_> = numbers.map(|&number| FileName::Log(number).path(dir)).collect();
        let open = |path| fs.open(path).map_err(|error| Error::io("open", path, error));
        let opened: Vec<_> = paths.iter().map(|path| open(path)).collect();
        drop(guard);
        // Newest first: see `live_view`.
        let frozen = opened.into_iter().zip(&paths).rev().map(|(file, path)| freeze(file?, path));
        let mut logs: Vec<_> = frozen.collect();
        logs.reverse();

        verifier.known_logs(purpose, self.files.store_id, &manifest, &mut |index, _| logs[index].clone())?;
        let ids = StoreIds::new(self.files.store_id, &manifest.state.store_ids);
        let context = shared(dir, &self.options, ids, self.keyspaces.hash_seed);
        verifier.known_tables(&context, &manifest.state)?;
        if let Ok(listing) = list(fs, dir) {
            verifier.report.ignored = listing.ignored;
        }
        Ok(verifier.report)
    }
}

fn freeze(file: Arc<dyn ReadFile>, path: &Path) -> Result<Arc<dyn ReadFile>> {
    let frozen = FrozenFile::now(file).map_err(|error| Error::io("read", path, error))?;
    Ok(Arc::new(frozen))
}

fn verify_view(
    dir: &Path,
    options: &Options,
    as_of: Option<AsOf>,
    progress: &mut Watch<'_>,
) -> Result<VerifyReport> {
    let fs = &*options.fs;
    let listing = list(fs, dir)?;
    if let Ok(None) = Current::read(fs, dir)
        && check_never_used(fs, dir, &listing).is_ok()
    {
        return Err(Error::NoStore { dir: dir.to_path_buf(), why: "the directory holds no CURRENT" });
    }
    let mut verifier = Verifier::new(dir, options, progress);
    verifier.measure(&listing);
    let named = verifier.read_current();
    let current = named.or_else(|| newest_manifest(fs, dir, &listing));
    let found = current.and_then(|current| verifier.read_manifest(&current));
    let store_id = current.map(|current| current.store_id).or_else(|| any_store_id(fs, dir, &listing));
    let store_id = store_id.unwrap_or_default();
    match (named, found) {
        (Some(current), Some((manifest, true))) => {
            verifier.whole_store(&listing, &current, &manifest)?;
            let Strays { ours, others } = Strays::find(fs, dir, &listing, &manifest.state, &current);
            verifier.report.ignored = listing.ignored;
            verifier.report.ignored.extend(ignored_strays(fs, dir, &ours, &others));
        }
        (_, found) => {
            let mut state = found.map(|(manifest, _)| manifest.state).unwrap_or_default();
            if state.keyspaces.is_empty() {
                state.store_ids = store_ids(fs, dir, &listing);
            }
            verifier.every_log(&listing, store_id, &state)?;
            verifier.every_table(&listing, store_id, &state)?;
            verifier.report.ignored = listing.ignored;
        }
    }
    let (mut report, seqno) = (verifier.report, verifier.last_seqno);
    report.as_of = as_of.map(|as_of| AsOf { seqno, ..as_of });
    if as_of.is_some_and(|as_of| as_of.in_use) {
        report.dropped.clear();
    }
    Ok(report)
}

fn no_manifest(dir: &Path) -> ReadManifest {
    ReadManifest::empty(FileName::Current.path(dir))
}

fn read_header(fs: &dyn Fs, path: &Path) -> Option<FileHeader> {
    let mut bytes = [0; HEADER_BYTES];
    fs.open(path).ok()?.read_at(&mut bytes, 0).ok()?;
    FileHeader::decode(&bytes).ok()
}

fn newest_manifest(fs: &dyn Fs, dir: &Path, listing: &Listing) -> Option<Current> {
    listing.ours.iter().rev().find_map(|name| {
        let &FileName::Manifest(manifest) = name else { return None };
        let header = read_header(fs, &name.path(dir)).filter(|header| header.kind == FileKind::Manifest)?;
        Some(Current { store_id: header.store_id, manifest, manifest_id: header.file_id })
    })
}

fn store_ids(fs: &dyn Fs, dir: &Path, listing: &Listing) -> NumberSet<FileId> {
    listing.ours.iter().filter_map(|name| Some(read_header(fs, &name.path(dir))?.store_id)).collect()
}

fn any_store_id(fs: &dyn Fs, dir: &Path, listing: &Listing) -> Option<FileId> {
    listing.ours.iter().find_map(|name| Some(read_header(fs, &name.path(dir))?.store_id))
}

type Watch<'a> = dyn FnMut(VerifyProgress) -> ControlFlow<()> + 'a;

type OpenLog<'a> = dyn FnMut(usize, &Path) -> Result<Arc<dyn ReadFile>> + 'a;

struct Verifier<'a> {
    dir: &'a Path,
    options: &'a Options,
    report: VerifyReport,
    list_bytes: usize,
    last_seqno: SeqNo,
    progress: &'a mut Watch<'a>,
    at: VerifyProgress,
}

impl<'a> Verifier<'a> {
    fn new(dir: &'a Path, options: &'a Options, progress: &'a mut Watch<'a>) -> Self {
        let (report, at) = (VerifyReport::default(), VerifyProgress::default());
        Self { dir, options, report, list_bytes: 0, last_seqno: 0, progress, at }
    }

    fn fs(&self) -> &'a dyn Fs {
        &*self.options.fs
    }

    fn damaged(&mut self, error: Error) {
        self.list(Damage { error, keys: None });
    }

    fn list(&mut self, damage: Damage) {
        if matches!(damage.error, Error::Changed { .. }) {
            self.report.changed.push(damage.error);
            return;
        }
        let keys = damage.keys.as_ref().map_or(0, |keys| keys.first.len() + keys.last.len());
        self.list_bytes = self.list_bytes.saturating_add(PIECE_BYTES + keys);
        if self.list_bytes <= LIST_BYTES_MAX {
            self.report.damage.push(damage);
        } else {
            self.report.omitted += 1;
        }
    }

    fn measure(&mut self, listing: &Listing) {
        let lengths = listing.ours.iter().map(|name| match name {
            FileName::Table(_) | FileName::Log(_) => self.len(name),
            _ => 0,
        });
        self.at.bytes = lengths.sum();
    }

    fn len(&self, name: &FileName) -> u64 {
        self.fs().open(&name.path(self.dir)).and_then(|file| file.len()).unwrap_or(0)
    }

    fn done(&mut self, bytes: u64) -> Result<()> {
        self.at.bytes_done += bytes;
        if (self.progress)(self.at).is_break() { Err(Error::Cancelled) } else { Ok(()) }
    }

    fn read_current(&mut self) -> Option<Current> {
        match Current::read(self.fs(), self.dir) {
            Ok(Some(current)) => return Some(current),
            Ok(None) => {
                let path = FileName::Current.path(self.dir);
                self.damaged(Error::corruption(&path, 0, "CURRENT", "it is missing"));
            }
            Err(error) => self.damaged(error),
        }
        None
    }

    fn read_manifest(&mut self, current: &Current) -> Option<(ReadManifest, bool)> {
        match read_prefix(self.fs(), self.dir, current, None) {
            Ok((manifest, damage)) => {
                self.report.edits = manifest.marks.len() as u64;
                let is_whole = damage.is_none();
                if let Some(error) = damage {
                    self.framed_damage(&manifest.path, None, error);
                }
                Some((manifest, is_whole))
            }
            Err(error) => {
                self.damaged(error);
                None
            }
        }
    }

    fn framed_damage(&mut self, path: &Path, end: Option<u64>, error: Error) {
        let Ok(file) = self.fs().open(path) else { return self.damaged(error) };
        let found = verify_framed(&*file, path, end, error);
        found.damage.into_iter().for_each(|(error, _)| self.damaged(error));
        self.report.omitted += found.omitted;
    }

    fn whole_store(&mut self, listing: &Listing, current: &Current, manifest: &ReadManifest) -> Result<()> {
        let (fs, dir) = (self.fs(), self.dir);
        self.known_logs(Purpose::Check, current.store_id, manifest, &mut |_, path| open_log(fs, path))?;
        let mut replay = Replay::new(Purpose::Check, fs, dir, current.store_id, manifest);
        if let Err(error) = replay.unknown_logs(listing) {
            self.damaged(error);
        }
        manifest.state.faults().for_each(|error| self.damaged(error.in_file(&manifest.path, 0)));
        let ids = StoreIds::new(current.store_id, &manifest.state.store_ids);
        let context = shared(dir, self.options, ids, manifest.state.hash_seed);
        self.known_tables(&context, &manifest.state)
    }

    fn known_logs(
        &mut self,
        purpose: Purpose,
        store_id: FileId,
        manifest: &ReadManifest,
        open: &mut OpenLog<'_>,
    ) -> Result<()> {
        let (fs, dir) = (self.fs(), self.dir);
        let mut replay = Replay::new(purpose, fs, dir, store_id, manifest);
        replay.torn(&manifest.path, manifest.ending);
        let logs = &manifest.state.logs;
        let last_used = last_used(logs, |index, number| {
            Ok(open(index, &FileName::Log(number).path(dir)).map_or(0, |file| file.len().unwrap_or(0)))
        });
        let last_used = last_used.unwrap_or_default();
        for (index, (&number, log)) in logs.iter().enumerate() {
            let path = FileName::Log(number).path(dir);
            let file = open(index, &path);
            let len = file.as_ref().map_or(0, |file| file.len().unwrap_or(0));
            if let Err(error) = file.and_then(|file| replay.log(&*file, &path, log, number >= last_used)) {
                self.framed_damage(&path, log.end.map(|end| end.len), error);
            }
            self.done(len)?;
        }
        self.last_seqno = replay.last_seqno;
        let report = replay.report;
        (self.report.logs, self.report.batches) = (logs.len() as u64, report.batches);
        // The end of an active log is unwritten, not torn.
        if purpose != Purpose::CheckOpen {
            self.report.dropped = report.dropped;
        }
        Ok(())
    }

    /// Reads each log, up to the end that the readable part of the manifest states.
    fn every_log(&mut self, listing: &Listing, store_id: FileId, state: &ManifestState) -> Result<()> {
        let (fs, dir) = (self.fs(), self.dir);
        let mut manifest = no_manifest(dir);
        manifest.state.store_ids.clone_from(&state.store_ids);
        for name in &listing.ours {
            let &FileName::Log(number) = name else { continue };
            let path = name.path(dir);
            let mut replay = Replay::new(Purpose::CheckAlone, fs, dir, store_id, &manifest);
            let file = fs.open(&path).map_err(|error| Error::io("open", &path, error));
            let ended = state.logs.get(&number).filter(|log| log.end.is_some());
            let read = file.and_then(|file| match ended {
                Some(log) => replay.log(&*file, &path, log, true),
                None => replay.log_alone(&*file, &path),
            });
            self.report.logs += 1;
            self.report.batches += replay.report.batches;
            self.report.dropped.append(&mut replay.report.dropped);
            if let Err(error) = read {
                self.framed_damage(&path, ended.and_then(|log| log.end).map(|end| end.len), error);
            }
            self.done(self.len(name))?;
        }
        Ok(())
    }

    fn known_tables(&mut self, context: &Arc<TableContext>, state: &ManifestState) -> Result<()> {
        let of = |keyspace: &KeyspaceState| Some((keyspace.name.clone(), ExpiryStats::of_files(keyspace)?));
        self.report.expiry = state.keyspaces.values().filter_map(of).collect();
        for keyspace in state.keyspaces.values() {
            let mut runs = Runs::default();
            for TablePlace { level, run, meta } in keyspace.tables.values() {
                let Some((smallest, largest)) = self.table(context, meta, Some(&keyspace.name))? else {
                    continue;
                };
                let (smallest, largest, number) = (smallest.into(), largest.into(), meta.number);
                runs.add(*level, *run, Bounds { smallest, largest, trimmed: false, number });
            }
            for Overlap { number, detail, keys: (first, last) } in runs.overlaps() {
                let path = FileName::Table(number).path(self.dir);
                let (first, last) = (first.to_vec(), last.to_vec());
                let keys = DamagedKeys { keyspace: Some(keyspace.name.clone()), first, last };
                let error = Error::corruption(&path, 0, "table", detail);
                self.list(Damage { error, keys: Some(keys) });
            }
        }
        Ok(())
    }

    fn table(
        &mut self,
        context: &Arc<TableContext>,
        meta: &Arc<TableMeta>,
        keyspace: Option<&String>,
    ) -> Result<Option<Keys>> {
        let path = FileName::Table(meta.number).path(self.dir);
        let keys = |(first, last): Keys| Some(DamagedKeys { keyspace: keyspace.cloned(), first, last });
        self.report.tables += 1;
        self.report.bytes = self.report.bytes.saturating_add(meta.len);
        self.report.entries = self.report.entries.saturating_add(meta.entries);
        if let Err(error) = self.fs().open(&path)
            && error.kind() == std::io::ErrorKind::NotFound
        {
            let error = Error::corruption(&path, 0, "table", "the manifest names it, but it is missing");
            let (first, last) = meta.wide_bounds();
            let keys = keys((first.to_vec(), last.to_vec()));
            self.list(Damage { error, keys });
            return Ok(None);
        }
        let found = verify_table(context, meta);
        self.report.filters += found.filters;
        self.report.omitted += found.omitted;
        for (error, concerned) in found.damage {
            self.list(Damage { error, keys: concerned.and_then(keys) });
        }
        self.done(self.len(&FileName::Table(meta.number)))?;
        Ok(found.bounds)
    }

    /// Checks each table against the manifest, or against its own properties if the manifest does not name it.
    fn every_table(&mut self, listing: &Listing, store_id: FileId, state: &ManifestState) -> Result<()> {
        let known: BTreeMap<u64, (&String, &Arc<TableMeta>)> = state
            .keyspaces
            .values()
            .flat_map(|keyspace| keyspace.tables.values().map(|place| (&keyspace.name, &place.meta)))
            .map(|(name, meta)| (meta.number, (name, meta)))
            .collect();
        let ids = StoreIds::new(store_id, &state.store_ids);
        let mut context = shared(self.dir, self.options, ids.clone(), state.hash_seed);
        let mut knows_seed = state.hash_seed != 0;
        for name in &listing.ours {
            let &FileName::Table(number) = name else { continue };
            let path = name.path(self.dir);
            let read = || Table::read_meta(&context, number, &path).map(Arc::new);
            let meta = match known.get(&number) {
                Some((_, meta)) => Ok(Arc::clone(meta)),
                None => read(),
            };
            let meta = match meta {
                Ok(meta) => meta,
                Err(error) => {
                    self.report.tables += 1;
                    self.damaged(error);
                    self.done(self.len(name))?;
                    continue;
                }
            };
            if !knows_seed && let Some(seed) = seed_of(&*self.options.fs, &path, &meta) {
                context = shared(self.dir, self.options, ids.clone(), seed);
                knows_seed = true;
            }
            self.table(&context, &meta, known.get(&number).map(|(name, _)| *name))?;
        }
        Ok(())
    }
}

/// Returns the hash seed of a filter, for a store without a manifest.
fn seed_of(fs: &dyn Fs, path: &Path, meta: &TableMeta) -> Option<u64> {
    let filter = meta.filters.iter().find(|filter| filter.file.is_none())?;
    let mut bytes = [0; filter::header::HEADER_BYTES];
    fs.open(path).ok()?.read_at(&mut bytes, filter.offset).ok()?;
    Header::decode(&bytes).ok().map(|header| header.seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemFs;
    use crate::manifest::edit::EditItem;
    use crate::manifest::edit::tests::meta;
    use crate::manifest::log::ManifestLog;
    use crate::options::KeyspaceOptions;

    #[test]
    fn table_records_that_state_the_largest_numbers_are_added_up_without_overflow() {
        let (fs, dir) = (MemFs::new(), Path::new("/db"));
        fs.create_dir(dir).unwrap();
        let state = ManifestState { next_file: 9, hash_seed: 5, ..ManifestState::default() };
        let shared: Arc<dyn Fs> = Arc::new(fs.clone());
        let mut manifest = ManifestLog::create(shared, dir, [1; 16], 1, state, &|| Ok([7; 16])).unwrap();
        let options = KeyspaceOptions::new().encode();
        let mut items = vec![EditItem::KeyspaceCreated { id: 0, name: "default".into(), options }];
        for (number, first, last) in [(7, "a", "b"), (8, "c", "d")] {
            let meta = TableMeta { entries: 1 << 63, ..meta(number, first, last, 1 << 63) };
            items.push(EditItem::TableAdded { keyspace: 0, level: 1, run: 0, meta: Arc::new(meta) });
        }
        manifest.append(items).unwrap();
        let report = Options::new().fs(Arc::new(fs)).verify(dir).unwrap();
        assert_eq!((report.tables, report.bytes, report.entries), (2, u64::MAX, u64::MAX));
        assert_eq!(report.damage.len(), 2, "{report:?}");
        let keys = report.damage[0].keys.as_ref().unwrap();
        assert_eq!(report.damage[0].concerns(), Concerned::Keys(keys));
    }
}
