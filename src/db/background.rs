//! Background work: which job is next, and its execution as one `step()`.
//!
//! Jobs, most urgent first: remove the files of tables that nobody reads any more; make a long unsynced
//! piece of the log durable (so that the sync at its end is short); flush the oldest immutable memtable of a
//! keyspace; compact. A job claims what it works on under the lock, works without it, and releases it.
//!
//! Threads call [`Engine::step`] until nothing is left and then sleep; without threads the caller does. The
//! first of several threads only flushes, so that a long compaction never holds up the writers.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::engine::Engine;
use super::pressure;
use super::tree::{LoggedMemtable, Tree};
use super::write::Admitted;
use crate::batch::KeyspaceId;
use crate::compaction::pick::{self, Task};
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::version::TableHandle;

/// Unsynced bytes of the log at which it is synced in the background.
pub(crate) const LOG_SYNC_BYTES: u64 = 8 << 20;

/// The queue of background work: what is claimed, and who waits.
pub(crate) struct Background {
    state: Mutex<State>,
    /// Signalled when there may be work, and when a job has ended.
    changed: Condvar,
    threads: usize,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    stopping: bool,
    syncing_log: bool,
    /// Keyspaces whose oldest memtable is being flushed.
    flushing: HashSet<KeyspaceId>,
    /// Tables that a running task works on.
    busy: HashMap<KeyspaceId, HashSet<u64>>,
    /// Keyspaces that are being compacted as a whole: nothing else is picked there.
    exclusive: HashSet<KeyspaceId>,
    /// Counts changes, so that a thread does not sleep through one.
    epoch: u64,
}

impl State {
    /// Whether some job is running.
    fn is_working(&self) -> bool {
        self.syncing_log
            || !self.flushing.is_empty()
            || !self.exclusive.is_empty()
            || self.busy.values().any(|tables| !tables.is_empty())
    }
}

enum Job {
    SyncLog,
    Flush(Arc<Tree>, Arc<LoggedMemtable>),
    Compact(Arc<Tree>, Task),
}

/// Which jobs a thread takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Jobs {
    All,
    /// Those that writers may be waiting for.
    Urgent,
}

impl Background {
    pub(crate) fn new(threads: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), threads, handles: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called when there may be new work or a waiter may go on.
    pub(crate) fn notify(&self) {
        self.lock().epoch += 1;
        self.changed.notify_all();
    }

    /// Starts the threads.
    pub(crate) fn start(&self, engine: &Arc<Engine>) -> Result<()> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        for index in 0..self.threads {
            let worker = Arc::clone(engine);
            let jobs = if index == 0 && self.threads > 1 { Jobs::Urgent } else { Jobs::All };
            let thread = std::thread::Builder::new().name(format!("sievedb-{index}"));
            let spawned = thread.spawn(move || worker.work(jobs));
            handles.push(spawned.map_err(|error| Error::io("start a thread for", &engine.dir, error))?);
        }
        Ok(())
    }

    /// Tells the threads to stop and waits for them. A running compaction is given up, a flush finished.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
        let handles = std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        for handle in handles {
            // The last handle may be dropped by a background thread's own job; it cannot wait for itself.
            if handle.thread().id() != std::thread::current().id() {
                let _ = handle.join();
            }
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }
}

