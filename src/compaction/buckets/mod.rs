//! Compaction of trees with expiry. Their tables are in level 0, in runs by bucket of time. Only small buckets share a
//! run, so a large bucket is dropped as a whole when it has expired.

pub(crate) mod pick;
pub(crate) mod runs;
