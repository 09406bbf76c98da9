//! The first change of a store that was closed.
//!
//! Opening a store that was closed changes nothing and syncs nothing. The logs are replayed into memory and stay, and
//! there is no log to append to. Before the first batch is logged, before the first edit is published, and before the
//! first answer that a caller wants synced, [`Engine::begin_writing`] makes a generation
//! ([`new_generation`](super::new_generation)) that keeps the memtables and the logs that are still needed.
//!
//! # Why nothing has to be synced before
//!
//! What an opening reads may be in the memory of the operating system only: the process before may have died between
//! an append and its sync, or the sync may have failed. So what it finds is durable only if something shows it. In
//! a store that was closed (`open::closed_store`) it is the last edit of the manifest, which says nothing but how logs ended:
//!
//! - An edit is durable before the next is appended. So every edit but this one is durable, and with them the tables,
//!   filters and logs that they name.
//! - Edits are appended to a manifest only after `CURRENT` names it, durably. This one is not its first.
//! - The close record of a log is durable before an edit says that the log is closed, and every older log is durable to
//!   its end before that.
//! - This edit itself may not be durable. Without it the last log is one that ends with a close record, and is read the
//!   same.
//!
//! If the power fails before the store changes, the next opening finds what this one has found. Whatever of this is
//! not the case, the files are written anew before the opening returns. A copy of a store is durable once its maker
//! has synced it: an opening syncs neither its tables nor its logs.

use crate::db::engine::Engine;
use crate::db::generation::memory::Memory;
use crate::db::state::failure::{catch, is_out_of_space};
use crate::error::Result;
use crate::sync::lock;

impl Engine {
    /// Makes the new files of a store of which nothing has changed, on a full disk with the room of `RESERVE`. Not for
    /// who holds the lock of the manifest or of the log.
    ///
    /// # Errors
    ///
    /// Nothing has changed, and the next caller tries again, unless the failure ends or suspends writing.
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
                // What the attempt has left takes room.
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

    /// Whether the store is to be closed as it was found. Nobody begins after that.
    pub(super) fn stays_unchanged(&self) -> bool {
        let _one = lock(&self.lifecycle.beginning);
        self.lifecycle.is_unchanged()
    }
}
