//! The memtables of all keyspaces, by size and by oldest needed log.
//!
//! Each tree reports its changes ([`Tree::replace`](super::tree::Tree::replace),
//! [`Tree::count_memtables`](super::tree::Tree::count_memtables)). Changes and searches are O(log n) in memtables.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::batch::KeyspaceId;
use crate::db::state::keyspace::flushed_memtables::FlushedMemtables;
use crate::db::state::keyspace::marks::Marks;
use crate::memory::Memory;
use crate::number_map::{NumberMap, NumberSet};
use crate::sync::lock;

/// Limit of a table, and by default of a memtable, as a part of the disk (free space and store).
const PARTS_OF_DISK: u64 = 64;
const PARTS_OF_FREE: u64 = 16;
const DISK_PART_MIN: u64 = 64 << 10;

#[derive(Debug, Clone, Copy)]
pub(in crate::db) struct DiskParts {
    pub(in crate::db) memtable: u64,
    /// Independent of the free space, because the shape of a tree depends on it.
    pub(in crate::db) table: u64,
}

impl Default for DiskParts {
    fn default() -> Self {
        Self { memtable: u64::MAX, table: u64::MAX }
    }
}

impl DiskParts {
    pub(in crate::db) fn of(free: u64, stored: u64) -> Self {
        let table = free.saturating_add(stored) / PARTS_OF_DISK;
        let memtable = table.min(free / PARTS_OF_FREE);
        Self { memtable: memtable.max(DISK_PART_MIN), table: table.max(DISK_PART_MIN) }
    }
}

pub(in crate::db) struct Memtables {
    pub(in crate::db) memory: Arc<Memory>,
    pub(in crate::db) hash_seed: u64,
    pub(in crate::db) marks: Arc<Marks>,
    pub(super) flushed: Arc<FlushedMemtables>,
    pub(in crate::db) disk: DiskParts,
    orders: Mutex<Orders>,
    expiring: Mutex<NumberSet<KeyspaceId>>,
    expiring_count: AtomicUsize,
    unstated: Mutex<NumberSet<KeyspaceId>>,
    steps: Mutex<NumberMap<KeyspaceId, (u64, u64)>>,
}

#[derive(Default)]
struct Orders {
    by_size: NumberSet<(u64, KeyspaceId)>,
    by_log: NumberMap<(u64, KeyspaceId), usize>,
}

/// Ranks sizes in steps of an eighth, so that growing memtables seldom move. `None`: no memtable.
fn rank(bytes: usize) -> Option<u64> {
    let log = u64::from(bytes.checked_ilog2()?);
    let eighths = ((bytes as u128) << 3 >> log) as u64 & 7;
    Some(log << 3 | eighths)
}

impl Memtables {
    pub(in crate::db) fn new(memory: Arc<Memory>, hash_seed: u64, disk: DiskParts) -> Arc<Self> {
        let flushed = FlushedMemtables::new(Arc::clone(&memory));
        let (marks, orders, steps) = (Arc::default(), Mutex::default(), Mutex::default());
        let (expiring, expiring_count, unstated) = Default::default();
        Arc::new(Self {
            expiring_count,
            unstated,
            memory,
            hash_seed,
            marks,
            flushed,
            disk,
            orders,
            expiring,
            steps,
        })
    }

    pub(super) fn set_expiring(&self, id: KeyspaceId, expires: bool) {
        let mut expiring = lock(&self.expiring);
        if expires {
            expiring.insert(id);
        } else {
            expiring.remove(&id);
        }
        self.expiring_count.store(expiring.len(), Ordering::Release);
    }

    pub(in crate::db) fn any_expire(&self) -> bool {
        self.expiring_count.load(Ordering::Acquire) > 0
    }

    pub(super) fn set_unstated(&self, id: KeyspaceId) {
        lock(&self.unstated).insert(id);
    }

    pub(in crate::db) fn unstated(&self) -> Vec<KeyspaceId> {
        lock(&self.unstated).iter().copied().collect()
    }

    pub(in crate::db) fn forget_unstated(&self, is_stated: impl Fn(KeyspaceId) -> bool) {
        lock(&self.unstated).retain(|id| !is_stated(*id));
    }

    pub(in crate::db) fn expiring(&self) -> Vec<KeyspaceId> {
        lock(&self.expiring).iter().copied().collect()
    }

    pub(super) fn set_step(&self, id: KeyspaceId, step: Option<(u64, u64)>) {
        let steps = &mut lock(&self.steps);
        match step {
            Some(step) => drop(steps.insert(id, step)),
            None => drop(steps.remove(&id)),
        }
    }

    pub(in crate::db) fn largest_step(&self) -> (u64, u64) {
        lock(&self.steps).values().fold((0, 0), |most, step| (most.0.max(step.0), most.1.max(step.1)))
    }

    pub(super) fn resize(&self, id: KeyspaceId, before: usize, after: usize) {
        let (before, after) = (rank(before), rank(after));
        if before == after {
            return;
        }
        let by_size = &mut lock(&self.orders).by_size;
        if let Some(rank) = before {
            by_size.remove(&(rank, id));
        }
        by_size.extend(after.map(|rank| (rank, id)));
    }

