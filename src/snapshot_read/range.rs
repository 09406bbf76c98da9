//! The visible entries of a range, from both ends.
//!
//! Each of the two halves has its own source, because a shared source would turn round at every change of direction. A
//! key that one half yields becomes the exclusive bound of the other. When a half reaches its bound, both are dropped.
//!
//! An error is yielded once, then every call returns `None`, so that a loop that ignores errors (`flatten`, `count`)
//! ends.

use std::fmt;
use std::ops::Bound;
use std::sync::Mutex;

use bytes::Bytes;

use super::half::Half;
use super::{Backward, Entry, Forward, KeyRange, Moment, Visible};
use crate::error::{Error, Result};
use crate::iter::InternalIterator;
use crate::sync::get_mut;

/// An iterator over all entries that the snapshot may need.
pub(super) type Source<S> = Box<dyn FnMut() -> Result<S> + Send>;

pub(crate) struct Range<S> {
    /// `None` at the end or after an error. The mutex is never locked. It makes the range `Sync`, because internal
    /// iterators are not.
    halves: Mutex<Option<Halves<S>>>,
    skipped: u64,
}

pub(super) struct Halves<S> {
    source: Source<S>,
    moment: Moment,
    pub(super) range: KeyRange,
    forward: Option<Forward<S>>,
    backward: Option<Backward<S>>,
}

impl<S: InternalIterator> Range<S> {
    /// Reads nothing before the first call.
    pub(crate) fn new(source: Source<S>, moment: impl Into<Moment>, range: KeyRange) -> Self {
        let halves = (!range.is_empty()).then(|| Halves::new(source, moment.into(), range));
        Self { halves: Mutex::new(halves), skipped: 0 }
    }

    #[cold]
    pub(crate) fn end(&mut self) {
        self.skipped += self.take_skipped();
        *get_mut(&mut self.halves) = None;
    }

    #[inline]
    pub(crate) fn take_skipped(&mut self) -> u64 {
        let present = get_mut(&mut self.halves).as_mut().map_or(0, Halves::take_skipped);
        std::mem::take(&mut self.skipped) + present
    }

    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<Visible<'_, S>>> {
        let Some(halves) = get_mut(&mut self.halves) else { return Ok(None) };
        match halves.step_up() {
            Ok(true) => Ok(get_mut(&mut self.halves).as_mut().and_then(|halves| lent(&mut halves.forward))),
            over => self.over(over),
        }
    }

    #[inline(always)]
    pub(crate) fn next_back(&mut self) -> Result<Option<Visible<'_, S>>> {
        let Some(halves) = get_mut(&mut self.halves) else { return Ok(None) };
        match halves.step_down() {
            Ok(true) => Ok(get_mut(&mut self.halves).as_mut().and_then(|halves| lent(&mut halves.backward))),
            over => self.over(over),
        }
    }

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

    #[inline]
    pub(super) fn take_skipped(&mut self) -> u64 {
        let forward = self.forward.as_mut().map_or(0, |half| std::mem::take(half.skipped()));
        let backward = self.backward.as_mut().map_or(0, |half| std::mem::take(half.skipped()));
        forward + backward
    }

    #[inline(always)]
    fn step_up(&mut self) -> Result<bool, Box<Error>> {
        let Self { source, moment, range, forward, backward } = self;
        step_beside(forward, backward, |other| begin_beside(source, moment, range, other))
    }

    #[inline(always)]
    fn step_down(&mut self) -> Result<bool, Box<Error>> {
        let Self { source, moment, range, forward, backward } = self;
        step_beside(backward, forward, |other| begin_beside(source, moment, range, other))
    }

    /// Returns the first entry from `start` on, or the next one, regardless of the other half.
    pub(super) fn rise(&mut self, start: Option<Bound<Bytes>>) -> Result<Option<Entry>> {
        let range = start.map(|start| KeyRange { start, end: self.range.end.clone() });
        go(&mut self.forward, range, &mut self.source, &self.moment)
    }

    /// Returns the last entry up to `end`, or the previous one, regardless of the other half.
    pub(super) fn sink(&mut self, end: Option<Bound<Bytes>>) -> Result<Option<Entry>> {
        let range = end.map(|end| KeyRange { start: self.range.start.clone(), end });
        go(&mut self.backward, range, &mut self.source, &self.moment)
    }
}

#[inline(always)]
fn lent<S, H: Half<S>>(half: &mut Option<H>) -> Option<Visible<'_, S>> {
    half.as_mut().map(Half::here)
}

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
