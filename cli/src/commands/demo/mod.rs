//! `sievedb demo`: the reads that filters save, on the files of this machine.
//!
//! 1. `source` collects records.
//! 2. `absent` makes as many similar absent keys.
//! 3. `home` opens a store; `claim` checks that its keyspaces belong to the demo, and empties them.
//! 4. `run` loads the records in random order into two keyspaces, with filters and without, and measures both as
//!    loaded and compacted into one run.
//! 5. `measure` looks up every key and counts the blocks read.
//! 6. `page` writes a page for a browser; `report` prints the `findings`.
//!
//! Deterministic for an input: the demo runs background work itself between batches, and prints its seed.

mod absent;
mod claim;
mod findings;
mod home;
mod measure;
mod page;
mod random;
mod report;
mod run;
mod source;

pub(crate) use run::{Args, run};
