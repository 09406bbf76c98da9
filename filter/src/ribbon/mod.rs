//! Kind 3, the ribbon filter: a linear system over single bits, solved once, whose solution is the filter.
//!
//! Each key is a row: in every column, the parity of some bits of a window of the solution equals a bit of
//! the key's mark. An absent key matches in one column with probability 1/2. So `r` columns give a rate of
//! `2^-r` for little more than `r` bits per key; a Bloom filter takes 1.44 times as many. In return, the
//! filter takes longer to build, and no key can be added later.
//!
//! ```text
//! layer 0, 1 ..   bumped ribbon (Dillinger, Hübschle-Schneider, Sanders, Walzer 2022), windows of 64 slots:
//!                 fewer slots than keys; keys that do not fit go to the next layer, by buckets
//! last layer      standard ribbon (Dillinger and Walzer 2021), windows of 128 slots: slightly more slots than
//!                 keys; another attempt, with other hashes, if it has no solution
//! ```
//!
//! Small tables have only the last layer. Filters of up to 65536 keys are built again with another salt if a
//! layer has too many free slots. So from seven columns on, a filter of 256 keys or more takes at most 1 %
//! more bits than the rate needs.
//!
//! # Algorithm of a bumped layer
//!
//! 1. `row` maps a hash to the first slot of its window (its *start*), 64 coefficients and a mark.
//! 2. The starts are cut into buckets of 128. `band` adds the rows of one bucket after another to a band
//!    matrix by elimination: within a bucket the starts from 40 on, then 16 to 39, then the rest.
//! 3. If a row contradicts earlier rows, its part of the bucket and the later parts are *bumped*: their rows
//!    leave the band, and the bucket's threshold of 2 bits records it.
//! 4. `band` solves the system from the last slot to the first, all columns at once.
//!
//! Layers are cut into shards of 2^16 starts. Each shard is a separate system, with one block of slots more
//! than its starts fill. Three shards are eliminated in turns, to hide memory latency. A single shard takes
//! turns among three of its rows.
//!
//! # Columns
//!
//! A block is 64 slots: one word of 64 bits per column. The columns are stored in up to three *groups*, each
//! in its own section. Without the later groups, the filter has fewer columns. From block `plain` on, the
//! last group has one more column, so the size of a filter need not be a multiple of the number of slots.
//!
//! # Invariants
//!
//! - Every byte depends on the set of rows, not on their order, because the rank and the leading slots of a
//!   system do not depend on the order. Free slots are 0.
//! - Rows, geometry and rates use integer arithmetic. Every instruction set gives the same bytes and answers.
//! - Elimination ends: a row moves right with every step. After [`ATTEMPTS_MAX`] attempts at the last layer,
//!   the filter has no columns and answers "maybe".
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

/// Starts per shard of a bumped layer, as a power of two.
const SHARD_BITS: u32 = 16;

/// Starts of a bucket below this offset are bumped, by the bucket's threshold.
const BUMPED_BELOW: [u8; 4] = [128, 40, 16, 0];

const BLOCK_SLOTS: u64 = 64;

/// Slots in the window of a row of the last layer.
const WIDE: u64 = 128;

/// The fewest keys for which [`FilterKind::Auto`](crate::FilterKind::Auto) builds a ribbon filter. A ribbon
/// filter has at least [`WIDE`] slots. For fewer than `WIDE · ln 2` = 89 keys, a Bloom filter of the same
/// size has a lower rate. The limit is somewhat higher, because a ribbon filter takes more time.
pub(super) const KEYS_MIN: u64 = 96;

/// Additional hash values for the first start, and for the last. Without them the outermost slots of the last
/// layer would have too few rows.
const SMASH: u64 = 63;

/// Most columns of any block.
pub(super) const COLUMNS_MAX: u8 = 32;

/// Most attempts at the last layer.
const ATTEMPTS_MAX: u16 = 256;
