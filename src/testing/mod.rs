//! Tests of the whole crate, and their shared helpers.
//!
//! | module | subject |
//! |---|---|
//! | `format` | code, `format.md` and golden files agree |
//! | `fuzzing` | a function of bytes per fuzz target, run again by `cargo test` |
//! | `layers` | modules import only from lower layers |
//! | `guide` | the index of the guide and the README name every page |
//!
//! Helpers shared with the tests of the filter crate are in that crate's `testing`.

#[cfg(test)]
mod format;
pub mod fuzzing;
#[cfg(test)]
mod guide;
#[cfg(test)]
mod layers;

#[cfg(test)]
pub(crate) use sievedb_filter::testing::*;
