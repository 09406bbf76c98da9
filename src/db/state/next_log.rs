//! The log after the active one, and the end of the one before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::checksum::FileId;
use crate::manifest::edit::EditItem;
use crate::sync::lock;
use crate::wal::FramedWriter;
/// A log that is created, durable and not in use.
pub(in crate::db) struct NewLog {
    pub(in crate::db) number: u64,
    pub(in crate::db) file_id: FileId,
    pub(in crate::db) writer: FramedWriter,
}

/// The log after the active one, and the end of the one before.
#[derive(Default)]
pub(in crate::db) struct NextLog {
    /// Created and named. Locked while it is made, used or given up.
    pub(in crate::db) prepared: Mutex<Option<NewLog>>,
    /// Memtables are half full, and no log was begun since.
    pub(in crate::db) is_wanted: AtomicBool,
    /// How the log before the active one ended, until an edit says it.
    pub(in crate::db) ended: Mutex<Option<EditItem>>,
}

impl NextLog {
    /// What the next edit has to say about the log before the active one.
    pub(in crate::db) fn ended(&self) -> Option<EditItem> {
        lock(&self.ended).clone()
    }

    /// A durable edit has said it.
    pub(in crate::db) fn note_stated(&self, stated: &EditItem) {
        lock(&self.ended).take_if(|ended| ended == stated);
    }

    /// Nothing is prepared, begun or given up by others while the guard is held.
    pub(in crate::db) fn pause(&self) -> Paused<'_> {
        Paused { prepared: lock(&self.prepared), next: self }
    }

    pub(in crate::db) fn is_prepared(&self) -> bool {
        // Whoever holds the lock is about to change that.
        self.prepared.try_lock().map_or(true, |prepared| prepared.is_some())
    }
}

/// Exclusive access to the next log.
pub(in crate::db) struct Paused<'a> {
    pub(in crate::db) prepared: MutexGuard<'a, Option<NewLog>>,
    pub(in crate::db) next: &'a NextLog,
}

impl Paused<'_> {
    /// Another manifest is in force, which names neither the next log nor the one before the active one, or
    /// says how that ended.
    pub(in crate::db) fn forget(mut self) {
        *self.prepared = None;
        self.next.is_wanted.store(false, Ordering::Relaxed);
        *lock(&self.next.ended) = None;
    }
}
