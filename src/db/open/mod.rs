//! Opening: from the files in a directory to an engine. Manifest and logs are checked before anything changes.
//!
//! | file | content |
//! |---|---|
//! | `steps` | lock, recover, replay, first generation |
//! | `recover` | reads and checks the files |
//! | `replay_buffer` | parts of the logs, sorted by key |
//! | `replay_to_memtables` | replay into memtables, tables and the new log |
//! | `closed_store` | opening a closed store without changes |
//! | `live_view` | a consistent state of a store in use |
//! | `view_files` | the files of a live view, as an immutable file system |
//! | `reading` | opens a live view for reading |
//!
//! The room never starts background jobs, enters the commit queue or acknowledges writes.

mod closed_store;
pub(in crate::db) mod live_view;
pub(in crate::db) mod reading;
pub(in crate::db) mod recover;
mod replay_buffer;
mod replay_to_memtables;
pub(in crate::db) mod steps;
mod view_files;
