//! Common parts of the iterator and cursor over the store and a caller's own writes.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::own_writes::{Own, Writes};
use crate::db::queues::read_set::Tracker;
use crate::snapshot_read::{KeyRange, successor};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) enum Direction {
    Up,
    Down,
}

impl Direction {
    pub(super) fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Window {
    pub(in crate::db) start: Bytes,
    pub(in crate::db) end: Option<Bytes>,
}

impl Window {
    pub(in crate::db) fn of(range: &KeyRange) -> Self {
        let (start, end) = range.half_open();
        Self { start, end }
    }

    fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    pub(in crate::db) fn pass(&mut self, direction: Direction, key: &Bytes) -> Self {
        match direction {
            Direction::Up => {
                let after = Bytes::from(successor(key));
                let start = std::mem::replace(&mut self.start, after.clone());
                Self { start, end: Some(after) }
            }
            Direction::Down => {
                let end = self.end.replace(key.clone());
                Self { start: key.clone(), end }
            }
        }
    }
}

pub(super) struct LaidOver {
    writes: Arc<Writes>,
    tracker: Option<Tracker>,
}

impl LaidOver {
    pub(in crate::db) fn new(own: Own) -> Self {
        let (writes, tracker) = own.into_parts();
        Self { writes, tracker }
    }

    pub(in crate::db) fn first(
        &self,
        window: &Window,
        direction: Direction,
        stored: Option<&Bytes>,
    ) -> Option<(Bytes, Option<Bytes>)> {
        if window.is_empty() {
            return None;
        }
        let end = window.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut within = self.writes.keys.range::<[u8], _>((Bound::Included(&window.start[..]), end));
        let (key, value) = match direction {
            Direction::Up => within.next().filter(|(key, _)| stored.is_none_or(|stored| *key <= stored)),
            Direction::Down => {
                within.next_back().filter(|(key, _)| stored.is_none_or(|stored| *key >= stored))
            }
        }?;
        Some((key.clone(), value.clone()))
    }

    pub(in crate::db) fn note(&self, read: &Window) {
        if let Some(tracker) = &self.tracker {
            tracker.note(read.start.clone(), read.end.clone());
        }
    }
}
