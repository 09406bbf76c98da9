//! The moment of a store that is copied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checksum::FileId;
use crate::db::engine::Engine;
use crate::db::open::live_view::LiveView;
use crate::db::state::log::LogPosition;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::fs::{Fs, LockedDir};
use crate::manifest::current::Current;
use crate::manifest::edit::EditItem;
use crate::manifest::log::{self, ManifestLog};
use crate::manifest::state::{LogState, ManifestState, TablePlace};
use crate::obsolete_files::Kept;

/// A state of the manifest, and how far the logs count.
pub(super) struct Source {
    pub(super) dir: PathBuf,
    /// For reading its files as they were.
    pub(super) fs: Arc<dyn Fs>,
    pub(super) store_id: FileId,
    pub(super) state: ManifestState,
    /// The logs of the state that were created and not used, if these are known.
    pub(super) unused_logs: BTreeMap<u64, LogState>,
    /// The last log, and where it ends. `None`: each log ends where its file does.
    pub(super) end: Option<LogPosition>,
    /// The directory of a store that is open for writing.
    locked: Option<Arc<LockedDir>>,
    _kept: Option<Kept>,
}

impl Source {
    /// The present moment of a store that is open for writing. Its log is durable up to there.
    ///
    /// # Errors
    ///
    /// The error of writing, if it is disabled, or suspended and cannot be resumed: the durable state is unknown.
    pub(super) fn of_store(engine: &Engine) -> Result<Self> {
        Ok(Self::of_store_with(engine, |_| Ok(()))?.0)
    }

    /// The same, and what `look` finds while the manifest is locked.
    ///
    /// # Errors
    ///
    /// Those of [`Source::of_store`], and of `look`.
    pub(super) fn of_store_with<T>(
        engine: &Engine,
        look: impl FnOnce(&ManifestLog) -> Result<T>,
    ) -> Result<(Self, T)> {
        engine.check_writable()?;
        engine.resume_first()?;
        let manifest = engine.manifest.lock();
        engine.lifecycle.check_not_failed()?;
        engine.lifecycle.suspended_by().map_or(Ok(()), Err)?;
        let in_force = manifest.as_ref().ok_or(Error::Closed)?;
        let (mut state, found) = (in_force.state().clone(), look(in_force)?);
        let end = engine.log().end();
        // Read after the active log: the one before it has ended then.
        if let Some(EditItem::LogEnded { number, end }) = engine.next_log.ended()
            && let Some(log) = state.logs.get_mut(&number)
        {
            log.end.get_or_insert(end);
        }
        let logs = state.logs.keys().map(|&number| FileName::Log(number));
        let manifest_name = FileName::Manifest(in_force.number());
        let kept = engine.files.obsolete.keep(logs.chain([manifest_name]).chain(tables(&state)).collect());
        let unused_logs = state.logs.split_off(&(end.number + 1));
        drop(manifest);
        if !engine.log().is_durable(end)? {
            engine.wait_durable(end)?;
        }
        let (dir, fs) = (engine.files.dir.clone(), Arc::clone(&engine.files.fs));
        let locked = Some(Arc::clone(engine.files.locked()));
        let store_id = engine.files.store_id;
        let (end, _kept) = (Some(end), Some(kept));
        let source = Self { dir, fs, store_id, state, unused_logs, end, locked, _kept };
        source.check_in_place()?;
        Ok((source, found))
    }

    /// The moment of a live view of the store in `dir`.
    pub(super) fn of_view(view: &LiveView, dir: &Path) -> Result<Self> {
        let fs = view.fs();
        let missing = || Error::corruption(&FileName::Current.path(dir), 0, "CURRENT", "it is missing");
        let current = Current::read(&*fs, dir)?.ok_or_else(missing)?;
        let state = log::read(&*fs, dir, &current)?.state;
        let (dir, store_id) = (dir.to_path_buf(), current.store_id);
        let unused_logs = BTreeMap::new();
        Ok(Self { dir, fs, store_id, state, unused_logs, end: None, locked: None, _kept: None })
    }

    /// The files of tables and filters.
    pub(super) fn tables(&self) -> BTreeSet<FileName> {
        tables(&self.state).collect()
    }

    /// The id that a file has in its header, if the state names it: of a table or a log.
    pub(super) fn file_id(&self, name: FileName) -> Option<FileId> {
        match name {
            FileName::Table(number) => {
                let mut keyspaces = self.state.keyspaces.values();
                keyspaces.find_map(|keyspace| keyspace.tables.get(&number)).map(|place| place.meta.file_id)
            }
            FileName::Log(number) => self.state.logs.get(&number).map(|log| log.file_id),
            _ => None,
        }
    }

    /// Whether another store may take the place of the directory without an error: it is not locked.
    pub(super) fn is_view(&self) -> bool {
        self.locked.is_none()
    }

    /// Checks that the directory of a store that is open for writing is still the one that was locked: files are linked by
    /// their paths.
    pub(super) fn check_in_place(&self) -> Result<()> {
        let check = self.locked.as_ref().map_or(Ok(()), |locked| locked.check());
        check.map_err(|error| Error::io("look at", &self.dir, error))
    }
}

fn tables(state: &ManifestState) -> impl Iterator<Item = FileName> {
    let places = state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    places.flat_map(TablePlace::files)
}
