//! All keyspaces of a store, and which of them is to be flushed next.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;

use super::tree::Tree;
use crate::batch::{DEFAULT_KEYSPACE, KeyspaceId};
use crate::error::{Error, Result};
use crate::memory::Memory;

/// The keyspaces, by id.
pub(crate) type Trees = BTreeMap<KeyspaceId, Arc<Tree>>;

/// The keyspaces of a store.
pub(crate) struct Keyspaces {
    trees: ArcSwap<Trees>,
    /// Seed of the key hash: one for the whole store.
    pub(crate) hash_seed: u64,
    /// Serialises creating and dropping keyspaces; the id that the next one gets.
    pub(crate) next_id: Mutex<KeyspaceId>,
}

impl Keyspaces {
    pub(crate) fn new(trees: Trees, hash_seed: u64, next_id: KeyspaceId) -> Self {
        Self { trees: ArcSwap::from_pointee(trees), hash_seed, next_id: Mutex::new(next_id) }
    }

    /// All keyspaces, for the length of a loop.
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<Trees>> {
        self.trees.load()
    }

    /// All keyspaces, as an `Arc`.
    pub(crate) fn all(&self) -> Vec<Arc<Tree>> {
        self.trees.load().values().cloned().collect()
    }

    /// The keyspace that `Db`'s own calls work on.
    pub(crate) fn default_tree(&self) -> Arc<Tree> {
        Arc::clone(self.trees.load().get(&DEFAULT_KEYSPACE).expect("opening checks that there is one"))
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Tree>> {
        self.trees.load().values().find(|tree| tree.name == name).cloned()
    }

    /// Adds a keyspace. The caller holds `next_id`.
    pub(crate) fn insert(&self, tree: Arc<Tree>) {
        let mut trees = (*self.trees.load_full()).clone();
        trees.insert(tree.id, tree);
        self.trees.store(Arc::new(trees));
    }

    /// Removes a keyspace. The caller holds `next_id`.
    pub(crate) fn remove(&self, id: KeyspaceId) {
        let mut trees = (*self.trees.load_full()).clone();
        trees.remove(&id);
        self.trees.store(Arc::new(trees));
    }

    /// The trees of these keyspaces, in this order.
    pub(crate) fn admit(&self, keyspaces: &[KeyspaceId]) -> Result<Vec<Arc<Tree>>> {
        let trees = self.trees.load();
        let tree = |id| match trees.get(id) {
            Some(tree) => Ok(Arc::clone(tree)),
            None => Err(Error::KeyspaceDropped { name: format!("number {id}") }),
        };
        keyspaces.iter().map(tree).collect()
    }

    /// The tree with the largest active memtable that is not empty.
    pub(crate) fn largest_filled(&self) -> Option<Arc<Tree>> {
        let trees = self.trees.load();
        let filled = trees.values().filter(|tree| !tree.view_ref().active.memtable.is_empty());
        filled.max_by_key(|tree| tree.active_bytes()).cloned()
    }

    /// Those of these trees whose memtable is full. If none is, and all memtables together take too much
    /// memory, the tree with the largest memtable.
    pub(crate) fn full_among(&self, mut touched: Vec<Arc<Tree>>, memory: &Memory) -> Vec<Arc<Tree>> {
        touched.sort_by_key(|tree| tree.id);
        touched.dedup_by_key(|tree| tree.id);
        touched.retain(|tree| tree.is_alive());
        for tree in &touched {
            tree.count_active_bytes();
        }
        touched.retain(|tree| tree.active_bytes() >= tree.memtable_bytes());
        if touched.is_empty() && memory.active.load(Ordering::Relaxed) > memory.memtables_max() {
            let trees = self.trees.load();
            touched.extend(trees.values().max_by_key(|tree| tree.active_bytes()).cloned());
        }
        touched
    }

    /// The oldest log that the memtables need, except those to be skipped.
    pub(crate) fn oldest_log(
        &self,
        is_skipped: impl Fn(&Arc<super::tree::LoggedMemtable>) -> bool,
    ) -> Option<u64> {
        let trees = self.trees.load();
        let oldest = trees.values().filter_map(|tree| {
            let view = tree.view();
            let kept = view.memtables().filter(|memtable| !is_skipped(memtable));
            kept.filter_map(|memtable| memtable.first_log()).min()
        });
        oldest.min()
    }
}
