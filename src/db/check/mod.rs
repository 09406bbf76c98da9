//! Verifies and repairs stores, and shows the shape of an open one. The store concerned is only read.

pub(in crate::db) mod repair;
mod tree;
pub(in crate::db) mod verify;
