//! Transactions: reads of a snapshot and of writes that are not in the store yet, and a commit that fails if what
//! was read has changed.
//!
//! - `own_writes`: the writes, sorted, by keyspace;
//! - `laid_over`, `merged`, `merged_cursor`: an iterator and a cursor over them and the entries of the store;
//! - `indexed_batch`: a batch of such writes, as a public type;
//! - `read_set`: what a transaction has read, as intervals of keys;
//! - `changes`: whether that has changed;
//! - `commit`: the commit, in the thread of the transaction;
//! - `handle`: the public handles;
//! - `transact`: trying again.

mod changes;
mod commit;
mod handle;
mod indexed_batch;
mod laid_over;
mod merged;
mod merged_cursor;
mod own_writes;
mod read_set;
#[cfg(test)]
mod tests;
mod transact;

pub(super) use changes::ReadCondition;
pub use handle::{KeyspaceTransaction, Transaction};
pub use indexed_batch::{BatchView, IndexedBatch, ReadHandle};
pub(super) use laid_over::Direction;
pub(super) use merged::Merged;
pub(super) use merged_cursor::MergedCursor;
pub(super) use own_writes::Own;
