//! The error type of the crate.
//!
//! Damage in a file is an [`Error::Corruption`], never a panic or a missing key. No error is only logged. Background
//! work reports errors to [`Db::background_error`](crate::Db::background_error) and to callers that wait for it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codec::{DecodeError, DecodeErrorKind};
use crate::filter::FilterError;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Boxed, so that the result fits in a register.
pub(crate) type Step = Result<(), Box<Error>>;

impl From<Box<Error>> for Error {
    fn from(error: Box<Error>) -> Self {
        *error
    }
}

/// All errors of this crate; the [guide](crate::guide::errors) describes how to handle each. Cheap to clone.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use sievedb::{Db, Error};
///
/// let db = Db::open(dir.path())?;
/// match Db::open(dir.path()) {
///     Err(Error::Locked { dir, .. }) => println!("{} is in use", dir.display()),
///     other => drop(other?),
/// }
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An operation of the operating system failed.
    #[non_exhaustive]
    Io {
        /// The name of the operation: `"read"`, `"append to"`, `"sync"`, …
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// The contents of a file are not the bytes that were written.
    #[non_exhaustive]
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// The offset of the damage, in bytes.
        offset: u64,
        /// The structure or field that was read.
        what: &'static str,
        /// The expected and the found value.
        detail: Box<str>,
    },
    /// The call is invalid. Nothing was changed.
    #[non_exhaustive]
    InvalidArgument {
        /// The argument, and why it is invalid.
        what: String,
    },
    /// An intact file needs a version or feature that this version of the crate does not support.
    #[non_exhaustive]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The unsupported property.
        what: &'static str,
        /// The found value or feature bits.
        found: u64,
        /// The largest supported value, or the supported feature bits.
        supported: u64,
    },
    /// A limit was exceeded. Either a key, value, batch or name was too long; nothing was changed. Or a new filter
    /// needed too much memory; the table keeps its filter. Or concurrent writers or flushes restarted a call too often;
    /// a repeated call may succeed.
    #[non_exhaustive]
    LimitExceeded {
        /// The limit that was exceeded.
        what: &'static str,
        /// The value of the limit.
        limit: u64,
        /// The requested value.
        asked: u64,
    },
    /// Another process or handle has the store open for writing.
    #[non_exhaustive]
    Locked {
        /// The store's directory.
        dir: PathBuf,
        /// Whether this process has the store open. `false` if the system does not report this.
        by_this_process: bool,
    },
    /// The directory was moved, or its file `LOCK` was removed or replaced, while the store was open. Another process
    /// may be writing, so this handle writes nothing more. No synced write was acknowledged after the detection.
    #[non_exhaustive]
    LockLost {
        /// The path of the directory at the opening.
        dir: PathBuf,
    },
    /// The handle was opened before a fork, and the child process cannot use it. The child can open the store after the
    /// parent has closed it.
    #[non_exhaustive]
    Forked {
        /// The id of the process that opened the store.
        opened_by: u32,
    },
    /// The directory contains files of other programs and no store. Nothing was written: see
    /// [`Options::create_among_other_files`](crate::Options::create_among_other_files).
    #[non_exhaustive]
    OtherFiles {
        /// The directory.
        dir: PathBuf,
        /// Names of the first few files.
        found: Vec<String>,
        /// Number of files.
        count: usize,
    },
    /// Background work or the leader of a commit group panicked. Writing is disabled.
    #[non_exhaustive]
    Panicked {
        /// The name of the work.
        during: &'static str,
        /// The message of the panic.
        message: Box<str>,
    },
    /// Another process wrote to the store during a read, and no consistent state could be read. The call can be
    /// repeated.
    #[non_exhaustive]
    Changed {
        /// The directory of the store, or the file that was removed.
        path: PathBuf,
        /// The change, and the number of attempts.
        detail: Box<str>,
    },
    /// There is no store in the directory, and this call does not create one.
    #[non_exhaustive]
    NoStore {
        /// The directory.
        dir: PathBuf,
        /// The reason, or the contents of the directory.
        why: &'static str,
    },
    /// A computation gave an impossible result, or two different results: the memory or the processor is faulty. The
    /// result was not written.
    #[non_exhaustive]
    FaultyMemory {
        /// The computation.
        what: &'static str,
        /// How the fault was detected.
        detail: Box<str>,
    },
    /// A change would have made two tables of a run overlap, because of a bug in this crate. It was rejected, and
    /// background work is retried.
    #[non_exhaustive]
    Overlap {
        /// The keyspace.
        keyspace: String,
        /// The numbers of the two tables.
        tables: (u64, u64),
    },
    /// An earlier failure made writing unsafe. Reads work; reopen the store to write.
    #[non_exhaustive]
    Poisoned {
        /// The failure.
        cause: Arc<Error>,
    },
    /// The store was opened read-only.
    ReadOnly,
    /// The store was closed with [`Db::close`](crate::Db::close).
    Closed,
    /// The call was cancelled by its caller, by [`Progress::cancel`](crate::Progress::cancel) or a callback.
    Cancelled,
    /// Another writer changed a key or range that the transaction read. Nothing was written; the transaction can be run
    /// again.
    ///
    /// The error names the first change in order of keyspace (by creation), then key. Changes made during the commit
    /// come last.
    #[non_exhaustive]
    Conflict {
        /// The name of the keyspace.
        keyspace: String,
        /// The first changed key.
        key: Box<[u8]>,
    },
    /// A keyspace with expiry needs the system clock, which is certainly wrong. Nothing was written.
    #[non_exhaustive]
    Clock {
        /// The wrong time.
        what: String,
    },
    /// The handle belongs to a dropped keyspace.
    #[non_exhaustive]
    KeyspaceDropped {
        /// The name of the keyspace.
        name: String,
    },
}

