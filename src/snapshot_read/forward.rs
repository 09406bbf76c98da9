//! The visible entries of a range in ascending order.
//!
//! In this direction the entries of a user key come newest first. At the first entry of a key:
//!
//! 1. skip the entries that are newer than the snapshot;
//! 2. the next entry, if it still belongs to the key, is the visible one: yield it if it is a put;
//! 3. skip the other entries of the key. This is left to the next call, if there is one.
//!
//! Each key that is examined is greater than the one before, or else an error: so a scan ends, also of a table
//! whose keys are not in order, where a seek may lead back.

use std::cmp::Ordering;
use std::ops::Bound;

use bytes::Bytes;

use super::{KeyRange, STEPS_MAX, Visible};
use crate::error::{Error, Result, Step};
use crate::iter::InternalIterator;
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

    /// The next visible entry, or `None` at the end. One that failed fails forever.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<Visible<'_>>> {
        match self.advance() {
            Ok(true) => Ok(Some(Visible::at(&self.user, &*self.source))),
            Ok(false) => {
                self.state = State::Ended;
                Ok(None)
            }
            Err(error) => Err(self.fail(*error)),
        }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.state = State::Failed(error.clone());
        error
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

    /// Moves the source to the next visible entry, if there is one.
    #[inline(always)]
    fn advance(&mut self) -> Result<bool, Box<Error>> {
        if !matches!(self.state, State::Seen) {
            return self.start();
        }
        self.source.next()?;
        // Mostly the next entry is visible, and the first of its key.
        match self.source.key() {
            Some(key)
                if key.tag.seqno() <= self.seqno
                    && key.tag.kind() == EntryKind::Put
                    && key.user > &self.user[..]
                    && !self.range.ends_before(key.user) =>
            {
                self.user.clear();
                self.user.extend_from_slice(key.user);
                Ok(true)
            }
            Some(_) => self.search(Some(1)),
            None => Ok(false),
        }
    }

    /// The first movement, or one that is not the first and cannot succeed.
    #[cold]
    fn start(&mut self) -> Result<bool, Box<Error>> {
        match &self.state {
            State::New | State::Seen => {
                self.seek_start()?;
                self.state = State::Seen;
                self.search(None)
            }
            State::Ended => Ok(false),
            State::Failed(error) => Err(error.clone().into()),
        }
    }

    /// Moves the source to the first visible entry from where it is. `steps` are those since the first entry of
    /// `user`, if that is finished.
    fn search(&mut self, mut steps: Option<usize>) -> Result<bool, Box<Error>> {
        loop {
            let Some(key) = self.source.key() else { return Ok(false) };
            if let Some(taken) = steps {
                match key.user.cmp(&self.user) {
                    Ordering::Less => return Err(self.source.out_of_order()),
                    Ordering::Equal => {
                        self.skipped += 1;
                        steps = if taken < STEPS_MAX {
                            self.source.next()?;
                            Some(taken + 1)
                        } else {
                            self.seek_past_user()?;
                            None
                        };
                        continue;
                    }
                    Ordering::Greater => {}
                }
            }
            if self.range.ends_before(key.user) {
                return Ok(false);
            }
            self.user.clear();
            self.user.extend_from_slice(key.user);
            let mut tag = key.tag;
            if tag.seqno() > self.seqno {
                match self.skip_newer()? {
                    Some(visible) => tag = visible,
                    None => {
                        steps = Some(1);
                        continue;
                    }
                }
            }
            match tag.kind() {
                EntryKind::Put => return Ok(true),
                EntryKind::Delete => {
                    self.skipped += 1;
                    self.source.next()?;
                    steps = Some(1);
                }
            }
        }
    }

    fn seek_start(&mut self) -> Step {
        match self.range.first() {
            Some(first) => self.source.seek(InternalKey::new(&first, Tag::newest_at(self.seqno))),
            None => self.source.seek_first(),
        }
    }

    /// The tag of the current entry, if it is of `user`.
    fn tag_of_user(&self) -> Option<Tag> {
        self.source.key().filter(|key| key.user == self.user).map(|key| key.tag)
    }

    /// Skips the entries of `user` that are newer than the snapshot, from the current one on. Returns the tag of
    /// the first older one.
    fn skip_newer(&mut self) -> Result<Option<Tag>> {
        for _ in 0..STEPS_MAX {
            self.source.next()?;
            match self.tag_of_user() {
                Some(tag) if tag.seqno() > self.seqno => {}
                found => return Ok(found),
            }
        }
        self.source.seek(InternalKey::new(&self.user, Tag::newest_at(self.seqno)))?;
        Ok(self.tag_of_user())
    }

    /// Moves behind all entries of `user`.
    fn seek_past_user(&mut self) -> Step {
        // The smallest key after `user` is `user` with a zero appended.
        self.user.push(0);
        self.source.seek(InternalKey::new(&self.user, Tag::newest_at(self.seqno)))
    }
}
