//! Calls whose writes depend on what the store holds, and their answers.

pub(in crate::db) mod answers;
mod calls;
mod inserts;
mod pop;
