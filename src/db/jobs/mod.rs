pub(in crate::db) mod background;
pub(in crate::db) mod compact;
pub(in crate::db) mod filter_memory;
pub(in crate::db) mod flush_and_compact;
pub(in crate::db) mod maintain;
pub(in crate::db) mod open_all;
pub(in crate::db) mod refilter;
pub(in crate::db) mod refilter_keyspace;
