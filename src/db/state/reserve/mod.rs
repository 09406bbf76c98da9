pub(in crate::db) mod file;
pub(in crate::db) mod state;
