//! Who waits for what.
//!
//! | file | responsibility |
//! |---|---|
//! | `commit_queue` | writers that wait for the commit leader, and what they want |
//! | `priority` | writers that lost many times: pauses, then priority |
//! | `condition`, `read_set`, `intervals`, `bits`, `value` | conditions of batches, as data |
//! | `job_queue` | keyspaces with work for the background, by urgency |
//! | `reservations` | what running jobs work on, and the signal that something has changed |
//! | `retry` | work that failed and is tried again |
//! | `workers` | the background threads |

pub(in crate::db) mod bits;
pub(in crate::db) mod commit_queue;
pub(in crate::db) mod condition;
pub(in crate::db) mod intervals;
pub(in crate::db) mod job_queue;
pub(in crate::db) mod priority;
pub(in crate::db) mod read_set;
pub(in crate::db) mod reservations;
pub(in crate::db) mod retry;
pub(in crate::db) mod value;
pub(in crate::db) mod workers;
