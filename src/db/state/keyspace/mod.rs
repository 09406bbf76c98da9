//! Keyspaces and their trees.
//!
//! | file | state |
//! |---|---|
//! | `tree` | one keyspace: memtables and version, published as a view |
//! | `change` | changes that become visible with an edit |
//! | `memtables`, `marks` | all memtables by size and log; keyspaces whose background work may have changed |
//! | `keyspaces` | all trees by id and name |
//! | `flushed_memtables` | flushed memtables retained for conditional calls |
//! | `expiring`, `tree_expiry` | time buckets |
//! | `pace` | write rate under pressure |

pub(in crate::db) mod change;
mod expiring;
pub(in crate::db) mod flushed_memtables;
pub(in crate::db) mod keyspaces;
pub(in crate::db) mod marks;
pub(in crate::db) mod memtables;
pub(in crate::db) mod pace;
pub(in crate::db) mod tree;
mod tree_expiry;
