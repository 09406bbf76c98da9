//! Tests of the whole crate, and their shared helpers.
//!
//! | module | subject |
//! |---|---|
//! | `format` | code, `format.md` and golden files say the same |
//! | `fuzzing` | a function of bytes per fuzz target, run again by `cargo test` |
//! | `layers` | modules import only what is below them |
//! | `guide` | the index of the guide and the README name every page |
//!
//! The tests of a module are at its end, and tests of whole stores in `tests/`. Helpers that the tests of the filter crate
//! also need are in that crate's `testing`.

#[cfg(test)]
mod format;
pub mod fuzzing;
#[cfg(test)]
mod guide;
#[cfg(test)]
mod layers;

#[cfg(test)]
pub(crate) use sievedb_filter::testing::*;
