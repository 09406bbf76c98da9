//! The files of a store: where they are, whose they are, their numbers, and when they go.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::checksum::FileId;
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::fs::{Fs, LockGuard};
use crate::obsolete_files::ObsoleteFiles;
use crate::sync::lock;
use crate::table::{TableContext, write_filter_file};
use crate::table_meta::FilterRef;
use crate::wal::FramedWriter;

/// The directory of a store.
pub(crate) struct StoreFiles {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) store_id: FileId,
    /// Files of tables and filters that no version names any more.
    pub(crate) obsolete: Arc<ObsoleteFiles>,
    next_number: AtomicU64,
    /// Keeps other writers out while the store is open.
    lock: Mutex<Option<Box<dyn LockGuard>>>,
}

impl StoreFiles {
    pub(crate) fn new(
        fs: Arc<dyn Fs>,
        dir: PathBuf,
        store_id: FileId,
        next_number: u64,
        lock: Option<Box<dyn LockGuard>>,
    ) -> Self {
        let next_number = AtomicU64::new(next_number);
        Self { fs, dir, store_id, obsolete: Arc::default(), next_number, lock: Mutex::new(lock) }
    }

    /// The number that the next file will get.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::SeqCst)
    }

    /// A number for a new file. None is given twice.
    pub(crate) fn new_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::SeqCst)
    }

    /// Makes the names of new files durable.
    pub(crate) fn sync_dir(&self) -> Result<()> {
        self.fs.sync_dir(&self.dir).map_err(|error| Error::io("sync", &self.dir, error))
    }

    /// Creates a log file, durable with its header and name.
    pub(crate) fn create_log(&self, number: u64) -> Result<(FramedWriter, FileId)> {
        let file_id = random_id()?;
        let path = FileName::Log(number).path(&self.dir);
        let header = FileHeader::new(FileKind::Log, self.store_id, file_id);
        let mut writer = FramedWriter::create(&*self.fs, &path, header)?;
        writer.sync()?;
        self.sync_dir()?;
        Ok((writer, file_id))
    }

    /// Writes a filter block into a new file, durable with its name. Nothing is left of it if that fails.
    pub(crate) fn write_filter(&self, block: &[u8]) -> Result<FilterRef> {
        let number = self.new_number();
        let ids = [self.store_id, random_id()?];
        let written = write_filter_file(&*self.fs, &self.dir, number, ids, block);
        let written = written.and_then(|filter| self.sync_dir().map(|()| filter));
        written.inspect_err(|_| drop(self.fs.remove(&FileName::Filter(number).path(&self.dir))))
    }

    /// Removes the files of tables and filters that no version names any more. `true` if there were any.
    pub(crate) fn remove_obsolete(&self, context: &TableContext) -> bool {
        self.obsolete.clear(|name| {
            context.forget(name);
            self.remove_or_leave(name);
        })
    }

    /// Removes a file that nothing needs. If it cannot be removed, the next opening removes it.
    pub(crate) fn remove_or_leave(&self, name: FileName) {
        let path = name.path(&self.dir);
        if let Err(error) = self.fs.remove(&path) {
            tracing::warn!(path = %path.display(), %error, "an obsolete file could not be removed");
        }
    }

    /// Lets other writers in.
    pub(crate) fn unlock(&self) {
        *lock(&self.lock) = None;
    }
}

/// Random bytes of the operating system.
pub(crate) fn random_id() -> Result<FileId> {
    let mut id = [0; 16];
    match getrandom::fill(&mut id) {
        Ok(()) => Ok(id),
        Err(error) => {
            let source = std::io::Error::other(error.to_string());
            Err(Error::io("read random bytes from", std::path::Path::new("the operating system"), source))
        }
    }
}
