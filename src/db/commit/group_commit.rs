//! The write path: group commit.
//!
//! Every writer does the first step by itself. Then one at a time is the leader (`queue`): it takes the
//! waiting requests and its own as one group and carries them out in the other steps. Then the writer of the
//! first request that arrived meanwhile becomes the leader.
//!
//! 1. *throttle*: wait if flushes or compactions of the batch's keyspaces are behind, and until all memtables
//!    together have room in the budget.
//! 2. *admit*: check that the keyspaces of each batch still exist. A request that fails this check fails alone.
//!    *Decide* the conditional writes (`decide`): the leader knows every earlier write. *Make room* for what is
//!    to be written: wait if batches that found room at the same time have none together.
//! 3. *stamp and log*: write sequence numbers into the batches, and append all batches to the log with one
//!    write.
//! 4. *apply*: insert copies of the entries into the memtables (`apply`).
//! 5. *publish*: make the last sequence number visible, for all keyspaces at once.
//! 6. *seal*: make full memtables immutable, and begin a new log (`next_log`).
//!
//! A writer that asked for durability then waits for a sync on its own, so that the next group can start at
//! once. After a failure in step 1 or 2 nothing was written. After one in step 3 it is unknown what the log
//! holds, so nothing later is appended to it (`resume`). After one in step 6 the batches are written, and the
//! next group tries to seal again.

use crate::Durability;
use crate::db::state::log::OLDER_LOGS_MAX;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::apply::apply;
use super::conflict_check::decide;
use crate::batch::{self, WriteBatch};
use crate::db::engine::Engine;
use crate::db::queues::commit_queue::{Outcome, Turn, Wanted};
use crate::db::queues::condition::Admitted;
use crate::db::queues::condition::PartMut;
use crate::db::queues::retry::Work;
use crate::db::state::failure::catch;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LOG_SYNC_BYTES;
use crate::db::state::log::{LogPosition, Synced};
use crate::db::state::switch_points::point;
use crate::error::{Error, Result};
use crate::limits::SEQNO_MAX;

/// What a request of a group wants, and so whose result it gets.
enum Part {
    /// Not admitted.
    Refused(Error),
    Write,
    Seal,
}

/// Where the batches of a group end in the log, and the trees whose memtables are full.
struct Written {
    position: LogPosition,
    full: Vec<Arc<Tree>>,
}

