//! One commit group, as its leader carries it out.
//!
//! | file | step |
//! |---|---|
//! | `group_commit` | the leader: admit, decide, log, apply, publish, seal |
//! | `room` | room in the memtables before the group is written |
//! | `conflict_check`, `read_check` | conditional writes; what a transaction has read |
//! | `apply` | entries of a batch into memtables |
//! | `seal` | full memtables become immutable, and a new log begins |
//! | `sync` | one sync of the log for all that wait |
//!
//! The leader waits for flushes of other threads only. It runs no background job: if no thread is free, it answers its
//! writers that their batches are stalled, and they do the work (`write/batch`). It reads no block.

pub(in crate::db) mod apply;
pub(in crate::db) mod conflict_check;
mod group_commit;
pub(in crate::db) mod read_check;
pub(in crate::db) mod room;
mod seal;
mod sync;
