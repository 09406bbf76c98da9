//! Guides: one page for each topic. The tests compile and run their examples.
//!
//! - [`durability`]: writes that survive a crash, the cost of a sync, and closing.
//! - [`conditional`]: inserts and updates that depend on the current value.
//! - [`transactions`]: atomic reads and writes of several keys.
//! - [`iteration`]: snapshots, ranges, cursors, and the resources that they hold.
//! - [`live_reads`]: reading a store while another process writes to it.
//! - [`filters`]: the choice of a kind, the number of bits, and measurements.
//! - [`memory`]: the memory budget, and the memory that it does not count.
//! - [`errors`]: the errors, which of them to handle, and how.
//! - [`repair`]: a new store from the readable data of a damaged one.

#[doc = include_str!("durability.md")]
pub mod durability {}

#[doc = include_str!("conditional.md")]
pub mod conditional {}

#[doc = include_str!("transactions.md")]
pub mod transactions {}

#[doc = include_str!("iteration.md")]
pub mod iteration {}

#[doc = include_str!("deletion.md")]
pub mod deletion {}

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
