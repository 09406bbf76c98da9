//! `sievedb demo`: the reads saved by filters, shown on the files of this machine.
//!
//! 1. `source` collects records: the file paths under a directory, or the lines of a file.
//! 2. `absent` makes as many similar keys that are not among them.
//! 3. `home` opens a store, `claim` makes sure that its keyspaces are empty and the demo's own.
//! 4. `run` loads the records in random order into two keyspaces with default options, one with filters and
//!    one without, and has both measured twice: as loaded, and compacted into one run.
//! 5. `measure` looks up every key, present and absent, checks each answer, and counts the blocks read.
//! 6. `page` writes a page about the store, for a browser; `report` prints the result, `findings`, on one screen.
//!
//! The demo does the background work itself, in steps between batches, and everything random comes from one
//! printed seed: the same input makes the same tree.

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
