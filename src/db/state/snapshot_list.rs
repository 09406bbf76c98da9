//! The sequence numbers of live snapshots. Compactions keep the entries that a snapshot sees.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::key::SeqNo;
use crate::sync::lock;
/// The live snapshots: the number of holders of each sequence number.
#[derive(Default)]
pub(in crate::db) struct SnapshotList(Mutex<BTreeMap<SeqNo, u64>>);

impl SnapshotList {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SeqNo, u64>> {
        lock(&self.0)
    }

    /// Registers the sequence number that is visible now. It is read under the lock, which orders it with
    /// [`Self::numbers`]: if a compaction did not see this snapshot, its input has no newer entries than the
    /// snapshot's number.
    pub(in crate::db) fn register(&self, visible: &AtomicU64) -> SeqNo {
        let mut list = self.lock();
        let seqno = visible.load(Ordering::Acquire);
        *list.entry(seqno).or_default() += 1;
        seqno
    }

    pub(in crate::db) fn release(&self, seqno: SeqNo) {
        let mut list = self.lock();
        if let Some(holders) = list.get_mut(&seqno) {
            *holders -= 1;
            if *holders == 0 {
                list.remove(&seqno);
            }
        }
    }

    /// The number of the oldest live snapshot; `SeqNo::MAX` if there is none.
    pub(in crate::db) fn oldest(&self) -> SeqNo {
        self.lock().keys().next().copied().unwrap_or(SeqNo::MAX)
    }

    /// The sequence numbers of all live snapshots, ascending.
    pub(in crate::db) fn numbers(&self) -> Vec<SeqNo> {
        self.lock().keys().copied().collect()
    }
}
