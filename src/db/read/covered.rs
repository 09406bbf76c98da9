//! A source of a scan under range deletes.
//!
//! A hidden entry appears as a tombstone with its number. If the range delete is newer than the whole source
//! (usual for older sources), the source passes the covered stretch with a few steps and, if needed, a seek.
//!
//! In a stretch without range deletes, steps within a block are forwarded.

use super::covers::{Covers, Over};
use crate::block::BlockIter;
use crate::error::{Error, Step};
use crate::iter::{EntryValue, Failure, InternalIterator, LentValue};
use crate::key::{EntryKind, InternalKey, SeqNo, Tag, key_prefix};
use crate::limits::SEQNO_MAX;

const STEPS_MAX: usize = 4;

pub(in crate::db) struct Covered<I> {
    source: I,
    covers: Covers,
    seqno_max: SeqNo,
    over: Over,
    is_known: bool,
    is_hidden: bool,
    has_left: bool,
    is_forward: bool,
    failure: Failure,
}

impl<I: InternalIterator> Covered<I> {
    pub(super) fn new(source: I, covers: Covers, seqno_max: SeqNo) -> Self {
        Self {
            source,
            covers,
            seqno_max,
            over: Over::default(),
            is_known: false,
            is_hidden: false,
            has_left: false,
            is_forward: true,
            failure: Failure::default(),
        }
    }

    /// Moves, then skips hidden entries. Repeats the error of a failed movement.
    fn attempt(&mut self, is_forward: bool, movement: impl FnOnce(&mut I) -> Step) -> Step {
        self.failure.repeat()?;
        self.is_forward = is_forward;
        match movement(&mut self.source).and_then(|()| self.settle()) {
            Ok(()) => Ok(()),
            Err(error) => self.failure.keep(error),
        }
    }

    fn settle(&mut self) -> Step {
        self.has_left = false;
        loop {
            self.is_hidden = false;
            let Some(key) = self.source.key() else { return Ok(()) };
            if !self.is_known || !self.over.contains(key.user) {
                self.is_known = false;
                self.covers.find(key.user, &mut self.over)?;
                self.is_known = true;
            }
            self.is_hidden = key.tag.seqno() < self.over.newest;
            if !self.is_hidden || !self.over.hides_all(self.seqno_max) || self.has_left {
                return Ok(());
            }
            self.leave_stretch()?;
        }
    }

    fn leave_stretch(&mut self) -> Step {
        if self.is_forward && self.over.end().is_none() {
            self.has_left = true;
            return Ok(());
        }
        for _ in 0..STEPS_MAX {
            if self.is_forward {
                self.source.next()?
            } else {
                self.source.prev()?
            }
            if self.source.key().is_none_or(|key| !self.over.contains(key.user)) {
                return Ok(());
            }
        }
        if let Some(end) = self.over.end().filter(|_| self.is_forward) {
            self.source.seek(first_of(end))?;
            if self.source.key().is_some_and(|key| key.user < end) {
                return Err(self.source.out_of_order());
            }
        } else {
            let start = self.over.start();
            self.source.seek_before(first_of(start))?;
            if self.source.key().is_some_and(|key| key.user >= start) {
                return Err(self.source.out_of_order());
            }
        }
        Ok(())
    }

    fn is_bare(&self) -> bool {
        self.is_known && self.over.newest == 0
    }
}

fn first_of(user: &[u8]) -> InternalKey<'_> {
    InternalKey::new(user, Tag::newest_at(SEQNO_MAX))
}

impl<I: InternalIterator> InternalIterator for Covered<I> {
    fn seek_first(&mut self) -> Step {
        self.attempt(true, I::seek_first)
    }

    fn seek_last(&mut self) -> Step {
        self.attempt(false, I::seek_last)
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Step {
        self.attempt(true, |source| source.seek(target))
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
        self.attempt(false, |source| source.seek_before(target))
    }

    fn next(&mut self) -> Step {
        self.attempt(true, I::next)
    }

    fn prev(&mut self) -> Step {
        self.attempt(false, I::prev)
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        let key = self.source.key().filter(|_| !self.has_left)?;
        let hidden = || InternalKey::new(key.user, Tag::new(key.tag.seqno(), EntryKind::Delete));
        Some(if self.is_hidden { hidden() } else { key })
    }

    fn value(&self) -> EntryValue {
        self.source.value()
    }

    fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)> {
        if !self.is_hidden {
            return self.source.lent();
        }
        self.key().map(|key| (key, LentValue::Inline(&[])))
    }

    fn block(&self) -> Option<&BlockIter> {
        self.source.block().filter(|_| !self.is_hidden)
    }

    /// Returns a block only in a stretch without range deletes, up to the first block that extends beyond it.
    fn leading_block(&mut self, limit: Option<u64>) -> Option<&mut BlockIter> {
        if !self.is_bare() {
            return None;
        }
        let limit = match self.over.end().filter(|_| self.is_forward) {
            Some(end) => Some(limit.unwrap_or(u64::MAX).min(key_prefix(end))),
            None => limit,
        };
        let reaches_beyond = !self.is_forward && !self.over.start().is_empty();
        if reaches_beyond { None } else { self.source.leading_block(limit) }
    }

    fn out_of_order(&self) -> Box<Error> {
        self.source.out_of_order()
    }
}
