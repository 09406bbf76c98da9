//! Entries that expire, as pure decisions: no clock is read here.
//!
//! Time is divided into *buckets* of `ttl / buckets` milliseconds, at multiples of that length. All entries that a
//! keyspace gets in one bucket expire together. A *boundary* ([`Boundary`](crate::wal::Boundary)) states the sequence
//! number at which a time begins: entries with a smaller number were written before it. The *horizon* of a keyspace is
//! the sequence number below which its entries are hidden. It follows from the boundaries and the time, and never falls.
//!
//! 1. The commit leader writes boundaries before the first entries of a new bucket ([`Buckets::next`]). If time has
//!    passed in which nothing was written, the bucket before gets a boundary of its own, at the time at which it ended,
//!    and one sequence number is left out, because the numbers of a keyspace's boundaries ascend.
//! 2. An entry that was written before a boundary expires `ttl` after the time of that boundary ([`Buckets::due`]). The
//!    entries of the last bucket expire `ttl` after its end.
//! 3. Entries that are written while the time is in doubt (a leap of the clock, see [`Buckets::is_leap`]) get no
//!    boundary with that time. Two boundaries with the same time and adjacent numbers, the end of the bucket before,
//!    mark such an *undated* bucket. It has no end until a boundary follows.
//!
//! [`options`] has the settings, [`buckets`] the boundaries and the horizon of a keyspace, [`times`] the times of a bucket.

pub(crate) mod buckets;
pub(crate) mod options;
pub(crate) mod times;
