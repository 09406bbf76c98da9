//! The prepared next log, and the end of the previous one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::checksum::FileId;
use crate::manifest::edit::EditItem;
use crate::sync::lock;
use crate::wal::FramedWriter;
pub(in crate::db) struct NewLog {
    pub(in crate::db) number: u64,
    pub(in crate::db) file_id: FileId,
    pub(in crate::db) writer: FramedWriter,
}

#[derive(Default)]
pub(in crate::db) struct NextLog {
    /// The prepared log, which the manifest names. Locked while it is created, used or discarded.
    pub(in crate::db) prepared: Mutex<Option<NewLog>>,
    pub(in crate::db) is_wanted: AtomicBool,
    pub(in crate::db) ended: Mutex<Option<EditItem>>,
}

impl NextLog {
    pub(in crate::db) fn ended(&self) -> Option<EditItem> {
        lock(&self.ended).clone()
    }

    pub(in crate::db) fn note_stated(&self, stated: &EditItem) {
        lock(&self.ended).take_if(|ended| ended == stated);
    }

    pub(in crate::db) fn pause(&self) -> Paused<'_> {
        Paused { prepared: lock(&self.prepared), next: self }
    }

    pub(in crate::db) fn is_prepared(&self) -> bool {
        // If the lock is held, its holder is about to change the log.
        self.prepared.try_lock().map_or(true, |prepared| prepared.is_some())
    }
}

pub(in crate::db) struct Paused<'a> {
    pub(in crate::db) prepared: MutexGuard<'a, Option<NewLog>>,
    pub(in crate::db) next: &'a NextLog,
}

impl Paused<'_> {
    /// Call when a new manifest is in force. It names no next log, and states the previous log's end or omits that
    /// log.
    pub(in crate::db) fn forget(mut self) {
        *self.prepared = None;
        self.next.is_wanted.store(false, Ordering::Relaxed);
        *lock(&self.next.ended) = None;
    }
}
