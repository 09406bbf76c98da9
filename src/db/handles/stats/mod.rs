//! Statistics of an open store.

pub(in crate::db) mod expiry_stats;
pub(in crate::db) mod latency_stats;
pub(in crate::db) mod store_stats;
mod text;
