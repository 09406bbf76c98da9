pub(in crate::db) mod conditional;
pub(in crate::db) mod iteration;
pub(in crate::db) mod keyspace;
pub(in crate::db) mod owner;
pub(in crate::db) mod read_calls;
#[cfg(test)]
pub(in crate::db) mod reads_tell;
pub(in crate::db) mod sizes;
pub(in crate::db) mod snapshot;
pub(in crate::db) mod stats;
pub(in crate::db) mod store;
pub(in crate::db) mod write_calls;
