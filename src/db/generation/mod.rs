//! The manifest and the logs of an open store: edits become durable and visible, and a new log or a new manifest takes
//! the place of the current one. Also the reasons to need one: writing is suspended after a failed append, and a full
//! disk takes the space that was kept.
//!
//! | file | content |
//! |---|---|
//! | `apply_edit` | an edit of the manifest: durable, then visible; a long manifest is replaced |
//! | `new_generation` | a new manifest, usually with a new log: prepared, put in force, cleaned up |
//! | `memory` | the memtables of an open store when it gets a new generation |
//! | `begin` | the first change of a store that was closed |
//! | `suspend`, `resume` | after a failed append: no writes, then a new generation |
//! | `next_log` | the next log, prepared in the background, and the change to it |
//! | `end_log` | the end of the active log |
//! | `expiry` | the time of a keyspace, and the bucket boundaries that the manifest lacks |
//! | `disk_space` | looks at the disk, and the file `RESERVE`: made, given up |
//!
//! The room may use `state`, `queues`, `engine`, `read` and `build`. It never runs background jobs, never enters the commit queue
//! and never waits for a commit. It removes no file that a manifest in force may name.

mod apply_edit;
pub(in crate::db) mod begin;
pub(in crate::db) mod disk_space;
mod end_log;
pub(in crate::db) mod expiry;
mod memory;
pub(in crate::db) mod new_generation;
mod next_log;
mod resume;
mod suspend;
