//! The operating system's file system.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(unix)]
use super::std_file::free_bytes;
#[cfg(not(unix))]
use super::std_file::lock_file;
use super::std_file::{StdFile, not_regular};
use super::{AppendFile, Fs, LockGuard, LockKind, ReadFile};

/// The operating system's file system. On Unix, files are created with mode 0600 and directories with 0700.
#[derive(Debug, Clone, Copy, Default)]
pub struct StdFs;

impl Fs for StdFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        match make_dir(dir) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            // The parent exists, but allows no new files (below /proc, or a removed working directory).
            Err(error) if error.kind() == io::ErrorKind::NotFound => match dir.parent() {
                Some(parent) if !parent.as_os_str().is_empty() && !parent.exists() => {
                    self.create_dir(parent)?;
                    self.create_dir(dir)
                }
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(dir)
    }

    fn has_dangling_link(&self, path: &Path) -> bool {
        let mut links = path.ancestors().filter(|path| path.is_symlink());
        links.any(|link| !link.exists())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    #[cfg(unix)]
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match File::open(dir) {
            // A process without write permission cannot have changed the directory, so it needs no sync.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !may_write(dir) => Ok(()),
            opened => opened?.sync_all(),
        }
    }

    /// Does nothing: this platform cannot sync a directory, but its file system journals renames.
    #[cfg(not(unix))]
    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Arc::new(StdFile(options.open(path)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        // Checked first, because opening would wait for the writer of a pipe, or follow a link.
        if !fs::symlink_metadata(path)?.is_file() {
            return Err(not_regular());
        }
        Ok(Arc::new(StdFile(File::open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    #[cfg(unix)]
    fn free_bytes(&self, dir: &Path) -> io::Result<Option<u64>> {
        Ok(free_bytes(&rustix::fs::statvfs(dir)?))
    }

    #[cfg(unix)]
    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>> {
        Ok(Box::new(super::dir_fs::lock_dir(path, kind, &StdFs)?))
    }

    #[cfg(not(unix))]
    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>> {
        let file = match kind {
            LockKind::Exclusive => {
                let mut options = OpenOptions::new();
                Some(options.read(true).write(true).create(true).truncate(false).open(path)?)
            }
            LockKind::Shared => match File::open(path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            },
        };
        if let Some(file) = &file {
            if !file.metadata()?.is_file() {
                return Err(not_regular());
            }
            lock_file(file, kind)?;
        }
        Ok(Box::new(StdLock { _file: file }))
    }
}

#[cfg(unix)]
fn may_write(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(unix)]
fn make_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(dir)
}

#[cfg(not(unix))]
fn make_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)
}

/// The lock lives as long as its file is open, which prevents moves on these systems.
#[cfg(not(unix))]
#[derive(Debug)]
struct StdLock {
    _file: Option<File>,
}

#[cfg(not(unix))]
impl LockGuard for StdLock {
    fn is_in_place(&self) -> io::Result<bool> {
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_from_any_offset_and_none_past_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..10_000u32).map(|n| (n % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let file = StdFs.open(&path).unwrap();
        for (offset, len) in [(0, 0), (0, 1), (0, 10_000), (4096, 4116), (9_999, 1), (10_000, 0)] {
            let read = file.read_to_vec(len, offset as u64).unwrap();
            assert_eq!(read, bytes[offset..offset + len]);
        }
        for (offset, len) in [(0, 10_001), (9_999, 2), (10_000, 1), (20_000, 1)] {
            let error = file.read_to_vec(len, offset).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_without_a_target_is_found_at_and_above_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(StdFs.has_dangling_link(&link) && StdFs.has_dangling_link(&link.join("below")));
        assert!(!StdFs.has_dangling_link(&target));
        fs::create_dir(&target).unwrap();
        assert!(!StdFs.has_dangling_link(&link) && !StdFs.has_dangling_link(&link.join("below")));
    }

    #[test]
    fn behind_what_was_appended_a_file_that_was_made_longer_is_zeros_and_appends_go_on_there() {
        let (dir, mem) = (tempfile::tempdir().unwrap(), crate::fs::MemFs::new());
        mem.create_dir(dir.path()).unwrap();
        for fs in [&StdFs as &dyn Fs, &mem] {
            let path = dir.path().join("f");
            let (file, read) = (fs.create(&path).unwrap(), fs.open(&path).unwrap());
            let all = || read.read_to_vec(read.len().unwrap() as usize, 0).unwrap();
            file.append(b"ab").unwrap();
            file.set_len(6).unwrap();
            file.append(b"c").unwrap();
            assert_eq!(all(), b"abc\0\0\0");
            file.append(b"defgh").unwrap();
            assert_eq!(all(), b"abcdefgh");
            file.set_len(10).unwrap();
            file.set_len(8).unwrap();
            assert_eq!(all(), b"abcdefgh");
        }
    }

    #[test]
    fn a_directory_a_link_and_a_missing_file_are_refused_for_reading() {
        let dir = tempfile::tempdir().unwrap();
        assert!(StdFs.open(dir.path()).is_err());
        assert_eq!(StdFs.open(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        #[cfg(unix)]
        {
            let (file, link) = (dir.path().join("file"), dir.path().join("link"));
            StdFs.create(&file).unwrap();
            std::os::unix::fs::symlink(&file, &link).unwrap();
            assert!(StdFs.open(&link).is_err());
        }
    }

    #[cfg(unix)]
    #[test]
    fn files_and_directories_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        StdFs.create_dir(&inner).unwrap();
        StdFs.create_dir(&inner).unwrap();
        StdFs.create(&inner.join("f")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&inner), mode(&inner.join("f"))), (0o700, 0o600));
        assert!(StdFs.create(&inner.join("f")).is_err());
    }

    #[test]
    fn an_exclusive_lock_excludes_and_shared_ones_do_not_exclude_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let none = StdFs.lock(&path, LockKind::Shared).unwrap();
        assert!(!path.exists(), "a shared lock writes nothing");
        drop(none);
        let held = StdFs.lock(&path, LockKind::Exclusive).unwrap();
        for kind in [LockKind::Exclusive, LockKind::Shared] {
            let error = StdFs.lock(&path, kind).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            #[cfg(unix)]
            assert!(error.get_ref().is_some_and(|inner| inner.is::<crate::fs::HeldByThisProcess>()));
        }
        drop(held);
        let _one = StdFs.lock(&path, LockKind::Shared).unwrap();
        let _two = StdFs.lock(&path, LockKind::Shared).unwrap();
        assert!(StdFs.lock(&path, LockKind::Exclusive).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_that_cannot_be_made_though_its_parent_is_there_is_an_error() {
        let error = StdFs.create_dir(Path::new("/proc/sievedb/below")).unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error:?}");
        assert!(StdFs.create_dir(Path::new("/proc/sievedb")).is_err());
    }
}
