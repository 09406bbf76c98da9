use std::path::Path;
use std::sync::Arc;

use super::store::Db;
use crate::db::copy::checkpoint::checkpoint;
use crate::db::copy::live_files::{Listed, LiveFile, live_files};
use crate::error::Result;

/// The files of a store as of one point in time; see [`Db::live_files`]. Until this list and every [`LiveFile`] are
/// dropped, the files are kept and the store remains open, unless [`Db::close`] is called.
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

    /// The files contain all writes up to this sequence number.
    #[must_use]
    pub fn seqno(&self) -> u64 {
        self.0.seqno
    }
}

impl Db {
    /// Lists the files of the store as of one point in time, with kind, length and checksum, for backup programs. They
    /// contain every write that returned before the call, and no partial batch; the log is synced up to this state.
    /// Copies of these lengths under the same names form a store with the same id, in the state after a `kill -9`. To
    /// use a copy next to the original, open it with [`Options::read_only`](crate::Options::read_only) and make a
    /// [checkpoint](Db::checkpoint), which gets its own id.
    ///
    /// Writers continue. Obsolete files take space until the list is dropped. A read-only handle lists the files of the
    /// state that it sees. The crate `sievedb-backup` makes incremental backups.
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
    /// [`Corruption`](crate::Error::Corruption) of `CURRENT` or a log.
    #[doc(alias = "backup")]
    pub fn live_files(&self) -> Result<LiveFiles> {
        live_files(self.engine(), self.view(), Arc::new(self.clone())).map(LiveFiles)
    }

    /// Creates an independent, writable store in the new directory `dir`, with every write that returned before the call, and no
    /// partial batch.
    ///
    /// Tables, filters and closed logs are hard links where possible, and copies otherwise. The log since the last
    /// flush is copied. Writers continue. When the store removes tables that it shares with the checkpoint, they take
    /// space for the checkpoint only.
    ///
    /// `dir` is created only when the checkpoint is complete and durable. A failure leaves nothing; a crash leaves
    /// `NAME.checkpoint-incomplete` next to `dir`, which the next checkpoint to `dir` removes.
    ///
    /// A read-only handle copies the state that it sees. The call also works after writing was disabled. Suspended
    /// writing is resumed first.
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
    /// [`Io`](crate::Error::Io) for a system error, with the kind `AlreadyExists` if `dir` exists, and `NotFound` if
    /// its parent does not exist. [`InvalidArgument`](crate::Error::InvalidArgument) if `dir` is in the store,
    /// [`Locked`](crate::Error::Locked) during another checkpoint to `dir`, [`OtherFiles`](crate::Error::OtherFiles)
    /// if `NAME.checkpoint-incomplete` holds foreign files, [`Changed`](crate::Error::Changed) if the writer has
    /// removed a file that a read-only handle does not hold open, [`Poisoned`](crate::Error::Poisoned),
    /// [`Closed`](crate::Error::Closed).
    #[doc(alias = "backup")]
    #[doc(alias = "snapshot")]
    #[doc(alias = "create_checkpoint")]
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        checkpoint(self.engine(), self.view(), dir.as_ref())
    }

    /// Flushes all keyspaces, then makes a [checkpoint](Db::checkpoint). Its log has only the writes since the flush.
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
    /// The errors of [`Db::flush`] and [`Db::checkpoint`].
    pub fn checkpoint_flushed(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.flush()?;
        self.checkpoint(dir)
    }
}
