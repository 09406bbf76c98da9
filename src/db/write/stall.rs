//! Back-pressure: writers are slowed down when background work is too slow.
//!
//! Pressure is 0 while flushes and compactions are fast enough. It rises towards 1 with waiting memtables (with default
//! sizes and one keyspace, at most one waits), level-0
//! runs and the bytes still to be compacted ([`pressure`](crate::compaction::debt)). While these jobs fail, it is at
//! least one half. Below 1, writers of a keyspace are slowed to a rate that falls with its pressure. At 1 they wait
//! for a flush or compaction.
//!
//! Writers also wait for memtable room. A keyspace with waiting memtables leaves a part of the room to other keyspaces.
//! Writers wait before the commit queue, so that a keyspace slows only its own writers. The leader waits only if
//! batches have room separately but not together, or for a *large* batch: before the queue, other writers would take
//! its room. If no background thread is free, the writer of a large batch seals the present memtables. Once they are
//! flushed, the batch is written even if there are new memtables.
//!
//! A writer gets an error if the work has been failing for long, or if level 0 is full and its compaction needs a
//! damaged table. A memtable that cannot be sealed accepts entries until it is full; then writers get the error of
//! sealing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::compaction::debt::{is_none, of_debt, of_runs, pressing_runs};
use crate::compaction::pick;
use crate::db::commit::room::{has_much_room, memory_of};
use crate::db::engine::Engine;
use crate::db::generation::disk_space::has_put;
use crate::db::queues::condition::Part;
use crate::db::queues::retry::Work;
use crate::db::queues::workers::Jobs;
use crate::db::state::failure::is_out_of_space;
use crate::db::state::keyspace::pace::DELAY_MAX;
use crate::db::state::keyspace::tree::{LoggedMemtable, Tree, View};
use crate::error::{Error, Result};
use crate::expiry::options::TimeSource;
use crate::key::SeqNo;
use crate::options::IMMUTABLES_MAX;

const RATE_MAX: f64 = 256.0 * 1024.0 * 1024.0;

const RATE_MIN: f64 = 1024.0 * 1024.0;

/// A keyspace with waiting memtables leaves this part of the memtable memory to others.
const PART_FOR_OTHERS: usize = 8;

const SPACE_PATIENCE: Duration = Duration::from_secs(5);

/// A memtable filled to less than this part is not flushed for disk space.
const SEAL_PART: usize = 8;

const FAILING: f64 = 0.5;

/// One waiting memtable causes no pressure.
fn pressure_of_memtables(immutables: usize) -> f64 {
    ((immutables as f64 - 1.0) / (IMMUTABLES_MAX as f64 - 1.0)).max(0.0)
}

fn time_of(bytes: usize, pressure: f64) -> Duration {
    let rate = (RATE_MAX * (1.0 - pressure).powi(3)).max(RATE_MIN);
    Duration::from_secs_f64(bytes as f64 / rate).min(DELAY_MAX)
}

impl Engine {
    /// Before the batch is queued, delays its writer by the pressure of its keyspaces, and waits until there is room.
    ///
    /// # Errors
    ///
    /// Returns the error that prevents background work. Nothing was written.
    #[inline]
    pub(in crate::db) fn throttle(&self, batch: Part<'_>) -> Result<bool> {
        if batch.1.iter().any(|tree| tree.expires()) {
            self.check_time(batch.1)?;
        }
        let is_free = self.lifecycle.is_ready()
            && batch.1.iter().all(|tree| tree.has_no_pressure())
            && self.has_much_room(&[batch]);
        if is_free { Ok(false) } else { self.throttle_if_needed(batch) }
    }

    /// Fails if entries expire and the clock is broken. Without background threads, also raises due horizons.
    #[inline(never)]
    fn check_time(&self, trees: &[Arc<Tree>]) -> Result<()> {
        let expiries = trees.iter().filter_map(|tree| tree.expiry());
        if expiries.clone().any(|expiry| expiry.time_source == TimeSource::System) {
            self.clock.read()?;
        }
        self.raise_if_nobody_does(trees)
    }

