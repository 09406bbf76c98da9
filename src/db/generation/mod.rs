pub(in crate::db) mod apply_edit;
pub(in crate::db) mod begin;
pub(in crate::db) mod next_log;
pub(in crate::db) mod reserve_upkeep;
pub(in crate::db) mod resume;
