//! The index of a table: how it is built, and the way from a key to a data block.

mod builder;
mod search;

pub(super) use builder::{IndexBuilder, WrittenIndex};
pub(super) use search::{Index, past_separator};
