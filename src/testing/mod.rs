//! Tests of the whole crate, and what they share.
//!
//! | folder | what is tested |
//! |---|---|
//! | `format` | code, `format.md` and golden files say the same |
//! | `fuzzing` | a function of bytes per fuzz target, run again by `cargo test` |
//! | `layers` | modules import only what is below them |
//!
//! The tests of one module are beside it, those of whole stores in `tests/`. Helpers that the filter crate's
//! tests need too are in its own `testing`.

#[cfg(test)]
mod format;
pub mod fuzzing;
#[cfg(test)]
mod layers;

#[cfg(test)]
pub(crate) use sievedb_filter::testing::*;
