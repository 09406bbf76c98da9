//! Entries that expire: the clock, and the horizons that snapshots take. Those of readers are in the versions of trees.

pub(in crate::db) mod clock;
pub(in crate::db) mod horizons;
