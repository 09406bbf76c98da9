//! An iterator over the visible entries of a range and the writes laid over them, from both ends.
//!
//! Each end looks at the next entry of the store and at the next write. The one that comes first is yielded; of
//! equal keys the write counts, and a delete hides the entry. An entry of the store that comes later is kept
//! for the next step. Both ends of the store may meet in such an entry: then either end takes it.
//!
//! In a transaction, what either end has passed counts as read; an entry that was only read ahead does not.

use super::laid_over::{Direction, LaidOver, Window};
use super::own_writes::Own;
use super::sources::Sources;
use crate::error::Result;
use crate::iter::EntryValue;
use crate::snapshot_read::{Entry, KeyRange, Range};

/// The writes in a range, and what was read ahead of the store.
pub(in crate::db) struct Merged {
    own: LaidOver,
    /// The part of the range that was not yielded yet.
    left: Window,
    /// The next entry of the store in each direction, if it was read.
    ahead: [Option<Entry>; 2],
}

impl Merged {
    pub(in crate::db) fn new(own: Own, range: &KeyRange) -> Self {
        Self { own: LaidOver::new(own), left: Window::of(range), ahead: [None, None] }
    }

    /// The next entry in this direction.
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
