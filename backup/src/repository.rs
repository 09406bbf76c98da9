//! The repository: a directory of files that never change, except that a damaged file is replaced by its intact bytes.
//!
//! | path | content |
//! |---|---|
//! | `files/CONTENT` | a file of backups; see [`content`](crate::content) |
//! | `files/CONTENT.damaged` | an empty marker: [`verify`](crate::verify) found the file damaged |
//! | `backups/ID.index` | the [index](crate::index) of a backup |
//! | `unused/SECONDS-CONTENT` | a file that no backup used at that time; see [`prune`](crate::prune) |
//! | `incomplete/SECONDS-RANDOM` | a file that is being written |
//!
//! A file gets its final name when it is complete and durable, an index when the names of its files are durable too. So
//! a killed process leaves complete backups, and perhaps unused files. There are no locks: files with the same name
//! have the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sievedb::fs::{Fs, StdFs};

use crate::content::Content;
use crate::error::{Error, Result};
use crate::index::Index;

const FILES: &str = "files";
const BACKUPS: &str = "backups";
const UNUSED: &str = "unused";
const INCOMPLETE: &str = "incomplete";
const INDEX_END: &str = ".index";
const MARKER_END: &str = ".damaged";
/// A file of every store, but of no repository.
const OF_STORES: &str = "CURRENT";

/// Enough for hundreds of terabytes.
const INDEX_BYTES_MAX: u64 = 1 << 30;

type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// A directory with backups of one or more stores.
#[derive(Clone)]
pub struct Repository {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    clock: Clock,
}

/// A backup in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The time in UTC, and the beginnings of the store's and the backup's ids.
    pub id: String,
    /// The time of the store's backed-up state; if the clock was set back, a millisecond after the store's previous
    /// backup.
    pub time: SystemTime,
    /// The random id of the store.
    pub store_id: [u8; 16],
    /// The backup has every write up to this sequence number.
    pub seqno: u64,
    /// Number of files.
    pub files: u64,
    /// The sum of their lengths. Backups may share files.
    pub bytes: u64,
    /// The number of different contents that are missing, have the wrong length or are marked as damaged; 0 if the
    /// backup is complete.
    pub missing: u64,
}

