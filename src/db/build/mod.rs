//! New tables from a memtable or from the inputs of a compaction. Nothing is published here: `generation/apply_edit` does
//! that for flushes and compactions, and a new manifest when a store is opened or resumes writing.

pub(in crate::db) mod tables;
