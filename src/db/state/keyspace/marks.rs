//! Keyspaces whose background work may have changed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::batch::KeyspaceId;
use crate::key::SeqNo;
use crate::number_map::NumberSet;
use crate::sync::lock;
pub(in crate::db) struct Marks {
    pub(in crate::db) marked: Mutex<NumberSet<KeyspaceId>>,
    /// An oldest snapshot of at least this number permits a postponed compaction; `SeqNo::MAX` if there is none.
    pub(in crate::db) awaited: AtomicU64,
}

impl Default for Marks {
    fn default() -> Self {
        Self { marked: Mutex::default(), awaited: AtomicU64::new(SeqNo::MAX) }
    }
}

impl Marks {
    pub(in crate::db) fn add(&self, keyspace: KeyspaceId) {
        lock(&self.marked).insert(keyspace);
    }

    pub(in crate::db) fn take(&self) -> NumberSet<KeyspaceId> {
        std::mem::take(&mut lock(&self.marked))
    }

    pub(in crate::db) fn awaited(&self) -> SeqNo {
        self.awaited.load(Ordering::SeqCst)
    }

    pub(in crate::db) fn set_awaited(&self, seqno: SeqNo) {
        self.awaited.store(seqno, Ordering::SeqCst);
    }
}
