//! Reservations of running jobs, and the change signal.
//!
//! A [`Reservation`] records the resources of a running job; it ends when dropped, also by a panic. The *signal*
//! counts changes: a thread reads the count, looks for work, and waits until the count differs. The signal has its
//! own lock, because releasing a table signals, possibly under the lock of the reservations.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::job_queue::Pending;
use crate::batch::KeyspaceId;
use crate::compaction::claimed_ranges::{Busy, Claim};
use crate::compaction::task::Task;
use crate::db::state::keyspace::marks::Marks;
use crate::db::state::keyspace::tree::{LoggedMemtable, Tree};
use crate::db::state::switch_points::point;
use crate::key::SeqNo;
use crate::number_map::{Number, NumberMap, NumberSet};
use crate::sync::lock;
use crate::version::TableHandle;

pub(in crate::db) enum Job {
    Upkeep(Upkeep),
    Flush(Vec<(Arc<Tree>, Arc<LoggedMemtable>)>),
    Compact(Arc<Tree>, Task),
    Drop(Vec<(Arc<Tree>, Task)>),
    CompactRange(Arc<Tree>, Task),
    Refilter(Arc<Tree>, Arc<TableHandle>),
    Residency(Vec<ResidencyChange>),
}

/// Work for the whole store, at most one of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) enum Upkeep {
    SyncLog,
    NextLog,
    ReserveFile,
    Expire,
}

impl Number for Upkeep {
    fn to_u128(self) -> u128 {
        self as u128
    }
}

/// Names the table by number, because a handle would keep the present filter in memory.
pub(in crate::db) struct ResidencyChange {
    pub(in crate::db) tree: Arc<Tree>,
    pub(in crate::db) number: u64,
    pub(in crate::db) residency: Residency,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) enum Residency {
    ColumnGroups(usize),
    Closed,
}

pub(in crate::db) struct Reservations {
    marks: Arc<Marks>,
    state: Mutex<State>,
    signal: Mutex<u64>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    pending: Pending,
    begun: u64,
    running: NumberSet<u64>,
    upkeep: NumberSet<Upkeep>,
    flushing: NumberSet<KeyspaceId>,
    busy: NumberMap<KeyspaceId, Busy>,
    /// At most one change runs, because it relies on the free memory that it found.
    changing_residency: bool,
    residencies: u64,
    /// Whether a compaction for a caller or a filter rebuild runs. There is memory for one.
    extra: bool,
}

impl Job {
    fn keyspaces(&self) -> Vec<KeyspaceId> {
        match self {
            Self::Upkeep(_) => Vec::new(),
            Self::Flush(memtables) => memtables.iter().map(|(tree, _)| tree.id).collect(),
            Self::Compact(tree, _) | Self::Refilter(tree, _) | Self::CompactRange(tree, _) => vec![tree.id],
            Self::Drop(tasks) => tasks.iter().map(|(tree, _)| tree.id).collect(),
            Self::Residency(changes) => changes.iter().map(|change| change.tree.id).collect(),
        }
    }
}

impl Reservations {
    pub(in crate::db) fn new(marks: Arc<Marks>) -> Arc<Self> {
        let (state, signal, changed) = Default::default();
        Arc::new(Self { marks, state, signal, changed })
    }

    fn mark(&self, keyspaces: Vec<KeyspaceId>) {
        keyspaces.into_iter().for_each(|keyspace| self.marks.add(keyspace));
    }

    pub(in crate::db) fn epoch(&self) -> u64 {
        *lock(&self.signal)
    }

    /// Call when there may be a new job, or a waiting thread may continue.
    pub(in crate::db) fn notify(&self) {
        *lock(&self.signal) += 1;
        self.changed.notify_all();
    }

    pub(in crate::db) fn wait_past(&self, epoch: u64, timeout: Option<Duration>) {
        let signal = lock(&self.signal);
        let same = |signal: &mut u64| *signal == epoch;
        match timeout {
            None => drop(self.changed.wait_while(signal, same)),
            Some(timeout) => drop(self.changed.wait_timeout_while(signal, timeout, same)),
        }
    }

    pub(in crate::db) fn stop(&self) {
        lock(&self.state).stopping = true;
        self.notify();
    }

    pub(in crate::db) fn is_stopping(&self) -> bool {
        lock(&self.state).stopping
    }

    pub(in crate::db) fn is_working(&self) -> bool {
        !lock(&self.state).running.is_empty()
    }

