//! An iterator over the visible entries of a range and the writes laid over them, from both ends.
//!
//! Each end looks at the next entry of the store and at the next write. The one that comes first is yielded; of
//! equal keys the write counts, and a delete hides the entry. An entry of the store that comes later is kept
//! for the next step. Both ends of the store may meet in such an entry: then either end takes it.
//!
//! In a transaction, what either end has passed counts as read; an entry that was only read ahead does not.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::own_writes::{Own, Writes};
use super::read_set::Tracker;
use crate::error::Result;
use crate::iter::EntryValue;
use crate::snapshot_read::{KeyRange, Range, successor};

type Entry = (Bytes, EntryValue);

/// The writes in a range, and what was read ahead of the store.
pub(in crate::db) struct Merged {
    writes: Arc<Writes>,
    /// Where it is noted what was read.
    tracker: Option<Tracker>,
    /// The part of the range that was not yielded yet: from the first key on, up to the second.
    start: Bytes,
    end: Option<Bytes>,
    /// The next entry of the store at each end, if it was read.
    front: Option<Entry>,
    back: Option<Entry>,
}

impl Merged {
    pub(in crate::db) fn new(own: Own, range: &KeyRange) -> Self {
        let (writes, tracker) = own.into_parts();
        let (start, end) = range.half_open();
        Self { writes, tracker, start, end, front: None, back: None }
    }

    /// The writes that were not yielded yet.
    fn left(&self) -> impl DoubleEndedIterator<Item = (&Bytes, &Option<Bytes>)> {
        let start = Bound::Included(&self.start[..]);
        let end = self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let is_over = self.end.as_ref().is_some_and(|end| *end <= self.start);
        (!is_over).then(|| self.writes.range::<[u8], _>((start, end))).into_iter().flatten()
    }

    fn note(&self, start: Bytes, end: Option<Bytes>) {
        if let Some(tracker) = &self.tracker {
            tracker.note(start, end);
        }
    }

    /// Leaves everything up to `key` behind: it was read.
    fn pass(&mut self, key: &Bytes) {
        let after = Bytes::from(successor(key));
        let start = std::mem::replace(&mut self.start, after.clone());
        self.note(start, Some(after));
    }

    /// Leaves everything from `key` on behind.
    fn pass_back(&mut self, key: &Bytes) {
        let end = self.end.replace(key.clone());
        self.note(key.clone(), end);
    }

    /// Notes that the rest of the range was read, or cannot be read.
    fn pass_rest<T>(&self, last: Option<T>) -> Option<T> {
        self.note(self.start.clone(), self.end.clone());
        last
    }

    pub(in crate::db) fn next(&mut self, store: &mut Range) -> Option<Result<Entry>> {
        loop {
            if self.front.is_none() {
                self.front = match store.next() {
                    Some(Err(error)) => return self.pass_rest(Some(Err(error))),
                    Some(Ok(entry)) => Some(entry),
                    None => self.back.take(),
                };
            }
            let stored = self.front.as_ref().map(|(key, _)| key);
            let first = self.left().next().filter(|(key, _)| stored.is_none_or(|stored| *key <= stored));
            let Some((key, value)) = first else {
                let Some(entry) = self.front.take() else { return self.pass_rest(None) };
                self.pass(&entry.0);
                return Some(Ok(entry));
            };
            let (key, value, hides) = (key.clone(), value.clone(), stored == Some(key));
            if hides {
                self.front = None;
            }
            self.pass(&key);
            if let Some(value) = value {
                return Some(Ok((key, EntryValue::Inline(value))));
            }
        }
    }

    pub(in crate::db) fn next_back(&mut self, store: &mut Range) -> Option<Result<Entry>> {
        loop {
            if self.back.is_none() {
                self.back = match store.next_back() {
                    Some(Err(error)) => return self.pass_rest(Some(Err(error))),
                    Some(Ok(entry)) => Some(entry),
                    None => self.front.take(),
                };
            }
            let stored = self.back.as_ref().map(|(key, _)| key);
            let last = self.left().next_back().filter(|(key, _)| stored.is_none_or(|stored| *key >= stored));
            let Some((key, value)) = last else {
                let Some(entry) = self.back.take() else { return self.pass_rest(None) };
                self.pass_back(&entry.0);
                return Some(Ok(entry));
            };
            let (key, value, hides) = (key.clone(), value.clone(), stored == Some(key));
            if hides {
                self.back = None;
            }
            self.pass_back(&key);
            if let Some(value) = value {
                return Some(Ok((key, EntryValue::Inline(value))));
            }
        }
    }
}
