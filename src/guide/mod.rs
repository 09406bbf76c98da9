//! Guides: one page for each topic. The tests compile and run their examples.
//!
//! | page | topic |
//! |---|---|
//! | [`durability`] | writes that survive a crash, the cost of a sync, and closing |
//! | [`conditional`] | inserts and updates that depend on the current value |
//! | [`transactions`] | atomic reads and writes of several keys |
//! | [`iteration`] | snapshots, ranges, cursors, and the resources that they hold |
//! | [`deletion`] | entries that expire, deletes of keys and ranges, their cost, and the choice between them |
//! | [`live_reads`] | copies and backups of a store in use, and reads next to a writer in another process |
//! | [`filters`] | the choice of a kind, the number of bits, and measurements |
//! | [`memory`] | the memory budget, and the memory that it does not count |
//! | [`errors`] | the errors, which of them to handle, and how |
//! | [`repair`] | a new store from the readable data of a damaged one |
//! | [`migration`] | data from RocksDB, fjall, LMDB, Redis and SQLite, and back |

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

#[doc = include_str!("migration.md")]
pub mod migration {}
