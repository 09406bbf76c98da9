//! Makes a backup.
//!
//! 1. The files of the store are listed, which protects them ([`Db::live_files`]).
//! 2. A file with the identity of one of the last backup is taken from there, if the repository still has it. The others
//!    are copied into `incomplete/`, synced, and renamed to their content in `files/`; one that is there already is dropped.
//! 3. Files that were found unused are moved back, and files that were removed meanwhile are copied again. `files/` is synced.
//! 4. The index is written, synced and renamed into `backups/`, which is synced.
//!
//! # Next to others
//!
//! Another backup may give a file the same name: then it has the same bytes. [`Repository::prune`] moves unused files away, and
//! deletes them after a day. So a file that step 3 sees in `files/` exists for another day at least, and step 4 follows at once.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use sievedb::{Db, FileKind, LiveFile, LiveFiles};

use crate::content::{Content, PART_BYTES, Sums};
use crate::control::{Control, Stage};
use crate::error::{Error, Result};
use crate::index::{Identity, Index, IndexedFile};
use crate::repository::{Backup, Repository, is_of_store, millis, random};
use crate::stored::create;

/// The result of [`Repository::backup`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// The backup.
    pub backup: Backup,
    /// Files that were copied; the others were in the repository.
    pub copied_files: u64,
    /// Their lengths together.
    pub copied_bytes: u64,
}

/// The files of the last backups, by identity.
type Known = BTreeMap<Identity, IndexedFile>;

impl Repository {
    /// Makes a backup of a store: all keyspaces as they are at one moment during the call. It has every write that returned
    /// before the call. Writers go on meanwhile. Files that the repository already has are not copied; a table never changes,
    /// so a call copies new tables, and the log since the last flush.
    ///
    /// A handle that was opened with [`Options::read_only`](sievedb::Options::read_only) is a backup of the moment that it
    /// sees, also next to a writer in another process. `db` may be in another file system than the repository.
    ///
    /// A call that fails, is cancelled or is killed leaves no backup, and all others complete. Files that it has copied stay
    /// until [`Repository::prune`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the repository is in the store, [`Error::Cancelled`], [`Error::Io`], and
    /// [`Error::Store`] with the errors of [`Db::live_files`].
    pub fn backup(&self, db: &Db, control: &mut Control<'_>) -> Result<BackupReport> {
        self.check_outside(db.path())?;
        self.create_dirs()?;
        // Again: a path that did not exist may have led anywhere.
        self.check_outside(db.path())?;
        let live = db.live_files()?;
        // A handle for reading may see a moment that is long past.
        let time = db.open_report().as_of.map_or_else(|| self.now(), |as_of| millis(as_of.time));
        let (store_id, seqno) = (live.store_id(), live.seqno());
        let (known, last) = self.known(store_id)?;
        // Backups of a store are in the order of its writes, also if the clock was set back.
        let after_last =
            last.filter(|last| last.seqno <= seqno).map_or(0, |last| last.time.saturating_add(1));
        let time = time.max(after_last);
        control.begin_call();
        let dir = db.path();
        let mut backing_up = BackingUp { repository: self, dir, control, known, copied: (0, 0) };
        let files = backing_up.run(&live)?;
        let index = Index { store_id, backup_id: random()?, time, seqno, files };
        let id = self.write_index(&index)?;
        loop {
            let backup = self.describe(&id, &index, &self.stored()?, &mut BTreeMap::new())?;
            if backup.missing == 0 {
                let (copied_files, copied_bytes) = backing_up.copied;
                return Ok(BackupReport { backup, copied_files, copied_bytes });
            }
            // Others have removed files because there was no index that names them. There is one now.
            backing_up.run(&live)?;
        }
    }

    /// Checks that the repository is not in the store, which would find unknown files in its directory.
    fn check_outside(&self, store: &Path) -> Result<()> {
        let Ok(store) = self.fs.canonical(store) else { return Ok(()) };
        for existing in self.dir.ancestors() {
            let canonical =
                self.fs.canonical(if existing.as_os_str().is_empty() { Path::new(".") } else { existing });
            let is_inside = match canonical {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                canonical => {
                    canonical.map_err(|error| Error::io("look for", existing, error))?.starts_with(&store)
                }
            };
            if is_inside {
                return Err(Error::InvalidArgument {
                    what: format!("{} is in the store", self.dir.display()),
                });
            }
            break;
        }
        Ok(())
    }

