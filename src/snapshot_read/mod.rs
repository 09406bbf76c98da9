//! The view of a reader at a snapshot: for each user key the newest entry up to the snapshot, or no entry if that one
//! is a tombstone.
//!
//! - [`KeyBounds`]: a range as callers write it; [`KeyRange`]: the part of the key space that is read;
//! - [`Forward`] and [`Backward`]: one direction over one source. Their results are borrowed ([`Visible`]);
//! - [`Range`]: both directions at once, from both ends until they meet; the base of the users' iterators;
//! - [`Cursor`]: both by turns, from anywhere.
//!
//! A source with many invisible versions of a key, or many tombstones, is skipped in loops, never by recursion. After
//! [`STEPS_MAX`] entries of one user key a seek skips the rest. After a few hidden keys a seek skips the keys that an
//! earlier scan found hidden ([`EmptyRanges`]).

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

/// Entries of one user key that are stepped over before the iterator seeks instead. A seek costs about as
/// much as this many steps in a merge of a few sources.
const STEPS_MAX: usize = 8;
