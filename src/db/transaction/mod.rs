//! Transactions: reads of a snapshot and of writes that are not in the store yet, and a commit that fails if the
//! data it read has changed.
//!
//! | file | responsibility |
//! |---|---|
//! | `indexed_batch` | a batch of writes that can be read, as a public type |
//! | `handle` | the public handles of a transaction |
//! | `read_calls`, `range_deletes` | the calls that read, of both; those that delete ranges |
//! | `commit` | the commit, in the thread of the transaction |
//! | `transact` | running a transaction again after a conflict |

mod commit;
pub(in crate::db) mod handle;
pub(in crate::db) mod indexed_batch;
mod range_deletes;
mod read_calls;
#[cfg(test)]
mod tests;
mod transact;
