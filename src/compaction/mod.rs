//! Compaction.
//!
//! - Choice of tables: `pick`, `deletes`, `range` for manual compactions, `buckets` with expiry.
//! - Target sizes: `shape`. Distance from them: `debt`.
//! - Merge: `task` with its splits, `claimed_ranges` for reservations, `retain` for the entries to keep, `run` to
//!   execute it.
//! - Outputs: `filters`, planned for the `projected_tree`; `table_origin` records the inputs.

pub(crate) mod buckets;
pub(crate) mod claimed_ranges;
pub(crate) mod debt;
pub(crate) mod deletes;
pub(crate) mod filters;
pub(crate) mod pick;
mod projected_tree;
pub(crate) mod range;
pub(crate) mod retain;
pub(crate) mod run;
pub(crate) mod shape;
pub(crate) mod table_origin;
pub(crate) mod task;
