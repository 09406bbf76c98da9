//! Opening: from the files in a directory to an engine. The manifest and the logs are read and checked before anything in the
//! directory is changed or removed.
//!
//! | file | content |
//! |---|---|
//! | `steps` | the steps in order: lock, recover, replay, first generation |
//! | `recover` | the state of the files, read and checked |
//! | `replay_buffer` | batches of the logs in parts, sorted by key |
//! | `replay_to_memtables` | these batches into memtables, tables and the new log |
//! | `closed_store` | a store that was closed: opened without a change |
//! | `live_view` | one moment of a store that another process may be writing to |
//! | `view_files` | the files of such a moment, as a file system that changes nothing |
//! | `reading` | from a live view to a store that is open for reading |
//!
//! The room may use `state`, `queues`, `engine`, `read`, `build`, `generation` and `commit`. It never starts background
//! jobs, never enters the commit queue, and acknowledges no write.

mod closed_store;
pub(in crate::db) mod live_view;
pub(in crate::db) mod reading;
pub(in crate::db) mod recover;
mod replay_buffer;
mod replay_to_memtables;
pub(in crate::db) mod steps;
mod view_files;
