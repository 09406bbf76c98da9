//! Back-pressure: slows writers down when background work is behind.
//!
//! Pressure is 0 while flushes and compactions keep up, and rises towards 1 with the memtables that wait to
//! be flushed, with the runs of level 0, and with the bytes that compactions owe
//! ([`pressure`](crate::compaction::debt)). Below 1 the writers of a keyspace are slowed to a rate that
//! falls with its pressure. At 1 they wait until a flush or a compaction has ended. Writers also wait until all
//! memtables together have room for their batch; a keyspace with memtables that wait to be flushed leaves the
//! others a part of that room. Each waits before it enters the commit queue, so that a keyspace whose flushes or
//! compactions are behind slows only its own writers. The leader waits only for those who found room at the same
//! time. While flushes or compactions fail, the pressure is at least one half. A writer gets an error if the wait might never end:
//! because this work has been failing for long, or because level 0 is full and cannot be compacted without a
//! damaged table. A memtable that cannot be sealed takes entries only as long as it has places for them; then writers get
//! the error of sealing it.

use crate::db::state::keyspace::pace::DELAY_MAX;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::batch;
use crate::compaction::debt::{is_none, of_debt, of_runs};
use crate::compaction::pick;
use crate::db::engine::Engine;
use crate::db::queues::condition::Part;
use crate::db::queues::condition::PartMut;
use crate::db::queues::retry::Work;
use crate::db::queues::workers::Jobs;
use crate::db::state::keyspace::tree::{Tree, View};
use crate::error::{Error, Result};
use crate::memory::Growth;
use crate::memtable::Memtable;
use crate::options::IMMUTABLES_MAX;

/// Rate of writing when pressure has just begun, in bytes per second.
const RATE_MAX: f64 = 256.0 * 1024.0 * 1024.0;

/// Rate at a pressure of almost 1.
const RATE_MIN: f64 = 1024.0 * 1024.0;

/// The part of the memory for memtables that a keyspace leaves to others while it waits for its flushes.
const PART_FOR_OTHERS: usize = 8;

/// With less memory for memtables, what a memtable allocates ahead is not little of it.
const MUCH_ROOM_MIN: usize = 8 << 20;

/// The pressure while work that lowers it fails.
const FAILING: f64 = 0.5;

/// The pressure of so many memtables that wait to be flushed. The first is normal.
fn pressure_of_memtables(immutables: usize) -> f64 {
    ((immutables as f64 - 1.0) / (IMMUTABLES_MAX as f64 - 1.0)).max(0.0)
}

/// How long a write of `bytes` takes at the rate that is allowed at a pressure between 0 and 1.
fn time_of(bytes: usize, pressure: f64) -> Duration {
    let rate = (RATE_MAX * (1.0 - pressure).powi(3)).max(RATE_MIN);
    Duration::from_secs_f64(bytes as f64 / rate).min(DELAY_MAX)
}

impl Engine {
    /// Delays a writer according to the pressure of its keyspaces, and until there is room for its batch. Called
    /// before the batch is queued.
    ///
    /// # Errors
    ///
    /// The error of what keeps the pressure from falling, or the memtables from being flushed. Nothing was
    /// written.
    #[inline]
    pub(crate) fn throttle(&self, batch: Part<'_>) -> Result<()> {
        let is_free = !self.reserve.is_spent()
            && self.retry.is_empty()
            && batch.1.iter().all(|tree| tree.has_no_pressure())
            && self.has_much_room(std::iter::once(batch));
        if is_free { Ok(()) } else { self.throttle_if_needed(batch) }
    }

