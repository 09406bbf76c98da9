use std::sync::Arc;

use crate::batch::{DEFAULT_KEYSPACE, WriteBatch};
use crate::db::handles::keyspace::Keyspace;
use crate::db::handles::owner::Owner;
use crate::db::handles::read_view::Reads;
use crate::db::handles::snapshot::{Held, KeyspaceSnapshot, Snapshot};
use crate::db::handles::store::Db;
use crate::db::read::own_writes::{Own, OwnWrites};
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::Tree;

/// A [`WriteBatch`] that can be read [`over`](Self::over) a store, a keyspace or a snapshot. The last write of a key
/// wins.
///
/// Unlike a [transaction](Db::transaction), it does not detect concurrent writes. Each entry takes about 100 bytes in
/// addition to its key and value.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// db.put("a", "1")?;
/// db.put("b", "2")?;
/// let mut batch = sievedb::IndexedBatch::new();
/// batch.delete("a").put("c", "3");
/// assert_eq!(batch.over(&db).get("a")?, None);
/// assert_eq!(batch.over(&db).keys().collect::<Result<Vec<_>, _>>()?, ["b", "c"]);
/// assert!(db.contains("a")?, "nothing is written yet");
/// db.write(batch)?;
/// assert!(!db.contains("a")?);
/// # Ok::<(), sievedb::Error>(())
/// ```
#[doc(alias = "WriteBatchWithIndex")]
#[doc(alias = "overlay")]
#[derive(Debug, Clone, Default)]
pub struct IndexedBatch {
    pub(super) writes: OwnWrites,
}

impl IndexedBatch {
    /// An empty batch.
    ///
    /// ```
    /// assert!(sievedb::IndexedBatch::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value` in the default keyspace. O(log n), or O(n) while an iterator over the batch exists. If a key, value
    /// or batch exceeds a limit, every later read and [`Db::write`] return the error.
    ///
    /// ```
    /// let mut batch = sievedb::IndexedBatch::new();
    /// batch.put("from", "90").put("to", "110");
    /// assert_eq!(batch.len(), 2);
    /// ```
    #[doc(alias = "insert")]
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.writes.set(DEFAULT_KEYSPACE, key.as_ref(), Some(value.as_ref()));
        self
    }

    /// Removes `key` from the default keyspace; like [`put`](Self::put).
    ///
    /// ```
    /// let mut batch = sievedb::IndexedBatch::new();
    /// batch.put("pending", "").delete("pending");
    /// assert_eq!(batch.len(), 1, "the delete counts");
    /// ```
    #[doc(alias = "remove")]
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.writes.set(DEFAULT_KEYSPACE, key.as_ref(), None);
        self
    }

    /// Sets `key` to `value` in `keyspace`; like [`put`](Self::put). Keyspaces of different stores are an error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let users = db.open_keyspace("users")?;
    /// let mut batch = sievedb::IndexedBatch::new();
    /// batch.put_in(&users, "ada", "1815");
    /// assert!(batch.over(&users).contains("ada")? && !batch.over(&db).contains("ada")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.set_in(keyspace, key.as_ref(), Some(value.as_ref()))
    }

    /// Removes `key` from `keyspace`; like [`put_in`](Self::put_in).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let users = db.open_keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let mut batch = sievedb::IndexedBatch::new();
    /// batch.delete_in(&users, "ada");
    /// assert!(batch.over(&users).is_empty()?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Self {
        self.set_in(keyspace, key.as_ref(), None)
    }

    fn set_in(&mut self, keyspace: &Keyspace, key: &[u8], value: Option<&[u8]>) -> &mut Self {
        if self.writes.bind(keyspace.owner.engine().id) {
            self.writes.set(keyspace.tree.id, key, value);
        }
        self
    }

    /// The number of distinct keys written.
    ///
    /// ```
    /// let mut batch = sievedb::IndexedBatch::new();
    /// batch.put("k", "1").put("k", "2");
    /// assert_eq!(batch.len(), 1);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether the batch is empty.
    ///
    /// ```
    /// assert!(sievedb::IndexedBatch::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all writes.
    ///
    /// ```
    /// let mut batch = sievedb::IndexedBatch::new();
    /// batch.put("k", "v");
    /// batch.clear();
    /// assert!(batch.is_empty());
    /// ```
    pub fn clear(&mut self) {
        self.writes.clear();
    }

    /// A store, keyspace or snapshot with these writes applied. Later writes to the batch do not change it. O(1).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let before = db.snapshot();
    /// db.put("b", "2")?;
    /// let mut batch = sievedb::IndexedBatch::new();
    /// batch.put("a", "1");
    /// assert_eq!(batch.over(&db).len()?, 2);
    /// assert_eq!(batch.over(&before).len()?, 1);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn over(&self, handle: &impl ReadHandle) -> BatchView {
        let base = handle.base();
        let own = self.writes.own_in(base.owner.engine().id, base.tree.id);
        BatchView { base, own }
    }
}

