//! The first change of a closed store.
//!
//! Opening a closed store neither changes nor syncs a file: the logs are replayed into memory and kept. Before the
//! first logged batch, published edit or synced answer, [`Engine::begin_writing`] makes a generation
//! ([`new_generation`](super::new_generation)) that keeps the memtables and needed logs.
//!
//! # Why no earlier sync is needed
//!
//! Files may exist in the page cache only: the previous process may have died before a sync, or the sync may have
//! failed. The evidence of durability is the last edit of the manifest, which only states ends of logs
//! (`open::closed_store`):
//!
//! - Each edit is durable before the next is appended. So all earlier edits, and the files that they name, are
//!   durable.
//! - The last edit is not the first. So `CURRENT` durably names the manifest.
//! - A close record, and all older logs, are durable before an edit states that the log is closed.
//! - The last edit may be lost. Then the last log still ends with a close record.
//!
//! So a power loss before the first change preserves the state. In all other cases the opening rewrites the files. A
//! program that copies a store must sync the copies.

use crate::db::engine::Engine;
use crate::db::generation::memory::Memory;
use crate::db::state::failure::{catch, is_out_of_space};
use crate::error::Result;
use crate::sync::lock;

impl Engine {
    /// Makes the new files of an unchanged store; on a full disk, they take the space of `RESERVE`. The caller must
    /// not hold the lock of the manifest or the log.
    ///
    /// # Errors
    ///
    /// Unless the failure ends or suspends writing, nothing has changed and the next caller retries.
    pub(in crate::db) fn begin_writing(&self) -> Result<()> {
        if !self.lifecycle.is_unchanged() {
            return Ok(());
        }
        let _one = lock(&self.lifecycle.beginning);
        if !self.lifecycle.is_unchanged() {
            return Ok(());
        }
        self.lifecycle.check_open()?;
        self.lifecycle.check_not_failed()?;
        catch("beginning to write", || self.begin_once()).unwrap_or_else(|panic| Err(self.fail(panic)))
    }

    fn begin_once(&self) -> Result<()> {
        let begin = || {
            let moved = self.files.check_locked().and_then(|()| self.move_to_new_generation(Memory::Kept));
            moved.map_err(|error| self.fail_if_final(error))
        };
        let activated = match begin() {
            Err(error) if is_out_of_space(&error) => {
                let has_freed = self.give_up_reserve_file(&error);
                self.remove_obsolete_files();
                if !has_freed {
                    return Err(error);
                }
                self.retry.count_failure();
                begin()?
            }
            begun => begun?,
        };
        self.lifecycle.set_unchanged(false);
        activated.map_err(|error| self.suspend(error))?;
        self.remove_obsolete_files();
        Ok(())
    }

    pub(super) fn stays_unchanged(&self) -> bool {
        let _one = lock(&self.lifecycle.beginning);
        self.lifecycle.is_unchanged()
    }
}