    #[inline(never)]
    fn throttle_if_needed(&self, batch: Part<'_>) -> Result<()> {
        let (bytes, trees) = batch;
        if self.takes_only_deletes(bytes)? {
            return Ok(());
        }
        let is_failing = self.retry.is_failing(|work| is_for(trees, work));
        let now = pressure_of(trees).max(if is_failing { FAILING } else { 0.0 });
        let lacks_room = self.lacks_room(batch);
        if now <= 0.0 && !lacks_room {
            return Ok(());
        }
        let start = Instant::now();
        if now < 1.0 && !lacks_room && self.background.threads > 0 {
            let time = time_of(bytes.len(), now);
            let delays = trees.iter().map(|tree| tree.pace.delay(start, time));
            let delay = delays.max().unwrap_or_default();
            if delay.is_zero() {
                return Ok(());
            }
            std::thread::sleep(delay);
        } else {
            self.wait_for_relief(batch)?;
        }
        let nanos = start.elapsed().as_nanos() as u64;
        self.counters.delays.fetch_add(1, Ordering::Relaxed);
        self.counters.delay_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.counters.longest_delay_nanos.fetch_max(nanos, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the memtables have room for what is to be written of a group, of which each batch has found
    /// room before; seals the largest ones to make room. A group that is too large even for empty memtables is
    /// written once they are empty. Cached blocks have given way to the group until the result is dropped. Only the
    /// commit leader calls this.
    #[inline]
    pub(crate) fn make_room(&self, group: &[PartMut<'_>]) -> Result<Option<Growth<'_>>> {
        let batches = group.iter().map(|(bytes, trees)| (&**bytes, *trees));
        if !self.suspension.is_suspended() && self.has_much_room(batches.clone()) {
            return Ok(None);
        }
        self.wait_for_room(batches)
    }

    #[inline(never)]
    fn wait_for_room<'g>(
        &self,
        batches: impl Iterator<Item = Part<'g>> + Clone,
    ) -> Result<Option<Growth<'_>>> {
        let reservations = &self.background.reservations;
        loop {
            let epoch = reservations.epoch();
            self.resume_if_due(false)?;
            if let Some(full) = self.overfull(batches.clone()) {
                // It was to be sealed before.
                match self.retry.failed_since(0, |work| work == Work::BeginLog) {
                    Some(error) if !self.may_seal() => return Err(error),
                    _ => self.seal_now(std::slice::from_ref(full))?,
                }
                // Another one may be, too.
                continue;
            }
            let memory = &self.context.memory;
            let more = memory_of(batches.clone());
            let has_room = memory.memtables().saturating_add(more) <= memory.memtables_max();
            if has_room || self.health.has_failed() || self.background.is_stopping() {
                return Ok(memory.grow_memtables(more));
            }
            // Bytes of those that wait to be flushed; none is empty.
            if self.may_seal() && memory.immutables() == 0 {
                let Some(largest) = self.keyspaces.largest_filled() else {
                    return Ok(memory.grow_memtables(more));
                };
                match self.seal_now(&[largest]) {
                    Ok(()) => continue,
                    Err(error) if self.background.threads == 0 => return Err(error),
                    Err(_) => {}
                }
            }
            if let Some(error) =
                self.retry.out_of_patience(|work| matches!(work, Work::Flush(_) | Work::BeginLog))
            {
                return Err(error);
            }
            if self.background.has_no_free_thread() {
                self.retry.at_once();
                if self.step(Jobs::Urgent)? {
                    continue;
                }
                if !reservations.is_working() {
                    return Ok(memory.grow_memtables(more));
                }
            }
            reservations.wait_past(epoch, Some(DELAY_MAX));
        }
    }

    /// [`has_much_room`] for a group now.
    #[inline]
    fn has_much_room<'g>(&self, group: impl Iterator<Item = Part<'g>>) -> bool {
        let memory = &self.context.memory;
        has_much_room(memory.memtables(), memory.memtables_max(), group)
    }

    /// Whether all memtables together, the immutable ones included, have room for a group.
    pub(in crate::db) fn has_room<'g>(&self, group: impl Iterator<Item = Part<'g>> + Clone) -> bool {
        let memory = &self.context.memory;
        let (used, most) = (memory.memtables(), memory.memtables_max());
        has_much_room(used, most, group.clone()) || used.saturating_add(memory_of(group)) <= most
    }