impl Engine {
    /// Writes a batch.
    pub(crate) fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        let position = self.write_visible(batch)?;
        self.make_durable(Some(position), durability)
    }

    /// Writes an encoded batch that has entries, all for this tree.
    #[inline]
    pub(in crate::db) fn write_in(
        &self,
        tree: &Arc<Tree>,
        bytes: Vec<u8>,
        durability: Durability,
    ) -> Result<()> {
        self.check_writable()?;
        self.await_resume()?;
        let position = self.write_plain(bytes, std::slice::from_ref(tree))?;
        self.make_durable(Some(position), durability)
    }

    /// Makes what was written, or read, as durable as a caller wants: the log up to this position, or everything
    /// that is visible. A store that is open for reading syncs nothing.
    #[inline]
    pub(in crate::db) fn make_durable(
        &self,
        up_to: Option<LogPosition>,
        durability: Durability,
    ) -> Result<()> {
        match (durability, up_to) {
            (Durability::Buffered, _) => Ok(()),
            (Durability::Synced, Some(position)) => self.wait_durable(position),
            (Durability::Synced, None) if self.log.is_none() => Ok(()),
            (Durability::Synced, None) => self.sync(),
        }
    }

    /// Writes a batch. Returns when it is visible, and where a sync makes it durable.
    pub(in crate::db) fn write_visible(&self, batch: WriteBatch) -> Result<LogPosition> {
        self.check_writable()?;
        if batch.store().is_some_and(|store| store != self.id) {
            return Err(Error::invalid("the batch holds keyspaces of another store"));
        }
        let (bytes, keyspaces, count) = batch.into_parts()?;
        self.await_resume()?;
        if count == 0 {
            return Ok(self.log().end());
        }
        let trees = self.keyspaces.admit(&keyspaces)?;
        self.write_plain(bytes, &trees)
    }

    /// Writes an encoded batch that has entries, and no condition. Who finds no leader leads, and makes no request.
    #[inline]
    fn write_plain(&self, mut bytes: Vec<u8>, trees: &[Arc<Tree>]) -> Result<LogPosition> {
        self.throttle((&bytes, trees))?;
        point();
        if !self.commit.lead() {
            let admitted = Admitted { bytes, trees: trees.to_vec(), condition: None };
            return self.submit(Wanted::Batch(admitted)).map(|outcome| outcome.position);
        }
        point();
        let written = catch("writing a batch", || {
            check_alive(trees)?;
            self.begin_group(false)?;
            let written = self.write_parts(&mut [(&mut bytes, trees)])?;
            if !written.full.is_empty() {
                // Its failure is that of nobody's batch, and the next group tries again.
                let _ = self.seal_full(&written, Vec::new());
            }
            Ok(written.position)
        });
        let written = written.unwrap_or_else(|panic| Err(self.fail(panic)));
        point();
        self.commit.hand_on();
        written
    }

    /// Writes a conditional batch. Step 1, in the writer's thread, and then the others.
    pub(in crate::db) fn submit_batch(&self, admitted: Admitted) -> Result<Outcome> {
        self.throttle(admitted.part())?;
        self.submit(Wanted::Batch(admitted))
    }

    /// Makes every write durable that returned before this call.
    pub(crate) fn sync(&self) -> Result<()> {
        self.check_writable()?;
        self.wait_durable(self.log().end())
    }

    pub(crate) fn wait_durable(&self, position: LogPosition) -> Result<()> {
        self.begin_writing()?;
        let synced = self.log().wait_durable(position, || self.manifest.mark());
        let Synced { up_to, unpromised } = synced.map_err(|error| self.fail(error))?;
        if let Some((log, error)) = unpromised {
            self.suspend_log(log, error);
        }
        self.completions.complete(up_to, &Ok(()));
        Ok(())
    }

    /// Makes the memtables of these trees immutable. Does not wait until they are flushed.
    pub(crate) fn seal(&self, trees: Vec<Arc<Tree>>) -> Result<()> {
        self.await_resume()?;
        self.submit(Wanted::Seal(trees)).map(drop)
    }

    /// Resumes writing if it is suspended, and waits until that is due. Not for the commit leader.
    pub(in crate::db) fn resume_first(&self) -> Result<()> {
        if self.suspension.is_suspended() { self.seal(Vec::new()) } else { Ok(()) }
    }

    /// Ends the active log. Nothing can be written afterwards.
    pub(crate) fn close_log(&self) -> Result<()> {
        self.submit(Wanted::Close).map(drop)
    }

    /// The other steps.
    pub(in crate::db) fn submit(&self, work: Wanted) -> Result<Outcome> {
        point();
        let own = match self.commit.enter(work) {
            Turn::Leads(own) => own,
            Turn::Done(result) => return result,
        };
        point();
        let followers = self.commit.take_followers(&own);
        // The other writers of the group wait for their results, also after a panic.
        let result = catch("writing a batch", || match own {
            Wanted::Batch(own) if followers.is_empty() => (self.write_alone(own), Vec::new()),
            own => {
                let wanted = followers.iter().map(|request| request.take());
                let mut results = self.carry_out(std::iter::once(own).chain(wanted).collect()).into_iter();
                (results.next().expect("a result for each"), results.collect())
            }
        });
        let (own, others) = result.unwrap_or_else(|panic| {
            let error = self.fail(panic);
            (Err(error.clone()), followers.iter().map(|_| Err(error.clone())).collect())
        });
        point();
        self.commit.hand_on();
        for (request, result) in followers.iter().zip(others) {
            request.finish(result);
        }
        own
    }

    /// Carries out a group of one batch.
    fn write_alone(&self, admitted: Admitted) -> Result<Outcome> {
        check_alive(&admitted.trees)?;
        let mut group = [admitted];
        let written = self.write_group(&mut group, false);
        if let Ok(full) = &written {
            // Its failure is that of nobody's batch, and the next group tries again.
            let _ = self.seal_full(full, Vec::new());
        }
        let [admitted] = group;
        self.outcome(admitted, &written)
    }

    /// Carries out a group; one result per request.
    fn carry_out(&self, group: Vec<Wanted>) -> Vec<Result<Outcome>> {
        let mut parts = Vec::with_capacity(group.len());
        let mut admitted = Vec::with_capacity(group.len());
        let mut seals: Vec<Arc<Tree>> = Vec::new();
        let mut close = false;
        for work in group {
            parts.push(match work {
                Wanted::Batch(batch) => match check_alive(&batch.trees) {
                    Ok(()) => {
                        admitted.push(batch);
                        Part::Write
                    }
                    Err(error) => Part::Refused(error),
                },
                Wanted::Seal(trees) => {
                    seals.extend(trees);
                    Part::Seal
                }
                Wanted::Close => {
                    close = true;
                    Part::Seal
                }
            });
        }
        let written = self.write_group(&mut admitted, close);
        let sealed = match &written {
            Ok(_) if close => self.end_log(),
            Ok(full) => self.seal_full(full, seals),
            Err(error) => Err(error.clone()),
        };
        let mut admitted = admitted.into_iter();
        let result = |part| match part {
            Part::Refused(error) => Err(error),
            Part::Write => self.outcome(admitted.next().expect("each batch is in the group"), &written),
            Part::Seal => sealed.clone().map(|()| Outcome { position: self.log().end(), decided: None }),
        };
        parts.into_iter().map(result).collect()
    }

    /// What became of a batch, when its group was written or was not.
    fn outcome(&self, admitted: Admitted, written: &Result<Written>) -> Result<Outcome> {
        let position = match written {
            Ok(written) => written.position,
            Err(_) if admitted.stands_alone() => self.log().end(),
            Err(error) => return Err(error.clone()),
        };
        Ok(Outcome { position, decided: admitted.condition.is_some().then_some(admitted) })
    }

    /// Steps 2 to 5. After an error before step 3 nothing was written.
    fn write_group(&self, group: &mut [Admitted], close: bool) -> Result<Written> {
        self.begin_group(close)?;
        decide(group, self.sequence.visible(), self.keyspaces.hash_seed)?;
        let written = group.iter_mut().filter(|admitted| admitted.is_written());
        let mut written: Vec<_> =
            written.map(|Admitted { bytes, trees, .. }| (&mut **bytes, &**trees)).collect();
        if written.is_empty() {
            return Ok(Written { position: self.log().end(), full: Vec::new() });
        }
        self.write_parts(&mut written)
    }

    /// Whether anything can be written.
    fn begin_group(&self, close: bool) -> Result<()> {
        // A request that was queued after the store was closed fails like one made later.
        if !close {
            self.health.check_open()?;
        }
        self.health.check_not_failed()?;
        self.resume_if_due(close)
    }

    /// The rest of step 2, and steps 3 to 5, for the batches that are to be written.
    #[inline]
    fn write_parts(&self, group: &mut [PartMut<'_>]) -> Result<Written> {
        if self.is_unchanged() {
            self.begin_writing()?;
            // The reserve may have been given up for that.
            self.check_puts(group)?;
        }
        let _growth = self.make_room(group)?;
        self.health.check_not_failed()?;
        self.log_and_apply(group)
    }

    /// Step 6: seals the memtables that are full, and those of which a caller wants it. What was written stays
    /// written if that fails, and the next group tries again.
    fn seal_full(&self, written: &Written, wanted: Vec<Arc<Tree>>) -> Result<()> {
        if written.full.is_empty() && wanted.is_empty() {
            return Ok(());
        }
        let is_wanted = !wanted.is_empty();
        let mut trees = wanted;
        trees.extend(written.full.iter().cloned());
        trees.retain(|tree| tree.is_filled());
        trees.sort_by_key(|tree| tree.id);
        trees.dedup_by_key(|tree| tree.id);
        if trees.is_empty() || !is_wanted && !self.retry.is_due(Work::BeginLog) {
            return Ok(());
        }
        self.seal_now(&trees)
    }

    /// Steps 3 to 5.
    #[inline]
    fn log_and_apply(&self, group: &mut [PartMut<'_>]) -> Result<Written> {
        let before = self.sequence.visible();
        let (mut next, mut logged) = (before + 1, 0);
        for (bytes, _) in &mut *group {
            let count = batch::count(bytes);
            if next + u64::from(count) > SEQNO_MAX {
                return Err(Error::limit("sequence number", SEQNO_MAX, next + u64::from(count)));
            }
            batch::stamp(bytes, next);
            next += u64::from(count);
            logged += bytes.len() as u64;
        }
        self.counters.logged_bytes.fetch_add(logged, Ordering::Relaxed);
        let appended = self.log().append(group.iter().map(|(bytes, _)| &**bytes));
        let appended = appended.map_err(|error| self.suspend(error))?;
        let position = appended.position;
        if appended.unsynced_before <= LOG_SYNC_BYTES && appended.unsynced > LOG_SYNC_BYTES {
            // The background syncs it, so that little is left to sync when the log ends.
            self.background.notify();
        }
        for (bytes, trees) in &*group {
            apply(bytes, trees, position.number, |_| true).map_err(|error| self.fail(error))?;
        }
        self.sequence.publish(next - 1);
        self.counters.groups.fetch_add(1, Ordering::Relaxed);
        self.counters.batches.fetch_add(group.len() as u64, Ordering::Relaxed);
        self.counters.entries.fetch_add(next - 1 - before, Ordering::Relaxed);
        let touched = group.iter().map(|(_, trees)| *trees);
        self.want_log_for(touched.clone(), position.offset, logged);
        Ok(Written { position, full: self.keyspaces.full_among(touched) })
    }

    /// Begins a new log and makes the memtables of these trees immutable. Only the leader calls this.
    pub(in crate::db) fn seal_now(&self, trees: &[Arc<Tree>]) -> Result<()> {
        match self.begin_writing().and_then(|()| self.begin_log()) {
            Ok(()) => {
                self.retry.done(Work::BeginLog);
                self.retry.done(Work::PrepareLog);
            }
            Err(error) => {
                if self.check_writable().is_ok() && !self.suspension.is_suspended() {
                    self.put_off(Work::BeginLog, error.clone());
                }
                return Err(error);
            }
        }
        for tree in trees {
            tree.seal();
        }
        self.seal_behind_old_logs();
        self.background.notify();
        Ok(())
    }

    /// Makes the memtables immutable whose entries are in the oldest log, if there are too many logs. These
    /// entries are all in older logs, so no new log is needed.
    fn seal_behind_old_logs(&self) {
        if self.log().total_bytes() <= self.options.logs_bytes() && self.log().older() <= OLDER_LOGS_MAX {
            return;
        }
        let oldest = self.log_floor(&[]);
        for tree in self.keyspaces.with_log(oldest) {
            let first_log = tree.view_ref().active.as_ref().and_then(|active| active.first_log());
            if first_log.is_some_and(|first| first <= oldest) {
                tree.seal();
            }
        }
    }
}

fn check_alive(trees: &[Arc<Tree>]) -> Result<()> {
    trees.iter().try_for_each(|tree| tree.check_alive())
}
