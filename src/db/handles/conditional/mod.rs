//! Calls whose writes depend on the content of the store, and their answers.

pub(in crate::db) mod answers;
mod calls;
mod inserts;
mod pop;
