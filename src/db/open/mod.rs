pub(in crate::db) mod closed_store;
pub(in crate::db) mod recover;
pub(in crate::db) mod replay_buffer;
pub(in crate::db) mod replay_to_memtables;
pub(in crate::db) mod steps;
