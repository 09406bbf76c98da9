//! Spans: range deletes in memory and in tables, cut so that no two overlap.
//!
//! A range delete hides every older entry of the keys from its start up to its end. Range deletes may overlap in any way.
//! [`Spans`] is an immutable list of the pieces: sorted, without overlaps, each with the sequence numbers of the range
//! deletes over it, the newest first. Memtables, tables and compactions all hold their range deletes in such lists.
//!
//! - `list`: the list and its searches; `cut`: the parts of it in a range; `builder`: how one is made, piece by piece in ascending order;
//! - `fragment`: from any set of range deletes to a list, with only the numbers that a reader can distinguish;
//! - `block`: a list as the payloads of the span blocks of a table;
//! - `overlay`: several lists, of which each is newer than the next, as one with the newest number of each key.
//!
//! # Layout
//!
//! The bounds are sorted keys. Each begins a *stretch*, which ends at the next bound; the last one has no end. A stretch has
//! a slice of the numbers, which is empty where no range delete is. A span is a stretch with numbers. So neighbours share
//! their bound, and one binary search over the bounds answers everything about a key.

pub(crate) mod block;
mod builder;
mod cut;
mod fragment;
mod list;
mod overlay;

use std::sync::Arc;

pub(crate) use builder::SpansBuilder;
pub(crate) use fragment::fragment;
pub(crate) use list::{Span, Spans, Stretch};
pub(crate) use overlay::overlay;

use crate::key::SeqNo;

/// A range delete as it was written: it hides the older entries of `start..end`. Without an end it has no upper bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeDelete {
    pub(crate) start: Arc<[u8]>,
    pub(crate) end: Option<Arc<[u8]>>,
    pub(crate) seqno: SeqNo,
}

impl RangeDelete {
    /// Its end; empty if it has none.
    pub(crate) fn end(&self) -> &[u8] {
        self.end.as_deref().unwrap_or_default()
    }
}
