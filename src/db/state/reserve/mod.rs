//! The reserve: a file that keeps space, so that a store on a full disk can go on with what frees space.
//!
//! | file | what happens there |
//! |---|---|
//! | `file` | the file: what is found under its name, writing and removing it |
//! | `state` | how long it is to be, and whether it was given up |
//!
//! `generation/reserve_upkeep` makes it, gives it up and makes it again.
//!
//! `RESERVE` begins with the store's id, and the rest means nothing. If an append to the log or the manifest,
//! or a flush, finds the disk full, the file is removed. That is room for a new log and a new manifest
//! (`resume`), for deletes, for a flush, for the edits that drop tables. From then on the store takes deletes
//! only, so that nothing else uses the room up: a batch with a put gets the error of the full disk. When the
//! reserve could be made again, as long as it was, everything is taken again. The background tries that like
//! other work that failed (`retry`), but not before the flushes that failed.
//!
//! It is a part of what the tables take, so that it holds what is in memory if the store is large, and costs
//! little if it is small. The bytes cannot be compressed, and they are synced: a file system that allocates
//! late, compresses or leaves holes has given the space.
//!
//! Making it must not fill the disk. So it is written only if several times its length is free. If the file
//! system does not say what is free, or was wrong (a quota is lower), writing it may take up for a moment what
//! there is. What was written of it is removed at once then, one of the length before is made, and the next
//! attempt is for a quarter, so that there are few. A store that takes deletes only appends nothing meanwhile.

pub(in crate::db) mod file;
pub(in crate::db) mod state;
