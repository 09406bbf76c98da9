//! Calls that wait for background work: flush, settle.

use std::sync::Arc;
use std::time::Duration;

use crate::db::engine::Engine;
use crate::db::queues::retry::Work;
use crate::db::queues::workers::Jobs;
use crate::db::state::keyspace::tree::{LoggedMemtable, Tree};
use crate::error::{Error, Result};

/// A waiting caller checks at this interval, in case no signal is sent.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(200);

impl Engine {
    /// Without background threads, does a job; otherwise waits up to `limit` for a change after `epoch`. Returns
    /// `false` if there is nothing to do.
    ///
    /// # Errors
    ///
    /// The error of the job.
    pub(in crate::db) fn wait_or_work(&self, epoch: u64, jobs: Jobs, limit: Duration) -> Result<bool> {
        let reservations = &self.background.reservations;
        if self.background.threads == 0 {
            if self.resume_or_step(jobs)? {
                return Ok(true);
            }
            if !reservations.is_working() && reservations.epoch() == epoch {
                return Ok(false);
            }
        }
        reservations.wait_past(epoch, Some(limit));
        Ok(true)
    }

    /// Waits until `done`. Without background threads, does the work. Failed work is retried at once.
    ///
    /// # Errors
    ///
    /// Returns the first new error of work selected by `waits_for`.
    pub(super) fn wait_until(
        &self,
        waits_for: impl Fn(Work) -> bool,
        mut done: impl FnMut() -> bool,
    ) -> Result<()> {
        let reservations = &self.background.reservations;
        let failures = self.retry.failures();
        self.retry.at_once();
        self.background.notify();
        loop {
            let epoch = reservations.epoch();
            if done() {
                return Ok(());
            }
            self.lifecycle.check_not_failed()?;
            self.lifecycle.check_open()?;
            if let Some(error) = self.retry.failed_since(failures, &waits_for) {
                return Err(error);
            }
            if !self.wait_or_work(epoch, Jobs::All, LOOK_INTERVAL)? && !done() {
                self.lifecycle.check_open()?;
                return Err(Error::invalid("no background threads: call `step`"));
            }
        }
    }

    pub(in crate::db) fn flush(&self, trees: &[Arc<Tree>]) -> Result<()> {
        self.check_writable()?;
        self.seal(trees.to_vec())?;
        let waiting: Vec<(Arc<Tree>, Vec<Arc<LoggedMemtable>>)> =
            trees.iter().map(|tree| (Arc::clone(tree), tree.view().immutables.clone())).collect();
        let is_concerned =
            |work| work == Work::Resume || trees.iter().any(|tree| work == Work::Flush(tree.id));
        self.wait_until(is_concerned, || {
            waiting.iter().all(|(tree, memtables)| {
                let view = tree.view();
                let is_left =
                    |memtable: &Arc<LoggedMemtable>| view.immutables.iter().any(|m| Arc::ptr_eq(m, memtable));
                !tree.is_alive() || !memtables.iter().any(is_left)
            })
        })
    }

    pub(in crate::db) fn settle(&self) -> Result<()> {
        self.check_writable()?;
        let is_concerned = |work: Work| {
            work.is_background() && !matches!(work, Work::Remove | Work::ReserveFile | Work::PrepareLog)
        };
        let _settling = self.background.settle();
        self.keyspaces.all().iter().for_each(|tree| tree.mark());
        self.wait_until(is_concerned, || {
            !self.background.reservations.is_working()
                && !self.has_work()
                && !self.retry.is_failing(is_concerned)
                && !self.idle_now()
        })?;
        self.remove_obsolete_files();
        self.retry.work_at_once(Work::ReserveFile);
        if self.lacks_reserve_file() {
            self.make_reserve_file();
        }
        self.adjust_reserve_file();
        Ok(())
    }
}
