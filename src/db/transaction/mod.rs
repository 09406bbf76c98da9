//! Optimistic transactions, and readable batches.
//!
//! | file | responsibility |
//! |---|---|
//! | `indexed_batch` | the public type of a readable batch |
//! | `handle` | the public handles of a transaction |
//! | `read_calls`, `range_deletes` | calls of both types |
//! | `commit` | the commit, in the caller's thread |
//! | `transact` | retries after conflicts |

mod commit;
pub(in crate::db) mod handle;
pub(in crate::db) mod indexed_batch;
mod range_deletes;
mod read_calls;
#[cfg(test)]
mod tests;
mod transact;
