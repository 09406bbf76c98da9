//! The files of a store: directory, lock, numbers, creation and removal.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checksum::FileId;
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::fs::{Fs, LockedDir};
use crate::number_map::NumberSet;
use crate::obsolete_files::ObsoleteFiles;
use crate::table::{TableContext, write_filter_file};
use crate::table_meta::FilterRef;
use crate::wal::FramedWriter;

pub(in crate::db) struct StoreFiles {
    pub(in crate::db) fs: Arc<dyn Fs>,
    pub(in crate::db) dir: PathBuf,
    pub(in crate::db) store_id: FileId,
    pub(in crate::db) obsolete: Arc<ObsoleteFiles>,
    numbers: Numbers,
    locked: Arc<LockedDir>,
}

pub(in crate::db) struct Numbers {
    next: AtomicU64,
    taken: NumberSet<u64>,
}

impl Numbers {
    pub(in crate::db) fn new(next: u64, taken: NumberSet<u64>) -> Self {
        Self { next: AtomicU64::new(next), taken }
    }
}

impl StoreFiles {
    pub(in crate::db) fn new(
        locked: Arc<LockedDir>,
        dir: PathBuf,
        store_id: FileId,
        numbers: Numbers,
        obsolete: Arc<ObsoleteFiles>,
    ) -> Self {
        let fs = Arc::clone(&locked) as Arc<dyn Fs>;
        Self { fs, dir, store_id, obsolete, numbers, locked }
    }

    pub(in crate::db) fn next_number(&self) -> u64 {
        self.numbers.next.load(Ordering::SeqCst)
    }

    /// Returns a file number that was never used before.
    pub(in crate::db) fn new_number(&self) -> u64 {
        loop {
            let number = self.numbers.next.fetch_add(1, Ordering::SeqCst);
            if !self.numbers.taken.contains(&number) {
                return number;
            }
        }
    }

    pub(in crate::db) fn sync_dir(&self) -> Result<()> {
        self.fs.sync_dir(&self.dir).map_err(|error| Error::io("sync", &self.dir, error))
    }

    pub(in crate::db) fn create_log(&self, number: u64) -> Result<(FramedWriter, FileId)> {
        let file_id = random_id()?;
        let path = FileName::Log(number).path(&self.dir);
        let header = FileHeader::new(FileKind::Log, self.store_id, file_id);
        let created = FramedWriter::create(&*self.fs, &path, header);
        let synced = created.and_then(|mut writer| {
            writer.sync()?;
            self.sync_dir()?;
            Ok((writer, file_id))
        });
        synced.inspect_err(|_| self.remove(FileName::Log(number)))
    }

    pub(in crate::db) fn write_filter(&self, block: &[u8]) -> Result<FilterRef> {
        let number = self.new_number();
        let ids = [self.store_id, random_id()?];
        let written = write_filter_file(&*self.fs, &self.dir, number, ids, block);
        let written = written.and_then(|filter| self.sync_dir().map(|()| filter));
        written.inspect_err(|_| drop(self.fs.remove(&FileName::Filter(number).path(&self.dir))))
    }

    pub(in crate::db) fn remove(&self, name: FileName) {
        if self.obsolete.is_kept(name) {
            return self.obsolete.add(name);
        }
        match self.fs.remove(&name.path(&self.dir)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => self.obsolete.add(name),
            _ => {}
        }
    }

    /// Keeps the files that could not be removed for the next call. Returns whether any was removed, and the last
    /// error.
    pub(in crate::db) fn remove_obsolete(&self, context: &TableContext) -> (bool, Option<Error>) {
        let mut failure = None;
        let any = self.obsolete.clear(|name| {
            context.forget(name);
            let path = name.path(&self.dir);
            match self.fs.remove(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    failure = Some(Error::io("remove", &path, error));
                    false
                }
                _ => true,
            }
        });
        (any, failure)
    }

    pub(in crate::db) fn check_locked(&self) -> Result<()> {
        self.locked.check().map_err(|error| Error::io("look at", &self.dir, error))
    }

    pub(in crate::db) fn locked(&self) -> &Arc<LockedDir> {
        &self.locked
    }

    pub(in crate::db) fn has_lost_lock(&self) -> bool {
        self.locked.has_lost_lock()
    }

    pub(in crate::db) fn check_process(&self) -> Result<()> {
        self.locked.check_process()
    }

    /// Cheap: see [`LockedDir::check_not_forked`].
    #[inline]
    pub(in crate::db) fn check_not_forked(&self) -> Result<()> {
        self.locked.check_not_forked()
    }

    pub(in crate::db) fn unlock(&self) {
        self.locked.release();
    }
}

pub(in crate::db) fn random_id() -> Result<FileId> {
    let mut id = [0; 16];
    match getrandom::fill(&mut id) {
        Ok(()) => Ok(id),
        Err(error) => {
            let source = std::io::Error::other(error.to_string());
            Err(Error::io("read random bytes from", std::path::Path::new("the operating system"), source))
        }
    }
}
