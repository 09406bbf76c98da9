//! Copies of a store.
//!
//! | file | content |
//! |---|---|
//! | `checkpoint` | a checkpoint: the steps, and why it is complete or absent |
//! | `source` | the moment that is copied: of a store that is open for writing, or of a live view |
//! | `log_copy` | the batches of a log in a new, closed log |
//! | `live_files` | the files of a store at one moment, for programs that copy them |
//! | `destination` | the directory in which a copy is built, until it has its name |
//!
//! The room may use those down to `open`. It never enters the commit queue, except to resume writing that is suspended,
//! and changes nothing in the store that it copies.

pub(in crate::db) mod checkpoint;
mod destination;
pub(in crate::db) mod live_files;
mod log_copy;
mod source;
