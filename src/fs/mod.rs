//! All file operations of the store, as one small trait.
//!
//! Files are only created, appended to, synced, renamed and removed, never overwritten. So a crash can leave few
//! states, and tests try each of them with [`MemFs`]. A log may have zeros after its contents.

#[cfg(unix)]
mod dir_fs;
mod frozen_file;
mod locked_dir;
mod mem;
mod memory_limit;
mod process;
mod std_file;
mod std_fs;

pub(crate) use frozen_file::FrozenFile;
pub(crate) use locked_dir::{LOOK_AFTER_SYNC, LockedDir};
pub use mem::{CrashPolicy, MemFs, Op};
pub(crate) use memory_limit::{MemoryLimit, memory_limit};
pub use std_fs::StdFs;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A file system, shared by all threads of a store. A wrapper must forward [`Fs::lock`], and wrap the file system of
/// [`LockGuard::fs`].
pub trait Fs: Debug + Send + Sync + 'static {
    /// Creates a directory and its missing parents, for the owner only. Succeeds if it exists. Durable after a
    /// [`Fs::sync_dir`] of each parent.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The path of an existing directory without links, `.` and `..`. The default is for file systems in which each
    /// directory has one path.
    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        Ok(dir.to_path_buf())
    }

    /// Returns whether this path or a parent is a symbolic link without a target.
    fn has_dangling_link(&self, _path: &Path) -> bool {
        false
    }

    /// The names in a directory, in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Makes creations, renames and removals in `dir` durable. `InvalidInput` and `Unsupported` mean that the file
    /// system does not support this: see
    /// [`OpenReport::directory_syncs_refused`](crate::OpenReport::directory_syncs_refused).
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Creates a file that only the owner can access. Fails with `AlreadyExists` if it exists.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>>;

    /// Opens a regular file for reading. Fails for other kinds of files.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Renames a file, and atomically replaces an existing file. Also renames a directory to an unused name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Open handles must stay readable.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name. On `Unsupported`, `PermissionDenied`, `TooManyLinks` or `CrossesDevices`, the store
    /// copies the file.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes an empty directory. The default fails with `Unsupported`, which leaves a directory after a failed
    /// checkpoint.
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let _ = dir;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the free bytes of the directory's disk. `None`, the default, means unknown.
    fn free_bytes(&self, dir: &Path) -> io::Result<Option<u64>> {
        let _ = dir;
        Ok(None)
    }

    /// Locks the file `path` and its directory until the guard is dropped or the process dies. Does not wait: if the
    /// lock is held, fails with `WouldBlock`, with [`HeldByThisProcess`] inside if this process holds it. If the file
    /// is missing, an exclusive lock creates it, and a shared lock locks only the directory. A `path` that is not a
    /// regular file is an error.
    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>>;
}

/// Creates missing directories of `path`, then returns whether `path` is `dir` or below it. `dir` must exist.
pub(crate) fn lies_in(fs: &dyn Fs, path: &Path, dir: &Path) -> io::Result<bool> {
    Ok(canonical_of_missing(fs, path)?.starts_with(fs.canonical(dir)?))
}

fn canonical_of_missing(fs: &dyn Fs, path: &Path) -> io::Result<PathBuf> {
    for parent in path.ancestors() {
        let found = fs.canonical(if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        let mut found = match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found?,
        };
        let missing: Vec<Component<'_>> = path.components().skip(parent.components().count()).collect();
        let leads_back = missing.contains(&Component::ParentDir);
        for component in missing {
            match component {
                Component::ParentDir => _ = found.pop(),
                other => found.push(other),
            }
        }
        // A `..` may lead back to an existing link.
        return if leads_back { canonical_of_missing(fs, &found) } else { Ok(found) };
    }
    Err(io::ErrorKind::NotFound.into())
}

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// A lock with one holder.
    Exclusive,
    /// A lock with any number of holders, which excludes exclusive locks.
    Shared,
}

/// A held lock.
pub trait LockGuard: Debug + Send + Sync {
    /// Returns a file system that accesses the locked directory through its handle under the same paths, even after a
    /// move. `None` selects the file system that gave the lock.
    fn fs(&self) -> Option<Arc<dyn Fs>> {
        None
    }

    /// Returns whether the path still leads to the locked directory, with the same lock file in it.
    ///
    /// # Errors
    ///
    /// The error of the system.
    fn is_in_place(&self) -> io::Result<bool>;
}

/// The source of a `WouldBlock` error of [`Fs::lock`] if this process holds the lock.
#[derive(Debug, Clone, Copy)]
pub struct HeldByThisProcess;

impl std::fmt::Display for HeldByThisProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this process holds the lock")
    }
}

impl std::error::Error for HeldByThisProcess {}

pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    #[cfg(unix)]
    let codes = [rustix::io::Errno::MFILE.raw_os_error(), rustix::io::Errno::NFILE.raw_os_error()];
    // ERROR_TOO_MANY_OPEN_FILES
    #[cfg(not(unix))]
    let codes = [4];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Some file systems, such as CIFS, do not sync directories.
pub(crate) fn refuses_dir_syncs(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

pub(crate) fn open_files_limit() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    return None;
}

/// A file open for concurrent reading.
pub trait ReadFile: Debug + Send + Sync {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `offset` on. Fails with `UnexpectedEof` if the file is too short.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Reads `len` bytes from `offset` on. Fails with `UnexpectedEof` if the file is too short. The default zeroes the
    /// buffer first; an implementation can avoid this.
    fn read_to_vec(&self, len: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Returns the first offset from `offset` on that may have a nonzero byte, or `None`. Skips holes of a sparse file.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok((offset < self.len()?).then_some(offset))
    }

    /// Performs several reads in any order, by default one by one.
    fn read_many(&self, reads: &mut [(&mut [u8], u64)]) -> io::Result<()> {
        reads.iter_mut().try_for_each(|(buffer, offset)| self.read_at(buffer, *offset))
    }
}

/// A file that is being written, from front to back. Calls of `append` do not overlap; `sync` may run concurrently.
pub trait AppendFile: Debug + Send + Sync {
    /// Appends all of `bytes`. After an error, the end of the file is unknown.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all earlier appends durable.
    fn sync(&self) -> io::Result<()>;

    /// Sets the length of the file, at least to the appended bytes. The rest reads as zeros. The next `append` still
    /// continues after the last one; a sync after it is faster. The default does nothing.
    fn set_len(&self, len: u64) -> io::Result<()> {
        let _ = len;
        Ok(())
    }
}
