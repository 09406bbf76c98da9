//! The shape of a store.
//!
//! From `CURRENT`, the manifest and filter headers, without a lock. A damaged manifest counts up to all readable edits; without a
//! readable keyspace, the tables describe themselves.

mod read;
mod shape;
mod tables;

pub use shape::{
    BucketShape, ExpiryShape, FilterShape, KeyspaceShape, OriginShape, Residency, RunShape, TableShape, Tree,
};
