//! The view of a reader at a snapshot: for each user key the newest visible entry, if it is a put.
//!
//! - [`KeyBounds`]: a range as callers write it; [`KeyRange`]: with owned bounds;
//! - [`Forward`] and [`Backward`]: one direction over one source ([`Visible`]);
//! - [`Range`]: from both ends until they meet, for the users' iterators;
//! - [`Cursor`]: both directions by turns, from anywhere.
//!
//! Seeks skip the rest after [`STEPS_MAX`] entries of a user key, and recorded hidden keys ([`EmptyRanges`]).

mod backward;
mod bounds;
mod cursor;
mod empty_ranges;
mod forward;
mod half;
mod hidden_run;
mod key_range;
mod range;
#[cfg(test)]
mod tests;
mod visible;

use backward::Backward;
pub use bounds::KeyBounds;
pub(crate) use cursor::{Cursor, Movement, Place};
pub(crate) use empty_ranges::EmptyRanges;
use forward::Forward;
pub(crate) use hidden_run::Moment;
pub(crate) use key_range::{KeyRange, successor};
pub(crate) use range::Range;
pub(crate) use visible::{Entry, Visible};

/// Entries of one user key to step over before seeking. A seek costs about this many steps in a merge of a few sources.
const STEPS_MAX: usize = 8;
