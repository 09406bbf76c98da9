//! The spans of a table.
//!
//! They are read when first needed, and remain in memory with the handle. The metadata states that they exist, so a
//! lookup fails if they cannot be read.

use std::sync::Arc;

use super::handle::TableHandle;
use crate::error::Result;
use crate::key::SeqNo;
use crate::spans::Spans;

impl TableHandle {
    pub(crate) fn spans(&self) -> Result<Option<Arc<Spans>>> {
        let Some(resident) = &self.spans else { return Ok(None) };
        if let Some(spans) = resident.get() {
            return Ok(Some(Arc::clone(spans)));
        }
        let read = self.open()?.read_spans()?;
        Ok(Some(Arc::clone(resident.keep(read, &self.shared.context.memory))))
    }

    #[inline]
    pub(super) fn covering(&self, user_key: &[u8], seqno: SeqNo) -> Result<Option<SeqNo>> {
        let Some(resident) = &self.spans else { return Ok(None) };
        if let Some(spans) = resident.get() {
            return Ok(spans.covering(user_key, seqno));
        }
        Ok(self.spans()?.and_then(|spans| spans.covering(user_key, seqno)))
    }
}
