use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use sievedb::fs::{AppendFile, Fs, LockGuard, LockKind, MemFs, ReadFile};

type Event = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Armed {
    reads_before: usize,
    event: Option<Event>,
}

#[derive(Clone)]
pub(crate) struct InterruptFs {
    inner: MemFs,
    armed: Arc<Mutex<Armed>>,
}

impl InterruptFs {
    pub(crate) fn new() -> Self {
        Self { inner: MemFs::new(), armed: Arc::default() }
    }

    /// Runs `event` in the reading thread after `reads_before` reads of a table.
    pub(crate) fn arm(&self, reads_before: usize, event: impl FnOnce() + Send + 'static) {
        *self.armed.lock().unwrap() = Armed { reads_before, event: Some(Box::new(event)) };
    }

    pub(crate) fn disarm(&self) -> bool {
        self.armed.lock().unwrap().event.take().is_some()
    }

    fn before_read(&self) {
        let event = {
            let mut armed = self.armed.lock().unwrap();
            match armed.reads_before {
                0 => armed.event.take(),
                _ => {
                    armed.reads_before -= 1;
                    None
                }
            }
        };
        if let Some(event) = event {
            event();
        }
    }
}

impl fmt::Debug for InterruptFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[derive(Debug)]
struct File {
    inner: Arc<dyn ReadFile>,
    fs: InterruptFs,
}

impl ReadFile for File {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.fs.before_read();
        self.inner.read_at(buffer, offset)
    }
}

impl Fs for InterruptFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.inner.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.inner.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let inner = self.inner.open(path)?;
        match path.extension().is_some_and(|extension| extension == "sst") {
            true => Ok(Arc::new(File { inner, fs: self.clone() })),
            false => Ok(inner),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path, kind)
    }
}
