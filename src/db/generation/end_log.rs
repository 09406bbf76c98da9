//! Ending the active log.

use crate::db::engine::Engine;
use crate::db::state::keyspace::change::Change;
use crate::db::state::log::LogPosition;
use crate::error::Result;
use crate::manifest::edit::{EditItem, LogEnd};

impl Engine {
    /// The log's commits complete after the lock of the directory is released, because callbacks may open the store.
    pub(in crate::db) fn end_log(&self) -> Result<()> {
        if self.stays_unchanged() {
            return Ok(());
        }
        let (_, ended) = self.close_active()?;
        self.publish(vec![ended], Change::End).map(drop)
    }

    pub(super) fn end_active(&self) -> Result<EditItem> {
        let (end, ended) = self.close_active()?;
        self.completions.complete(end, &Ok(()));
        Ok(ended)
    }

    fn close_active(&self) -> Result<(LogPosition, EditItem)> {
        let last_seqno = self.sequence.visible();
        let closed = self.log().close_active(last_seqno, self.manifest.mark());
        let (number, len) = closed.map_err(|error| self.suspend(error))?;
        let end = LogEnd { len, last_seqno, is_cut: false };
        Ok((LogPosition { number, offset: len }, EditItem::LogEnded { number, end }))
    }
}
