mod closed_store;
pub(in crate::db) mod recover;
mod replay_buffer;
mod replay_to_memtables;
pub(in crate::db) mod steps;
