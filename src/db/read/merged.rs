//! An iterator, from both ends, over the entries of a range in the store and a caller's own writes.
//!
//! Each end yields the smaller of the next stored entry and the next write. If both have the same key, the write
//! wins, and a delete hides the entry. The other entry is kept. If both ends have reached the same stored entry,
//! either may yield it.
//!
//! In a transaction, only yielded keys count as read, not entries read ahead.

use super::laid_over::{Direction, LaidOver, Window};
use super::own_writes::Own;
use super::sources::Sources;
use crate::error::Result;
use crate::iter::EntryValue;
use crate::snapshot_read::{Entry, KeyRange, Range};

pub(in crate::db) struct Merged {
    own: LaidOver,
    left: Window,
    ahead: [Option<Entry>; 2],
}

impl Merged {
    pub(in crate::db) fn new(own: Own, range: &KeyRange) -> Self {
        Self { own: LaidOver::new(own), left: Window::of(range), ahead: [None, None] }
    }

    pub(in crate::db) fn step(
        &mut self,
        store: &mut Range<Sources>,
        direction: Direction,
    ) -> Option<Result<Entry>> {
        let (at, other) = (direction as usize, direction.opposite() as usize);
        loop {
            if self.ahead[at].is_none() {
                let next = match direction {
                    Direction::Up => store.next(),
                    Direction::Down => store.next_back(),
                };
                self.ahead[at] = match next {
                    Err(error) => {
                        self.own.note(&self.left);
                        return Some(Err(error));
                    }
                    Ok(Some(entry)) => Some(entry.into_entry()),
                    Ok(None) => self.ahead[other].take(),
                };
            }
            let stored = self.ahead[at].as_ref().map(|(key, _)| key);
            let Some((key, value)) = self.own.first(&self.left, direction, stored) else {
                let Some(entry) = self.ahead[at].take() else {
                    self.own.note(&self.left);
                    return None;
                };
                self.own.note(&self.left.pass(direction, &entry.0));
                return Some(Ok(entry));
            };
            if stored == Some(&key) {
                self.ahead[at] = None;
            }
            self.own.note(&self.left.pass(direction, &key));
            if let Some(value) = value {
                return Some(Ok((key, EntryValue::Inline(value))));
            }
        }
    }
}
