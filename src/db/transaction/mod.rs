//! Reads of writes that are not in the store yet.
//!
//! - `own_writes`: the writes, sorted, by keyspace;
//! - `merged`: an iterator over them and the entries of the store;
//! - `indexed_batch`: a batch of such writes, as a public type.

mod indexed_batch;
mod merged;
mod own_writes;

pub use indexed_batch::{BatchView, IndexedBatch, ReadHandle};
pub(super) use merged::Merged;
pub(super) use own_writes::Own;
