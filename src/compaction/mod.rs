//! Compaction: what to merge (`pick`; because of `deletes`; because a caller wants it `range`)
//! beside what running jobs have reserved (`claimed_ranges`), to keep a tree in its `shape`, and how far that is behind
//! (`debt`), by `buckets` of time where entries expire; where a large `task` is split, which entries to keep (`retain`), and the merge itself (`run`); the filters
//! of the outputs (`filters`), planned for the tree that compaction will leave (`projected_tree`); what the outputs
//! record of the inputs (`table_origin`).

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
