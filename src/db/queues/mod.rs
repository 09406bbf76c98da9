pub(in crate::db) mod bits;
pub(in crate::db) mod commit_queue;
pub(in crate::db) mod job_queue;
pub(in crate::db) mod read_set;
pub(in crate::db) mod reservations;
pub(in crate::db) mod retry;
pub(in crate::db) mod value;
