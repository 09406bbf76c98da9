//! One keyspace: its handle, creation and removal.

use std::sync::Arc;
use std::time::Duration;

use super::write_view::Writes;
use crate::batch::{DEFAULT_KEYSPACE, KeyspaceId, WriteBatch};
use crate::db::engine::Engine;
use crate::db::handles::owner::Owner;
use crate::db::handles::read_view::Reads;
use crate::db::state::keyspace::change::{Change, OptionsChange};
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::progress::Progress;
use crate::error::{Error, Result};
use crate::expiry::buckets::Buckets;
use crate::filter::FilterPolicy;
use crate::limits::{KEYSPACE_NAME_BYTES_MAX, KEYSPACES_MAX};
use crate::manifest::edit::EditItem;
use crate::options::KeyspaceOptions;
use crate::snapshot_read::{KeyBounds, KeyRange};
use crate::sync::lock;

/// A keyspace: a separate tree with its own options. Clones are cheap. A [`WriteBatch`] writes to several atomically. See
/// [`Db::keyspace`](crate::Db::keyspace).
#[derive(Clone)]
pub struct Keyspace {
    pub(in crate::db) owner: Arc<Owner>,
    pub(in crate::db) tree: Arc<Tree>,
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyspace")
            .field("name", &self.tree.name)
            .field("dir", &self.engine().files.dir)
            .finish()
    }
}

