//! The handle of a whole store. Its reading and writing calls are those of its default keyspace.

use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use super::background::Jobs;
use super::engine::{Engine, Owner};
use super::keyspace::Keyspace;
use super::open::OpenReport;
use super::read::{Iter, Value};
use super::snapshot::Snapshot;
use super::tree::Tree;
use super::write::Durability;
use crate::batch::WriteBatch;
use crate::error::{Error, Result};
use crate::filter::FilterPolicy;
use crate::options::{KeyspaceOptions, Options};

/// An open store. Cheap to clone and to share between threads; a clone and the original are the same store.
///
/// The store closes when the last handle goes: stores, keyspaces, snapshots and iterators all count.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = sievedb::Db::open(dir.path())?;
/// db.put("planet", "Saturn")?;
/// assert_eq!(db.get("planet")?.as_deref(), Some(&b"Saturn"[..]));
/// assert_eq!(db.get("moon")?, None);
/// db.close()?;
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Db {
    owner: Arc<Owner>,
    default: Keyspace,
}

impl Db {
    pub(super) fn from_parts(owner: Arc<Owner>, tree: Arc<Tree>) -> Self {
        Self { default: Keyspace { owner: Arc::clone(&owner), tree }, owner }
    }

    /// Opens the store in `path` with default [`Options`], and creates it if it is not there.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.owner.engine()
    }

    /// The directory of the store.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.engine().files.dir
    }

    /// What opening found: what was replayed, what unsynced tail was dropped, what was ignored and why.
    #[must_use]
    pub fn open_report(&self) -> &OpenReport {
        &self.engine().report
    }

    /// See [`Keyspace::put`]; in the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// See [`Keyspace::delete`]; in the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }

    /// See [`Keyspace::get`]; in the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default.get(key)
    }

    /// See [`Keyspace::contains`]; in the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains(key)
    }

    /// See [`Keyspace::may_contain`]; in the default keyspace.
    #[must_use]
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
        self.default.may_contain(key)
    }

    /// See [`Keyspace::multi_get`]; in the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.default.multi_get(keys)
    }

    /// See [`Keyspace::multi_contains`]; in the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn multi_contains<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>> {
        self.default.multi_contains(keys)
    }

    /// See [`Keyspace::range`]; in the default keyspace.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.default.range(range)
    }

    /// See [`Keyspace::prefix`]; in the default keyspace.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.default.prefix(prefix)
    }

    /// See [`Keyspace::iter`]; in the default keyspace.
    #[must_use]
    pub fn iter(&self) -> Iter {
        self.default.iter()
    }

    /// Writes a batch, buffered: all of it becomes visible at once, in all its keyspaces.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::put`]; the batch was written as a whole or not at all.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, Durability::Buffered)
    }

    /// Writes a batch and returns when it is as durable as asked. Other readers may see it before.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::put`].
    pub fn write_with(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        self.engine().write(batch, durability)
    }

    /// Makes every write that has returned durable.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::put`].
    pub fn sync(&self) -> Result<()> {
        self.engine().sync()
    }

    /// The store as it is now, over all keyspaces.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.owner)
    }

    /// The keyspace of this name. It is created with `options` if it is missing; an existing one keeps its
    /// own, see [`Keyspace::set_options`]. The store's own calls work on the keyspace `"default"`.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for an empty name or options out of range,
    /// [`LimitExceeded`](crate::Error::LimitExceeded) for a name over 255 bytes or too many keyspaces,
    /// [`ReadOnly`](crate::Error::ReadOnly) if it is missing and cannot be created.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let tree = self.engine().keyspace(name, &options)?;
        Ok(Keyspace { owner: Arc::clone(&self.owner), tree })
    }

    /// The keyspace of this name if it exists.
    #[must_use]
    pub fn existing_keyspace(&self, name: &str) -> Option<Keyspace> {
        let tree = self.engine().keyspaces.find(name)?;
        Some(Keyspace { owner: Arc::clone(&self.owner), tree })
    }

    /// The keyspace that the store's own calls work on.
    #[must_use]
    pub fn default_keyspace(&self) -> Keyspace {
        self.default.clone()
    }

    /// The names of all keyspaces, in the order in which they were created.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<String> {
        self.engine().keyspaces.load().values().map(|tree| tree.name.clone()).collect()
    }

    /// Drops a keyspace and everything in it, durably. Handles to it answer
    /// [`KeyspaceDropped`](crate::Error::KeyspaceDropped) from now on; iterators that were made before go on.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Error::InvalidArgument) if there is none of this name or it is the default
    /// one; as [`Keyspace::put`].
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.engine().drop_keyspace(name)
    }

    /// Writes what is in memory into tables, for all keyspaces, and waits for it.
    ///
    /// # Errors
    ///
    /// What a flush ran into; as [`Keyspace::put`].
    pub fn flush(&self) -> Result<()> {
        let trees = self.engine().keyspaces.all();
        self.engine().flush(&trees)
    }

    /// Flushes, then merges the tables of each keyspace into one run, and waits for it.
    ///
    /// # Errors
    ///
    /// What a compaction ran into; as [`Keyspace::put`].
    pub fn compact(&self) -> Result<()> {
        let trees = self.engine().keyspaces.all();
        trees.iter().try_for_each(|tree| match self.engine().compact_all(tree) {
            // Dropped meanwhile: there is nothing left of it to compact.
            Err(Error::KeyspaceDropped { .. }) => Ok(()),
            result => result,
        })
    }

    /// Gives every table of every keyspace a filter after `policy`: see [`Keyspace::refilter`].
    ///
    /// # Errors
    ///
    /// As there; what one keyspace runs into in reading does not keep the others from their filters.
    pub fn refilter(&self, policy: FilterPolicy) -> Result<()> {
        policy.validate()?;
        let trees = self.engine().keyspaces.all();
        let mut result = Ok(());
        for tree in &trees {
            match self.engine().refilter(tree, policy) {
                // Dropped meanwhile: it has no tables any more.
                Ok(()) | Err(Error::KeyspaceDropped { .. }) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Opens every table now instead of at the first lookup that needs it: reads their filters and root indexes into
    /// memory, as far as there is room. After it [`Db::may_contain`] is as sharp and [`Db::stats`] as complete as can
    /// be.
    ///
    /// # Errors
    ///
    /// [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) for the first table that cannot
    /// be opened; the others are. Never because of a damaged filter.
    pub fn open_tables(&self) -> Result<()> {
        let views: Vec<_> = self.engine().keyspaces.all().iter().map(|tree| tree.view()).collect();
        let tables = views.iter().flat_map(|view| view.version.all_tables());
        let mut first_error = Ok(());
        for (_, table) in tables {
            first_error = first_error.and(table.open().map(drop));
        }
        first_error
    }

    /// Does one piece of background work in the calling thread; `false` if there is none. For stores that
    /// were opened with [`Options::background_threads`]`(0)`.
    ///
    /// # Errors
    ///
    /// What the work ran into; writing is disabled then.
    pub fn step(&self) -> Result<bool> {
        self.engine().step(Jobs::All)
    }

    /// Waits until no background work is left.
    ///
    /// # Errors
    ///
    /// What the work ran into.
    pub fn settle(&self) -> Result<()> {
        self.engine().settle()
    }

    /// Closes the store: ends its log, durably, and releases the lock. Every other handle answers
    /// [`Closed`](crate::Error::Closed) from now on; an iterator that is under way may, or go on. Dropping the last
    /// handle does the same but cannot say what went wrong.
    ///
    /// # Errors
    ///
    /// What went wrong; the lock is released all the same.
    pub fn close(self) -> Result<()> {
        self.engine().close()
    }
}
