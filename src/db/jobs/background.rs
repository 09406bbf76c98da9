//! The search for background jobs, and their execution by [`Engine::step`].
//!
//! The search returns the most urgent job:
//!
//! 1. remove obsolete files;
//! 2. sync a log with many undurable bytes;
//! 3. prepare the next log;
//! 4. close tables, if one had no room to open;
//! 5. raise horizons, and drop expired tables;
//! 6. flush the oldest immutable memtable of a keyspace, or several small ones;
//! 7. create `RESERVE`;
//! 8. compact;
//! 9. rebuild an unusable filter;
//! 10. merge level 0 of an idle keyspace (an *idle compaction*);
//! 11. load or drop column groups of filters.
//!
//! Background threads call [`Engine::step`] until no job is left, then sleep. [`IDLE_DELAY`] after the last memory was
//! freed, they return it to the system. Without background threads, callers do the work. The first of several threads
//! runs urgent jobs only, so that no writer waits for a long compaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::filter_memory::may_change_groups;
use super::flush_and_compact::JobError;
use super::refilter::find_unusable_filter;
use crate::allocator;
use crate::batch::KeyspaceId;
use crate::compaction::claimed_ranges::Busy;
use crate::compaction::debt;
use crate::compaction::deletes::covered;
use crate::compaction::deletes::tombstones::{self, Readers};
use crate::compaction::pick;
use crate::compaction::task::{Task, Urgency};
use crate::db::engine::Engine;
use crate::db::latencies::Call;
use crate::db::queues::job_queue::FlushUrgency;
use crate::db::queues::reservations::{Job, Reserved, Upkeep};
use crate::db::queues::retry::Work;
use crate::db::queues::workers::Jobs;
use crate::db::state::failure::catch;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LOG_SYNC_BYTES;
use crate::error::{Error, Result};
use crate::key::SeqNo;
use crate::sync::lock;
use crate::version::Version;

/// A flush of several memtables takes at most this, and at most a quarter of the memtable memory.
const FLUSH_TOGETHER_BYTES: usize = 1 << 20;

const FLUSHES_TOGETHER_MAX: usize = 16;

const ATTEMPTS_MAX: usize = 16;

const RESIDENCY_INTERVAL: Duration = Duration::from_secs(1);

const IDLE_DELAY: Duration = Duration::from_secs(1);

enum Tried {
    Job(bool),
    /// A failed attempt or work on `RESERVE`: the search continues. The flag states whether obsolete files were
    /// removed.
    Other(bool),
}

/// The time at which memory was last freed, until it was returned to the system.
#[derive(Default)]
struct Trim {
    freed: u64,
    freed_at: Option<Instant>,
}

impl Trim {
    fn until_due(&mut self, freed: u64, now: Instant) -> Option<Duration> {
        if freed != self.freed {
            *self = Self { freed, freed_at: Some(now) };
        }
        Some((self.freed_at? + IDLE_DELAY).saturating_duration_since(now))
    }
}

impl Engine {
    pub(in crate::db) fn start_threads(self: &Arc<Self>) -> Result<()> {
        let mut handles = lock(&self.background.handles);
        for index in 0..self.background.threads {
            let worker = Arc::clone(self);
            let jobs = if index == 0 && self.background.threads > 1 { Jobs::Urgent } else { Jobs::All };
            let thread = std::thread::Builder::new().name(format!("sievedb-{index}"));
            let spawned = thread.spawn(move || worker.work(jobs));
            handles.push(spawned.map_err(|error| Error::io("start a thread for", &self.files.dir, error))?);
        }
        Ok(())
    }

    fn work(&self, jobs: Jobs) {
        let mut trim = Trim::default();
        loop {
            let epoch = self.background.reservations.epoch();
            if self.background.is_stopping() {
                return;
            }
            while !self.background.is_stopping()
                && self.resume_or_step(jobs).unwrap_or(!self.lifecycle.has_failed())
            {}
            let until_trim = if jobs == Jobs::All { self.trim_if_due(&mut trim) } else { None };
            let timeout = self.until_next_work(jobs).into_iter().chain(until_trim).min();
            self.background.reservations.wait_past(epoch, timeout);
        }
    }

    fn trim_if_due(&self, trim: &mut Trim) -> Option<Duration> {
        let until_due = trim.until_due(self.context.memory.freed(), Instant::now())?;
        if self.background.reservations.is_working() {
            return Some(IDLE_DELAY);
        }
        if until_due.is_zero() {
            trim.freed_at = None;
            allocator::trim();
            return None;
        }
        Some(until_due)
    }

    /// Resumes writing if due; otherwise does a background job. Not for the commit leader.
    pub(in crate::db) fn resume_or_step(&self, jobs: Jobs) -> Result<bool> {
        if self.lifecycle.is_suspended() && self.retry.is_due(Work::Resume) {
            self.check_writable()?;
            let _committing = self.background.begin_commit();
            return self.barrier().map(|()| true);
        }
        self.step(jobs)
    }

