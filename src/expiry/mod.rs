//! Expiry of entries: pure decisions, which read no clock.
//!
//! *Buckets* are multiples of `ttl / buckets` milliseconds; the entries of a bucket expire together. A *boundary*
//! ([`Boundary`](crate::wal::Boundary)) has a sequence number and a time: entries with smaller numbers were written
//! before that time. Entries below the *horizon* of a keyspace are hidden. The horizon follows from the boundaries
//! and the time, and never falls.
//!
//! 1. The commit leader writes boundaries before the first entries of a bucket ([`Buckets::next`]). After an idle time,
//!    the previous bucket gets a boundary at its own end. It takes an unused number, because numbers of boundaries
//!    ascend. So a bucket with one number is empty: after a bucket with a single entry, the boundary skips a number.
//! 2. Entries before a boundary expire `ttl` after its time ([`Buckets::due`]), entries of the last bucket `ttl` after
//!    its end.
//! 3. During an unconfirmed leap of the clock ([`Buckets::is_leap`]), entries go to an *undated* bucket. It begins with
//!    two boundaries with adjacent numbers, both at the end of the previous bucket, and ends at the next boundary.

pub(crate) mod buckets;
pub(crate) mod options;
pub(crate) mod times;
