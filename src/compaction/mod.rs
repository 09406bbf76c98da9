//! Compaction: what to merge (`pick`), what to keep of it (`retain`), and the doing (`run`).

pub(crate) mod filters;
pub(crate) mod pick;
pub(crate) mod retain;
pub(crate) mod run;