impl Keyspace {
    /// The name of the keyspace.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// assert_eq!(users.name(), "users");
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.tree.name
    }

    /// The current options.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// assert_eq!(users.options(), sievedb::KeyspaceOptions::new());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn options(&self) -> KeyspaceOptions {
        (**self.tree.options.load()).clone()
    }

    /// Changes the options durably. The time to live and the options of memtables and levels take effect at once, the
    /// other options for new tables. Compactions rewrite existing tables; [`Keyspace::refilter`] rebuilds their
    /// filters.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// use sievedb::{Compression, KeyspaceOptions};
    ///
    /// users.set_options(KeyspaceOptions::new().compression(Compression::None))?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if an option is out of range; the errors of [`Keyspace::put`].
    pub fn set_options(&self, options: KeyspaceOptions) -> Result<()> {
        options.validate()?;
        self.check_writable()?;
        let engine = self.engine();
        engine.resume_first()?;
        if !self.tree.expires() && options.ttl.is_none() {
            let change = Change::Options(Arc::clone(&self.tree), OptionsChange::All(options));
            engine.publish(Vec::new(), change)?;
        } else {
            engine.set_expiry(&self.tree, options)?;
        }
        engine.background.notify();
        Ok(())
    }

    /// Sets the time of a keyspace with [`TimeSource::Caller`](crate::TimeSource::Caller), in whole milliseconds
    /// since any epoch. Entries that have expired by then are hidden when the call returns. Until the first call,
    /// entries do not expire; earlier entries count as written at the time of the first call.
    ///
    /// The first call saves the time; later times are saved only with the first write in each bucket. After an opening,
    /// the time is the beginning of the newest bucket with a write. So set the time after each opening before you
    /// write; otherwise, the write expires with that bucket.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use std::time::Duration;
    /// use sievedb::{KeyspaceOptions, TimeSource};
    ///
    /// let hour = Duration::from_secs(3600);
    /// let options = KeyspaceOptions::new().ttl(hour).ttl_buckets(6).time_source(TimeSource::Caller);
    /// let seen = db.keyspace("seen", options)?;
    /// seen.advance_time(1000 * hour)?;
    /// seen.put("id", "")?;
    /// seen.advance_time(1001 * hour)?;
    /// assert!(seen.contains("id")?);
    /// seen.advance_time(1001 * hour + hour / 6)?;
    /// assert!(!seen.contains("id")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the keyspace has another time source, or if the time is 0, decreases or exceeds
    /// 253,402,300,799,999 ms. The errors of [`Keyspace::put`].
    pub fn advance_time(&self, time: Duration) -> Result<()> {
        self.check_writable()?;
        self.engine().resume_first()?;
        self.engine().advance_time(&self.tree, time)
    }

    /// Sets the filter policy, builds a new filter file for every table, and waits for completion. Each table is read
    /// once but not rewritten. Reads and writes continue. The build takes 10 to 25 bytes per key of a table from the
    /// memory budget. Inputs of running compactions are skipped, because the outputs follow the policy.
    ///
    /// After an interruption some tables keep valid old filters; call it again to continue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// use sievedb::{FilterKind, FilterPolicy};
    ///
    /// users.put("ada", "1815")?;
    /// users.flush()?;
    /// users.refilter(FilterPolicy::new(FilterKind::Bloom).bits_per_key(12.0))?;
    /// assert_eq!(db.stats().rebuilt_filters, 1);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the policy is out of range. [`Error::Corruption`] or [`Error::Io`] for the first
    /// unreadable table. [`Error::LimitExceeded`] if the memory budget is too small for a table's filter; the other
    /// tables get new filters. [`Keyspace::compact`] then replaces large tables by smaller ones. The errors of
    /// [`Keyspace::put`].
    pub fn refilter(&self, policy: FilterPolicy) -> Result<()> {
        self.refilter_with(policy, &Progress::new())
    }

    /// [`Keyspace::refilter`] with progress and cancellation.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// use sievedb::{FilterKind, FilterPolicy, Progress};
    ///
    /// users.refilter_with(FilterPolicy::new(FilterKind::Bloom), &Progress::new())?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`], and the errors of [`Keyspace::refilter`].
    pub fn refilter_with(&self, policy: FilterPolicy, progress: &Progress) -> Result<()> {
        policy.validate()?;
        self.check_writable()?;
        self.engine().refilter(&self.tree, policy, progress)?;
        progress.end();
        Ok(())
    }

    fn engine(&self) -> &Engine {
        self.owner.engine()
    }

    #[inline(always)]
    pub(in crate::db) fn reads(&self) -> Reads<'_> {
        Reads { owner: &self.owner, tree: &self.tree, past: None, is_foreign: false, own: None }
    }

    pub(in crate::db) fn writes(&self) -> Writes<'_> {
        Writes { owner: &self.owner, tree: &self.tree }
    }

    fn check_writable(&self) -> Result<()> {
        self.engine().check_writable()?;
        self.tree.check_alive()
    }

    /// Whether `key` may be present, without I/O or errors. `false` is exact, also for a dropped keyspace. `true` may
    /// be wrong: filters have false positives, and tables that were never opened and filter pages that are not in
    /// memory count as "maybe".
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// users.put("ada", "1815")?;
    /// assert!(users.may_contain("ada"));
    /// assert!(!users.may_contain("grace")); // nothing is in tables yet: memtables are exact
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
        self.engine().may_contain(&self.tree, key.as_ref())
    }

    /// Flushes the memtables and waits for completion.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// users.put("ada", "1815")?;
    /// users.flush()?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the flush; the errors of [`Keyspace::put`].
    pub fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.engine().flush(std::slice::from_ref(&self.tree))
    }

    /// Flushes, merges all tables into one run, and waits for completion. Drops entries that no reader can see. Writes and other
    /// jobs continue. Only the few tables merged at a time need additional space.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// users.put("ada", "1815")?;
    /// users.compact()?;
    /// assert_eq!(db.stats().keyspace("users").unwrap().total().runs, 1);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the compaction; the errors of [`Keyspace::put`].
    pub fn compact(&self) -> Result<()> {
        self.compact_with(&Progress::new())
    }

    /// [`Keyspace::compact`] with progress and cancellation.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// let progress = sievedb::Progress::new();
    /// users.compact_with(&progress)?;
    /// assert_eq!(progress.bytes_done(), progress.bytes());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`], and the errors of [`Keyspace::compact`].
    pub fn compact_with(&self, progress: &Progress) -> Result<()> {
        self.compact_range_with(.., progress)
    }

    /// Merges the tables that overlap the range into one run, like [`Keyspace::compact`]. A table outside the range is
    /// rewritten only if it overlaps one of these tables.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// users.put("ada", "1815")?;
    /// users.delete("ada")?;
    /// users.compact_range("a".."b")?;
    /// assert_eq!(db.stats().keyspace("users").unwrap().total().entries, 0);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Keyspace::compact`].
    pub fn compact_range(&self, range: impl KeyBounds) -> Result<()> {
        self.compact_range_with(range, &Progress::new())
    }

    /// [`Keyspace::compact_range`] with progress and cancellation.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// users.compact_range_with("a".."b", &sievedb::Progress::new())?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`], and the errors of [`Keyspace::compact`].
    pub fn compact_range_with(&self, range: impl KeyBounds, progress: &Progress) -> Result<()> {
        self.check_writable()?;
        self.engine().compact_range(&self.tree, KeyRange::new(&range), progress)?;
        progress.end();
        Ok(())
    }
}

