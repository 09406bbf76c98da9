//! Copies of a store.

use std::path::Path;

use super::store::Db;
use crate::db::copy::checkpoint::checkpoint;
use crate::error::Result;

impl Db {
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
