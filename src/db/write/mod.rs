pub(in crate::db) mod backoff;
pub(in crate::db) mod batch;
pub(in crate::db) mod completion;
pub(in crate::db) mod conditional_loop;
pub(in crate::db) mod stall;
