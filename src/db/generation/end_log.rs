//! The end of the active log: its close record, synced.

use crate::db::engine::Engine;
use crate::db::generation::apply_edit::log_closed;
use crate::db::state::keyspace::change::Change;
use crate::db::state::log::LogPosition;
use crate::error::Result;

impl Engine {
    /// Ends the last log. Its commits are complete when the directory is unlocked: callbacks may open the store.
    pub(in crate::db) fn end_log(&self) -> Result<()> {
        if self.stays_unchanged() {
            return Ok(());
        }
        let last_seqno = self.sequence.visible();
        let (number, len) = self.close_active()?;
        self.publish(vec![log_closed(number, len, last_seqno)], Change::End).map(drop)
    }

    /// Ends the active log, because another one follows.
    pub(super) fn end_active(&self) -> Result<(u64, u64)> {
        let (number, len) = self.close_active()?;
        self.completions.complete(LogPosition { number, offset: len }, &Ok(()));
        Ok((number, len))
    }

    fn close_active(&self) -> Result<(u64, u64)> {
        let closed = self.log().close_active(self.sequence.visible(), self.manifest.mark());
        closed.map_err(|error| self.suspend(error))
    }
}
