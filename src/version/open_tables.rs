//! Which tables are open, and which of them are closed to make room for others.
//!
//! Open tables take memory: their metadata, the root of the index, the filter. Part of the budget is for them
//! (`memory`). A table for which there is no room is opened for one lookup or scan and closed again
//! ([`Opened::Brief`]), and asks for room here. Then the background closes those that were used least, by
//! *second chance*: the tables are in a queue, in the order in which they were opened; a table at its front
//! that was used since it was last there goes to the end, another one is closed.
//!
//! A table is not closed under its readers. It gets a new handle, which is not open, and its memory comes back
//! when the last reader of the old handle is done. So a lookup in an open table takes no lock and counts no
//! reference.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::handle::TableHandle;
use crate::batch::KeyspaceId;
use crate::sync::lock;
use crate::table::Table;

/// The open tables of a store.
#[derive(Default)]
pub(crate) struct OpenTables {
    /// Closed ones may be among them until they come to the front.
    queue: Mutex<VecDeque<Weak<TableHandle>>>,
    /// A table was opened for which there was no room.
    needs_room: AtomicBool,
}

impl OpenTables {
    /// Adds a table that was opened to the end. Also looks at two at the front, so that those that have gone
    /// do not add up.
    pub(super) fn add(&self, table: Weak<TableHandle>) {
        let mut queue = lock(&self.queue);
        for _ in 0..2 {
            let front = queue.pop_front();
            queue.extend(front.filter(|table| table.strong_count() > 0));
        }
        queue.push_back(table);
    }

    /// Asks for room for another table. `false` if somebody has asked before.
    pub(super) fn ask_for_room(&self) -> bool {
        !self.needs_room.swap(true, Ordering::AcqRel)
    }

    /// Whether a table was opened for which there was no room, since this was last called.
    pub(crate) fn take_needs_room(&self) -> bool {
        self.needs_room.load(Ordering::Relaxed) && self.needs_room.swap(false, Ordering::AcqRel)
    }

    /// Tables used least that together take at least `bytes`, if there are enough that `may_close`.
    pub(crate) fn used_least(
        &self,
        bytes: u64,
        mut may_close: impl FnMut(&TableHandle) -> bool,
    ) -> Vec<Arc<TableHandle>> {
        let mut queue = lock(&self.queue);
        let (mut found, mut freed) = (Vec::new(), 0);
        // In the first round each one may have been used, in the second none is.
        for _ in 0..2 * queue.len() {
            if freed >= bytes {
                break;
            }
            let Some(front) = queue.pop_front() else { break };
            let Some(table) = front.upgrade() else { continue };
            if table.take_used() || !may_close(&table) {
                queue.push_back(front);
                continue;
            }
            freed += table.open_bytes();
            found.push(table);
        }
        found
    }

    /// The keyspaces of the open tables.
    pub(crate) fn keyspaces(&self) -> BTreeSet<KeyspaceId> {
        // Dropped without the lock, because a last handle may be among them.
        let tables: Vec<_> = lock(&self.queue).iter().filter_map(Weak::upgrade).collect();
        tables.iter().map(|table| table.keyspace()).collect()
    }

    /// Number of tables in the queue.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.queue).len()
    }
}

/// A table that was opened.
pub(crate) enum Opened<'a> {
    /// It stays open with its handle.
    Kept(&'a Arc<Table>),
    /// There was no room: it is closed when this is dropped.
    Brief(Arc<Table>),
}

impl Deref for Opened<'_> {
    type Target = Arc<Table>;

    fn deref(&self) -> &Arc<Table> {
        match self {
            Self::Kept(table) => table,
            Self::Brief(table) => table,
        }
    }
}
