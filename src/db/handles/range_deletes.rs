//! Calls that delete ranges.

use super::keyspace::Keyspace;
use super::store::Db;
use crate::WriteBatch;
use crate::batch::{DEFAULT_KEYSPACE, KeyspaceId};
use crate::db::state::durability::Durability;
use crate::error::Result;
use crate::snapshot_read::{KeyBounds, KeyRange};

macro_rules! range_deletes {
    ($($handle:ty),*) => {$(
        /// Range deletes. Keyspaces have the same calls.
        impl $handle {
            /// Removes all keys of a range with one log entry; buffered, like [`put`](Self::put). Older snapshots
            /// still see the keys. Compactions free the space, at once for tables inside the range; see [the
            /// guide](crate::guide::deletion).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("log 0017", "a")?;
            /// db.put("log 0018", "b")?;
            /// db.put("log 0019", "c")?;
            /// db.delete_range("log 0000".."log 0019")?;
            /// assert_eq!(db.first()?.unwrap().0, "log 0019");
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`InvalidArgument`](crate::Error::InvalidArgument) if the range starts after its end; nothing was written. The
            /// errors of [`put`](Self::put).
            #[doc(alias = "drop_range")]
            #[doc(alias = "delete_range_cf")]
            #[doc(alias = "drain")]
            pub fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
                self.delete_range_with(range, Durability::Buffered)
            }

            /// [`delete_range`](Self::delete_range) with the given durability.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.delete_range_with(.."2024-01-01", sievedb::Durability::Synced)?;
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`delete_range`](Self::delete_range); also an error of the sync.
            pub fn delete_range_with(&self, range: impl KeyBounds, durability: Durability) -> Result<()> {
                self.writes().delete_range(&KeyRange::new(&range), durability)
            }

            /// Removes all keys with this prefix, like [`delete_range`](Self::delete_range).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("user:1:name", "Ada")?;
            /// db.put("user:1:mail", "ada@example.org")?;
            /// db.put("user:2:name", "Grace")?;
            /// db.delete_prefix("user:1:")?;
            /// assert_eq!(db.len()?, 1);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`put`](Self::put).
            pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
                self.writes().delete_range(&KeyRange::prefix(prefix.as_ref()), Durability::Buffered)
            }

            /// Removes all keys, like [`delete_range`](Self::delete_range).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("planet", "Pluto")?;
            /// db.clear()?;
            /// assert!(db.is_empty()?);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`put`](Self::put).
            #[doc(alias = "truncate")]
            pub fn clear(&self) -> Result<()> {
                self.writes().delete_range(&KeyRange::all(), Durability::Buffered)
            }
        }
    )*};
}

range_deletes!(Db, Keyspace);

impl WriteBatch {
    /// Removes all keys of a range from the default keyspace, including earlier puts of this batch. If the range starts after its
    /// end, [`Db::write`] returns an error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.delete_range("log 0000".."log 0900").put("first", "0900");
    /// db.write(batch)?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn delete_range(&mut self, range: impl KeyBounds) -> &mut Self {
        self.push_range(DEFAULT_KEYSPACE, &KeyRange::new(&range))
    }

    /// Removes all keys of a range from `keyspace`, like [`delete_range`](Self::delete_range).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.delete_range_in(&users, ..).put("users", "0");
    /// db.write(batch)?; // both or neither
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn delete_range_in(&mut self, keyspace: &Keyspace, range: impl KeyBounds) -> &mut Self {
        self.bind(keyspace.owner.engine().id);
        self.push_range(keyspace.tree.id, &KeyRange::new(&range))
    }

    /// Removes all keys with this prefix from the default keyspace, like [`delete_range`](Self::delete_range).
    ///
    /// ```
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.delete_prefix("user:1:");
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn delete_prefix(&mut self, prefix: impl AsRef<[u8]>) -> &mut Self {
        self.push_range(DEFAULT_KEYSPACE, &KeyRange::prefix(prefix.as_ref()))
    }

    /// Removes all keys with this prefix from `keyspace`, like [`delete_range`](Self::delete_range).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.delete_prefix_in(&users, "ada:");
    /// db.write(batch)?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn delete_prefix_in(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> &mut Self {
        self.bind(keyspace.owner.engine().id);
        self.push_range(keyspace.tree.id, &KeyRange::prefix(prefix.as_ref()))
    }

    pub(super) fn push_range(&mut self, keyspace: KeyspaceId, range: &KeyRange) -> &mut Self {
        match range.to_delete() {
            Ok(Some((start, end))) => return self.push_range_delete(keyspace, &start, &end),
            Ok(None) => {}
            Err(error) => self.refuse(error),
        }
        self
    }
}
