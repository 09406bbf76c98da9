//! Lookups, and the sources of scans. Reads change counters, load filters and open tables.
//!
//! | file | responsibility |
//! |---|---|
//! | `lookup`, `batch_lookup` | one key; many keys |
//! | `sources`, `covers`, `covered` | memtables and runs of a scan; range deletes over them |
//! | `own_writes`, `laid_over`, `merged`, `merged_cursor` | writes of a batch or transaction over lookups, scans and cursors |

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
