//! Range deletes of readable batches and transactions.

use super::handle::{KeyspaceTransaction, Transaction};
use super::indexed_batch::IndexedBatch;
use crate::batch::DEFAULT_KEYSPACE;
use crate::db::handles::keyspace::Keyspace;
use crate::snapshot_read::{KeyBounds, KeyRange};

impl IndexedBatch {
    /// Removes all keys of a range from the default keyspace, including earlier writes of the batch. If the range starts after
    /// its end, every later call returns an error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("log 0017", "a")?;
    /// let mut batch = sievedb::IndexedBatch::new();
    /// batch.delete_range("log 0000".."log 0900").put("log 0900", "b");
    /// assert_eq!(batch.over(&db).len()?, 1);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn delete_range(&mut self, range: impl KeyBounds) -> &mut Self {
        self.writes.delete_range(DEFAULT_KEYSPACE, &KeyRange::new(&range));
        self
    }

    /// Removes all keys of a range from `keyspace`, like [`delete_range`](Self::delete_range).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.open_keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let mut batch = sievedb::IndexedBatch::new();
    /// batch.delete_range_in(&users, ..);
    /// assert!(batch.over(&users).is_empty()?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn delete_range_in(&mut self, keyspace: &Keyspace, range: impl KeyBounds) -> &mut Self {
        if self.writes.bind(keyspace.owner.engine().id) {
            self.writes.delete_range(keyspace.tree.id, &KeyRange::new(&range));
        }
        self
    }

    /// Removes all keys with this prefix from the default keyspace, like [`delete_range`](Self::delete_range).
    ///
    /// ```
    /// let mut batch = sievedb::IndexedBatch::new();
    /// batch.delete_prefix("user:1:");
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn delete_prefix(&mut self, prefix: impl AsRef<[u8]>) -> &mut Self {
        self.writes.delete_range(DEFAULT_KEYSPACE, &KeyRange::prefix(prefix.as_ref()));
        self
    }
}

macro_rules! range_deletes {
    ($($handle:ty),*) => {$(
        /// Range deletes. The transaction's keyspaces have the same calls.
        impl $handle {
            /// Removes all keys of a range, including earlier writes of this transaction. The range does not count as read. If it
            /// starts after its end, later reads and the commit return an error.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("log 0017", "a")?;
            /// let tx = db.transaction();
            /// tx.delete_range("log 0000".."log 0900").put("log 0900", "b");
            /// assert_eq!(tx.get("log 0017")?, None);
            /// tx.commit()?;
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn delete_range(&self, range: impl KeyBounds) -> &Self {
                self.push_range(&KeyRange::new(&range));
                self
            }

            /// Removes all keys with this prefix, like [`delete_range`](Self::delete_range).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("user:1:name", "Ada")?;
            /// let tx = db.transaction();
            /// tx.delete_prefix("user:1:");
            /// tx.commit()?;
            /// assert!(db.is_empty()?);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> &Self {
                self.push_range(&KeyRange::prefix(prefix.as_ref()));
                self
            }

            /// Removes all keys, like [`delete_range`](Self::delete_range).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("planet", "Pluto")?;
            /// let tx = db.transaction();
            /// tx.clear();
            /// tx.commit()?;
            /// assert!(db.is_empty()?);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn clear(&self) -> &Self {
                self.push_range(&KeyRange::all());
                self
            }
        }
    )*};
}

range_deletes!(Transaction, KeyspaceTransaction<'_>);
