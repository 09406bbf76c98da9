//! Atomic writes of one key that depend on its value. [The guide](crate::guide::conditional) has costs and guarantees.

use super::answers::Mismatch;
use crate::db::handles::keyspace::Keyspace;
use crate::db::handles::store::Db;
use crate::db::queues::condition::Rule;
use crate::db::queues::value::Value;
use crate::db::state::durability::Durability;
use crate::db::write::key_writes::KeyWrite;
use crate::error::Result;

macro_rules! conditional_calls {
    ($($handle:ty),*) => {$(
        /// Conditional writes. Keyspaces have the same calls.
        impl $handle {
            /// Sets `key` to `new` if its value is `expected`; otherwise returns the value; buffered. `None` means an
            /// absent key.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("state", "draft")?;
            /// let done = db.compare_and_set("state", Some(b"draft"), Some(b"final"))?;
            /// assert!(done.is_ok());
            /// let refused = db.compare_and_set("state", Some(b"draft"), None)?.unwrap_err();
            /// assert_eq!(refused.found.as_deref(), Some(&b"final"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`get`](Self::get) (nothing was written) and [`put`](Self::put).
            #[doc(alias = "compare_and_swap")]
            pub fn compare_and_set(
                &self,
                key: impl AsRef<[u8]>,
                expected: Option<&[u8]>,
                new: Option<&[u8]>,
            ) -> Result<Result<(), Mismatch>> {
                self.compare_and_set_with(key, expected, new, Durability::Buffered)
            }

            /// [`compare_and_set`](Self::compare_and_set) with the given durability of the answer.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// use sievedb::Durability;
            ///
            /// let is_first = db.compare_and_set_with("lock", None, Some(b"me"), Durability::Synced)?.is_ok();
            /// assert!(is_first);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`compare_and_set`](Self::compare_and_set); also an error of the sync.
            pub fn compare_and_set_with(
                &self,
                key: impl AsRef<[u8]>,
                expected: Option<&[u8]>,
                new: Option<&[u8]>,
                durability: Durability,
            ) -> Result<Result<(), Mismatch>> {
                self.writes().compare_and_set(key.as_ref(), expected, new, durability)
            }

            /// Sets `key` to the result of `change`, and returns it; buffered. `change` gets the value, or `None` if
            /// the key is absent; if it returns `None`, the key is deleted. It runs in this thread without a lock,
            /// and runs again after each concurrent change of the value. It must not write the key itself. If it
            /// panics, nothing was written.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// let add_one = |count: Option<&[u8]>| {
            ///     let count = count.map_or(0, |count| u64::from_le_bytes(count.try_into().unwrap_or_default()));
            ///     Some((count + 1).to_le_bytes().to_vec())
            /// };
            /// db.update("visits", add_one)?;
            /// let visits = db.update("visits", add_one)?;
            /// assert_eq!(visits.as_deref(), Some(&2_u64.to_le_bytes()[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`LimitExceeded`](crate::Error::LimitExceeded) if the value changed during each of 10,000 runs; nothing was
            /// written. See [`get`](Self::get) (nothing was written) and [`put`](Self::put).
            pub fn update(
                &self,
                key: impl AsRef<[u8]>,
                change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
            ) -> Result<Option<Value>> {
                self.update_with(key, Durability::Buffered, change)
            }

            /// [`update`](Self::update) with the given durability of the answer.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// use sievedb::Durability;
            ///
            /// let append = |list: Option<&[u8]>| Some([list.unwrap_or_default(), b"+"].concat());
            /// db.update_with("list", Durability::Synced, append)?;
            /// assert_eq!(db.get("list")?.as_deref(), Some(&b"+"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`update`](Self::update); also an error of the sync.
            pub fn update_with(
                &self,
                key: impl AsRef<[u8]>,
                durability: Durability,
                change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
            ) -> Result<Option<Value>> {
                self.writes().update(key.as_ref(), durability, change)
            }

            /// Sets `key` to `value`, and returns the previous value; buffered. [`put`](Self::put) does the same
            /// without a lookup.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// assert_eq!(db.replace("ada", "1815")?, None);
            /// assert_eq!(db.replace("ada", "1816")?.as_deref(), Some(&b"1815"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`compare_and_set`](Self::compare_and_set).
            pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.replace_with(key, value, Durability::Buffered)
            }

            /// [`replace`](Self::replace) with the given durability of the answer.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// use sievedb::Durability;
            ///
            /// let before = db.replace_with("ada", "1815", Durability::Synced)?;
            /// assert!(before.is_none());
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`replace`](Self::replace); also an error of the sync.
            pub fn replace_with(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                durability: Durability,
            ) -> Result<Option<Value>> {
                let (key, value) = (key.as_ref(), Some(value.as_ref()));
                let write = KeyWrite { key, value, rule: Rule::Always, is_read: true };
                Ok(self.writes().write_if(write, durability)?.before)
            }

            /// Deletes `key`, and returns its value; buffered. Writes nothing for an absent key.
            /// [`delete`](Self::delete) needs no lookup.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("ada", "1815")?;
            /// assert_eq!(db.remove("ada")?.as_deref(), Some(&b"1815"[..]));
            /// assert_eq!(db.remove("ada")?, None);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`compare_and_set`](Self::compare_and_set).
            pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.remove_with(key, Durability::Buffered)
            }

            /// [`remove`](Self::remove) with the given durability of the answer.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// use sievedb::Durability;
            ///
            /// db.put("job", "to do")?;
            /// if let Some(job) = db.remove_with("job", Durability::Synced)? {
            ///     // Nobody else has this job.
            /// }
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`remove`](Self::remove); also an error of the sync.
            pub fn remove_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<Option<Value>> {
                let write = KeyWrite { key: key.as_ref(), value: None, rule: Rule::Present, is_read: true };
                Ok(self.writes().write_if(write, durability)?.before)
            }
        }
    )*};
}

conditional_calls!(Db, Keyspace);
