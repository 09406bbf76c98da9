//! One commit group, as its leader carries it out.
//!
//! | file | step |
//! |---|---|
//! | `group_commit` | the leader: admit, decide, log, apply, publish, seal |
//! | `room` | room in the memtables before the group is written |
//! | `boundaries` | where buckets of time begin, for keyspaces whose entries expire |
//! | `conflict_check`, `read_check` | conditional writes; what a transaction has read |
//! | `apply` | entries of a batch into memtables |
//! | `seal` | full memtables become immutable, and a new log begins |
//! | `sync` | one sync of the log for all that wait |
//!
//! The leader runs no background job. If memory is short, it waits for another thread to flush. If no thread is free, it
//! returns `Stalled`, and the writers do the background work themselves (`write/stall`). It reads no block; `read_check`
//! also has the search for changes that a transaction runs in its own thread, which reads tables. While writing is
//! suspended, the leader resumes it (`generation/resume`), which may write all memtables into tables.

pub(in crate::db) mod apply;
mod boundaries;
pub(in crate::db) mod conflict_check;
mod group_commit;
pub(in crate::db) mod read_check;
pub(in crate::db) mod room;
mod seal;
mod sync;
