//! Restores a backup: a store of its own in a new directory.
//!
//! 1. The directory `NAME.restore-incomplete` is created next to `NAME`, and locked. Files of an interrupted restore are
//!    removed from it.
//! 2. The files of the backup are copied into `image/`, with their checksums verified, and synced: a store as a `kill -9` at
//!    the moment of the backup would have left it, with the id of the store that was backed up.
//! 3. A checkpoint of it, `store/`, gets an id of its own and shares its tables. It is verified.
//! 4. `store/` is renamed to `NAME`, and the directory above is synced. The rest is removed.
//!
//! If step 2 or 3 finds damage, and the caller has chosen to salvage, `store/` is made by repairing `image/`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sievedb::fs::{LockGuard, LockKind};
use sievedb::{Options, RepairReport};

use crate::control::{Control, Progress, Stage};
use crate::error::{Error, Result};
use crate::index::Index;
use crate::repository::{Backup, Repository};
use crate::stored::{DamagedFile, create};

const INCOMPLETE_END: &str = ".restore-incomplete";
const IMAGE: &str = "image";
const STORE: &str = "store";
/// How `Db::checkpoint` names `store` until it is complete.
const STORE_INCOMPLETE: &str = "store.checkpoint-incomplete";
const LOCK: &str = "LOCK";

/// Which backup is restored, and how.
#[derive(Debug, Clone, Default)]
pub struct Restore {
    at: Option<String>,
    salvage: bool,
    options: Options,
}

/// The result of [`Repository::restore`].
#[derive(Debug)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The backup.
    pub backup: Backup,
    /// Newer backups that were not restored because they lack files, and indexes that cannot be read. Empty if a backup was
    /// named.
    pub passed_over: Vec<String>,
    /// Tables in the restored store.
    pub tables: u64,
    /// Their entries.
    pub entries: u64,
    /// Batches in its logs.
    pub batches: u64,
    /// Damaged files of the backup. Empty unless [`Restore::salvage`] was chosen.
    pub damage: Vec<DamagedFile>,
    /// The losses, if the store had to be repaired. They are found in the readable files alone: a damaged log in
    /// [`RestoreReport::damage`] may have lost its last writes without a trace here.
    pub repair: Option<RepairReport>,
}

impl Restore {
    /// The newest complete backup, which must be sound.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The backup with this id, or whose id begins like this.
    #[must_use]
    pub fn at(mut self, id: impl Into<String>) -> Self {
        self.at = Some(id.into());
        self
    }

    /// Also restores the readable data of a damaged backup, by [`Options::repair`].
    #[must_use]
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// The memory budget and other options of verifying and repairing.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }
}

impl Repository {
    /// Restores a backup to the new directory `dir`: a store of its own, with a new id. The checksums of all files are
    /// verified, and then the restored store is. The tables count as files of the store that was backed up, as in a checkpoint.
    ///
    /// `dir` appears when the store is complete, verified and durable. A failure leaves nothing. A crash leaves the directory
    /// `NAME.restore-incomplete` next to `dir`, which the next restore to `dir` removes. If that directory cannot be removed
    /// after `dir` has appeared, that is an error, and the store in `dir` is complete.
    ///
    /// # Errors
    ///
    /// [`Error::NoBackup`]; [`Error::InvalidArgument`] if the repository has backups of several stores and none was named,
    /// or if `dir` exists ([`Error::Io`] with the kind `AlreadyExists`); [`Error::Damaged`] with file and offset;
    /// [`Error::Unsound`] if the store was damaged when it was backed up; [`Error::Locked`], [`Error::OtherFiles`],
    /// [`Error::Cancelled`], [`Error::Io`], [`Error::Store`].
    pub fn restore(
        &self,
        dir: impl AsRef<Path>,
        restore: &Restore,
        control: &mut Control<'_>,
    ) -> Result<RestoreReport> {
        control.begin_call();
        let (backup, index, passed_over) = self.choose(restore.at.as_deref())?;
        let mut place = Place::create(self, dir.as_ref())?;
        let report = Restoring { place: &place, restore, control, index: &index }.run(backup, passed_over);
        let finished = report.and_then(|report| place.finish().map(|()| report));
        let removed = place.remove(finished.is_ok());
        // The first failure is the cause.
        finished.and_then(|report| removed.map(|()| report))
    }