/// The result of [`Repository::backups`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Backups {
    /// All backups with an intact index, the newest first.
    pub backups: Vec<Backup>,
    /// [`Error::Damaged`], [`Error::Unsupported`] or [`Error::Io`] for each index that cannot be read.
    pub unreadable: Vec<Error>,
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Repository {
    /// Opens the repository in `dir`. If `dir` is missing or empty, the first backup creates it, in an existing parent.
    ///
    /// # Errors
    ///
    /// [`Error::NoRepository`] if `dir` is a store, [`Error::OtherFiles`] if it has other files, [`Error::Io`].
    pub fn create(dir: impl AsRef<Path>) -> Result<Self> {
        Self::create_with(Arc::new(StdFs), dir)
    }

    /// Opens the repository in `dir`.
    ///
    /// # Errors
    ///
    /// [`Error::NoRepository`], [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(Arc::new(StdFs), dir)
    }

    /// [`Repository::create`] in the file system `fs`, where [`Repository::restore`] creates stores too.
    ///
    /// # Errors
    ///
    /// The errors of [`Repository::create`].
    pub fn create_with(fs: Arc<dyn Fs>, dir: impl AsRef<Path>) -> Result<Self> {
        let repository = Self::at(fs, dir.as_ref());
        if repository.list(&repository.backups_dir())?.is_none() {
            let found = repository.list(&repository.dir)?.unwrap_or_default();
            if found.iter().any(|name| name == OF_STORES) {
                return Err(repository.no_repository("it is a store"));
            }
            let known = [FILES, BACKUPS, UNUSED, INCOMPLETE];
            if let Some(found) = found.into_iter().find(|name| !known.contains(&name.as_str())) {
                return Err(Error::OtherFiles { dir: repository.dir, found });
            }
        }
        Ok(repository)
    }

    /// Creates the directories of the repository, but not its parent: it may be the mount point of an unmounted disk.
    pub(crate) fn create_dirs(&self) -> Result<()> {
        if let Some(parent) = self.dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.fs.canonical(parent).map_err(|error| match error.kind() {
                ErrorKind::NotFound => {
                    let why = format!("there is no directory {}", parent.display());
                    Error::io("create", &self.dir, std::io::Error::new(ErrorKind::NotFound, why))
                }
                _ => Error::io("look for", parent, error),
            })?;
        }
        for dir in [self.files_dir(), self.incomplete_dir(), self.backups_dir()] {
            self.create_dir(&dir)?;
        }
        self.sync_with_parents()
    }

    /// [`Repository::open`] in the file system `fs`, where [`Repository::restore`] creates stores too.
    ///
    /// # Errors
    ///
    /// The errors of [`Repository::open`].
    pub fn open_with(fs: Arc<dyn Fs>, dir: impl AsRef<Path>) -> Result<Self> {
        let repository = Self::at(fs, dir.as_ref());
        if repository.list(&repository.backups_dir())?.is_some() {
            return Ok(repository);
        }
        Err(repository.no_repository(match repository.list(&repository.dir)? {
            None => "there is no such directory",
            Some(names) if names.iter().any(|name| name == OF_STORES) => "it is a store",
            Some(_) => "it has no directory `backups`",
        }))
    }

    fn no_repository(&self, detail: &str) -> Error {
        Error::NoRepository { dir: self.dir.clone(), detail: detail.into() }
    }

    fn at(fs: Arc<dyn Fs>, dir: &Path) -> Self {
        Self { fs, dir: dir.to_path_buf(), clock: Arc::new(SystemTime::now) }
    }

    /// Sets the clock for the times of backups and of unused files.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The backups, and the errors of unreadable indexes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the directory cannot be listed.
    pub fn backups(&self) -> Result<Backups> {
        // Ids are listed before files: a file deleted in between is in use only by backups pruned meanwhile.
        let ids = self.ids()?;
        let (stored, lens) = (self.stored()?, &mut BTreeMap::new());
        let mut backups = Vec::new();
        let unreadable = self.each_index(&ids, |id, index| {
            backups.push(self.describe(id, &index, &stored, lens)?);
            Ok(())
        })?;
        backups.reverse();
        Ok(Backups { backups, unreadable })
    }

    pub(crate) fn describe(
        &self,
        id: &str,
        index: &Index,
        stored: &Stored,
        lens: &mut BTreeMap<Content, bool>,
    ) -> Result<Backup> {
        let contents: BTreeSet<Content> = index.files.iter().map(|file| file.content).collect();
        let mut missing = 0;
        for content in contents {
            let is_there = match lens.get(&content) {
                Some(&is_there) => is_there,
                None => self.has(stored, content)?,
            };
            lens.insert(content, is_there);
            missing += u64::from(!is_there);
        }
        Ok(Backup {
            id: id.to_owned(),
            time: index.time(),
            store_id: index.store_id,
            seqno: index.seqno,
            files: index.files.len() as u64,
            bytes: index.bytes(),
            missing,
        })
    }

    /// Whether a file exists with the right length and is not marked as damaged.
    pub(crate) fn has(&self, stored: &Stored, content: Content) -> Result<bool> {
        match stored.path(content).filter(|_| !stored.is_marked(content)) {
            Some(path) => self.has_len(path, content.len),
            None => Ok(false),
        }
    }

    /// Errors other than `NotFound` are returned.
    pub(crate) fn has_len(&self, path: &Path, len: u64) -> Result<bool> {
        match self.fs.open(path).and_then(|file| file.len()) {
            Ok(found) => Ok(found == len),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("open", path, error)),
        }
    }

    /// Passes indexes to `take` one by one, to save memory. Returns the errors of unreadable ones.
    pub(crate) fn each_index(
        &self,
        ids: &BTreeSet<String>,
        mut take: impl FnMut(&str, Index) -> Result<()>,
    ) -> Result<Vec<Error>> {
        let mut unreadable = Vec::new();
        for id in ids {
            match self.read_index(id) {
                Ok(index) => take(id, index)?,
                // Pruned since the listing.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                Err(error) => unreadable.push(error),
            }
        }
        Ok(unreadable)
    }

    /// Oldest first.
    pub(crate) fn ids(&self) -> Result<BTreeSet<String>> {
        let names = self.list(&self.backups_dir())?.unwrap_or_default();
        let ids = names.iter().filter_map(|name| name.strip_suffix(INDEX_END));
        Ok(ids.filter(|id| is_id(id)).map(str::to_owned).collect())
    }

    pub(crate) fn index_path(&self, id: &str) -> PathBuf {
        self.backups_dir().join(format!("{id}{INDEX_END}"))
    }

    pub(crate) fn read_index(&self, id: &str) -> Result<Index> {
        let path = self.index_path(id);
        let file = self.fs.open(&path).map_err(|error| Error::io("open", &path, error))?;
        let read_error = |error| Error::io("read", &path, error);
        let len = file.len().map_err(read_error)?;
        if len > INDEX_BYTES_MAX {
            return Err(Error::damaged(&path, INDEX_BYTES_MAX, format!("an index has no {len} bytes")));
        }
        let bytes = file.read_to_vec(len as usize, 0).map_err(read_error)?;
        Index::decode(&bytes).map_err(|error| Error::decode(&path, &error))
    }

    /// The index is durable on return. The names of its files must be durable before the call.
    pub(crate) fn write_index(&self, index: &Index) -> Result<String> {
        let (path, bytes) = (self.incomplete_path()?, index.encode());
        let file = self.fs.create(&path).map_err(|error| Error::io("create", &path, error))?;
        let id = id_of(index);
        let written = file.append(&bytes).and_then(|()| file.sync());
        let written = written.map_err(|error| Error::io("write", &path, error));
        written
            .and_then(|()| self.rename(&path, &self.index_path(&id)))
            .inspect_err(|_| self.discard(&path))?;
        self.sync_dir(&self.backups_dir())?;
        Ok(id)
    }

    pub(crate) fn stored(&self) -> Result<Stored> {
        let (files, unused) = (self.files_dir(), self.unused_dir());
        let (mut paths, mut marked) = (BTreeMap::new(), BTreeSet::new());
        // `files` is listed before and after: a file may be moved in either direction meanwhile.
        for name in self.list(&files)?.unwrap_or_default() {
            paths.extend(Content::parse(&name).map(|content| (content, files.join(name))));
        }
        for name in self.list(&unused)?.unwrap_or_default() {
            if let Some((_, content)) = unused_name(&name) {
                paths.insert(content, unused.join(name));
            }
        }
        for name in self.list(&files)?.unwrap_or_default() {
            if let Some(content) = Content::parse(&name) {
                paths.insert(content, files.join(name));
            } else {
                marked.extend(name.strip_suffix(MARKER_END).and_then(Content::parse));
            }
        }
        let intact = paths.keys().filter(|content| !marked.contains(*content));
        let lens = intact.map(|content: &Content| content.len).collect();
        Ok(Stored { paths, marked, lens, files })
    }

    /// Marks a file as damaged, durably.
    pub(crate) fn mark(&self, content: Content) -> Result<()> {
        let marker = self.marker_path(content);
        match self.fs.create(&marker) {
            // Another process has created it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => drop(created.map_err(|error| Error::io("create", &marker, error))?),
        }
        self.sync_dir(&self.files_dir())
    }

    /// Removes the marker of an intact, durable file, after its duplicates in `unused/`: without the marker, a damaged duplicate
    /// would count as intact. The marker stays if the file itself is in `unused/`.
    pub(crate) fn unmark(&self, content: Content) -> Result<()> {
        let dir = self.unused_dir();
        // Listed before the check: if `prune` moves the file after it, the file is not among the duplicates.
        let unused = self.list(&dir)?.unwrap_or_default();
        if !self.has_len(&self.file_path(content), content.len)? {
            return Ok(());
        }
        for name in unused {
            if unused_name(&name).is_some_and(|(_, of)| of == content) && self.remove(&dir.join(name))? {
                self.sync_dir(&dir)?;
            }
        }
        self.remove_marker(content)
    }

    pub(crate) fn remove_marker(&self, content: Content) -> Result<()> {
        self.remove(&self.marker_path(content)).and_then(|_| self.sync_dir(&self.files_dir()))
    }

    pub(crate) fn file_path(&self, content: Content) -> PathBuf {
        self.files_dir().join(content.to_string())
    }

    fn marker_path(&self, content: Content) -> PathBuf {
        self.files_dir().join(format!("{content}{MARKER_END}"))
    }

    pub(crate) fn unused_path(&self, seconds: u64, content: Content) -> PathBuf {
        self.unused_dir().join(format!("{seconds}-{content}"))
    }

    pub(crate) fn incomplete_path(&self) -> Result<PathBuf> {
        Ok(self.incomplete_dir().join(format!("{}-{}", self.seconds(), hex(&random()?))))
    }

    /// On failure, [`Repository::prune`] removes it later.
    pub(crate) fn discard(&self, path: &Path) {
        let _ = self.fs.remove(path);
    }

    pub(crate) fn now(&self) -> u64 {
        millis((self.clock)())
    }

    pub(crate) fn seconds(&self) -> u64 {
        self.now() / 1000
    }

    pub(crate) fn files_dir(&self) -> PathBuf {
        self.dir.join(FILES)
    }

    pub(crate) fn backups_dir(&self) -> PathBuf {
        self.dir.join(BACKUPS)
    }

    pub(crate) fn unused_dir(&self) -> PathBuf {
        self.dir.join(UNUSED)
    }

    pub(crate) fn incomplete_dir(&self) -> PathBuf {
        self.dir.join(INCOMPLETE)
    }

    /// UTF-8 names; `None` without a directory.
    pub(crate) fn list(&self, dir: &Path) -> Result<Option<Vec<String>>> {
        match self.fs.list(dir) {
            Ok(names) => Ok(Some(names.into_iter().filter_map(|name| name.into_string().ok()).collect())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("list", dir, error)),
        }
    }

    pub(crate) fn create_dir(&self, dir: &Path) -> Result<()> {
        self.fs.create_dir(dir).map_err(|error| Error::io("create", dir, error))
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.fs.rename(from, to).map_err(|error| Error::io("rename", from, error))
    }

    /// Removes a file; `false` if it is gone.
    pub(crate) fn remove(&self, path: &Path) -> Result<bool> {
        found(self.fs.remove(path).map_err(|error| Error::io("remove", path, error)))
    }

    /// Makes names durable, if the file system supports that.
    pub(crate) fn sync_dir(&self, dir: &Path) -> Result<()> {
        match self.fs.sync_dir(dir) {
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
            synced => synced.map_err(|error| Error::io("sync", dir, error)),
        }
    }

    /// Makes the directory and its parents durable, up to a parent without permission.
    fn sync_with_parents(&self) -> Result<()> {
        self.sync_dir(&self.dir)?;
        for parent in self.dir.ancestors().skip(1) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            match self.sync_dir(parent) {
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => break,
                synced => synced?,
            }
        }
        Ok(())
    }
}

