//! An in-memory file system with a hook before reads of tables.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::fs::{AppendFile, Fs, LockGuard, LockKind, MemFs, ReadFile};
use crate::sync::lock;

/// Called with the offset of a read. If it returns an error, the read fails with it.
type Told = dyn Fn(u64) -> io::Result<()> + Send + Sync;

#[derive(Clone)]
pub(in crate::db) struct ReadsTell {
    mem: MemFs,
    told: Arc<Mutex<Arc<Told>>>,
}

struct TellingFile {
    file: Arc<dyn ReadFile>,
    told: Arc<Mutex<Arc<Told>>>,
}

impl Default for ReadsTell {
    fn default() -> Self {
        let told: Arc<Told> = Arc::new(|_| Ok(()));
        Self { mem: MemFs::new(), told: Arc::new(Mutex::new(told)) }
    }
}

impl ReadsTell {
    pub(in crate::db) fn tell(&self, told: impl FnOnce() + Send + 'static) {
        let told = Mutex::new(Some(told));
        self.tell_each(move |_| {
            let told = lock(&told).take();
            told.into_iter().for_each(|told| told());
            Ok(())
        });
    }

    pub(in crate::db) fn tell_each(&self, told: impl Fn(u64) -> io::Result<()> + Send + Sync + 'static) {
        *lock(&self.told) = Arc::new(told);
    }
}

impl std::fmt::Debug for ReadsTell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.mem.fmt(f)
    }
}

impl std::fmt::Debug for TellingFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.file.fmt(f)
    }
}

impl ReadFile for TellingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let told = Arc::clone(&lock(&self.told));
        told(offset)?;
        self.file.read_at(buffer, offset)
    }
}

impl Fs for ReadsTell {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.mem.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.mem.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.mem.sync_dir(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.mem.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.mem.open(path)?;
        let is_table = path.extension().is_some_and(|end| end == "sst");
        Ok(if is_table { Arc::new(TellingFile { file, told: Arc::clone(&self.told) }) } else { file })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.mem.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.mem.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.mem.hard_link(from, to)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>> {
        self.mem.lock(path, kind)
    }
}
