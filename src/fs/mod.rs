//! Everything the store does to a disk, as one small trait.
//!
//! Files are only ever created, appended to, synced, renamed and removed; nothing is overwritten in place.
//! That keeps the states a crash can leave few enough to be tried one by one: see [`MemFs`].
//!
//! [`StdFs`] is the operating system's file system. [`MemFs`] is one in memory that knows what would survive
//! a power loss and calls an observer before every change, from which crash, fault and audit tests are made.

mod mem;
mod std_fs;

pub use mem::{CrashPolicy, MemFs, Op};
pub use std_fs::StdFs;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file system. Implementations are shared by all threads of a store.
pub trait Fs: Debug + Send + Sync + 'static {
    /// Creates a directory and its missing parents, readable by the owner only, and makes that durable.
    /// Not an error if it exists.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a directory, in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Creates a file, readable and writable by the owner only; fails with `AlreadyExists` if there is one.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>>;

    /// Opens a regular file for reading. Anything that is not one (a directory, a link, a pipe) is an error.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Renames a file over another one, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes a lock on a file at once or fails with `WouldBlock`; it is held until the guard is dropped or
    /// the process dies. An exclusive lock creates the file if it is missing, a shared one writes nothing
    /// and fails with `NotFound`.
    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>>;
}

/// How a lock is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// One holder.
    Exclusive,
    /// Many holders, none of them exclusive.
    Shared,
}

/// A held lock.
pub trait LockGuard: Debug + Send + Sync {}

/// A file that is open for reading. Positioned reads, so that threads share it.
pub trait ReadFile: Debug + Send + Sync {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `offset` on; `UnexpectedEof` if the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Does several reads, in any order. The place for io_uring and the like; here they follow each other.
    fn read_many(&self, reads: &mut [(&mut [u8], u64)]) -> io::Result<()> {
        reads.iter_mut().try_for_each(|(buffer, offset)| self.read_at(buffer, *offset))
    }
}

/// A file that is being written, from front to back.
///
/// The caller makes sure that there is one `append` at a time; `sync` may run beside it.
pub trait AppendFile: Debug + Send + Sync {
    /// Adds `bytes` at the end, all of them or an error (after which the end is unknown).
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything appended before the call durable.
    fn sync(&self) -> io::Result<()>;
}