/// The listed files of a repository.
#[derive(Debug)]
pub(crate) struct Stored {
    paths: BTreeMap<Content, PathBuf>,
    /// Contents marked as damaged, even without a file.
    marked: BTreeSet<Content>,
    /// The lengths of the files that are not marked.
    lens: BTreeSet<u64>,
    files: PathBuf,
}

impl Stored {
    pub(crate) fn path(&self, content: Content) -> Option<&Path> {
        self.paths.get(&content).map(PathBuf::as_path)
    }

    pub(crate) fn is_marked(&self, content: Content) -> bool {
        self.marked.contains(&content)
    }

    /// The marked contents without a file.
    pub(crate) fn marked_and_gone(&self) -> impl Iterator<Item = Content> {
        self.marked.iter().copied().filter(|content| !self.paths.contains_key(content))
    }

    /// Whether a file that is not marked has this length, according to its name.
    pub(crate) fn has_len(&self, len: u64) -> bool {
        self.lens.contains(&len)
    }

    pub(crate) fn is_in_use(&self, content: Content) -> bool {
        self.path(content).is_some_and(|path| path.starts_with(&self.files))
    }
}

/// Milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Time and content of a file in `unused/`.
pub(crate) fn unused_name(name: &str) -> Option<(u64, Content)> {
    let (seconds, content) = name.split_once('-')?;
    Some((seconds.parse().ok()?, Content::parse(content)?))
}

