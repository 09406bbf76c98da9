//! State of an open store. Its functions may access files and run callbacks, but they queue and run no jobs.
//!
//! | file | state |
//! |---|---|
//! | `lifecycle` | whether reads and writes are accepted |
//! | `failure` | failures that end writing; panics as errors |
//! | `files` | directory, lock, file numbers, obsolete files |
//! | `log`, `next_log` | the active log, and the prepared one |
//! | `keyspace/` | trees: memtables and versions, and their changes |
//! | `snapshot_list`, `completions` | live snapshots; incomplete commits |
//! | `disk_space/` | reserved disk space |
//! | `expiry/` | the clock, and horizons of snapshots |
//! | `durability`, `open_report`, `progress` | values passed to or by callers |
//! | `parallel`, `switch_points` | helpers: parallel work; thread switches of tests |

pub(in crate::db) mod completions;
pub(in crate::db) mod disk_space;
pub(in crate::db) mod durability;
pub(in crate::db) mod expiry;
pub(in crate::db) mod failure;
pub(in crate::db) mod files;
pub(in crate::db) mod keyspace;
pub(in crate::db) mod lifecycle;
pub(in crate::db) mod log;
pub(in crate::db) mod next_log;
pub(in crate::db) mod open_report;
pub(in crate::db) mod parallel;
pub(in crate::db) mod progress;
pub(in crate::db) mod snapshot_list;
pub(in crate::db) mod switch_points;
