//! The spans of a table.
//!
//! They are read when first needed, and remain in memory with the handle. The metadata has their number, so a lookup
//! either finds the spans or fails.

use std::sync::Arc;

use super::handle::TableHandle;
use crate::error::Result;
use crate::key::SeqNo;
use crate::spans::Spans;

impl TableHandle {
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

    /// The newest range delete over the key that is visible at `seqno`.
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
