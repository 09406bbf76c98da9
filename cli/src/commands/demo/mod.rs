//! `sievedb demo`: what the filters do, shown on what this machine has lying about.
//!
//! 1. `source` collects records: the file paths under a directory, or the lines of a file.
//! 2. `absent` makes as many keys of the same shape that are not among them.
//! 3. `home` readies a place: a keyspace that is empty and certainly the demo's own.
//! 4. `run` loads the records in random order into two keyspaces, one with filters and one without, and has
//!    both measured twice: as loading leaves them, with several runs to ask, and compacted into one.
//! 5. `measure` looks up every key, present and absent, checks each answer, and counts what that touched.
//! 6. `report` prints it, on one screen.
//!
//! Background work is done in steps by the demo itself, between batches, and all that is random comes from
//! one printed seed: the same input makes the same tree.

mod absent;
mod home;
mod measure;
mod random;
mod report;
mod run;
mod source;

pub(crate) use run::{Args, run};
