//! The handle of a store. Its read and write calls use the default keyspace.

use std::path::Path;
use std::sync::Arc;

use super::keyspace::Keyspace;
use super::snapshot::Snapshot;
use super::write_view::Writes;
use crate::batch::WriteBatch;
use crate::db::engine::Engine;
use crate::db::handles::owner::Owner;
use crate::db::handles::read_view::Reads;
use crate::db::latencies::Call;
use crate::db::open::live_view::LiveView;
use crate::db::open::reading::{open_for_reading, open_newer};
use crate::db::open::steps::open_for_writing;
use crate::db::queues::workers::Jobs;
use crate::db::state::durability::Durability;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::open_report::OpenReport;
use crate::db::state::progress::Progress;
use crate::db::write::completion::Commit;
use crate::error::{Error, Result};
use crate::filter::FilterPolicy;
use crate::options::{KeyspaceOptions, Options};
use crate::snapshot_read::{KeyBounds, KeyRange};

/// An open store. Clones are cheap and can be used in any thread.
///
/// It closes when its last handle is dropped; keyspaces, snapshots and iterators are handles, too.
///
/// The calls for entries use the keyspace `"default"`; [`Keyspace`] has the same calls.
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
#[doc(alias = "Database")]
#[doc(alias = "DB")]
#[derive(Debug, Clone)]
pub struct Db {
    owner: Arc<Owner>,
    pub(in crate::db) default: Keyspace,
}

impl Options {
    /// Opens the store for reading, even while another process writes to it. The returned handle sees the state that a
    /// `kill -9` of the writer during the call would leave. It changes no file and holds no lock;
    /// [`Db::refresh`] moves to a newer state. The logs are read into memory outside the budget.
    ///
    /// Table files are held open ([`Options::open_files_max`]). See [`live_reads`](crate::guide::live_reads) for
    /// unsuitable file systems.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// sievedb::Db::open(dir.path())?.close()?;
    /// let reader = sievedb::Options::new().read_only().open(dir.path())?;
    /// assert!(matches!(reader.put("k", "v"), Err(sievedb::Error::ReadOnly)));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[doc(alias = "backup")]
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.reader = Some(|dir, options| {
            let (engine, view) = open_for_reading(dir, options)?;
            Ok(Box::new(Db::of_view(engine, view)))
        });
        self
    }

    /// Opens the store in the directory `path`, or creates it, subject to [`Options::create_if_missing`] and
    /// [`Options::read_only`]. Replays the logs; see [`Db::open_report`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().open(dir.path())?;
    /// let second = sievedb::Options::new().open(dir.path());
    /// assert!(matches!(second, Err(sievedb::Error::Locked { .. })));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if the store is open for writing (not for a read-only opening), [`Error::Changed`] if a
    /// writer changes the store faster than a reader can read it, [`Error::NoStore`] if the store is missing and may
    /// not be created, [`Error::OtherFiles`] if it would be created among foreign files, [`Error::Corruption`] if a
    /// file is damaged or missing, [`Error::Unsupported`] for a newer version, [`Error::InvalidArgument`] for an
    /// option out of range, [`Error::Io`] for a system error.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        Db::open_with(path.as_ref(), self)
    }
}

impl Db {
    fn open_with(dir: &Path, options: Options) -> Result<Self> {
        options.validate()?;
        if let Some(open) = options.reader {
            return Ok(*open(dir, options)?.downcast().expect("a reader is a `Db`"));
        }
        let engine = open_for_writing(dir, options)?;
        engine.report.log(dir);
        let engine = Arc::new(engine);
        let owner = Owner::new(Arc::clone(&engine), None);
        let reservations = Arc::clone(&engine.background.reservations);
        engine.files.obsolete.wake_with(move || reservations.notify());
        let reservations = Arc::clone(&engine.background.reservations);
        engine.context.memory.wake_with(move || reservations.notify());
        engine.raise_horizons_after_opening();
        engine.start_threads()?;
        engine.background.notify();
        let default = engine.keyspaces.default_tree();
        Ok(Self::from_parts(owner, default))
    }

    fn of_view(engine: Engine, view: LiveView) -> Self {
        engine.report.log(&engine.files.dir);
        let default = engine.keyspaces.default_tree();
        Self::from_parts(Owner::new(Arc::new(engine), Some(view)), default)
    }
}

impl Db {
    fn from_parts(owner: Arc<Owner>, tree: Arc<Tree>) -> Self {
        Self { default: Keyspace { owner: Arc::clone(&owner), tree }, owner }
    }