    #[inline]
    pub(super) fn raise_if_nobody_does(&self, trees: &[Arc<Tree>]) -> Result<()> {
        if self.background.threads > 0 || !trees.iter().any(|tree| tree.expires()) || !self.is_expiry_due() {
            return Ok(());
        }
        match self.raise_horizons() {
            Err(error) if !self.lifecycle.has_failed() => {
                self.fail_or_put_off(Work::Expire, error);
                Ok(())
            }
            raised => raised.map(drop),
        }
    }

    #[inline(never)]
    fn throttle_if_needed(&self, batch: Part<'_>) -> Result<bool> {
        let (bytes, trees) = batch;
        if self.await_space(batch)? {
            return Ok(false);
        }
        let is_failing = self.retry.is_failing(|work| is_for(trees, work));
        let now = pressure_of(trees).max(if is_failing { FAILING } else { 0.0 });
        let lacks_room = self.lacks_room_before_queue(batch);
        if now <= 0.0 && !lacks_room {
            return Ok(false);
        }
        let mut may_exceed = false;
        let start = Instant::now();
        if now < 1.0 && !lacks_room && self.background.threads > 0 {
            let time = time_of(bytes.len(), now);
            let delays = trees.iter().map(|tree| tree.pace.delay(start, time));
            let delay = delays.max().unwrap_or_default();
            if delay.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(delay);
        } else {
            may_exceed = self.wait_for_relief(batch, false)?;
        }
        let nanos = start.elapsed().as_nanos() as u64;
        self.counters.delays.fetch_add(1, Ordering::Relaxed);
        self.counters.delay_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.counters.longest_delay_nanos.fetch_max(nanos, Ordering::Relaxed);
        Ok(may_exceed)
    }

    /// Ignores the part left to other keyspaces.
    fn lacks_room(&self, batch: Part<'_>) -> bool {
        let memory = &self.context.memory;
        let (used, most) = (memory.memtables(), memory.memtables_max());
        if has_much_room(used, most, &[batch]) {
            return false;
        }
        let is_behind = |tree: &Arc<Tree>| tree.is_alive() && !tree.view_ref().immutables.is_empty();
        let leaves_some = self.keyspaces.len() > 1 && batch.1.iter().any(is_behind);
        let most = if leaves_some { most - most / PART_FOR_OTHERS } else { most };
        used.saturating_add(memory_of(&[batch])) > most
    }

    /// The leader waits for the room of a large batch.
    fn lacks_room_before_queue(&self, batch: Part<'_>) -> bool {
        self.lacks_room(batch) && (self.background.has_no_free_thread() || !self.is_large(batch))
    }

    /// Waits for memtable room, and before queueing also for a pressure below 1. Without background threads, does the
    /// work. Returns `true` if nothing can make room.
    pub(super) fn wait_for_relief(&self, batch: Part<'_>, queued: bool) -> Result<bool> {
        let (_, trees) = batch;
        let mut sealed_to = None;
        loop {
            // Read before the pressure, so that a concurrent change ends the wait.
            let epoch = self.background.reservations.epoch();
            self.lifecycle.check_writable()?;
            self.resume_first()?;
            if self.disk_space.is_short() && (!queued || has_put(batch.0)) && self.await_space(batch)? {
                return Ok(false);
            }
            let is_pressed = !queued && pressure_of(trees) >= 1.0;
            let lacks_room =
                if queued { self.lacks_room(batch) } else { self.lacks_room_before_queue(batch) };
            if !is_pressed && !lacks_room {
                return Ok(false);
            }
            if let Some(error) = trees.iter().filter(|_| is_pressed).find_map(blocked_for) {
                return Err((*error).clone());
            }
            if lacks_room && !is_pressed && self.may_seal() && self.background.has_no_free_thread() {
                match sealed_to {
                    Some(seqno) if self.is_flushed_to(seqno) => return Ok(true),
                    None if self.is_large(batch) => {
                        self.seal(self.keyspaces.with_memtables())?;
                        sealed_to = Some(self.sequence.visible());
                        continue;
                    }
                    _ => {}
                }
            }
            if lacks_room && self.may_seal() && self.context.memory.immutables() == 0 {
                match self.keyspaces.largest_filled().map(|largest| self.seal(vec![largest])) {
                    Some(Ok(())) => continue,
                    Some(Err(error)) if self.background.threads == 0 => return Err(error),
                    None if !is_pressed => return Ok(true),
                    Some(Err(_)) | None => {}
                }
            }
            let is_awaited =
                |work| is_for(trees, work) || lacks_room && matches!(work, Work::Flush(_) | Work::BeginLog);
            if let Some(error) = self.retry.out_of_patience(is_awaited) {
                return Err(error);
            }
            if self.background.threads == 0 {
                self.retry.at_once();
            }
            let jobs = if is_pressed { Jobs::All } else { Jobs::Urgent };
            if !self.wait_or_work(epoch, jobs, DELAY_MAX)? {
                return Ok(true);
            }
        }
    }