    pub(super) fn set_logs(&self, id: KeyspaceId, before: &[u64], after: &[u64]) {
        let by_log = &mut lock(&self.orders).by_log;
        for &log in after {
            *by_log.get_or_insert_with((log, id), || 0) += 1;
        }
        for &log in before {
            let memtables = by_log.get_or_insert_with((log, id), || 0);
            *memtables = memtables.saturating_sub(1);
            if *memtables == 0 {
                by_log.remove(&(log, id));
            }
        }
    }

    pub(in crate::db) fn largest(&self) -> Option<KeyspaceId> {
        lock(&self.orders).by_size.last().map(|&(_, id)| id)
    }

    pub(in crate::db) fn oldest_log(&self, without: &[u64]) -> Option<u64> {
        let mut without = without.to_vec();
        let orders = lock(&self.orders);
        let needs = |(&(log, _), &memtables): (&(u64, KeyspaceId), &usize)| {
            let is_left_out = |_: &usize| {
                let at = without.iter().position(|&left_out| left_out == log);
                at.map(|at| without.swap_remove(at)).is_some()
            };
            ((0..memtables).take_while(is_left_out).count() < memtables).then_some(log)
        };
        orders.by_log.iter().find_map(needs)
    }

    pub(in crate::db) fn with_log(&self, log: u64) -> Vec<KeyspaceId> {
        let orders = lock(&self.orders);
        orders.by_log.range((log, 0)..=(log, KeyspaceId::MAX)).map(|(&(_, id), _)| id).collect()
    }

    /// In order of creation.
    pub(in crate::db) fn keyspaces(&self) -> NumberSet<KeyspaceId> {
        lock(&self.orders).by_log.keys().map(|&(_, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memtables() -> Arc<Memtables> {
        Memtables::new(Memory::new(1 << 20, 1 << 18), 0, DiskParts::default())
    }

    #[test]
    fn tables_have_a_64th_of_a_disk_and_memtables_at_most_a_16th_of_what_is_free() {
        let parts = |free, stored| {
            let DiskParts { memtable, table } = DiskParts::of(free, stored);
            (memtable >> 10, table >> 10)
        };
        assert_eq!(parts(64 << 20, 0), (1024, 1024));
        assert_eq!(parts(8 << 20, 56 << 20), (512, 1024));
        assert_eq!(parts(0, 64 << 20), (64, 1024));
        assert_eq!(parts(100, 100), (64, 64));
    }

    #[test]
    fn ranks_order_sizes_that_differ_by_an_eighth_and_change_seldom() {
        assert_eq!(rank(0), None);
        let mut sizes = vec![1usize];
        while sizes[sizes.len() - 1] < 1 << 40 {
            let last = sizes[sizes.len() - 1];
            sizes.push(last + last.div_ceil(8));
        }
        assert!(sizes.windows(2).all(|pair| rank(pair[0]) < rank(pair[1])), "{sizes:?}");
        assert!((1..100_000).map(rank).collect::<Vec<_>>().is_sorted());
        assert!(rank(usize::MAX) > rank(1 << 62));
        let changes = (1..1 << 20).filter(|&bytes| rank(bytes) != rank(bytes - 1)).count();
        assert!(changes < 170, "{changes} changes from nothing to a MiB");
    }

    #[test]
    fn the_largest_memtable_is_found_while_others_grow_and_go() {
        let memtables = memtables();
        assert_eq!(memtables.largest(), None);
        memtables.resize(1, 0, 1000);
        memtables.resize(2, 0, 3000);
        memtables.resize(3, 0, 2000);
        assert_eq!(memtables.largest(), Some(2));
        memtables.resize(3, 2000, 9000);
        assert_eq!(memtables.largest(), Some(3));
        memtables.resize(3, 9000, 0);
        memtables.resize(2, 3000, 0);
        assert_eq!(memtables.largest(), Some(1));
        memtables.resize(1, 1000, 0);
        assert_eq!(memtables.largest(), None);
    }

    #[test]
    fn the_oldest_log_is_that_of_every_memtable_but_the_one_left_out() {
        let memtables = memtables();
        memtables.set_logs(1, &[], &[5]);
        memtables.set_logs(2, &[], &[7, 5]);
        assert_eq!([&[][..], &[5], &[7]].map(|without| memtables.oldest_log(without)), [Some(5); 3]);
        assert_eq!([&[5, 5][..], &[5, 7]].map(|without| memtables.oldest_log(without)), [Some(7), Some(5)]);
        assert_eq!(memtables.oldest_log(&[7, 5, 5]), None);
        assert_eq!((memtables.with_log(5), memtables.with_log(7)), (vec![1, 2], vec![2]));
        memtables.set_logs(2, &[7, 5], &[7]);
        let without = |log| memtables.oldest_log(&[log]);
        assert_eq!((without(5), without(7), memtables.oldest_log(&[])), (Some(7), Some(5), Some(5)));
        memtables.set_logs(1, &[5], &[9, 5, 5]);
        assert_eq!(without(5), Some(5), "two memtables need it");
        memtables.set_logs(1, &[9, 5, 5], &[]);
        assert_eq!((without(7), memtables.oldest_log(&[])), (None, Some(7)));
        assert_eq!(memtables.keyspaces(), [2].into_iter().collect());
    }
}