/// `false` if the file is gone.
pub(crate) fn found(done: Result<()>) -> Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn random() -> Result<[u8; 16]> {
    let mut random = [0; 16];
    let other = |error: getrandom::Error| std::io::Error::other(error.to_string());
    getrandom::fill(&mut random)
        .map_err(|error| Error::io("draw", Path::new("random numbers"), other(error)))?;
    Ok(random)
}

/// `20261126T072825.123Z-1f2e3d4c-9a8b7c6d`: ids sort by time.
fn id_of(index: &Index) -> String {
    format!("{}-{}-{}", utc(index.time), hex(&index.store_id[..4]), hex(&index.backup_id[..4]))
}

/// Copies by other programs, such as `._ID` and `ID (1)`, are not backups.
fn is_id(id: &str) -> bool {
    !id.starts_with('.') && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
}

/// The backup's id contains the first 32 bits of the store's id.
pub(crate) fn is_of_store(id: &str, store_id: &[u8; 16]) -> bool {
    id.split('-').nth(1) == Some(&*hex(&store_id[..4]))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `20261126T072825.123Z`
fn utc(millis: u64) -> String {
    let (days, milli) = ((millis / 86_400_000) as i64, millis % 86_400_000);
    // Days since 0000-03-01, in eras of 400 years (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (milli / 3_600_000, milli / 60_000 % 60, milli / 1000 % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{:03}Z", milli % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_state_the_time_and_are_in_its_order() {
        for (millis, text) in [
            (0, "19700101T000000.000Z"),
            (951_782_400_000, "20000229T000000.000Z"),
            (1_795_678_105_123, "20261126T072825.123Z"),
            (4_107_542_399_999, "21000228T235959.999Z"),
        ] {
            assert_eq!(utc(millis), text);
        }
        let index = crate::index::tests::example();
        assert_eq!(id_of(&index), "20261126T072825.123Z-00010203-10111213");
        assert!(is_of_store(&id_of(&index), &index.store_id));
        assert!(!is_of_store(&id_of(&index), &index.backup_id));
    }
}
