//! Answers of conditional calls.

use crate::db::queues::bits::Bits;
use crate::db::queues::value::Value;

/// New keys of [`Db::insert_new_many`](crate::Db::insert_new_many): a bit per entry, in order.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// db.put("a", "")?;
/// let new = db.insert_new_many([("a", ""), ("b", ""), ("b", "")])?;
/// assert_eq!(new.iter().collect::<Vec<_>>(), [false, true, false]);
/// assert_eq!((new.len(), new.count()), (3, 1));
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKeys(pub(in crate::db) Bits);

impl NewKeys {
    /// Whether the key of this entry was new.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// assert!(db.insert_new_many([("a", "")])?.is_new(0));
    /// assert!(!db.insert_new_many([("a", "")])?.is_new(0));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the call had no such entry.
    #[must_use]
    pub fn is_new(&self, at: usize) -> bool {
        self.0.get(at)
    }

    /// The number of entries of the call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// assert_eq!(db.insert_new_many([("a", ""), ("b", "")])?.len(), 2);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the call was empty.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// assert!(db.insert_new_many([("", ""); 0])?.is_empty());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// The number of new keys.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// assert_eq!(db.insert_new_many([("a", ""), ("b", ""), ("a", "")])?.count(), 2);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count()
    }

    /// The bits in entry order.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let links = ["a", "b", "a"];
    /// let new = db.insert_new_many(links.map(|link| (link, "")))?;
    /// let to_visit: Vec<_> = links.iter().zip(new.iter()).filter(|(_, new)| *new).collect();
    /// assert_eq!(to_visit.len(), 2);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = bool> + DoubleEndedIterator + '_ {
        (0..self.len()).map(|at| self.0.get(at))
    }
}

/// Error of [`Db::compare_and_set`](crate::Db::compare_and_set): the value is not the expected one.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// db.put("leader", "node 1")?;
/// let refused = db.compare_and_set("leader", None, Some(b"node 2"))?.unwrap_err();
/// assert_eq!(refused.found.as_deref(), Some(&b"node 1"[..]));
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The value found, if any.
    pub found: Option<Value>,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.found {
            Some(_) => f.write_str("the key has another value than expected"),
            None => f.write_str("the key is absent"),
        }
    }
}

impl std::error::Error for Mismatch {}
