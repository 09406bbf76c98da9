//! The public handles of a transaction and of a keyspace in it.

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

/// An optimistic, serializable transaction over all keyspaces; see [`Db::transaction`].
///
/// It reads a snapshot and its own writes. [`commit`](Self::commit) writes everything atomically, or fails with
/// [`Error::Conflict`](crate::Error::Conflict) if any data that it read has changed. The result equals a serial
/// execution. Dropping the transaction discards it.
///
/// It holds no lock. Its writes and its read set are in memory outside of the budget: about 100 bytes for each write
/// or read, plus keys and values. If the read set exceeds 4 MiB, neighbouring reads are merged into ranges.
///
/// An iterated range counts as read, including absent keys. Several threads can use one transaction. Its iterators
/// and cursors cannot outlive it:
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
/// The same applies to its keyspaces, and to loops over `&tx`:
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
/// They can be used before the commit:
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
/// Example:
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

    /// Like `get` in the default keyspace, but not checked by the commit; for inexact values such as hints and counters.
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
    /// See `get`.
    pub fn get_untracked(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.reads_of(&self.owner, &self.default, false).get(key.as_ref(), Value::read)
    }

    /// Sets `key` to `value` in the default keyspace at the commit. O(log n) in the number of writes, or O(n) while
    /// an iterator of the transaction exists. If a key, a value or the transaction exceeds a limit, every later call
    /// returns the error.
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

    /// Removes `key` from the default keyspace at the commit; like [`put`](Self::put).
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

    /// The snapshot of the transaction. Its reads do not include the transaction's writes, and the commit does not
    /// check them.
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

    /// Discards all writes so far, but not the read set.
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

    /// Writes everything, buffered, if no data that the transaction read has changed. A transaction without writes
    /// never conflicts.
    ///
    /// If there were other writes, the check probes filters of newer tables for each key read, and scans newer
    /// memtables and tables for each range. The write costs as much as a batch.
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
    /// [`Conflict`](crate::Error::Conflict) names the first changed key.
    /// [`LimitExceeded`](crate::Error::LimitExceeded) if memtables were flushed faster than the reads could be
    /// checked, eight times in a row. In both cases, run the transaction again, as [`Db::transact`] does.
    /// [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if the check cannot read a file. After
    /// these errors, nothing was written. The errors of [`Db::write`].
    pub fn commit(self) -> Result<()> {
        self.commit_with(Durability::Buffered)
    }

    /// [`commit`](Self::commit) with the given durability of the writes and of everything read.
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
    /// See [`commit`](Self::commit); also an error of the sync.
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        let owner = Arc::clone(&self.owner);
        let end = self.commit_visible()?;
        owner.engine().make_durable(end, durability)
    }

    /// Releases the snapshot. Returns the log position of the writes, if any.
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

/// One keyspace in a [`Transaction`].
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

    /// Like [`Transaction::get_untracked`].
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
    /// See `get`.
    pub fn get_untracked(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.reads_as(false).get(key.as_ref(), Value::read)
    }

    /// Like [`Transaction::put`]. A keyspace of another store makes every later call fail.
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

    /// Like [`Transaction::delete`].
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
    /// Begins a transaction over all keyspaces, with a snapshot.
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
