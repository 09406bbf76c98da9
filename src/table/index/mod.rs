//! The index of a table.

mod builder;
mod search;

pub(super) use builder::{IndexBuilder, WrittenIndex};
pub(super) use search::{Index, past_separator};