    pub(in crate::db) fn is_flushing(&self) -> bool {
        !lock(&self.state).flushing.is_empty()
    }

    pub(in crate::db) fn running(&self) -> usize {
        lock(&self.state).running.len()
    }

    pub(in crate::db) fn begun(&self) -> u64 {
        lock(&self.state).begun
    }

    pub(in crate::db) fn have_ended(&self, begun: u64) -> bool {
        lock(&self.state).running.first().is_none_or(|&oldest| oldest >= begun)
    }

    /// Reserves the job that `next` returns under the lock. A job publishes before it releases its reservation, so
    /// `next` sees a version consistent with the reservations.
    pub(in crate::db) fn reserve_next(
        self: &Arc<Self>,
        next: impl FnOnce(&mut Reserved<'_>) -> Option<Job>,
    ) -> Option<Reservation> {
        point();
        let mut state = lock(&self.state);
        if state.stopping {
            return None;
        }
        let job = next(&mut Reserved { state: &mut state, marks: &self.marks })?;
        self.begin(state, job)
    }

    fn begin(self: &Arc<Self>, mut state: MutexGuard<'_, State>, job: Job) -> Option<Reservation> {
        let serial = state.take(&job);
        self.mark(job.keyspaces());
        drop(state);
        serial.map(|serial| Reservation { reservations: Arc::clone(self), serial, job: Some(job) })
    }

    #[cfg(test)]
    fn reserve(self: &Arc<Self>, job: Job) -> Option<Reservation> {
        self.reserve_next(|_| Some(job))
    }

    pub(in crate::db) fn look<T>(&self, look: impl FnOnce(&mut Reserved<'_>) -> T) -> T {
        look(&mut Reserved { state: &mut lock(&self.state), marks: &self.marks })
    }

    /// Drops the job's handles first, so that a woken thread finds the replaced tables unused.
    fn release(&self, serial: u64, job: Job) {
        let keyspaces = job.keyspaces();
        match job {
            Job::Upkeep(upkeep) => drop(lock(&self.state).upkeep.remove(&upkeep)),
            Job::Flush(memtables) => {
                drop(memtables);
                let mut state = lock(&self.state);
                state.flushing.retain(|id| !keyspaces.contains(id));
            }
            Job::Compact(tree, task) => {
                let claim = Claim::of(&task);
                drop(task);
                lock(&self.state).give_up(tree.id, |busy| busy.give_up(&claim));
            }
            Job::Drop(tasks) => {
                let claims: Vec<_> = tasks.iter().map(|(tree, task)| (tree.id, Claim::of(task))).collect();
                drop(tasks);
                let mut state = lock(&self.state);
                claims.iter().for_each(|(tree, claim)| state.give_up(*tree, |busy| busy.give_up(claim)));
            }
            Job::CompactRange(tree, task) => {
                let claim = Claim::of(&task);
                drop(task);
                let mut state = lock(&self.state);
                state.give_up(tree.id, |busy| busy.give_up(&claim));
                state.extra = false;
            }
            Job::Refilter(tree, table) => {
                let number = table.meta.number;
                drop(table);
                let mut state = lock(&self.state);
                state.give_up(tree.id, |busy| busy.give_up_table(number));
                state.extra = false;
            }
            Job::Residency(changes) => {
                let mut state = lock(&self.state);
                for change in &changes {
                    state.give_up(change.tree.id, |busy| busy.give_up_table(change.number));
                }
                state.changing_residency = false;
            }
        }
        lock(&self.state).running.remove(&serial);
        self.mark(keyspaces);
        self.notify();
    }
}

pub(in crate::db) struct Reserved<'s> {
    state: &'s mut State,
    marks: &'s Marks,
}

impl Reserved<'_> {
    pub(in crate::db) fn take_marked(&self) -> NumberSet<KeyspaceId> {
        self.marks.take()
    }

    pub(in crate::db) fn set_awaited(&self, seqno: SeqNo) {
        self.marks.set_awaited(seqno);
    }

    pub(in crate::db) fn pending(&mut self) -> &mut Pending {
        &mut self.state.pending
    }

    pub(in crate::db) fn is_idle(&self) -> bool {
        self.state.running.is_empty()
    }

    pub(in crate::db) fn is_upkeep(&self, upkeep: Upkeep) -> bool {
        self.state.upkeep.contains(&upkeep)
    }

