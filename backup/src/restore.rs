//! Restores a backup.
//!
//! 1. `NAME.restore-incomplete` is created next to `NAME`, locked, and cleared.
//! 2. The files are copied into `image/`, verified and synced: the store as after a `kill -9` at the time of the
//!    backup.
//! 3. `store/`, a checkpoint of `image/` that shares its tables and has a new id, is made and verified.
//! 4. `image/` is removed, `store/` is renamed to `NAME`, and the parent is synced.
//!
//! If step 2 or 3 finds damage, salvaging makes `store/` by repairing `image/`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sievedb::fs::{LockGuard, LockKind};
use sievedb::{Options, RepairReport};

use crate::control::{Control, Progress, Stage};
use crate::error::{Error, Result};
use crate::index::Index;
use crate::repository::{Backup, Repository, hex, is_of_store};
use crate::stored::{DamagedFile, create};

const INCOMPLETE_END: &str = ".restore-incomplete";
const IMAGE: &str = "image";
const STORE: &str = "store";
/// The name of `store` until its checkpoint is complete.
const STORE_INCOMPLETE: &str = "store.checkpoint-incomplete";
const LOCK: &str = "LOCK";

const IDS_SHOWN: usize = 5;

/// Options of [`Repository::restore`].
#[derive(Debug, Clone, Default)]
pub struct Restore {
    at: Option<String>,
    store: Option<String>,
    salvage: bool,
    options: Options,
}

/// The result of [`Repository::restore`].
#[derive(Debug)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The backup.
    pub backup: Backup,
    /// Newer incomplete backups and damaged indexes. Empty if a backup was named.
    pub passed_over: Vec<String>,
    /// Tables in the restored store.
    pub tables: u64,
    /// Their entries, including old versions and tombstones.
    pub entries: u64,
    /// Batches in its logs.
    pub batches: u64,
    /// Damaged files of the backup. Empty unless [`Restore::salvage`] was chosen.
    pub damage: Vec<DamagedFile>,
    /// The losses, if the store was repaired. If a log in [`RestoreReport::damage`] is damaged at its end, its lost writes
    /// may be missing here.
    pub repair: Option<RepairReport>,
}

impl Restore {
    /// Restores the newest complete backup, which must be sound.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Restores the backup whose id begins with this string.
    #[must_use]
    pub fn at(mut self, id: impl Into<String>) -> Self {
        self.at = Some(id.into());
        self
    }

    /// Restores the newest complete backup of the store whose id begins with these hex digits, unless [`Restore::at`] is set.
    #[must_use]
    pub fn store(mut self, id: impl Into<String>) -> Self {
        self.store = Some(id.into());
        self
    }

    /// Restores the readable data of a damaged backup, by [`Options::repair`]. If no backup is complete, restores the
    /// newest one.
    #[must_use]
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// Options for verifying and repairing, such as the memory budget.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }
}

impl Repository {
    /// Restores a backup to the new directory `dir`: a store with its own id. Verifies the checksums of all files, then the
    /// restored store.
    ///
    /// `dir` appears when the store is complete, verified and durable. After a failure, nothing is left; but if only the
    /// removal of `NAME.restore-incomplete` next to `dir` failed, the store is complete. After a crash, the next restore to
    /// `dir` removes that directory.
    ///
    /// # Errors
    ///
    /// [`Error::NoBackup`]; [`Error::Ambiguous`] if the repository has backups of several stores and none was chosen, or if
    /// several ids match; [`Error::Io`], with the kind `AlreadyExists` if `dir` exists; [`Error::Damaged`] with file and
    /// offset; [`Error::Unsound`] if the store was damaged before its backup; [`Error::InvalidArgument`], [`Error::Locked`],
    /// [`Error::OtherFiles`], [`Error::Cancelled`], [`Error::Store`].
    pub fn restore(
        &self,
        dir: impl AsRef<Path>,
        restore: &Restore,
        control: &mut Control<'_>,
    ) -> Result<RestoreReport> {
        control.begin_call();
        let (backup, index, passed_over) = self.choose(restore)?;
        let mut place = Place::create(self, dir.as_ref())?;
        let report = Restoring { place: &place, restore, control, index: &index }.run(backup, passed_over);
        let finished = report.and_then(|report| place.finish().map(|()| report));
        let removed = place.remove(finished.is_ok());
        finished.and_then(|report| removed.map(|()| report))
    }

