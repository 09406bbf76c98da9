//! Compaction of trees whose entries expire. Their tables are in level 0, in runs by bucket of time; a bucket is dropped
//! as a whole when its time is over, so no merge mixes buckets.
//!
//! | file | what is in it |
//! |---|---|
//! | `runs` | the runs of a tree by bucket, and how far compaction is behind |
//! | `pick` | what to merge next |

pub(crate) mod pick;
pub(crate) mod runs;
