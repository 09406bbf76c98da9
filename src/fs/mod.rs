//! All file operations of the store, as one small trait.
//!
//! Files are only ever created, appended to, synced, renamed and removed; nothing is overwritten in place. A log may be
//! longer than its contents: the rest is zeros. So a crash can leave only few different states, which tests try one by
//! one: see [`MemFs`].
//!
//! [`StdFs`] is the operating system's file system. [`MemFs`] is a file system in memory for tests: it
//! simulates power losses, and calls an observer before every change.

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

/// A file system. All threads of a store share it.
///
/// An implementation that wraps another one must forward [`Fs::lock`] too, and wrap the file system of
/// [`LockGuard::fs`].
pub trait Fs: Debug + Send + Sync + 'static {
    /// Creates a directory and its missing parents, readable by the owner only. Succeeds if it exists. A
    /// [`Fs::sync_dir`] of each parent directory makes it durable.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The path of an existing directory without links, `.` and `..`: two paths name the same directory
    /// if these are equal. The default is for file systems in which each directory has one path.
    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        Ok(dir.to_path_buf())
    }

    /// Whether this path, or a parent of it, is a symbolic link whose target does not exist.
    fn has_dangling_link(&self, _path: &Path) -> bool {
        false
    }

    /// The names in a directory, in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Makes creations, renames and removals in `dir` durable. The errors `InvalidInput` and `Unsupported` mean that
    /// the file system does not support this: see
    /// [`OpenReport::directory_syncs_refused`](crate::OpenReport::directory_syncs_refused).
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Creates a file, readable and writable by the owner only; fails with `AlreadyExists` if there is one.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>>;

    /// Opens a regular file for reading. Anything else (a directory, a link, a pipe) is an error.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Renames a file over another one, atomically; or a directory to a name that nothing has, for a checkpoint.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. A file that is open stays readable: read-only handles next to a writer rely on that.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name, also in another directory. A file system that cannot do that returns `Unsupported`,
    /// `PermissionDenied` or `TooManyLinks`, and `CrossesDevices` between two of them: then the store copies the file.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes an empty directory. By default that is not supported: then a checkpoint that fails leaves one.
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let _ = dir;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// How many bytes can be written to the disk that the directory `dir` is on; `None` if that is not known,
    /// as by default. A limit for the user may be lower.
    fn free_bytes(&self, dir: &Path) -> io::Result<Option<u64>> {
        let _ = dir;
        Ok(None)
    }

    /// Locks the file `path` and its directory, at once or with the error `WouldBlock` (with [`HeldByThisProcess`]
    /// inside if that is known). They are held until the guard is dropped or the process dies. An exclusive lock
    /// creates the file if it is missing. A shared one writes nothing; without the file it locks only the directory.
    /// If `path` exists and is not a regular file, that is an error.
    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>>;
}

/// Whether `path` is or will be `dir` or below it; missing directories count as created. `dir` must exist.
pub(crate) fn lies_in(fs: &dyn Fs, path: &Path, dir: &Path) -> io::Result<bool> {
    Ok(canonical_of_missing(fs, path)?.starts_with(fs.canonical(dir)?))
}

/// The canonical path of a directory, or its future path if it does not exist.
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

/// Whether a lock is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// One holder.
    Exclusive,
    /// Many holders, none of them exclusive.
    Shared,
}

/// A held lock.
pub trait LockGuard: Debug + Send + Sync {
    /// A file system that accesses the files of the locked directory through its handle, even after the directory is
    /// moved; paths stay the same. `None` if the file system that gave the lock is as good.
    fn fs(&self) -> Option<Arc<dyn Fs>> {
        None
    }

    /// Whether the path still leads to the locked directory, with the same lock file in it.
    ///
    /// # Errors
    ///
    /// The error of the system, if that cannot be determined.
    fn is_in_place(&self) -> io::Result<bool>;
}

/// Inside the error `WouldBlock` of [`Fs::lock`]: this process holds the lock.
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

/// Whether the disk, or the quota of this user, is full.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a file system does not support syncing directories, such as CIFS.
pub(crate) fn refuses_dir_syncs(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

pub(crate) fn open_files_limit() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    return None;
}

/// A file that is open for reading. Reads have an offset, so that threads share the file.
pub trait ReadFile: Debug + Send + Sync {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `offset` on; `UnexpectedEof` if the file is too short.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Reads `len` bytes from `offset` on; `UnexpectedEof` if the file is too short. The default fills the bytes
    /// with zeros first; an implementation may read into uninitialised memory.
    fn read_to_vec(&self, len: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// The first offset from `offset` on at which the file may have other bytes than zeros; `None` if
    /// there is none. Holes of a sparse file are skipped quickly.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok((offset < self.len()?).then_some(offset))
    }

    /// Does several reads, in any order. The default does one after the other; an implementation may do them
    /// concurrently, for example with io_uring.
    fn read_many(&self, reads: &mut [(&mut [u8], u64)]) -> io::Result<()> {
        reads.iter_mut().try_for_each(|(buffer, offset)| self.read_at(buffer, *offset))
    }
}

/// A file that is being written, from front to back.
///
/// The caller ensures that there is one `append` at a time; `sync` may run at the same time.
pub trait AppendFile: Debug + Send + Sync {
    /// Appends `bytes`, all of them or with an error (after which the end is unknown).
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything appended before the call durable.
    fn sync(&self) -> io::Result<()>;

    /// Sets the length of the file, at least the length of the appended bytes. The rest reads as
    /// zeros, and the next `append` still follows the last one. This is for speed: a sync of bytes that do
    /// not change the length need not make a new length durable. The default does nothing.
    fn set_len(&self, len: u64) -> io::Result<()> {
        let _ = len;
        Ok(())
    }
}
