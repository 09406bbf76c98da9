pub(in crate::db) mod apply_edit;
pub(in crate::db) mod begin;
pub(in crate::db) mod end_log;
pub(in crate::db) mod new_files;
pub(in crate::db) mod next_log;
pub(in crate::db) mod reserve_upkeep;
pub(in crate::db) mod resume;
pub(in crate::db) mod suspend;
