//! The public API. Macros generate the calls that handles share (`read_calls`, `write_calls`, `range_deletes`,
//! `conditional/calls`) from views of where a handle reads and writes (`read_view`, `write_view`).

pub(in crate::db) mod conditional;
pub(in crate::db) mod copies;
pub(in crate::db) mod iteration;
pub(in crate::db) mod keyspace;
pub(in crate::db) mod owner;
mod range_deletes;
pub(in crate::db) mod read_calls;
pub(in crate::db) mod read_view;
#[cfg(test)]
pub(in crate::db) mod reads_tell;
mod sizes;
pub(in crate::db) mod snapshot;
pub(in crate::db) mod stats;
pub(in crate::db) mod store;
mod write_calls;
mod write_view;
