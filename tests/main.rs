//! Tests of the whole store, one module per topic.

#![expect(clippy::disallowed_methods, reason = "tests spell out keys and the bytes that they expect")]

mod allocation;
mod bank;
mod basics;
mod buckets;
mod budget;
mod checkpoint;
mod compaction;
mod completion;
mod concurrency;
mod conditional;
mod conditional_losses;
mod crash;
mod damage;
mod directory;
mod drops;
mod expiry;
mod faults;
#[cfg(target_os = "linux")]
mod fd;
mod filters;
mod first_tries;
#[cfg(unix)]
mod fork;
mod full_disk;
mod inserts;
mod interleavings;
#[cfg(unix)]
mod kill;
mod limits;
mod live_files;
mod live_view;
mod model;
mod next_log;
#[cfg(unix)]
mod once;
mod order;
mod range_deletes;
mod repair;
mod repair_losses;
mod resume;
mod small_disk;
mod support;
mod tombstones;
mod transactions;
mod unchanged;
mod verify;
