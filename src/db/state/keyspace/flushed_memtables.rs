//! Flushed memtables retained for running conditional calls.
//!
//! The commit leader decides a conditional write by the entries newer than its caller's lookups, without reading
//! tables. If a memtable with such entries has been flushed, the caller repeats its lookup. It then registers its
//! sequence number ([`FlushedMemtables::begin`]), so that flushed memtables with newer entries are retained.
//!
//! Their memory is leased from the budget. Under pressure the oldest are evicted in favour of tables and filters, and
//! calls that need them repeat their lookups.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::batch::KeyspaceId;
use crate::key::SeqNo;
use crate::memory::{Lease, Memory};
use crate::memtable::Memtable;
use crate::sync::lock;

pub(in crate::db) struct FlushedMemtables {
    memory: Arc<Memory>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Vec<RunningCall>,
    kept: Vec<Flushed>,
}

type RunningCall = (KeyspaceId, SeqNo);

struct Flushed {
    keyspace: KeyspaceId,
    memtable: Arc<Memtable>,
    forgotten: Arc<AtomicU64>,
    lease: Option<Lease>,
}

pub(in crate::db) struct Running<'f> {
    flushed: &'f FlushedMemtables,
    call: RunningCall,
}

impl FlushedMemtables {
    pub(super) fn new(memory: Arc<Memory>) -> Arc<Self> {
        let flushed = Arc::new(Self { memory, state: Mutex::default() });
        let weak = Arc::downgrade(&flushed);
        flushed.memory.evict_with(move || {
            if let Some(flushed) = weak.upgrade() {
                flushed.change(|state| state.evict_while(|| flushed.memory.lacks_room_for_flushed(0)));
            }
        });
        flushed
    }

    /// Call before the memtable leaves the view.
    pub(super) fn add(&self, keyspace: KeyspaceId, memtable: &Arc<Memtable>, forgotten: &Arc<AtomicU64>) {
        let (memtable, forgotten) = (Arc::clone(memtable), Arc::clone(forgotten));
        let mut flushed = Flushed { keyspace, memtable, forgotten, lease: None };
        self.change(|state| {
            if !state.needs(&flushed) {
                flushed.forget();
                return vec![flushed];
            }
            let bytes = flushed.memtable.size_bytes() as u64;
            let mut gone = state.evict_while(|| self.memory.lacks_room_for_flushed(bytes));
            flushed.lease = self.memory.try_lease_flushed(bytes);
            if flushed.lease.is_some() {
                state.kept.push(flushed);
            } else {
                flushed.forget();
                gone.push(flushed);
            }
            gone
        });
    }

    /// An evicted memtable has updated `forgotten` before it leaves this list.
    pub(super) fn of(&self, keyspace: KeyspaceId) -> Vec<Arc<Memtable>> {
        let state = lock(&self.state);
        let kept = state.kept.iter().filter(|flushed| flushed.keyspace == keyspace);
        kept.map(|flushed| Arc::clone(&flushed.memtable)).collect()
    }

    pub(super) fn begin(&self, keyspace: KeyspaceId, at: SeqNo) -> Running<'_> {
        let call = (keyspace, at);
        lock(&self.state).running.push(call);
        Running { flushed: self, call }
    }

    /// Frees memtables after releasing the lock. Memtables that readers hold are counted outside of the budget.
    fn change(&self, change: impl FnOnce(&mut State) -> Vec<Flushed>) {
        let gone = change(&mut lock(&self.state));
        for Flushed { memtable, .. } in gone {
            memtable.keep(self.memory.hold(memtable.size_bytes() as u64));
        }
    }
}

impl State {
    fn needs(&self, flushed: &Flushed) -> bool {
        let newest = flushed.memtable.seqno_max();
        self.running.iter().any(|&(keyspace, began)| keyspace == flushed.keyspace && newest > Some(began))
    }

    fn evict_while(&mut self, is_short: impl Fn() -> bool) -> Vec<Flushed> {
        let mut gone = Vec::new();
        while !self.kept.is_empty() && is_short() {
            let mut oldest = self.kept.remove(0);
            oldest.forget();
            gone.push(oldest);
        }
        gone
    }

    fn end(&mut self, call: RunningCall) -> Vec<Flushed> {
        let at = self.running.iter().position(|running| *running == call);
        self.running.swap_remove(at.expect("a running call is registered"));
        let kept = mem::take(&mut self.kept).into_iter();
        let (kept, mut gone): (Vec<_>, Vec<_>) = kept.partition(|flushed| self.needs(flushed));
        self.kept = kept;
        gone.iter_mut().for_each(Flushed::forget);
        gone
    }
}

