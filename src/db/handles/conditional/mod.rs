pub(in crate::db) mod answers;
pub(in crate::db) mod backoff;
mod calls;
pub(in crate::db) mod conditional_loop;
mod pop;
