//! The public handle of a transaction, and of one keyspace in it.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::db::engine::Engine;
use crate::db::handles::keyspace::Keyspace;
use crate::db::handles::owner::Owner;
use crate::db::handles::read_view::Reads;
use crate::db::handles::snapshot::Snapshot;
use crate::db::handles::store::Db;
use crate::db::latencies::Call;
use crate::db::queues::read_set::{READ_BYTES_MAX, ReadSet, Tracker};
use crate::db::queues::value::Value;
use crate::db::read::own_writes::OwnWrites;
use crate::db::state::durability::Durability;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::error::{Error, Result};
use crate::snapshot_read::KeyRange;
use crate::sync::lock;

/// Reads and writes over all keyspaces that take place as if at one moment; made by [`Db::transaction`].
///
/// It reads the store as it was when it was made, and its own writes. [`commit`](Self::commit) writes everything
/// at once, or fails with [`Error::Conflict`](crate::Error::Conflict) if anything that the transaction has read
/// was written by others since. So the committed transactions and all other writes give the same result as in some
/// order one after the other. Dropped, it has done nothing.
///
/// It holds no lock: others go on reading and writing. Its writes, and what it notes of its reads, are in memory
/// outside of the budget: about 100 bytes beside the keys and values of each; of the reads 4 MiB at most, beyond
/// which neighbouring reads are noted as one range with all that is between them.
///
/// Of a range what was iterated over counts as read, absent keys included. What several threads read and write
/// through one transaction belongs to that transaction. Its iterators and cursors live no longer than it does, so
/// that nothing is read through it after the commit:
///
/// ```compile_fail,E0505
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// let tx = db.transaction();
/// let mut left = tx.iter();
/// tx.commit()?; // does not compile: `left` is used below
/// assert!(left.next().is_none());
/// # Ok::<(), sievedb::Error>(())
/// ```
///
/// Nor do a cursor or the loops over `&tx` and its keyspaces:
///
/// ```compile_fail,E0505
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
/// let tx = db.transaction();
/// let mut left = tx.keyspace(&users).cursor(..);
/// tx.commit()?;
/// left.seek_first()?;
/// # Ok::<(), sievedb::Error>(())
/// ```
///
/// ```compile_fail,E0505
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// let tx = db.transaction();
/// let mut left = (&tx).into_iter();
/// tx.commit()?;
/// assert!(left.next().is_none());
/// # Ok::<(), sievedb::Error>(())
/// ```
///
/// ```compile_fail,E0505
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
/// let tx = db.transaction();
/// let mut left = (&tx.keyspace(&users)).into_iter();
/// tx.commit()?;
/// assert!(left.next().is_none());
/// # Ok::<(), sievedb::Error>(())
/// ```
///
/// Before the commit they may be used, and dropped:
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
/// let tx = db.transaction();
/// assert!(!tx.keyspace(&users).cursor(..).seek_first()?);
/// assert_eq!((&tx).into_iter().count() + (&tx.keyspace(&users)).into_iter().count(), 0);
/// tx.commit()?;
/// # Ok::<(), sievedb::Error>(())
/// ```
///
/// For example:
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// db.put("from", "90")?;
/// let tx = db.transaction();
/// let from: i64 = tx.get("from")?.expect("there is an account").to_string().parse().unwrap();
/// tx.put("from", (from - 10).to_string()).put("to", "10");
/// assert_eq!(tx.get("to")?, Some("10".into()), "it sees its own writes");
/// assert_eq!(db.get("to")?, None, "others do not");
/// tx.commit()?;
/// assert_eq!(db.get("to")?, Some("10".into()));
/// # Ok::<(), sievedb::Error>(())
/// ```
#[doc(alias = "OptimisticTransaction")]
#[doc(alias = "WriteTransaction")]
pub struct Transaction {
    snapshot: Snapshot,
    owner: Arc<Owner>,
    default: Arc<Tree>,
    writes: Mutex<OwnWrites>,
    reads: Arc<Mutex<ReadSet>>,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("seqno", &self.snapshot.seqno())
            .field("writes", &lock(&self.writes).len())
            .finish_non_exhaustive()
    }
}

impl Transaction {
    pub(in crate::db) fn new(owner: &Arc<Owner>) -> Self {
        let mut writes = OwnWrites::default();
        writes.bind(owner.engine().id);
        Self {
            snapshot: Snapshot::new(owner),
            owner: Arc::clone(owner),
            default: owner.engine().keyspaces.default_tree(),
            writes: Mutex::new(writes),
            reads: Arc::new(Mutex::new(ReadSet::new(READ_BYTES_MAX))),
        }
    }

    #[cfg(test)]
    pub(in crate::db) fn read_set(&self) -> &Mutex<ReadSet> {
        &self.reads
    }

    fn engine(&self) -> &Engine {
        self.owner.engine()
    }

