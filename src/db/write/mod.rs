pub(in crate::db) mod backoff;
mod batch;
pub(in crate::db) mod completion;
pub(in crate::db) mod conditional_loop;
mod stall;
