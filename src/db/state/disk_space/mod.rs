//! The space that a store keeps on its disk, so that it can free itself when the disk is full.
//!
//! | file | content |
//! |---|---|
//! | `need` | the arithmetic: the need of a store, and the thresholds for puts and deletes |
//! | `account` | the last look at the disk of an open store |
//! | `reserve_file` | the file `RESERVE`: finding, writing and removing it |
//!
//! `generation/disk_space` looks at the disk, and makes the file and gives it up.
//!
//! The space of a store is the free space of its disk plus the length of `RESERVE`. Puts are refused below one threshold,
//! deletes below a lower one ([`need`]), so that flushes, compactions and the next opening always have room. The free space is
//! read again after a number of bytes of writes, after each flush or compaction, and for each put that is refused.
//!
//! The file holds a part of that space against other programs: at least what an opening needs. If the free space is unknown
//! or a quota is lower, the file holds all of it: then a successful write of the file is the only proof that the space
//! exists. When an operation finds the disk full, the file is removed. If that contradicts the file system's figure, the
//! store computes its space from the lengths of its own files, until the file can be written again. The background tries that,
//! and no put is needed for it. If the file cannot be written, read or removed for another reason than space, it proves
//! nothing, and the next put finds out.
//!
//! `RESERVE` begins with the store's id, and the rest has no meaning. The bytes cannot be compressed, and they are synced: a
//! file system that allocates late, compresses or leaves holes has given the space.

pub(in crate::db) mod account;
pub(in crate::db) mod need;
pub(in crate::db) mod reserve_file;
