//! Compactions because of deletes: `covered` drops hidden tables, `tombstones` compacts others.

pub(crate) mod covered;
pub(crate) mod tombstones;
