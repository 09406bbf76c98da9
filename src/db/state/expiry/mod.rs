//! The clock, and the horizons of snapshots.

pub(in crate::db) mod clock;
pub(in crate::db) mod horizons;
