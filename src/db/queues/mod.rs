//! Queues of writers, of background jobs and of failed work.
//!
//! | file | responsibility |
//! |---|---|
//! | `commit_queue` | writers that wait for the commit leader |
//! | `priority` | back-off and priority after lost tries |
//! | `condition`, `read_set`, `intervals`, `bits`, `value` | conditions of batches, as data |
//! | `job_queue` | keyspaces with background work, by urgency |
//! | `reservations` | resources of running jobs, and the change signal |
//! | `retry` | failed work and its retries |
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