/// The same writes, in key order.
impl From<&IndexedBatch> for WriteBatch {
    fn from(batch: &IndexedBatch) -> Self {
        batch.writes.to_batch()
    }
}

/// The same writes, in key order.
impl From<IndexedBatch> for WriteBatch {
    fn from(batch: IndexedBatch) -> Self {
        Self::from(&batch)
    }
}

/// Handles that [`IndexedBatch::over`] accepts.
pub trait ReadHandle: sealed::HasBase {}

mod sealed {
    pub trait HasBase {
        fn base(&self) -> super::Base;
    }
}

#[derive(Debug, Clone)]
pub struct Base {
    owner: Arc<Owner>,
    tree: Arc<Tree>,
    past: Option<Past>,
    is_foreign: bool,
    _held: Option<Arc<Held>>,
}

impl Base {
    fn new(reads: &Reads<'_>, held: Option<&Arc<Held>>) -> Self {
        let Reads { owner, tree, past, is_foreign, .. } = reads;
        Self {
            owner: Arc::clone(owner),
            tree: Arc::clone(tree),
            past: *past,
            is_foreign: *is_foreign,
            _held: held.cloned(),
        }
    }
}

macro_rules! read_handles {
    ($($handle:ty: $held:expr),*) => {$(
        impl ReadHandle for $handle {}

        impl sealed::HasBase for $handle {
            fn base(&self) -> Base {
                let held: fn(&Self) -> Option<&Arc<Held>> = $held;
                Base::new(&self.reads(), held(self))
            }
        }
    )*};
}

read_handles!(Db: |_| None, Keyspace: |_| None, Snapshot: |it| Some(it.held()), KeyspaceSnapshot: |it| Some(it.held()));

/// A handle with the writes of an [`IndexedBatch`] applied; see [`IndexedBatch::over`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// db.put("a", "1")?;
/// let mut batch = sievedb::IndexedBatch::new();
/// batch.put("b", "2");
/// let view = batch.over(&db);
/// assert_eq!(view.range("a"..).keys().rev().collect::<Result<Vec<_>, _>>()?, ["b", "a"]);
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BatchView {
    base: Base,
    own: Own,
}

impl BatchView {
    pub(in crate::db) fn reads(&self) -> Reads<'_> {
        let Base { owner, tree, past, is_foreign, .. } = &self.base;
        let own = Some(Box::new(self.own.clone()));
        Reads { owner, tree, past: *past, is_foreign: *is_foreign, own }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use super::*;
    use crate::error::Error;
    use crate::fs::MemFs;
    use crate::merge::vec_iter::Random;
    use crate::options::{KeyspaceOptions, Options};

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    fn open() -> Db {
        let small = KeyspaceOptions::new().memtable_bytes(1 << 10).table_bytes(1 << 10).l0_runs(2);
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        options.default_keyspace(small).open("/db").unwrap()
    }

