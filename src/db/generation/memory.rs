//! New generations of an open store, with its memtables.

use std::collections::HashSet;
use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::generation::new_generation::Draft;
use crate::db::state::keyspace::tree::Tree;
use crate::error::{Error, Result};

#[derive(Clone, Copy)]
pub(super) enum Memory {
    /// The memtables are written to tables, and the old logs are not needed.
    Flushed,
    /// The memtables are kept with their logs, because the disk is full or the store was just opened.
    Kept,
}

impl Engine {
    /// Must not run concurrently with edits. The inner result belongs to the first promise.
    ///
    /// # Errors
    ///
    /// Either the old manifest is in force, or the manifest in force is unknown.
    pub(super) fn move_to_new_generation(&self, memory: Memory) -> Result<Result<()>> {
        let state = self.manifest.lock().as_ref().ok_or(Error::Closed)?.known_state()?;
        let new = self.prepare(state, |draft| {
            match memory {
                Memory::Flushed => self.flush_memory(draft)?,
                Memory::Kept => self.keep_memory(draft)?,
            }
            let log = draft.create_log(&self.files)?;
            draft.name_log(log, self.sequence.visible())
        })?;
        self.put_in_force(new)
    }

    fn keep_memory(&self, draft: &mut Draft) -> Result<()> {
        draft.describe(self.next_log.ended().into_iter().collect())?;
        let active = self.log().active();
        let end = self.log().cut_active(self.sequence.visible()).map_err(|error| self.fail(error))?;
        draft.keep_logs(self.keyspaces.memtables.oldest_log(&[]).unwrap_or(u64::MAX), active, end)
    }

    fn flush_memory(&self, draft: &mut Draft) -> Result<()> {
        let trees: Vec<Arc<Tree>> =
            self.keyspaces.with_memtables().into_iter().filter(|tree| tree.is_alive()).collect();
        let mut any = false;
        for tree in &trees {
            if tree.is_filled() {
                tree.seal();
            }
            let view = tree.view();
            let mut version = Arc::clone(&view.version);
            for memtable in view.immutables.iter().rev() {
                let change = self.write_memtable(tree, &version, memtable)?;
                // Adds these tables, because the next memtable may delete their entries.
                version = Arc::new(version.apply(&HashSet::new(), change.added.clone()));
                draft.add(change)?;
                any = true;
            }
        }
        draft.keep_no_logs();
        if any { self.files.sync_dir() } else { Ok(()) }
    }
}
