//! Files of a locked directory. They are opened relative to its handle, because its path may later name another
//! directory.
//!
//! Both the directory and its file `LOCK` are locked, because `LOCK` may be deleted. [`LockGuard::is_in_place`] detects
//! a replaced directory by device and inode.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, Stat, fstat, fstatvfs, linkat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::std_file::{StdFile, free_bytes, lock_file, not_regular};
use super::{AppendFile, Fs, HeldByThisProcess, LockGuard, LockKind, ReadFile};
use crate::sync::lock;

type Identity = (u64, u64);

/// Contains the process id, because a forked process inherits the list.
static HELD: Mutex<Vec<(u32, Identity)>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct DirFs {
    path: PathBuf,
    handle: File,
    others: &'static dyn Fs,
}

#[derive(Debug)]
pub(super) struct DirLock {
    dir: Arc<DirFs>,
    /// Absolute, because the process may change its working directory.
    found_at: PathBuf,
    /// Closing the handle releases the lock.
    file: Option<(OsString, Stat, File)>,
    entry: (u32, Identity),
}

pub(super) fn lock_dir(path: &Path, kind: LockKind, others: &'static dyn Fs) -> io::Result<DirLock> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "a lock needs a file in a directory");
    let (parent, name) = path.parent().zip(path.file_name()).ok_or_else(invalid)?;
    let found_at = std::path::absolute(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    let dir = Arc::new(DirFs { path: parent.to_path_buf(), handle: File::open(&found_at)?, others });
    let entry = (std::process::id(), identity(&dir.handle)?);
    let blocked = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock if lock(&HELD).contains(&entry) => {
            io::Error::new(io::ErrorKind::WouldBlock, HeldByThisProcess)
        }
        _ => error,
    };
    match lock_file(&dir.handle, kind) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(blocked(error)),
        // Some network file systems cannot lock a directory.
        _ => {}
    }
    let file = match open_lock_file(&dir, name, kind) {
        Ok(file) => {
            lock_file(&file, kind).map_err(blocked)?;
            Some((name.to_owned(), fstat(&file)?, file))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && kind == LockKind::Shared => None,
        Err(error) => return Err(error),
    };
    lock(&HELD).push(entry);
    Ok(DirLock { dir, found_at, file, entry })
}

fn open_lock_file(dir: &DirFs, name: &OsStr, kind: LockKind) -> io::Result<File> {
    let common = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = match kind {
        LockKind::Exclusive => OFlags::RDWR | OFlags::CREATE | common,
        LockKind::Shared => OFlags::RDONLY | common,
    };
    regular(openat(&dir.handle, name, flags, Mode::RUSR | Mode::WUSR))
}

fn regular(opened: rustix::io::Result<std::os::fd::OwnedFd>) -> io::Result<File> {
    match opened {
        // It is a link, a socket, or a pipe without a reader.
        Err(Errno::LOOP | Errno::MLINK | Errno::NXIO | Errno::ISDIR) => Err(not_regular()),
        Err(error) => Err(error.into()),
        Ok(handle) => {
            let file = File::from(handle);
            if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
        }
    }
}

fn identity(file: &File) -> io::Result<Identity> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

impl LockGuard for DirLock {
    fn fs(&self) -> Option<Arc<dyn Fs>> {
        Some(Arc::clone(&self.dir) as Arc<dyn Fs>)
    }

