//! The calls that write one key, which a store (its default keyspace) and a keyspace have. Those that depend on
//! what is there are in `conditional`.
//!
//! A handle says where it writes, as [`Writes`]. The calls are written once, by a macro, like those that read
//! (`reads`).

use super::keyspace::Keyspace;
use super::store::Db;
use crate::db::state::durability::Durability;
use crate::error::Result;

macro_rules! write_calls {
    ($($handle:ty),*) => {$(
        /// Calls that write. The examples are those of a store; a keyspace has the same calls.
        impl $handle {
            /// Sets `key` to `value`. The write is buffered: it survives the end of the process, but not a
            /// power loss before the next [`Db::sync`].
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("planet", "Mars")?;
            /// db.put("planet", "Saturn")?; // replaces the value
            /// assert_eq!(db.get("planet")?.as_deref(), Some(&b"Saturn"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`LimitExceeded`](crate::Error::LimitExceeded) if the key or the value is too long: nothing
            /// was written. [`Io`](crate::Error::Io) if the log could not be written: the write is not
            /// visible, and [the guide](crate::guide::durability#when-a-write-fails) says what becomes of it.
            /// [`Poisoned`](crate::Error::Poisoned) if an earlier failure ended writing,
            /// [`ReadOnly`](crate::Error::ReadOnly), [`Closed`](crate::Error::Closed),
            /// [`KeyspaceDropped`](crate::Error::KeyspaceDropped): nothing was written.
            #[doc(alias = "insert")]
            #[doc(alias = "set")]
            #[doc(alias = "put_cf")]
            pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
                self.put_with(key, value, Durability::Buffered)
            }

            /// Sets `key` to `value`, and returns when that is as durable as `durability` requires. Threads
            /// that wait for durability at the same time share one sync.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put_with("order", "paid", sievedb::Durability::Synced)?; // survives a power loss from here on
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// Those of [`put`](Self::put); [`Io`](crate::Error::Io) also if the log could not be synced.
            #[doc(alias = "put_opt")]
            pub fn put_with(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                durability: Durability,
            ) -> Result<()> {
                self.writes().put(key.as_ref(), value.as_ref(), durability)
            }

            /// Removes `key`; buffered, like [`put`](Self::put). Removing an absent key succeeds.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("planet", "Pluto")?;
            /// db.delete("planet")?;
            /// assert_eq!(db.get("planet")?, None);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// Those of [`put`](Self::put).
            #[doc(alias = "delete_cf")]
            pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
                self.delete_with(key, Durability::Buffered)
            }

            /// Removes `key`, and returns when that is as durable as `durability` requires.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.delete_with("order", sievedb::Durability::Synced)?;
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// Those of [`put_with`](Self::put_with).
            #[doc(alias = "delete_opt")]
            pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
                self.writes().delete(key.as_ref(), durability)
            }
        }
    )*};
}

write_calls!(Db, Keyspace);
