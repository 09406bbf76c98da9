//! Verify reads every byte of a store and reports all damage. Repair makes a new store from what is left of a damaged
//! one. Neither changes the store that it reads.

pub(in crate::db) mod repair;
pub(in crate::db) mod verify;
