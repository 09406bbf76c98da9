//! Makes a backup.
//!
//! 1. [`Db::live_files`] lists the files of the store and protects them.
//! 2. A file is reused if the last index has its identity, or the repository has its content. Other files are copied
//!    into `incomplete/`, synced, and renamed by their content in `files/`. A file marked as damaged is copied again;
//!    then its marker is removed.
//! 3. Reused files are moved from `unused/` to `files/`, or copied if they were deleted meanwhile. `files/` is synced.
//! 4. The index is written, synced and renamed into `backups/`, which is synced.
//!
//! [`Repository::prune`] moves a file to `unused/` and deletes it a day later, so a file that step 3 finds in `files/`
//! still exists after step 4.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use sievedb::{Db, FileKind, LiveFile, LiveFiles};

use crate::content::{Content, PART_BYTES, Sums};
use crate::control::{Control, Stage};
use crate::error::{Error, Result};
use crate::index::{Identity, Index, IndexedFile};
use crate::repository::{Backup, Repository, Stored, is_of_store, millis, random};
use crate::stored::create;

/// The result of [`Repository::backup`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// The backup.
    pub backup: Backup,
    /// Number of copied files; the repository had the others.
    pub copied_files: u64,
    /// Total length of the copied files.
    pub copied_bytes: u64,
}

type Known = BTreeMap<Identity, IndexedFile>;

impl Repository {
    /// Makes a backup of all keyspaces as of one point in time during the call, with every write that returned before
    /// the call. Writers continue. Tables never change, so a call copies only new tables and the log since the last
    /// flush. It does not read other files in the repository; [`Repository::verify`] does.
    ///
    /// With a handle of [`Options::read_only`](sievedb::Options::read_only) the backup has the state that the handle
    /// sees, even while another process writes. Store and repository may be in different file systems.
    ///
    /// If a call fails, is cancelled or is killed, other backups remain complete. The failed call leaves a backup only
    /// if its index was already written. The next call reuses the copied files.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the repository is in the store; [`Error::Io`] for a failed operation, or if the
    /// parent directory of the repository does not exist; [`Error::Cancelled`]; [`Error::Store`] with the errors of
    /// [`Db::live_files`].
    pub fn backup(&self, db: &Db, control: &mut Control<'_>) -> Result<BackupReport> {
        self.check_outside(db.path())?;
        self.create_dirs()?;
        // The path may not have existed before, so it is checked again.
        self.check_outside(db.path())?;
        let live = db.live_files()?;
        // A read-only handle may see an earlier state.
        let time = db.open_report().as_of.map_or_else(|| self.now(), |as_of| millis(as_of.time));
        let (store_id, seqno) = (live.store_id(), live.seqno());
        let (known, last) = self.known(store_id)?;
        // The times of a store's backups ascend with its sequence numbers, even if the clock was set back.
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
            // Fails if another process removed a file before the index named it.
            backing_up.run(&live)?;
        }
    }

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

    /// Returns the files of the store's last backup, and its index. If the store has no backup, returns the files of
    /// the last backups of other stores, because the store may be a copy. Filters are excluded, because they may differ
    /// under the same identity.
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
        // An unreadable index only means that more files are copied.
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
    dir: &'c Path,
    control: &'c mut Control<'a>,
    known: Known,
    /// Copied files and bytes.
    copied: (u64, u64),
}

impl BackingUp<'_, '_> {
    /// Steps 2 and 3.
    fn run(&mut self, live: &LiveFiles) -> Result<Vec<IndexedFile>> {
        let files: BTreeMap<Identity, &LiveFile> =
            live.files().iter().map(|file| (Identity::of(file), file)).collect();
        loop {
            let stored = self.repository.stored()?;
            let missing = self.missing(&stored, &files)?;
            if missing.is_empty() {
                break;
            }
            self.control.begin(Stage::Copying, missing.iter().map(|identity| identity.len).sum())?;
            for identity in missing {
                let file = files[&identity];
                let (content, parts) = match self.find(&stored, file)? {
                    Some(found) => found,
                    None => self.copy(&stored, file)?,
                };
                self.known.insert(identity.clone(), IndexedFile { identity, content, parts });
            }
        }
        self.repository.sync_dir(&self.repository.files_dir())?;
        Ok(files.keys().map(|identity| self.known[identity].clone()).collect())
    }