/// Not derived, because derived code is compiled again in each codegen unit that uses it.
impl Clone for Error {
    fn clone(&self) -> Self {
        match *self {
            Self::Io { op, ref path, ref source } => {
                Self::Io { op, path: path.clone(), source: Arc::clone(source) }
            }
            Self::Corruption { ref file, offset, what, ref detail } => {
                Self::Corruption { file: file.clone(), offset, what, detail: detail.clone() }
            }
            Self::InvalidArgument { ref what } => Self::InvalidArgument { what: what.clone() },
            Self::Unsupported { ref file, what, found, supported } => {
                Self::Unsupported { file: file.clone(), what, found, supported }
            }
            Self::LimitExceeded { what, limit, asked } => Self::LimitExceeded { what, limit, asked },
            Self::Locked { ref dir, by_this_process } => Self::Locked { dir: dir.clone(), by_this_process },
            Self::LockLost { ref dir } => Self::LockLost { dir: dir.clone() },
            Self::Forked { opened_by } => Self::Forked { opened_by },
            Self::OtherFiles { ref dir, ref found, count } => {
                Self::OtherFiles { dir: dir.clone(), found: found.clone(), count }
            }
            Self::Panicked { during, ref message } => Self::Panicked { during, message: message.clone() },
            Self::Changed { ref path, ref detail } => {
                Self::Changed { path: path.clone(), detail: detail.clone() }
            }
            Self::NoStore { ref dir, why } => Self::NoStore { dir: dir.clone(), why },
            Self::FaultyMemory { what, ref detail } => Self::FaultyMemory { what, detail: detail.clone() },
            Self::Overlap { ref keyspace, tables } => Self::Overlap { keyspace: keyspace.clone(), tables },
            Self::Poisoned { ref cause } => Self::Poisoned { cause: Arc::clone(cause) },
            Self::ReadOnly => Self::ReadOnly,
            Self::Closed => Self::Closed,
            Self::Cancelled => Self::Cancelled,
            Self::Conflict { ref keyspace, ref key } => {
                Self::Conflict { keyspace: keyspace.clone(), key: key.clone() }
            }
            Self::Clock { ref what } => Self::Clock { what: what.clone() },
            Self::KeyspaceDropped { ref name } => Self::KeyspaceDropped { name: name.clone() },
        }
    }
}

