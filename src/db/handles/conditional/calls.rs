//! The writes of one key that depend on what it holds, of all handles: each decides and writes in one step, whatever
//! other threads do. Those that insert are in [`inserts`](super::inserts).
//!
//! [The guide](crate::guide::conditional) says what they cost and what their answers are worth.

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
        /// Calls that write depending on what is there. The examples are those of a store; a keyspace has the
        /// same calls.
        impl $handle {
            /// Sets `key` to `new` if it holds `expected`, and returns what it holds if that is something
            /// else; buffered. `None` stands for an absent key: as `expected` it requires one, as `new` it
            /// deletes.
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
            /// Those of [`put`](Self::put). [`Corruption`](crate::Error::Corruption) or
            /// [`Io`](crate::Error::Io) if a file needed for the lookup cannot be read: nothing was written.
            #[doc(alias = "compare_and_swap")]
            pub fn compare_and_set(
                &self,
                key: impl AsRef<[u8]>,
                expected: Option<&[u8]>,
                new: Option<&[u8]>,
            ) -> Result<Result<(), Mismatch>> {
                self.compare_and_set_with(key, expected, new, Durability::Buffered)
            }

            /// Like [`compare_and_set`](Self::compare_and_set). Returns when the answer, whatever it is, is
            /// as durable as `durability` requires.
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
            /// Those of [`compare_and_set`](Self::compare_and_set), and of the sync.
            pub fn compare_and_set_with(
                &self,
                key: impl AsRef<[u8]>,
                expected: Option<&[u8]>,
                new: Option<&[u8]>,
                durability: Durability,
            ) -> Result<Result<(), Mismatch>> {
                self.writes().compare_and_set(key.as_ref(), expected, new, durability)
            }

            /// Sets `key` to what `change` makes of its value, and returns the new value; buffered. `change`
            /// gets `None` if the key is absent, and deletes it by returning `None`. It runs in this thread,
            /// outside of all locks, and again each time that another thread has given the key another value
            /// meanwhile. So it must end sooner than that happens, and must not write the key itself. If it
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
            /// [`LimitExceeded`](crate::Error::LimitExceeded) if the key got another value during each of
            /// 10,000 runs of the closure: nothing was written. Those of [`put`](Self::put).
            /// [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a file needed for the
            /// lookup cannot be read: nothing was written.
            pub fn update(
                &self,
                key: impl AsRef<[u8]>,
                change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
            ) -> Result<Option<Value>> {
                self.update_with(key, Durability::Buffered, change)
            }

            /// Like [`update`](Self::update). Returns when the answer, whatever it is, is as durable as
            /// `durability` requires.
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
            /// Those of [`update`](Self::update), and of the sync.
            pub fn update_with(
                &self,
                key: impl AsRef<[u8]>,
                durability: Durability,
                change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
            ) -> Result<Option<Value>> {
                self.writes().update(key.as_ref(), durability, change)
            }

            /// Sets `key` to `value`, and returns what it held before; buffered. [`put`](Self::put) costs
            /// less: it looks nothing up.
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
            /// Those of [`put`](Self::put). [`Corruption`](crate::Error::Corruption) or
            /// [`Io`](crate::Error::Io) if a file needed for the lookup cannot be read: nothing was written.
            pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.replace_with(key, value, Durability::Buffered)
            }

            /// Like [`replace`](Self::replace). Returns when the answer, whatever it is, is as durable as
            /// `durability` requires.
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
            /// Those of [`replace`](Self::replace), and of the sync.
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

            /// Deletes `key`, and returns what it held; buffered. If the key is absent, nothing is written.
            /// [`delete`](Self::delete) looks nothing up, and writes in any case.
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
            /// Those of [`put`](Self::put). [`Corruption`](crate::Error::Corruption) or
            /// [`Io`](crate::Error::Io) if a file needed for the lookup cannot be read: nothing was written.
            pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.remove_with(key, Durability::Buffered)
            }

            /// Like [`remove`](Self::remove). Returns when the answer, whatever it is, is as durable as
            /// `durability` requires.
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
            /// Those of [`remove`](Self::remove), and of the sync.
            pub fn remove_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<Option<Value>> {
                let write = KeyWrite { key: key.as_ref(), value: None, rule: Rule::Present, is_read: true };
                Ok(self.writes().write_if(write, durability)?.before)
            }
        }
    )*};
}

conditional_calls!(Db, Keyspace);