    /// The files of the last backup of the store, and its index. If there is none, the files of the last backup of each other
    /// store: this one may be a copy of it. Two such stores may have different filter files of one identity.
    fn known(&self, store_id: [u8; 16]) -> Result<(Known, Option<Index>)> {
        let ids = self.ids()?;
        let own = ids.iter().rev().find(|id| is_of_store(id, &store_id));
        let last = match own {
            Some(id) => vec![id],
            None => {
                let by_store = |id: &&String| id.split('-').nth(1).unwrap_or_default().to_owned();
                let newest: BTreeMap<String, &String> = ids.iter().map(|id| (by_store(&id), id)).collect();
                newest.into_values().collect()
            }
        };
        let mut known = Known::new();
        // An index that cannot be read only means that more is copied.
        let mut indexes: Vec<Index> = last.into_iter().filter_map(|id| self.read_index(id).ok()).collect();
        for index in &indexes {
            let is_own = index.store_id == store_id;
            let files = index.files.iter().filter(|file| is_own || file.identity.kind != FileKind::Filter);
            known.extend(files.map(|file| (file.identity.clone(), file.clone())));
        }
        Ok((known, indexes.pop().filter(|index| index.store_id == store_id)))
    }
}

struct BackingUp<'c, 'a> {
    repository: &'c Repository,
    /// The directory of the store.
    dir: &'c Path,
    control: &'c mut Control<'a>,
    known: Known,
    /// Files and bytes.
    copied: (u64, u64),
}

impl BackingUp<'_, '_> {
    /// Steps 2 and 3. Returns the files by name.
    fn run(&mut self, live: &LiveFiles) -> Result<Vec<IndexedFile>> {
        let files: BTreeMap<Identity, &LiveFile> =
            live.files().iter().map(|file| (Identity::of(file), file)).collect();
        loop {
            let missing = self.missing(&files)?;
            if missing.is_empty() {
                break;
            }
            self.control.begin(Stage::Copying, missing.iter().map(|identity| identity.len).sum())?;
            for identity in missing {
                let copied = self.copy(files[&identity], identity.clone())?;
                self.known.insert(identity, copied);
            }
        }
        self.repository.sync_dir(&self.repository.files_dir())?;
        Ok(files.keys().map(|identity| self.known[identity].clone()).collect())
    }

    /// The files that the repository does not have. Files that were found unused are moved back.
    fn missing(&self, files: &BTreeMap<Identity, &LiveFile>) -> Result<Vec<Identity>> {
        let (repository, stored) = (self.repository, self.repository.stored()?);
        let (mut missing, mut was_moved) = (Vec::new(), false);
        for identity in files.keys() {
            let content = self.known.get(identity).map(|file| file.content);
            let is_there = content.map_or(Ok(false), |content| repository.has(&stored, content))?;
            let Some(content) = content.filter(|_| is_there) else {
                missing.push(identity.clone());
                continue;
            };
            if let Some(unused) = stored.path(content).filter(|_| !stored.is_in_use(content)) {
                match repository.rename(unused, &repository.file_path(content)) {
                    Ok(()) => was_moved = true,
                    // Deleted meanwhile, or moved by another backup: looked for again.
                    Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                        missing.push(identity.clone());
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if was_moved {
            // The new name first: a power loss may then leave two names, and never none.
            repository.sync_dir(&repository.files_dir())?;
            repository.sync_dir(&repository.unused_dir())?;
        }
        Ok(missing)
    }

    /// Copies a file into the repository, unless it has the same content already.
    fn copy(&mut self, file: &LiveFile, identity: Identity) -> Result<IndexedFile> {
        let path = self.repository.incomplete_path()?;
        let copied = self.write(file, &path).and_then(|(content, parts)| {
            let there = self.repository.file_path(content);
            if self.repository.has_len(&there, content.len)? {
                self.repository.discard(&path);
            } else {
                self.repository.rename(&path, &there)?;
            }
            Ok(IndexedFile { identity, content, parts })
        });
        copied.inspect_err(|_| self.repository.discard(&path))
    }

    /// Copies a file to a path, durably.
    fn write(&mut self, file: &LiveFile, path: &Path) -> Result<(Content, Vec<u32>)> {
        let from = file.open()?;
        let mut write = create(self.repository, path)?;
        let (mut sums, mut at) = (Sums::new(), 0);
        while at < file.len() {
            let len = PART_BYTES.min(file.len() - at);
            let read = from.read_to_vec(len as usize, at);
            let part = read.map_err(|error| Error::io("read", &self.dir.join(file.name()), error))?;
            sums.add(&part);
            write(Some(&part))?;
            at += len;
            self.control.copied(len)?;
        }
        write(None)?;
        self.copied.0 += 1;
        self.copied.1 += at;
        Ok(sums.finish())
    }
}
