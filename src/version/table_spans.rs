//! The spans of a table.
//!
//! They are read when they are needed first, and stay in memory, within its budget, as long as a handle of the table: also
//! while the file is closed. The metadata says whether there are any. So a lookup never misses one: it finds it here, or
//! in the file, or fails.

use std::sync::Arc;

use super::handle::TableHandle;
use crate::error::Result;
use crate::key::SeqNo;
use crate::spans::Spans;

impl TableHandle {
    /// The spans of the table; `None` if it has none. The first call reads them from the file.
    ///
    /// # Errors
    ///
    /// [`Error::Corruption`](crate::Error::Corruption) or [`Error::Io`](crate::Error::Io) if they cannot be read.
    pub(crate) fn spans(&self) -> Result<Option<Arc<Spans>>> {
        if self.meta.spans.is_none() {
            return Ok(None);
        }
        if let Some(spans) = self.spans.get() {
            return Ok(Some(Arc::clone(spans)));
        }
        let read = self.open()?.read_spans()?;
        Ok(Some(Arc::clone(self.spans.keep(read, &self.shared.context.memory))))
    }

    /// The number of the newest range delete over the key that is visible at `seqno`.
    #[inline]
    pub(super) fn covering(&self, user_key: &[u8], seqno: SeqNo) -> Result<Option<SeqNo>> {
        if self.meta.spans.is_none() {
            return Ok(None);
        }
        if let Some(spans) = self.spans.get() {
            return Ok(spans.covering(user_key, seqno));
        }
        Ok(self.spans()?.and_then(|spans| spans.covering(user_key, seqno)))
    }
}