    /// The backup that is named, or the newest complete one; the backups that were passed over.
    fn choose(&self, at: Option<&str>) -> Result<(Backup, Index, Vec<String>)> {
        let no_backup = |detail: String| Error::NoBackup { dir: self.dir.clone(), detail };
        if let Some(at) = at {
            let named = self.ids()?.into_iter().filter(|id| id.starts_with(at)).collect::<Vec<_>>();
            let exact = named.iter().find(|id| *id == at);
            let id = match (exact, &named[..]) {
                (Some(id), _) | (None, [id]) => id.clone(),
                (None, []) => return Err(no_backup(format!("none has an id that begins with {at}"))),
                (None, [first, second, ..]) => {
                    return Err(Error::InvalidArgument { what: format!("{at} is {first} or {second}") });
                }
            };
            let index = self.read_index(&id)?;
            let backup = self.describe(&id, &index, &self.stored()?, &mut BTreeMap::new())?;
            return Ok((backup, index, Vec::new()));
        }
        let found = self.backups()?;
        let stores: BTreeSet<[u8; 16]> = found.backups.iter().map(|backup| backup.store_id).collect();
        if stores.len() > 1 {
            let newest = |store| found.backups.iter().find(|backup| backup.store_id == store);
            let ids: Vec<&str> = stores.into_iter().filter_map(newest).map(|backup| &*backup.id).collect();
            let what =
                format!("name a backup: the newest ones of {} stores are {}", ids.len(), ids.join(", "));
            return Err(Error::InvalidArgument { what });
        }
        let mut passed_over: Vec<String> = found.unreadable.iter().map(ToString::to_string).collect();
        for backup in found.backups {
            if backup.missing == 0 {
                let index = self.read_index(&backup.id)?;
                return Ok((backup, index, passed_over));
            }
            passed_over.push(format!("{} lacks {} files", backup.id, backup.missing));
        }
        match found.unreadable.into_iter().next() {
            Some(error) if passed_over.len() == 1 => Err(error),
            _ if passed_over.is_empty() => Err(no_backup("there is none".into())),
            _ => Err(no_backup(passed_over.join("; "))),
        }
    }
}

/// The directory that a store is restored to, and the one in which it is built.
struct Place<'r> {
    repository: &'r Repository,
    dir: PathBuf,
    incomplete: PathBuf,
    /// Whether the store has its name.
    is_renamed: bool,
    _lock: Box<dyn LockGuard>,
}

impl<'r> Place<'r> {
    /// Step 1.
    fn create(repository: &'r Repository, dir: &Path) -> Result<Self> {
        let fs = &repository.fs;
        let invalid = || Error::InvalidArgument { what: format!("{} has no name", dir.display()) };
        let mut name = dir.file_name().ok_or_else(invalid)?.to_owned();
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let canonical = |dir: &Path| fs.canonical(dir).map_err(|error| Error::io("look for", dir, error));
        if canonical(parent)?.starts_with(canonical(&repository.dir)?) {
            return Err(Error::InvalidArgument { what: format!("{} is in the repository", dir.display()) });
        }
        match fs.list(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() != ErrorKind::NotADirectory => {
                return Err(Error::io("look for", dir, error));
            }
            _ => return Err(Error::io("create", dir, ErrorKind::AlreadyExists.into())),
        }
        name.push(INCOMPLETE_END);
        let incomplete = dir.with_file_name(name);
        repository.create_dir(&incomplete)?;
        let lock = incomplete.join(LOCK);
        let guard = fs.lock(&lock, LockKind::Exclusive).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Error::Locked { dir: incomplete.clone() },
            _ => {
                // Only if it is empty.
                let _ = fs.remove_dir(&incomplete);
                Error::io("lock", &lock, error)
            }
        })?;
        let dir = dir.to_path_buf();
        let place = Self { repository, dir, incomplete, is_renamed: false, _lock: guard };
        place.remove_interrupted()?;
        Ok(place)
    }

    fn image(&self) -> PathBuf {
        self.incomplete.join(IMAGE)
    }

    fn store(&self) -> PathBuf {
        self.incomplete.join(STORE)
    }

    /// Step 4, without the rest.
    fn finish(&mut self) -> Result<()> {
        // Before the rename: nothing large can be left over when the store has its name.
        self.remove_dir(&self.image())?;
        self.repository.rename(&self.store(), &self.dir)?;
        self.is_renamed = true;
        let parent = self.dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.repository.sync_dir(parent.unwrap_or(Path::new(".")))
    }

    fn remove_interrupted(&self) -> Result<()> {
        let known = [IMAGE, STORE, STORE_INCOMPLETE, LOCK];
        let names = self.repository.list(&self.incomplete)?.unwrap_or_default();
        if let Some(found) = names.into_iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Error::OtherFiles { dir: self.incomplete.clone(), found });
        }
        [IMAGE, STORE, STORE_INCOMPLETE]
            .iter()
            .try_for_each(|name| self.remove_dir(&self.incomplete.join(name)))
    }

    /// Removes a directory and its files.
    fn remove_dir(&self, dir: &Path) -> Result<()> {
        let remove_error = |error| Error::io("remove", dir, error);
        let Some(names) = self.repository.list(dir)? else { return Ok(()) };
        let fs = &self.repository.fs;
        names.iter().try_for_each(|name| fs.remove(&dir.join(name))).map_err(remove_error)?;
        match fs.remove_dir(dir) {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            removed => removed.map_err(remove_error),
        }
    }

    /// Removes the directory in which the store was built; the restored one too, unless it `is_finished`.
    fn remove(self, is_finished: bool) -> Result<()> {
        if self.is_renamed && !is_finished {
            self.remove_dir(&self.dir)?;
        }
        self.remove_interrupted()?;
        // `LOCK` last: nobody builds here before it is gone.
        let Self { repository, incomplete, _lock, .. } = self;
        let fs = &repository.fs;
        let lock = incomplete.join(LOCK);
        fs.remove(&lock).map_err(|error| Error::io("remove", &lock, error))?;
        drop(_lock);
        match fs.remove_dir(&incomplete) {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            removed => removed.map_err(|error| Error::io("remove", &incomplete, error)),
        }
    }
}

