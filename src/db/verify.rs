//! Verifying a store: everything is read back and compared, and all damage is collected.
//!
//! 1. `CURRENT` and the manifest it names. If `CURRENT` is damaged or gone, the newest manifest there is
//!    stands in for it; a manifest is followed as far as it can be read.
//! 2. Logs: every record, their order, their end, what they promise.
//! 3. Tables, each as [`inspect`](crate::inspect) walks it, with the filters inside and beside them; tables
//!    of one run must not overlap.
//! 4. Names in the directory: what is missing, what belongs to nothing.
//!
//! If the manifest is not whole, it is not known which files belong to the store. Then every table and every
//! log in the directory is checked for itself, and none is called missing or left over.
//!
//! Nothing is changed. A store that is open goes on meanwhile: what its manifest named at one moment is
//! verified, the tables held by the views of that moment and the logs by open files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::engine::Engine;
use super::open::{lock_for_reading, shared};
use super::recover::{
    DroppedTail, IgnoredFile, Listing, Purpose, Replay, check_never_used, list, open_log, strays,
};
use super::store::Db;
use crate::checksum::FileId;
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES};
use crate::filename::{FileName, names_in};
use crate::filter::{self, Header};
use crate::fs::{Fs, ReadFile};
use crate::inspect::{Keys, verify_table};
use crate::manifest::current::Current;
use crate::manifest::log::{ReadManifest, read_prefix};
use crate::manifest::state::ManifestState;
use crate::options::Options;
use crate::table::{Table, TableContext};
use crate::table_meta::TableMeta;
use crate::wal::{Ending, damage_behind};

/// Most further pieces of damage that are listed for one log: more than the fragments of a log of usual size.
const LOG_DAMAGE_MAX: usize = 100_000;

/// What the list of damage may take in memory, in bytes; about.
const LIST_BYTES_MAX: usize = 512 << 20;

/// What a piece of damage takes in it without its keys, in bytes; about.
const PIECE_BYTES: usize = 512;

/// What a verification read and what it found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Edits of the manifest that were read.
    pub edits: u64,
    /// Logs that were read.
    pub logs: u64,
    /// Batches in them.
    pub batches: u64,
    /// Tables that were read.
    pub tables: u64,
    /// Their length in bytes, as the manifest has it.
    pub bytes: u64,
    /// Their entries, as the manifest counts them.
    pub entries: u64,
    /// Filters that every key of their table was held against.
    pub filters: u64,
    /// Ends of files that are torn and were never promised to be durable. No damage: a crash leaves them.
    pub dropped: Vec<DroppedTail>,
    /// Files that do not belong to the store, and why. No damage either. (In a store that is open for writing
    /// only those whose names are not a store's.)
    pub ignored: Vec<IgnoredFile>,
    /// Everything that is wrong, up to 100 000 pieces for each table and each log and half a gigabyte of
    /// memory for all of them, which no store has that was not made up. Empty if the store is sound.
    pub damage: Vec<Damage>,
    /// Pieces of damage that were found beyond that and are not listed.
    pub omitted: u64,
}

/// A piece of damage.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Damage {
    /// What is wrong, with file and offset.
    pub error: Error,
    /// The first and the last key that it can concern, if it is in a table whose bounds are known: all others
    /// are as they were. `None` does not say that it concerns no key: see [`Damage::concerns`].
    pub keys: Option<DamagedKeys>,
}

/// What a piece of damage can concern: the answer of [`Damage::concerns`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concerned<'a> {
    /// The keys of a table from one to another, and no others.
    Keys(&'a DamagedKeys),
    /// The damage is in a log: keys that were written after the last flush of their keyspace, any of them, in
    /// every keyspace. What is in tables is as it was.
    Unflushed,
    /// Any key: the damage is in the manifest or in `CURRENT`, which say which tables and logs there are, or
    /// in a table of which not even its bounds can be read.
    Any,
}

impl Damage {
    /// What it can concern, as narrowly as is known.
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

/// The keys that damage can concern: from `first` to `last`, both included.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedKeys {
    /// The keyspace, if the manifest can tell.
    pub keyspace: Option<String>,
    /// No key before this one is concerned.
    pub first: Vec<u8>,
    /// No key after this one is.
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

/// How far a verification is.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Length of the tables and logs that are done, in bytes.
    pub bytes_done: u64,
    /// Length of all of them.
    pub bytes: u64,
}

