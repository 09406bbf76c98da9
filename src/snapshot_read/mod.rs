//! The view of a reader at a snapshot: the newest visible entry of each user key, if it is a put.
//!
//! - [`KeyBounds`]: a range as callers write it; [`KeyRange`]: a range with owned bounds;
//! - [`Forward`] and [`Backward`]: one direction over one source ([`Visible`]);
//! - [`Range`]: both directions until they meet, for the users' iterators;
//! - [`Cursor`]: both directions in turn, from any position.
//!
//! After [`STEPS_MAX`] entries of a user key, a seek skips the rest. Recorded hidden keys are skipped too
//! ([`EmptyRanges`]).

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

/// After this many entries of a user key, a read seeks. A seek costs about this many steps in a merge of a few sources.
const STEPS_MAX: usize = 8;
