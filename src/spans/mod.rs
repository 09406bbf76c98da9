//! Spans: range deletes in memory and in tables, cut into pieces that do not overlap.
//!
//! [`Spans`] is a sorted, immutable list of such pieces, each with the sequence numbers of its range deletes, newest
//! first.
//!
//! - `list`: the list and its searches; `cut`: the part of a list in a range; `builder`: builds a list in ascending
//!   order;
//! - `fragment`: makes a list from range deletes, with the numbers that a reader can distinguish;
//! - `block`: the payloads of the span blocks of a table;
//! - `overlay`: joins lists and keeps the newest number of each key.
//!
//! # Layout
//!
//! The bounds are sorted keys. Each begins a *stretch* up to the next bound. A stretch has a slice of the numbers; in a
//! gap it is empty. One binary search over the bounds finds the stretch of a key.

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

/// Hides the older entries in `start..end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeDelete {
    pub(crate) start: Arc<[u8]>,
    pub(crate) end: Option<Arc<[u8]>>,
    pub(crate) seqno: SeqNo,
}

impl RangeDelete {
    /// Returns the end; an empty end means no upper bound.
    pub(crate) fn end(&self) -> &[u8] {
        self.end.as_deref().unwrap_or_default()
    }
}
