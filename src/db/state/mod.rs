//! What an open store consists of. Nothing here starts work: the rooms above decide when it changes.
//!
//! | file | state |
//! |---|---|
//! | `lifecycle` | whether the store takes reads and writes, and why not |
//! | `failure` | which failures end writing; panics as errors |
//! | `files` | directory, lock, file numbers, obsolete files |
//! | `log`, `next_log` | the log in use, and the one prepared after it |
//! | `keyspace/` | trees: memtables and version of each keyspace, and the changes of a tree |
//! | `snapshot_list`, `completions` | live snapshots; commits whose durability is reported later |
//! | `disk_space/` | what is kept free for a full disk, and the file `RESERVE` |
//! | `expiry/` | the clock, and the horizons that snapshots take |
//! | `durability`, `open_report`, `progress` | values that callers pass or get |
//! | `parallel`, `switch_points` | helpers: work in threads; places where tests switch threads |

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
