//! Writes that depend on what is there: each decides and writes in one step, whatever other threads do.
//!
//! [The guide](crate::guide::conditional) says what they cost and what their answers are worth.

use super::attempt::Single;
use super::bits::Bits;
use super::decide::Rule;
use super::keyspace::Keyspace;
use super::value::Value;
use super::write::Durability;
use crate::batch::WriteBatch;
use crate::error::Result;

/// Which keys [`Db::insert_new_many`](crate::Db::insert_new_many) has found to be new: a bit for each entry, in
/// their order.
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
pub struct NewKeys(Bits);

impl NewKeys {
    /// Whether the key of the entry at this place was new.
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

    /// Whether the call had no entries.
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

    /// How many keys were new.
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

    /// The bits, in the order of the entries.
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

/// The key did not hold what [`Db::compare_and_set`](crate::Db::compare_and_set) expected.
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
    /// What it held; `None`: the key was absent.
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

impl Keyspace {
    fn write_if(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        rule: Rule,
        is_read: bool,
        durability: Durability,
    ) -> Result<Single> {
        self.owner.engine().write_if(&self.tree, key, value, rule, is_read, durability)
    }

    /// Sets `key` to `value` if the key is absent. Returns whether it was; buffered.
    ///
    /// Of several threads that insert the same key, one gets `true`. For a new key it costs a probe of the
    /// filters more than [`put`](Self::put); for a present key it writes nothing and waits for no other writer.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// assert!(users.insert_if_absent("ada", "1815")?);
    /// assert!(!users.insert_if_absent("ada", "1816")?);
    /// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::put`]. [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a
    /// file needed for the lookup cannot be read: nothing was written.
    pub fn insert_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.insert_if_absent_with(key, value, Durability::Buffered)
    }

