//! The visible entries of a range, from both ends.
//!
//! It has two independent halves: one goes up from the start, the other down from the end, each over its own
//! source (a shared one would have to turn round at every change of ends). A half is built when it is first
//! used. A key that one half yields becomes the exclusive bound of the other, so that each key is yielded
//! once. When one half reaches its bound, nothing is left, and both are dropped with everything that they
//! pin.
//!
//! After an error the iterator is over, and its sources are dropped: the error is yielded once, and every
//! later call gives `None`. That `None` does not mean that everything was read, but a loop that ignores
//! errors (`flatten`, `count`) ends. No entry is yielded after an error.

use std::fmt;
use std::ops::Bound;
use std::sync::Mutex;

use bytes::Bytes;

use super::{Backward, Forward, KeyRange, Visible};
use crate::error::{Error, Result};
use crate::iter::InternalIterator;
use crate::key::SeqNo;
use crate::sync::get_mut;

/// Makes the source of a half: a fresh iterator over all entries that the snapshot may need. It also keeps
/// alive what they are read from, as long as the range is not over.
pub(crate) type Source<S> = Box<dyn FnMut() -> Result<S> + Send>;

/// The visible keys and values of a range, from both ends.
pub(crate) struct Range<S> {
    /// `None` once everything was yielded, or after an error. Only ever reached through `&mut`: the lock is
    /// never taken, it makes the range `Sync` although internal iterators are not.
    halves: Mutex<Option<Halves<S>>>,
    /// Hidden entries that were skipped before the end and not taken.
    skipped: u64,
}

struct Halves<S> {
    source: Source<S>,
    seqno: SeqNo,
    range: KeyRange,
    forward: Option<Forward<S>>,
    backward: Option<Backward<S>>,
}

impl<S: InternalIterator> Range<S> {
    /// The entries of `range` that are visible at `seqno`. Nothing is read before the first call.
    pub(crate) fn new(source: Source<S>, seqno: SeqNo, range: KeyRange) -> Self {
        let halves =
            (!range.is_empty()).then_some(Halves { source, seqno, range, forward: None, backward: None });
        Self { halves: Mutex::new(halves), skipped: 0 }
    }

    /// Ends the range: nothing more is yielded, nothing is pinned.
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
            Ok(true) => Ok(get_mut(&mut self.halves).as_mut().and_then(Halves::upper)),
            over => self.over(over),
        }
    }

    /// The same from the other end.
    #[inline(always)]
    pub(crate) fn next_back(&mut self) -> Result<Option<Visible<'_, S>>> {
        let Some(halves) = get_mut(&mut self.halves) else { return Ok(None) };
        match halves.step_down() {
            Ok(true) => Ok(get_mut(&mut self.halves).as_mut().and_then(Halves::lower)),
            over => self.over(over),
        }
    }

    /// What a step that has found nothing means: the range is over.
    #[cold]
    fn over(&mut self, found: Result<bool, Box<Error>>) -> Result<Option<Visible<'_, S>>> {
        self.end();
        found.map(|_| None).map_err(|error| *error)
    }
}

impl<S: InternalIterator> Halves<S> {
    /// The hidden entries that were skipped since the last call.
    #[inline]
    fn take_skipped(&mut self) -> u64 {
        let forward = self.forward.as_mut().map_or(0, |half| std::mem::take(&mut half.skipped));
        let backward = self.backward.as_mut().map_or(0, |half| std::mem::take(&mut half.skipped));
        forward + backward
    }

    /// Goes to the next entry, and keeps the other half off it.
    #[inline(always)]
    fn step_up(&mut self) -> Result<bool, Box<Error>> {
        if self.forward.is_none() {
            self.start_forward()?;
        }
        let Some(forward) = &mut self.forward else { return Ok(false) };
        let found = forward.step()?;
        if let Some(backward) = &mut self.backward
            && found
        {
            backward.start_after(Bytes::copy_from_slice(forward.here().key));
        }
        Ok(found)
    }

    /// The same from the other end.
    #[inline(always)]
    fn step_down(&mut self) -> Result<bool, Box<Error>> {
        if self.backward.is_none() {
            self.start_backward()?;
        }
        let Some(backward) = &mut self.backward else { return Ok(false) };
        let found = backward.step()?;
        if let Some(forward) = &mut self.forward
            && found
        {
            forward.end_before(Bytes::copy_from_slice(backward.here().key));
        }
        Ok(found)
    }

    /// The entry to which the last step up went.
    #[inline(always)]
    fn upper(&mut self) -> Option<Visible<'_, S>> {
        self.forward.as_mut().map(Forward::here)
    }

    /// The entry to which the last step down went.
    #[inline(always)]
    fn lower(&mut self) -> Option<Visible<'_, S>> {
        self.backward.as_mut().map(Backward::here)
    }

    #[cold]
    fn start_forward(&mut self) -> Result<()> {
        let mut range = self.range.clone();
        if let Some(last) = self.backward.as_ref().and_then(Backward::last) {
            range.end = Bound::Excluded(Bytes::copy_from_slice(last));
        }
        self.forward = Some(Forward::new((self.source)()?, self.seqno, range));
        Ok(())
    }

    #[cold]
    fn start_backward(&mut self) -> Result<()> {
        let mut range = self.range.clone();
        if let Some(last) = self.forward.as_ref().and_then(Forward::last) {
            range.start = Bound::Excluded(Bytes::copy_from_slice(last));
        }
        self.backward = Some(Backward::new((self.source)()?, self.seqno, range));
        Ok(())
    }
}

impl<S> fmt::Debug for Range<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}
