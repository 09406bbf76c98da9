pub(in crate::db) mod tables;
