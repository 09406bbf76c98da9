//! What deletes are a reason for: `covered` drops tables that range deletes hide, `tombstones` chooses tables to compact
//! because of their tombstones and range deletes.

pub(crate) mod covered;
pub(crate) mod tombstones;