    /// Also describes the newer backups that were passed over.
    fn choose(&self, restore: &Restore) -> Result<(Backup, Index, Vec<String>)> {
        if [&restore.at, &restore.store].into_iter().flatten().any(String::is_empty) {
            return Err(Error::InvalidArgument { what: "the beginning of an id is not empty".into() });
        }
        if let Some(at) = &restore.at {
            let id = self.named(at)?;
            let index = self.read_index(&id)?;
            let backup = self.describe(&id, &index, &self.stored()?, &mut BTreeMap::new())?;
            return Ok((backup, index, Vec::new()));
        }
        let mut found = self.backups()?;
        // An index that could not be read may be intact, and the newest.
        if let Some(at) = found.unreadable.iter().position(|error| matches!(error, Error::Io { .. })) {
            return Err(found.unreadable.swap_remove(at));
        }
        if let Some(store) = &restore.store {
            found.backups.retain(|backup| hex(&backup.store_id).starts_with(store));
            if found.backups.is_empty() {
                return Err(self.no_backup(format!("none is of a store whose id begins with {store}")));
            }
        }
        self.check_one_store(&found.backups)?;
        if restore.store.is_none() {
            self.check_unreadable_are_of(&found.backups)?;
        }
        let unreadable = || found.unreadable.iter().map(ToString::to_string).collect();
        let mut passed_over: Vec<String> = unreadable();
        let newest = found.backups.first().filter(|_| restore.salvage).cloned();
        for backup in found.backups {
            if backup.missing == 0 {
                let index = self.read_index(&backup.id)?;
                return Ok((backup, index, passed_over));
            }
            let files = if backup.missing == 1 { "file" } else { "files" };
            passed_over.push(format!("{} lacks {} {files}", backup.id, backup.missing));
        }
        if let Some(backup) = newest {
            let index = self.read_index(&backup.id)?;
            return Ok((backup, index, unreadable()));
        }
        match found.unreadable.into_iter().next() {
            Some(error) if passed_over.len() == 1 => Err(error),
            _ if passed_over.is_empty() => Err(self.no_backup("there is none".into())),
            _ => {
                let all = passed_over.join("; ");
                Err(self.no_backup(format!("{all}; salvaging restores the readable data of the newest")))
            }
        }
    }

    /// Fails if an unreadable index is of another store, according to its backup's id.
    fn check_unreadable_are_of(&self, backups: &[Backup]) -> Result<()> {
        let Some(Backup { store_id, .. }) = backups.first() else { return Ok(()) };
        let is_readable = |id: &String| backups.iter().any(|backup| backup.id == *id);
        let other = self.ids()?.into_iter().find(|id| !is_readable(id) && !is_of_store(id, store_id));
        other.map_or(Ok(()), |id| {
            Err(self.no_backup(format!(
                "the index of {id}, a backup of another store, cannot be read; choose a store or a backup"
            )))
        })
    }

    fn no_backup(&self, detail: String) -> Error {
        Error::NoBackup { dir: self.dir.clone(), detail }
    }

    fn named(&self, at: &str) -> Result<String> {
        let mut ids: Vec<String> = self.ids()?.into_iter().filter(|id| id.starts_with(at)).collect();
        if ids.len() < 2 || ids[0] == at {
            let none = || self.no_backup(format!("none has an id that begins with {at}"));
            return ids.into_iter().next().ok_or_else(none);
        }
        let more = ids.len().saturating_sub(IDS_SHOWN);
        ids.drain(..more);
        ids.reverse();
        let more = if more > 0 { format!(" and {more} older ones") } else { String::new() };
        Err(Error::Ambiguous { detail: format!("several ids begin with {at}: {}{more}", ids.join(", ")) })
    }

    fn check_one_store(&self, backups: &[Backup]) -> Result<()> {
        let mut newest: Vec<&Backup> = Vec::new();
        for backup in backups {
            if newest.iter().all(|other| other.store_id != backup.store_id) {
                newest.push(backup);
            }
        }
        if newest.len() < 2 {
            return Ok(());
        }
        let stores = newest.iter().map(|Backup { id, store_id, .. }| {
            let store = hex(&store_id[..4]);
            format!("store {store} with the newest backup {id}")
        });
        let stores = stores.collect::<Vec<_>>().join(", ");
        let (dir, count) = (self.dir.display(), newest.len());
        Err(Error::Ambiguous { detail: format!("{dir} has backups of {count} stores: {stores}") })
    }
}

