//! One commit group, as its leader executes it.
//!
//! | file | step |
//! |---|---|
//! | `group_commit` | admit, decide, log, apply, publish, seal |
//! | `room` | room in the memtables |
//! | `boundaries` | boundaries of time buckets |
//! | `conflict_check`, `read_check` | conditions of writes and of transactions |
//! | `apply` | insertion into memtables |
//! | `seal` | sealing full memtables, a new log |
//! | `sync` | one sync for all waiting writers |
//!
//! The leader neither runs background jobs nor reads blocks, except that resuming suspended writing
//! (`generation/resume`) flushes the memtables. Transactions run a part of `read_check` in their own threads.

pub(in crate::db) mod apply;
mod boundaries;
pub(in crate::db) mod conflict_check;
mod group_commit;
pub(in crate::db) mod read_check;
pub(in crate::db) mod room;
mod seal;
mod sync;
