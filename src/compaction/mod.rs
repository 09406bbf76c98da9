//! Compaction: what to merge (`pick`; because of tombstones `tombstones`; because a caller wants it `range`)
//! beside what running jobs have reserved (`busy`), and how far that is behind (`pressure`); where a large
//! task is split (`parts`), which entries to keep (`retain`), and the merge itself (`run`); the filters of the
//! outputs (`filters`), planned for the tree that compaction will leave (`settled`); what the outputs record
//! of the inputs (`lineage`).

pub(crate) mod busy;
pub(crate) mod filters;
pub(crate) mod lineage;
pub(crate) mod parts;
pub(crate) mod pick;
pub(crate) mod pressure;
pub(crate) mod range;
pub(crate) mod retain;
pub(crate) mod run;
pub(crate) mod settled;
pub(crate) mod tombstones;
