//! Guides: one page for each topic. The tests compile and run their examples.
//!
//! - [`durability`]: what survives a crash, what a sync costs, and what closing does.
//! - [`conditional`]: writes that depend on what is there.
//! - [`transactions`]: several keys at one moment.
//! - [`iteration`]: snapshots, ranges, and what they keep alive.
//! - [`live_reads`]: copies of a store in use, and reading it while another process writes to it.
//! - [`filters`]: which kind to choose, how many bits, and how to measure.
//! - [`memory`]: the memory budget, what counts against it and what does not.
//! - [`errors`]: which errors there are, which of them to handle, and how.
//! - [`repair`]: what to do with a damaged store.

#[doc = include_str!("durability.md")]
pub mod durability {}

#[doc = include_str!("conditional.md")]
pub mod conditional {}

#[doc = include_str!("transactions.md")]
pub mod transactions {}

#[doc = include_str!("iteration.md")]
pub mod iteration {}

#[doc = include_str!("live_reads.md")]
pub mod live_reads {}

#[doc = include_str!("filters.md")]
pub mod filters {}

#[doc = include_str!("memory.md")]
pub mod memory {}

#[doc = include_str!("errors.md")]
pub mod errors {}

#[doc = include_str!("repair.md")]
pub mod repair {}
