//! Lookups, and the sources of scans. Reads change counters, and load filters and open tables as they need them.
//!
//! | file | responsibility |
//! |---|---|
//! | `lookup`, `batch_lookup` | one key; many keys, with filters fetched together |
//! | `sources`, `covers`, `covered` | the memtables and runs that a scan reads; the range deletes over them; a source under these |
//! | `own_writes`, `laid_over`, `merged`, `merged_cursor` | writes of a batch or transaction, laid over lookups, scans and cursors |

mod batch_lookup;
mod covered;
mod covers;
pub(in crate::db) mod laid_over;
mod lookup;
pub(in crate::db) mod merged;
pub(in crate::db) mod merged_cursor;
pub(in crate::db) mod own_writes;
#[cfg(test)]
mod plain;
pub(in crate::db) mod sources;
