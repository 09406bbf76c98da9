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
//! | `sync` | not a step of the leader: writers wait for a sync in their own threads |
//!
//! The leader neither runs background jobs nor reads blocks, except that resuming suspended writing
//! (`generation/resume`) flushes the memtables.

pub(in crate::db) mod apply;
mod boundaries;
pub(in crate::db) mod conflict_check;
mod group_commit;
pub(in crate::db) mod read_check;
pub(in crate::db) mod room;
mod seal;
mod sync;
