pub(in crate::db) mod flushed_memtables;
pub(in crate::db) mod keyspaces;
pub(in crate::db) mod memtables;
pub(in crate::db) mod tree;
