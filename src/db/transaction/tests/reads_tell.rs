//! A file system in memory that calls a function before the next read of a table.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::fs::{AppendFile, Fs, LockGuard, LockKind, MemFs, ReadFile};
use crate::sync::lock;

type Told = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

#[derive(Clone, Default)]
pub(super) struct ReadsTell {
    mem: MemFs,
    told: Told,
}

struct TellingFile {
    file: Arc<dyn ReadFile>,
    told: Told,
}

impl ReadsTell {
    /// Sets what is called, once.
    pub(super) fn tell(&self, told: impl FnOnce() + Send + 'static) {
        *lock(&self.told) = Some(Box::new(told));
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
        let told = lock(&self.told).take();
        if let Some(told) = told {
            told();
        }
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
