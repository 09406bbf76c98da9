//! Compaction: what to merge (`pick`), what to keep of it (`retain`), and the doing (`run`); the filters of what comes
//! out (`filters`), planned for the tree that will be (`settled`).

pub(crate) mod filters;
pub(crate) mod pick;
pub(crate) mod retain;
pub(crate) mod run;
pub(crate) mod settled;