struct Restoring<'r, 'a> {
    place: &'r Place<'r>,
    restore: &'r Restore,
    control: &'r mut Control<'a>,
    index: &'r Index,
}

impl Restoring<'_, '_> {
    /// Steps 2 and 3.
    fn run(mut self, backup: Backup, passed_over: Vec<String>) -> Result<RestoreReport> {
        let damage = self.copy()?;
        let made = match damage.first() {
            None => self.checkpoint(&backup),
            Some(damaged) => Err(damaged.clone().into()),
        };
        let (verified, repair) = match made {
            Err(error) if self.restore.salvage && is_damage(&error) => {
                let repair = self.repair()?;
                (self.verify(&backup)?, Some(repair))
            }
            made => (made?, None),
        };
        let sievedb::VerifyReport { tables, entries, batches, .. } = verified;
        Ok(RestoreReport { backup, passed_over, tables, entries, batches, damage, repair })
    }

    fn options(&self) -> Options {
        self.restore.options.clone().fs(Arc::clone(&self.place.repository.fs))
    }

    /// Copies the files into the image. Returns the damaged ones; without salvaging the first one ends it.
    fn copy(&mut self) -> Result<Vec<DamagedFile>> {
        let (repository, image) = (self.place.repository, self.place.image());
        repository.create_dir(&image)?;
        let stored = repository.stored()?;
        self.control.begin(Stage::Copying, self.index.bytes())?;
        let mut damage = Vec::new();
        for file in &self.index.files {
            let path = image.join(&file.identity.name);
            // Created with its first part: a file that is missing in the repository is missing in the image.
            let mut copy = None;
            let damaged = repository.read_stored(&stored, file, |part| {
                if copy.is_none() {
                    copy = Some(create(repository, &path)?);
                }
                copy.as_mut().map_or(Ok(()), |write| write(Some(part)))?;
                self.control.copied(part.len() as u64)
            })?;
            copy.map_or(Ok(()), |mut write| write(None))?;
            match damaged {
                Some(damaged) if !self.restore.salvage => return Err(damaged.into()),
                damaged => damage.extend(damaged),
            }
        }
        Ok(damage)
    }

    /// Makes a store with an id of its own from the image.
    fn checkpoint(&mut self, backup: &Backup) -> Result<sievedb::VerifyReport> {
        let image = self.options().read_only().open(self.place.image())?;
        image.checkpoint(self.place.store())?;
        drop(image);
        self.verify(backup)
    }

    fn verify(&mut self, backup: &Backup) -> Result<sievedb::VerifyReport> {
        let mut watched = Ok(());
        let report = self.options().verify_with(self.place.store(), |progress| {
            let sievedb::VerifyProgress { bytes_done, bytes, .. } = progress;
            let at = self.control.at(Progress { stage: Stage::Verifying, bytes_done, bytes });
            watched = std::mem::replace(&mut watched, Ok(())).and(at);
        })?;
        watched?;
        match report.damage.is_empty() {
            true => Ok(report),
            false => Err(Error::Unsound { id: backup.id.clone(), damage: report.damage }),
        }
    }

    /// Makes a store from the readable data of the image.
    fn repair(&mut self) -> Result<RepairReport> {
        self.place.remove_dir(&self.place.incomplete.join(STORE_INCOMPLETE))?;
        self.place.remove_dir(&self.place.store())?;
        let mut watched = Ok(());
        let report = self.options().repair_with(self.place.image(), self.place.store(), |progress| {
            let (bytes_done, bytes) = (progress.keyspaces_done, progress.keyspaces);
            let at = self.control.at(Progress { stage: Stage::Salvaging, bytes_done, bytes });
            watched = std::mem::replace(&mut watched, Ok(())).and(at);
        })?;
        watched.map(|()| report)
    }
}

/// Whether salvaging may succeed.
fn is_damage(error: &Error) -> bool {
    match error {
        Error::Damaged { .. } | Error::Unsound { .. } => true,
        Error::Store(error) => error.is_corruption(),
        _ => false,
    }
}