    /// Where a keyspace is read; `is_tracked`: whether that counts when the transaction is committed.
    fn reads_of<'a>(&'a self, owner: &'a Arc<Owner>, tree: &'a Arc<Tree>, is_tracked: bool) -> Reads<'a> {
        let tracker = || Tracker { reads: Arc::clone(&self.reads), tree: Arc::clone(tree) };
        let own = lock(&self.writes).own(tree.id).tracked(is_tracked.then(tracker));
        let is_foreign = !Arc::ptr_eq(owner, &self.owner);
        let past = Some(self.snapshot.held().past(tree));
        Reads { owner, tree, past, is_foreign, own: Some(Box::new(own)) }
    }

    pub(in crate::db) fn reads(&self) -> Reads<'_> {
        self.reads_of(&self.owner, &self.default, true)
    }

    /// The value of `key` in the default keyspace, like `get`; but the transaction may be committed although
    /// others have changed it since.
    ///
    /// For what need not be exact, or is known not to matter: a hint, a counter of visits.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let tx = db.transaction();
    /// let greeting = tx.get_untracked("greeting")?;
    /// db.put("greeting", "hello")?;
    /// tx.put("greeted", greeting.unwrap_or_default());
    /// assert!(tx.commit().is_ok());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `get`.
    pub fn get_untracked(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.reads_of(&self.owner, &self.default, false).get(key.as_ref(), Value::read)
    }

    /// Sets `key` to `value` in the default keyspace once the transaction is committed. O(log n) of the writes so
    /// far, and O(n) while an iterator of the transaction exists. It cannot fail: a key, value or transaction over
    /// a limit is an error of every call from then on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let tx = db.transaction();
    /// tx.put("a", "1").put("b", "2");
    /// tx.commit()?;
    /// assert_eq!(db.len()?, 2);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[doc(alias = "insert")]
    #[doc(alias = "set")]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &Self {
        self.set(&self.default, key.as_ref(), Some(value.as_ref()));
        self
    }

    /// Removes `key` from the default keyspace once the transaction is committed; like [`put`](Self::put).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// let tx = db.transaction();
    /// tx.delete("k");
    /// assert!(!tx.contains("k")? && db.contains("k")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[doc(alias = "remove")]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> &Self {
        self.set(&self.default, key.as_ref(), None);
        self
    }

    fn set(&self, tree: &Tree, key: &[u8], value: Option<&[u8]>) {
        lock(&self.writes).set(tree.id, key, value);
    }

    pub(super) fn push_range(&self, range: &KeyRange) {
        lock(&self.writes).delete_range(self.default.id, range);
    }

    /// One keyspace in this transaction, with the same calls.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let users = db.open_keyspace("users")?;
    /// let tx = db.transaction();
    /// tx.put("count", "1");
    /// tx.keyspace(&users).put("ada", "1815");
    /// tx.commit()?;
    /// assert!(users.contains("ada")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "open_table")]
    pub fn keyspace(&self, keyspace: &Keyspace) -> KeyspaceTransaction<'_> {
        KeyspaceTransaction { tx: self, keyspace: keyspace.clone() }
    }

    /// The snapshot that the transaction reads, without its own writes. What is read there does not count when
    /// the transaction is committed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let tx = db.transaction();
    /// tx.put("k", "v");
    /// assert_eq!(tx.snapshot().get("k")?, None);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Forgets all writes so far. What was read still counts. A transaction that is to end without having done
    /// anything need only be dropped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.transact(|tx| {
    ///     tx.put("k", "v");
    ///     tx.rollback();
    ///     Ok(())
    /// })?;
    /// assert!(db.is_empty()?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[doc(alias = "abort")]
    pub fn rollback(&self) {
        let mut writes = lock(&self.writes);
        writes.clear();
        writes.bind(self.engine().id);
    }

    /// Writes everything, buffered, if nothing that the transaction has read was written by others since it was
    /// made. Without writes it never conflicts, and does nothing.
    ///
    /// What was read is looked up again, as far as there were writes since: a probe of the filters of newer
    /// tables for each key, and a scan of the newer memtables and tables for each range. Then it costs as much as
    /// a batch.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use sievedb::Error;
    ///
    /// let tx = db.transaction();
    /// let highest = tx.last()?;
    /// tx.put("highest", format!("{highest:?}"));
    /// db.put("z", "another writer")?;
    /// match tx.commit() {
    ///     Err(Error::Conflict { keyspace, key, .. }) => {
    ///         assert_eq!((&keyspace[..], &key[..]), ("default", &b"z"[..]));
    ///     }
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Conflict`](crate::Error::Conflict) names the first key that was read, or lies in a range that was read, and
    /// has changed: nothing was written. Then the whole transaction is to be run again, as [`Db::transact`] does.
    /// [`LimitExceeded`](crate::Error::LimitExceeded) if it could not be checked what was read, because memtables were
    /// flushed faster, eight times in a row: nothing was written, and the same is to be done. [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a file needed to check that
    /// cannot be read: nothing was written. Those of [`Db::write`].
    pub fn commit(self) -> Result<()> {
        self.commit_with(Durability::Buffered)
    }

    /// Like [`commit`](Self::commit), and returns when the writes, and everything that was read, are as durable
    /// as `durability` requires. A store that is open for reading syncs nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let tx = db.transaction();
    /// tx.put("k", "v");
    /// tx.commit_with(sievedb::Durability::Synced)?; // survives a power loss from here on
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`commit`](Self::commit), and of the sync.
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        let owner = Arc::clone(&self.owner);
        let end = self.commit_visible()?;
        owner.engine().make_durable(end, durability)
    }

    /// Commits it, and releases its snapshot. Returns where a sync makes it durable, if it has written anything.
    pub(super) fn commit_visible(self) -> Result<Option<LogPosition>> {
        let engine = self.engine();
        let writes = std::mem::take(&mut *lock(&self.writes));
        if writes.is_empty() {
            return engine.lifecycle.check_open().map(|()| None);
        }
        let batch = writes.to_batch();
        drop(writes);
        let none = ReadSet::new(READ_BYTES_MAX);
        let reads = std::mem::replace(&mut *lock(&self.reads), none);
        let written = engine.latencies.time(Call::ConditionalWrite, || {
            if reads.is_empty() {
                engine.write_visible(batch)
            } else {
                engine.commit_if_unchanged(batch, reads, |tree| self.snapshot.held().past(tree))
            }
        });
        let counter = match &written {
            Ok(_) => Some(&engine.counters.transactions),
            Err(Error::Conflict { .. }) => Some(&engine.counters.conflicts),
            Err(_) => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        written.map(Some)
    }
}

/// One keyspace in a [`Transaction`]; made by [`Transaction::keyspace`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// let users = db.open_keyspace("users")?;
/// let tx = db.transaction();
/// let in_users = tx.keyspace(&users);
/// if !in_users.contains("ada")? {
///     in_users.put("ada", "1815");
/// }
/// assert_eq!(in_users.range("a".."b").count(), 1);
/// tx.commit()?;
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct KeyspaceTransaction<'t> {
    tx: &'t Transaction,
    keyspace: Keyspace,
}

impl KeyspaceTransaction<'_> {
    fn reads_as(&self, is_tracked: bool) -> Reads<'_> {
        self.tx.reads_of(&self.keyspace.owner, &self.keyspace.tree, is_tracked)
    }

    pub(in crate::db) fn reads(&self) -> Reads<'_> {
        self.reads_as(true)
    }

    /// The value of `key`, like [`Transaction::get_untracked`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.open_keyspace("users")?;
    /// assert_eq!(db.transaction().keyspace(&users).get_untracked("ada")?, None);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `get`.
    pub fn get_untracked(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.reads_as(false).get(key.as_ref(), Value::read)
    }

    /// Sets `key` to `value`, like [`Transaction::put`]. A keyspace of another store is an error of every call of
    /// the transaction from then on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.open_keyspace("users")?;
    /// let tx = db.transaction();
    /// tx.keyspace(&users).put("ada", "1815").put("grace", "1906");
    /// assert_eq!(tx.keyspace(&users).len()?, 2);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[doc(alias = "insert")]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &Self {
        self.set(key.as_ref(), Some(value.as_ref()))
    }

    /// Removes `key`, like [`Transaction::delete`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.open_keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let tx = db.transaction();
    /// tx.keyspace(&users).delete("ada");
    /// assert!(tx.keyspace(&users).is_empty()?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[doc(alias = "remove")]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> &Self {
        self.set(key.as_ref(), None)
    }

    fn set(&self, key: &[u8], value: Option<&[u8]>) -> &Self {
        let store = self.keyspace.owner.engine().id;
        if lock(&self.tx.writes).bind(store) {
            self.tx.set(&self.keyspace.tree, key, value);
        }
        self
    }

    pub(super) fn push_range(&self, range: &KeyRange) {
        let mut writes = lock(&self.tx.writes);
        if writes.bind(self.keyspace.owner.engine().id) {
            writes.delete_range(self.keyspace.tree.id, range);
        }
    }
}

impl Db {
    /// Begins a transaction over all keyspaces. Costs as much as a snapshot, which it holds until it is
    /// committed or dropped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let tx = db.transaction();
    /// if tx.prefix("room 1:").next().is_none() {
    ///     tx.put("room 1:monday", "Ada"); // only if nobody else books the room meanwhile
    /// }
    /// tx.commit()?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "begin")]
    #[doc(alias = "begin_write")]
    #[doc(alias = "write_tx")]
    #[doc(alias = "optimistic_transaction")]
    pub fn transaction(&self) -> Transaction {
        Transaction::new(&self.default.owner)
    }
}
