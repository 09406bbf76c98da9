//! The live snapshots. Compactions keep the entries that a snapshot sees.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::expiry::horizons::Horizons;
use crate::batch::KeyspaceId;
use crate::key::SeqNo;
use crate::number_map::NumberMap;
use crate::sync::lock;

#[derive(Default)]
pub(in crate::db) struct SnapshotList(Mutex<State>);

#[derive(Default)]
struct State {
    live: NumberMap<(SeqNo, u64), Live>,
    horizons: Arc<Horizons>,
}

struct Live {
    holders: u64,
    horizons: Arc<Horizons>,
}

impl SnapshotList {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Registers the visible sequence number with the present horizons. Both are read under the lock, so a compaction
    /// that missed this snapshot in [`Self::numbers`] reads no entry newer than it, and [`Self::raise`] is entirely
    /// before or after.
    pub(in crate::db) fn register(&self, visible: &AtomicU64) -> (SeqNo, Arc<Horizons>) {
        let mut state = self.lock();
        let (seqno, horizons) = (visible.load(Ordering::Acquire), Arc::clone(&state.horizons));
        let live = || Live { holders: 0, horizons: Arc::clone(&horizons) };
        state.live.get_or_insert_with((seqno, horizons.rises), live).holders += 1;
        (seqno, horizons)
    }

    pub(in crate::db) fn release(&self, seqno: SeqNo, horizons: &Horizons) {
        let (mut state, moment) = (self.lock(), (seqno, horizons.rises));
        if let Some(live) = state.live.get_mut(&moment) {
            live.holders -= 1;
            if live.holders == 0 {
                state.live.remove(&moment);
            }
        }
    }

    pub(in crate::db) fn oldest(&self) -> SeqNo {
        self.lock().live.keys().next().map_or(SeqNo::MAX, |(seqno, _)| *seqno)
    }

    pub(in crate::db) fn numbers(&self) -> Vec<SeqNo> {
        let mut numbers: Vec<_> = self.lock().live.keys().map(|(seqno, _)| *seqno).collect();
        numbers.dedup();
        numbers
    }

    /// Calls `install` to publish the horizons while no snapshot can be made. If an entry has expired for a reader,
    /// no later snapshot contains it.
    pub(in crate::db) fn raise(&self, changes: &[(KeyspaceId, SeqNo)], install: impl FnOnce()) {
        let mut state = self.lock();
        install();
        state.horizons = Arc::new(state.horizons.raised(changes.iter().copied()));
    }

    /// Entries with smaller numbers are invisible to every reader.
    pub(in crate::db) fn lowest_horizon(&self, keyspace: KeyspaceId) -> SeqNo {
        let state = self.lock();
        let oldest = state.live.values().next().map_or(&state.horizons, |oldest| &oldest.horizons);
        oldest.of(keyspace)
    }
}
