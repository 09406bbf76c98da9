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
    settling: AtomicUsize,
    residency_due: AtomicBool,
    pub(in crate::db) lookups: AtomicU64,
    pub(in crate::db) handles: Mutex<Vec<JoinHandle<()>>>,
}

pub(in crate::db) struct Settling<'a>(&'a Background);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.0.settling.fetch_sub(1, Ordering::Relaxed);
    }
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
            settling: AtomicUsize::new(0),
            residency_due: AtomicBool::new(false),
            lookups: AtomicU64::new(0),
            handles: Mutex::default(),
        }
    }

    /// Until the guard is dropped, idle compactions run at any cost.
    pub(in crate::db) fn settle(&self) -> Settling<'_> {
        self.settling.fetch_add(1, Ordering::Relaxed);
        Settling(self)
    }

    pub(in crate::db) fn is_settling(&self) -> bool {
        self.settling.load(Ordering::Relaxed) > 0
    }

    pub(in crate::db) fn notify(&self) {
        self.reservations.notify();
    }

    pub(in crate::db) fn is_stopping(&self) -> bool {
        self.reservations.is_stopping()
    }

    pub(in crate::db) fn begin_commit(&self) -> Committing<'_> {
        self.committing.fetch_add(1, Ordering::SeqCst);
        // The leader may wait for a thread that now waits for the leader.
        self.notify();
        Committing(self)
    }

    /// Whether all background threads, if any, are in the commit queue. If so, the leader must not wait for flushes.
    pub(in crate::db) fn has_no_free_thread(&self) -> bool {
        self.committing.load(Ordering::SeqCst) >= self.threads
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
pub(in crate::db) struct Committing<'a>(&'a Background);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.committing.fetch_sub(1, Ordering::SeqCst);
        self.0.notify();
    }
}

#[cfg(test)]
mod tests {
    use crate::fs::MemFs;
    use crate::options::Options;

    #[test]
    fn waiting_threads_look_again_when_a_thread_enters_the_commit_queue_and_when_it_leaves() {
        let options = Options::new().fs(std::sync::Arc::new(MemFs::new())).background_threads(0);
        let db = options.open("/db").unwrap();
        let background = &db.engine().background;
        let before = background.reservations.epoch();
        let committing = background.begin_commit();
        let during = background.reservations.epoch();
        drop(committing);
        assert!(before < during && during < background.reservations.epoch());
    }
}
