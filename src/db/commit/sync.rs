//! Durability: one sync of the log for all waiting writers.

use crate::db::engine::Engine;
use crate::db::state::durability::Durability;
use crate::db::state::log::{LogPosition, Synced};
use crate::error::Result;

impl Engine {
    /// Makes the log durable up to a position, or up to the end of everything visible. Does nothing in a read-only
    /// store.
    #[inline]
    pub(in crate::db) fn make_durable(
        &self,
        up_to: Option<LogPosition>,
        durability: Durability,
    ) -> Result<()> {
        match (durability, up_to) {
            (Durability::Buffered, _) => Ok(()),
            (Durability::Synced, Some(position)) => self.wait_durable(position),
            (Durability::Synced, None) if self.log.is_none() => Ok(()),
            (Durability::Synced, None) => self.sync(),
        }
    }

    pub(in crate::db) fn sync(&self) -> Result<()> {
        self.check_writable()?;
        self.wait_durable(self.log().end())
    }

    pub(in crate::db) fn wait_durable(&self, position: LogPosition) -> Result<()> {
        self.begin_writing()?;
        let synced = self.log().wait_durable(position, || self.manifest.mark());
        let Synced { up_to, unpromised } = synced.map_err(|error| self.fail(error))?;
        if let Some((log, error)) = unpromised {
            self.suspend_log(log, error);
        }
        self.completions.complete(up_to, &Ok(()));
        Ok(())
    }
}
