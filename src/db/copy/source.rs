//! The state of a store that is copied.

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
use crate::number_map::{NumberMap, NumberSet};
use crate::obsolete_files::Kept;

pub(super) struct Source {
    pub(super) dir: PathBuf,
    pub(super) fs: Arc<dyn Fs>,
    pub(super) store_id: FileId,
    pub(super) state: ManifestState,
    pub(super) unused_logs: NumberMap<u64, LogState>,
    /// End of the last log. `None`: each log ends with its file.
    pub(super) end: Option<LogPosition>,
    locked: Option<Arc<LockedDir>>,
    _kept: Option<Kept>,
}

impl Source {
    /// Returns the present state of a store open for writing, durable in its log.
    ///
    /// # Errors
    ///
    /// The durable state is unknown, because writing is disabled or cannot resume.
    pub(super) fn of_store(engine: &Engine) -> Result<Self> {
        Ok(Self::of_store_with(engine, |_| Ok(()))?.0)
    }

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
        // Read after the active log, when the previous one has ended.
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

    pub(super) fn of_view(view: &LiveView, dir: &Path) -> Result<Self> {
        let fs = view.fs();
        let missing = || Error::corruption(&FileName::Current.path(dir), 0, "CURRENT", "it is missing");
        let current = Current::read(&*fs, dir)?.ok_or_else(missing)?;
        let state = log::read(&*fs, dir, &current)?.state;
        let (dir, store_id) = (dir.to_path_buf(), current.store_id);
        let unused_logs = NumberMap::new();
        Ok(Self { dir, fs, store_id, state, unused_logs, end: None, locked: None, _kept: None })
    }

    pub(super) fn tables(&self) -> NumberSet<FileName> {
        tables(&self.state).collect()
    }

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

    /// A view has no lock, so another store may replace the directory.
    pub(super) fn is_view(&self) -> bool {
        self.locked.is_none()
    }

    /// Checks the directory, because files are linked by path.
    pub(super) fn check_in_place(&self) -> Result<()> {
        let check = self.locked.as_ref().map_or(Ok(()), |locked| locked.check());
        check.map_err(|error| Error::io("look at", &self.dir, error))
    }
}

fn tables(state: &ManifestState) -> impl Iterator<Item = FileName> {
    let places = state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    places.flat_map(TablePlace::files)
}
