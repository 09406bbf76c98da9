//! Disk space reserved to recover from a full disk. `generation/disk_space` checks the disk, and creates and removes the file.
//!
//! | file | content |
//! |---|---|
//! | `need` | space needs, and thresholds for puts and deletes |
//! | `account` | last disk check of an open store |
//! | `reserve_file` | the file `RESERVE` |
//!
//! The chapter "A full disk" of `RELIABILITY.md` describes the space, the thresholds and when the free space is read.
//!
//! By default, `RESERVE` takes at least the space that an opening needs. If the free space is unknown or a quota is
//! lower, only a successful write proves that space exists. When an operation finds the disk full, the file is removed.
//! If this contradicts the reported free space, the store derives its space from the sizes of its files until the file
//! can be written again. If another error prevents this, puts are accepted, and the next one shows whether there is
//! space.
//!
//! `RESERVE` has the store's id, then incompressible bytes, synced: allocation must not be delayed, compressed or sparse.

pub(in crate::db) mod account;
pub(in crate::db) mod need;
pub(in crate::db) mod reserve_file;