    /// Returns the files that the repository lacks. Moves known files back from `unused/`.
    fn missing(&self, stored: &Stored, files: &BTreeMap<Identity, &LiveFile>) -> Result<Vec<Identity>> {
        let repository = self.repository;
        let (mut missing, mut was_moved) = (Vec::new(), false);
        for identity in files.keys() {
            let content = self.known.get(identity).map(|file| file.content);
            let is_there = content.map_or(Ok(false), |content| repository.has(stored, content))?;
            let Some(content) = content.filter(|_| is_there) else {
                missing.push(identity.clone());
                continue;
            };
            if let Some(unused) = stored.path(content).filter(|_| !stored.is_in_use(content)) {
                match repository.rename(unused, &repository.file_path(content)) {
                    Ok(()) => was_moved = true,
                    // The file was deleted, or moved by another backup. The next round checks this.
                    Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                        missing.push(identity.clone());
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if was_moved {
            // `files/` is synced first: otherwise, a power loss could remove both names of a file.
            repository.sync_dir(&repository.files_dir())?;
            repository.sync_dir(&repository.unused_dir())?;
        }
        Ok(missing)
    }

    /// Returns the checksums of a file whose content is in the repository. Reads the file only if one in the repository
    /// has its length.
    fn find(&mut self, stored: &Stored, file: &LiveFile) -> Result<Option<(Content, Vec<u32>)>> {
        if !stored.has_len(file.len()) {
            return Ok(None);
        }
        let (content, parts) = self.read(file, |control, part| control.copied(part.len() as u64))?;
        if self.repository.has(stored, content)? {
            return Ok(Some((content, parts)));
        }
        // The copy reads the file again.
        self.control.add(file.len());
        Ok(None)
    }

    fn copy(&mut self, stored: &Stored, file: &LiveFile) -> Result<(Content, Vec<u32>)> {
        let path = self.repository.incomplete_path()?;
        let copied = self.write(file, &path).and_then(|(content, parts)| {
            let (repository, is_marked) = (self.repository, stored.is_marked(content));
            let there = repository.file_path(content);
            // Another backup copied it.
            if !is_marked && repository.has_len(&there, content.len)? {
                repository.discard(&path);
            } else {
                repository.rename(&path, &there)?;
            }
            if is_marked {
                repository.sync_dir(&repository.files_dir())?;
                repository.unmark(content)?;
            }
            Ok((content, parts))
        });
        copied.inspect_err(|_| self.repository.discard(&path))
    }

    fn write(&mut self, file: &LiveFile, path: &Path) -> Result<(Content, Vec<u32>)> {
        let mut write = create(self.repository, path)?;
        let sums = self.read(file, |control, part| {
            write(Some(part))?;
            control.copied(part.len() as u64)
        })?;
        write(None)?;
        self.copied.0 += 1;
        self.copied.1 += file.len();
        Ok(sums)
    }

    /// Passes each part to `take`, and returns the checksums.
    fn read(
        &mut self,
        file: &LiveFile,
        mut take: impl FnMut(&mut Control<'_>, &[u8]) -> Result<()>,
    ) -> Result<(Content, Vec<u32>)> {
        let from = file.open()?;
        let (mut sums, mut at) = (Sums::new(), 0);
        while at < file.len() {
            let len = PART_BYTES.min(file.len() - at);
            let read = from.read_to_vec(len as usize, at);
            let part = read.map_err(|error| Error::io("read", &self.dir.join(file.name()), error))?;
            sums.add(&part);
            take(self.control, &part)?;
            at += len;
        }
        Ok(sums.finish())
    }
}
