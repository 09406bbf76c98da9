//! A write in the thread of its caller, up to the commit queue and after it.
//!
//! | file | responsibility |
//! |---|---|
//! | `batch` | a plain batch: wait, lead or queue, wait for a sync |
//! | `stall` | back-pressure: when a writer is delayed or has to wait, and the background work it does meanwhile |
//! | `conditional_loop` | look, let the leader decide, look again |
//! | `inserts`, `key_writes` | the conditional calls: inserts of many keys, writes of one key |
//! | `sight` | refused inserts that restart the time of their keys |
//! | `expiry` | another time to live, and the time that a caller sets |
//! | `completion` | writes whose durability is reported later |

mod batch;
pub(in crate::db) mod completion;
pub(in crate::db) mod conditional_loop;
mod expiry;
pub(in crate::db) mod inserts;
pub(in crate::db) mod key_writes;
mod sight;
pub(in crate::db) mod stall;