    pub(in crate::db) fn is_any_flush(&self) -> bool {
        !self.state.flushing.is_empty()
    }

    pub(in crate::db) fn is_flush(&self, tree: &Tree) -> bool {
        self.state.flushing.contains(&tree.id)
    }

    pub(in crate::db) fn is_extra(&self) -> bool {
        self.state.extra
    }

    pub(in crate::db) fn is_residency(&self) -> bool {
        self.state.changing_residency
    }

    pub(in crate::db) fn residencies(&self) -> u64 {
        self.state.residencies
    }

    pub(in crate::db) fn all_busy(&self) -> NumberMap<KeyspaceId, Busy> {
        self.state.busy.clone()
    }

    pub(in crate::db) fn busy(&self, tree: &Tree) -> Busy {
        self.state.busy.get(&tree.id).cloned().unwrap_or_default()
    }
}

impl State {
    fn give_up(&mut self, tree: KeyspaceId, give_up: impl FnOnce(&mut Busy)) {
        if let Some(busy) = self.busy.get_mut(&tree) {
            give_up(busy);
            if busy.is_empty() {
                self.busy.remove(&tree);
            }
        }
    }

    fn take(&mut self, job: &Job) -> Option<u64> {
        let reserved = match job {
            Job::Upkeep(upkeep) => self.upkeep.insert(*upkeep),
            Job::Flush(memtables) => {
                let free = memtables.iter().all(|(tree, _)| !self.flushing.contains(&tree.id));
                self.flushing.extend(memtables.iter().filter(|_| free).map(|(tree, _)| tree.id));
                free
            }
            Job::Compact(tree, task) => self.busy.get_or_insert_with(tree.id, Busy::default).take(task),
            Job::Drop(tasks) => {
                // `next` found all of them free under this lock.
                tasks
                    .iter()
                    .all(|(tree, task)| self.busy.get_or_insert_with(tree.id, Busy::default).take(task))
            }
            Job::CompactRange(tree, task) => {
                let free = !self.extra && self.busy.get_or_insert_with(tree.id, Busy::default).take(task);
                self.extra |= free;
                free
            }
            Job::Refilter(tree, table) => {
                let free = !self.extra
                    && self.busy.get_or_insert_with(tree.id, Busy::default).take_table(table.meta.number);
                self.extra |= free;
                free
            }
            Job::Residency(changes) => {
                let free = !std::mem::replace(&mut self.changing_residency, true);
                self.residencies += u64::from(free);
                for change in changes.iter().filter(|_| free) {
                    self.busy.get_or_insert_with(change.tree.id, Busy::default).take_table(change.number);
                }
                free
            }
        };
        reserved.then(|| {
            self.running.insert(self.begun);
            self.begun += 1;
            self.begun - 1
        })
    }
}

pub(in crate::db) struct Reservation {
    reservations: Arc<Reservations>,
    serial: u64,
    job: Option<Job>,
}

impl Reservation {
    pub(in crate::db) fn job(&self) -> &Job {
        self.job.as_ref().expect("a reservation has its job until it is dropped")
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.reservations.release(self.serial, job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemFs;
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn compactions_of_callers_and_new_filters_of_several_keyspaces_come_one_after_the_other() {
        let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap();
        let tree = |name| {
            let keyspace = db.keyspace(name, KeyspaceOptions::new()).unwrap();
            keyspace.put("a", "b").unwrap();
            keyspace.flush().unwrap();
            db.engine().keyspaces.find(name).unwrap()
        };
        let (one, two) = (tree("one"), tree("two"));
        let table = |tree: &Tree| {
            tree.view().version.all_tables().next().map(|(_, table)| Arc::clone(table)).unwrap()
        };
        let reservations = &db.engine().background.reservations;
        let compact = |tree: &Arc<Tree>| {
            let task = Task { inputs: vec![(0, table(tree))], output_level: 1, trivial_move: false };
            reservations.reserve(Job::CompactRange(Arc::clone(tree), task))
        };
        let refilter = || reservations.reserve(Job::Refilter(Arc::clone(&two), table(&two)));
        let running = compact(&one).unwrap();
        assert!(compact(&two).is_none() && refilter().is_none());
        drop(running);
        let running = refilter().unwrap();
        assert!(compact(&one).is_none() && refilter().is_none());
        drop(running);
        assert!(compact(&two).is_some() && compact(&one).is_some());
    }
}
