//! A file system in memory whose operations fail without effect, with half of it, or with all of it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::fs::{AppendFile, Fs, LockGuard, LockKind, MemFs, ReadFile};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Call<'a> {
    Open(&'a Path),
    Create(&'a Path),
    Append(&'a Path),
    Sync(&'a Path),
    SyncDir,
    Rename,
    Remove(&'a Path),
}

impl Call<'_> {
    /// Returns the end of the file's name; empty for other operations.
    pub(crate) fn kind(&self) -> String {
        let path = match self {
            Self::Open(path)
            | Self::Create(path)
            | Self::Append(path)
            | Self::Sync(path)
            | Self::Remove(path) => path,
            Self::SyncDir | Self::Rename => return String::new(),
        };
        let name = path.file_name().unwrap().to_string_lossy();
        if name.starts_with("MANIFEST") { "manifest".into() } else { name.rsplit('.').next().unwrap().into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// The first half of an append, or the whole effect of another operation.
    Half,
    All,
}

impl Effect {
    pub(crate) const EACH: [Self; 3] = [Self::None, Self::Half, Self::All];
}

type Judge = dyn Fn(&MemFs, Call<'_>) -> Option<(Effect, io::Error)> + Send + Sync;

#[derive(Clone)]
pub(crate) struct FaultyFs {
    pub(crate) mem: MemFs,
    pub(crate) tells_free: Arc<AtomicBool>,
    judge: Arc<Mutex<Arc<Judge>>>,
}

impl std::fmt::Debug for FaultyFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.mem.fmt(f)
    }
}

impl FaultyFs {
    pub(crate) fn new(mem: &MemFs) -> Self {
        let judge: Arc<Judge> = Arc::new(|_, _| None);
        Self { mem: mem.clone(), tells_free: Arc::default(), judge: Arc::new(Mutex::new(judge)) }
    }

    pub(crate) fn judge(
        &self,
        judge: impl Fn(&MemFs, Call<'_>) -> Option<(Effect, io::Error)> + Send + Sync + 'static,
    ) {
        *self.judge.lock().unwrap() = Arc::new(judge);
    }

    pub(crate) fn recover(&self) {
        self.judge(|_, _| None);
    }

    fn act<T>(&self, call: Call<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let judge = Arc::clone(&self.judge.lock().unwrap());
        match judge(&self.mem, call) {
            None => act(),
            Some((Effect::None, error)) => Err(error),
            Some((_, error)) => act().and(Err(error)),
        }
    }
}

impl Fs for FaultyFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.mem.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.mem.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.act(Call::SyncDir, || self.mem.sync_dir(dir))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let file = self.act(Call::Create(path), || self.mem.create(path))?;
        Ok(Arc::new(FaultyFile { fs: self.clone(), path: path.to_path_buf(), file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.act(Call::Open(path), || self.mem.open(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.act(Call::Rename, || self.mem.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.act(Call::Remove(path), || self.mem.remove(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.mem.hard_link(from, to)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<Option<u64>> {
        if self.tells_free.load(Ordering::SeqCst) { self.mem.free_bytes(dir) } else { Ok(None) }
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>> {
        self.mem.lock(path, kind)
    }
}

#[derive(Debug)]
struct FaultyFile {
    fs: FaultyFs,
    path: PathBuf,
    file: Arc<dyn AppendFile>,
}

impl AppendFile for FaultyFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let judge = Arc::clone(&self.fs.judge.lock().unwrap());
        match judge(&self.fs.mem, Call::Append(&self.path)) {
            None => self.file.append(bytes),
            Some((effect, error)) => {
                let len = match effect {
                    Effect::None => 0,
                    Effect::Half => bytes.len() / 2,
                    Effect::All => bytes.len(),
                };
                self.file.append(&bytes[..len]).and(Err(error))
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.fs.act(Call::Sync(&self.path), || self.file.sync())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}
