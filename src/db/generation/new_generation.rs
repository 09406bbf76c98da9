//! A new generation of files: a manifest with the whole state, usually with a new log.
//!
//! Four flows share these steps: opening, the first change of a closed store ([`begin`](super::begin)), resuming
//! ([`resume`](super::resume)), and replacing a long manifest ([`apply_edit`](super::apply_edit)), which keeps the
//! active log. [`next_log`](super::next_log) uses the same functions with an edit.
//!
//! | step | durable before the next |
//! |---|---|
//! | 1 [`Draft::create_log`] | the log's header, its name in the directory |
//! | 2 the state is edited: new tables, kept logs and their ends, the new log | tables and their names; kept logs up to their ends; batches copied into the new log |
//! | 3 the manifest is written ([`Engine::prepare`]) | the manifest, its name, `CURRENT.new` |
//! | 4 `CURRENT` is renamed ([`Engine::install`]) | the directory: the generation is in force |
//! | 5 manifest, mark and trees are replaced in memory | |
//! | 6 the log takes batches after its first promise ([`Engine::activate`]) | |
//! | 7 old files are obsolete ([`Engine::clean_up`]); the caller removes them | |
//!
//! # Crashes and failures
//!
//! - Steps 1 to 3: the previous generation is complete. A crash leaves unused files; a failure makes the new files
//!   obsolete at once.
//! - Step 4: `CURRENT` may name either manifest; both are complete. All files are kept, and the new ones are in doubt
//!   ([`InDoubt`](crate::db::state::lifecycle::InDoubt)) until a later generation is in force.
//! - Between steps 4 and 6 the new log may have no record and counts as unused. Nothing is lost: batches follow the
//!   promise; earlier batches are in tables, kept logs or the new log.
//! - After step 5 no file in force names the obsolete files.
//!
//! Steps 4 and 5, and comparisons of `CURRENT` with the state in memory, hold the lock of the manifest.

use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::queues::retry::Work;
use crate::db::state::files::{StoreFiles, random_id};
use crate::db::state::keyspace::change::TreeChange;
use crate::db::state::log::{Log, LogPosition};
use crate::db::state::next_log::NewLog;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::key::SeqNo;
use crate::manifest::edit::{EditItem, VersionEdit};
use crate::manifest::log::{ManifestLog, NewManifest};
use crate::manifest::state::ManifestState;
use crate::number_map::NumberMap;
use crate::sync::lock;

pub(in crate::db) struct Draft {
    state: ManifestState,
    known_logs: Vec<u64>,
    log: Option<NewLog>,
    /// Memtables written to tables, oldest first per tree. They become visible with the generation.
    changes: Vec<TreeChange>,
    files: Vec<FileName>,
}

pub(in crate::db) struct NewGeneration {
    manifest: NewManifest,
    draft: Draft,
}

impl Draft {
    /// The log becomes part of the generation when it is named.
    pub(in crate::db) fn create_log(&mut self, files: &StoreFiles) -> Result<NewLog> {
        let log = create_log(files)?;
        self.files.push(FileName::Log(log.number));
        Ok(log)
    }

    pub(in crate::db) fn name_log(&mut self, log: NewLog, last_seqno: SeqNo) -> Result<()> {
        let newest = self.state.logs.keys().next_back().or(self.known_logs.last());
        let created = log_created(&log, newest.copied().unwrap_or(0));
        let floor = self.state.logs.keys().next().copied().unwrap_or(log.number);
        self.log = Some(log);
        self.describe(vec![EditItem::LastSeqno(last_seqno), EditItem::LogFloor(floor), created])
    }

    /// Keeps the logs from `oldest` to `last`, the last used one. If `last` has no stated end, states `end`; without an
    /// `end`, drops `last`.
    pub(in crate::db) fn keep_logs(&mut self, oldest: u64, last: u64, end: Option<EditItem>) -> Result<()> {
        self.state.logs.retain(|&number, log| {
            let is_used = number < last || number == last && (log.end.is_some() || end.is_some());
            is_used && number >= oldest
        });
        let lacks_end = self.state.logs.get(&last).is_some_and(|log| log.end.is_none());
        self.describe(end.into_iter().filter(|_| lacks_end).collect())
    }

    pub(in crate::db) fn keep_no_logs(&mut self) {
        self.state.logs = NumberMap::new();
    }

    pub(super) fn add(&mut self, change: TreeChange) -> Result<()> {
        change.check_runs()?;
        let items = change.items();
        self.changes.push(change);
        self.describe(items)
    }

