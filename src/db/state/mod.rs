pub(in crate::db) mod failure;
pub(in crate::db) mod files;
pub(in crate::db) mod keyspace;
pub(in crate::db) mod log;
pub(in crate::db) mod parallel;
pub(in crate::db) mod progress;
pub(in crate::db) mod reserve;
pub(in crate::db) mod switch_points;
