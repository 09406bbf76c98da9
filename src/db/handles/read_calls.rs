//! The calls that read, which every handle has: a store (its default keyspace), a keyspace, their snapshots, and
//! all these with the writes of a batch or of a transaction laid over them.
//!
//! A handle says where it reads, as [`Reads`]. The calls are written once, by a macro, so that each handle has
//! them as its own: documented on its page, and without a trait to import.

use super::keyspace::Keyspace;
use super::snapshot::{KeyspaceSnapshot, Snapshot};
use super::store::Db;
use crate::db::handles::iteration::cursor::Cursor;
use crate::db::handles::iteration::iter::{Iter, Keys, Scan, Values};
use crate::db::queues::value::Value;
use crate::error::Result;
use crate::snapshot_read::{KeyBounds, KeyRange};

// `$of` is how long iterators may be used.
macro_rules! read_calls {
    ($([$($t:lifetime)?] $handle:ty => $of:lifetime;)*) => {$(
        /// Calls that read. The examples are those of a store; every handle has the same calls.
        impl$(<$t>)? $handle {
            /// Returns the value of `key`, or `None` if the key is absent. For an absent key, filters in memory
            /// avoid most reads; a false positive costs a block read.
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
            /// [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a file needed for the
            /// answer cannot be read; [`KeyspaceDropped`](crate::Error::KeyspaceDropped),
            /// [`Closed`](crate::Error::Closed); [`InvalidArgument`](crate::Error::InvalidArgument) if a
            /// snapshot and its keyspace belong to different stores. A damaged filter is an error only with
            /// [`Options::strict_filters`](crate::Options::strict_filters).
            #[doc(alias = "get_pinned")]
            #[doc(alias = "get_cf")]
            pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.reads().get(key.as_ref(), Value::read)
            }

            /// Whether `key` is present. The answer is exact, like that of `get`. Values stored in chunks are
            /// not read.
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
            /// Those of `get`.
            #[doc(alias = "contains_key")]
            #[doc(alias = "exists")]
            pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                Ok(self.reads().get(key.as_ref(), |_| Ok(()))?.is_some())
            }

            /// Returns the values of several keys, in the order of `keys`, all as of one moment. The filters of
            /// several keys are fetched from memory together, so this is faster than a `get` for each key.
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
            /// Those of `get`.
            #[doc(alias = "get_many")]
            pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
                self.reads().multi_get(keys, Value::read)
            }

            /// Which of several keys are present, in the order of `keys`, all as of one moment; exact, like
            /// `contains`.
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
            /// Those of `get`.
            pub fn multi_contains<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>> {
                self.reads().multi_contains(keys)
            }

            /// Iterates over the entries whose keys are in `range`, in key order, from either end: `..`,
            /// `"a".."b"`, `"a"..="b"`, and what else is [`KeyBounds`]. The iterator sees the entries as of this
            /// call. Errors are items: see [`Iter`].
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

            /// Iterates over the entries whose keys start with `prefix`, like `range`.
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

            /// Iterates over all entries, like `range`.
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

            /// Iterates over all keys, like `iter`; of a range, [`Iter::keys`] does. Long values are not read.
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

            /// Iterates over all values in the order of their keys, like `iter`; of a range, [`Iter::values`]
            /// does.
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

            /// A cursor over the entries whose keys are in `range`: it jumps to any key, and moves to either
            /// side. It sees the entries as of this call. Errors are those of its movements.
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

            /// The entry with the smallest key; `None` if there is none. Costs as much as the first step of an
            /// iterator: a binary search in each memtable and run, and a step over each tombstone before the
            /// entry. If there are many, the next call jumps over them.
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
            /// Those of `get`.
            #[doc(alias = "first_key_value")]
            #[doc(alias = "min")]
            pub fn first(&self) -> Result<Option<(Value, Value)>> {
                self.iter().next().transpose()
            }

            /// The entry with the largest key; `None` if there is none. Costs as much as `first`.
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
            /// Those of `get`.
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
            /// Those of `get`.
            pub fn is_empty(&self) -> Result<bool> {
                Scan::new(&self.reads(), KeyRange::all()).is_empty()
            }

            /// The number of entries, counted: O(entries), and every block of keys is read. Long values are
            /// not. [`Keyspace::approximate_len`](crate::Keyspace::approximate_len) is an estimate that reads nothing.
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
            /// Those of `get`.
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
