//! Snapshots: sequence numbers whose entries compactions keep.

use std::sync::Arc;

use super::keyspace::Keyspace;
use crate::db::handles::owner::Owner;
use crate::db::handles::read_view::Reads;
use crate::db::state::expiry::horizons::{Horizons, Past};
use crate::db::state::keyspace::tree::Tree;
use crate::key::SeqNo;

/// All keyspaces of a store as of one point in time. Cheap to create, clone and hold. Compactions keep its entries.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// db.put("k", "old")?;
/// let snapshot = db.snapshot();
/// db.put("k", "new")?;
/// assert_eq!(snapshot.get("k")?.as_deref(), Some(&b"old"[..]));
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Snapshot {
    default: KeyspaceSnapshot,
}

#[derive(Debug)]
pub(in crate::db) struct Held {
    owner: Arc<Owner>,
    seqno: SeqNo,
    horizons: Arc<Horizons>,
}

impl Held {
    pub(in crate::db) fn past(&self, tree: &Tree) -> Past {
        Past { seqno: self.seqno, horizon: self.horizons.of(tree.id) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let engine = self.owner.engine();
        engine.sequence.snapshots.release(self.seqno, &self.horizons);
        engine.notice_released_snapshot();
    }
}

impl Snapshot {
    pub(in crate::db) fn new(owner: &Arc<Owner>) -> Self {
        let (seqno, horizons) = owner.engine().sequence.register_snapshot();
        let held = Arc::new(Held { owner: Arc::clone(owner), seqno, horizons });
        let tree = owner.engine().keyspaces.default_tree();
        Self { default: KeyspaceSnapshot { held, tree, owner: Arc::clone(owner) } }
    }

    pub(in crate::db) fn reads(&self) -> Reads<'_> {
        self.default.reads()
    }

    pub(in crate::db) fn held(&self) -> &Arc<Held> {
        self.default.held()
    }

    /// The sequence number of the newest visible write.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let before = db.snapshot();
    /// db.put("k", "v")?;
    /// assert!(db.snapshot().seqno() > before.seqno());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn seqno(&self) -> SeqNo {
        self.default.held.seqno
    }

    /// The snapshot of one keyspace.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// users.put("ada", "1815")?;
    /// let snapshot = db.snapshot();
    /// users.delete("ada")?;
    /// assert!(snapshot.keyspace(&users).contains("ada")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn keyspace(&self, keyspace: &Keyspace) -> KeyspaceSnapshot {
        KeyspaceSnapshot {
            held: Arc::clone(&self.default.held),
            tree: Arc::clone(&keyspace.tree),
            owner: Arc::clone(&keyspace.owner),
        }
    }
}

/// One keyspace as of a [`Snapshot`].
#[derive(Clone)]
pub struct KeyspaceSnapshot {
    held: Arc<Held>,
    tree: Arc<Tree>,
    owner: Arc<Owner>,
}

impl std::fmt::Debug for KeyspaceSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyspaceSnapshot")
            .field("keyspace", &self.tree.name)
            .field("seqno", &self.held.seqno)
            .finish()
    }
}

impl KeyspaceSnapshot {
    pub(in crate::db) fn reads(&self) -> Reads<'_> {
        Reads {
            owner: &self.owner,
            tree: &self.tree,
            past: Some(self.held.past(&self.tree)),
            is_foreign: !Arc::ptr_eq(&self.owner, &self.held.owner),
            own: None,
        }
    }

    pub(in crate::db) fn held(&self) -> &Arc<Held> {
        &self.held
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::fs::MemFs;
    use crate::options::Options;

    #[test]
    fn what_iterators_and_snapshots_keep_alive_is_counted_until_they_are_gone() {
        let options = Options::new().fs(Arc::new(MemFs::new())).memory_budget(1 << 20).background_threads(0);
        let db = options.open("/db").unwrap();
        let held = || {
            let stats = db.stats();
            (stats.memory.held, stats.held_files, stats.held_file_bytes)
        };
        (0..150u32).for_each(|key| db.put(key.to_be_bytes(), [1; 100]).unwrap());
        let memtable = db.stats().memory.memtables;
        let over_memtable = db.iter();
        assert_eq!((held(), memtable > 15_000), ((0, 0, 0), true), "the memtable is still in use");
        db.flush().unwrap();
        assert_eq!(held(), (memtable, 0, 0));

        let mut over_table = db.iter();
        assert!(over_table.next().is_some());
        let file = db.stats().keyspaces[0].total().bytes;
        (0..10u32).for_each(|key| db.put(key.to_be_bytes(), [2; 100]).unwrap());
        db.compact().unwrap();
        assert_eq!(held(), (memtable, 1, file));
        let twice = over_memtable;
        assert_eq!(twice.count(), 150);
        assert_eq!(held(), (0, 1, file));
        // Besides the file, one block is held by the iterator only.
        db.engine().context.memory.blocks().set_capacity(0);
        assert!(held().0 > 1000, "{:?}", held());
        drop(over_table);
        assert_eq!(held(), (0, 0, 0));

        assert_eq!((db.stats().snapshots, db.stats().oldest_snapshot), (0, None));
        let old = db.snapshot();
        db.put("k", "v").unwrap();
        let new = (db.snapshot(), db.snapshot());
        assert_eq!((db.stats().snapshots, db.stats().oldest_snapshot), (2, Some(old.seqno())));
        drop(old);
        assert_eq!((db.stats().snapshots, db.stats().oldest_snapshot), (1, Some(new.0.seqno())));
    }
}
