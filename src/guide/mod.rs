//! Guides: one page each on what a program that uses a store should know. Their code is compiled and run by the tests.
//!
//! - [`durability`]: what survives what, what a sync costs, what a crash leaves.
//! - [`iteration`]: snapshots, ranges, and what they hold on to.
//! - [`filters`]: which one to choose, how many bits, and how to see what they do.
//! - [`memory`]: the one budget, what counts against it and what does not.
//! - [`errors`]: which there are, which of them to handle, and how.

#[doc = include_str!("durability.md")]
pub mod durability {}

#[doc = include_str!("iteration.md")]
pub mod iteration {}

#[doc = include_str!("filters.md")]
pub mod filters {}

#[doc = include_str!("memory.md")]
pub mod memory {}

#[doc = include_str!("errors.md")]
pub mod errors {}