impl Error {
    #[cold]
    pub(crate) fn io(op: &'static str, path: &Path, source: io::Error) -> Self {
        if let Some(error) = source.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            return error.clone();
        }
        Self::Io { op, path: path.to_path_buf(), source: Arc::new(source) }
    }

    #[cold]
    pub(crate) fn corruption(
        file: &Path,
        offset: u64,
        what: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self::Corruption { file: file.to_path_buf(), offset, what, detail: detail.into().into_boxed_str() }
    }

    #[cold]
    pub(crate) fn changed(path: &Path, detail: impl Into<String>) -> Self {
        Self::Changed { path: path.to_path_buf(), detail: detail.into().into_boxed_str() }
    }

    #[cold]
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::InvalidArgument { what: what.into() }
    }

    #[cold]
    pub(crate) fn limit(what: &'static str, limit: u64, asked: u64) -> Self {
        Self::LimitExceeded { what, limit, asked }
    }

    #[cold]
    pub(crate) fn poison(&self) -> Self {
        match self {
            Self::Poisoned { .. } => self.clone(),
            other => Self::Poisoned { cause: Arc::new(other.clone()) },
        }
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. } => Some(path),
            Self::Corruption { file, .. } | Self::Unsupported { file, .. } => Some(file),
            _ => None,
        }
    }

    /// Whether the cause is damage in a file. Includes an [`Error::Poisoned`] with such a cause.
    ///
    /// ```
    /// assert!(!sievedb::Error::Closed.is_corruption());
    /// ```
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        match self {
            Self::Corruption { .. } => true,
            Self::Poisoned { cause } => cause.is_corruption(),
            _ => false,
        }
    }
}

/// [`io::Error::get_ref`] returns the original error.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// fn count(path: &std::path::Path) -> std::io::Result<u64> {
///     Ok(sievedb::Db::open(path)?.len()?)
/// }
/// assert_eq!(count(dir.path())?, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        use io::ErrorKind;
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            Error::Corruption { .. } => ErrorKind::InvalidData,
            Error::InvalidArgument { .. } | Error::LimitExceeded { .. } => ErrorKind::InvalidInput,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::Locked { .. } | Error::Changed { .. } => ErrorKind::ResourceBusy,
            Error::NoStore { .. } | Error::KeyspaceDropped { .. } => ErrorKind::NotFound,
            Error::OtherFiles { .. } => ErrorKind::DirectoryNotEmpty,
            Error::ReadOnly => ErrorKind::ReadOnlyFilesystem,
            _ => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

pub(crate) trait InFile {
    /// `base` is the offset of the decoded bytes in `file`.
    fn in_file(self, file: &Path, base: u64) -> Error;
}

impl InFile for DecodeError {
    #[cold]
    fn in_file(self, file: &Path, base: u64) -> Error {
        let offset = self.offset.saturating_add(base);
        match self.kind {
            DecodeErrorKind::Unsupported { found, supported } => {
                Error::Unsupported { file: file.to_path_buf(), what: self.what, found, supported }
            }
            DecodeErrorKind::Corrupt(detail) => Error::corruption(file, offset, self.what, detail),
            _ => Error::corruption(file, offset, self.what, "cannot be decoded"),
        }
    }
}