    pub(in crate::db) fn until_next_work(&self, jobs: Jobs) -> Option<Duration> {
        let has_ended = self.lifecycle.has_failed();
        let is_short = jobs == Jobs::All && self.context.memory.is_short() && !has_ended;
        let until_idle = || {
            let at = self.background.reservations.look(|reserved| reserved.pending().next_idle())?;
            Some(at.saturating_duration_since(Instant::now()))
        };
        let may_be_idle = jobs == Jobs::All && !has_ended && !self.lifecycle.is_suspended();
        let idle = if may_be_idle { until_idle() } else { None };
        let may_expire = !has_ended && !self.lifecycle.is_suspended();
        let expiry = if may_expire { self.until_expiry() } else { None };
        let intervals =
            [is_short.then_some(RESIDENCY_INTERVAL), self.retry.next_due(has_ended), idle, expiry];
        intervals.into_iter().flatten().min()
    }

    /// Does the most urgent due job. Returns `false` if there is none.
    ///
    /// # Errors
    ///
    /// The error or panic of the job. It is retried, or writing is disabled.
    pub(in crate::db) fn step(&self, jobs: Jobs) -> Result<bool> {
        if self.log.is_none() {
            return Ok(false);
        }
        self.files.check_process()?;
        if self.lifecycle.has_failed() {
            // A durable edit has dropped these files, so no later opening needs them.
            self.remove_obsolete_files();
        }
        self.lifecycle.check_not_failed()?;
        catch("background work", || self.find_and_do(jobs)).unwrap_or_else(|panic| Err(self.fail(panic)))
    }

    fn find_and_do(&self, jobs: Jobs) -> Result<bool> {
        let mut any = false;
        for _ in 0..ATTEMPTS_MAX {
            match self.find_and_try(jobs)? {
                Tried::Job(is_done) => return Ok(any || is_done),
                Tried::Other(has_removed) => any |= has_removed,
            }
            self.lifecycle.check_not_failed()?;
        }
        Ok(any)
    }

    fn find_and_try(&self, jobs: Jobs) -> Result<Tried> {
        let obsolete = self.remove_obsolete_files();
        // Read before the reservations are locked: a sync may hold the log's lock for long.
        let log_is_long = self.log().unsynced_bytes() > LOG_SYNC_BYTES;
        let next = |reserved: &mut Reserved<'_>| self.next_job(jobs, log_is_long, reserved);
        let reservation = self.background.reservations.reserve_next(next);
        let residency = || if jobs == Jobs::All { self.reserve_residency() } else { None };
        let Some(reservation) = reservation.or_else(residency) else {
            return Ok(Tried::Job(obsolete));
        };
        let work = Work::of(reservation.job());
        let result = self.carry_out_job(reservation.job());
        if result.is_ok() && matches!(reservation.job(), Job::Flush(_) | Job::Compact(..) | Job::Drop(_)) {
            self.remove_obsolete_files();
            self.adjust_reserve_file();
        }
        if let (Some(work), Ok(_) | Err(JobError::Table(_))) = (work, &result) {
            self.retry.done(work);
        }
        match result {
            Ok(false) if matches!(reservation.job(), Job::Upkeep(Upkeep::NextLog)) => {
                Ok(Tried::Other(obsolete))
            }
            Ok(false) if matches!(reservation.job(), Job::Upkeep(Upkeep::Expire)) => {
                Ok(Tried::Other(obsolete))
            }
            Ok(_) if matches!(reservation.job(), Job::Upkeep(Upkeep::ReserveFile)) => {
                Ok(Tried::Other(obsolete))
            }
            Ok(is_done) => Ok(Tried::Job(is_done || obsolete)),
            // Not a failure: the keyspace was dropped, or the store is closing.
            Err(JobError::Store(Error::KeyspaceDropped { .. } | Error::Closed)) => Ok(Tried::Job(true)),
            // The table does not change. The failure was reported and is not retried.
            Err(JobError::Table(_)) => Ok(Tried::Job(true)),
            Err(JobError::Store(error)) => {
                let error = self.fail_if_final(error);
                self.give_up_reserve_file(&error);
                if let Some(work) = work.filter(|_| !self.lifecycle.has_failed()) {
                    self.put_off(work, error.clone());
                }
                Err(error)
            }
        }
    }

    fn carry_out_job(&self, job: &Job) -> Result<bool, JobError> {
        match job {
            Job::Upkeep(Upkeep::SyncLog) => self.sync()?,
            Job::Upkeep(Upkeep::NextLog) => return Ok(self.prepare_log()),
            Job::Upkeep(Upkeep::ReserveFile) => return Ok(self.make_reserve_file()),
            Job::Upkeep(Upkeep::Expire) => return Ok(self.raise_horizons()?),
            Job::Drop(tasks) => self.drop_tables(tasks)?,
            Job::Flush(memtables) => self.latencies.time(Call::Flush, || self.flush_memtables(memtables))?,
            Job::Compact(tree, task) => self.compact(tree, task)?,
            Job::Refilter(tree, table) => self.refilter_table(tree, table)?,
            Job::CompactRange(..) => return Ok(false),
            Job::Residency(changes) => return Ok(self.change_residency(changes)),
        }
        Ok(true)
    }