impl Flushed {
    fn forget(&mut self) {
        self.forgotten.fetch_max(self.memtable.seqno_max().unwrap_or(0), Ordering::Release);
        self.lease = None;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.flushed.change(|state| state.end(self.call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{EntryKind, Tag};
    use crate::memory::LeaseKind;

    const BUDGET: u64 = 1 << 20;

    struct Flushes {
        memory: Arc<Memory>,
        flushed: Arc<FlushedMemtables>,
        forgotten: Arc<AtomicU64>,
    }

    impl Flushes {
        fn new() -> Self {
            let memory = Memory::new(BUDGET as usize, 1 << 18);
            let flushed = FlushedMemtables::new(Arc::clone(&memory));
            Self { memory, flushed, forgotten: Arc::default() }
        }

        /// Flushes a memtable of keyspace 1 with this newest number. Returns its size.
        fn flush(&self, seqno: SeqNo) -> u64 {
            let memtable = Arc::new(Memtable::new(1 << 10, 0));
            memtable.insert(b"k", Tag::new(seqno, EntryKind::Put), &[7; 1000]);
            self.flushed.add(1, &memtable, &self.forgotten);
            memtable.size_bytes() as u64
        }

        /// Returns the number of retained memtables, the newest number among the others, and the bytes leased and
        /// held.
        fn state(&self) -> (usize, SeqNo, u64, u64) {
            let stats = self.memory.stats();
            let kept = self.flushed.of(1).len();
            (kept, self.forgotten.load(Ordering::Acquire), stats.memtables, stats.held)
        }
    }

    #[test]
    fn a_memtable_is_kept_and_leased_only_while_a_call_runs_that_began_before_its_newest_entry() {
        let flushes = Flushes::new();
        flushes.flush(5);
        assert_eq!(flushes.state(), (0, 5, 0, 0));
        let (other, late, early) =
            (flushes.flushed.begin(2, 0), flushes.flushed.begin(1, 9), flushes.flushed.begin(1, 5));
        let nine = flushes.flush(9);
        assert_eq!(flushes.state(), (1, 5, nine, 0));
        let twelve = flushes.flush(12);
        assert_eq!(flushes.state(), (2, 5, nine + twelve, 0));
        drop(early);
        assert_eq!(flushes.state(), (1, 9, twelve, 0), "the other call needs no entry up to 9");
        let reader = flushes.flushed.of(1);
        drop(late);
        assert_eq!(flushes.state(), (0, 12, 0, twelve), "its reader holds it");
        drop((other, reader));
        assert_eq!(flushes.state(), (0, 12, 0, 0));
        flushes.flush(20);
        assert_eq!(flushes.state(), (0, 20, 0, 0));
    }

    #[test]
    fn the_oldest_memtables_are_evicted_when_memory_is_short() {
        let flushes = Flushes::new();
        let call = flushes.flushed.begin(1, 0);
        let mut seqno = 0;
        // Adds memtables until they no longer fit together.
        while flushes.state().1 == 0 {
            seqno += 1;
            flushes.flush(seqno);
            assert!(seqno < 1000, "none is evicted");
            assert!(flushes.memory.stats().total() <= BUDGET);
        }
        let (kept, forgotten, bytes, _) = flushes.state();
        assert_eq!((kept as u64, forgotten), (seqno - 1, 1), "one was evicted");
        assert!(bytes > BUDGET / 2);
        // Tables and filters take their whole share.
        let filter = flushes.memory.try_lease(LeaseKind::Filters, flushes.memory.room()).unwrap();
        let (fewer, forgotten, bytes, _) = flushes.state();
        assert!(fewer < kept && fewer > 0 && bytes < BUDGET / 8, "{fewer} of {kept}");
        assert_eq!(forgotten, seqno - fewer as u64, "the newest are left");
        assert!(flushes.memory.stats().total() <= BUDGET);
        drop(filter);
        drop(call);
        assert_eq!(flushes.state(), (0, seqno, 0, 0));
    }

    #[test]
    fn a_memtable_for_which_there_is_no_room_is_not_kept() {
        let flushes = Flushes::new();
        let _call = flushes.flushed.begin(1, 0);
        let _rest = flushes.memory.lease(LeaseKind::Tables, BUDGET as usize);
        flushes.flush(5);
        assert_eq!(flushes.state(), (0, 5, 0, 0));
    }
}
