//! Keyspaces: the tree of each, and the orders in which the engine chooses among them.
//!
//! | file | state |
//! |---|---|
//! | `tree` | one keyspace: its memtables and its version, published together as a view |
//! | `change` | a change of trees that becomes visible with an edit |
//! | `memtables`, `marks` | all memtables by size and by log; the keyspaces whose work may have changed |
//! | `keyspaces` | all trees by id and name |
//! | `flushed_memtables` | flushed memtables that a conditional call still needs |
//! | `expiring`, `tree_expiry` | the buckets of time of a keyspace; the calls of a tree about them |
//! | `pace` | the rate of the writers of a keyspace |

pub(in crate::db) mod change;
mod expiring;
pub(in crate::db) mod flushed_memtables;
pub(in crate::db) mod keyspaces;
pub(in crate::db) mod marks;
pub(in crate::db) mod memtables;
pub(in crate::db) mod pace;
pub(in crate::db) mod tree;
mod tree_expiry;
