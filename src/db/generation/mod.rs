//! Manifest and logs of an open store: durable and visible edits, and the replacement of both files, for example
//! after a failed append or on a full disk.
//!
//! | file | content |
//! |---|---|
//! | `apply_edit` | publishes edits; replaces a long manifest |
//! | `new_generation` | a new manifest, usually with a new log |
//! | `memory` | the memtables in a new generation |
//! | `begin` | the first change of a closed store |
//! | `suspend`, `resume` | suspension after a failed append, then a new generation |
//! | `next_log` | prepares and begins the next log |
//! | `end_log` | ends the active log |
//! | `expiry` | time of a keyspace; boundaries missing in the manifest |
//! | `disk_space` | disk checks, `RESERVE` |
//!
//! The room never runs background jobs, enters the commit queue or waits for a commit. It never removes a file that a
//! manifest in force may name.

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
