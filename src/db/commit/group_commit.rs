//! The write path: group commit.
//!
//! Every writer does step 1. Then one leader (`commit_queue`) at a time executes its own request and the waiting ones
//! as one group. The writer of the oldest remaining request becomes the next leader.
//!
//! 1. *throttle*: wait for delayed flushes or compactions, and for memtable memory.
//! 2. *admit*: check the keyspaces of each batch; a request that is refused here does not affect the others. *Decide*
//!    conditional writes (`conflict_check`). *Make room*: wait if the batches do not fit together.
//! 3. *stamp and log*: assign sequence numbers; append all batches and due boundaries (`boundaries`) with one write.
//! 4. *apply*: insert the entries into memtables.
//! 5. *publish*: make the last sequence number visible.
//! 6. *seal*: make full memtables immutable and begin a new log.
//!
//! Waits for a sync happen after the group. A failure in step 1 or 2 has written nothing. After a failure in step 3
//! the content of the log is unknown, and nothing is appended to it (`resume`). After a failure in step 6 the batches
//! are written, and the next group retries the seal.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use super::apply::apply;
use super::boundaries::Begun;
use crate::batch::{self};
use crate::db::commit::room::Room;
use crate::db::engine::Engine;
use crate::db::latencies::Call;
use crate::db::queues::commit_queue::{Answer, Outcome, Turn, Wanted};
use crate::db::queues::condition::{Admitted, PartMut};
use crate::db::queues::retry::Work;
use crate::db::state::failure::catch;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::{LOG_SYNC_BYTES, LogPosition};
use crate::db::state::switch_points::point;
use crate::error::{Error, Result};
use crate::limits::SEQNO_MAX;
use crate::memory::Growth;
use crate::sorting::sort_by_key;
use crate::sync::lock;

enum Part {
    Refused(Error),
    Write,
    Seal,
}

struct Written {
    position: LogPosition,
    full: Vec<Arc<Tree>>,
    fitting: usize,
}

impl Engine {
    /// Returns `None` if memory is full and no background thread is free.
    #[inline]
    pub(in crate::db) fn lead_alone(
        &self,
        bytes: &mut [u8],
        trees: &[Arc<Tree>],
        may_exceed: bool,
    ) -> Result<Option<LogPosition>> {
        let written = catch("writing a batch", || {
            check_alive(trees)?;
            let is_ready = self.begin_group(false)?;
            let Room::Enough(_growth) = self.ensure_memtable_room(&[(&*bytes, trees)], may_exceed)? else {
                return Ok(None);
            };
            let written = self.write_parts(&mut [(bytes, trees)], is_ready)?;
            if !written.full.is_empty() {
                // The next group retries.
                let _ = self.seal_full(&written, Vec::new());
            }
            Ok(Some(written.position))
        });
        let written = written.unwrap_or_else(|panic| Err(self.fail(panic)));
        point();
        self.commit.hand_on();
        written
    }

    pub(in crate::db) fn seal(&self, trees: Vec<Arc<Tree>>) -> Result<()> {
        self.await_resume()?;
        self.submit(Wanted::Seal(trees)).map(drop)
    }

    pub(in crate::db) fn barrier(&self) -> Result<()> {
        self.await_resume()?;
        self.submit(Wanted::Barrier).map(drop)
    }

    /// Waits until an attempt to resume is due, then resumes. Not for the commit leader.
    pub(in crate::db) fn resume_first(&self) -> Result<()> {
        if self.lifecycle.is_suspended() { self.barrier() } else { Ok(()) }
    }

    pub(in crate::db) fn close_log(&self) -> Result<()> {
        self.submit(Wanted::Close).map(drop)
    }

    pub(in crate::db) fn submit(&self, work: Wanted) -> Result<Answer> {
        point();
        let own = match self.commit.enter(work) {
            Turn::Leads(own) => own,
            Turn::Done(result) => return result,
        };
        point();
        let followers = self.commit.take_followers(&own);
        // Writers need their results even after a panic.
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

    fn write_alone(&self, admitted: Admitted) -> Result<Answer> {
        check_alive(&admitted.trees)?;
        let mut group = [admitted];
        let written = self.write_group(&mut group, false);
        if let Ok(full) = &written {
            let _ = self.seal_full(full, Vec::new());
        }
        let [admitted] = group;
        self.answer(admitted, 0, &written)
    }

    fn carry_out(&self, group: Vec<Wanted>) -> Vec<Result<Answer>> {
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
                Wanted::Barrier | Wanted::Alone => Part::Seal,
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
        let mut admitted = admitted.into_iter().enumerate();
        let result = |part| match part {
            Part::Refused(error) => Err(error),
            Part::Write => {
                let (at, batch) = admitted.next().expect("each batch is in the group");
                self.answer(batch, at, &written)
            }
            Part::Seal => {
                let position = || self.log().end();
                sealed.clone().map(|()| Answer::Done(Outcome { position: position(), decided: None }))
            }
        };
        parts.into_iter().map(result).collect()
    }

    fn answer(&self, admitted: Admitted, at: usize, written: &Result<Written>) -> Result<Answer> {
        let position = match written {
            Ok(written) if at >= written.fitting => return Ok(Answer::Stalled(admitted)),
            Ok(written) => written.position,
            Err(_) if admitted.stands_alone() => self.log().end(),
            Err(error) => return Err(error.clone()),
        };
        let decided = admitted.condition.is_some().then_some(admitted);
        Ok(Answer::Done(Outcome { position, decided }))
    }

    /// Steps 2 to 5.
    fn write_group(&self, group: &mut [Admitted], close: bool) -> Result<Written> {
        let is_ready = self.begin_group(close)?;
        let room = self.room_for(group);
        let fitting = room.as_ref().map_or(group.len(), |(fitting, _)| *fitting);
        let group = &mut group[..fitting];
        let _gate = self.keep_horizons(group, is_ready)?;
        // Decided first, because a refusal needs no room.
        let decide = group.iter().find_map(|admitted| Some(admitted.condition.as_ref()?.0));
        if let Some(decide) = decide {
            decide(group, self.sequence.visible(), self.keyspaces.hash_seed)?;
        }
        point();
        let (_, _growth) = room?;
        let written = group.iter_mut().filter(|admitted| admitted.is_written());
        let mut written: Vec<_> =
            written.map(|Admitted { bytes, trees, .. }| (&mut **bytes, &**trees)).collect();
        if written.is_empty() {
            return Ok(Written { position: self.log().end(), full: Vec::new(), fitting });
        }
        Ok(Written { fitting, ..self.write_parts(&mut written, is_ready)? })
    }

    /// Prevents horizons from rising until the group is visible.
    fn keep_horizons(&self, group: &[Admitted], is_ready: bool) -> Result<Option<MutexGuard<'_, ()>>> {
        let is_needed = self.keyspaces.memtables.any_expire();
        if !is_needed || group.iter().all(|admitted| admitted.condition.is_none()) {
            return Ok(None);
        }
        if !is_ready {
            // This publishes an edit, which may raise horizons.
            self.begin_writing()?;
        }
        Ok(Some(lock(&self.horizon_gate)))
    }

