//! Copies of a store.

use std::path::Path;
use std::sync::Arc;

use super::store::Db;
use crate::db::copy::checkpoint::checkpoint;
use crate::db::copy::live_files::{Listed, LiveFile, live_files};
use crate::error::Result;

/// The files of a store at one moment, returned by [`Db::live_files`]. They stay as they are until this and every
/// [`LiveFile`] is dropped: the store does not remove them meanwhile, and stays open. [`Db::close`] ends
/// the protection.
#[derive(Debug)]
pub struct LiveFiles(Listed);

impl LiveFiles {
    /// The files, in no particular order.
    #[must_use]
    pub fn files(&self) -> &[LiveFile] {
        &self.0.files
    }

    /// The random id of the store.
    #[must_use]
    pub fn store_id(&self) -> [u8; 16] {
        self.0.store_id
    }

    /// Every write up to this sequence number is in the files.
    #[must_use]
    pub fn seqno(&self) -> u64 {
        self.0.seqno
    }
}

impl Db {
    /// Lists the files of the store at one moment during the call, with kind, length and checksum, for programs that copy
    /// them by themselves. It has every write that returned before the call, and no batch in part; the log is synced up to
    /// there. Copies of these files to the stated lengths, under the same names in a directory of their own, are a store as a
    /// `kill -9` at that moment would have left it, with the same id. A copy that is used next to its origin needs an id of its
    /// own: open it with [`Options::read_only`](crate::Options::read_only) and make a [checkpoint](Db::checkpoint) of it.
    ///
    /// Writers go on meanwhile. Files that the store no longer needs take space until the list is dropped. A handle that was
    /// opened with [`Options::read_only`](crate::Options::read_only) lists the moment that it sees.
    ///
    /// The crate `sievedb-backup` makes incremental backups in this way.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (store, copy) = (dir.path().join("db"), dir.path().join("copy"));
    /// let db = sievedb::Db::open(&store)?;
    /// db.put("k", "v")?;
    /// let live = db.live_files()?;
    /// db.put("k", "later")?;
    /// std::fs::create_dir(&copy).unwrap();
    /// for file in live.files() {
    ///     let bytes = file.open()?.read_to_vec(file.len() as usize, 0).unwrap();
    ///     std::fs::write(copy.join(file.name()), bytes).unwrap();
    /// }
    /// assert_eq!(sievedb::Db::open(&copy)?.get("k")?.as_deref(), Some(&b"v"[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::Error::Closed), [`Poisoned`](crate::Error::Poisoned), [`Io`](crate::Error::Io),
    /// [`Corruption`](crate::Error::Corruption) if `CURRENT` or a log is damaged.
    #[doc(alias = "backup")]
    pub fn live_files(&self) -> Result<LiveFiles> {
        live_files(self.engine(), self.view(), Arc::new(self.clone())).map(LiveFiles)
    }

    /// Makes a checkpoint: a store of its own in the new directory `dir`, with all keyspaces as they are at one moment during
    /// the call. It has every write that returned before the call, and no batch in part.
    ///
    /// Tables, filters and closed logs are hard links; across file systems, and where links are refused, they are copied.
    /// What is in memory only is copied from the log. So the cost is a few system calls for each file, the bytes of the
    /// log since the last flush, and a few syncs. Writers go on meanwhile. The checkpoint takes space when the
    /// store removes tables that it still has. Both stores can be written to, and neither needs the other.
    ///
    /// `dir` appears when the checkpoint is complete and durable. A failure leaves nothing. A crash leaves the directory
    /// `NAME.checkpoint-incomplete` next to `dir`; the next checkpoint to `dir` removes it.
    ///
    /// A handle that was opened with [`Options::read_only`](crate::Options::read_only) copies the moment that it sees, also
    /// next to a writer in another process. If writing is suspended, it is resumed first. If a failure has disabled
    /// writing, a handle for reading can still copy the store.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path().join("db"))?;
    /// db.put("k", "old")?;
    /// db.checkpoint(dir.path().join("copy"))?;
    /// db.put("k", "new")?;
    /// let copy = sievedb::Db::open(dir.path().join("copy"))?;
    /// assert_eq!(copy.get("k")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](crate::Error::Io) with the kind `AlreadyExists` if there is something at `dir`, `NotFound` if the directory above
    /// it does not exist, and whatever the system refuses. [`InvalidArgument`](crate::Error::InvalidArgument) if `dir` is in the
    /// store, [`Locked`](crate::Error::Locked) if another checkpoint to `dir` is running,
    /// [`OtherFiles`](crate::Error::OtherFiles) if `NAME.checkpoint-incomplete` holds files of other programs,
    /// [`Changed`](crate::Error::Changed) if a handle for reading does not hold a file open that the writer has removed,
    /// [`Poisoned`](crate::Error::Poisoned), [`Closed`](crate::Error::Closed).
    #[doc(alias = "backup")]
    #[doc(alias = "snapshot")]
    #[doc(alias = "create_checkpoint")]
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        checkpoint(self.engine(), self.view(), dir.as_ref())
    }

    /// Flushes all keyspaces, then makes a checkpoint like [`Db::checkpoint`]. Its log has only the writes that other
    /// threads have made since the flush: without them there is none, and opening the checkpoint replays nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path().join("db"))?;
    /// db.put("k", "v")?;
    /// db.checkpoint_flushed(dir.path().join("copy"))?;
    /// let copy = sievedb::Db::open(dir.path().join("copy"))?;
    /// assert_eq!(copy.open_report().entries, 0);
    /// assert!(copy.contains("k")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Db::flush`] and of [`Db::checkpoint`].
    pub fn checkpoint_flushed(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.flush()?;
        self.checkpoint(dir)
    }
}
