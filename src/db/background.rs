//! Background work: which job is next, and its execution as one `step()`.
//!
//! Jobs, most urgent first: remove obsolete files; sync the log if much of it is not durable (so that the
//! sync at its end is short); flush the oldest immutable memtable of a keyspace; compact; rebuild an unusable
//! filter; load or drop column groups of filters. A job is chosen and reserved under one lock, carried out
//! without the lock, and then released.
//!
//! Threads call [`Engine::step`] until nothing is left and then sleep; without threads the caller does. The
//! first of several threads does only the urgent jobs, so that no writer waits for a long compaction.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::engine::Engine;
use super::health::catch;
use super::jobs::JobError;
use super::refilter::find_unusable_filter;
use super::reservations::{Job, Reservations, Reserved};
use crate::compaction::pick;
use crate::error::{Error, Result};
use crate::sync::lock;

/// Unsynced bytes of the log at which it is synced in the background.
pub(crate) const LOG_SYNC_BYTES: u64 = 8 << 20;

/// How often to choose which filters to keep in memory, while there is no room for all of them.
const RESIDENCY_INTERVAL: Duration = Duration::from_secs(1);

/// The background threads of a store and their jobs.
pub(crate) struct Background {
    pub(crate) reservations: Arc<Reservations>,
    pub(crate) threads: usize,
    /// Some column groups of filters are not in memory.
    is_short_of_memory: AtomicBool,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// Which jobs a thread takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Jobs {
    All,
    /// Only the jobs that writers may be waiting for.
    Urgent,
}

impl Background {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            reservations: Arc::default(),
            threads,
            is_short_of_memory: AtomicBool::new(false),
            handles: Mutex::default(),
        }
    }

    /// To be called when there may be a new job, or when a thread that waits may continue.
    pub(crate) fn notify(&self) {
        self.reservations.notify();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.reservations.is_stopping()
    }

    /// Sets whether some column groups of filters are not in memory. As long as that is true, a thread
    /// chooses again at intervals which to keep, because the lookups may change.
    pub(crate) fn set_short_of_memory(&self, is_short: bool) {
        self.is_short_of_memory.store(is_short, Ordering::Relaxed);
    }

    /// Starts the threads.
    pub(crate) fn start(&self, engine: &Arc<Engine>) -> Result<()> {
        let mut handles = lock(&self.handles);
        for index in 0..self.threads {
            let worker = Arc::clone(engine);
            let jobs = if index == 0 && self.threads > 1 { Jobs::Urgent } else { Jobs::All };
            let thread = std::thread::Builder::new().name(format!("sievedb-{index}"));
            let spawned = thread.spawn(move || worker.work(jobs));
            handles.push(spawned.map_err(|error| Error::io("start a thread for", &engine.files.dir, error))?);
        }
        Ok(())
    }

    /// Starts no new job, and waits for running jobs in the store's threads and in callers' threads. Running
    /// compactions are cancelled; running flushes finish.
    pub(crate) fn stop(&self) {
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

impl Engine {
    fn work(&self, jobs: Jobs) {
        loop {
            let epoch = self.background.reservations.epoch();
            if self.background.is_stopping() {
                return;
            }
            while matches!(self.step(jobs), Ok(true)) {}
            let is_short = jobs == Jobs::All && self.background.is_short_of_memory.load(Ordering::Relaxed);
            self.background.reservations.wait_past(epoch, is_short.then_some(RESIDENCY_INTERVAL));
        }
    }

    /// Does the most urgent job. `false` if there is none.
    ///
    /// # Errors
    ///
    /// The error of the job, or its panic (a file system or a subscriber of events is the caller's code).
    /// Writing is disabled, and writers get the same error.
    pub(crate) fn step(&self, jobs: Jobs) -> Result<bool> {
        if self.log.is_none() {
            return Ok(false);
        }
        self.files.check_process()?;
        self.health.check_not_failed()?;
        catch("background work", || self.find_and_do(jobs)).unwrap_or_else(|panic| Err(self.fail(panic)))
    }

    fn find_and_do(&self, jobs: Jobs) -> Result<bool> {
        let obsolete = self.remove_obsolete_files();
        // Read before the reservations are locked, because a sync may hold the log's lock for long.
        let log_is_long = self.log().unsynced_bytes() > LOG_SYNC_BYTES;
        let next = |reserved: &Reserved<'_>| self.next_job(jobs, log_is_long, reserved);
        let Some(reservation) = self.background.reservations.reserve_next(next) else {
            return Ok(obsolete);
        };
        match self.carry_out_job(reservation.job()) {
            Ok(is_done) => Ok(is_done || obsolete),
            // The keyspace was dropped during the job, or the store is being closed: not a failure.
            Err(JobError::Store(Error::KeyspaceDropped { .. } | Error::Closed)) => Ok(true),
            // The table does not change. The failure was counted and reported, and the job is not tried
            // again.
            Err(JobError::Table(_)) => Ok(true),
            Err(JobError::Store(error)) => Err(self.fail(error)),
        }
    }

    /// The error of a job, for the caller who waits for it. An error of the store disables writing.
    pub(crate) fn fail_job(&self, error: JobError) -> Error {
        match error {
            JobError::Table(error) => error,
            JobError::Store(error) => self.fail(error),
        }
    }

    /// Does a job. `false` if it found nothing to do.
    fn carry_out_job(&self, job: &Job) -> Result<bool, JobError> {
        match job {
            Job::SyncLog => self.sync()?,
            Job::Flush(tree, memtable) => self.flush_memtable(tree, memtable)?,
            Job::Compact(tree, task) => self.compact(tree, task)?,
            Job::Refilter(tree, table) => self.refilter_table(tree, table)?,
            Job::CompactAll(tree) => self.compact_settled(tree)?,
            Job::Residency(changes) => return Ok(self.change_residency(changes)),
        }
        Ok(true)
    }

    /// The most urgent job that is not reserved.
    fn next_job(&self, jobs: Jobs, log_is_long: bool, reserved: &Reserved<'_>) -> Option<Job> {
        if log_is_long && !reserved.is_log_sync() {
            return Some(Job::SyncLog);
        }
        let trees = self.keyspaces.all();
        for tree in trees.iter().filter(|tree| !reserved.is_flush(tree)) {
            if let Some(oldest) = tree.view().immutables.last() {
                return Some(Job::Flush(Arc::clone(tree), Arc::clone(oldest)));
            }
        }
        if jobs == Jobs::Urgent {
            return None;
        }
        for tree in &trees {
            let Some(mut busy) = reserved.tables(tree) else { continue };
            let view = tree.view();
            busy.extend(view.version.set_aside());
            if let Some(task) = pick::pick(&view.version, &busy, &tree.shape()) {
                return Some(Job::Compact(Arc::clone(tree), task));
            }
        }
        let refilter = trees.iter().filter(|_| !reserved.is_extra()).find_map(|tree| {
            let table = find_unusable_filter(&tree.view().version, &reserved.tables(tree)?)?;
            Some(Job::Refilter(Arc::clone(tree), table))
        });
        refilter.or_else(|| self.residency_job(reserved))
    }
}