    fn is_flushed_to(&self, seqno: SeqNo) -> bool {
        let is_newer =
            |memtable: &Arc<LoggedMemtable>| memtable.memtable.seqno_max().is_none_or(|max| max > seqno);
        self.keyspaces.with_memtables().iter().all(|tree| tree.view_ref().memtables().all(is_newer))
    }

    /// Returns `true` for a batch of deletes on a full disk, which need not wait longer.
    ///
    /// # Errors
    ///
    /// The full disk, if no background work can free space.
    fn await_space(&self, (bytes, _): Part<'_>) -> Result<bool> {
        if self.disk_space.is_short() || self.disk_space.is_much(bytes.len()) {
            self.wait_until_taken(bytes)?;
        }
        Ok(self.disk_space.is_short())
    }

    #[cold]
    fn wait_until_taken(&self, bytes: &[u8]) -> Result<()> {
        let (has_put, end) = (has_put(bytes), Instant::now() + SPACE_PATIENCE);
        let mut has_sealed = false;
        while !self.disk_space.takes(has_put, bytes.len()) {
            let epoch = self.background.reservations.epoch();
            self.lifecycle.check_writable()?;
            self.resume_first()?;
            self.adjust_reserve_file();
            if self.disk_space.takes(has_put, bytes.len()) {
                break;
            }
            let cause = self.full_disk(bytes.len());
            if Instant::now() < end && self.wait_for_space(epoch)? {
                continue;
            }
            // Another thread may be freeing space or proving that there is space.
            self.adjust_reserve_file();
            if self.disk_space.takes(has_put, bytes.len()) {
                break;
            }
            if has_sealed || !self.seal_for_space()? {
                return Err(cause);
            }
            has_sealed = true;
        }
        Ok(())
    }

    /// Does a background job or waits for one. Returns `false` if no job can free space.
    fn wait_for_space(&self, epoch: u64) -> Result<bool> {
        if self.background.threads == 0 {
            self.retry.at_once();
            let before = self.disk_space.file_bytes();
            return match self.step(Jobs::All) {
                Err(error) if is_out_of_space(&error) => Ok(self.disk_space.file_bytes() < before),
                stepped => stepped,
            };
        }
        let reservations = &self.background.reservations;
        let is_working =
            || reservations.is_working() || self.has_work() || self.retry.is_newly_short_of_space();
        let is_working = !self.lifecycle.is_suspended() && is_working();
        if is_working {
            reservations.wait_past(epoch, Some(DELAY_MAX));
        }
        Ok(is_working)
    }

    /// Seals the memtable so that compactions can use its deletes. Returns `false` if it is small.
    fn seal_for_space(&self) -> Result<bool> {
        let is_worth_it = |tree: &Arc<Tree>| tree.active_bytes() >= tree.memtable_bytes() / SEAL_PART;
        let largest = self.keyspaces.largest_filled().filter(is_worth_it);
        largest.map_or(Ok(false), |largest| self.seal(vec![largest]).map(|()| true))
    }
}

fn is_for(trees: &[Arc<Tree>], work: Work) -> bool {
    let (Work::Flush(id) | Work::Compact(id)) = work else { return false };
    trees.iter().any(|tree| tree.id == id)
}

/// Returns the error of a damaged table that blocks the compaction of a tree at full pressure.
fn blocked_for(tree: &Arc<Tree>) -> Option<Arc<Error>> {
    let view = tree.view();
    let mut set_aside = view.version.all_tables().filter_map(|(_, table)| table.set_aside_for());
    let error = set_aside.next()?;
    let is_full = compaction_pressure(tree, &view) >= 1.0 && tree.is_alive();
    let stuck = || pick::pick(&view.version, &view.version.set_aside().collect(), &tree.shape()).is_none();
    (is_full && stuck()).then(|| Arc::clone(error))
}

