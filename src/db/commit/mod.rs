pub(in crate::db) mod apply;
pub(in crate::db) mod conflict_check;
pub(in crate::db) mod group_commit;
pub(in crate::db) mod read_check;
pub(in crate::db) mod room;
pub(in crate::db) mod seal;
pub(in crate::db) mod sync;