    /// A tree whose memtable may have no places for a group.
    fn overfull<'g>(&self, group: impl Iterator<Item = Part<'g>> + Clone) -> Option<&'g Arc<Tree>> {
        if self.context.memory.memtables() <= Memtable::FLUSH_BYTES_MAX {
            return None;
        }
        let more = memory_of(group.clone());
        group.flat_map(|(_, trees)| trees).find(|tree| is_overfull(tree.active_bytes(), more))
    }

    /// Whether beginning a log, without which nothing is sealed, is not put off.
    fn may_seal(&self) -> bool {
        self.background.threads == 0 || self.retry.is_due(Work::BeginLog)
    }

    /// Whether a writer has to wait for memory: the memtables have no room for its batch beside what is left to
    /// other keyspaces.
    fn lacks_room(&self, batch: Part<'_>) -> bool {
        let memory = &self.context.memory;
        let (used, most) = (memory.memtables(), memory.memtables_max());
        let batches = std::iter::once(batch);
        if has_much_room(used, most, batches.clone()) {
            return false;
        }
        let is_behind = |tree: &Arc<Tree>| tree.is_alive() && !tree.view_ref().immutables.is_empty();
        let leaves_some = self.keyspaces.len() > 1 && batch.1.iter().any(is_behind);
        let most = if leaves_some { most - most / PART_FOR_OTHERS } else { most };
        used.saturating_add(memory_of(batches)) > most
    }

    /// Waits until the pressure is below 1 and the memtables have room for a batch, doing the work itself if
    /// there are no threads. A batch that is too large even for empty memtables waits until they are empty.
    fn wait_for_relief(&self, batch: Part<'_>) -> Result<()> {
        let (_, trees) = batch;
        let reservations = &self.background.reservations;
        loop {
            // Read before the pressure, so that a change in between ends the wait at once.
            let epoch = reservations.epoch();
            self.resume_first()?;
            let (is_pressed, lacks_room) = (pressure_of(trees) >= 1.0, self.lacks_room(batch));
            let is_relieved = !is_pressed && !lacks_room;
            if is_relieved || self.health.has_failed() || self.background.is_stopping() {
                return Ok(());
            }
            if let Some(error) = trees.iter().find_map(blocked_for) {
                return Err((*error).clone());
            }
            if lacks_room && self.may_seal() && self.context.memory.immutables() == 0 {
                match self.keyspaces.largest_filled().map(|largest| self.seal(vec![largest])) {
                    Some(Ok(())) => continue,
                    Some(Err(error)) if self.background.threads == 0 => return Err(error),
                    None if !is_pressed => return Ok(()),
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
                if self.step(if is_pressed { Jobs::All } else { Jobs::Urgent })? {
                    continue;
                }
                if !reservations.is_working() {
                    return Ok(());
                }
            }
            reservations.wait_past(epoch, Some(DELAY_MAX));
        }
    }
}

/// Whether the writers of these trees wait for such work.
fn is_for(trees: &[Arc<Tree>], work: Work) -> bool {
    let (Work::Flush(id) | Work::Compact(id)) = work else { return false };
    trees.iter().any(|tree| tree.id == id)
}

/// The error of the damaged table that keeps a tree at full pressure from being compacted, if there is one.
fn blocked_for(tree: &Arc<Tree>) -> Option<Arc<Error>> {
    let view = tree.view();
    let mut set_aside = view.version.all_tables().filter_map(|(_, table)| table.set_aside_for());
    let error = set_aside.next()?;
    let is_full = compaction_pressure(tree, &view) >= 1.0 && tree.is_alive();
    let stuck = || pick::pick(&view.version, &view.version.set_aside().collect(), &tree.shape()).is_none();
    (is_full && stuck()).then(|| Arc::clone(error))
}

