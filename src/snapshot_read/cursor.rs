//! A position among the visible entries of a range, that moves to either side and jumps.
//!
//! It is before the range, at an entry, or after the range. Two halves move it, each over its own source, as in
//! [`Range`](super::Range): a step in the direction of the last movement is a step of that half; after a change
//! of direction, the other half begins again beside the current entry, which costs as much as a jump. (A shared
//! source would cost the same: a merge moves all its sources when it turns round.)
//!
//! After an error every movement fails with the same error.

use std::ops::Bound;
use std::sync::Mutex;

use bytes::Bytes;

use super::range::Source;
use super::{Backward, Entry, Forward, KeyRange, Visible};
use crate::error::{Error, Result};
use crate::iter::InternalIterator;
use crate::key::SeqNo;
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

    /// Goes to what a movement has found: an entry, or none in its direction. Whether it is at an entry.
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
    seqno: SeqNo,
    range: KeyRange,
    place: Place,
    /// Whether `place` was reached going up.
    upward: bool,
    /// Only ever reached through `&mut`: see [`Range`](super::Range).
    halves: Mutex<Halves<S>>,
}

/// The halves, each made when it is first used.
struct Halves<S> {
    source: Source<S>,
    forward: Option<Forward<S>>,
    backward: Option<Backward<S>>,
}

impl<S: InternalIterator> Cursor<S> {
    /// A cursor over the entries of `range` that are visible at `seqno`. Nothing is read before it is moved.
    pub(crate) fn new(source: Source<S>, seqno: SeqNo, range: KeyRange) -> Self {
        let halves = Mutex::new(Halves { source, forward: None, backward: None });
        Self { seqno, range, place: Place::New, upward: true, halves }
    }

    /// The entry at which it is.
    pub(crate) fn entry(&self) -> Option<&Entry> {
        self.place.entry()
    }

    /// Moves. Whether it has arrived at an entry.
    pub(crate) fn go(&mut self, movement: Movement<'_>) -> Result<bool> {
        match movement {
            Movement::First => self.seek_first(),
            Movement::Last => self.seek_last(),
            Movement::Seek(key) => self.seek(key),
            Movement::SeekForPrev(key) => self.seek_for_prev(key),
            Movement::Next => self.next(),
            Movement::Prev => self.prev(),
        }
    }

    fn seek_first(&mut self) -> Result<bool> {
        self.rise(Some(self.range.start.clone()))
    }

    fn seek_last(&mut self) -> Result<bool> {
        self.sink(Some(self.range.end.clone()))
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let start = match self.range.starts_after(key) {
            true => self.range.start.clone(),
            false => Bound::Included(Bytes::copy_from_slice(key)),
        };
        self.rise(Some(start))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        let end = match self.range.ends_before(key) {
            true => self.range.end.clone(),
            false => Bound::Included(Bytes::copy_from_slice(key)),
        };
        self.sink(Some(end))
    }

    fn next(&mut self) -> Result<bool> {
        match &self.place {
            Place::New | Place::Before => self.seek_first(),
            Place::At(_) if self.upward => self.rise(None),
            Place::At((key, _)) => self.rise(Some(Bound::Excluded(key.clone()))),
            Place::After => Ok(false),
            Place::Failed(error) => Err(error.clone()),
        }
    }

    fn prev(&mut self) -> Result<bool> {
        match &self.place {
            Place::New | Place::After => self.seek_last(),
            Place::At(_) if !self.upward => self.sink(None),
            Place::At((key, _)) => self.sink(Some(Bound::Excluded(key.clone()))),
            Place::Before => Ok(false),
            Place::Failed(error) => Err(error.clone()),
        }
    }

    /// How many hidden entries (tombstones, and what newer entries hide) were skipped since the last call.
    pub(crate) fn take_skipped(&mut self) -> u64 {
        let Halves { forward, backward, .. } = get_mut(&mut self.halves);
        let up = forward.as_mut().map_or(0, |half| std::mem::take(&mut half.skipped));
        let down = backward.as_mut().map_or(0, |half| std::mem::take(&mut half.skipped));
        up + down
    }

    /// Goes up: to the first entry from `start` on, or to the next one.
    fn rise(&mut self, start: Option<Bound<Bytes>>) -> Result<bool> {
        let found = self.step_up(start);
        self.arrive(found, true)
    }

    /// Goes down: to the last entry up to `end`, or to the previous one.
    fn sink(&mut self, end: Option<Bound<Bytes>>) -> Result<bool> {
        let found = self.step_down(end);
        self.arrive(found, false)
    }

    fn step_up(&mut self, start: Option<Bound<Bytes>>) -> Result<Option<Entry>> {
        if let Place::Failed(error) = &self.place {
            return Err(error.clone());
        }
        let Halves { source, forward: half, .. } = get_mut(&mut self.halves);
        if let Some(start) = start {
            let range = KeyRange { start, end: self.range.end.clone() };
            if range.is_empty() {
                return Ok(None);
            }
            match half {
                Some(half) => half.restart(range.start),
                None => *half = Some(Forward::new(source()?, self.seqno, range)),
            }
        }
        let Some(half) = half else { return Ok(None) };
        Ok(half.next()?.map(Visible::into_entry))
    }

    fn step_down(&mut self, end: Option<Bound<Bytes>>) -> Result<Option<Entry>> {
        if let Place::Failed(error) = &self.place {
            return Err(error.clone());
        }
        let Halves { source, backward: half, .. } = get_mut(&mut self.halves);
        if let Some(end) = end {
            let range = KeyRange { start: self.range.start.clone(), end };
            if range.is_empty() {
                return Ok(None);
            }
            match half {
                Some(half) => half.restart(range.end),
                None => *half = Some(Backward::new(source()?, self.seqno, range)),
            }
        }
        let Some(half) = half else { return Ok(None) };
        Ok(half.next()?.map(Visible::into_entry))
    }

    fn arrive(&mut self, found: Result<Option<Entry>>, upward: bool) -> Result<bool> {
        self.upward = upward;
        self.place.arrive(found, upward)
    }
}