    pub(in crate::db) fn add_visible(&mut self, change: TreeChange) -> Result<()> {
        self.files.extend(change.added.iter().map(|(_, _, table)| FileName::Table(table.meta.number)));
        change.check_runs()?;
        self.describe(change.items())?;
        change.install();
        Ok(())
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
    pub(in crate::db) fn take_log(&mut self) -> Option<Log> {
        let NewLog { number, writer, .. } = self.draft.log.take()?;
        Some(Log::new(number, writer, older_logs(self.manifest.state(), number)))
    }
}

impl Engine {
    /// Steps 1 to 3. `write` makes all memory durable and adds it to the draft.
    ///
    /// # Errors
    ///
    /// The new files are obsolete; nothing else has changed.
    pub(in crate::db) fn prepare(
        &self,
        state: ManifestState,
        write: impl FnOnce(&mut Draft) -> Result<()>,
    ) -> Result<NewGeneration> {
        let known_logs = state.logs.keys().copied().collect();
        let mut draft = Draft { state, known_logs, log: None, changes: Vec::new(), files: Vec::new() };
        let boundaries = |draft: &mut Draft| {
            let visible = self.sequence.visible();
            let mut missing = self.missing_boundaries(&draft.state, visible);
            if !missing.is_empty() {
                missing.push(EditItem::LastSeqno(visible));
            }
            draft.describe(missing)
        };
        let written = write(&mut draft).and_then(|()| boundaries(&mut draft));
        match written.and_then(|()| draft.write_manifest(&self.files)) {
            Ok(manifest) => Ok(NewGeneration { manifest, draft }),
            Err(error) => {
                draft.changes.iter().for_each(TreeChange::set_added_obsolete);
                draft.files.into_iter().for_each(|name| self.files.obsolete.add(name));
                Err(error)
            }
        }
    }

    /// Steps 4 to 7. Must not run concurrently with edits. The inner result belongs to the first promise.
    ///
    /// # Errors
    ///
    /// It is unknown which manifest is in force.
    pub(in crate::db) fn put_in_force(&self, mut new: NewGeneration) -> Result<Result<()>> {
        let log = new.draft.log.take();
        let old = self.install(new, &mut self.manifest.lock())?;
        let activated = self.activate(log);
        self.clean_up(old);
        self.completions.complete(LogPosition { number: self.log().active(), offset: 0 }, &Ok(()));
        self.retry.done(Work::BeginLog);
        self.retry.done(Work::PrepareLog);
        Ok(activated)
    }

    /// Steps 4 and 5. `current` is the locked manifest. Returns the obsolete files.
    ///
    /// # Errors
    ///
    /// It is unknown which manifest is in force.
    pub(super) fn install(
        &self,
        new: NewGeneration,
        current: &mut Option<ManifestLog>,
    ) -> Result<Vec<FileName>> {
        let Draft { mut known_logs, changes, files, .. } = new.draft;
        let manifest = new.manifest.install().inspect_err(|_| self.lifecycle.keep_files(&changes, files))?;
        self.manifest.set_mark(manifest.state().mark);
        self.disk_space.set_sizes(manifest.state().table_bytes, manifest.len());
        known_logs.retain(|number| !manifest.state().logs.contains_key(number));
        let before = current.replace(manifest).map(|before| FileName::Manifest(before.number()));
        changes.into_iter().for_each(TreeChange::install);
        self.retry.done(Work::ReplaceManifest);
        Ok(known_logs.into_iter().map(FileName::Log).chain(before).collect())
    }

    /// Step 6. Activates `log`, if any; appends the first promise.
    ///
    /// # Errors
    ///
    /// The log accepts no appends.
    pub(super) fn activate(&self, log: Option<NewLog>) -> Result<()> {
        let mark = self.manifest.mark();
        match log {
            Some(NewLog { number, writer, .. }) => self.log().activate(number, writer, mark),
            None => self.log().begin(mark),
        }
    }

    /// Step 7. No file remains in doubt.
    pub(super) fn clean_up(&self, old: Vec<FileName>) {
        let in_doubt = std::mem::take(&mut lock(&self.lifecycle.suspension).in_doubt);
        self.log().forget(&old);
        old.into_iter().chain(in_doubt.files).for_each(|name| self.files.obsolete.add(name));
    }
}

pub(super) fn create_log(files: &StoreFiles) -> Result<NewLog> {
    let number = files.new_number();
    let (writer, file_id) = files.create_log(number)?;
    Ok(NewLog { number, file_id, writer })
}

pub(super) fn log_created(log: &NewLog, predecessor: u64) -> EditItem {
    EditItem::LogCreated { number: log.number, file_id: log.file_id, predecessor }
}

/// Lengths of the logs before `number`; 0 if a power loss preceded the edit with the end.
pub(in crate::db) fn older_logs(state: &ManifestState, number: u64) -> NumberMap<u64, u64> {
    let older = state.logs.range(..number);
    older.map(|(&number, log)| (number, log.end.map_or(0, |end| end.len))).collect()
}
