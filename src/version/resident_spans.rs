//! The spans of a table in memory, after their first read.

use std::sync::{Arc, OnceLock};

use crate::memory::{Entry, Memory};
use crate::spans::Spans;

#[derive(Default)]
pub(super) struct ResidentSpans(OnceLock<(Arc<Spans>, Entry)>);

impl ResidentSpans {
    #[inline]
    pub(super) fn get(&self) -> Option<&Arc<Spans>> {
        self.0.get().map(|(spans, _)| spans)
    }

    pub(super) fn keep(&self, spans: Spans, memory: &Arc<Memory>) -> &Arc<Spans> {
        let entry = memory.enter(spans.size_bytes());
        &self.0.get_or_init(|| (Arc::new(spans), entry)).0
    }
}