    fn next_job(&self, jobs: Jobs, log_is_long: bool, reserved: &mut Reserved<'_>) -> Option<Job> {
        if self.lifecycle.is_suspended() {
            return None;
        }
        if log_is_long && !reserved.is_upkeep(Upkeep::SyncLog) {
            return Some(Job::Upkeep(Upkeep::SyncLog));
        }
        if self.has_log_work() && !reserved.is_upkeep(Upkeep::NextLog) {
            return Some(Job::Upkeep(Upkeep::NextLog));
        }
        if let Some(closing) = self.closing_job(reserved) {
            return Some(closing);
        }
        let may_expire = !reserved.is_upkeep(Upkeep::Expire) && self.retry.is_due(Work::Expire);
        if may_expire && self.is_expiry_due() {
            return Some(Job::Upkeep(Upkeep::Expire));
        }
        self.look_at_marked(reserved);
        if may_expire && let Some(expired) = self.next_drop(reserved) {
            return Some(expired);
        }
        if let Some(flush) = self.next_flush(reserved) {
            return Some(flush);
        }
        let is_short = self.disk_space.is_short();
        let is_quiet = if is_short { reserved.is_idle() } else { !reserved.is_any_flush() };
        if is_quiet && self.lacks_reserve_file() && !reserved.is_upkeep(Upkeep::ReserveFile) {
            return Some(Job::Upkeep(Upkeep::ReserveFile));
        }
        if jobs == Jobs::Urgent || is_short && !reserved.is_idle() {
            return None;
        }
        let compaction = self.next_compaction(reserved);
        compaction.or_else(|| self.next_refilter(reserved)).or_else(|| self.next_idle(reserved))
    }

    fn look_at_marked(&self, reserved: &mut Reserved<'_>) {
        loop {
            let oldest_snapshot = self.sequence.snapshots.oldest();
            let mut marked = reserved.take_marked();
            marked.extend(reserved.pending().released(oldest_snapshot));
            marked.extend(self.retry.take_due());
            for keyspace in marked {
                self.look_at(keyspace, oldest_snapshot, reserved);
            }
            let awaited = reserved.pending().awaited();
            reserved.set_awaited(awaited);
            // A snapshot released in the meantime has not seen the new value.
            if self.sequence.snapshots.oldest() < awaited || awaited == SeqNo::MAX {
                return;
            }
        }
    }

    fn look_at(&self, keyspace: KeyspaceId, oldest_snapshot: SeqNo, reserved: &mut Reserved<'_>) {
        let tree = self.keyspaces.get(keyspace).filter(|tree| tree.is_alive());
        let tree = tree.as_ref();
        if tree.is_none() {
            self.retry.forget(keyspace);
        }
        if tree.is_some_and(|tree| tree.is_survey_due() && may_change_groups(tree)) {
            self.background.set_residency_due();
        }
        let is_flush = tree.is_some_and(|tree| reserved.is_flush(tree));
        let flush = tree.filter(|_| !is_flush).and_then(flush_urgency);
        let flush = self.if_due(Work::Flush(keyspace), flush, is_flush);
        let compaction = tree.and_then(|tree| {
            if tree.set_debt(debt::debt(&tree.view().version, &tree.shape())) {
                // Writers may wait for this.
                self.background.notify();
            }
            self.free(tree, reserved).pick()
        });
        let held_back = tree.and_then(|tree| {
            let tombstones = tombstones::held_back(&tree.view().version, oldest_snapshot);
            let expired = self.notice_expired(tree).then(|| oldest_snapshot.saturating_add(1));
            tombstones.into_iter().chain(expired).min()
        });
        let urgency = compaction.map(|(urgency, _)| urgency);
        let is_busy = tree.is_some_and(|tree| !reserved.busy(tree).is_empty());
        let compaction = self.if_due(Work::Compact(keyspace), urgency, is_busy);
        reserved.pending().set(keyspace, flush, compaction);
        reserved.pending().set_held_back(keyspace, held_back);
        let may_be_idle = self.background.threads > 0 && urgency.is_none() && !self.lifecycle.is_unchanged();
        let idle = tree.filter(|_| may_be_idle).and_then(|tree| {
            let free = self.free(tree, reserved);
            free.pick_idle().map(|_| Instant::now() + IDLE_DELAY)
        });
        reserved.pending().set_idle(keyspace, idle);
    }

    /// Call after releasing a snapshot, which may permit compactions.
    pub(in crate::db) fn notice_released_snapshot(&self) {
        let marks = &self.keyspaces.memtables.marks;
        let is_awaited = marks.awaited() <= self.sequence.snapshots.oldest() && marks.awaited() < SeqNo::MAX;
        // A forked child must not wait for a lock.
        if is_awaited && self.check_writable().is_ok() {
            self.background.notify();
        }
    }

