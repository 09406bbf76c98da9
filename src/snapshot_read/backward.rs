//! The visible entries of a range in descending order. The oldest entry of a user key comes first:
//!
//! 1. keep the latest entry until an entry is newer than the snapshot or belongs to another key;
//! 2. skip the newer entries;
//! 3. yield the kept entry if it is a put.
//!
//! If the key has one entry, and no other source comes before the start of the block, a step only moves the block's
//! cursor, without copies. If the key has many entries, the half seeks forward to the visible one, then back before the
//! key. A key that is not less than the previous one fails the scan.

use std::cmp::Ordering;
use std::ops::Bound;

use bytes::Bytes;

use super::empty_ranges::Edge;
use super::half::{Half, State};
use super::hidden_run::HiddenRun;
use super::{KeyRange, Moment, STEPS_MAX, Visible, successor};
use crate::block::BlockIter;
use crate::error::{Error, Result, Step};
use crate::iter::{EntryValue, InternalIterator};
use crate::key::{EntryKind, InternalKey, SeqNo, Tag, compare_keys};
use crate::limits::SEQNO_MAX;

pub(super) struct Backward<S> {
    /// Few scans go back: others need not move its bytes.
    source: Box<S>,
    seqno: SeqNo,
    range: KeyRange,
    state: State,
    /// The entry is in the block, after the position.
    led: bool,
    user: Vec<u8>,
    value: EntryValue,
    run: HiddenRun,
    skipped: u64,
}

impl<S: InternalIterator> Half<S> for Backward<S> {
    fn new(source: S, moment: Moment, range: KeyRange) -> Self {
        let (seqno, run) = (moment.seqno, HiddenRun::new(moment, false));
        let (source, value) = (Box::new(source), EntryValue::Inline(Bytes::new()));
        Self { source, seqno, range, state: State::New, led: false, user: Vec::new(), value, run, skipped: 0 }
    }

    fn restart(&mut self, range: KeyRange) {
        self.range = range;
        self.led = false;
        self.state.restart();
    }

    fn stop_before(&mut self, key: Bytes) {
        self.range.start = Bound::Excluded(key);
    }

    #[inline(always)]
    fn step(&mut self) -> Result<bool, Box<Error>> {
        match self.advance() {
            Ok(true) => Ok(true),
            over => self.state.end(over),
        }
    }

    #[inline(always)]
    fn here(&mut self) -> Visible<'_, S> {
        if self.led
            && let Some(entry) = self.source.block().and_then(BlockIter::plain_behind)
        {
            return Visible::inside(entry);
        }
        Visible::kept(&self.user, &mut self.value)
    }

    fn last(&self) -> Option<&[u8]> {
        let behind = self.source.block().filter(|_| self.led).and_then(BlockIter::plain_behind);
        let user = behind.map_or(&self.user[..], |entry| entry.user_key);
        matches!(self.state, State::Moved).then_some(user)
    }

    #[inline]
    fn skipped(&mut self) -> &mut u64 {
        &mut self.skipped
    }
}

impl<S: InternalIterator> Backward<S> {
    #[inline(always)]
    fn advance(&mut self) -> Result<bool, Box<Error>> {
        if !matches!(self.state, State::Moved) && !self.start()? {
            return Ok(false);
        }
        if let Some(block) = self.source.leading_block(None)
            && block.step_back_over_plain(self.seqno)
            && let Some(entry) = block.plain_behind()
        {
            self.led = true;
            return Ok(!self.range.starts_after(entry.user_key));
        }
        self.advance_source()
    }

    #[inline(never)]
    fn advance_source(&mut self) -> Result<bool, Box<Error>> {
        self.led = false;
        self.run.begin();
        let found = self.find()?;
        let Self { run, user, range, .. } = self;
        run.end(|| match range.first() {
            _ if found => Edge::Key(successor(user)),
            first => Edge::Key(first.unwrap_or_default().into_owned()),
        });
        Ok(found)
    }

    fn find(&mut self) -> Result<bool, Box<Error>> {
        while let Some(key) = self.source.key() {
            if self.range.starts_after(key.user) {
                return Ok(false);
            }
            self.user.clear();
            self.user.extend_from_slice(key.user);
            if self.take_key(key.tag)? {
                self.skipped = self.skipped.saturating_sub(1);
                return Ok(true);
            }
            if let Some(Edge::Key(start)) = self.run.pass(&self.user) {
                self.seek_edge(&start)?;
            }
        }
        Ok(false)
    }

    #[cold]
    fn start(&mut self) -> Result<bool, Box<Error>> {
        if !self.state.start()? {
            return Ok(false);
        }
        match self.range.beyond() {
            Some(beyond) => self.source.seek_before(first_of(&beyond))?,
            None => self.source.seek_last()?,
        }
        Ok(true)
    }

    /// Requires the source at the last entry of `user`, with this tag. Moves it to the last entry of the previous key.
    #[inline(always)]
    fn take_key(&mut self, mut tag: Tag) -> Result<bool, Box<Error>> {
        let mut found = false;
        for _ in 0..STEPS_MAX {
            if tag.seqno() <= self.seqno {
                found = tag.kind() == EntryKind::Put;
                if found {
                    self.value = self.source.value();
                }
            }
            self.skipped += 1;
            self.source.prev()?;
            let Some(key) = self.source.key() else { return Ok(found) };
            match compare_keys(key.user, &self.user) {
                Ordering::Equal => tag = key.tag,
                Ordering::Less => return Ok(found),
                Ordering::Greater => return Err(self.source.out_of_order()),
            }
        }
        if tag.seqno() <= self.seqno {
            found = self.seek_newest()?;
        }
        self.source.seek_before(first_of(&self.user))?;
        if self.source.key().is_some_and(|key| key.user >= &self.user[..]) {
            return Err(self.source.out_of_order());
        }
        Ok(found)
    }

    #[cold]
    fn seek_edge(&mut self, start: &[u8]) -> Step {
        self.source.seek_before(first_of(start))?;
        if self.source.key().is_some_and(|key| key.user >= start) {
            return Err(self.source.out_of_order());
        }
        Ok(())
    }

    #[cold]
    fn seek_newest(&mut self) -> Result<bool, Box<Error>> {
        self.source.seek(InternalKey::new(&self.user, Tag::newest_at(self.seqno)))?;
        let found = self.source.key().filter(|key| key.user == self.user);
        let is_put = found.is_some_and(|key| key.tag.kind() == EntryKind::Put);
        if is_put {
            self.value = self.source.value();
        }
        Ok(is_put)
    }
}

fn first_of(user: &[u8]) -> InternalKey<'_> {
    InternalKey::new(user, Tag::newest_at(SEQNO_MAX))
}
