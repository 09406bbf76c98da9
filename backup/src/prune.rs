//! Removes old backups, and the files that no backup uses.
//!
//! 1. The indexes of old backups are removed, durably.
//! 2. A file in `files/` that no index names is moved to `unused/`, under a name that states the time.
//! 3. A file in `unused/` that an index names is moved back. Another one is deleted once it has been there for a day.
//! 4. Incomplete files that were begun more than a week ago are deleted.
//!
//! A backup that runs at the same time may have found a file in `files/` that step 2 moves away, and name it in its index
//! later. Readers look in both directories, and step 3 of the next call moves it back. Each move is a rename, which only one of
//! two processes can do: a backup that takes a file back has it, or copies it again.
//!
//! An index that cannot be read may name any file, so nothing is moved or deleted then.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::repository::{Repository, unused_name};

/// How long a file stays in the repository after it was found unused.
pub const UNUSED_SECONDS_MIN: u64 = 24 * 60 * 60;

/// How long a file may take to be written.
const INCOMPLETE_SECONDS_MIN: u64 = 7 * UNUSED_SECONDS_MIN;

/// The result of [`Repository::prune`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneReport {
    /// The ids of the backups that were removed.
    pub removed: Vec<String>,
    /// Backups that are left.
    pub kept: u64,
    /// Files that no backup uses any more. A call a day later deletes them.
    pub unused_files: u64,
    /// Files that were deleted.
    pub deleted_files: u64,
    /// Their lengths together.
    pub deleted_bytes: u64,
}

impl Repository {
    /// Removes all backups of each store but the newest `keep` complete ones, and deletes the files that no backup has used
    /// for 24 hours. Backups and restores of the remaining backups may run at the same time. A call that is killed leaves a valid
    /// repository.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if `keep` is 0, the error of an index that cannot be read, [`Error::Io`].
    pub fn prune(&self, keep: u64) -> Result<PruneReport> {
        if keep == 0 {
            return Err(Error::InvalidArgument { what: "at least one backup must be kept".into() });
        }
        let mut report = PruneReport::default();
        self.remove_old(keep, &mut report)?;
        // Listed before the indexes: a file that a new backup adds is not seen, or its index is.
        let in_use = self.list(&self.files_dir())?.unwrap_or_default();
        // Read before the indexes: a file that a later index names was found unused too late to be deleted.
        let now = self.seconds();
        let used = self.used()?;
        self.put_aside(&in_use, &used, &mut report)?;
        self.delete_unused(now, &used, &mut report)?;
        self.delete_incomplete()?;
        Ok(report)
    }

    /// Step 1.
    fn remove_old(&self, keep: u64, report: &mut PruneReport) -> Result<()> {
        let (mut old, mut kept) = (Vec::new(), std::collections::BTreeMap::new());
        for backup in self.readable_backups()? {
            let count: &mut u64 = kept.entry(backup.store_id).or_default();
            if *count == keep {
                old.push(backup.id);
                continue;
            }
            report.kept += 1;
            *count += u64::from(backup.missing == 0);
        }
        for id in old {
            if self.remove(&self.index_path(&id))? {
                report.removed.push(id);
            }
        }
        self.sync_dir(&self.backups_dir())
    }

    /// The backups, if all indexes can be read.
    fn readable_backups(&self) -> Result<Vec<crate::repository::Backup>> {
        let found = self.backups()?;
        match found.unreadable.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(found.backups),
        }
    }

    /// The files that indexes name.
    fn used(&self) -> Result<BTreeSet<Content>> {
        let mut used = BTreeSet::new();
        let unreadable = self.each_index(&self.ids()?, |_, index| {
            used.extend(index.files.iter().map(|file| file.content));
            Ok(())
        })?;
        unreadable.into_iter().next().map_or(Ok(used), Err)
    }

    /// Step 2.
    fn put_aside(&self, names: &[String], used: &BTreeSet<Content>, report: &mut PruneReport) -> Result<()> {
        let contents = names.iter().filter_map(|name| Content::parse(name));
        let unused: Vec<Content> = contents.filter(|content| !used.contains(content)).collect();
        if unused.is_empty() {
            return Ok(());
        }
        let dir = self.unused_dir();
        self.create_dir(&dir)?;
        self.sync_dir(&self.dir)?;
        for content in unused {
            let (from, to) = (self.file_path(content), self.unused_path(self.seconds(), content));
            report.unused_files += u64::from(found(self.rename(&from, &to))?);
        }
        self.sync_dir(&dir)?;
        self.sync_dir(&self.files_dir())
    }

    /// Step 3.
    fn delete_unused(&self, now: u64, used: &BTreeSet<Content>, report: &mut PruneReport) -> Result<()> {
        let dir = self.unused_dir();
        let Some(names) = self.list(&dir)? else { return Ok(()) };
        for name in names {
            let Some((since, content)) = unused_name(&name) else { continue };
            let path = dir.join(&name);
            if used.contains(&content) {
                found(self.rename(&path, &self.file_path(content)))?;
            } else if now.saturating_sub(since) >= UNUSED_SECONDS_MIN && self.remove(&path)? {
                report.deleted_files += 1;
                report.deleted_bytes += content.len;
            }
        }
        self.sync_dir(&self.files_dir())?;
        self.sync_dir(&dir)
    }

    /// Step 4.
    fn delete_incomplete(&self) -> Result<()> {
        let dir = self.incomplete_dir();
        for name in self.list(&dir)?.unwrap_or_default() {
            let since = name.split_once('-').and_then(|(seconds, _)| seconds.parse().ok());
            if since.is_some_and(|since: u64| self.seconds().saturating_sub(since) >= INCOMPLETE_SECONDS_MIN)
            {
                self.remove(&dir.join(name))?;
            }
        }
        Ok(())
    }

    /// `false` if there is no such file any more.
    fn remove(&self, path: &Path) -> Result<bool> {
        found(self.fs.remove(path).map_err(|error| Error::io("remove", path, error)))
    }
}

/// `false` if another process was first.
fn found(done: Result<()>) -> Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
