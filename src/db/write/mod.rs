pub(in crate::db) mod backoff;
mod batch;
pub(in crate::db) mod completion;
pub(in crate::db) mod conditional_loop;
pub(in crate::db) mod key_writes;
pub(in crate::db) mod stall;