impl Options {
    /// Verifies the store in `path` without opening it: reads and checks every file, and goes on after
    /// damage. It also works on a store that cannot be opened, and writes nothing.
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
    /// [`Error::NoStore`], [`Error::Locked`] if the store is open for writing, [`Error::Io`] if the directory
    /// cannot be listed. Damage and unreadable files are in the report, not errors.
    pub fn verify(&self, path: impl AsRef<Path>) -> Result<VerifyReport> {
        self.verify_with(path, |_| ())
    }

    /// Verifies like [`Options::verify`], and calls `progress` after each file.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// sievedb::Db::open(dir.path())?.close()?;
    /// let options = sievedb::Options::new();
    /// options.verify_with(dir.path(), |done| println!("{} of {} bytes", done.bytes_done, done.bytes))?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Options::verify`].
    pub fn verify_with(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(VerifyProgress),
    ) -> Result<VerifyReport> {
        let dir = path.as_ref();
        names_in(&*self.fs, dir)?;
        let _lock = lock_for_reading(&*self.fs, dir)?;
        verify_at_rest(dir, self, &mut progress)
    }
}

impl Db {
    /// Reads every table, every log and the manifest from disk, past the caches, and checks checksums, order
    /// of keys, counts, index against data, every key against its filter, and what the files say about each
    /// other. Goes on after damage and lists all of it. Changes nothing.
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
    /// [`Error::Closed`]. Damage and unreadable files are in the report, not errors.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.engine().verify()
    }
}

impl Engine {
    fn verify(&self) -> Result<VerifyReport> {
        self.health.check_open()?;
        let (fs, dir) = (&*self.files.fs, &*self.files.dir);
        let mut silent = |_| ();
        let mut verifier = Verifier::new(dir, &self.options, &mut silent);
        let guard = self.manifest.lock();
        let Some(in_memory) = guard.as_ref().map(|manifest| manifest.state()) else {
            drop(guard);
            return verify_at_rest(dir, &self.options, &mut |_| ());
        };
        let is_whole = match verifier.read_current().map(|current| verifier.read_manifest(&current)) {
            Some(Some((manifest, true))) => {
                let (found, expected) = (manifest.state.mark, in_memory.mark);
                if found != expected && !self.health.has_failed() {
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
        let _pinned: Vec<_> = self.keyspaces.load().values().map(|tree| tree.view()).collect();
        let numbers = manifest.state.logs.keys().map(|&number| FileName::Log(number).path(dir));
        let opened = numbers.map(|path| fs.open(&path).map_err(|error| Error::io("open", &path, error)));
        let opened: Vec<_> = opened.collect();
        drop(guard);

        verifier.known_logs(purpose, self.files.store_id, &manifest, &mut |index, _| opened[index].clone());
        let context = shared(dir, &self.options, self.files.store_id, self.keyspaces.hash_seed);
        verifier.known_tables(&context, &manifest.state);
        if let Ok(listing) = list(fs, dir) {
            verifier.report.ignored = listing.ignored;
        }
        Ok(verifier.report)
    }
}

fn verify_at_rest(
    dir: &Path,
    options: &Options,
    progress: &mut dyn FnMut(VerifyProgress),
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
            verifier.whole_store(&listing, &current, &manifest);
            let strays = strays(&listing, &manifest.state, current.manifest);
            verifier.report.ignored = listing.ignored;
            let left_over = |name: &FileName| IgnoredFile { name: name.to_string(), why: "left over" };
            verifier.report.ignored.extend(strays.iter().map(left_over));
        }
        (_, found) => {
            let state = found.map(|(manifest, _)| manifest.state).unwrap_or_default();
            verifier.every_log(&listing, store_id);
            verifier.every_table(&listing, store_id, &state);
            verifier.report.ignored = listing.ignored;
        }
    }
    Ok(verifier.report)
}

/// A manifest that says nothing.
fn no_manifest(dir: &Path) -> ReadManifest {
    let path = FileName::Current.path(dir);
    ReadManifest { path, state: ManifestState::default(), marks: Vec::new(), ending: Ending::Complete }
}

fn read_header(fs: &dyn Fs, path: &Path) -> Option<FileHeader> {
    let mut bytes = [0; HEADER_BYTES];
    fs.open(path).ok()?.read_at(&mut bytes, 0).ok()?;
    FileHeader::decode(&bytes).ok()
}

/// What `CURRENT` would say of the newest manifest that can be read.
fn newest_manifest(fs: &dyn Fs, dir: &Path, listing: &Listing) -> Option<Current> {
    listing.ours.iter().rev().find_map(|name| {
        let &FileName::Manifest(manifest) = name else { return None };
        let header = read_header(fs, &name.path(dir)).filter(|header| header.kind == FileKind::Manifest)?;
        Some(Current { store_id: header.store_id, manifest, manifest_id: header.file_id })
    })
}

fn any_store_id(fs: &dyn Fs, dir: &Path, listing: &Listing) -> Option<FileId> {
    listing.ours.iter().find_map(|name| Some(read_header(fs, &name.path(dir))?.store_id))
}

/// Opens a log, given its index among those of the manifest and its path.
type OpenLog<'a> = dyn FnMut(usize, &Path) -> Result<Arc<dyn ReadFile>> + 'a;

struct Verifier<'a> {
    dir: &'a Path,
    options: &'a Options,
    report: VerifyReport,
    /// What the list of damage takes.
    list_bytes: usize,
    progress: &'a mut dyn FnMut(VerifyProgress),
    at: VerifyProgress,
}

