//! A file system in memory that calls a hook before every operation of a reader.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::fs::{AppendFile, Fs, LockGuard, LockKind, MemFs, ReadFile};

use super::store::DIR;

type Hook = Box<dyn FnMut(u64) + Send>;

#[derive(Clone)]
pub(crate) struct HookedFs {
    mem: MemFs,
    is_writer: bool,
    hook: Arc<Mutex<Option<Hook>>>,
    operations: Arc<AtomicU64>,
}

impl std::fmt::Debug for HookedFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.mem.fmt(f)
    }
}

impl HookedFs {
    /// For a reader: a change of the store panics.
    pub(crate) fn new(mem: &MemFs) -> Self {
        Self { mem: mem.clone(), is_writer: false, hook: Arc::default(), operations: Arc::default() }
    }

    pub(crate) fn of_writer(mem: &MemFs) -> Self {
        Self { is_writer: true, ..Self::new(mem) }
    }

    pub(crate) fn set_hook(&self, hook: impl FnMut(u64) + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    pub(crate) fn remove_hook(&self) {
        *self.hook.lock().unwrap() = None;
    }

    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::SeqCst)
    }

    fn tick(&self) {
        let number = self.operations.fetch_add(1, Ordering::SeqCst) + 1;
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(number);
            self.hook.lock().unwrap().get_or_insert(hook);
        }
    }

    /// A reader may only change files outside the store.
    fn change(&self, path: &Path, what: &str) -> &MemFs {
        if !self.is_writer {
            self.tick();
            assert!(!path.starts_with(DIR), "a reader does {what}");
        }
        &self.mem
    }
}

impl Fs for HookedFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(dir, "create a directory").create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.tick();
        self.mem.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(dir, "sync the directory").sync_dir(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.change(path, "create a file").create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.tick();
        Ok(Arc::new(HookedFile { fs: self.clone(), file: self.mem.open(path)? }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(from, "rename a file").rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(path, "remove a file").remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(to, "link a file").hard_link(from, to)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(dir, "remove a directory").remove_dir(dir)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>> {
        let is_allowed = self.is_writer || kind == LockKind::Shared || !path.starts_with(DIR);
        assert!(is_allowed, "a reader needs no lock of its own");
        self.tick();
        self.mem.lock(path, kind)
    }
}

#[derive(Debug)]
struct HookedFile {
    fs: HookedFs,
    file: Arc<dyn ReadFile>,
}

impl ReadFile for HookedFile {
    fn len(&self) -> io::Result<u64> {
        self.fs.tick();
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.fs.tick();
        self.file.read_at(buffer, offset)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.fs.tick();
        self.file.next_data(offset)
    }
}
