//! Tables: ends, blocks, index, chunks, filters.

mod block;
mod chunks;
mod ends;
mod filters;
mod index;
mod scan;
mod search;
mod sums;
mod walk;

pub(in crate::inspect) use ends::{Ends, Stated};
pub(in crate::inspect) use filters::{Held, describe_filters, open_filters};
pub(in crate::inspect) use search::next_intact;
pub(in crate::inspect) use walk::{describe, walk, wasted_bytes_max};
