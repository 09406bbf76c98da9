//! A new generation, the steps that prepare it: an optional log and a manifest with the whole state, both durable.
//!
//! 1. The log is created; its header and the directory are synced ([`Draft::create_log`]).
//! 2. The state is edited: tables that were written meanwhile, the logs that are kept and their ends
//!    ([`Draft::keep_logs`]), and last the new log and the number below which no log is needed
//!    ([`Draft::name_log`]). Tables and their directory are synced before the state describes them.
//! 3. The manifest is written and synced, and the directory, and the replacement of `CURRENT`
//!    ([`ManifestLog::prepare`]).
//!
//! Until `CURRENT` names the manifest, no manifest names these files, and the generation before is complete. So a crash
//! in any of the steps loses nothing: the next opening removes the files as strays. A failure makes them obsolete at
//! once; on a full disk the next attempt needs their space.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::state::files::{StoreFiles, random_id};
use crate::db::state::keyspace::change::TreeChange;
use crate::db::state::log::Log;
use crate::db::state::next_log::NewLog;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::key::SeqNo;
use crate::manifest::edit::{EditItem, VersionEdit};
use crate::manifest::log::{ManifestLog, NewManifest};
use crate::manifest::state::ManifestState;

/// A generation that is being written.
pub(in crate::db) struct Draft {
    /// What its manifest will describe.
    state: ManifestState,
    /// The logs of the generation before.
    known_logs: Vec<u64>,
    log: Option<NewLog>,
    /// The memtables as tables, oldest first in each tree. They become visible with the generation.
    changes: Vec<TreeChange>,
    /// The other files.
    files: Vec<FileName>,
}

/// A generation that is complete and durable, but not in force.
pub(in crate::db) struct NewGeneration {
    pub(super) manifest: NewManifest,
    pub(super) log: Option<NewLog>,
    pub(super) changes: Vec<TreeChange>,
    pub(super) files: Vec<FileName>,
    /// Logs that it does not name any more.
    pub(super) old_logs: Vec<u64>,
}

impl Engine {
    /// Prepares a generation: `write` makes everything in memory durable, and describes it.
    ///
    /// # Errors
    ///
    /// Nothing has changed. The new files are obsolete.
    pub(in crate::db) fn prepare(
        &self,
        state: ManifestState,
        write: impl FnOnce(&mut Draft) -> Result<()>,
    ) -> Result<NewGeneration> {
        let known_logs = state.logs.keys().copied().collect();
        let mut draft = Draft { state, known_logs, log: None, changes: Vec::new(), files: Vec::new() };
        match write(&mut draft).and_then(|()| draft.write_manifest(&self.files)) {
            Ok(manifest) => {
                let Draft { mut known_logs, log, changes, files, .. } = draft;
                known_logs.retain(|number| !manifest.state().logs.contains_key(number));
                Ok(NewGeneration { manifest, log, changes, files, old_logs: known_logs })
            }
            Err(error) => {
                draft.changes.iter().for_each(TreeChange::set_added_obsolete);
                draft.files.into_iter().for_each(|name| self.files.obsolete.add(name));
                Err(error)
            }
        }
    }
}

impl Draft {
    /// Creates the log. It belongs to the generation once it is named.
    pub(in crate::db) fn create_log(&mut self, files: &StoreFiles) -> Result<NewLog> {
        let log = create_log(files)?;
        self.files.push(FileName::Log(log.number));
        Ok(log)
    }

    /// Describes tables that become visible with the generation. They are synced, and so is the directory before the
    /// manifest is written.
    pub(super) fn add(&mut self, change: TreeChange) -> Result<()> {
        let items = change.items();
        self.changes.push(change);
        self.describe(items)
    }

    /// Describes tables that are in use already.
    pub(in crate::db) fn add_visible(&mut self, change: TreeChange) -> Result<()> {
        self.files.extend(change.added.iter().map(|(_, _, table)| FileName::Table(table.meta.number)));
        self.describe(change.items())?;
        change.install();
        Ok(())
    }

    /// Keeps the logs from `oldest` to `last`, the last that was used, and describes the end of that, unless the
    /// state has it. If it has no end, nothing of it is needed. Later logs were never used.
    pub(in crate::db) fn keep_logs(&mut self, oldest: u64, last: u64, end: Option<EditItem>) -> Result<()> {
        self.state.logs.retain(|&number, log| {
            let is_used = number < last || number == last && (log.end.is_some() || end.is_some());
            is_used && number >= oldest
        });
        let lacks_end = self.state.logs.get(&last).is_some_and(|log| log.end.is_none());
        self.describe(end.into_iter().filter(|_| lacks_end).collect())
    }

    /// Keeps no log: everything is in tables, or in the new log.
    pub(in crate::db) fn keep_no_logs(&mut self) {
        self.state.logs.clear();
    }

    /// Describes the new log, after the logs that are kept.
    pub(in crate::db) fn name_log(&mut self, log: NewLog, last_seqno: SeqNo) -> Result<()> {
        let newest = self.state.logs.keys().next_back().or(self.known_logs.last());
        let created = log_created(&log, newest.copied().unwrap_or(0));
        let floor = self.state.logs.keys().next().copied().unwrap_or(log.number);
        self.log = Some(log);
        self.describe(vec![EditItem::LastSeqno(last_seqno), EditItem::LogFloor(floor), created])
    }

    pub(super) fn describe(&mut self, items: Vec<EditItem>) -> Result<()> {
        self.state.apply(&VersionEdit::new(items)).map_err(Error::invalid)
    }

    fn write_manifest(&mut self, files: &StoreFiles) -> Result<NewManifest> {
        let number = files.new_number();
        self.files.push(FileName::Manifest(number));
        let mut state = std::mem::take(&mut self.state);
        state.next_file = files.next_number();
        ManifestLog::prepare(Arc::clone(&files.fs), &files.dir, files.store_id, number, state, &random_id)
    }
}

impl NewGeneration {
    /// Takes the log, for an engine that has none yet.
    pub(in crate::db) fn take_log(&mut self) -> Option<Log> {
        let NewLog { number, writer, .. } = self.log.take()?;
        Some(Log::new(number, writer, older_logs(self.manifest.state(), number)))
    }
}

/// Creates a log that no manifest names, synced, and syncs the directory.
pub(super) fn create_log(files: &StoreFiles) -> Result<NewLog> {
    let number = files.new_number();
    let (writer, file_id) = files.create_log(number)?;
    Ok(NewLog { number, file_id, writer })
}

pub(super) fn log_created(log: &NewLog, predecessor: u64) -> EditItem {
    EditItem::LogCreated { number: log.number, file_id: log.file_id, predecessor }
}

/// The lengths of the logs before this one, 0 if a power loss came before the edit that describes the end.
pub(in crate::db) fn older_logs(state: &ManifestState, number: u64) -> BTreeMap<u64, u64> {
    let older = state.logs.range(..number);
    older.map(|(&number, log)| (number, log.end.map_or(0, |end| end.len))).collect()
}
