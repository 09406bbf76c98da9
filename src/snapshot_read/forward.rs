//! The visible entries of a range in ascending order.
//!
//! In this direction the entries of a user key come newest first. At the first entry of a key:
//!
//! 1. skip the entries that are newer than the snapshot;
//! 2. the next entry, if it still belongs to the key, is the visible one: yield it if it is a put;
//! 3. skip the other entries of the key. This is left to the next call, if there is one.

use std::ops::Bound;

use bytes::Bytes;

use super::{KeyRange, STEPS_MAX};
use crate::error::{Error, Result};
use crate::iter::{EntryValue, InternalIterator};
use crate::key::{EntryKind, InternalKey, SeqNo, Tag};

/// What a call of [`Forward::next`] finds.
enum State {
    /// The source has not been moved.
    New,
    /// The source is at an entry of `Forward::user`, which is finished.
    Seen,
    Ended,
    Failed(Error),
}

/// Visible entries, ascending.
pub(crate) struct Forward {
    source: Box<dyn InternalIterator>,
    seqno: SeqNo,
    range: KeyRange,
    state: State,
    /// The user key that was examined last.
    user: Vec<u8>,
    /// Hidden entries that were skipped: tombstones, and what newer entries hide.
    pub(super) skipped: u64,
}

impl Forward {
    pub(crate) fn new(source: Box<dyn InternalIterator>, seqno: SeqNo, range: KeyRange) -> Self {
        Self { source, seqno, range, state: State::New, user: Vec::new(), skipped: 0 }
    }

    /// The next visible key with its value, or `None` at the end. One that failed fails forever.
    pub(crate) fn next(&mut self) -> Result<Option<(Bytes, EntryValue)>> {
        let found = self.advance();
        match &found {
            Ok(Some(_)) => self.state = State::Seen,
            Ok(None) => self.state = State::Ended,
            Err(error) => self.state = State::Failed(error.clone()),
        }
        found
    }

    /// The key that was yielded last, before the end is reached.
    pub(super) fn last(&self) -> Option<&[u8]> {
        matches!(self.state, State::Seen).then_some(&self.user)
    }

    /// Begins again, at `start`. A half that failed stays failed.
    pub(super) fn restart(&mut self, start: Bound<Bytes>) {
        self.range.start = start;
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::New;
        }
    }

    /// Ends the range before `key`.
    pub(super) fn end_before(&mut self, key: Bytes) {
        self.range.end = Bound::Excluded(key);
    }

    fn advance(&mut self) -> Result<Option<(Bytes, EntryValue)>> {
        match &self.state {
            State::New => self.seek_start()?,
            State::Seen => self.skip_key()?,
            State::Ended => return Ok(None),
            State::Failed(error) => return Err(error.clone()),
        }
        loop {
            let Some(key) = self.source.key() else { return Ok(None) };
            if self.range.ends_before(key.user) {
                return Ok(None);
            }
            self.user.clear();
            self.user.extend_from_slice(key.user);
            if key.tag.seqno() > self.seqno && !self.skip_newer()? {
                continue;
            }
            match self.source.key().map(|key| key.tag.kind()) {
                Some(EntryKind::Put) => {
                    return Ok(Some((Bytes::copy_from_slice(&self.user), self.source.value())));
                }
                Some(EntryKind::Delete) => {
                    self.skipped += 1;
                    self.skip_key()?;
                }
                None => return Ok(None),
            }
        }
    }

    fn seek_start(&mut self) -> Result<()> {
        match self.range.first() {
            Some(first) => self.source.seek(InternalKey::new(&first, Tag::newest_at(self.seqno))),
            None => self.source.seek_first(),
        }
    }

    fn is_of_user(&self) -> bool {
        self.source.key().is_some_and(|key| key.user == self.user)
    }

    /// Skips the entries of `user` that are newer than the snapshot, from the current one on. Returns whether
    /// an older one follows.
    fn skip_newer(&mut self) -> Result<bool> {
        for _ in 0..STEPS_MAX {
            self.source.next()?;
            if !self.is_of_user() {
                return Ok(false);
            }
            if self.source.key().is_some_and(|key| key.tag.seqno() <= self.seqno) {
                return Ok(true);
            }
        }
        self.source.seek(InternalKey::new(&self.user, Tag::newest_at(self.seqno)))?;
        Ok(self.is_of_user())
    }

    /// Skips the rest of the entries of `user`, from the current one on.
    fn skip_key(&mut self) -> Result<()> {
        for _ in 0..STEPS_MAX {
            self.source.next()?;
            if !self.is_of_user() {
                return Ok(());
            }
            self.skipped += 1;
        }
        // The smallest key after `user` is `user` with a zero appended.
        self.user.push(0);
        self.source.seek(InternalKey::new(&self.user, Tag::newest_at(self.seqno)))
    }
}
