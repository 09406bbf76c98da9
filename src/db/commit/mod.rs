pub(in crate::db) mod apply;
pub(in crate::db) mod conflict_check;
mod group_commit;
pub(in crate::db) mod read_check;
pub(in crate::db) mod room;
mod seal;
mod sync;
