//! Atomic inserts of absent keys. [The guide](crate::guide::conditional) has costs and guarantees.

use super::answers::NewKeys;
use crate::WriteBatch;
use crate::db::handles::keyspace::Keyspace;
use crate::db::handles::store::Db;
use crate::db::queues::bits::Bits;
use crate::db::queues::condition::Rule;
use crate::db::state::durability::Durability;
use crate::db::write::completion::Commit;
use crate::db::write::key_writes::KeyWrite;
use crate::error::Result;

macro_rules! insert_calls {
    ($($handle:ty),*) => {$(
        /// Inserts of absent keys. Keyspaces have the same calls.
        impl $handle {
            /// Sets `key` to `value` if the key is absent, and returns whether it was absent; buffered.
            ///
            /// If several threads insert a key, only one gets `true`. For a new key, the additional cost over
            /// [`put`](Self::put) is a filter probe; for a present key nothing is written.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// assert!(db.insert_if_absent("ada", "1815")?);
            /// assert!(!db.insert_if_absent("ada", "1816")?);
            /// assert_eq!(db.get("ada")?.as_deref(), Some(&b"1815"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`get`](Self::get) (nothing was written) and [`put`](Self::put).
            #[doc(alias = "setnx")]
            #[doc(alias = "put_if_absent")]
            pub fn insert_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
                self.insert_if_absent_with(key, value, Durability::Buffered)
            }

            /// [`insert_if_absent`](Self::insert_if_absent) with the given durability of the answer.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// use sievedb::Durability;
            ///
            /// let is_mine = db.insert_if_absent_with("name", "owner", Durability::Synced)?;
            /// assert!(is_mine); // and stays so after a power loss
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`insert_if_absent`](Self::insert_if_absent); also an error of the sync.
            pub fn insert_if_absent_with(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                durability: Durability,
            ) -> Result<bool> {
                let (key, value) = (key.as_ref(), Some(value.as_ref()));
                let write = KeyWrite { key, value, rule: Rule::Absent, is_read: false };
                Ok(self.writes().write_if(write, durability)?.is_allowed)
            }

            /// Like [`insert_if_absent_with`](Self::insert_if_absent_with), but returns when the entry is visible. The [`Commit`]
            /// is complete when the answer is durable.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// use sievedb::Durability;
            ///
            /// let (is_mine, commit) = db.insert_if_absent_pending("name", "owner", Durability::Synced)?;
            /// assert!(is_mine);
            /// commit.wait()?; // and stays so after a power loss
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`insert_if_absent`](Self::insert_if_absent); [`Io`](crate::Error::Io) also if the callback thread cannot be
            /// started; nothing was written. The commit reports an error of the sync.
            pub fn insert_if_absent_pending(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                durability: Durability,
            ) -> Result<(bool, Commit)> {
                let (key, value) = (key.as_ref(), Some(value.as_ref()));
                let write = KeyWrite { key, value, rule: Rule::Absent, is_read: false };
                let (single, commit) = self.writes().write_if_pending(write, durability)?;
                Ok((single.is_allowed, commit))
            }

            /// Writes the entries whose keys are absent, and returns which are new; buffered. The first of repeated
            /// keys wins. New entries become visible, and durable, together.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// let new = db.insert_new_many([("ada", ""), ("grace", "")])?;
            /// assert_eq!(new.count(), 2);
            /// let new = db.insert_new_many([("grace", ""), ("edsger", "")])?;
            /// assert_eq!(new.iter().collect::<Vec<_>>(), [false, true]);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// The errors of [`get`](Self::get) (nothing was written) and [`put`](Self::put);
            /// [`LimitExceeded`](crate::Error::LimitExceeded) also if the entries together exceed the maximum size of a
            /// batch.
            pub fn insert_new_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
                &self,
                entries: impl IntoIterator<Item = (K, V)>,
            ) -> Result<NewKeys> {
                self.insert_new_many_with(entries, Durability::Buffered)
            }

            /// [`insert_new_many`](Self::insert_new_many) with the given durability of the answers.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// use sievedb::Durability;
            ///
            /// let events = [("event 1", ""), ("event 2", "")];
            /// let new = db.insert_new_many_with(events, Durability::Synced)?;
            /// for (event, _) in events.iter().zip(new.iter()).filter(|(_, new)| *new) {
            ///     // None of these was seen before, and none will be again.
            /// }
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`insert_new_many`](Self::insert_new_many); also an error of the sync.
            pub fn insert_new_many_with<K: AsRef<[u8]>, V: AsRef<[u8]>>(
                &self,
                entries: impl IntoIterator<Item = (K, V)>,
                durability: Durability,
            ) -> Result<NewKeys> {
                self.writes().insert_new(entries, durability, None)
            }

            /// Like [`insert_new_many_with`](Self::insert_new_many_with), but returns when the new entries are
            /// visible. The [`Commit`] is complete when all answers are durable, including those for present keys.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// use sievedb::Durability;
            ///
            /// let (first, is_first_durable) = db.insert_new_many_pending([("event 1", "")], Durability::Synced)?;
            /// // The disk works meanwhile.
            /// let (second, is_second_durable) = db.insert_new_many_pending([("event 1", "")], Durability::Synced)?;
            /// assert_eq!((first.count(), second.count()), (1, 0));
            /// is_first_durable.wait()?;
            /// is_second_durable.wait()?;
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`insert_new_many`](Self::insert_new_many); [`Io`](crate::Error::Io) also if the callback thread cannot be
            /// started; nothing was written. The commit reports an error of the sync.
            pub fn insert_new_many_pending<K: AsRef<[u8]>, V: AsRef<[u8]>>(
                &self,
                entries: impl IntoIterator<Item = (K, V)>,
                durability: Durability,
            ) -> Result<(NewKeys, Commit)> {
                self.writes().insert_new_pending(entries, durability)
            }

            /// Like [`insert_new_many`](Self::insert_new_many), with more entries in the same batch: `then` gets the
            /// answers and adds entries such as an offset, a counter or an index; buffered. `then` also runs if no
            /// key is new.
            ///
            /// The entries of `then` follow the inserts, and win if keys are equal. They may be for any keyspace of
            /// the store ([`put_in`](crate::WriteBatch::put_in)); [`put`](crate::WriteBatch::put) writes to the
            /// default one.
            ///
            /// `then` runs in this thread without a lock. If another thread changes an answer before the write, `then`
            /// runs again with the new answers and an empty batch. Before this, the call pauses for a random time; its
            /// limit starts at 100 µs and doubles. Each tenth attempt has priority over other writers, for at most a
            /// second. Data that `then` reads itself may change in the meantime. If `then` returns an error or panics,
            /// nothing was written.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// use sievedb::KeyspaceOptions;
            ///
            /// let offsets = db.keyspace("offsets", KeyspaceOptions::default())?;
            /// let events = [("event 7", "a"), ("event 8", "b"), ("event 7", "a")];
            /// let new = db.insert_new_many_then(events, |_new, batch| {
            ///     batch.put_in(&offsets, "stream", "9");
            ///     Ok(())
            /// })?;
            /// assert_eq!(new.count(), 2);
            /// assert_eq!(offsets.get("stream")?.as_deref(), Some(&b"9"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// The error of `then`. [`LimitExceeded`](crate::Error::LimitExceeded) if an answer changed during each of 10,000
            /// runs. The errors of [`insert_new_many`](Self::insert_new_many) and [`Db::write`](crate::Db::write). Nothing was
            /// written, except after an [`Io`](crate::Error::Io) error of the log, as for [`put`](Self::put).
            pub fn insert_new_many_then<K: AsRef<[u8]>, V: AsRef<[u8]>>(
                &self,
                entries: impl IntoIterator<Item = (K, V)>,
                then: impl FnMut(&NewKeys, &mut WriteBatch) -> Result<()>,
            ) -> Result<NewKeys> {
                self.insert_new_many_then_with(entries, Durability::Buffered, then)
            }

            /// [`insert_new_many_then`](Self::insert_new_many_then) with the given durability of the answers and the entries of
            /// `then`.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// use sievedb::Durability;
            ///
            /// let users = [("ada@example.org", "1815"), ("grace@example.org", "1906")];
            /// db.insert_new_many_then_with(users, Durability::Synced, |new, batch| {
            ///     for ((mail, year), _) in users.iter().zip(new.iter()).filter(|(_, is_new)| *is_new) {
            ///         batch.put(format!("born {year} {mail}"), ""); // an index entry for each new user
            ///     }
            ///     Ok(())
            /// })?;
            /// assert_eq!(db.prefix("born 19").count(), 1);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`insert_new_many_then`](Self::insert_new_many_then); also an error of the sync.
            pub fn insert_new_many_then_with<K: AsRef<[u8]>, V: AsRef<[u8]>>(
                &self,
                entries: impl IntoIterator<Item = (K, V)>,
                durability: Durability,
                mut then: impl FnMut(&NewKeys, &mut WriteBatch) -> Result<()>,
            ) -> Result<NewKeys> {
                let mut then = |new: &Bits, batch: &mut WriteBatch| then(&NewKeys(new.clone()), batch);
                self.writes().insert_new(entries, durability, Some(&mut then))
            }
        }
    )*};
}

insert_calls!(Db, Keyspace);
