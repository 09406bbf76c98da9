//! The visible entries of a range in ascending order. The newest entry of a user key comes first:
//!
//! 1. skip the entries that are newer than the snapshot;
//! 2. yield the next entry of the key if it is a put;
//! 3. skip the other entries of the key, in the next call.
//!
//! If the next entry is a visible put of another key, and no other source comes before the end of the block, a step
//! only moves the block's cursor, without copies. Where sources alternate,
//! [`step_apart`](InternalIterator::step_apart) avoids copies too. A key that is not greater than the previous one
//! fails the scan, so every scan ends.

use std::cmp::Ordering;
use std::ops::Bound;

use bytes::Bytes;

use super::empty_ranges::Edge;
use super::half::{Half, State};
use super::hidden_run::HiddenRun;
use super::{KeyRange, Moment, STEPS_MAX, Visible};
use crate::error::{Error, Result, Step};
use crate::iter::InternalIterator;
use crate::key::{EntryKind, InternalKey, SeqNo, Tag, compare_keys};

pub(super) struct Forward<S> {
    source: S,
    seqno: SeqNo,
    range: KeyRange,
    state: State,
    user: Vec<u8>,
    /// The source has more entries of the key.
    led: bool,
    run: HiddenRun,
    skipped: u64,
}

impl<S: InternalIterator> Half<S> for Forward<S> {
    fn new(source: S, moment: Moment, range: KeyRange) -> Self {
        let (seqno, run) = (moment.seqno, HiddenRun::new(moment, true));
        Self { source, seqno, range, state: State::New, user: Vec::new(), led: false, run, skipped: 0 }
    }

    fn restart(&mut self, range: KeyRange) {
        self.range = range;
        self.led = false;
        self.state.restart();
    }

    fn stop_before(&mut self, key: Bytes) {
        self.range.end = Bound::Excluded(key);
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
            && let Some(block) = self.source.block()
        {
            return Visible::inside(block.plain());
        }
        Visible::at(&self.user, &self.source)
    }

    fn last(&self) -> Option<&[u8]> {
        self.source.key().filter(|_| matches!(self.state, State::Moved)).map(|key| key.user)
    }

    #[inline]
    fn skipped(&mut self) -> &mut u64 {
        &mut self.skipped
    }
}

impl<S: InternalIterator> Forward<S> {
    #[inline(always)]
    fn advance(&mut self) -> Result<bool, Box<Error>> {
        if !matches!(self.state, State::Moved) {
            return self.start();
        }
        if let Some(block) = self.source.leading_block(None)
            && block.step_to_plain(self.seqno)
        {
            self.led = true;
            return Ok(!self.range.ends_before(block.plain().user_key));
        }
        if self.source.step_apart() {
            return self.arrive();
        }
        self.advance_source()
    }

    #[inline(always)]
    fn arrive(&mut self) -> Result<bool, Box<Error>> {
        let plain = self.source.block().and_then(|block| block.visible_plain(self.seqno));
        self.led = plain.is_some();
        match plain {
            Some(entry) => Ok(!self.range.ends_before(entry.user_key)),
            None => self.search(None),
        }
    }

    #[inline(never)]
    fn advance_source(&mut self) -> Result<bool, Box<Error>> {
        if std::mem::take(&mut self.led)
            && let Some(key) = self.source.key()
        {
            self.user.clear();
            self.user.extend_from_slice(key.user);
        }
        self.source.next()?;
        match self.source.key() {
            Some(key)
                if key.tag.seqno() <= self.seqno
                    && key.tag.kind() == EntryKind::Put
                    && compare_keys(key.user, &self.user).is_gt()
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

    #[cold]
    fn start(&mut self) -> Result<bool, Box<Error>> {
        if !self.state.start()? {
            return Ok(false);
        }
        match self.range.first() {
            Some(first) => self.source.seek(InternalKey::new(&first, Tag::newest_at(self.seqno)))?,
            None => self.source.seek_first()?,
        }
        self.arrive()
    }

    /// `steps` counts the entries of `user` passed so far, if that key is finished.
    fn search(&mut self, steps: Option<usize>) -> Result<bool, Box<Error>> {
        self.run.begin();
        let found = self.find(steps)?;
        let Self { run, user, range, .. } = self;
        run.end(|| match range.beyond() {
            _ if found => Edge::Key(user.clone()),
            Some(beyond) => Edge::Key(beyond.into_owned()),
            None => Edge::Open,
        });
        Ok(found)
    }

    fn find(&mut self, mut steps: Option<usize>) -> Result<bool, Box<Error>> {
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
            if tag.kind() == EntryKind::Put {
                return Ok(true);
            }
            self.skipped += 1;
            steps = match self.run.pass(&self.user) {
                None => {
                    self.source.next()?;
                    Some(1)
                }
                Some(Edge::Key(end)) => {
                    self.seek_edge(&end)?;
                    None
                }
                Some(Edge::Open) => return Ok(false),
            };
        }
    }

    fn tag_of_user(&self) -> Option<Tag> {
        self.source.key().filter(|key| key.user == self.user).map(|key| key.tag)
    }

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

    #[cold]
    fn seek_edge(&mut self, end: &[u8]) -> Step {
        self.source.seek(InternalKey::new(end, Tag::newest_at(self.seqno)))?;
        if self.source.key().is_some_and(|key| key.user < end) {
            return Err(self.source.out_of_order());
        }
        Ok(())
    }

    fn seek_past_user(&mut self) -> Step {
        self.user.push(0);
        self.source.seek(InternalKey::new(&self.user, Tag::newest_at(self.seqno)))
    }
}
