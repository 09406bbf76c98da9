//! Kind 3, the ribbon filter, which stores the solution of a linear system.
//!
//! Each key is a row: in every column, the parity of some bits of a window equals a bit of the key's mark. An absent
//! key matches a column with probability 1/2, so `r` columns give a rate of `2^-r`. They take little more than `r` bits
//! per key; a Bloom filter needs `1.44 r`.
//!
//! ```text
//! layer 0, 1 ..   bumped ribbon (Dillinger, Hübschle-Schneider, Sanders, Walzer 2022), windows of 64 slots:
//!                 fewer slots than keys; keys that do not fit go to the next layer
//! last layer      standard ribbon (Dillinger and Walzer 2021), windows of 128 slots: slightly more slots than
//!                 keys; another attempt, with other hashes, if it has no solution
//! ```
//!
//! Small tables have only the last layer. If a layer has too many free slots, filters of up to 65536 keys try other
//! salts. So a filter with at least 256 keys and seven columns takes at most 1 % more bits than the rate needs.
//!
//! # Algorithm of a bumped layer
//!
//! 1. `row` maps a hash to the first slot of its window (its *start*), 64 coefficients and a mark.
//! 2. The starts form buckets of 128. `band` eliminates bucket after bucket: starts from 40 on, then from 16, then the rest.
//! 3. If a row contradicts earlier rows, its part of the bucket and the later parts leave the band: they are *bumped*.
//!    The bucket's threshold of 2 bits records this.
//! 4. `band` solves the system from the last slot to the first.
//!
//! Layers consist of shards of 2^16 starts, which are separate systems.
//!
//! # Columns
//!
//! A block is 64 slots: a word per column. The columns form up to three *groups*, each in its own section; later ones may be
//! missing. From block `plain` on, the last group has one more column, for sizes in between.
//!
//! # Invariants
//!
//! - The bytes depend only on the set of rows, which determines the rank and the leading slots. Free slots are 0.
//! - Rows, geometry and rates are integers.
//! - Elimination ends: every step moves a row right. After [`ATTEMPTS_MAX`] attempts at the last layer, the filter answers
//!   "maybe".
//!
//! | file | contents |
//! |---|---|
//! | `row` | hash to start, coefficients and mark |
//! | `geometry` | layers, blocks, sections; positions of blocks; the rate |
//! | `plan` | number of slots and columns for a number of keys |
//! | `matrix` | the rows of a system, and the steps of elimination |
//! | `band` | elimination and solution of shards with windows of 64 |
//! | `standard` | the same for the last layer, with windows of 128 |
//! | `solution` | the columns while they are written |
//! | `build` | hashes to sections |
//! | `query` | sections to answers |
//! | `paged` | pages to answers, if the columns are on disk |

mod band;
mod build;
mod geometry;
mod matrix;
mod paged;
mod plan;
mod query;
mod row;
mod solution;
mod standard;

pub(super) use build::{Built, Groups, build, build_again};
pub(super) use geometry::{GROUPS_MAX, LAYERS_MAX, Ribbon};
pub(super) use paged::{Paged, tail_bytes};
pub(super) use plan::{Size, bits_for_columns, expected_bytes, rate, rate_of_one_layer};
pub(super) use query::RibbonProbe;

const BUCKET_STARTS: u64 = 128;

const SHARD_BITS: u32 = 16;

/// For each threshold, the starts of a bucket below this number are bumped.
const BUMPED_BELOW: [u8; 4] = [128, 40, 16, 0];

const BLOCK_SLOTS: u64 = 64;

/// Window of the last layer.
const WIDE: u64 = 128;

/// The fewest keys for a ribbon filter of [`FilterKind::Auto`](crate::FilterKind::Auto). Below `WIDE · ln 2` = 89, a Bloom filter
/// of the same size has a lower rate.
pub(super) const KEYS_MIN: u64 = 96;

/// The outermost starts get this many additional hash values, because their slots would have too few rows.
const SMASH: u64 = 63;

pub(super) const COLUMNS_MAX: u8 = 32;

const ATTEMPTS_MAX: u16 = 256;