impl<'a> Verifier<'a> {
    fn new(dir: &'a Path, options: &'a Options, progress: &'a mut dyn FnMut(VerifyProgress)) -> Self {
        let (report, at) = (VerifyReport::default(), VerifyProgress::default());
        Self { dir, options, report, list_bytes: 0, progress, at }
    }

    fn fs(&self) -> &'a dyn Fs {
        &*self.options.fs
    }

    fn damaged(&mut self, error: Error) {
        self.list(Damage { error, keys: None });
    }

    fn list(&mut self, damage: Damage) {
        let keys = damage.keys.as_ref().map_or(0, |keys| keys.first.len() + keys.last.len());
        self.list_bytes = self.list_bytes.saturating_add(PIECE_BYTES + keys);
        if self.list_bytes <= LIST_BYTES_MAX {
            self.report.damage.push(damage);
        } else {
            self.report.omitted += 1;
        }
    }

    /// Learns how much there is to read.
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

    fn done(&mut self, bytes: u64) {
        self.at.bytes_done += bytes;
        (self.progress)(self.at);
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

    /// The manifest as far as it can be read, and whether that is all of it.
    fn read_manifest(&mut self, current: &Current) -> Option<(ReadManifest, bool)> {
        match read_prefix(self.fs(), self.dir, current) {
            Ok((manifest, damage)) => {
                self.report.edits = manifest.marks.len() as u64;
                let is_whole = damage.is_none();
                if let Some(error) = damage {
                    self.log_damage(&manifest.path, error);
                }
                Some((manifest, is_whole))
            }
            Err(error) => {
                self.damaged(error);
                None
            }
        }
    }

    /// Damage in a log or manifest, and what else is damaged in it.
    fn log_damage(&mut self, path: &Path, error: Error) {
        let behind = match &error {
            Error::Corruption { file, offset, what: "log fragment" | "closed log", .. } if file == path => {
                Some(*offset)
            }
            _ => None,
        };
        self.damaged(error);
        let Some(offset) = behind else { return };
        if let Ok(file) = self.fs().open(path)
            && let Ok((more, omitted)) = damage_behind(&*file, path, offset, LOG_DAMAGE_MAX)
        {
            more.into_iter().for_each(|error| self.damaged(error));
            self.report.omitted += omitted;
        }
    }

    /// A store whose manifest is whole.
    fn whole_store(&mut self, listing: &Listing, current: &Current, manifest: &ReadManifest) {
        let (fs, dir) = (self.fs(), self.dir);
        self.known_logs(Purpose::Check, current.store_id, manifest, &mut |_, path| open_log(fs, path));
        let mut replay = Replay::new(Purpose::Check, fs, dir, current.store_id, manifest);
        if let Err(error) = replay.unknown_logs(listing) {
            self.damaged(error);
        }
        manifest.state.faults().for_each(|error| self.damaged(error.in_file(&manifest.path, 0)));
        let context = shared(dir, self.options, current.store_id, manifest.state.hash_seed);
        self.known_tables(&context, &manifest.state);
    }

    /// The logs that the manifest names; `open` is given their index and path.
    fn known_logs(
        &mut self,
        purpose: Purpose,
        store_id: FileId,
        manifest: &ReadManifest,
        open: &mut OpenLog<'_>,
    ) {
        let (fs, dir) = (self.fs(), self.dir);
        let mut replay = Replay::new(purpose, fs, dir, store_id, manifest);
        replay.torn(&manifest.path, manifest.ending);
        let logs = &manifest.state.logs;
        for (index, (&number, log)) in logs.iter().enumerate() {
            let path = FileName::Log(number).path(dir);
            let is_last = index + 1 == logs.len();
            let file = open(index, &path);
            let len = file.as_ref().map_or(0, |file| file.len().unwrap_or(0));
            if let Err(error) = file.and_then(|file| replay.log(&*file, &path, log, is_last)) {
                self.log_damage(&path, error);
            }
            self.done(len);
        }
        let report = replay.report;
        (self.report.logs, self.report.batches) = (logs.len() as u64, report.batches);
        // The end of a log that is being written to is not torn, only not there yet.
        if purpose != Purpose::CheckOpen {
            self.report.dropped = report.dropped;
        }
    }

    /// Each log in the directory for itself.
    fn every_log(&mut self, listing: &Listing, store_id: FileId) {
        let (fs, dir) = (self.fs(), self.dir);
        let manifest = no_manifest(dir);
        for name in &listing.ours {
            let FileName::Log(_) = name else { continue };
            let path = name.path(dir);
            // One for each: what is missing between two logs is not known.
            let mut replay = Replay::new(Purpose::CheckAlone, fs, dir, store_id, &manifest);
            let file = fs.open(&path).map_err(|error| Error::io("open", &path, error));
            let read = file.and_then(|file| replay.log_alone(&*file, &path));
            self.report.logs += 1;
            self.report.batches += replay.report.batches;
            self.report.dropped.append(&mut replay.report.dropped);
            if let Err(error) = read {
                self.log_damage(&path, error);
            }
            self.done(self.len(name));
        }
    }

    fn known_tables(&mut self, context: &Arc<TableContext>, state: &ManifestState) {
        for keyspace in state.keyspaces.values() {
            let mut runs = BTreeMap::<_, Vec<(Vec<u8>, Vec<u8>, u64)>>::new();
            for place in keyspace.tables.values() {
                let bounds = self.table(context, &place.meta, Some(&keyspace.name));
                let run = runs.entry((place.level, place.run)).or_default();
                run.extend(bounds.map(|(smallest, largest)| (smallest, largest, place.meta.number)));
            }
            for tables in runs.values_mut() {
                tables.sort();
                self.check_run(&keyspace.name, tables);
            }
        }
    }

    /// Tables of one run, in order.
    fn check_run(&mut self, keyspace: &str, tables: &[(Vec<u8>, Vec<u8>, u64)]) {
        for pair in tables.windows(2) {
            let [(_, end, a), (start, largest, b)] = pair else { continue };
            if start <= end {
                let path = FileName::Table(*b).path(self.dir);
                let detail = format!("its keys overlap those of table {a} in one run");
                let (first, last) = (start.clone(), end.min(largest).clone());
                let keys = DamagedKeys { keyspace: Some(keyspace.to_owned()), first, last };
                let error = Error::corruption(&path, 0, "table", detail);
                self.list(Damage { error, keys: Some(keys) });
            }
        }
    }

    /// One table; gives its bounds if it can be opened.
    fn table(
        &mut self,
        context: &Arc<TableContext>,
        meta: &Arc<TableMeta>,
        keyspace: Option<&String>,
    ) -> Option<Keys> {
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
            return None;
        }
        let found = verify_table(context, meta);
        self.report.filters += found.filters;
        self.report.omitted += found.omitted;
        for (error, concerned) in found.damage {
            self.list(Damage { error, keys: concerned.and_then(keys) });
        }
        self.done(self.len(&FileName::Table(meta.number)));
        found.bounds
    }

    /// Each table in the directory, by what the manifest says of it if it does, otherwise by what it says
    /// itself.
    fn every_table(&mut self, listing: &Listing, store_id: FileId, state: &ManifestState) {
        let known: BTreeMap<u64, (&String, &Arc<TableMeta>)> = state
            .keyspaces
            .values()
            .flat_map(|keyspace| keyspace.tables.values().map(|place| (&keyspace.name, &place.meta)))
            .map(|(name, meta)| (meta.number, (name, meta)))
            .collect();
        let mut context = shared(self.dir, self.options, store_id, state.hash_seed);
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
                    self.done(self.len(name));
                    continue;
                }
            };
            if !knows_seed && let Some(seed) = seed_of(&*self.options.fs, &path, &meta) {
                context = shared(self.dir, self.options, store_id, seed);
                knows_seed = true;
            }
            self.table(&context, &meta, known.get(&number).map(|(name, _)| *name));
        }
    }
}

/// The seed of the key hash, as the filter of a table has it: for a store whose manifest is lost.
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
    use crate::manifest::edit::{EditItem, tests::meta};
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
