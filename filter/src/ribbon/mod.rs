//! Kind 3, the ribbon filter: a linear system over single bits, solved once, whose solution is the filter.
//!
//! Each key is a row: the parity of some bits of a window of the solution must equal the key's mark, and does
//! so in every column. A key that was never added meets the wanted bit of one column by chance, that is
//! in half of all cases; so `r` columns give a rate of `2^-r` for hardly more than `r` bits per key, where a
//! Bloom filter takes 1.44 times as many. The price is the build, and that nothing can be added later.
//!
//! ```text
//! layer 0, 1 ..   bumped ribbon (Dillinger, Hübschle-Schneider, Sanders, Walzer 2022), windows of 64 slots:
//!                 fewer slots than keys; what does not fit is left to the next layer, by buckets
//! last layer      standard ribbon (Dillinger and Walzer 2021), windows of 128 slots: slightly more slots than
//!                 keys; another attempt, with other hashes, if it has no solution
//! ```
//!
//! Small tables have the last layer only. Those somewhat larger are built again with another salt if a layer
//! was unlucky: no filter of 256 keys or more takes over 1 % more than its keys, from seven columns on.
//!
//! # Algorithm of a bumped layer
//!
//! 1. `row` makes of a hash the first slot of its window (its *start*), 64 coefficients and a mark.
//! 2. The starts are cut into buckets of 128. `band` adds the rows of one bucket after another to a band
//!    matrix by elimination, within a bucket the starts from 40 on, then those from 16 to 39, then the rest.
//! 3. If a row contradicts the earlier ones, its range of starts and the ranges after it are *bumped*: their
//!    rows leave the band, and the bucket's threshold of 2 bits says so for ever.
//! 4. `band` solves the system from the last slot to the first, all columns at once.
//!
//! Layers are cut into shards of 2^16 starts, each a system of its own with one block of slots more than
//! starts: three are eliminated in turns, so that the processor works on two while it waits for the third.
//!
//! # Columns
//!
//! 64 slots are a block: one word of 64 bits per column. The columns stand in up to three *groups*, each a
//! section of its own: a filter without the later ones is a filter with fewer columns. From block `plain` on
//! the last group has a column more, so that any size can be used and not only multiples of the number of
//! slots.
//!
//! # Invariants
//!
//! - Which ranges are bumped, which slots are free (these are 0), and so every byte, depends on the set of
//!   rows, not on their order: rank and leading slots of a system do not.
//! - Row, geometry and rate are integer arithmetic. Every instruction set gives the same bytes and answers.
//! - Elimination ends: a row moves right with every step. The attempts at the last layer are counted; after
//!   [`ATTEMPTS_MAX`] the filter has no column, and answers "maybe".
//!
//! | file | noun |
//! |---|---|
//! | `row` | hash to start, coefficients and mark |
//! | `geometry` | layers, blocks, sections; where a block stands; the rate |
//! | `plan` | how many slots and columns a filter of so many keys gets |
//! | `matrix` | the rows of a system, and the steps of elimination |
//! | `band` | elimination and solution of shards with windows of 64 |
//! | `standard` | the same of the last layer, windows of 128 |
//! | `solution` | the columns while they are written |
//! | `build` | hashes to sections |
//! | `query` | sections to answers |
//! | `paged` | pages to answers, where the columns are not in memory |

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

/// Starts per bucket of a bumped layer.
const BUCKET_STARTS: u64 = 128;

/// Starts per shard of a bumped layer, as a power of two.
const SHARD_BITS: u32 = 16;

/// Starts of a bucket below this offset are bumped, by the bucket's threshold.
const BUMPED_BELOW: [u8; 4] = [128, 40, 16, 0];

/// Slots per block.
const BLOCK_SLOTS: u64 = 64;

/// Slots in the window of a row of the last layer.
const WIDE: u64 = 128;

/// The fewest keys of which [`FilterKind::Auto`](crate::FilterKind::Auto) makes a ribbon filter. It has
/// [`WIDE`] slots at least; of fewer than `WIDE · ln 2` = 89 keys a Bloom filter of as many bits has the
/// lower rate. Somewhat more have to make up for the time that a ribbon takes.
pub(super) const KEYS_MIN: u64 = 96;

/// Starts that the hash has for the first start and not for others, and as many for the last: without them
/// the outermost slots of the last layer would have too few rows.
const SMASH: u64 = 63;

/// Most columns of any block.
pub(super) const COLUMNS_MAX: u8 = 32;

/// Most attempts at the last layer.
const ATTEMPTS_MAX: u16 = 256;
