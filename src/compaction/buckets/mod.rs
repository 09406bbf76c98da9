//! Compaction of trees with expiry. Their tables are in level 0, in runs by bucket of time. No merge mixes buckets, so
//! that an expired bucket is dropped as a whole.

pub(crate) mod pick;
pub(crate) mod runs;