    /// Returns due work only. If there is neither work nor a running job for it, ends its retries.
    fn if_due<U>(&self, work: Work, urgency: Option<U>, is_running: bool) -> Option<U> {
        let is_due = self.retry.is_due(work);
        if is_due && urgency.is_none() && !is_running {
            self.retry.done(work);
        }
        urgency.filter(|_| is_due)
    }

    /// Returns the most urgent flush, together with small ones for the same edit if no writer is slowed down. While
    /// flushes fail, each runs alone.
    fn next_flush(&self, reserved: &mut Reserved<'_>) -> Option<Job> {
        let is_failing = self.retry.is_failing(|work| matches!(work, Work::Flush(_)));
        let bytes_max = FLUSH_TOGETHER_BYTES.min(self.context.memory.memtables_max() / 4);
        let (mut memtables, mut bytes) = (Vec::new(), 0);
        loop {
            let pending = reserved.pending();
            let next = match memtables.len() {
                0 => pending.take_flush(),
                FLUSHES_TOGETHER_MAX.. => None,
                _ if is_failing => None,
                _ => pending.take_small_flush(bytes_max.saturating_sub(bytes)),
            };
            let Some(keyspace) = next else { break };
            let Some(tree) = self.keyspaces.get(keyspace) else { continue };
            let view = tree.view();
            let Some(oldest) = view.immutables.last() else { continue };
            let is_urgent = view.immutables.len() > 1;
            bytes += if is_urgent { bytes_max } else { oldest.memtable.size_bytes() };
            memtables.push((tree, Arc::clone(oldest)));
        }
        (!memtables.is_empty()).then_some(Job::Flush(memtables))
    }

    fn next_compaction(&self, reserved: &mut Reserved<'_>) -> Option<Job> {
        while let Some(keyspace) = reserved.pending().take_compaction() {
            let Some(tree) = self.keyspaces.get(keyspace) else { continue };
            let free = self.free(&tree, reserved);
            if let Some((_, task)) = free.take() {
                return Some(Job::Compact(Arc::clone(&tree), task));
            }
        }
        None
    }

    fn next_idle(&self, reserved: &mut Reserved<'_>) -> Option<Job> {
        let now = Instant::now();
        reserved.pending().next_idle().filter(|at| *at <= now)?;
        if !reserved.is_idle() || self.retry.is_failing(Work::is_background) {
            reserved.pending().put_off_idle(now + IDLE_DELAY);
            return None;
        }
        while let Some(keyspace) = reserved.pending().take_idle(now) {
            let Some(tree) = self.keyspaces.get(keyspace) else { continue };
            let free = self.free(&tree, reserved);
            if let Some(task) = free.pick_idle() {
                tree.set_idle_tried(newest_level_0(&free.version));
                return Some(Job::Compact(Arc::clone(&tree), task));
            }
        }
        None
    }

    pub(super) fn idle_now(&self) -> bool {
        if self.retry.is_failing(Work::is_background) {
            return false;
        }
        let (is_any, is_newly_due) = self.background.reservations.look(|reserved| {
            let pending = reserved.pending();
            let is_newly_due = pending.make_idle_due(Instant::now());
            (pending.is_any_idle(), is_newly_due)
        });
        if is_any && is_newly_due {
            self.background.notify();
        }
        is_any
    }

    fn next_refilter(&self, reserved: &Reserved<'_>) -> Option<Job> {
        if reserved.is_extra() {
            return None;
        }
        let unusable = &self.files.obsolete.unusable;
        let (mut found, mut left) = (None, Vec::new());
        for keyspace in unusable.take() {
            if found.is_some() || !self.retry.is_due(Work::Refilter(keyspace)) {
                left.push(keyspace);
                continue;
            }
            let Some(tree) = self.keyspaces.get(keyspace) else { continue };
            let version = Arc::clone(&tree.view().version);
            if find_unusable_filter(&version, &Busy::default()).is_some() {
                left.push(keyspace);
                let table = find_unusable_filter(&version, &reserved.busy(&tree));
                found = table.map(|table| Job::Refilter(tree, table));
            }
        }
        unusable.add(left);
        found
    }

    pub(in crate::db) fn has_work(&self) -> bool {
        self.background.reservations.look(|reserved| {
            self.look_at_marked(reserved);
            !reserved.pending().is_empty() || self.next_refilter(reserved).is_some()
        })
    }
}

fn flush_urgency(tree: &Arc<Tree>) -> Option<FlushUrgency> {
    let view = tree.view();
    let oldest = view.immutables.last()?;
    Some(FlushUrgency { beyond_first: view.immutables.len() - 1, bytes: oldest.memtable.size_bytes() })
}

fn newest_level_0(version: &Version) -> u64 {
    version.runs(0).iter().flat_map(|run| run.tables.iter()).map(|table| table.meta.number).max().unwrap_or(0)
}

struct Free<'a> {
    tree: &'a Tree,
    version: Arc<Version>,
    busy: Busy,
    snapshots: Vec<SeqNo>,
    readers: Readers,
    is_settling: bool,
}

