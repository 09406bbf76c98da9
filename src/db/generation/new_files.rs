//! A new log and a new manifest with the whole state, and putting them in force.

use std::collections::HashSet;
use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::queues::retry::Work;
use crate::db::state::files::random_id;
use crate::db::state::keyspace::change::TreeChange;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::manifest::edit::{EditItem, VersionEdit};
use crate::manifest::log::{ManifestLog, NewManifest};
use crate::manifest::state::ManifestState;
use crate::sync::lock;
use crate::wal::FramedWriter;

/// What an attempt to resume has written.
#[derive(Default)]
struct NewFiles {
    /// The memtables as tables, oldest first in each tree.
    changes: Vec<TreeChange>,
    /// Log and manifest.
    names: Vec<FileName>,
}

/// A state that is complete and durable, but not in force.
struct Prepared {
    manifest: NewManifest,
    log_number: u64,
    log: FramedWriter,
    /// Logs that it does not name any more.
    old_logs: Vec<u64>,
}

/// What becomes of the memtables when writing resumes.
#[derive(Clone, Copy)]
pub(in crate::db) enum Memory {
    /// They are written into tables.
    Flushed,
    /// They stay, and so do the logs: the disk is full, or the store was just opened.
    Kept,
}

impl Engine {
    /// Goes on in a new log and a new manifest, which is in force then. The result in the result is that of the
    /// log's first promise. No edit is published meanwhile.
    ///
    /// # Errors
    ///
    /// The old manifest is in force, or it is unknown which.
    pub(super) fn move_to_new_files(&self, memory: Memory) -> Result<Result<()>> {
        let (state, old_manifest) = {
            let guard = self.manifest.lock();
            let manifest = guard.as_ref().ok_or(Error::Closed)?;
            (manifest.known_state()?, manifest.number())
        };
        let mut new = NewFiles::default();
        let prepared = match self.write_new_files(state, memory, &mut new) {
            Ok(prepared) => prepared,
            Err(error) => {
                new.changes.iter().for_each(TreeChange::set_added_obsolete);
                new.names.into_iter().for_each(|name| self.files.obsolete.add(name));
                return Err(error);
            }
        };
        let Prepared { manifest, log_number, log, old_logs } = prepared;
        let mark = {
            // Whoever compares `CURRENT` with what is in memory holds this lock.
            let mut guard = self.manifest.lock();
            let manifest = manifest
                .install()
                .inspect_err(|_| self.lifecycle.keep_files(&new.changes, std::mem::take(&mut new.names)))?;
            let mark = manifest.state().mark;
            self.manifest.set_mark(mark);
            *guard = Some(manifest);
            new.changes.into_iter().for_each(TreeChange::install);
            mark
        };
        let activated = self.log().activate(log_number, log, mark);
        // Nothing is in doubt any more.
        let in_doubt = std::mem::take(&mut lock(&self.lifecycle.suspension).in_doubt);
        self.log().forget(&old_logs);
        let logs = old_logs.into_iter().map(FileName::Log);
        for name in logs.chain([FileName::Manifest(old_manifest)]).chain(in_doubt.files) {
            self.files.obsolete.add(name);
        }
        drop(in_doubt.tables);
        // What the old logs held is in tables, or is durable in a log that was cut.
        self.completions.complete(LogPosition { number: log_number, offset: 0 }, &Ok(()));
        self.retry.done(Work::BeginLog);
        self.retry.done(Work::PrepareLog);
        Ok(activated)
    }

    /// Makes what is in memory durable, and writes a log and a manifest that names all of it.
    fn write_new_files(
        &self,
        mut state: ManifestState,
        memory: Memory,
        new: &mut NewFiles,
    ) -> Result<Prepared> {
        let known: Vec<u64> = state.logs.keys().copied().collect();
        let newest = known.last().copied().unwrap_or(0);
        match memory {
            Memory::Flushed => self.flush_memory(&mut state, new)?,
            Memory::Kept => {
                apply(&mut state, self.next_log.ended().into_iter().collect())?;
                self.cut_log(&mut state)?;
            }
        }
        let predecessor = state.logs.keys().next_back().copied().unwrap_or(newest);
        let log_number = self.files.new_number();
        let (log, file_id) = self.files.create_log(log_number)?;
        new.names.push(FileName::Log(log_number));
        let created = EditItem::LogCreated { number: log_number, file_id, predecessor };
        let floor = state.logs.keys().next().copied().unwrap_or(log_number);
        let last = EditItem::LastSeqno(self.sequence.visible());
        apply(&mut state, vec![last, EditItem::LogFloor(floor), created])?;
        let number = self.files.new_number();
        state.next_file = self.files.next_number();
        let old_logs = known.into_iter().filter(|number| !state.logs.contains_key(number)).collect();
        new.names.push(FileName::Manifest(number));
        let (fs, dir) = (Arc::clone(&self.files.fs), &self.files.dir);
        let manifest = ManifestLog::prepare(fs, dir, self.files.store_id, number, state, &random_id)?;
        Ok(Prepared { manifest, log_number, log, old_logs })
    }

    /// Ends the active log, which is durable to its end then, in `state`; takes it out if it holds nothing.
    fn cut_log(&self, state: &mut ManifestState) -> Result<()> {
        let active = self.log().active();
        let end = self.log().cut_active(self.sequence.visible()).map_err(|error| self.fail(error))?;
        // Newer ones were never used, and nothing of older ones is in memory only.
        let oldest = self.keyspaces.memtables.oldest_log(&[]).unwrap_or(u64::MAX);
        let end = end.filter(|_| active >= oldest);
        let is_used = |number| number < active || number == active && end.is_some();
        state.logs.retain(|&number, _| is_used(number) && number >= oldest);
        apply(state, end.into_iter().collect())
    }

    /// Writes the memtables into tables. No log is needed then.
    fn flush_memory(&self, state: &mut ManifestState, new: &mut NewFiles) -> Result<()> {
        let trees: Vec<Arc<Tree>> =
            self.keyspaces.with_memtables().into_iter().filter(|tree| tree.is_alive()).collect();
        for tree in &trees {
            if tree.is_filled() {
                tree.seal();
            }
            let view = tree.view();
            let mut version = Arc::clone(&view.version);
            for memtable in view.immutables.iter().rev() {
                let change = self.write_memtable(tree, &version, memtable)?;
                // What the next memtable deletes may be in these tables.
                version = Arc::new(version.apply(&HashSet::new(), change.added.clone()));
                let items = change.items();
                new.changes.push(change);
                apply(state, items)?;
            }
        }
        state.logs.clear();
        if new.changes.is_empty() { Ok(()) } else { self.files.sync_dir() }
    }
}

fn apply(state: &mut ManifestState, items: Vec<EditItem>) -> Result<()> {
    state.apply(&VersionEdit::new(items)).map_err(Error::invalid)
}
