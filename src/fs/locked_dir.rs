//! The directory of an open store, used for every file operation of the store.
//!
//! Invariant: the directory changes only while this process holds its lock and the path leads to it.
//!
//! - *Released*: [`LockedDir::release`] waits for running operations. Later changes return [`Error::Closed`].
//! - *Moved or unlocked*: before a removal or a rename, and after each sync, directory and `LOCK` are compared with the
//!   locked ones ([`LockGuard::is_in_place`]). If they differ, the operation and all later changes return
//!   [`Error::LockLost`].
//! - *Forked*: each create, sync, rename and remove checks the process id, and fails with [`Error::Forked`]. This check
//!   takes a system call, so frequent operations use the fork counter of the C library ([`LockedDir::check_not_forked`]).
//!
//! If too many files are open, a cached file is closed. Reads are never refused, because iterators may outlive the store.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::process::Process;
use super::{AppendFile, Fs, LockGuard, LockKind, ReadFile, is_out_of_files, refuses_dir_syncs};
use crate::error::{Error, Result};
use crate::sync::lock;

type CloseSpare = dyn Fn() -> bool + Send + Sync;

pub(crate) struct LockedDir {
    fs: Arc<dyn Fs>,
    held: Arc<Held>,
    close_spare: Mutex<Option<Arc<CloseSpare>>>,
    refuses_dir_syncs: AtomicBool,
}

#[derive(Debug)]
struct Held {
    dir: PathBuf,
    process: Process,
    /// `None` after the release. Changes hold a read lock.
    guard: RwLock<Option<Box<dyn LockGuard>>>,
    is_lost: AtomicBool,
}

/// The check after a sync, because the synced file may be in another directory.
pub(crate) const LOOK_AFTER_SYNC: &str = "look at the directory after a sync of";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Never,
    Before,
    Both,
}

impl Held {
    fn change<T>(&self, compare: Compare, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.check_process()?;
        self.under_lock(compare, act)
    }

    fn sync(&self, path: &Path, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.change(Compare::Never, sync)?;
        let look = self.change(Compare::Before, || Ok(()));
        Ok(look.map_err(|error| Error::io(LOOK_AFTER_SYNC, path, error))?)
    }

    fn under_lock<T>(&self, compare: Compare, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let guard = self.guard.read().unwrap_or_else(PoisonError::into_inner);
        let guard = guard.as_deref().ok_or(Error::Closed)?;
        if self.is_lost.load(Ordering::Acquire) {
            return Err(self.lost());
        }
        if matches!(compare, Compare::Before | Compare::Both) {
            self.compare(guard)?;
        }
        let done = act()?;
        if compare == Compare::Both {
            self.compare(guard)?;
        }
        Ok(done)
    }

    fn compare(&self, guard: &dyn LockGuard) -> io::Result<()> {
        if guard.is_in_place()? {
            return Ok(());
        }
        self.is_lost.store(true, Ordering::Release);
        Err(self.lost())
    }

    fn lost(&self) -> io::Error {
        Error::LockLost { dir: self.dir.clone() }.into()
    }

    fn check_process(&self) -> Result<()> {
        if self.process.is_this() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { opened_by: self.process.id() }
    }
}

impl fmt::Debug for LockedDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedDir").field("held", &self.held).finish_non_exhaustive()
    }
}

impl LockedDir {
    pub(crate) fn new(dir: &Path, fs: &Arc<dyn Fs>, guard: Box<dyn LockGuard>) -> Arc<Self> {
        Arc::new(Self {
            fs: guard.fs().unwrap_or_else(|| Arc::clone(fs)),
            held: Arc::new(Held {
                dir: dir.to_path_buf(),
                process: Process::this(),
                guard: RwLock::new(Some(guard)),
                is_lost: AtomicBool::new(false),
            }),
            close_spare: Mutex::default(),
            refuses_dir_syncs: AtomicBool::new(false),
        })
    }

    pub(crate) fn close_spare_with(&self, close: impl Fn() -> bool + Send + Sync + 'static) {
        *lock(&self.close_spare) = Some(Arc::new(close));
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        self.held.check_process()
    }