impl From<FilterError> for Error {
    fn from(error: FilterError) -> Self {
        match error {
            FilterError::TooLarge { asked, .. } => Self::limit("filter block", usize::MAX as u64, asked),
            FilterError::FaultyMemory { detail, .. } => {
                Self::FaultyMemory { what: "construction of a filter", detail }
            }
            FilterError::InvalidArgument { what, .. } => Self::InvalidArgument { what },
            other => Self::InvalidArgument { what: other.to_string() },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { op, path, source } => write!(f, "cannot {op} {}: {source}", path.display()),
            Self::Corruption { file, offset, what, detail } => {
                write!(f, "{} is corrupt at offset {offset}: {what}: {detail}", file.display())
            }
            Self::InvalidArgument { what } => write!(f, "invalid argument: {what}"),
            Self::Unsupported { file, what, found, supported } => write!(
                f,
                "{} needs a newer version of this program: {what} is {found:#x}, known up to {supported:#x}",
                file.display()
            ),
            Self::LimitExceeded { what, limit, asked } => {
                write!(f, "{what} of {asked} is over the limit of {limit}")
            }
            Self::FaultyMemory { what, detail } => {
                write!(f, "the memory of this machine cannot be trusted: {what}: {detail}")
            }
            Self::Overlap { keyspace, tables: (one, other) } => {
                write!(f, "tables {one} and {other} of keyspace {keyspace:?} would overlap in a run")
            }
            Self::Locked { dir, by_this_process: false } => {
                write!(f, "{} is in use by another process", dir.display())
            }
            Self::Locked { dir, by_this_process: true } => {
                write!(f, "{} is already open in this process", dir.display())
            }
            Self::LockLost { dir } => write!(
                f,
                "{} or the file LOCK in it was moved, removed or replaced while the store was open",
                dir.display()
            ),
            Self::Forked { opened_by } => {
                write!(f, "the store was opened by process {opened_by}, from which this one was forked")
            }
            Self::OtherFiles { dir, found, count } => {
                write!(f, "{} holds other files and no store: {}", dir.display(), found.join(", "))?;
                match count - found.len() {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::Panicked { during, message } => write!(f, "{during} panicked: {message}"),
            Self::Changed { path, detail } => {
                write!(f, "{} changed while it was read: {detail}", path.display())
            }
            Self::NoStore { dir, why } => write!(f, "there is no store in {}: {why}", dir.display()),
            Self::Poisoned { cause } => write!(f, "writing is disabled after an earlier failure: {cause}"),
            Self::ReadOnly => f.write_str("the store is open read-only"),
            Self::Closed => f.write_str("the store is closed"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Clock { what } => write!(f, "{what}"),
            Self::Conflict { keyspace, key } => write!(
                f,
                "key \"{}\" of keyspace {keyspace:?} was changed since the transaction has read it",
                key[..key.len().min(64)].escape_ascii()
            ),
            Self::KeyspaceDropped { name } => write!(f, "keyspace {name:?} has been dropped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(&**source),
            Self::Poisoned { cause } => Some(&**cause),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_names_file_offset_and_what_was_read() {
        let error = Error::corruption(Path::new("000007.sst"), 4096, "data block", "checksum 1, found 2");
        assert_eq!(
            error.to_string(),
            "000007.sst is corrupt at offset 4096: data block: checksum 1, found 2"
        );
    }

    #[test]
    fn an_error_of_the_store_within_one_of_a_file_operation_is_found_again() {
        let within = |error: Error| Error::io("sync", Path::new("000007.wal"), io::Error::other(error));
        assert!(matches!(within(Error::Closed), Error::Closed));
        assert!(matches!(within(Error::Forked { opened_by: 7 }), Error::Forked { opened_by: 7 }));
        let lost = within(Error::LockLost { dir: "/db".into() });
        assert_eq!(
            lost.to_string(),
            "/db or the file LOCK in it was moved, removed or replaced while the store was open"
        );
    }

    #[test]
    fn an_error_becomes_one_of_a_file_operation_with_its_kind_and_is_found_again() {
        let full = Error::io("append to", Path::new("a"), io::ErrorKind::StorageFull.into());
        let becomes = |error: Error| io::Error::from(error);
        assert_eq!(becomes(full.clone()).kind(), io::ErrorKind::StorageFull);
        assert_eq!(becomes(full.clone()).to_string(), full.to_string());
        assert_eq!(becomes(Error::ReadOnly).kind(), io::ErrorKind::ReadOnlyFilesystem);
        let damaged = becomes(Error::corruption(Path::new("a"), 7, "footer", "no magic"));
        assert_eq!(damaged.kind(), io::ErrorKind::InvalidData);
        let again = Error::io("read", Path::new("b"), damaged);
        assert!(matches!(again, Error::Corruption { offset: 7, .. }));
    }

    #[test]
    fn poisoning_twice_keeps_the_first_cause() {
        let first = Error::io("sync", Path::new("a"), io::Error::other("disk gone"));
        let twice = first.poison().poison();
        let Error::Poisoned { cause } = twice else { panic!("not poisoned") };
        assert!(matches!(*cause, Error::Io { .. }));
    }
}