impl WriteBatch {
    /// Sets `key` to `value` in `keyspace`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.put("count", "1").put_in(&users, "ada", "1815");
    /// db.write(batch)?; // both or neither
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.bind(keyspace.engine().id);
        self.push_put(keyspace.tree.id, key.as_ref(), value.as_ref())
    }

    /// Removes `key` from `keyspace`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// # let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.delete("count").delete_in(&users, "ada");
    /// db.write(batch)?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Self {
        self.bind(keyspace.engine().id);
        self.push_delete(keyspace.tree.id, key.as_ref())
    }
}

impl Engine {
    pub(in crate::db) fn keyspace(&self, name: &str, options: &KeyspaceOptions) -> Result<Arc<Tree>> {
        self.lifecycle.check_open()?;
        if self.log.is_some() && self.keyspaces.find(name).is_none() {
            self.resume_first()?;
        }
        let mut next = lock(&self.keyspaces.next_id);
        if let Some(tree) = self.keyspaces.find(name) {
            return Ok(tree);
        }
        self.check_writable()?;
        options.validate()?;
        if name.is_empty() {
            return Err(Error::invalid("the name of a keyspace is empty"));
        }
        if name.len() > KEYSPACE_NAME_BYTES_MAX {
            return Err(Error::limit(
                "keyspace name length",
                KEYSPACE_NAME_BYTES_MAX as u64,
                name.len() as u64,
            ));
        }
        let count = self.keyspaces.len();
        if count >= KEYSPACES_MAX {
            return Err(Error::limit("number of keyspaces", KEYSPACES_MAX as u64, count as u64 + 1));
        }
        let id = *next;
        if id == KeyspaceId::MAX {
            return Err(Error::limit("keyspace id", u64::from(KeyspaceId::MAX) - 1, u64::from(id)));
        }
        let created = EditItem::KeyspaceCreated { id, name: name.to_owned(), options: options.encode() };
        self.publish(vec![created], Change::None)?;
        *next = id + 1;
        let memtables = &self.keyspaces.memtables;
        let (name, options, version) = (name.to_owned(), options.clone(), Arc::default());
        let tree = Tree::new(id, name, options, memtables, version, Buckets::default());
        self.keyspaces.insert(Arc::clone(&tree));
        Ok(tree)
    }

    pub(in crate::db) fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        self.resume_first()?;
        let _one = lock(&self.keyspaces.next_id);
        let tree = self
            .keyspaces
            .find(name)
            .ok_or_else(|| Error::invalid(format!("there is no keyspace {name:?}")))?;
        if tree.id == DEFAULT_KEYSPACE {
            return Err(Error::invalid("the default keyspace cannot be dropped"));
        }
        self.publish(vec![EditItem::KeyspaceDropped(tree.id)], Change::Drop(Arc::clone(&tree)))?;
        self.keyspaces.remove(&tree);
        tree.view().version.all_tables().for_each(|(_, table)| table.set_obsolete());
        // A retained handle must not keep the data alive, because its memory is no longer counted.
        tree.clear();
        self.background.notify();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::fs::MemFs;
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn memory_of_a_dropped_keyspace_is_released_whenever_it_was_counted() {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        let db = options.open("/db").unwrap();
        let memory = &db.engine().context.memory;
        let active = || memory.active();
        let before = active();
        for is_counted_late in [false, true] {
            let keyspace = db.keyspace("k", KeyspaceOptions::new()).unwrap();
            (0..1000u32).for_each(|key| keyspace.put(key.to_be_bytes(), [1; 50]).unwrap());
            let sum: usize = db.engine().keyspaces.all().iter().map(|tree| tree.active_bytes()).sum();
            assert!(active() == sum && sum > before + 50_000);
            db.drop_keyspace("k").unwrap();
            if is_counted_late {
                // A commit leader found the keyspace before it was dropped.
                keyspace.tree.count_memtables();
            }
            assert_eq!(active(), before);
        }
    }
}
