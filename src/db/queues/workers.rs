//! The background threads of a store.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::db::queues::reservations::Reservations;
use crate::db::state::keyspace::marks::Marks;
use crate::db::state::keyspace::tree::Tree;
use crate::sync::lock;
pub(in crate::db) struct Background {
    pub(in crate::db) reservations: Arc<Reservations>,
    pub(in crate::db) threads: usize,
    committing: AtomicUsize,
    pub(in crate::db) is_short_of_memory: AtomicBool,
    residency_due: AtomicBool,
    pub(in crate::db) lookups: AtomicU64,
    pub(in crate::db) handles: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::db) enum Jobs {
    All,
    Urgent,
}

impl Background {
    pub(in crate::db) fn new(threads: usize, marks: &Arc<Marks>) -> Self {
        Self {
            reservations: Reservations::new(Arc::clone(marks)),
            threads,
            committing: AtomicUsize::new(0),
            is_short_of_memory: AtomicBool::new(false),
            residency_due: AtomicBool::new(false),
            lookups: AtomicU64::new(0),
            handles: Mutex::default(),
        }
    }

    pub(in crate::db) fn notify(&self) {
        self.reservations.notify();
    }

    pub(in crate::db) fn is_stopping(&self) -> bool {
        self.reservations.is_stopping()
    }

    pub(in crate::db) fn begin_commit(&self) -> Committing<'_> {
        self.committing.fetch_add(1, Ordering::SeqCst);
        Committing(&self.committing)
    }

    /// Whether all threads are busy. If so, the leader must not wait.
    pub(in crate::db) fn has_no_free_thread(&self) -> bool {
        self.committing.load(Ordering::SeqCst) >= self.threads
    }

    /// While column groups are missing, a thread re-selects the resident ones at intervals.
    pub(in crate::db) fn set_short_of_memory(&self, is_short: bool) {
        self.is_short_of_memory.store(is_short, Ordering::Relaxed);
    }

    pub(in crate::db) fn is_short_of_memory(&self) -> bool {
        self.is_short_of_memory.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn count_lookups(&self, trees: &[Arc<Tree>]) -> u64 {
        let new: u64 = trees.iter().map(|tree| tree.take_new_lookups()).sum();
        self.lookups.fetch_add(new, Ordering::Relaxed) + new
    }

    pub(in crate::db) fn set_residency_due(&self) {
        self.residency_due.store(true, Ordering::Relaxed);
    }

    pub(in crate::db) fn take_residency_due(&self) -> bool {
        self.residency_due.swap(false, Ordering::Relaxed)
    }

    /// Waits for running jobs, including those in callers' threads. Cancels compactions but lets flushes finish.
    pub(in crate::db) fn stop(&self) {
        self.reservations.stop();
        let handles = std::mem::take(&mut *lock(&self.handles));
        for handle in handles {
            let _ = handle.join();
        }
        loop {
            let epoch = self.reservations.epoch();
            if !self.reservations.is_working() {
                return;
            }
            self.reservations.wait_past(epoch, None);
        }
    }
}

/// Until this is dropped, a thread with background work is in the commit queue.
pub(in crate::db) struct Committing<'a>(&'a AtomicUsize);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