/// A waiting memtable counts as a level-0 run, so runs never exceed their limit.
fn compaction_pressure(tree: &Tree, view: &View) -> f64 {
    let (runs, debt) = (pressing_runs(&view.version, &|| tree.shape()) + view.immutables.len(), tree.debt());
    if is_none(runs, debt) {
        return 0.0;
    }
    let shape = tree.shape();
    of_runs(runs, &shape).max(of_debt(debt, &shape))
}

fn pressure_of(trees: &[Arc<Tree>]) -> f64 {
    let of = |tree: &Arc<Tree>| {
        if tree.has_no_pressure() {
            return 0.0;
        }
        let view = tree.view_ref();
        pressure_of_memtables(view.immutables.len()).max(compaction_pressure(tree, &view))
    };
    trees.iter().filter(|tree| tree.is_alive()).map(of).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {

    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::batch::WriteBatch;
    use crate::db::Durability;
    use crate::fs::{MemFs, Op};
    use crate::options::{KeyspaceOptions, Options};
    use crate::sync::lock;

    #[test]
    fn pressure_rises_by_degrees_from_nothing_to_full() {
        assert_eq!([0, 1, 2, 3].map(pressure_of_memtables), [0.0, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn delays_grow_with_pressure_and_with_bytes_and_have_a_limit() {
        let times: Vec<_> = (1..10).map(|tenth| time_of(64 << 10, f64::from(tenth) / 10.0)).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{times:?}");
        assert!(times[0] < Duration::from_millis(1) && times[8] > Duration::from_millis(50), "{times:?}");
        assert_eq!(time_of(1 << 30, 0.9), DELAY_MAX);
    }

    #[test]
    fn a_keyspace_that_cannot_be_flushed_holds_up_its_own_writers_only() {
        let fs = MemFs::new();
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(1).open("/db").unwrap();
        let [stalled, other] =
            ["stalled", "other"].map(|name| db.keyspace(name, KeyspaceOptions::new()).unwrap());
        let (opens, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        fs.observe(move |_, op| {
            if matches!(op, Op::Create(path) if path.extension().is_some_and(|end| end == "sst")) {
                let _ = lock(&gate).recv();
            }
            Ok(())
        });
        for _ in 0..IMMUTABLES_MAX {
            stalled.put("k", "v").unwrap();
            db.engine().seal(vec![Arc::clone(&stalled.tree)]).unwrap();
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| stalled.put("k", "last"));
            // Long enough for the writer to enter the queue.
            std::thread::sleep(Duration::from_millis(50));
            let (tells, told) = mpsc::channel();
            scope.spawn(move || tells.send(other.put("k", "v")));
            let written = told.recv_timeout(Duration::from_secs(20));
            let is_waiting = !waits.is_finished();
            drop(opens);
            assert!(matches!(written, Ok(Ok(()))), "another keyspace was held up: {written:?}");
            assert!(is_waiting, "its own writer was not held up");
            waits.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_keyspace_that_waits_for_memory_holds_up_its_own_writers_only() {
        let fs = MemFs::new();
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(1).memory_budget(32 << 20);
        let db = options.open("/db").unwrap();
        let keyspace = || KeyspaceOptions::new().memtable_bytes(4 << 20);
        let [stalled, other] = ["stalled", "other"].map(|name| db.keyspace(name, keyspace()).unwrap());
        let (opens, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        fs.observe(move |_, op| {
            if matches!(op, Op::Create(path) if path.extension().is_some_and(|end| end == "sst")) {
                let _ = lock(&gate).recv();
            }
            Ok(())
        });
        // Two memtables, of which one waits; there is room for much, but not for this batch.
        stalled.put("k", vec![1; 3 << 20]).unwrap();
        db.engine().seal(vec![Arc::clone(&stalled.tree)]).unwrap();
        stalled.put("l", vec![1; 5 << 19]).unwrap();
        assert_eq!(stalled.tree.view().immutables.len(), 1);
        std::thread::scope(|scope| {
            let large = |n: u32| stalled.put(n.to_be_bytes(), vec![1; 2 << 20]);
            let small = || (4..3000u32).try_for_each(|n| stalled.put(n.to_be_bytes(), [1; 1000]));
            let mut waits: Vec<_> = (0..3).map(|n| scope.spawn(move || large(n))).collect();
            waits.push(scope.spawn(small));
            // Waits until writes stop, then long enough to enter the queue.
            let mut seqno = 0;
            while seqno != db.engine().sequence.visible() {
                seqno = db.engine().sequence.visible();
                std::thread::sleep(Duration::from_millis(100));
            }
            let (tells, told) = mpsc::channel();
            scope.spawn(move || {
                for n in 0..100u8 {
                    let _ = tells.send(other.put([n], vec![1; 5 << 10]));
                }
            });
            let written: Vec<_> =
                (0..100).map_while(|_| told.recv_timeout(Duration::from_secs(20)).ok()).collect();
            let are_waiting = waits.iter().all(|writer| !writer.is_finished());
            drop(opens);
            let count = written.iter().filter(|written| written.is_ok()).count();
            assert_eq!(count, 100, "another keyspace was held up");
            assert!(are_waiting, "its own writers were not held up");
            waits.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
        });
    }

    #[test]
    fn a_put_that_waits_for_disk_space_is_refused_when_the_store_closes() {
        let fs = MemFs::new();
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(1);
        let db = options.reserve_bytes(0).open("/db").unwrap();
        db.put("k", "v").unwrap();
        let (opens, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        fs.observe(move |_, op| match op {
            Op::Create(path) if path.extension().is_some_and(|end| end == "sst") => {
                let _ = lock(&gate).recv();
                Err(std::io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        });
        let engine = db.engine();
        engine.seal(vec![engine.keyspaces.default_tree()]).unwrap();
        // Less than an opening needs.
        fs.set_room(Some(fs.used() + (20 << 10)));
        engine.look_at_disk();
        assert!(engine.disk_space.is_short());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| db.put("l", "v"));
            // Leaves time to wait for space. A shorter time weakens the test but does not fail it.
            std::thread::sleep(Duration::from_millis(50));
            let closes = scope.spawn(|| db.clone().close());
            // Closing waits for the flush, and the writer does not.
            let written = waits.join().unwrap();
            assert!(!closes.is_finished());
            drop(opens);
            assert!(matches!(written, Err(Error::Closed)), "{written:?}");
            closes.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_writer_under_pressure_leaves_it_to_the_commit_leader_to_resume_writing() {
        let fs = MemFs::new();
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open("/db").unwrap();
        let engine = db.engine();
        for _ in 0..IMMUTABLES_MAX - 1 {
            db.put("k", "v").unwrap();
            engine.seal(vec![engine.keyspaces.default_tree()]).unwrap();
        }
        let full = std::io::ErrorKind::StorageFull.into();
        engine.suspend(Error::io("append to", std::path::Path::new("/db"), full));
        // The resuming leader is the first to access the directory and is blocked there. Each access is reported.
        let leader = Mutex::new(None);
        let (begins, begun) = mpsc::channel();
        let (opens, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        fs.observe(move |_, op| {
            let this = std::thread::current().id();
            let first = *lock(&leader).get_or_insert(this);
            let _ = begins.send((this == first, format!("{op:?}")));
            if this == first {
                let _ = lock(&gate).recv();
            }
            Ok(())
        });
        std::thread::scope(|scope| {
            let leads = scope.spawn(|| engine.barrier());
            let (is_leader, _) = begun.recv_timeout(Duration::from_secs(20)).expect("writing resumes");
            assert!(is_leader);
            let writes = scope.spawn(|| {
                let mut batch = WriteBatch::new();
                batch.put("l", "v");
                db.write_with(batch, Durability::Synced)
            });
            // Leaves time for a wrong second resume. A shorter time weakens the test but does not fail it.
            let other = begun.recv_timeout(Duration::from_millis(100));
            drop(opens);
            leads.join().unwrap().unwrap();
            writes.join().unwrap().unwrap();
            assert!(other.is_err(), "beside the leader that resumes: {other:?}");
        });
        fs.stop_observing();
        assert!(db.contains("l").unwrap() && !engine.lifecycle.is_suspended());
    }
}
