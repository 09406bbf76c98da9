//! A movable position among the visible entries of a range: before it, at an entry, or after it.
//!
//! Two halves move it, each over its own source, as in [`Range`](super::Range). After a change of direction, the other
//! half jumps to the current entry. After an error, every call returns the same error.

use std::ops::Bound;
use std::sync::Mutex;

use bytes::Bytes;

use super::range::{Halves, Source};
use super::{Entry, KeyRange, Moment};
use crate::error::{Error, Result};
use crate::iter::InternalIterator;
use crate::sync::get_mut;

pub(crate) enum Place {
    New,
    Before,
    At(Entry),
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

#[derive(Debug, Clone, Copy)]
pub(crate) enum Movement<'k> {
    First,
    Last,
    Seek(&'k [u8]),
    SeekForPrev(&'k [u8]),
    Next,
    Prev,
}

pub(crate) struct Cursor<S> {
    place: Place,
    upward: bool,
    halves: Mutex<Halves<S>>,
}

impl<S: InternalIterator> Cursor<S> {
    pub(crate) fn new(source: Source<S>, moment: Moment, range: KeyRange) -> Self {
        Self { place: Place::New, upward: true, halves: Mutex::new(Halves::new(source, moment, range)) }
    }

    pub(crate) fn entry(&self) -> Option<&Entry> {
        self.place.entry()
    }

    pub(crate) fn go(&mut self, movement: Movement<'_>) -> Result<bool> {
        let halves = get_mut(&mut self.halves);
        let range = &halves.range;
        let at = |key| Some(Bound::Included(Bytes::copy_from_slice(key)));
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

    pub(crate) fn take_skipped(&mut self) -> u64 {
        get_mut(&mut self.halves).take_skipped()
    }
}
