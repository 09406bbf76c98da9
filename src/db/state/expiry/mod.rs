//! The clock, and the horizons of snapshots; versions have other readers' horizons.

pub(in crate::db) mod clock;
pub(in crate::db) mod horizons;