    fn is_in_place(&self) -> io::Result<bool> {
        use io::ErrorKind::{NotADirectory, NotFound};
        match std::fs::metadata(&self.found_at) {
            Ok(found) if (found.dev(), found.ino()) != self.entry.1 => return Ok(false),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(false),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let Some((name, held, _)) = &self.file else { return Ok(true) };
        match statat(&self.dir.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok((found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // After a fork, the lock belongs to the parent process, and a thread that does not exist here may hold the
        // mutex.
        if self.entry.0 != std::process::id() {
            return;
        }
        let _ = self.dir.handle.unlock();
        let mut held = lock(&HELD);
        if let Some(at) = held.iter().position(|entry| *entry == self.entry) {
            held.swap_remove(at);
        }
    }
}

impl DirFs {
    fn place<'a>(&'a self, path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if parent == self.path => (self.handle.as_fd(), Path::new(name)),
            _ => (CWD, path),
        }
    }
}

impl Fs for DirFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.others.create_dir(dir)
    }

    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        self.others.canonical(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        if dir != self.path {
            return self.others.list(dir);
        }
        let name = |entry: rustix::fs::DirEntry| OsString::from_vec(entry.file_name().to_bytes().to_vec());
        let names = Dir::read_from(&self.handle)?.map(|entry| Ok(name(entry?)));
        names.filter(|name| !matches!(name, Ok(name) if name == "." || name == "..")).collect()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if dir == self.path { self.handle.sync_all() } else { self.others.sync_dir(dir) }
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let (dir, name) = self.place(path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let handle = openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Arc::new(StdFile(File::from(handle))))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let (dir, name) = self.place(path);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(Arc::new(StdFile(regular(openat(dir, name, flags, Mode::empty()))?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.place(from), self.place(to));
        Ok(renameat(from_dir, from, to_dir, to)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path);
        Ok(unlinkat(dir, name, AtFlags::empty())?)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.place(from), self.place(to));
        Ok(linkat(from_dir, from, to_dir, to, AtFlags::empty())?)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.others.remove_dir(dir)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<Option<u64>> {
        if dir != self.path {
            return self.others.free_bytes(dir);
        }
        Ok(free_bytes(&fstatvfs(&self.handle)?))
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>> {
        self.others.lock(path, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::super::StdFs;
    use super::*;

    #[test]
    fn what_is_free_is_that_of_the_disk_of_the_directory_also_after_it_was_renamed() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, moved) = (parent.path().join("db"), parent.path().join("moved"));
        std::fs::create_dir(&dir).unwrap();
        let disk = rustix::fs::statvfs(&dir).unwrap();
        let size = disk.f_blocks * disk.f_frsize;
        let is_of_disk =
            |free: Option<u64>| free.is_none_or(|free| free <= size) && free.is_some() == (size > 0);
        assert!(is_of_disk(StdFs.free_bytes(&dir).unwrap()));
        let guard = StdFs.lock(&dir.join("LOCK"), LockKind::Exclusive).unwrap();
        std::fs::rename(&dir, &moved).unwrap();
        assert!(is_of_disk(guard.fs().unwrap().free_bytes(&dir).unwrap()));
        assert!(StdFs.free_bytes(&dir).is_err());
    }

    #[test]
    fn files_are_reached_through_the_handle_after_the_directory_was_renamed() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, moved) = (parent.path().join("db"), parent.path().join("moved"));
        std::fs::create_dir(&dir).unwrap();
        let guard = StdFs.lock(&dir.join("LOCK"), LockKind::Exclusive).unwrap();
        let fs = guard.fs().unwrap();
        assert!(guard.is_in_place().unwrap());
        std::fs::rename(&dir, &moved).unwrap();
        assert!(!guard.is_in_place().unwrap());
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("LOCK"), "").unwrap();
        assert!(!guard.is_in_place().unwrap());
        fs.create(&dir.join("a")).unwrap().append(b"here").unwrap();
        assert_eq!(std::fs::read(moved.join("a")).unwrap(), b"here");
        fs.rename(&dir.join("a"), &dir.join("b")).unwrap();
        fs.hard_link(&dir.join("b"), &dir.join("c")).unwrap();
        fs.remove(&dir.join("b")).unwrap();
        fs.sync_dir(&dir).unwrap();
        assert_eq!(fs.open(&dir.join("c")).unwrap().len().unwrap(), 4);
        let mut names = fs.list(&dir).unwrap();
        names.sort();
        assert_eq!(names, ["LOCK", "c"]);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "nothing in the new directory");
        drop(guard);
        StdFs.lock(&moved.join("LOCK"), LockKind::Exclusive).expect("it is free although the handle is kept");
        assert!(fs.open(&dir.join("c")).is_ok());
    }

    #[test]
    fn a_lock_file_that_is_removed_or_replaced_is_noticed_and_lets_nobody_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let guard = StdFs.lock(&path, LockKind::Exclusive).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!guard.is_in_place().unwrap());
        std::fs::write(&path, "").unwrap();
        assert!(!guard.is_in_place().unwrap(), "another file of the same name");
        for kind in [LockKind::Exclusive, LockKind::Shared] {
            assert_eq!(StdFs.lock(&path, kind).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_pipe_a_link_or_a_directory_is_no_lock_and_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let refused = || {
            for kind in [LockKind::Exclusive, LockKind::Shared] {
                let error = StdFs.lock(&path, kind).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            }
        };
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        refused();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        refused();
        assert!(!dir.path().join("elsewhere").exists());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        refused();
    }
}
