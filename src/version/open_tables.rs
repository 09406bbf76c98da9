//! The open tables, and the choice of those to close.
//!
//! If there is no room for a table, it is opened for one lookup or scan
//! ([`Opened::Brief`](super::handle::Opened::Brief)) and requests room. Background work then closes tables by *second
//! chance*. At the front of the queue, a table used since its last visit moves to the end; any other is closed.
//!
//! Closing replaces the handle by a closed one that shares the filter. The last reader of the old handle releases its
//! memory. So a lookup in an open table neither locks nor counts references.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::sync::lock;

pub(crate) struct Queue<T> {
    handles: Mutex<VecDeque<Weak<T>>>,
    needs_room: AtomicBool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { handles: Mutex::default(), needs_room: AtomicBool::new(false) }
    }
}

impl<T> Queue<T> {
    /// Also visits two handles at the front, so that dropped handles do not accumulate.
    pub(super) fn add(&self, table: Weak<T>) {
        let mut handles = lock(&self.handles);
        for _ in 0..2 {
            let front = handles.pop_front();
            handles.extend(front.filter(|table| table.strong_count() > 0));
        }
        handles.push_back(table);
    }

    pub(super) fn ask_for_room(&self) -> bool {
        !self.needs_room.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn take_needs_room(&self) -> bool {
        self.needs_room.load(Ordering::Relaxed) && self.needs_room.swap(false, Ordering::AcqRel)
    }

    /// `closing` returns the freed bytes, or `None` to move the table to the end.
    pub(super) fn take(&self, bytes: u64, mut closing: impl FnMut(&T) -> Option<u64>) -> Vec<Arc<T>> {
        let mut handles = lock(&self.handles);
        let (mut found, mut freed) = (Vec::new(), 0);
        // In the second round, no table counts as used.
        for _ in 0..2 * handles.len() {
            if freed >= bytes {
                break;
            }
            let Some(front) = handles.pop_front() else { break };
            let Some(table) = front.upgrade() else { continue };
            match closing(&table) {
                Some(bytes) => {
                    freed += bytes;
                    found.push(table);
                }
                None => handles.push_back(front),
            }
        }
        found
    }

    pub(super) fn all(&self) -> Vec<Arc<T>> {
        lock(&self.handles).iter().filter_map(Weak::upgrade).collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.handles).len()
    }
}