/// Whether the memtables have room for a group in any case, and blocks need not give way to it: the shortest entry, of
/// three bytes, takes at most 80 times as much, and what a memtable allocates ahead is little of so much memory.
#[inline]
fn has_much_room<'g>(used: usize, most: usize, mut group: impl Iterator<Item = Part<'g>>) -> bool {
    let Some((bytes, trees)) = group.next() else { return true };
    // Of more, each memtable is looked at.
    let most = most.min(Memtable::FLUSH_BYTES_MAX);
    let is_small = trees.len() == 1 && bytes.len() <= most / 2048;
    is_small && used <= most / 2 && most >= MUCH_ROOM_MIN && group.next().is_none()
}

/// Whether a memtable of so many bytes, which could not be sealed, may have no places for so much more. One that can be is
/// sealed when it has [`Memtable::FLUSH_BYTES_MAX`], and the largest batch finds places beside these.
fn is_overfull(active: usize, more: usize) -> bool {
    active > Memtable::FLUSH_BYTES_MAX && (active as u64).saturating_add(more as u64) > Memtable::BYTES_MAX
}

/// The most that the memtables can grow by when a group is applied.
fn memory_of<'g>(group: impl Iterator<Item = Part<'g>> + Clone) -> usize {
    let (mut entries, mut len) = (0, 0);
    for (bytes, _) in group.clone() {
        entries += batch::count(bytes) as usize;
        len += bytes.len();
    }
    let mut trees = group.flat_map(|(_, trees)| trees);
    let Some(first) = trees.next() else { return 0 };
    let mut others: Vec<&Arc<Tree>> = trees.filter(|tree| tree.id != first.id).collect();
    others.sort_by_key(|tree| tree.id);
    others.dedup_by_key(|tree| tree.id);
    let jumps = others.iter().map(|tree| tree.growth_max());
    let jumps = jumps.fold(first.growth_max(), usize::saturating_add);
    Memtable::bytes_max(entries, len, 1 + others.len()).saturating_add(jumps)
}

fn compaction_pressure(tree: &Tree, view: &View) -> f64 {
    let (runs, debt) = (view.version.runs(0).len(), tree.debt());
    if is_none(runs, debt) {
        return 0.0;
    }
    let shape = tree.shape();
    of_runs(runs, &shape).max(of_debt(debt, &shape))
}

