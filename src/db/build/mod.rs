//! Building tables from a memtable or compaction inputs.

pub(in crate::db) mod tables;