impl Engine {
    fn work(&self, jobs: Jobs) {
        let mut epoch = 0;
        loop {
            while !self.background.is_stopping() && matches!(self.step(jobs), Ok(true)) {}
            let mut state = self.background.lock();
            while !state.stopping && (state.epoch == epoch || self.has_failed()) {
                state = self.background.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stopping {
                return;
            }
            epoch = state.epoch;
        }
    }

    /// Does the most urgent job. `false` if there is none.
    ///
    /// # Errors
    ///
    /// What the job ran into; it has also been remembered, and writers get it.
    pub(crate) fn step(&self, jobs: Jobs) -> Result<bool> {
        if self.log.is_none() {
            return Ok(false);
        }
        self.check_not_failed()?;
        let buried = self.remove_buried();
        let Some(job) = self.claim(jobs) else { return Ok(buried) };
        let result = match &job {
            Job::SyncLog => self.sync(),
            Job::Flush(tree, memtable) => self.flush_memtable(tree, memtable),
            Job::Compact(tree, task) => self.compact(tree, task),
        };
        self.release(job);
        match result {
            // The keyspace was dropped under the job, or the store is being closed: not a failure.
            Err(Error::KeyspaceDropped { .. } | Error::Closed) | Ok(()) => Ok(true),
            Err(error) => Err(self.fail(error)),
        }
    }

    fn claim(&self, jobs: Jobs) -> Option<Job> {
        let mut state = self.background.lock();
        if state.stopping {
            return None;
        }
        if !state.syncing_log && self.log().unsynced_bytes() > LOG_SYNC_BYTES {
            state.syncing_log = true;
            return Some(Job::SyncLog);
        }
        let trees = self.trees.load();
        for tree in trees.values().filter(|tree| !state.flushing.contains(&tree.id)) {
            if let Some(oldest) = tree.view().immutables.last() {
                let job = Job::Flush(Arc::clone(tree), Arc::clone(oldest));
                state.flushing.insert(tree.id);
                return Some(job);
            }
        }
        if jobs == Jobs::Urgent {
            return None;
        }
        for tree in trees.values().filter(|tree| !state.exclusive.contains(&tree.id)) {
            let shape = tree.shape();
            let busy = state.busy.get(&tree.id).cloned().unwrap_or_default();
            if let Some(task) = pick::pick(&tree.view().version, &busy, &shape) {
                state.busy.entry(tree.id).or_default().extend(task.numbers());
                return Some(Job::Compact(Arc::clone(tree), task));
            }
        }
        None
    }

    /// Gives up the claims of a job, after everything it held: whoever waits for it finds its tables gone.
    fn release(&self, job: Job) {
        match job {
            Job::SyncLog => self.background.lock().syncing_log = false,
            Job::Flush(tree, memtable) => {
                drop(memtable);
                self.background.lock().flushing.remove(&tree.id);
            }
            Job::Compact(tree, task) => {
                let numbers = task.numbers();
                drop(task);
                if let Some(busy) = self.background.lock().busy.get_mut(&tree.id) {
                    busy.retain(|number| !numbers.contains(number));
                }
            }
        }
        self.background.lock().epoch += 1;
        self.background.changed.notify_all();
    }

    /// Waits until `done`, doing the work itself if there are no threads.
    pub(crate) fn wait_until(&self, done: impl Fn() -> bool) -> Result<()> {
        loop {
            let epoch = self.background.lock().epoch;
            if done() {
                return Ok(());
            }
            self.check_not_failed()?;
            self.check_open()?;
            if self.background.threads == 0 && self.step(Jobs::All)? {
                continue;
            }
            let state = self.background.lock();
            if self.background.threads == 0 && !state.is_working() && state.epoch == epoch {
                return Err(Error::invalid("waiting for work that nobody does"));
            }
            if state.epoch == epoch && !state.stopping {
                // The time limit is for a failure that is noticed outside the lock.
                let timeout = Duration::from_millis(200);
                drop(self.background.changed.wait_timeout(state, timeout));
            }
        }
    }

    /// Writes everything that is in memory into tables.
    pub(crate) fn flush(&self, trees: &[Arc<Tree>]) -> Result<()> {
        self.check_writable()?;
        self.seal(trees.to_vec())?;
        let waiting: Vec<(Arc<Tree>, Vec<Arc<LoggedMemtable>>)> =
            trees.iter().map(|tree| (Arc::clone(tree), tree.view().immutables.clone())).collect();
        self.background.notify();
        self.wait_until(|| {
            waiting.iter().all(|(tree, memtables)| {
                let view = tree.view();
                let is_left =
                    |memtable: &Arc<LoggedMemtable>| view.immutables.iter().any(|m| Arc::ptr_eq(m, memtable));
                !tree.is_alive() || !memtables.iter().any(is_left)
            })
        })
    }

    /// Compacts a whole tree into one run, in the calling thread.
    pub(crate) fn compact_all(&self, tree: &Arc<Tree>) -> Result<()> {
        self.flush(std::slice::from_ref(tree))?;
        let claimed = || {
            let mut state = self.background.lock();
            let free =
                state.busy.get(&tree.id).is_none_or(HashSet::is_empty) && !state.exclusive.contains(&tree.id);
            free && state.exclusive.insert(tree.id)
        };
        self.wait_until(claimed)?;
        let shape = tree.shape();
        let result = match pick::pick_all(&tree.view().version, &shape, TableHandle::has_unusable_filter) {
            Some(task) => self.compact(tree, &task),
            None => Ok(()),
        };
        self.background.lock().exclusive.remove(&tree.id);
        self.background.notify();
        self.remove_buried();
        result.map_err(|error| self.fail(error))
    }

    /// Waits until there is nothing left to flush or to compact.
    pub(crate) fn settle(&self) -> Result<()> {
        self.check_writable()?;
        self.background.notify();
        self.wait_until(|| {
            let state = self.background.lock();
            !state.is_working()
                && self.trees.load().values().all(|tree| {
                    let view = tree.view();
                    let shape = tree.shape();
                    view.immutables.is_empty() && pick::pick(&view.version, &HashSet::new(), &shape).is_none()
                })
        })?;
        self.remove_buried();
        Ok(())
    }

    /// Removes the files of tables that no version names any more. `true` if there were any.
    pub(crate) fn remove_buried(&self) -> bool {
        self.graveyard.clear(|number| {
            let path = FileName::Table(number).path(&self.dir);
            self.context.forget(number);
            if let Err(error) = self.fs.remove(&path) {
                // A stray now; the next open removes it.
                tracing::warn!(path = %path.display(), %error, "an obsolete table could not be removed");
            }
        })
    }

    /// Slows a group of writers down by how far flushes and compactions are behind; see `pressure`.
    pub(crate) fn throttle(&self, group: &[Admitted]) {
        let start = std::time::Instant::now();
        let mut pressure = pressure_of(group);
        if pressure <= 0.0 {
            return;
        }
        if pressure < 1.0 {
            let bytes = group.iter().map(|admitted| admitted.bytes.len()).sum();
            let delay = pressure::delay(bytes, pressure);
            if !delay.is_zero() && self.background.threads > 0 {
                std::thread::sleep(delay);
            }
        }
        while pressure >= 1.0 && !self.has_failed() && !self.background.is_stopping() {
            if self.background.threads == 0 {
                if !matches!(self.step(Jobs::All), Ok(true)) {
                    break;
                }
            } else {
                let state = self.background.lock();
                drop(self.background.changed.wait_timeout(state, Duration::from_millis(5)));
            }
            pressure = pressure_of(group);
        }
        let nanos = start.elapsed().as_nanos() as u64;
        self.counters.delays.fetch_add(1, Ordering::Relaxed);
        self.counters.delay_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.counters.longest_delay_nanos.fetch_max(nanos, Ordering::Relaxed);
    }
}

/// The pressure of the keyspace that is furthest behind.
fn pressure_of(group: &[Admitted]) -> f64 {
    let of = |tree: &Arc<Tree>| {
        let view = tree.view_ref();
        let trigger = tree.options.load().l0_runs;
        pressure::pressure(view.immutables.len(), view.version.runs(0).len(), trigger)
    };
    group.iter().flat_map(|admitted| &admitted.trees).map(of).fold(0.0, f64::max)
}