    /// Opens the store in the directory `path` with default [`Options`], or creates it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// db.put("planet", "Saturn")?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Options::open`].
    #[doc(alias = "create")]
    #[doc(alias = "open_default")]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    pub(in crate::db) fn engine(&self) -> &Engine {
        self.owner.engine()
    }

    pub(super) fn view(&self) -> Option<&LiveView> {
        self.owner.view()
    }

    #[inline(always)]
    pub(in crate::db) fn reads(&self) -> Reads<'_> {
        self.default.reads()
    }

    pub(in crate::db) fn writes(&self) -> Writes<'_> {
        self.default.writes()
    }

    /// The directory, as passed to [`Db::open`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// assert_eq!(db.path(), dir.path());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.engine().files.dir
    }

    /// The report of the opening: replayed logs, dropped unsynced tails, ignored files.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let report = db.open_report();
    /// assert!(report.dropped.is_empty(), "no log had a torn tail");
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn open_report(&self) -> &OpenReport {
        &self.engine().report
    }

    /// Moves a read-only handle to the present state of the store. Returns `false` if there were no writes. Clones,
    /// keyspaces, snapshots and iterators keep their state.
    ///
    /// Tables in both states stay open. If there were no writes, the call takes a few system calls; otherwise it reads
    /// the logs again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let writer = sievedb::Db::open(dir.path())?;
    /// let mut reader = sievedb::Options::new().read_only().open(dir.path())?;
    /// writer.put("k", "v")?;
    /// assert!(!reader.contains("k")?, "it sees the moment of its opening");
    /// assert!(reader.refresh()? && reader.contains("k")?);
    /// assert!(!reader.refresh()?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Error::InvalidArgument) if the handle is not read-only,
    /// [`Closed`](crate::Error::Closed), the errors of [`Options::open`]. After an error, the handle is unchanged.
    #[doc(alias = "try_catch_up_with_primary")]
    pub fn refresh(&mut self) -> Result<bool> {
        let engine = self.engine();
        engine.lifecycle.check_open()?;
        engine.files.check_process()?;
        let view = self.owner.view().ok_or_else(|| Error::invalid("the store is not open read-only"))?;
        let Some((newer, view)) = open_newer(engine, view)? else {
            engine.hide_at_opening(true);
            return Ok(false);
        };
        *self = Self::of_view(newer, view);
        Ok(true)
    }

    /// Whether `key` may be in the default keyspace, without I/O or errors; see [`Keyspace::may_contain`]. After
    /// [`Db::open_tables`], the answer covers all tables.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("seen", "")?;
    /// assert!(db.may_contain("seen"));
    /// assert!(!db.may_contain("not seen")); // nothing is in tables yet: memtables are exact
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
        self.default.may_contain(key)
    }

    /// Writes a batch atomically to all its keyspaces; buffered. A batch passed by reference is copied.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.put("from", "90").put("to", "110");
    /// db.write(batch)?;
    /// assert!(db.contains("to")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Db::put`]; [`InvalidArgument`](crate::Error::InvalidArgument) for entries of another store,
    /// [`KeyspaceDropped`](crate::Error::KeyspaceDropped).
    #[doc(alias = "apply_batch")]
    #[doc(alias = "write_batch")]
    #[doc(alias = "commit")]
    pub fn write(&self, batch: impl Into<WriteBatch>) -> Result<()> {
        self.write_with(batch, Durability::Buffered)
    }

    /// Writes a batch with the given durability. Readers may see it before it is durable. Concurrent waits share one sync.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use sievedb::{Durability, WriteBatch};
    ///
    /// let mut batch = WriteBatch::new();
    /// batch.put("order", "paid");
    /// db.write_with(batch, Durability::Synced)?; // survives a power loss from here on
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Db::write`].
    #[doc(alias = "write_opt")]
    pub fn write_with(&self, batch: impl Into<WriteBatch>, durability: Durability) -> Result<()> {
        let (engine, batch) = (self.engine(), batch.into());
        engine.latencies.time(Call::Write.of_write(durability), || engine.write(batch, durability))
    }

    /// Writes a batch and returns when it is visible. The [`Commit`] reports its durability by poll, wait, await or
    /// callback. Many batches can therefore share one sync.
    ///
    /// With [`Durability::Synced`] a sync begins at once in another thread (without background threads, in the next
    /// [`step`](Self::step)). With [`Durability::Buffered`] the commit completes with the next sync of the log.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use sievedb::{Durability, WriteBatch};
    ///
    /// let mut batch = WriteBatch::new();
    /// batch.put("order", "paid");
    /// let commit = db.write_pending(batch, Durability::Synced);
    /// assert!(db.contains("order")?); // visible already
    /// commit.wait()?; // survives a power loss from here on
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The commit returns the errors of [`Db::write_with`]: the batch was not written, or its sync failed. It also
    /// returns [`Io`](crate::Error::Io) if the callback thread cannot be started; then nothing was written.
    pub fn write_pending(&self, batch: impl Into<WriteBatch>, durability: Durability) -> Commit {
        let (engine, batch) = (self.owner.engine(), batch.into());
        engine.latencies.time(Call::Write, || engine.write_pending(batch, durability))
    }

    /// Makes all completed writes durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// for n in 0..100_u32 {
    ///     db.put(n.to_be_bytes(), "value")?;
    /// }
    /// db.sync()?; // one sync for all of them
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](crate::Error::Io) if the sync fails; the store then refuses further writes.
    /// [`Poisoned`](crate::Error::Poisoned), [`ReadOnly`](crate::Error::ReadOnly), [`Closed`](crate::Error::Closed).
    #[doc(alias = "persist")]
    #[doc(alias = "flush_wal")]
    pub fn sync(&self) -> Result<()> {
        let synced = self.engine().sync();
        self.engine().deliver_completions();
        synced
    }

    /// Returns a snapshot of all keyspaces.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "old")?;
    /// let snapshot = db.snapshot();
    /// db.put("k", "new")?;
    /// assert_eq!(snapshot.get("k")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "begin_read")]
    #[doc(alias = "read_tx")]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.owner)
    }

    /// Opens the keyspace `name`, or creates it with `options`. An existing keyspace keeps its options; see
    /// [`Keyspace::set_options`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use sievedb::KeyspaceOptions;
    ///
    /// let users = db.keyspace("users", KeyspaceOptions::new())?;
    /// users.put("ada", "1815")?;
    /// assert!(!db.contains("ada")?, "keyspaces have keys of their own");
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for an empty name or options out of range,
    /// [`LimitExceeded`](crate::Error::LimitExceeded) for a name over 255 bytes or too many keyspaces,
    /// [`ReadOnly`](crate::Error::ReadOnly) if it would be created, the errors of [`Db::put`].
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let tree = self.engine().keyspace(name, &options)?;
        Ok(Keyspace { owner: Arc::clone(&self.owner), tree })
    }

    /// Opens the keyspace `name`, or creates it with default options; see [`Db::keyspace`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let users = db.open_keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Db::keyspace`].
    #[doc(alias = "open_tree")]
    #[doc(alias = "open_partition")]
    #[doc(alias = "open_table")]
    #[doc(alias = "create_cf")]
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.keyspace(name, KeyspaceOptions::new())
    }

    /// The keyspace `name`, if it exists.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// assert!(db.existing_keyspace("default").is_some());
    /// assert!(db.existing_keyspace("users").is_none());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "cf_handle")]
    pub fn existing_keyspace(&self, name: &str) -> Option<Keyspace> {
        let tree = self.engine().keyspaces.find(name)?;
        Some(Keyspace { owner: Arc::clone(&self.owner), tree })
    }

    /// The keyspace `"default"`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// assert!(db.default_keyspace().contains("k")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn default_keyspace(&self) -> Keyspace {
        self.default.clone()
    }

    /// The names of all keyspaces, in order of creation.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// assert_eq!(db.keyspaces(), ["default", "users"]);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "list_cf")]
    #[doc(alias = "tree_names")]
    #[doc(alias = "list_tables")]
    #[doc(alias = "list_keyspaces")]
    pub fn keyspaces(&self) -> Vec<String> {
        self.engine().keyspaces.all().iter().map(|tree| tree.name.clone()).collect()
    }

    /// Drops a keyspace durably. Its handles then return [`KeyspaceDropped`](crate::Error::KeyspaceDropped); existing iterators
    /// continue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let users = db.keyspace("users", sievedb::KeyspaceOptions::new())?;
    /// db.drop_keyspace("users")?;
    /// assert!(matches!(users.get("ada"), Err(sievedb::Error::KeyspaceDropped { .. })));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Error::InvalidArgument) if the keyspace does not exist or is the default; the
    /// errors of [`Db::put`].
    #[doc(alias = "drop_cf")]
    #[doc(alias = "drop_tree")]
    #[doc(alias = "delete_keyspace")]
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.engine().drop_keyspace(name)
    }

    /// Flushes all memtables and waits for completion.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// db.flush()?;
    /// assert_eq!(db.stats().keyspaces[0].total().tables, 1);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first error of a flush; the errors of [`Db::put`].
    pub fn flush(&self) -> Result<()> {
        let trees = self.engine().keyspaces.with_memtables();
        self.engine().flush(&trees)
    }

    /// Compacts each keyspace and waits for completion; see [`Keyspace::compact`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// db.delete("k")?;
    /// db.compact()?;
    /// assert_eq!(db.stats().keyspaces[0].total().entries, 0);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first error of a compaction; the errors of [`Db::put`].
    #[doc(alias = "major_compact")]
    pub fn compact(&self) -> Result<()> {
        self.compact_with(&Progress::new())
    }

    /// [`Db::compact`] with progress and cancellation.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let progress = sievedb::Progress::new();
    /// progress.cancel();
    /// db.put("k", "v")?;
    /// assert!(matches!(db.compact_with(&progress), Err(sievedb::Error::Cancelled)));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`], and the errors of [`Db::compact`].
    pub fn compact_with(&self, progress: &Progress) -> Result<()> {
        for tree in self.engine().keyspaces.all() {
            match self.engine().compact_range(&tree, KeyRange::all(), progress) {
                Ok(()) | Err(Error::KeyspaceDropped { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        progress.end();
        Ok(())
    }

    /// Compacts a range of the default keyspace; see [`Keyspace::compact_range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// db.compact_range("a".."m")?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Db::compact`].
    pub fn compact_range(&self, range: impl KeyBounds) -> Result<()> {
        self.default.compact_range(range)
    }

    /// Sets the filter policy of every keyspace and rebuilds its filters; see [`Keyspace::refilter`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use sievedb::{FilterKind, FilterPolicy};
    ///
    /// db.put("k", "v")?;
    /// db.flush()?;
    /// db.refilter(FilterPolicy::new(FilterKind::Ribbon).bits_per_key(12.0))?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first error of [`Keyspace::refilter`]. The other keyspaces are still processed.
    pub fn refilter(&self, policy: FilterPolicy) -> Result<()> {
        self.refilter_with(policy, &Progress::new())
    }

    /// [`Db::refilter`] with progress and cancellation.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use sievedb::{FilterKind, FilterPolicy, Progress};
    ///
    /// db.refilter_with(FilterPolicy::new(FilterKind::Bloom), &Progress::new())?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`], and the errors of [`Db::refilter`].
    pub fn refilter_with(&self, policy: FilterPolicy, progress: &Progress) -> Result<()> {
        policy.validate()?;
        let trees = self.engine().keyspaces.all();
        let mut result = Ok(());
        for tree in &trees {
            match self.engine().refilter(tree, policy, progress) {
                Ok(()) | Err(Error::KeyspaceDropped { .. }) => {}
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(error) => result = result.and(Err(error)),
            }
        }
        progress.end();
        result
    }

    /// Opens every table now instead of at its first lookup. Reads filters and index roots as far as the memory
    /// budget allows. Up to three more threads help, unless the store has [`Options::background_threads`]`(0)`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.open_tables()?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) for the first table that cannot be
    /// opened; the other tables are opened. A damaged filter is not an error.
    pub fn open_tables(&self) -> Result<()> {
        self.engine().open_tables()
    }

    /// Runs one background job in the calling thread; returns `false` if there is none. Use it with
    /// [`Options::background_threads`]`(0)`. First syncs the log for waiting [`Commit`]s and runs callbacks.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().background_threads(0).open(dir.path())?;
    /// db.put("k", "v")?;
    /// while db.step()? {}
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]; the error of the job, which is retried: see [`Db::background_error`].
    pub fn step(&self) -> Result<bool> {
        self.engine().lifecycle.check_open()?;
        Ok(self.engine().step_completions()? || self.engine().resume_or_step(Jobs::All)?)
    }

    /// The error of background work that fails at present; `None` after it succeeds. The work is retried after 50 ms,
    /// doubling up to 4 s, and at once when files are removed. The figures of a full disk are those of the last attempt.
    ///
    /// While it fails, writers are slowed down; after 60 s a waiting writer gets the error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// assert!(db.background_error().is_none());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn background_error(&self) -> Option<Error> {
        self.engine().background_error()
    }

    /// Waits until there is no background job. Failed work is retried. Idle compactions run at once, whatever they
    /// rewrite in level 1, so that lookups probe fewer filters.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// db.flush()?;
    /// db.settle()?; // compactions that the flush made due have run
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of a job.
    pub fn settle(&self) -> Result<()> {
        self.engine().settle()
    }

    /// Closes the store: writes a synced close record and releases the lock. Other handles then return
    /// [`Closed`](crate::Error::Closed); an iterator may continue. Dropping the last handle also closes the store, but cannot
    /// return an error.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// db.close()?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first error. The lock is released in any case.
    pub fn close(self) -> Result<()> {
        self.engine().close()
    }
}

#[cfg(test)]
impl Db {
    /// For tests of lower layers. Returns the hash seed, and the tables of each keyspace.
    pub(crate) fn versions(&self) -> (u64, Vec<std::sync::Arc<crate::version::Version>>) {
        let keyspaces = &self.engine().keyspaces;
        let version =
            |tree: &std::sync::Arc<crate::db::state::keyspace::tree::Tree>| tree.view().version.clone();
        (keyspaces.hash_seed, keyspaces.all().iter().map(version).collect())
    }
}
