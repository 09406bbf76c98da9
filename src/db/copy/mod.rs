//! Copies of a store.
//!
//! | file | content |
//! |---|---|
//! | `checkpoint` | checkpoints |
//! | `source` | the copied state, of an open store or a live view |
//! | `log_copy` | copies a log into a new closed one |
//! | `live_files` | the list of files for backup programs |
//! | `destination` | the directory being built |
//!
//! The room enters the commit queue only to resume writing, and changes nothing in the copied store.

pub(in crate::db) mod checkpoint;
mod destination;
pub(in crate::db) mod live_files;
mod log_copy;
mod source;
