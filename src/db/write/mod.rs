//! A write in its caller's thread, before and after the commit queue.
//!
//! | file | responsibility |
//! |---|---|
//! | `batch` | plain batches |
//! | `stall` | back-pressure: delays and waits, and background work by writers |
//! | `conditional_loop` | the loop of conditional writes |
//! | `inserts`, `key_writes` | inserts of many keys; writes of one key |
//! | `sight` | refused inserts that restart the time to live of their keys |
//! | `expiry` | time to live, and caller-set time |
//! | `completion` | writes whose durability is reported later |

mod batch;
pub(in crate::db) mod completion;
pub(in crate::db) mod conditional_loop;
mod expiry;
pub(in crate::db) mod inserts;
pub(in crate::db) mod key_writes;
mod sight;
pub(in crate::db) mod stall;