impl Engine {
    fn free<'t>(&self, tree: &'t Tree, reserved: &Reserved<'_>) -> Free<'t> {
        let mut busy = reserved.busy(tree);
        let version = Arc::clone(&tree.view().version);
        // Read after the version: a snapshot missing here is newer than the version's entries.
        let numbers = || self.sequence.snapshots.numbers();
        let snapshots = if version.has_spans() { numbers() } else { Vec::new() };
        let oldest_snapshot = snapshots.first().copied().unwrap_or_else(|| self.sequence.snapshots.oldest());
        if self.counters.set_aside.load(Ordering::Relaxed) > 0 {
            busy.extend(version.set_aside());
        }
        // On a full disk every tombstone is worth a compaction.
        let is_short = self.disk_space.is_short();
        let skipped = if is_short { u64::MAX } else { tree.skipped_since_compaction() };
        let is_settling = self.background.is_settling();
        Free { tree, version, busy, snapshots, readers: Readers { oldest_snapshot, skipped }, is_settling }
    }
}

impl Free<'_> {
    fn pick_covered(&self) -> Option<(Urgency, Task)> {
        covered::pick(&self.version, &self.busy, &self.snapshots)
    }

    fn pick_for_shape(&self) -> Option<(Urgency, Task)> {
        pick::pick(&self.version, &self.busy, &self.tree.shape())
    }

    fn pick_for_tombstones(&self) -> Option<(Urgency, Task)> {
        tombstones::pick(&self.version, &self.busy, &self.readers)
    }

    /// A failed idle compaction waits until level 0 has changed.
    fn pick_idle(&self) -> Option<Task> {
        if self.tree.idle_tried() == newest_level_0(&self.version) {
            return None;
        }
        let cost_max = if self.is_settling { u64::MAX } else { pick::IDLE_COST_MAX };
        pick::pick_idle(&self.version, &self.busy, &self.tree.shape(), cost_max)
    }

    fn pick(&self) -> Option<(Urgency, Task)> {
        self.pick_covered().or_else(|| self.pick_for_shape()).or_else(|| self.pick_for_tombstones())
    }

    fn take(&self) -> Option<(Urgency, Task)> {
        self.pick_covered().or_else(|| self.pick_for_shape()).or_else(|| {
            let picked = self.pick_for_tombstones()?;
            // A move costs nothing, so the skipped entries still count towards a later compaction.
            if !picked.1.trivial_move {
                self.tree.forget_skipped();
            }
            Some(picked)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::db::handles::keyspace::Keyspace;
    use crate::db::handles::store::Db;
    use crate::fs::{CrashPolicy, MemFs, Op};
    use crate::options::{KeyspaceOptions, Options};
    use crate::version::VISITED;

    fn open() -> Db {
        Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap()
    }

    fn keyspaces(db: &Db, count: usize) -> Vec<Keyspace> {
        (0..count).map(|n| db.keyspace(&format!("{n}"), KeyspaceOptions::new()).unwrap()).collect()
    }

    fn seal(db: &Db, keyspace: &Keyspace, entries: u32) {
        (0..entries).for_each(|key| keyspace.put(key.to_be_bytes(), "v").unwrap());
        db.engine().seal(vec![Arc::clone(&keyspace.tree)]).unwrap();
    }

    fn waiting(keyspace: &Keyspace) -> usize {
        keyspace.tree.view().immutables.len()
    }

    fn looks(db: &Db) -> u64 {
        db.engine().background.reservations.look(|reserved| reserved.pending().looks())
    }

    #[test]
    fn writers_that_wait_for_compactions_look_again_when_the_debt_has_fallen() {
        let db = open();
        let (engine, tree) = (db.engine(), db.engine().keyspaces.default_tree());
        tree.set_debt(1);
        tree.mark();
        let before = engine.background.reservations.epoch();
        assert!(!engine.has_work());
        assert!(tree.debt() == 0 && engine.background.reservations.epoch() > before);
    }

    #[test]
    fn a_hot_keyspace_created_last_is_flushed_before_1500_idle_ones() {
        let db = open();
        let idle = keyspaces(&db, 1500);
        idle.iter().for_each(|keyspace| keyspace.put("k", "v").unwrap());
        let trees = idle.iter().map(|keyspace| Arc::clone(&keyspace.tree)).collect();
        db.engine().seal(trees).unwrap();
        let hot = db.keyspace("hot", KeyspaceOptions::new()).unwrap();
        seal(&db, &hot, 1000);
        db.step().unwrap();
        assert_eq!(waiting(&hot), 0, "it is the largest");
        // Writers of this keyspace are slowed while more than one memtable waits.
        (0..2).for_each(|_| seal(&db, &hot, 1));
        db.step().unwrap();
        assert_eq!(waiting(&hot), 1);
    }

    /// Counts the syncs of manifests and of the directory.
    fn count_syncs(fs: &MemFs) -> Arc<[AtomicU64; 2]> {
        let counts: Arc<[AtomicU64; 2]> = Arc::default();
        let counted = Arc::clone(&counts);
        fs.observe(move |_, op| {
            let is_manifest = |path: &Path| path.to_string_lossy().contains("MANIFEST");
            let syncs = [matches!(op, Op::Sync(path) if is_manifest(path)), matches!(op, Op::SyncDir(_))];
            for (count, is_sync) in counted.iter().zip(syncs) {
                count.fetch_add(is_sync.into(), Ordering::SeqCst);
            }
            Ok(())
        });
        counts
    }

    fn flushed(db: &Db, keyspaces: &[Keyspace]) -> (u64, usize) {
        let in_tables = keyspaces.iter().filter(|keyspace| waiting(keyspace) == 0).count();
        (db.stats().flushes, in_tables)
    }

    #[test]
    fn small_memtables_of_many_keyspaces_are_published_by_few_edits() {
        let fs = MemFs::new();
        let options = || Options::new().background_threads(0);
        let db = options().fs(Arc::new(fs.clone())).open("/db").unwrap();
        let keyspaces = keyspaces(&db, 40);
        keyspaces.iter().for_each(|keyspace| keyspace.put("k", "v").unwrap());
        let counts = count_syncs(&fs);
        db.flush().unwrap();
        // One sync begins a log; each of the others is for 16 keyspaces, except the last.
        assert_eq!([0, 1].map(|kind| counts[kind].load(Ordering::SeqCst)), [1 + 3; 2]);
        assert_eq!(flushed(&db, &keyspaces), (40, 40));
        let db = options().fs(Arc::new(fs.crash(CrashPolicy::DropUnsynced))).open("/db").unwrap();
        let names = db.keyspaces();
        let has_key = |name: &&String| db.existing_keyspace(name).unwrap().contains("k").unwrap();
        assert_eq!(names.iter().filter(has_key).count(), 40);
    }

    /// Returns the tables of a store of about this size, and the mean number visited by a put with its flush.
    fn visited_by_a_flush(tables: u32) -> (u64, u64) {
        let options = KeyspaceOptions::new().table_bytes(4 << 10).level_base_bytes(1 << 30);
        let options = options.compression(crate::Compression::None).l0_runs(128);
        let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).default_keyspace(options);
        let db = db.open("/db").unwrap();
        let value = [7; 1000];
        (0..4 * tables).for_each(|key| db.put(key.to_be_bytes(), value).unwrap());
        db.compact().unwrap();
        let flush = |key: u32| {
            db.put(key.to_be_bytes(), "v").unwrap();
            db.flush().unwrap();
            while db.step().unwrap() {}
        };
        let before = VISITED.get();
        (0..32).for_each(flush);
        let visited = (VISITED.get() - before) / 32;
        (db.stats().keyspaces[0].total().tables, visited)
    }

    #[test]
    fn a_flush_and_the_search_for_work_after_it_visit_no_more_tables_in_a_large_store() {
        let (few, by_few) = visited_by_a_flush(100);
        let (many, by_many) = visited_by_a_flush(1000);
        assert!(few >= 64 && many >= 7 * few, "{few} and {many} tables");
        assert!(by_many <= 2 * by_few, "{by_few} of {few} tables, {by_many} of {many}");
    }

    #[test]
    fn a_large_memtable_and_one_that_slows_writers_are_flushed_alone() {
        let fs = MemFs::new();
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open("/db").unwrap();
        let keyspaces = keyspaces(&db, 3);
        let [large, urgent, small] = &keyspaces[..] else { panic!("three keyspaces") };
        large.put("k", vec![1; FLUSH_TOGETHER_BYTES]).unwrap();
        seal(&db, large, 0);
        (0..2).for_each(|_| seal(&db, urgent, 1));
        seal(&db, small, 1);
        let waiting = || keyspaces.iter().map(waiting).collect::<Vec<_>>();
        assert_eq!(waiting(), [1, 2, 1]);
        db.step().unwrap();
        assert_eq!(waiting(), [1, 1, 1]);
        db.step().unwrap();
        assert_eq!(waiting(), [0, 1, 1]);
        db.step().unwrap();
        assert_eq!(waiting(), [0, 0, 0]);
    }

    /// Makes the creation of the file after `before` others fail.
    fn fail_to_create(fs: &MemFs, before: u64) {
        let created = AtomicU64::new(0);
        fs.observe(move |_, op| match op {
            Op::Create(_) if created.fetch_add(1, Ordering::SeqCst) == before => {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        });
    }

    #[test]
    fn a_memtable_that_cannot_be_written_holds_up_no_other_and_is_the_only_one_to_blame() {
        for before in [0, 2] {
            let fs = MemFs::new();
            let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open("/db").unwrap();
            let keyspaces = keyspaces(&db, 4);
            keyspaces.iter().for_each(|keyspace| seal(&db, keyspace, 1));
            fail_to_create(&fs, before);
            let done = db.step();
            assert_eq!((done.is_ok(), flushed(&db, &keyspaces).1), (before > 0, before as usize));
            assert_eq!((db.stats().background_failures, db.background_error().is_some()), (1, true));
            let counts = count_syncs(&fs);
            db.flush().unwrap();
            assert_eq!(flushed(&db, &keyspaces).1, 4);
            // The failed flush is retried alone; in either case it is the first.
            assert_eq!(counts[0].load(Ordering::SeqCst), 2);
            assert!(db.background_error().is_none() && db.verify().unwrap().damage.is_empty());
            while db.step().unwrap() {}
            let is_table = |path: &Path| path.extension().is_some_and(|end| end == "sst");
            let left = fs.files(Path::new("/db")).iter().filter(|(path, _)| is_table(path)).count();
            assert_eq!(left, 4, "nothing is left of the attempt that failed");
        }
    }

    /// Steps once over three keyspaces with one memtable each; calls `run` when the first table is created.
    fn while_flushing(run: impl Fn(&Db, &[Keyspace]) + Send + Sync + 'static) -> (Db, Vec<Keyspace>) {
        let fs = MemFs::new();
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open("/db").unwrap();
        let keyspaces = keyspaces(&db, 3);
        keyspaces.iter().for_each(|keyspace| seal(&db, keyspace, 1));
        let created = AtomicU64::new(0);
        let inside = (db.clone(), keyspaces.clone());
        fs.observe(move |_, op| {
            if matches!(op, Op::Create(_)) && created.fetch_add(1, Ordering::SeqCst) == 0 {
                run(&inside.0, &inside.1);
            }
            Ok(())
        });
        assert!(db.step().unwrap());
        fs.observe(|_, _| Ok(()));
        (db, keyspaces)
    }

    #[test]
    fn flushes_that_somebody_waits_for_are_published_before_the_rest_is_written() {
        let (db, keyspaces) = while_flushing(|db, keyspaces| {
            keyspaces.iter().for_each(|keyspace| seal(db, keyspace, 1));
        });
        let mut waiting: Vec<_> = keyspaces.iter().map(waiting).collect();
        waiting.sort_unstable();
        assert_eq!((waiting, db.stats().flushes), (vec![1, 2, 2], 1));
    }

    #[test]
    fn a_keyspace_that_is_dropped_while_it_is_flushed_holds_up_no_flush_of_others() {
        let (db, keyspaces) =
            while_flushing(|db, keyspaces| db.drop_keyspace(&keyspaces[1].tree.name).unwrap());
        assert_eq!((waiting(&keyspaces[0]), waiting(&keyspaces[2])), (0, 0));
        assert!(db.background_error().is_none() && db.verify().unwrap().damage.is_empty());
    }

    #[test]
    fn a_keyspace_that_is_dropped_holds_up_no_flush_of_others() {
        let db = open();
        let keyspaces = keyspaces(&db, 3);
        keyspaces.iter().for_each(|keyspace| seal(&db, keyspace, 1));
        let dropped = Arc::clone(&keyspaces[1].tree);
        let memtables = keyspaces.iter().map(|keyspace| {
            let oldest = keyspace.tree.view().immutables.last().cloned().unwrap();
            (Arc::clone(&keyspace.tree), oldest)
        });
        let memtables: Vec<_> = memtables.collect();
        db.drop_keyspace(&dropped.name).unwrap();
        db.engine().flush_memtables(&memtables).unwrap();
        assert_eq!((waiting(&keyspaces[0]), waiting(&keyspaces[2])), (0, 0));
        db.engine().flush_memtables(&memtables[1..2]).unwrap();
    }

    #[test]
    fn keyspaces_that_do_not_change_are_not_looked_at() {
        let db = open();
        let idle = keyspaces(&db, 500);
        idle.iter().for_each(|keyspace| keyspace.put("k", "v").unwrap());
        db.flush().unwrap();
        while db.step().unwrap() {}
        let hot = db.keyspace("hot", KeyspaceOptions::new()).unwrap();
        let before = looks(&db);
        for _ in 0..10 {
            seal(&db, &hot, 100);
            while db.step().unwrap() {}
        }
        let looked = looks(&db) - before;
        assert!((10..100).contains(&looked), "{looked} looks for ten flushes of one keyspace");
    }

    #[test]
    fn a_keyspace_with_10_runs_is_compacted_before_one_with_4() {
        let db = open();
        let [few, many] = &keyspaces(&db, 2)[..] else { panic!("two keyspaces") };
        let runs = |keyspace: &Keyspace| keyspace.tree.view().version.runs(0).len();
        for (keyspace, count) in [(few, 4), (many, 10)] {
            // Level 1 has a table, so that no run is only moved there.
            keyspace.put("k", "v").unwrap();
            keyspace.compact().unwrap();
            for _ in 0..count {
                keyspace.put("k", "v").unwrap();
                keyspace.flush().unwrap();
            }
        }
        assert_eq!((runs(few), runs(many)), (4, 10));
        db.step().unwrap();
        assert_eq!((runs(few), runs(many)), (4, 0));
        db.step().unwrap();
        assert_eq!(runs(few), 0);
    }

    #[test]
    fn work_that_fails_is_not_forgotten_while_a_thread_tries_it_again() {
        let db = open();
        let engine = db.engine();
        let keyspace = db.default_keyspace();
        let begin = || {
            let next = |reserved: &mut Reserved<'_>| engine.next_job(Jobs::All, false, reserved);
            engine.background.reservations.reserve_next(next).expect("there is work")
        };
        let check = |work: Work| {
            let cause = std::io::ErrorKind::StorageFull.into();
            engine.retry.put_off(work, Error::io("create", std::path::Path::new("/db"), cause));
            engine.retry.at_once();
            let running = begin();
            assert_eq!(Work::of(running.job()), Some(work));
            assert!(!db.step().unwrap());
            assert!(db.background_error().is_some(), "{work:?} is forgotten");
            drop(running);
            while db.step().unwrap() {}
            assert!(db.background_error().is_none());
        };
        seal(&db, &keyspace, 1);
        check(Work::Flush(keyspace.tree.id));
        db.compact().unwrap();
        (0..4).for_each(|_| (keyspace.put("k", "v").unwrap(), keyspace.flush().unwrap()).1);
        check(Work::Compact(keyspace.tree.id));
    }

    /// A store with two runs in level 0; four would be compacted.
    fn with_two_runs(threads: usize) -> Db {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(threads);
        let db = options.default_keyspace(KeyspaceOptions::new().l0_runs(4)).open("/db").unwrap();
        for value in ["old", "new"] {
            db.put("k", value).unwrap();
            db.flush().unwrap();
        }
        db
    }

    fn level_0_runs(db: &Db) -> usize {
        db.default_keyspace().tree.view().version.runs(0).len()
    }

    #[test]
    fn with_nothing_else_to_do_level_0_is_merged_early() {
        for threads in [1, 2] {
            let db = with_two_runs(threads);
            let start = Instant::now();
            while level_0_runs(&db) > 0 {
                assert!(start.elapsed() < Duration::from_secs(60), "level 0 is not merged");
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"new"[..]));
            assert!(db.engine().until_next_work(Jobs::All).is_none(), "nothing is left to wait for");
        }
    }

    #[test]
    fn who_waits_for_background_work_waits_for_idle_compactions() {
        let db = with_two_runs(1);
        db.settle().unwrap();
        assert_eq!(level_0_runs(&db), 0);
        let db = with_two_runs(0);
        db.settle().unwrap();
        while db.step().unwrap() {}
        assert_eq!(level_0_runs(&db), 2, "without threads a store is never idle");
    }

    #[test]
    fn an_idle_compaction_waits_for_other_jobs_and_for_what_fails() {
        let db = with_two_runs(0);
        let engine = db.engine();
        let id = db.default_keyspace().tree.id;
        let next = |reserved: &mut Reserved<'_>| {
            reserved.pending().make_idle_due(Instant::now());
            reserved.pending().set_idle(id, Some(Instant::now()));
            engine.next_idle(reserved)
        };
        let due = || engine.background.reservations.look(|reserved| reserved.pending().next_idle());
        let reservations = &engine.background.reservations;
        let other = reservations.reserve_next(|_| Some(Job::Upkeep(Upkeep::SyncLog))).unwrap();
        assert!(reservations.reserve_next(next).is_none() && due() > Some(Instant::now()));
        drop(other);
        let full = std::io::ErrorKind::StorageFull.into();
        engine.retry.put_off(Work::ReserveFile, Error::io("write", Path::new("/db"), full));
        assert!(reservations.reserve_next(next).is_none() && due() > Some(Instant::now()));
        assert!(!engine.idle_now());
        engine.retry.done(Work::ReserveFile);
        let begun = reservations.reserve_next(next).unwrap();
        assert!(matches!(begun.job(), Job::Compact(..)));
        drop(begun);
        assert!(reservations.reserve_next(next).is_none(), "it came to nothing, and level 0 is the same");
        db.put("k", "newest").unwrap();
        db.flush().unwrap();
        assert!(reservations.reserve_next(next).is_some());
    }

    #[test]
    fn a_closed_store_that_is_only_read_has_no_idle_compaction() {
        let fs = MemFs::new();
        let open = |threads| {
            let options = Options::new().fs(Arc::new(fs.clone())).background_threads(threads);
            options.default_keyspace(KeyspaceOptions::new().l0_runs(4)).open("/db").unwrap()
        };
        let db = open(0);
        for value in ["old", "new"] {
            db.put("k", value).unwrap();
            db.flush().unwrap();
        }
        db.close().unwrap();
        let db = open(1);
        db.settle().unwrap();
        assert!(db.engine().lifecycle.is_unchanged() && level_0_runs(&db) == 2);
    }

    #[test]
    fn a_long_log_is_synced_in_the_background_while_it_is_written() {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(1);
        let db = options.open("/db").unwrap();
        assert_eq!(db.stats().log_syncs, 0);
        let start = std::time::Instant::now();
        for n in 0..9u32 {
            db.put(n.to_be_bytes(), vec![1; 1 << 20]).unwrap();
        }
        while db.stats().log_syncs == 0 {
            assert!(start.elapsed() < std::time::Duration::from_secs(60), "nobody syncs the log");
            std::thread::yield_now();
        }
        assert_eq!(db.stats().flushes, 0);
    }
}