    fn room_for(&self, group: &[Admitted]) -> Result<(usize, Option<Growth<'_>>)> {
        let parts: Vec<_> = group.iter().map(Admitted::part_max).collect();
        for fitting in [parts.len(), 1] {
            let group = &group[..fitting.min(parts.len())];
            let may_exceed = group.len() <= 1 && group.iter().all(|batch| batch.may_exceed == Some(true));
            if let Room::Enough(growth) = self.ensure_memtable_room(&parts[..group.len()], may_exceed)? {
                return Ok((group.len(), growth));
            }
        }
        Ok((0, None))
    }

    #[inline]
    fn begin_group(&self, close: bool) -> Result<bool> {
        let is_ready = self.lifecycle.is_ready();
        if !is_ready {
            if !close {
                self.lifecycle.check_open()?;
            }
            self.lifecycle.check_not_failed()?;
            self.resume_if_due(close)?;
        }
        Ok(is_ready)
    }

    /// Steps 3 to 5. The first change of a store creates its new files.
    #[inline]
    fn write_parts(&self, group: &mut [PartMut<'_>], is_ready: bool) -> Result<Written> {
        if !is_ready {
            if self.lifecycle.is_unchanged() {
                self.begin_writing()?;
                self.check_puts(group)?;
            }
            self.lifecycle.check_not_failed()?;
        }
        if self.latencies.choose(Call::CommitGroup) {
            return self.log_and_apply_timed(group);
        }
        self.log_and_apply(group)
    }

    /// Step 6.
    fn seal_full(&self, written: &Written, wanted: Vec<Arc<Tree>>) -> Result<()> {
        if written.full.is_empty() && wanted.is_empty() {
            return Ok(());
        }
        let is_wanted = !wanted.is_empty();
        let mut trees = wanted;
        trees.extend(written.full.iter().cloned());
        trees.retain(|tree| tree.is_filled());
        sort_by_key(&mut trees, |tree| tree.id);
        trees.dedup_by_key(|tree| tree.id);
        if trees.is_empty() || !is_wanted && !self.retry.is_due(Work::BeginLog) {
            return Ok(());
        }
        self.seal_now(&trees)
    }

    #[cold]
    #[inline(never)]
    fn log_and_apply_timed(&self, group: &mut [PartMut<'_>]) -> Result<Written> {
        let _timer = self.latencies.timer(Call::CommitGroup);
        self.log_and_apply(group)
    }

    #[inline(always)]
    fn log_and_apply(&self, group: &mut [PartMut<'_>]) -> Result<Written> {
        let before = self.sequence.visible();
        let expires = group.iter().any(|(_, trees)| trees.iter().any(|tree| tree.expires()));
        let begun = if expires { self.next_buckets(group, before + 1) } else { Begun::none(before + 1) };
        let (mut next, mut logged) = (begun.first, 0);
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
        let appended = self.log().append(&begun.boundaries, group.iter().map(|(bytes, _)| &**bytes));
        let appended = appended.map_err(|error| self.suspend(error))?;
        let position = appended.position;
        if !begun.boundaries.is_empty() {
            self.begin_buckets(&begun.boundaries);
        }
        if appended.unsynced_before <= LOG_SYNC_BYTES && appended.unsynced > LOG_SYNC_BYTES {
            // A sync in the background shortens the sync at the end of the log.
            self.background.notify();
        }
        for (bytes, trees) in &*group {
            apply(bytes, trees, position.number, |_| true).map_err(|error| self.fail(error))?;
        }
        self.sequence.publish(next - 1);
        self.counters.groups.fetch_add(1, Ordering::Relaxed);
        self.counters.batches.fetch_add(group.len() as u64, Ordering::Relaxed);
        self.counters.entries.fetch_add(next - begun.first, Ordering::Relaxed);
        let touched = group.iter().map(|(_, trees)| *trees);
        self.want_log_for(touched.clone(), position.offset, logged);
        Ok(Written { position, full: self.keyspaces.full_among(touched), fitting: group.len() })
    }
}

fn check_alive(trees: &[Arc<Tree>]) -> Result<()> {
    trees.iter().try_for_each(|tree| tree.check_alive())
}
