//! The public API. Macros generate the calls that several handles have (`read_calls`, `write_calls`, `range_deletes`,
//! `conditional/calls`). They are based on `read_view` and `write_view`, which describe where a handle reads and
//! writes.

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
