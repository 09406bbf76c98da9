//! Verifies and repairs stores, and shows the shape of an open one.

pub(in crate::db) mod repair;
mod tree;
pub(in crate::db) mod verify;
