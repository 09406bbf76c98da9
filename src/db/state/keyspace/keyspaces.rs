//! All keyspaces by number and name.
//!
//! Changes are O(log n). Only operations on the whole store use [`Keyspaces::all`]. Writes, flushes and new logs use
//! [`Memtables`]; the search for jobs uses [`Pending`](crate::db::queues::job_queue::Pending).

use std::collections::HashMap;
#[cfg(test)]
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use super::memtables::Memtables;
use super::tree::Tree;
use crate::batch::{DEFAULT_KEYSPACE, KeyspaceId};
use crate::error::{Error, Result};
use crate::key::SeqNo;
use crate::number_map::NumberMap;
use crate::sync::lock;
use crate::version::OpenTables;

pub(in crate::db) type Trees = NumberMap<KeyspaceId, Arc<Tree>>;

pub(in crate::db) struct Keyspaces {
    trees: Mutex<NamedTrees>,
    default: Arc<Tree>,
    pub(in crate::db) memtables: Arc<Memtables>,
    pub(in crate::db) open_tables: Arc<OpenTables>,
    pub(in crate::db) hash_seed: u64,
    pub(in crate::db) next_id: Mutex<KeyspaceId>,
    #[cfg(test)]
    scans: std::sync::atomic::AtomicUsize,
}

const DROPPED_NAMES_MAX: usize = 1000;

#[derive(Default)]
struct NamedTrees {
    by_id: Trees,
    ids: HashMap<String, KeyspaceId>,
    dropped: NumberMap<KeyspaceId, String>,
}

impl NamedTrees {
    fn dropped_error(&self, id: KeyspaceId) -> Error {
        let name = self.dropped.get(&id).cloned();
        Error::KeyspaceDropped { name: name.unwrap_or_else(|| format!("number {id}")) }
    }
}