    /// Like [`insert_if_absent`](Self::insert_if_absent). Returns when the answer, whatever it is, is as
    /// durable as `durability` requires.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// use sievedb::Durability;
    ///
    /// let is_mine = users.insert_if_absent_with("name", "owner", Durability::Synced)?;
    /// assert!(is_mine); // and stays so after a power loss
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`insert_if_absent`](Self::insert_if_absent), and of the sync.
    pub fn insert_if_absent_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        Ok(self.write_if(key, Some(value), Rule::Absent, false, durability)?.is_allowed)
    }

    /// Writes those entries whose keys are absent, and returns which these were; buffered. Of several entries
    /// with the same key the first counts. The keys are looked up together, like those of
    /// [`multi_contains`](Self::multi_contains); all new entries become visible at one moment, and durable
    /// together.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// let new = users.insert_new_many([("ada", ""), ("grace", "")])?;
    /// assert_eq!(new.count(), 2);
    /// let new = users.insert_new_many([("grace", ""), ("edsger", "")])?;
    /// assert_eq!(new.iter().collect::<Vec<_>>(), [false, true]);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::put`]; [`LimitExceeded`](crate::Error::LimitExceeded) also if all entries together
    /// are longer than a batch may be: nothing was written. [`Corruption`](crate::Error::Corruption) or
    /// [`Io`](crate::Error::Io) if a file needed for a lookup cannot be read: nothing was written.
    pub fn insert_new_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<NewKeys> {
        self.insert_new_many_with(entries, Durability::Buffered)
    }

    /// Like [`insert_new_many`](Self::insert_new_many). Returns when the answer, whatever it is, is as durable
    /// as `durability` requires.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// use sievedb::Durability;
    ///
    /// let events = [("event 1", ""), ("event 2", "")];
    /// let new = users.insert_new_many_with(events, Durability::Synced)?;
    /// for (event, _) in events.iter().zip(new.iter()).filter(|(_, new)| *new) {
    ///     // None of these was seen before, and none will be again.
    /// }
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`insert_new_many`](Self::insert_new_many), and of the sync.
    pub fn insert_new_many_with<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
        durability: Durability,
    ) -> Result<NewKeys> {
        let mut batch = WriteBatch::new();
        let add = |(key, value): (K, V)| batch.add_put(self.tree.id, key.as_ref(), value.as_ref());
        // The first that is over a limit ends it: nothing is written then.
        let places = entries.into_iter().map_while(add).collect();
        self.owner.engine().insert_new(&self.tree, batch, places, durability).map(NewKeys)
    }

    /// Sets `key` to `new` if it holds `expected`, and returns what it holds if that is something else;
    /// buffered. `None` stands for an absent key: as `expected` it requires one, as `new` it deletes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// users.put("state", "draft")?;
    /// let done = users.compare_and_set("state", Some(b"draft"), Some(b"final"))?;
    /// assert!(done.is_ok());
    /// let refused = users.compare_and_set("state", Some(b"draft"), None)?.unwrap_err();
    /// assert_eq!(refused.found.as_deref(), Some(&b"final"[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::put`]. [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a
    /// file needed for the lookup cannot be read: nothing was written.
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Result<(), Mismatch>> {
        self.compare_and_set_with(key, expected, new, Durability::Buffered)
    }

    /// Like [`compare_and_set`](Self::compare_and_set). Returns when the answer, whatever it is, is as durable
    /// as `durability` requires.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// use sievedb::Durability;
    ///
    /// let is_first = users.compare_and_set_with("lock", None, Some(b"me"), Durability::Synced)?.is_ok();
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
        let rule = expected.map_or(Rule::Absent, |expected| Rule::Equals(expected.to_vec()));
        let Single { is_allowed, before } = self.write_if(key.as_ref(), new, rule, true, durability)?;
        Ok(if is_allowed { Ok(()) } else { Err(Mismatch { found: before }) })
    }

    /// Sets `key` to what `change` makes of its value, and returns the new value; buffered. `change` gets
    /// `None` if the key is absent, and deletes it by returning `None`. It runs in this thread, outside of all
    /// locks, and again each time that another write of the key came between, or that memtables were flushed
    /// which the decision needs. So it must end sooner than others write the key, and must not write the key
    /// itself. If it panics, nothing was written.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// let add_one = |count: Option<&[u8]>| {
    ///     let count = count.map_or(0, |count| u64::from_le_bytes(count.try_into().unwrap_or_default()));
    ///     Some((count + 1).to_le_bytes().to_vec())
    /// };
    /// users.update("visits", add_one)?;
    /// let visits = users.update("visits", add_one)?;
    /// assert_eq!(visits.as_deref(), Some(&2_u64.to_le_bytes()[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::put`]. [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a
    /// file needed for the lookup cannot be read: nothing was written.
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Value>> {
        self.update_with(key, Durability::Buffered, change)
    }

    /// Like [`update`](Self::update). Returns when the answer, whatever it is, is as durable as `durability`
    /// requires.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// use sievedb::Durability;
    ///
    /// let append = |list: Option<&[u8]>| Some([list.unwrap_or_default(), b"+"].concat());
    /// users.update_with("list", Durability::Synced, append)?;
    /// assert_eq!(users.get("list")?.as_deref(), Some(&b"+"[..]));
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
        self.owner.engine().update(&self.tree, key.as_ref(), durability, change)
    }

    /// Sets `key` to `value`, and returns what it held before; buffered. [`put`](Self::put) costs less: it
    /// looks nothing up.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// assert_eq!(users.replace("ada", "1815")?, None);
    /// assert_eq!(users.replace("ada", "1816")?.as_deref(), Some(&b"1815"[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::put`]. [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a
    /// file needed for the lookup cannot be read: nothing was written.
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.replace_with(key, value, Durability::Buffered)
    }

    /// Like [`replace`](Self::replace). Returns when the answer, whatever it is, is as durable as `durability`
    /// requires.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// use sievedb::Durability;
    ///
    /// let before = users.replace_with("ada", "1815", Durability::Synced)?;
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
        let (key, value) = (key.as_ref(), value.as_ref());
        Ok(self.write_if(key, Some(value), Rule::Always, true, durability)?.before)
    }

    /// Deletes `key`, and returns what it held; buffered. If the key is absent, nothing is written.
    /// [`delete`](Self::delete) looks nothing up, and writes in any case.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// users.put("ada", "1815")?;
    /// assert_eq!(users.remove("ada")?.as_deref(), Some(&b"1815"[..]));
    /// assert_eq!(users.remove("ada")?, None);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Keyspace::put`]. [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a
    /// file needed for the lookup cannot be read: nothing was written.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.remove_with(key, Durability::Buffered)
    }

    /// Like [`remove`](Self::remove). Returns when the answer, whatever it is, is as durable as `durability`
    /// requires.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// use sievedb::Durability;
    ///
    /// users.put("job", "to do")?;
    /// if let Some(job) = users.remove_with("job", Durability::Synced)? {
    ///     // Nobody else has this job.
    /// }
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`remove`](Self::remove), and of the sync.
    pub fn remove_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<Option<Value>> {
        Ok(self.write_if(key.as_ref(), None, Rule::Present, true, durability)?.before)
    }
}
