//! A cursor over the entries of a range in the store and a caller's own writes.
//!
//! After an upward movement, the store's cursor is at the first stored entry at or after the current key. After a
//! downward movement, it is at the last stored entry at or before that key. A step in the same direction moves the
//! store's cursor only if it is at the current key. A step in the other direction always moves it. If both have the
//! same key, the write wins, and a delete hides the entry.
//!
//! In a transaction, a movement counts as a read of the keys from its start to its destination, both inclusive. If the
//! start is an entry, that key is excluded. Without a destination, the read extends to the end of the range.

use bytes::Bytes;

use super::laid_over::{Direction, LaidOver, Window};
use super::own_writes::Own;
use super::sources::Sources;
use crate::error::Result;
use crate::iter::EntryValue;
use crate::snapshot_read::{Cursor, Entry, KeyRange, Movement, Place, successor};

pub(in crate::db) struct MergedCursor {
    own: LaidOver,
    range: Window,
    place: Place,
    direction: Direction,
}

impl MergedCursor {
    pub(in crate::db) fn new(own: Own, range: &KeyRange) -> Self {
        let (own, range) = (LaidOver::new(own), Window::of(range));
        Self { own, range, place: Place::New, direction: Direction::Up }
    }

    pub(in crate::db) fn entry(&self) -> Option<&Entry> {
        self.place.entry()
    }

    pub(in crate::db) fn go(&mut self, store: &mut Cursor<Sources>, movement: Movement<'_>) -> Result<bool> {
        use Direction::{Down, Up};
        let all = || self.range.clone();
        let from = |start| Window { start: self.range.start.clone().max(start), ..all() };
        let up_to = |end| match &self.range.end {
            Some(last) if *last < end => all(),
            _ => Window { end: Some(end), ..all() },
        };
        let (direction, window) = match (movement, &self.place) {
            (_, Place::Failed(error)) => return Err(error.clone()),
            (Movement::Next, Place::After) | (Movement::Prev, Place::Before) => return Ok(false),
            (Movement::Next, Place::At((key, _))) => (Up, from(successor(key).into())),
            (Movement::Prev, Place::At((key, _))) => (Down, up_to(key.clone())),
            (Movement::Seek(key), _) => (Up, from(Bytes::copy_from_slice(key))),
            (Movement::SeekForPrev(key), _) => (Down, up_to(successor(key).into())),
            (Movement::First | Movement::Next, _) => (Up, all()),
            (Movement::Last | Movement::Prev, _) => (Down, all()),
        };
        // A step in the same direction leaves the store's cursor at an entry beyond the current key.
        let is_step = matches!((movement, &self.place), (Movement::Next | Movement::Prev, Place::At(_)));
        let is_there = match (self.entry(), store.entry()) {
            (Some((key, _)), Some((stored, _))) => key == stored,
            _ => false,
        };
        let moved = match is_step && direction == self.direction && !is_there {
            true => Ok(false),
            false => store.go(movement),
        };
        let found = moved.and_then(|_| self.search(store, direction, window.clone()));
        let mut read = window;
        if let Ok(Some((key, _))) = &found {
            read = read.pass(direction, key);
        }
        self.own.note(&read);
        self.direction = direction;
        self.place.arrive(found, direction == Up)
    }

    /// Returns the first entry of a window in this direction. The store's cursor is at its own first entry.
    fn search(
        &self,
        store: &mut Cursor<Sources>,
        direction: Direction,
        mut left: Window,
    ) -> Result<Option<Entry>> {
        loop {
            let stored = store.entry().map(|(key, _)| key);
            let Some((key, value)) = self.own.first(&left, direction, stored) else {
                return Ok(store.entry().cloned());
            };
            if let Some(value) = value {
                return Ok(Some((key, EntryValue::Inline(value))));
            }
            let hides = stored == Some(&key);
            left.pass(direction, &key);
            if hides {
                store.go(if direction == Direction::Up { Movement::Next } else { Movement::Prev })?;
            }
        }
    }
}