/// The restored store's directory, and the one in which it is built.
struct Place<'r> {
    repository: &'r Repository,
    dir: PathBuf,
    incomplete: PathBuf,
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
            _ => {
                let why = "it exists; a store is restored to a new directory";
                return Err(Error::io("create", dir, std::io::Error::new(ErrorKind::AlreadyExists, why)));
            }
        }
        name.push(INCOMPLETE_END);
        let incomplete = dir.with_file_name(name);
        repository.create_dir(&incomplete)?;
        let lock = incomplete.join(LOCK);
        let locked = check_names(repository, &incomplete).and_then(|()| {
            fs.lock(&lock, LockKind::Exclusive).map_err(|error| match error.kind() {
                ErrorKind::WouldBlock => Error::Locked { dir: incomplete.clone() },
                _ => Error::io("lock", &lock, error),
            })
        });
        // Removes the directory only if it is empty.
        let guard = locked.inspect_err(|_| drop(fs.remove_dir(&incomplete)))?;
        let dir = dir.to_path_buf();
        let place = Self { repository, dir, incomplete, is_renamed: false, _lock: guard };
        match place.remove_interrupted() {
            Ok(()) => Ok(place),
            Err(error) => {
                let _ = place.remove_lock();
                Err(error)
            }
        }
    }

    fn image(&self) -> PathBuf {
        self.incomplete.join(IMAGE)
    }

    fn store(&self) -> PathBuf {
        self.incomplete.join(STORE)
    }

    /// Step 4.
    fn finish(&mut self) -> Result<()> {
        // Removed before the rename: a later crash leaves nothing large.
        self.remove_dir(&self.image())?;
        self.repository.rename(&self.store(), &self.dir)?;
        self.is_renamed = true;
        let parent = self.dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.repository.sync_dir(parent.unwrap_or(Path::new(".")))
    }

    fn remove_interrupted(&self) -> Result<()> {
        check_names(self.repository, &self.incomplete)?;
        [IMAGE, STORE, STORE_INCOMPLETE]
            .iter()
            .try_for_each(|name| self.remove_dir(&self.incomplete.join(name)))
    }

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

    /// Removes the building directory; unless it `is_finished`, also the restored one.
    fn remove(self, is_finished: bool) -> Result<()> {
        if self.is_renamed && !is_finished {
            self.remove_dir(&self.dir)?;
        }
        self.remove_interrupted()?;
        self.remove_lock()
    }

    /// `LOCK` must be the last file, because it keeps other processes out.
    fn remove_lock(self) -> Result<()> {
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

/// Refuses files of other programs.
fn check_names(repository: &Repository, dir: &Path) -> Result<()> {
    let known = [IMAGE, STORE, STORE_INCOMPLETE, LOCK];
    let names = repository.list(dir)?.unwrap_or_default();
    match names.into_iter().find(|name| !known.contains(&name.as_str())) {
        Some(found) => Err(Error::OtherFiles { dir: dir.to_path_buf(), found }),
        None => Ok(()),
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

    /// Returns the damaged files; unless salvaging, the first one is an error.
    fn copy(&mut self) -> Result<Vec<DamagedFile>> {
        let (repository, image) = (self.place.repository, self.place.image());
        repository.create_dir(&image)?;
        let stored = repository.stored()?;
        self.control.begin(Stage::Copying, self.index.bytes())?;
        let mut damage = Vec::new();
        for file in &self.index.files {
            let path = image.join(&file.identity.name);
            // A missing file is missing in the image too.
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

    fn checkpoint(&mut self, backup: &Backup) -> Result<sievedb::VerifyReport> {
        let image = self.options().read_only().open(self.place.image())?;
        image.checkpoint(self.place.store())?;
        drop(image);
        self.verify(backup)
    }

    fn verify(&mut self, backup: &Backup) -> Result<sievedb::VerifyReport> {
        let report = self.options().verify_with(self.place.store(), |progress| {
            let sievedb::VerifyProgress { bytes_done, bytes, .. } = progress;
            self.control.flow(Progress { stage: Stage::Verifying, bytes_done, bytes })
        })?;
        match report.damage.is_empty() {
            true => Ok(report),
            false => Err(Error::Unsound { id: backup.id.clone(), damage: report.damage }),
        }
    }

    fn repair(&mut self) -> Result<RepairReport> {
        self.place.remove_dir(&self.place.incomplete.join(STORE_INCOMPLETE))?;
        self.place.remove_dir(&self.place.store())?;
        let report = self.options().repair_with(self.place.image(), self.place.store(), |progress| {
            let (bytes_done, bytes) = (progress.keyspaces_done, progress.keyspaces);
            self.control.flow(Progress { stage: Stage::Salvaging, bytes_done, bytes })
        });
        Ok(report?)
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
