//! The files of live views, as an immutable file system.
//!
//! A live view ([`live_view`](super::live_view)) holds tables and filters open, because the writer may remove them. A
//! view shares its [`ViewFiles`] with its refreshed views and clones. Among these, a name always means the same file,
//! opened once and closed with the last view. [`ViewFs`] reads from them. Files that change belong to one view: see
//! [`Moment`].
//!
//! Files beyond the limit are opened by name for each read. If the writer has removed such a file, a read fails with
//! [`Error::Changed`].

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::cache::FileCache;
use crate::error::Error;
use crate::filename::FileName;
use crate::fs::{AppendFile, Fs, LockGuard, LockKind, ReadFile};
use crate::number_map::NumberMap;
use crate::sync::lock;

#[derive(Debug)]
pub(super) struct ViewFiles {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) dir: PathBuf,
    pub(super) open_max: usize,
    next_number: AtomicU64,
    named: Mutex<NumberMap<FileName, Weak<NamedFile>>>,
    cache: Arc<OnceLock<Arc<FileCache>>>,
}

#[derive(Debug)]
struct NamedFile {
    name: FileName,
    file: Mutex<Option<Weak<dyn ReadFile>>>,
    cache: Arc<OnceLock<Arc<FileCache>>>,
}

impl NamedFile {
    fn file(&self) -> Option<Arc<dyn ReadFile>> {
        lock(&self.file).as_ref()?.upgrade()
    }

    fn share(&self, opened: Arc<dyn ReadFile>) -> Arc<dyn ReadFile> {
        let mut file = lock(&self.file);
        file.as_ref().and_then(Weak::upgrade).unwrap_or_else(|| {
            *file = Some(Arc::downgrade(&opened));
            opened
        })
    }

    fn remove_from_cache(&self) {
        if let (Some(cache), Some(number)) = (self.cache.get(), self.name.number()) {
            cache.remove(number);
        }
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        self.remove_from_cache();
    }
}

#[derive(Debug, Clone)]
pub(super) struct ViewFile {
    named: Arc<NamedFile>,
    held: Option<Arc<dyn ReadFile>>,
}

impl ViewFile {
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn release(&mut self) {
        self.held = None;
        self.named.remove_from_cache();
    }
}

impl ViewFiles {
    pub(super) fn new(fs: Arc<dyn Fs>, dir: &Path, open_max: usize) -> Arc<Self> {
        let (next_number, named, cache) = (AtomicU64::new(0), Mutex::default(), Arc::default());
        Arc::new(Self { fs, dir: dir.to_path_buf(), open_max, next_number, named, cache })
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    /// `next_number` exceeds all numbers in use. Removes entries of files that no view names.
    pub(super) fn add_view(&self, next_number: u64) {
        self.next_number.fetch_max(next_number, Ordering::Relaxed);
        lock(&self.named).retain(|_, named| named.strong_count() > 0);
    }

    pub(super) fn set_cache(&self, cache: &Arc<FileCache>) {
        self.cache.get_or_init(|| Arc::clone(cache));
    }

    pub(super) fn path(&self, name: FileName) -> PathBuf {
        name.path(&self.dir)
    }

    pub(super) fn name(&self, name: FileName, file: Option<Arc<dyn ReadFile>>) -> ViewFile {
        let named = self.named(name);
        let held = file.map(|file| named.share(file));
        ViewFile { named, held }
    }

    fn named(&self, name: FileName) -> Arc<NamedFile> {
        let mut all = lock(&self.named);
        all.get(&name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let named = NamedFile { name, file: Mutex::default(), cache: Arc::clone(&self.cache) };
            let named = Arc::new(named);
            all.insert(name, Arc::downgrade(&named));
            named
        })
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let named = name_of(path, &self.dir).and_then(|name| lock(&self.named).get(&name)?.upgrade());
        match named {
            None => self.fs.open(path),
            Some(named) => named.file().map_or_else(|| self.open_again(path), Ok),
        }
    }

    fn open_again(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.fs.open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let detail = format!(
                    "the writer has removed it, and the view holds at most {} files open (Options::open_files_max)",
                    self.open_max
                );
                Error::changed(path, detail).into()
            }
            _ => error,
        })
    }
}

fn name_of(path: &Path, dir: &Path) -> Option<FileName> {
    if path.parent() != Some(dir) {
        return None;
    }
    FileName::parse(path.file_name()?.to_str()?)
}

/// The changing files as of a view, and the names in the directory.
#[derive(Debug, Default)]
pub(super) struct Moment {
    pub(super) frozen: NumberMap<FileName, Option<Arc<dyn ReadFile>>>,
    pub(super) names: Vec<OsString>,
}

#[derive(Debug)]
pub(super) struct ViewFs {
    pub(super) files: Arc<ViewFiles>,
    pub(super) moment: Option<Arc<Moment>>,
}

fn refused<T>() -> io::Result<T> {
    Err(Error::ReadOnly.into())
}

impl Fs for ViewFs {
    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        self.files.fs.canonical(dir)
    }

    fn has_dangling_link(&self, path: &Path) -> bool {
        self.files.fs.has_dangling_link(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        match &self.moment {
            Some(moment) if dir == self.files.dir => Ok(moment.names.clone()),
            _ => self.files.fs.list(dir),
        }
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let name = name_of(path, &self.files.dir);
        let frozen = name.and_then(|name| self.moment.as_ref()?.frozen.get(&name));
        match frozen {
            Some(file) => file.clone().ok_or_else(|| ErrorKind::NotFound.into()),
            None => self.files.open(path),
        }
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.files.fs.free_bytes(dir)
    }

    /// Views and writers do not exclude each other.
    fn lock(&self, _: &Path, _: LockKind) -> io::Result<Box<dyn LockGuard>> {
        Ok(Box::new(NoLock))
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn create(&self, _: &Path) -> io::Result<Arc<dyn AppendFile>> {
        refused()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn hard_link(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }
}

#[derive(Debug)]
struct NoLock;

impl LockGuard for NoLock {
    fn is_in_place(&self) -> io::Result<bool> {
        Ok(true)
    }
}

#[derive(Debug)]
pub(super) struct InMemory(pub(super) Vec<u8>);

impl ReadFile for InMemory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..));
        let bytes = from.and_then(|bytes| bytes.get(..buffer.len())).ok_or(ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}
