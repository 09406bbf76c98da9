//! The shape of a store: keyspaces, levels, runs, tables and their filters, as the manifest in force has
//! them.
//!
//! Read from `CURRENT`, the manifest, and the first bytes of filters; no table is opened, no log replayed, and no
//! lock taken. With a damaged manifest, the shape is the state after all readable edits, and the damage is reported.
//! If they contain no keyspace, the tables in the directory describe themselves.

// Imports `output`, `file`, `filter_block`, `table` and `salvage`.

mod read;
mod shape;
mod tables;

pub use shape::{
    BucketShape, ExpiryShape, FilterShape, KeyspaceShape, OriginShape, Residency, RunShape, TableShape, Tree,
};
