pub(in crate::db) mod change;
pub(in crate::db) mod flushed_memtables;
pub(in crate::db) mod keyspaces;
pub(in crate::db) mod marks;
pub(in crate::db) mod memtables;
pub(in crate::db) mod pace;
pub(in crate::db) mod tree;
