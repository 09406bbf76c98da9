pub(in crate::db) mod store_stats;
mod text;
