mod apply_edit;
pub(in crate::db) mod begin;
mod end_log;
mod new_files;
mod next_log;
pub(in crate::db) mod reserve_upkeep;
mod resume;
mod suspend;
