//! The visible entries of a range, from both ends.
//!
//! It has two independent halves: one goes up from the start, the other down from the end, each over its own
//! source (a shared one would have to turn round at every change of ends). A half is built when it is first
//! used. A key that one half yields becomes the exclusive bound of the other, so that each key is yielded
//! once. When one half reaches its bound, nothing is left, and both are dropped with everything that they
//! pin.
//!
//! After an error the iterator has ended, and its sources are dropped: the error is yielded once, and every later
//! call returns `None`. This `None` does not mean that everything was read, but a loop that ignores errors
//! (`flatten`, `count`) ends. No entry is yielded after an error.

use std::fmt;
use std::ops::Bound;
use std::sync::Mutex;

use bytes::Bytes;

use super::half::Half;
use super::{Backward, Entry, Forward, KeyRange, Moment, Visible};
use crate::error::{Error, Result};
use crate::iter::InternalIterator;
use crate::sync::get_mut;

/// Makes the source of a half: a fresh iterator over all entries that the snapshot may need. It also keeps the
/// underlying data alive until the range has ended.
pub(super) type Source<S> = Box<dyn FnMut() -> Result<S> + Send>;

/// The visible keys and values of a range, from both ends.
pub(crate) struct Range<S> {
    /// `None` once everything was yielded, or after an error. Only ever reached through `&mut`: the lock is
    /// never taken, it makes the range `Sync` although internal iterators are not.
    halves: Mutex<Option<Halves<S>>>,
    /// Hidden entries that were skipped before the end and not taken.
    skipped: u64,
}

/// The halves, each made when it is first used.
pub(super) struct Halves<S> {
    source: Source<S>,
    moment: Moment,
    pub(super) range: KeyRange,
    forward: Option<Forward<S>>,
    backward: Option<Backward<S>>,
}

impl<S: InternalIterator> Range<S> {
    /// The entries of `range` that are visible at this moment. Nothing is read before the first call.
    pub(crate) fn new(source: Source<S>, moment: impl Into<Moment>, range: KeyRange) -> Self {
        let halves = (!range.is_empty()).then(|| Halves::new(source, moment.into(), range));
        Self { halves: Mutex::new(halves), skipped: 0 }
    }

    /// Ends the range: it yields nothing more and pins nothing.
    #[cold]
    pub(crate) fn end(&mut self) {
        self.skipped += self.take_skipped();
        *get_mut(&mut self.halves) = None;
    }

    /// How many hidden entries (tombstones, and what newer entries hide) were skipped since the last call.
    #[inline]
    pub(crate) fn take_skipped(&mut self) -> u64 {
        let present = get_mut(&mut self.halves).as_mut().map_or(0, Halves::take_skipped);
        std::mem::take(&mut self.skipped) + present
    }

    /// The next entry.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<Visible<'_, S>>> {
        let Some(halves) = get_mut(&mut self.halves) else { return Ok(None) };
        match halves.step_up() {
            Ok(true) => Ok(get_mut(&mut self.halves).as_mut().and_then(|halves| lent(&mut halves.forward))),
            over => self.over(over),
        }
    }

    /// The same from the other end.
    #[inline(always)]
    pub(crate) fn next_back(&mut self) -> Result<Option<Visible<'_, S>>> {
        let Some(halves) = get_mut(&mut self.halves) else { return Ok(None) };
        match halves.step_down() {
            Ok(true) => Ok(get_mut(&mut self.halves).as_mut().and_then(|halves| lent(&mut halves.backward))),
            over => self.over(over),
        }
    }

    /// Handles a step without a result: the range has ended.
    #[cold]
    fn over(&mut self, found: Result<bool, Box<Error>>) -> Result<Option<Visible<'_, S>>> {
        self.end();
        found.map(|_| None).map_err(|error| *error)
    }
}

impl<S: InternalIterator> Halves<S> {
    pub(super) fn new(source: Source<S>, moment: Moment, range: KeyRange) -> Self {
        Self { source, moment, range, forward: None, backward: None }
    }

    /// The hidden entries that were skipped since the last call.
    #[inline]
    pub(super) fn take_skipped(&mut self) -> u64 {
        let forward = self.forward.as_mut().map_or(0, |half| std::mem::take(half.skipped()));
        let backward = self.backward.as_mut().map_or(0, |half| std::mem::take(half.skipped()));
        forward + backward
    }

    /// Goes to the next entry, and keeps the other half off it.
    #[inline(always)]
    fn step_up(&mut self) -> Result<bool, Box<Error>> {
        let Self { source, moment, range, forward, backward } = self;
        step_beside(forward, backward, |other| begin_beside(source, moment, range, other))
    }

    /// The same from the other end.
    #[inline(always)]
    fn step_down(&mut self) -> Result<bool, Box<Error>> {
        let Self { source, moment, range, forward, backward } = self;
        step_beside(backward, forward, |other| begin_beside(source, moment, range, other))
    }

    /// The first entry from `start` on, or the next one, whatever the other half has yielded.
    pub(super) fn rise(&mut self, start: Option<Bound<Bytes>>) -> Result<Option<Entry>> {
        let range = start.map(|start| KeyRange { start, end: self.range.end.clone() });
        go(&mut self.forward, range, &mut self.source, &self.moment)
    }

    /// The last entry up to `end`, or the previous one.
    pub(super) fn sink(&mut self, end: Option<Bound<Bytes>>) -> Result<Option<Entry>> {
        let range = end.map(|end| KeyRange { start: self.range.start.clone(), end });
        go(&mut self.backward, range, &mut self.source, &self.moment)
    }
}

/// The entry to which the last step of a half went.
#[inline(always)]
fn lent<S, H: Half<S>>(half: &mut Option<H>) -> Option<Visible<'_, S>> {
    half.as_mut().map(Half::here)
}

/// Steps a half, which `begin` makes if it is missing, and keeps the other half off the entry.
#[inline(always)]
fn step_beside<S, H: Half<S>, O: Half<S>>(
    half: &mut Option<H>,
    other: &mut Option<O>,
    begin: impl FnOnce(&Option<O>) -> Result<H>,
) -> Result<bool, Box<Error>> {
    if half.is_none() {
        *half = Some(begin(other)?);
    }
    let Some(half) = half else { return Ok(false) };
    let found = half.step()?;
    if let Some(other) = other
        && found
    {
        other.stop_before(Bytes::copy_from_slice(half.here().key));
    }
    Ok(found)
}

/// A half that ends where the other one is.
#[cold]
fn begin_beside<S, H: Half<S>, O: Half<S>>(
    source: &mut Source<S>,
    moment: &Moment,
    range: &KeyRange,
    other: &Option<O>,
) -> Result<H> {
    let mut half = H::new(source()?, moment.clone(), range.clone());
    if let Some(last) = other.as_ref().and_then(O::last) {
        half.stop_before(Bytes::copy_from_slice(last));
    }
    Ok(half)
}

/// Steps a half, after it has begun again if there is a range.
fn go<S: InternalIterator, H: Half<S>>(
    half: &mut Option<H>,
    range: Option<KeyRange>,
    source: &mut Source<S>,
    moment: &Moment,
) -> Result<Option<Entry>> {
    match (range, &mut *half) {
        (Some(range), _) if range.is_empty() => return Ok(None),
        (Some(range), Some(half)) => half.restart(range),
        (Some(range), None) => *half = Some(H::new(source()?, moment.clone(), range)),
        (None, _) => {}
    }
    let Some(half) = half else { return Ok(None) };
    Ok(half.next()?.map(Visible::into_entry))
}

impl<S> fmt::Debug for Range<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}
