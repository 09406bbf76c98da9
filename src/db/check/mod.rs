pub(in crate::db) mod repair;
pub(in crate::db) mod verify;