impl Keyspaces {
    pub(in crate::db) fn new(
        by_id: Trees,
        memtables: Arc<Memtables>,
        open_tables: Arc<OpenTables>,
        next_id: KeyspaceId,
    ) -> Self {
        let default = by_id.get(&DEFAULT_KEYSPACE).expect("opening checks that there is one");
        let mut ids = HashMap::new();
        ids.extend(by_id.values().map(|tree| (tree.name.clone(), tree.id)));
        Self {
            default: Arc::clone(default),
            hash_seed: memtables.hash_seed,
            trees: Mutex::new(NamedTrees { by_id, ids, ..NamedTrees::default() }),
            memtables,
            open_tables,
            next_id: Mutex::new(next_id),
            #[cfg(test)]
            scans: Default::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, NamedTrees> {
        lock(&self.trees)
    }

    /// In order of creation. O(keyspaces).
    pub(in crate::db) fn all(&self) -> Vec<Arc<Tree>> {
        #[cfg(test)]
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.lock().by_id.values().cloned().collect()
    }

    pub(in crate::db) fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    pub(in crate::db) fn with_memtables(&self) -> Vec<Arc<Tree>> {
        let ids = self.memtables.keyspaces();
        self.existing(ids)
    }

    pub(in crate::db) fn expiring(&self) -> Vec<Arc<Tree>> {
        if !self.memtables.any_expire() {
            return Vec::new();
        }
        let ids = self.memtables.expiring();
        self.existing(ids)
    }

    pub(in crate::db) fn with_unstated_boundaries(&self) -> Vec<Arc<Tree>> {
        if !self.memtables.any_expire() {
            return Vec::new();
        }
        let ids = self.memtables.unstated();
        self.existing(ids)
    }

    pub(in crate::db) fn horizons(&self) -> Vec<(KeyspaceId, SeqNo)> {
        let horizons = self.lock();
        let horizons = horizons.by_id.values().map(|tree| (tree.id, tree.horizon()));
        horizons.filter(|(_, horizon)| *horizon > 0).collect()
    }

    pub(in crate::db) fn with_open_tables(&self) -> Vec<Arc<Tree>> {
        self.existing(self.open_tables.keyspaces())
    }

    pub(in crate::db) fn with_log(&self, log: u64) -> Vec<Arc<Tree>> {
        let ids = self.memtables.with_log(log);
        self.existing(ids)
    }

    fn existing(&self, ids: impl IntoIterator<Item = KeyspaceId>) -> Vec<Arc<Tree>> {
        let trees = self.lock();
        ids.into_iter().filter_map(|id| trees.by_id.get(&id).cloned()).collect()
    }

    pub(in crate::db) fn default_tree(&self) -> Arc<Tree> {
        Arc::clone(&self.default)
    }

    pub(in crate::db) fn get(&self, id: KeyspaceId) -> Option<Arc<Tree>> {
        self.lock().by_id.get(&id).cloned()
    }

    pub(in crate::db) fn find(&self, name: &str) -> Option<Arc<Tree>> {
        let trees = self.lock();
        trees.by_id.get(trees.ids.get(name)?).cloned()
    }

    /// The caller holds `next_id`.
    pub(in crate::db) fn insert(&self, tree: Arc<Tree>) {
        let mut trees = self.lock();
        trees.ids.insert(tree.name.clone(), tree.id);
        trees.by_id.insert(tree.id, tree);
    }

    /// The caller holds `next_id`.
    pub(in crate::db) fn remove(&self, tree: &Tree) {
        let mut trees = self.lock();
        trees.ids.remove(&tree.name);
        trees.by_id.remove(&tree.id);
        trees.dropped.insert(tree.id, tree.name.clone());
        if trees.dropped.len() > DROPPED_NAMES_MAX {
            trees.dropped.pop_first();
        }
    }

    pub(in crate::db) fn admit(&self, keyspaces: &[KeyspaceId]) -> Result<Vec<Arc<Tree>>> {
        let trees = self.lock();
        let tree = |id| match trees.by_id.get(id) {
            Some(tree) => Ok(Arc::clone(tree)),
            None => Err(trees.dropped_error(*id)),
        };
        keyspaces.iter().map(tree).collect()
    }

    pub(in crate::db) fn largest_filled(&self) -> Option<Arc<Tree>> {
        self.memtables.largest().and_then(|id| self.get(id))
    }

    /// Returns the keyspaces whose memtables are full. If there are none and the active memtables together exceed their
    /// limit, returns the keyspace with the largest.
    #[inline]
    pub(in crate::db) fn full_among<'t>(
        &self,
        touched: impl Iterator<Item = &'t [Arc<Tree>]>,
    ) -> Vec<Arc<Tree>> {
        let mut full: Vec<Arc<Tree>> = Vec::new();
        for trees in touched {
            for tree in trees {
                let is_full = tree.is_alive() && tree.has_grown_full();
                if is_full && !full.iter().any(|other| other.id == tree.id) {
                    full.push(Arc::clone(tree));
                }
            }
        }
        let memory = &self.memtables.memory;
        if full.is_empty() && memory.active() > memory.memtables_max() {
            full.extend(self.largest_filled());
        }
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemFs;
    use crate::memory::LeaseKind;
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn ninety_empty_keyspaces_leave_a_small_budget_to_the_one_that_is_written() {
        let options = Options::new().fs(Arc::new(MemFs::new())).memory_budget(1 << 20).background_threads(0);
        let db = options.open("/db").unwrap();
        let keyspaces: Vec<_> =
            (0..92).map(|n| db.keyspace(&format!("{n}"), KeyspaceOptions::new()).unwrap()).collect();
        assert_eq!(db.stats().memory.memtables, 0);
        (0..200u32).for_each(|key| keyspaces[7].put(key.to_be_bytes(), [1; 10]).unwrap());
        let stats = db.stats();
        assert!(stats.flushes == 0 && stats.memory.memtables > 200 * 50, "{stats:?}");
        db.flush().unwrap();
        assert_eq!((db.stats().flushes, db.stats().memory.memtables), (1, 0), "nothing is left to hold");
        assert!((0..200u32).all(|key| keyspaces[7].contains(key.to_be_bytes()).unwrap()));
    }

    #[test]
    fn of_ten_thousand_keyspaces_only_the_fifty_in_use_take_memory_and_time() {
        let options = Options::new().fs(Arc::new(MemFs::new())).memory_budget(64 << 20).background_threads(0);
        let db = options.open("/db").unwrap();
        let engine = db.engine();
        let scans = || engine.keyspaces.scans.load(Ordering::Relaxed);
        let name = |n: u32| format!("keyspace {n}");
        for n in 0..10_000 {
            db.keyspace(&name(n), KeyspaceOptions::new()).unwrap();
        }
        for n in (0..10_000).step_by(3) {
            assert_eq!(db.existing_keyspace(&name(n)).unwrap().name(), name(n));
        }
        (1..10_000).step_by(100).for_each(|n| db.drop_keyspace(&name(n)).unwrap());
        assert!(db.existing_keyspace(&name(1)).is_none());
        let memory = &engine.context.memory;
        assert_eq!((memory.memtables(), engine.keyspaces.len(), scans()), (0, 9901, 0));

        let hot: Vec<_> = (0..50).map(|n| db.existing_keyspace(&name(200 * n)).unwrap()).collect();
        for keyspace in &hot {
            (0..200u32).for_each(|key| keyspace.put(key.to_be_bytes(), [1; 50]).unwrap());
        }
        let held = memory.memtables();
        assert!((50 * 200 * 50..8 << 20).contains(&held), "{held} bytes");
        // Choosing memtables to flush for memory and for old logs.
        for n in 0..1000 {
            hot[7].put([n as u8; 4], vec![1; 1000]).unwrap();
        }
        assert_eq!(engine.keyspaces.largest_filled().unwrap().name, hot[7].name());
        let logs = engine.log().older();
        for keyspace in &hot[..20] {
            engine.seal(vec![Arc::clone(&keyspace.tree)]).unwrap();
        }
        assert!(engine.log().older() > logs + 16);
        let waiting = hot.iter().filter(|keyspace| !keyspace.tree.view().immutables.is_empty()).count();
        assert_eq!(waiting, 50, "too many logs: those that need the oldest are flushed, too");
        while db.step().unwrap() {}
        db.flush().unwrap();
        assert!(!db.step().unwrap());
        assert_eq!(scans(), 0, "neither the choice of a job looks at all");
        assert_eq!((memory.memtables(), db.stats().flushes), (0, 50));
        for keyspace in &hot {
            assert!((0..200u32).all(|key| keyspace.contains(key.to_be_bytes()).unwrap()));
        }

        // Choosing resident filters, and finding unusable ones.
        let before = scans();
        let taken = memory.lease(LeaseKind::Tables, memory.room() as usize + 10_000);
        engine.files.obsolete.wake_for_unusable(hot[0].tree.id);
        while db.step().unwrap() {}
        assert!(engine.context.memory.is_short());
        drop(taken);
        while db.step().unwrap() {}
        assert!(!engine.context.memory.is_short());
        assert_eq!((engine.keyspaces.with_open_tables().len(), scans()), (50, before));
    }
}