    fn bound(random: &mut Random) -> Bound<Vec<u8>> {
        match random.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(random.key()),
            _ => Bound::Excluded(random.key()),
        }
    }

    fn compare(view: &BatchView, map: &Map, random: &mut Random) {
        let keys: Vec<_> = (0..5).map(|_| random.key()).collect();
        let wanted: Vec<_> = keys.iter().map(|key| map.get(key).map(|value| &value[..])).collect();
        for (key, wanted) in keys.iter().zip(&wanted) {
            assert_eq!(view.get(key).unwrap().as_deref(), *wanted, "{key:?}");
            assert_eq!(view.contains(key).unwrap(), wanted.is_some());
        }
        let many = view.multi_get(&keys).unwrap();
        assert_eq!(many.iter().map(|value| value.as_deref()).collect::<Vec<_>>(), wanted);
        let many = view.multi_contains(&keys).unwrap();
        assert_eq!(many, wanted.iter().map(|value| value.is_some()).collect::<Vec<_>>());
        assert_eq!(view.len().unwrap(), map.len() as u64);

        let bounds = (bound(random), bound(random));
        let inside = |key: &&Vec<u8>| std::ops::RangeBounds::contains(&bounds, *key);
        let mut left: std::collections::VecDeque<_> = map.keys().filter(inside).collect();
        let mut iter = view.range(&bounds);
        loop {
            let (found, wanted) = match random.below(2) {
                0 => (iter.next(), left.pop_front()),
                _ => (iter.next_back(), left.pop_back()),
            };
            let found = found.map(|item| item.unwrap());
            let found = found.as_ref().map(|(key, value)| (&key[..], &value[..]));
            assert_eq!(found, wanted.map(|key| (&key[..], &map[key][..])), "{bounds:?} of {map:?}");
            if found.is_none() {
                break;
            }
        }
        assert!(iter.next().is_none() && iter.next_back().is_none());
    }

    #[test]
    fn a_batch_over_a_store_or_a_snapshot_reads_like_a_map_with_its_writes() {
        let (db, random) = (open(), &mut Random(7));
        let spaces = [db.default_keyspace(), db.open_keyspace("other").unwrap()];
        let mut maps = [Map::new(), Map::new()];
        let mut batch = IndexedBatch::new();
        let mut laid = maps.clone();
        let mut past = None;
        for round in 0_u32..3000 {
            let (space, key) = (random.below(2) as usize, random.key());
            let value = (random.below(3) > 0).then(|| round.to_le_bytes().to_vec());
            match &value {
                Some(value) => batch.put_in(&spaces[space], &key, value),
                None => batch.delete_in(&spaces[space], &key),
            };
            match value {
                Some(value) => laid[space].insert(key, value),
                None => laid[space].remove(&key),
            };
            compare(&batch.over(&spaces[space]), &laid[space], random);
            // A view of the past does not change when the store changes.
            if let Some((view, map)) = &past {
                compare(view, map, random);
            }
            match random.below(24) {
                0 => {
                    let view = batch.over(&db.snapshot().keyspace(&spaces[space]));
                    past = Some((view, laid[space].clone()));
                }
                1 => {
                    db.write(&batch).unwrap();
                    maps = laid.clone();
                    batch.clear();
                }
                2 => {
                    batch.clear();
                    laid = maps.clone();
                }
                3 => db.flush().unwrap(),
                4 => db.compact().unwrap(),
                _ => {}
            }
        }
        assert!(db.stats().compactions > 5);
    }

    #[test]
    fn an_iterator_sees_the_writes_before_it() {
        let db = open();
        db.put("b", "").unwrap();
        let mut batch = IndexedBatch::new();
        batch.put("a", "");
        let (iter, view) = (batch.over(&db).iter(), batch.over(&db));
        batch.delete("b").put("c", "");
        assert_eq!((iter.count(), view.len().unwrap(), batch.over(&db).len().unwrap()), (2, 2, 2));
    }

    #[test]
    fn other_stores_dropped_keyspaces_and_closed_stores_are_typed_errors() {
        let (db, other) = (open(), open());
        let (own, foreign) = (db.open_keyspace("own").unwrap(), other.open_keyspace("foreign").unwrap());
        let mut batch = IndexedBatch::new();
        batch.put_in(&own, "k", "v");
        let is_invalid = |error| matches!(error, Error::InvalidArgument { .. });
        assert!(is_invalid(batch.over(&foreign).get("k").unwrap_err()));
        assert!(is_invalid(batch.over(&other).iter().next().unwrap().unwrap_err()));
        assert!(is_invalid(other.write(&batch).unwrap_err()));
        let mut mixed = batch.clone();
        mixed.put_in(&foreign, "k", "v");
        assert!(is_invalid(mixed.over(&own).contains("k").unwrap_err()));
        assert!(is_invalid(db.write(mixed).unwrap_err()));

        let view = batch.over(&own);
        db.drop_keyspace("own").unwrap();
        assert!(matches!(view.get("k"), Err(Error::KeyspaceDropped { .. })));
        assert!(matches!(view.multi_get(&["k"]), Err(Error::KeyspaceDropped { .. })));
        assert!(matches!(db.write(&batch), Err(Error::KeyspaceDropped { .. })));
        let mut batch = IndexedBatch::new();
        batch.put("k", "v");
        let view = batch.over(&db);
        assert!(view.contains("k").unwrap());
        db.clone().close().unwrap();
        assert!(matches!(view.get("k"), Err(Error::Closed)));
        assert!(matches!(view.iter().next(), Some(Err(Error::Closed))));
        assert!(matches!(db.write(batch), Err(Error::Closed)));
    }
}
