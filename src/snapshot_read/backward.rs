//! The visible entries of a range in descending order.
//!
//! In this direction the entries of a user key come oldest first. At the last entry of a key:
//!
//! 1. go back through its entries and keep the latest one, until an entry is newer than the snapshot or
//!    belongs to another key: the one kept is the visible entry;
//! 2. skip the newer entries;
//! 3. yield the visible entry if it is a put.
//!
//! If the key has many entries, seek forward to the visible one, then back before the key.

use std::ops::Bound;

use bytes::Bytes;

use super::{KeyRange, STEPS_MAX};
use crate::error::{Error, Result};
use crate::iter::{EntryValue, InternalIterator};
use crate::key::{EntryKind, InternalKey, SeqNo, Tag};
use crate::limits::SEQNO_MAX;

/// What a call of [`Backward::next`] finds.
enum State {
    /// The source has not been moved.
    New,
    /// The source is at the last entry of a key that was not examined yet.
    Unseen,
    Ended,
    Failed(Error),
}

/// Visible entries, descending.
pub(crate) struct Backward {
    source: Box<dyn InternalIterator>,
    seqno: SeqNo,
    range: KeyRange,
    state: State,
    /// The user key that was examined last.
    user: Vec<u8>,
    /// Hidden entries that were skipped: tombstones, and what newer entries hide.
    pub(super) skipped: u64,
}

impl Backward {
    pub(crate) fn new(source: Box<dyn InternalIterator>, seqno: SeqNo, range: KeyRange) -> Self {
        Self { source, seqno, range, state: State::New, user: Vec::new(), skipped: 0 }
    }

    /// The next visible key, going down, with its value, or `None` at the end. One that failed fails forever.
    pub(crate) fn next(&mut self) -> Result<Option<(Bytes, EntryValue)>> {
        let found = self.advance();
        match &found {
            Ok(Some(_)) => self.state = State::Unseen,
            Ok(None) => self.state = State::Ended,
            Err(error) => self.state = State::Failed(error.clone()),
        }
        found
    }

    /// Begins again, at `end`. A half that failed stays failed.
    pub(super) fn restart(&mut self, end: Bound<Bytes>) {
        self.range.end = end;
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::New;
        }
    }

    /// Starts the range after `key`.
    pub(super) fn start_after(&mut self, key: Bytes) {
        self.range.start = Bound::Excluded(key);
    }

    fn advance(&mut self) -> Result<Option<(Bytes, EntryValue)>> {
        match &self.state {
            State::New => self.seek_end()?,
            State::Unseen => {}
            State::Ended => return Ok(None),
            State::Failed(error) => return Err(error.clone()),
        }
        loop {
            let Some(key) = self.source.key() else { return Ok(None) };
            if self.range.starts_after(key.user) {
                return Ok(None);
            }
            self.user.clear();
            self.user.extend_from_slice(key.user);
            if let Some(value) = self.take_key()? {
                // The visible entry was passed too.
                self.skipped = self.skipped.saturating_sub(1);
                return Ok(Some((Bytes::copy_from_slice(&self.user), value)));
            }
        }
    }

    fn seek_end(&mut self) -> Result<()> {
        match self.range.beyond() {
            Some(beyond) => self.source.seek_before(first_of(&beyond)),
            None => self.source.seek_last(),
        }
    }

    /// The visible value of `user`, if there is one. The source is at the last entry of `user`; it is left at
    /// the last entry of the key before.
    fn take_key(&mut self) -> Result<Option<EntryValue>> {
        let mut newest = None;
        for _ in 0..STEPS_MAX {
            match self.source.key().filter(|key| key.user == self.user) {
                None => return Ok(newest),
                Some(key) if key.tag.seqno() > self.seqno => {}
                Some(key) => newest = (key.tag.kind() == EntryKind::Put).then(|| self.source.value()),
            }
            self.skipped += 1;
            self.source.prev()?;
        }
        match self.source.key().filter(|key| key.user == self.user) {
            None => return Ok(newest),
            // Only newer ones are left.
            Some(key) if key.tag.seqno() > self.seqno => {}
            Some(_) => newest = self.seek_newest()?,
        }
        self.source.seek_before(first_of(&self.user))?;
        Ok(newest)
    }

    fn seek_newest(&mut self) -> Result<Option<EntryValue>> {
        self.source.seek(InternalKey::new(&self.user, Tag::newest_at(self.seqno)))?;
        let found = self.source.key().filter(|key| key.user == self.user);
        Ok(found.filter(|key| key.tag.kind() == EntryKind::Put).map(|_| self.source.value()))
    }
}

/// The internal key that comes before all entries of a user key.
fn first_of(user: &[u8]) -> InternalKey<'_> {
    InternalKey::new(user, Tag::newest_at(SEQNO_MAX))
}