/// The highest pressure among the keyspaces of a batch. A dropped keyspace is not flushed any more and does
/// not count.
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
    use crate::db::state::keyspace::pace::DELAY_MIN;
    use crate::db::state::keyspace::pace::Pace;
    use crate::sync::lock;
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;
    use crate::batch::WriteBatch;
    use crate::db::Durability;
    use crate::fs::{MemFs, Op};
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn pressure_rises_by_degrees_from_nothing_to_full() {
        assert_eq!([0, 1, 2, 3].map(pressure_of_memtables), [0.0, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn a_group_that_has_much_room_in_half_of_the_memory_has_room() {
        for budget in [1 << 20, 20 << 20, 32 << 20, 64 << 20, 1 << 30] {
            let options =
                Options::new().fs(Arc::new(MemFs::new())).memory_budget(budget).background_threads(0);
            let db = options.open("/db").unwrap();
            let tree = db.engine().keyspaces.default_tree();
            let most = db.engine().context.memory.memtables_max();
            for (entries, value) in [(1, 0), (1, most / 4000), (most / 2048 / 3 - 5, 0), (10, most / 20800)] {
                let mut batch = WriteBatch::new();
                for _ in 0..entries {
                    if value > 0 {
                        batch.put("", vec![7; value])
                    } else {
                        batch.delete("")
                    };
                }
                let (bytes, ..) = batch.into_parts().unwrap();
                let group = || std::iter::once((&bytes[..], std::slice::from_ref(&tree)));
                let has_much = has_much_room(most / 2, most, group());
                assert_eq!(has_much, most >= MUCH_ROOM_MIN, "{entries} of {value} in {budget}");
                let ahead = db.engine().context.memory.memtables_ahead();
                assert!(!has_much || memory_of(group()) <= ahead, "{entries} of {value} in {budget}");
                assert!(!has_much_room(most / 2 + 1, most, group()));
                assert!(
                    !has_much_room(Memtable::FLUSH_BYTES_MAX, usize::MAX, group()),
                    "one may be overfull"
                );
            }
        }
    }

    #[test]
    fn a_memtable_that_could_not_be_sealed_is_overfull_before_its_places_end() {
        let places = 16u64 << 30;
        for more in [0, 1 << 20, 5 << 30].map(|more: u64| more as usize) {
            assert!(!is_overfull(Memtable::FLUSH_BYTES_MAX, usize::MAX), "the largest batch fits");
            let Ok(active) = usize::try_from(places - more as u64) else { continue };
            assert!(is_overfull(active, more) && !is_overfull(active - (1 << 31), more));
        }
    }

    #[test]
    fn delays_grow_with_pressure_and_with_bytes_and_have_a_limit() {
        let times: Vec<_> = (1..10).map(|tenth| time_of(64 << 10, f64::from(tenth) / 10.0)).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{times:?}");
        assert!(times[0] < Duration::from_millis(1) && times[8] > Duration::from_millis(50), "{times:?}");
        assert_eq!(time_of(1 << 30, 0.9), DELAY_MAX);
    }

    #[test]
    fn writers_of_a_keyspace_share_its_rate_and_small_writes_add_up() {
        let (pace, now) = (Pace::default(), Instant::now());
        let (small, large) = (DELAY_MIN / 4, DELAY_MAX / 4);
        assert_eq!(
            [(); 4].map(|()| pace.delay(now, small)),
            [Duration::ZERO, Duration::ZERO, Duration::ZERO, DELAY_MIN]
        );
        assert_eq!([(); 2].map(|()| pace.delay(now, large)), [DELAY_MIN + large, DELAY_MIN + 2 * large]);
        assert_eq!(pace.delay(now, DELAY_MAX), DELAY_MAX);
        let later = now + 2 * DELAY_MAX;
        assert_eq!(pace.delay(later, large), large, "nobody has written meanwhile");
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
            // Long enough to enter the queue, if it did.
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
        // Two memtables: one waits to be flushed, and there is room for much, but not for what comes.
        stalled.put("k", vec![1; 3 << 20]).unwrap();
        db.engine().seal(vec![Arc::clone(&stalled.tree)]).unwrap();
        stalled.put("l", vec![1; 5 << 19]).unwrap();
        assert_eq!(stalled.tree.view().immutables.len(), 1);
        std::thread::scope(|scope| {
            let large = |n: u32| stalled.put(n.to_be_bytes(), vec![1; 2 << 20]);
            let small = || (4..3000u32).try_for_each(|n| stalled.put(n.to_be_bytes(), [1; 1000]));
            let mut waits: Vec<_> = (0..3).map(|n| scope.spawn(move || large(n))).collect();
            waits.push(scope.spawn(small));
            // Until nothing more is written, and long enough to enter the queue, if they did.
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
        // The first thread to touch the directory is the leader, who resumes. It is held up; others tell.
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
            let leads = scope.spawn(|| engine.seal(Vec::new()));
            let (is_leader, _) = begun.recv_timeout(Duration::from_secs(20)).expect("writing resumes");
            assert!(is_leader);
            let writes = scope.spawn(|| {
                let mut batch = WriteBatch::new();
                batch.put("l", "v");
                db.write_with(batch, Durability::Synced)
            });
            // Time in which the writer would resume too; without it the test is weaker, but does not fail.
            let other = begun.recv_timeout(Duration::from_millis(100));
            drop(opens);
            leads.join().unwrap().unwrap();
            writes.join().unwrap().unwrap();
            assert!(other.is_err(), "beside the leader that resumes: {other:?}");
        });
        fs.stop_observing();
        assert!(db.contains("l").unwrap() && !engine.suspension.is_suspended());
    }
}
