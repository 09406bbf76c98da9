//! A position among the visible entries of a range, that moves to either side and jumps.
//!
//! It is before the range, at an entry, or after the range. Two halves move it, each over its own source, as in
//! [`Range`](super::Range). A step in the direction of the last movement is a step of that half. After a change of
//! direction, the other half starts again at the current entry, which costs as much as a jump. (A shared source would
//! cost the same: a merge moves all its sources when it changes direction.)
//!
//! After an error every movement fails with the same error.

use std::ops::Bound;
use std::sync::Mutex;

use bytes::Bytes;

use super::range::{Halves, Source};
use super::{Entry, KeyRange, Moment};
use crate::error::{Error, Result};
use crate::iter::InternalIterator;
use crate::sync::get_mut;

/// Where a cursor is.
pub(crate) enum Place {
    /// Not moved yet: the first step goes to an end.
    New,
    /// Before the first entry of the range.
    Before,
    At(Entry),
    /// After the last entry of the range.
    After,
    Failed(Error),
}

impl Place {
    pub(crate) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::At(entry) => Some(entry),
            _ => None,
        }
    }

    /// Moves to the result of a movement: an entry, or the end in its direction. Returns whether it is at an entry.
    pub(crate) fn arrive(&mut self, found: Result<Option<Entry>>, upward: bool) -> Result<bool> {
        *self = match found {
            Ok(Some(entry)) => Self::At(entry),
            Ok(None) if upward => Self::After,
            Ok(None) => Self::Before,
            Err(error) => Self::Failed(error),
        };
        match self {
            Self::Failed(error) => Err(error.clone()),
            place => Ok(matches!(place, Self::At(_))),
        }
    }
}

/// Where a cursor is to go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Movement<'k> {
    /// To the first entry.
    First,
    /// To the last entry.
    Last,
    /// To the first entry at or after this key.
    Seek(&'k [u8]),
    /// To the last entry at or before this key.
    SeekForPrev(&'k [u8]),
    /// One entry up.
    Next,
    /// One entry down.
    Prev,
}

/// A movable position in a range.
pub(crate) struct Cursor<S> {
    place: Place,
    /// Whether `place` was reached going up.
    upward: bool,
    /// Only ever reached through `&mut`: see [`Range`](super::Range).
    halves: Mutex<Halves<S>>,
}

impl<S: InternalIterator> Cursor<S> {
    /// A cursor over the entries of `range` that are visible at this moment. Nothing is read before it is moved.
    pub(crate) fn new(source: Source<S>, moment: Moment, range: KeyRange) -> Self {
        Self { place: Place::New, upward: true, halves: Mutex::new(Halves::new(source, moment, range)) }
    }

    /// The entry at which it is.
    pub(crate) fn entry(&self) -> Option<&Entry> {
        self.place.entry()
    }

    /// Moves. Whether it has arrived at an entry.
    pub(crate) fn go(&mut self, movement: Movement<'_>) -> Result<bool> {
        let halves = get_mut(&mut self.halves);
        let range = &halves.range;
        let at = |key| Some(Bound::Included(Bytes::copy_from_slice(key)));
        // Whether to go up, and from where: `None` is a step of the half that moved last.
        let (upward, from) = match (movement, &self.place) {
            (_, Place::Failed(error)) => return Err(error.clone()),
            (Movement::Next, Place::After) | (Movement::Prev, Place::Before) => return Ok(false),
            (Movement::Next, Place::At(_)) if self.upward => (true, None),
            (Movement::Prev, Place::At(_)) if !self.upward => (false, None),
            (Movement::Next, Place::At((key, _))) => (true, Some(Bound::Excluded(key.clone()))),
            (Movement::Prev, Place::At((key, _))) => (false, Some(Bound::Excluded(key.clone()))),
            (Movement::Seek(key), _) if !range.starts_after(key) => (true, at(key)),
            (Movement::SeekForPrev(key), _) if !range.ends_before(key) => (false, at(key)),
            (Movement::First | Movement::Seek(_) | Movement::Next, _) => (true, Some(range.start.clone())),
            (Movement::Last | Movement::SeekForPrev(_) | Movement::Prev, _) => {
                (false, Some(range.end.clone()))
            }
        };
        let found = if upward { halves.rise(from) } else { halves.sink(from) };
        self.upward = upward;
        self.place.arrive(found, upward)
    }

    /// How many hidden entries (tombstones, and what newer entries hide) were skipped since the last call.
    pub(crate) fn take_skipped(&mut self) -> u64 {
        get_mut(&mut self.halves).take_skipped()
    }
}
