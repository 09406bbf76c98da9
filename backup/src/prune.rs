//! Removes old backups and unused files.
//!
//! 1. The indexes of old backups are removed, durably.
//! 2. A file in `unused/` is moved back if an index names it and `files/` has no other, and deleted if it has been there for a day.
//! 3. Markers of damaged files are deleted if the file is gone, incomplete files after a week.
//! 4. A file in `files/` that no index names is moved to `unused/`, under a name with the time. This step is the last, because it
//!    may need space.
//!
//! A concurrent backup may rely on a file that step 4 moves. Readers look in both directories, and step 2 of the next call moves
//! it back. A move is a rename, which succeeds in one process only. If an index is unreadable, nothing is moved or deleted,
//! because it may name any file.

use std::collections::BTreeSet;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::repository::{Repository, found, unused_name};

/// Seconds that an unused file stays in the repository.
pub const UNUSED_SECONDS_MIN: u64 = 24 * 60 * 60;

/// Longest time for writing a file.
const INCOMPLETE_SECONDS_MIN: u64 = 7 * UNUSED_SECONDS_MIN;

/// The result of [`Repository::prune`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneReport {
    /// The ids of the removed backups.
    pub removed: Vec<String>,
    /// Remaining backups.
    pub kept: u64,
    /// Files found unused, which a call a day later deletes.
    pub unused_files: u64,
    /// Deleted files.
    pub deleted_files: u64,
    /// The sum of their lengths.
    pub deleted_bytes: u64,
}

impl Repository {
    /// Keeps the newest `keep` complete backups of each store and removes older ones. Sets aside the files that no backup uses,
    /// and deletes those that were set aside 24 hours ago and are still unused. Backups, and restores of kept backups, may run
    /// at the same time. A killed call leaves a valid repository.
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
        // Files are listed before the indexes, so a file that a backup adds later is not moved.
        let in_use = self.list(&self.files_dir())?.unwrap_or_default();
        // The time is taken before the indexes are read, so a file that becomes unused later is not old enough.
        let now = self.seconds();
        let used = self.used()?;
        self.delete_unused(now, &used, &mut report)?;
        self.delete_markers()?;
        self.delete_incomplete()?;
        self.put_aside(&in_use, &used, &mut report)?;
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

    /// Fails if an index cannot be read.
    fn readable_backups(&self) -> Result<Vec<crate::repository::Backup>> {
        let found = self.backups()?;
        match found.unreadable.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(found.backups),
        }
    }

    fn used(&self) -> Result<BTreeSet<Content>> {
        let mut used = BTreeSet::new();
        let unreadable = self.each_index(&self.ids()?, |_, index| {
            used.extend(index.files.iter().map(|file| file.content));
            Ok(())
        })?;
        unreadable.into_iter().next().map_or(Ok(used), Err)
    }

    /// Step 2.
    fn delete_unused(&self, now: u64, used: &BTreeSet<Content>, report: &mut PruneReport) -> Result<()> {
        let dir = self.unused_dir();
        let Some(names) = self.list(&dir)? else { return Ok(()) };
        let stored = self.stored()?;
        for name in names {
            let Some((since, content)) = unused_name(&name) else { continue };
            let path = dir.join(&name);
            if used.contains(&content) {
                let in_use = self.file_path(content);
                if !self.has_len(&in_use, content.len)? {
                    found(self.rename(&path, &in_use))?;
                } else if !stored.is_marked(content) {
                    self.remove(&path)?;
                }
            } else if now.saturating_sub(since) >= UNUSED_SECONDS_MIN && self.remove(&path)? {
                report.deleted_files += 1;
                report.deleted_bytes += content.len;
            }
        }
        self.sync_dir(&self.files_dir())?;
        self.sync_dir(&dir)
    }

    /// Step 3, markers. A file in `unused/` keeps its marker, so that no backup relies on it.
    fn delete_markers(&self) -> Result<()> {
        self.stored()?.marked_and_gone().try_for_each(|content| self.remove_marker(content))
    }

    /// Step 3, incomplete files.
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

    /// Step 4.
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
}
