//! The shape of a store.
//!
//! Reads `CURRENT`, the manifest and the filter headers, without a lock. If the manifest is damaged, all readable edits
//! count. If no keyspace is readable, the tables' own properties are used.

mod read;
mod shape;
mod tables;

pub use shape::{
    BucketShape, ExpiryShape, FilterShape, KeyspaceShape, OriginShape, Residency, RunShape, TableShape, Tree,
};
