//! Memtable room for a group. The leader waits for flushes. If no background thread is free, it returns
//! [`Room::Lacking`]; the writers flush or wait, and queue again (`write/stall`).

use std::sync::Arc;

use crate::batch;
use crate::db::engine::Engine;
use crate::db::queues::condition::Part;
use crate::db::queues::retry::Work;
use crate::db::state::keyspace::pace::DELAY_MAX;
use crate::db::state::keyspace::tree::Tree;
use crate::error::Result;
use crate::memory::Growth;
use crate::memtable::{Memtable, SpanStack};
use crate::sorting::sort_by_key;

/// With a smaller memtable limit, preallocation matters.
const MUCH_ROOM_MIN: usize = 8 << 20;

pub(in crate::db) enum Room<'e> {
    /// Cached blocks yield this memory until the value is dropped.
    Enough(Option<Growth<'e>>),
    Lacking,
}

impl Engine {
    /// Waits for room for a group whose batches had room separately; seals the largest memtables. A group larger than
    /// all memtables waits until they are empty. With `may_exceed`, the group is written even if nothing can make
    /// room. Called by the leader only.
    #[inline]
    pub(super) fn ensure_memtable_room(&self, batches: &[Part<'_>], may_exceed: bool) -> Result<Room<'_>> {
        if self.has_much_room(batches) {
            return Ok(Room::Enough(None));
        }
        self.wait_for_room(batches, may_exceed)
    }

    #[inline(never)]
    fn wait_for_room(&self, batches: &[Part<'_>], may_exceed: bool) -> Result<Room<'_>> {
        let reservations = &self.background.reservations;
        loop {
            let epoch = reservations.epoch();
            self.resume_if_due(false)?;
            if let Some(full) = self.overfull(batches) {
                match self.retry.failed_since(0, |work| work == Work::BeginLog) {
                    Some(error) if !self.may_seal() => return Err(error),
                    _ => self.seal_now(std::slice::from_ref(full))?,
                }
                continue;
            }
            let memory = &self.context.memory;
            let more = memory_of(batches);
            let has_room = memory.memtables().saturating_add(more) <= memory.memtables_max();
            self.lifecycle.check_writable()?;
            if has_room {
                return Ok(Room::Enough(memory.grow_memtables(more)));
            }
            if self.may_seal() && memory.immutables() == 0 {
                let Some(largest) = self.keyspaces.largest_filled() else {
                    return Ok(Room::Enough(memory.grow_memtables(more)));
                };
                match self.seal_now(&[largest]) {
                    Ok(()) => continue,
                    Err(error) if self.background.threads == 0 => return Err(error),
                    Err(_) => {}
                }
            }
            let makes_room = |work| matches!(work, Work::Flush(_) | Work::BeginLog);
            // The removal of `RESERVE` did not free enough space.
            let lacks_space =
                self.retry.is_short_of_space(makes_room) && !self.retry.is_newly_short_of_space();
            if lacks_space && self.disk_space.is_short() {
                return Err(self.full_disk(0));
            }
            if let Some(error) = self.retry.out_of_patience(makes_room) {
                return Err(error);
            }
            if self.background.has_no_free_thread() {
                return Ok(match may_exceed {
                    true => Room::Enough(memory.grow_memtables(more)),
                    false => Room::Lacking,
                });
            }
            reservations.wait_past(epoch, Some(DELAY_MAX));
        }
    }

    #[inline]
    pub(in crate::db) fn has_much_room(&self, group: &[Part<'_>]) -> bool {
        let memory = &self.context.memory;
        has_much_room(memory.memtables(), memory.memtables_max(), group)
    }

    pub(in crate::db) fn has_room(&self, group: &[Part<'_>]) -> bool {
        let memory = &self.context.memory;
        let (used, most) = (memory.memtables(), memory.memtables_max());
        has_much_room(used, most, group) || used.saturating_add(memory_of(group)) <= most
    }

    /// Whether the batch needs most of the memtable memory, so that it never finds room while others write.
    pub(in crate::db) fn is_large(&self, batch: Part<'_>) -> bool {
        let half = self.context.memory.memtables_max() / 2;
        batch.0.len() > half || memory_of(&[batch]) > half
    }

    fn overfull<'g>(&self, group: &[Part<'g>]) -> Option<&'g Arc<Tree>> {
        if self.context.memory.memtables() <= Memtable::FLUSH_BYTES_MAX {
            return None;
        }
        let more = memory_of(group);
        group.iter().flat_map(|(_, trees)| *trees).find(|tree| is_overfull(tree.active_bytes(), more))
    }

    pub(in crate::db) fn may_seal(&self) -> bool {
        self.background.threads == 0 || self.retry.is_due(Work::BeginLog)
    }
}

/// Whether the batch is small, and half of the memory is free. Then no block is evicted. The smallest entry (three
/// bytes) takes at most 80 times its size, a range delete of four bytes 500 times; preallocation is negligible.
#[inline]
pub(in crate::db) fn has_much_room(used: usize, most: usize, group: &[Part<'_>]) -> bool {
    let Some((bytes, trees)) = group.first() else { return true };
    let most = most.min(Memtable::FLUSH_BYTES_MAX);
    let is_small = || {
        trees.len() == 1
            && bytes.len() <= most / 2048
            && (bytes.len() <= most / 16384
                || batch::count(bytes) as usize <= most / 65536
                || batch::range_deletes(bytes).0 == 0)
    };
    used <= most / 2 && most >= MUCH_ROOM_MIN && group.len() == 1 && is_small()
}

/// Whether the active memtable may lack addresses for `more` bytes. A memtable sealed at
/// [`Memtable::FLUSH_BYTES_MAX`] has room for the largest batch.
fn is_overfull(active: usize, more: usize) -> bool {
    active > Memtable::FLUSH_BYTES_MAX && (active as u64).saturating_add(more as u64) > Memtable::BYTES_MAX
}

pub(in crate::db) fn memory_of(group: &[Part<'_>]) -> usize {
    let (mut entries, mut len, mut of_spans) = (0, 0, 0_usize);
    for (bytes, _) in group {
        entries += batch::count(bytes) as usize;
        len += bytes.len();
        let (range_deletes, of_ranges) = batch::range_deletes(bytes);
        of_spans = of_spans.saturating_add(SpanStack::bytes_max(range_deletes, of_ranges));
    }
    let mut trees = group.iter().flat_map(|(_, trees)| *trees);
    let Some(first) = trees.next() else { return 0 };
    let mut others: Vec<&Arc<Tree>> = trees.filter(|tree| tree.id != first.id).collect();
    sort_by_key(&mut others, |tree| tree.id);
    others.dedup_by_key(|tree| tree.id);
    let jumps = others.iter().map(|tree| tree.growth_max());
    let jumps = jumps.fold(first.growth_max().saturating_add(of_spans), usize::saturating_add);
    Memtable::bytes_max(entries, len, 1 + others.len()).saturating_add(jumps)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::batch::WriteBatch;
    use crate::db::state::failure::is_out_of_space;
    use crate::error::Error;
    use crate::fs::{MemFs, Op};
    use crate::options::Options;
    use crate::sync::lock;

    #[test]
    fn a_write_that_waits_for_memory_gets_the_error_of_the_full_disk_when_flushes_have_no_room() {
        let fs = MemFs::new();
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(1).memory_budget(1 << 20);
        let db = options.reserve_bytes(16 << 20).open("/db").unwrap();
        while db.engine().disk_space.file_bytes() == 0 {
            db.step().unwrap();
        }
        let key = |n: u32| [&[7; 20_000][..], &n.to_be_bytes()].concat();
        [0, u32::MAX].into_iter().for_each(|n| db.put(key(n), "v").unwrap());
        db.flush().unwrap();
        fs.observe(|_, op| match op {
            Op::Create(path) if path.extension().is_some_and(|end| end == "sst") => {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        });
        // `RESERVE` is enough for deletes, so they reach the leader.
        let refused = (0..).find_map(|n| db.delete(key(n)).err()).unwrap();
        assert!(is_out_of_space(&refused), "{refused}");
        let failures = db.engine().retry.failures();
        assert!(failures < 10, "{failures} attempts");
    }

    #[test]
    fn a_batch_whose_leader_waits_for_memory_is_refused_when_the_store_closes() {
        let fs = MemFs::new();
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(1).memory_budget(1 << 20);
        let db = options.open("/db").unwrap();
        let engine = db.engine();
        let large = engine.context.memory.memtables_max() * 3 / 5;
        let (opens, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        fs.observe(move |_, op| {
            if matches!(op, Op::Create(path) if path.extension().is_some_and(|end| end == "sst")) {
                let _ = lock(&gate).recv();
            }
            Ok(())
        });
        db.put("k", vec![1; large]).unwrap();
        engine.seal(vec![engine.keyspaces.default_tree()]).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| db.put("l", vec![2; large]));
            while !engine.commit.is_led() {
                std::thread::yield_now();
            }
            let closes = scope.spawn(|| db.clone().close());
            let written = waits.join().unwrap();
            drop(opens);
            assert!(matches!(written, Err(Error::Closed)), "{written:?}");
            closes.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_group_that_has_much_room_in_half_of_the_memory_has_room() {
        for budget in [1 << 20, 20 << 20, 32 << 20, 64 << 20, 1 << 30] {
            let options =
                Options::new().fs(Arc::new(MemFs::new())).memory_budget(budget).background_threads(0);
            let db = options.open("/db").unwrap();
            let tree = db.engine().keyspaces.default_tree();
            let most = db.engine().context.memory.memtables_max();
            for (entries, value, ranges) in [
                (1, 0, false),
                (1, most / 4000, false),
                (most / 2048 / 3 - 5, 0, false),
                (10, most / 20800, false),
                (1, 0, true),
                ((most / 16384 / 4).saturating_sub(5).max(1), 0, true),
                (most / 2048 / 4 - 5, 0, true),
                (10, most / 20800, true),
            ] {
                let mut batch = WriteBatch::new();
                for _ in 0..entries {
                    match value {
                        _ if ranges => batch.push_range_delete(0, b"", &vec![7; value]),
                        0 => batch.delete(""),
                        _ => batch.put("", vec![7; value]),
                    };
                }
                let (bytes, ..) = batch.into_parts().unwrap();
                let group = [(&bytes[..], std::slice::from_ref(&tree))];
                let has_much = has_much_room(most / 2, most, &group);
                let are_few = !ranges || entries < most / 16384;
                assert_eq!(has_much, most >= MUCH_ROOM_MIN && are_few, "{entries} of {value} in {budget}");
                let ahead = db.engine().context.memory.memtables_ahead();
                assert!(!has_much || memory_of(&group) <= ahead, "{entries} of {value} in {budget}");
                assert!(!has_much_room(most / 2 + 1, most, &group));
                assert!(!has_much_room(Memtable::FLUSH_BYTES_MAX, usize::MAX, &group), "one may be overfull");
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
}