    /// Makes no system call: see [`Process::is_this_by_forks`].
    #[inline]
    pub(crate) fn check_not_forked(&self) -> Result<()> {
        if self.held.process.is_this_by_forks() { Ok(()) } else { Err(self.held.forked()) }
    }

    pub(crate) fn unlocked(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    pub(crate) fn check(&self) -> io::Result<()> {
        self.held.change(Compare::Before, || Ok(()))
    }

    pub(crate) fn has_lost_lock(&self) -> bool {
        self.held.is_lost.load(Ordering::Acquire)
    }

    pub(crate) fn refuses_dir_syncs(&self) -> bool {
        self.refuses_dir_syncs.load(Ordering::Relaxed)
    }

    fn sync_dir_if_it_can(&self, dir: &Path) -> io::Result<()> {
        match self.with_room(|| self.fs.sync_dir(dir)) {
            Err(error) if refuses_dir_syncs(&error) => {
                if !self.refuses_dir_syncs.swap(true, Ordering::Relaxed) {
                    tracing::warn!(dir = %dir.display(), %error, "the file system does not sync directories");
                }
                Ok(())
            }
            result => result,
        }
    }

    pub(crate) fn release(&self) {
        *self.held.guard.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn with_room<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match open() {
                Err(error) if is_out_of_files(&error) && self.closed_spare() => {}
                result => return result,
            }
        }
    }

    fn closed_spare(&self) -> bool {
        let close = lock(&self.close_spare).clone();
        close.is_some_and(|close| close())
    }
}

