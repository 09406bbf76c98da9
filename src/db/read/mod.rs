mod batch_lookup;
pub(in crate::db) mod laid_over;
mod lookup;
pub(in crate::db) mod merged;
pub(in crate::db) mod merged_cursor;
pub(in crate::db) mod own_writes;
#[cfg(test)]
mod plain;
pub(in crate::db) mod sources;
