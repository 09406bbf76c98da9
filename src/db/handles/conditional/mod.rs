pub(in crate::db) mod answers;
mod calls;
mod pop;
