//! The read calls of every handle. A macro generates them as inherent methods, so that each handle's page documents
//! them and no trait must be imported.

use super::keyspace::Keyspace;
use super::snapshot::{KeyspaceSnapshot, Snapshot};
use super::store::Db;
use crate::db::handles::iteration::cursor::Cursor;
use crate::db::handles::iteration::iter::{Iter, Keys, Scan, Values};
use crate::db::queues::value::Value;
use crate::error::Result;
use crate::snapshot_read::{KeyBounds, KeyRange};

macro_rules! read_calls {
    ($([$($t:lifetime)?] $handle:ty => $of:lifetime;)*) => {$(
        /// Read calls. Every handle has the same ones.
        impl$(<$t>)? $handle {
            /// Returns the value of `key`, or `None` if it is absent. Filters in memory avoid most reads for absent keys.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("planet", "Saturn")?;
            /// assert_eq!(db.get("planet")?, Some("Saturn".into()));
            /// assert_eq!(db.get("moon")?, None);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a file cannot be read;
            /// [`KeyspaceDropped`](crate::Error::KeyspaceDropped), [`Closed`](crate::Error::Closed);
            /// [`InvalidArgument`](crate::Error::InvalidArgument) for a snapshot of another store. A damaged filter is an error
            /// only with [`Options::strict_filters`](crate::Options::strict_filters).
            #[doc(alias = "get_pinned")]
            #[doc(alias = "get_cf")]
            pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.reads().get(key.as_ref(), Value::read)
            }

            /// Whether `key` is present; exact. Long values are not read.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("https://example.org/", "seen")?;
            /// assert!(db.contains("https://example.org/")?);
            /// assert!(!db.contains("https://example.com/")?);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See `get`.
            #[doc(alias = "contains_key")]
            #[doc(alias = "exists")]
            pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                Ok(self.reads().get(key.as_ref(), |_| Ok(()))?.is_some())
            }

            /// Returns the values of `keys`, in order, as of one point in time. Faster than single `get`s, because
            /// filter accesses overlap. Several threads look up thousands of keys, or keys on a slow disk, unless the store
            /// has [`Options::background_threads`](crate::Options::background_threads)`(0)`.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// assert_eq!(db.multi_get(&["a", "b"])?, [Some("1".into()), None]);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See `get`.
            #[doc(alias = "get_many")]
            pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
                self.reads().multi_get(keys, Value::read)
            }

            /// Returns which of `keys` are present, in order, as of one point in time; exact.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// assert_eq!(db.multi_contains(&["a", "b"])?, [true, false]);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See `get`.
            pub fn multi_contains<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>> {
                self.reads().multi_contains(keys)
            }

            /// Iterates over the entries of `range` ([`KeyBounds`]) in key order, from either end, as of this call. Errors are
            /// items: see [`Iter`].
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// db.put("b", "2")?;
            /// for item in db.range("a".."b") {
            ///     let (key, value) = item?;
            ///     assert_eq!((key, value), ("a".into(), "1".into()));
            /// }
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            #[doc(alias = "scan")]
            pub fn range(&self, range: impl KeyBounds) -> Iter<$of> {
                Iter::new(Scan::new(&self.reads(), KeyRange::new(&range)))
            }

            /// Iterates over the entries whose keys start with `prefix`; see `range`.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("user:1", "Ada")?;
            /// db.put("visit:1", "today")?;
            /// assert_eq!(db.prefix("user:").count(), 1);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            #[doc(alias = "scan_prefix")]
            #[doc(alias = "prefix_iterator")]
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter<$of> {
                Iter::new(Scan::new(&self.reads(), KeyRange::prefix(prefix.as_ref())))
            }

            /// Iterates over all entries; see `range`.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// db.put("b", "2")?;
            /// let (last, _) = db.iter().next_back().expect("the store has entries")?;
            /// assert_eq!(last, "b");
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            #[doc(alias = "iterator")]
            #[doc(alias = "full_iterator")]
            #[must_use]
            pub fn iter(&self) -> Iter<$of> {
                Iter::new(Scan::new(&self.reads(), KeyRange::all()))
            }

            /// Iterates over all keys; see [`Iter::keys`] for a range. Long values are not read.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// assert_eq!(db.keys().collect::<Result<Vec<_>, _>>()?, ["a"]);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            #[must_use]
            pub fn keys(&self) -> Keys<$of> {
                self.iter().keys()
            }

            /// Iterates over all values in key order; see [`Iter::values`] for a range.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// assert_eq!(db.values().collect::<Result<Vec<_>, _>>()?, ["1"]);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            #[must_use]
            pub fn values(&self) -> Values<$of> {
                self.iter().values()
            }

            /// A cursor over the entries of `range` as of this call.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// db.put("c", "3")?;
            /// let mut cursor = db.cursor(..);
            /// assert!(cursor.seek("b")?);
            /// assert_eq!(cursor.key(), Some(&b"c"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            #[doc(alias = "raw_iterator")]
            #[doc(alias = "seek")]
            pub fn cursor(&self, range: impl KeyBounds) -> Cursor<$of> {
                Cursor::new(&self.reads(), KeyRange::new(&range))
            }

            /// The entry with the smallest key, if any. The cost is a binary search in each memtable and run, and a
            /// step over each leading tombstone. If there are many tombstones, the next call jumps over them.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// db.put("b", "2")?;
            /// assert_eq!(db.first()?, Some(("a".into(), "1".into())));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See `get`.
            #[doc(alias = "first_key_value")]
            #[doc(alias = "min")]
            pub fn first(&self) -> Result<Option<(Value, Value)>> {
                self.iter().next().transpose()
            }

            /// The entry with the largest key, if any. Costs as much as `first`.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// db.put("b", "2")?;
            /// assert_eq!(db.last()?, Some(("b".into(), "2".into())));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See `get`.
            #[doc(alias = "last_key_value")]
            #[doc(alias = "max")]
            pub fn last(&self) -> Result<Option<(Value, Value)>> {
                self.iter().next_back().transpose()
            }

            /// Whether there is no entry. Costs as much as `first`.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// assert!(db.is_empty()?);
            /// db.put("a", "1")?;
            /// assert!(!db.is_empty()?);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See `get`.
            pub fn is_empty(&self) -> Result<bool> {
                Scan::new(&self.reads(), KeyRange::all()).is_empty()
            }

            /// Counts the entries: O(entries), without long values.
            /// [`Keyspace::approximate_len`](crate::Keyspace::approximate_len) estimates without I/O.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// db.put("b", "2")?;
            /// db.delete("a")?;
            /// assert_eq!(db.len()?, 1);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See `get`.
            #[doc(alias = "count")]
            pub fn len(&self) -> Result<u64> {
                Scan::new(&self.reads(), KeyRange::all()).count()
            }
        }
    )*};
}

macro_rules! into_iterators {
    ($([$($r:lifetime),*] $handle:ty => $of:lifetime;)*) => {$(
        impl<$($r),*> IntoIterator for $handle {
            type Item = Result<(Value, Value)>;
            type IntoIter = Iter<$of>;

            fn into_iter(self) -> Iter<$of> {
                self.iter()
            }
        }
    )*};
}

read_calls! {
    [] Db => 'static;
    [] Keyspace => 'static;
    [] Snapshot => 'static;
    [] KeyspaceSnapshot => 'static;
}

into_iterators! {
    [] &Db => 'static;
    [] &Keyspace => 'static;
    [] &Snapshot => 'static;
    [] &KeyspaceSnapshot => 'static;
}

pub(in crate::db) use into_iterators;
pub(in crate::db) use read_calls;
