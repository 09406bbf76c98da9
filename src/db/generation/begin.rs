//! The first change of a closed store.
//!
//! Opening a closed store changes and syncs nothing: the logs are replayed into memory and stay. Before the first logged batch,
//! published edit or synced answer, [`Engine::begin_writing`] makes a generation ([`new_generation`](super::new_generation)) that
//! keeps the memtables and needed logs.
//!
//! # Why nothing has to be synced before
//!
//! Files may exist in the page cache only: the previous process may have died before a sync, or the sync may have failed. The
//! evidence of durability is the last edit of the manifest, which only states ends of logs (`open::closed_store`):
//!
//! - Each edit is durable before the next is appended. So all earlier edits are, with the files that they name.
//! - The last edit is not the first. So `CURRENT` durably names the manifest.
//! - A close record, and all older logs, are durable before an edit states that the log is closed.
//! - Without the last edit, which may be lost, the last log still ends with a close record.
//!
//! So a power loss before the first change preserves the state. Otherwise the opening rewrites the files. Copies of a store must
//! be synced by the copier.

use crate::db::engine::Engine;
use crate::db::generation::memory::Memory;
use crate::db::state::failure::{catch, is_out_of_space};
use crate::error::Result;
use crate::sync::lock;

impl Engine {
    /// Makes the new files of an unchanged store; on a full disk in the space of `RESERVE`. The caller must not hold the lock of
    /// the manifest or the log.
    ///
    /// # Errors
    ///
    /// Nothing has changed, and the next caller retries, unless the failure ends or suspends writing.
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
                // Leftovers of the attempt take space.
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
