//! Which tables are open, and which of them are closed to make room for others.
//!
//! Open tables take memory: their metadata and the root of the index. Part of the budget is for them (`memory`). A table for which there is no room is opened for one lookup or scan and closed again
//! ([`Opened::Brief`](super::handle::Opened::Brief)), and asks for room here. Then the background closes those that were used least, by
//! *second chance*: the tables are in a queue, in the order in which they were opened; a table at its front
//! that was used since it was last there goes to the end, another one is closed.
//!
//! A table is not closed under its readers. It gets a new handle, which is not open and shares the filter, and its
//! memory comes back when the last reader of the old handle is done. So a lookup in an open table takes no lock and counts no
//! reference.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::sync::lock;

/// Handles of tables of a store.
pub(crate) struct Queue<T> {
    /// Replaced ones may be among them until they come to the front.
    handles: Mutex<VecDeque<Weak<T>>>,
    /// A table was opened for which there was no room.
    needs_room: AtomicBool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { handles: Mutex::default(), needs_room: AtomicBool::new(false) }
    }
}

impl<T> Queue<T> {
    /// Adds a table to the end. Also looks at two at the front, so that those that have gone
    /// do not add up.
    pub(super) fn add(&self, table: Weak<T>) {
        let mut handles = lock(&self.handles);
        for _ in 0..2 {
            let front = handles.pop_front();
            handles.extend(front.filter(|table| table.strong_count() > 0));
        }
        handles.push_back(table);
    }

    /// Asks for room for another table. `false` if somebody has asked before.
    pub(super) fn ask_for_room(&self) -> bool {
        !self.needs_room.swap(true, Ordering::AcqRel)
    }

    /// Whether a table was opened for which there was no room, since this was last called.
    pub(crate) fn take_needs_room(&self) -> bool {
        self.needs_room.load(Ordering::Relaxed) && self.needs_room.swap(false, Ordering::AcqRel)
    }

    /// Takes tables from the front that together free at least `bytes`. `closing` returns how many bytes the
    /// table frees, or `None` if it was used or may not be closed: then it goes to the end.
    pub(super) fn take(&self, bytes: u64, mut closing: impl FnMut(&T) -> Option<u64>) -> Vec<Arc<T>> {
        let mut handles = lock(&self.handles);
        let (mut found, mut freed) = (Vec::new(), 0);
        // In the first round each one may have been used, in the second none is.
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

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        lock(&self.handles).iter().filter_map(Weak::upgrade).collect()
    }

    /// Number of tables in the queue.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.handles).len()
    }
}
