//! The files of live views, as a file system that changes nothing.
//!
//! A live view ([`live_view`](super::live_view)) holds its tables and filters open, so that they can be read after the
//! writer has removed them. [`ViewFiles`] are those of a view and of the later ones that it was refreshed to; they share
//! open tables. [`ViewFs`] reads from them. The files that change (`CURRENT`, manifest, logs) belong to one view: its
//! [`Moment`] has them as they were then.
//!
//! A view holds as many files as its limit allows. It opens the others by name whenever they are read. If the writer has removed
//! one by then, that is [`Error::Changed`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::cache::FileCache;
use crate::error::Error;
use crate::filename::FileName;
use crate::fs::{AppendFile, Fs, LockGuard, LockKind, ReadFile};
use crate::sync::lock;

/// The tables and filters of a view and of those that it was refreshed to.
#[derive(Debug)]
pub(super) struct ViewFiles {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) dir: PathBuf,
    /// Most files that a view holds open.
    pub(super) open_max: usize,
    named: Mutex<BTreeMap<FileName, Weak<NamedFile>>>,
    /// The open files of the tables of these views.
    cache: Arc<OnceLock<Arc<FileCache>>>,
}

/// A table or filter that a view names.
#[derive(Debug)]
pub(super) struct NamedFile {
    name: FileName,
    /// `None` if it is not held open.
    pub(super) file: Option<Arc<dyn ReadFile>>,
    cache: Arc<OnceLock<Arc<FileCache>>>,
}

impl Drop for NamedFile {
    /// Closes the file after the last view that names it.
    fn drop(&mut self) {
        if let (Some(cache), Some(number)) = (self.cache.get(), self.name.number()) {
            cache.remove(number);
        }
    }
}

impl ViewFiles {
    pub(super) fn new(fs: Arc<dyn Fs>, dir: &Path, open_max: usize) -> Arc<Self> {
        let (named, cache) = (Mutex::default(), Arc::default());
        Arc::new(Self { fs, dir: dir.to_path_buf(), open_max, named, cache })
    }

    /// Sets the cache from which a file is removed with the last view that names it.
    pub(super) fn set_cache(&self, cache: &Arc<FileCache>) {
        self.cache.get_or_init(|| Arc::clone(cache));
    }

    pub(super) fn path(&self, name: FileName) -> PathBuf {
        name.path(&self.dir)
    }

    pub(super) fn name(&self, name: FileName, file: Option<Arc<dyn ReadFile>>) -> Arc<NamedFile> {
        let named = Arc::new(NamedFile { name, file, cache: Arc::clone(&self.cache) });
        let mut all = lock(&self.named);
        all.retain(|_, named| named.strong_count() > 0);
        all.insert(name, Arc::downgrade(&named));
        named
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let named = name_of(path, &self.dir).and_then(|name| lock(&self.named).get(&name)?.upgrade());
        match named {
            None => self.fs.open(path),
            Some(named) => {
                named.file.as_ref().map_or_else(|| self.open_again(path), |file| Ok(Arc::clone(file)))
            }
        }
    }

    /// Opens a file that the view does not hold open.
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

/// The name of a file that lies in `dir`, if a store has such names.
fn name_of(path: &Path, dir: &Path) -> Option<FileName> {
    if path.parent() != Some(dir) {
        return None;
    }
    FileName::parse(path.file_name()?.to_str()?)
}

/// The files that may change, as a view saw them, and the names in the directory.
#[derive(Debug, Default)]
pub(super) struct Moment {
    pub(super) frozen: BTreeMap<FileName, Arc<dyn ReadFile>>,
    pub(super) names: Vec<OsString>,
}

/// A file system in which the store is as a view sees it. Every change is refused with [`Error::ReadOnly`].
#[derive(Debug)]
pub(super) struct ViewFs {
    pub(super) files: Arc<ViewFiles>,
    /// `None`: of tables and filters only.
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
        frozen.map_or_else(|| self.files.open(path), |file| Ok(Arc::clone(file)))
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

/// A small file that is in memory.
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