impl Fs for LockedDir {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.held.change(Compare::Never, || self.fs.create_dir(dir))
    }

    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        self.fs.canonical(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.with_room(|| self.fs.list(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.held.sync(dir, || self.sync_dir_if_it_can(dir))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let create = || self.with_room(|| self.fs.create(path));
        let file = self.held.change(Compare::Never, create)?;
        Ok(Arc::new(HeldFile { file, path: path.to_path_buf(), held: Arc::clone(&self.held) }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.with_room(|| self.fs.open(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.held.change(Compare::Both, || self.fs.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.held.change(Compare::Before, || self.fs.remove(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.held.change(Compare::Before, || self.fs.hard_link(from, to))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.held.change(Compare::Before, || self.fs.remove_dir(dir))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.fs.free_bytes(dir)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>> {
        self.fs.lock(path, kind)
    }
}

#[derive(Debug)]
struct HeldFile {
    file: Arc<dyn AppendFile>,
    path: PathBuf,
    held: Arc<Held>,
}

impl AppendFile for HeldFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        // The caller has checked the process.
        self.held.under_lock(Compare::Never, || self.file.append(bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.held.sync(&self.path, || self.file.sync())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.held.under_lock(Compare::Never, || self.file.set_len(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemFs;
    use std::sync::Mutex;

    const DIR: &str = "/db";
    const CLOSED: &str = "the store is closed";

    fn locked(mem: &MemFs) -> Arc<LockedDir> {
        let (dir, fs): (_, Arc<dyn Fs>) = (Path::new(DIR), Arc::new(mem.clone()));
        fs.create_dir(dir).unwrap();
        let guard = fs.lock(&dir.join("LOCK"), LockKind::Exclusive).unwrap();
        LockedDir::new(dir, &fs, guard)
    }

    fn refusal<T: fmt::Debug>(result: io::Result<T>) -> String {
        Error::io("change", Path::new(DIR), result.unwrap_err()).to_string()
    }

    #[test]
    fn nothing_is_changed_once_the_lock_is_given_up_and_reading_goes_on() {
        let mem = MemFs::new();
        let dir = locked(&mem);
        let path = Path::new(DIR).join("a");
        let file = dir.create(&path).unwrap();
        dir.release();
        let before = mem.files(Path::new(DIR));
        assert_eq!(refusal(file.append(b"x")), CLOSED);
        assert_eq!(refusal(file.sync()), CLOSED);
        assert_eq!(refusal(dir.create(&path.with_extension("b"))), CLOSED);
        assert_eq!(refusal(dir.remove(&path)), CLOSED);
        assert_eq!(refusal(dir.sync_dir(Path::new(DIR))), CLOSED);
        assert_eq!(refusal(dir.rename(&path, &path.with_extension("b"))), CLOSED);
        assert_eq!(mem.files(Path::new(DIR)), before);
        assert!(dir.open(&path).is_ok());
    }

    #[test]
    fn a_sync_that_ends_after_the_lock_was_lost_is_refused_and_so_is_all_that_follows() {
        let mem = MemFs::new();
        let dir = locked(&mem);
        let path = Path::new(DIR).join("a");
        let file = dir.create(&path).unwrap();
        file.append(b"x").unwrap();
        let lock = Path::new(DIR).join("LOCK");
        mem.remove(&lock).unwrap();
        let lost = Error::LockLost { dir: DIR.into() }.to_string();
        assert_eq!(refusal(file.sync()), lost);
        mem.overwrite(&lock, Vec::new());
        assert_eq!(refusal(file.append(b"x")), lost);
        assert_eq!(refusal(dir.remove(&path)), lost);
    }

    #[test]
    fn a_file_that_finds_no_room_takes_the_place_of_a_spare_one() {
        let mem = MemFs::new();
        let dir = locked(&mem);
        let spare = Arc::new(Mutex::new(2));
        let left = Arc::clone(&spare);
        dir.close_spare_with(move || {
            let mut left = left.lock().unwrap();
            *left -= 1;
            *left >= 0
        });
        let out_of_files = || io::Error::from_raw_os_error(if cfg!(unix) { 24 } else { 4 });
        let mut failures = vec![Err(out_of_files()), Err(out_of_files()), Ok(7)];
        let failures = std::cell::RefCell::new(failures.drain(..));
        assert_eq!(dir.with_room(|| failures.borrow_mut().next().unwrap()).unwrap(), 7);
        let none: io::Result<()> = dir.with_room(|| Err(out_of_files()));
        assert!(is_out_of_files(&none.unwrap_err()), "no spare file is left");
    }

    /// A lock whose check fails while the flag is set.
    #[derive(Debug)]
    struct Unseen(Arc<AtomicBool>);

    impl LockGuard for Unseen {
        fn is_in_place(&self) -> io::Result<bool> {
            if self.0.load(Ordering::SeqCst) { Err(io::Error::other("broken")) } else { Ok(true) }
        }
    }

    #[test]
    fn a_look_that_fails_after_a_sync_is_named_and_is_no_failed_sync() {
        let mem = MemFs::new();
        let (dir, fs): (_, Arc<dyn Fs>) = (Path::new(DIR), Arc::new(mem.clone()));
        fs.create_dir(dir).unwrap();
        let is_unseen = Arc::new(AtomicBool::new(false));
        let locked = LockedDir::new(dir, &fs, Box::new(Unseen(Arc::clone(&is_unseen))));
        let path = dir.join("a");
        let file = locked.create(&path).unwrap();
        file.append(b"x").unwrap();
        is_unseen.store(true, Ordering::SeqCst);
        let as_store = |result: io::Result<()>| Error::io("sync", Path::new("?"), result.unwrap_err());
        for (error, about) in [(as_store(file.sync()), &*path), (as_store(locked.sync_dir(dir)), dir)] {
            assert!(
                matches!(&error, Error::Io { op: LOOK_AFTER_SYNC, path, .. } if path == about),
                "{error}"
            );
            let text = format!("cannot look at the directory after a sync of {}: broken", about.display());
            assert_eq!(error.to_string(), text);
        }
        assert!(mem.is_durable(&path), "the syncs were made");
        assert!(
            locked.remove(&path).is_err() && mem.open(&path).is_ok(),
            "before a change nothing is changed"
        );
        is_unseen.store(false, Ordering::SeqCst);
        locked.remove(&path).unwrap();
    }
}
