//! Verify reads every byte of a store and reports all damage. Repair makes a new store from what is left of a damaged
//! one. Neither changes the store that it reads. The shape of an open store is read the same way.

pub(in crate::db) mod repair;
mod tree;
pub(in crate::db) mod verify;
