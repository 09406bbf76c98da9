//! Iterators and cursors.

pub(in crate::db) mod cursor;
pub(in crate::db) mod iter;
mod key_copies;
