//! The one error type, and what each variant obliges the caller to do.
//!
//! Two rules hold everywhere. A file that contains something wrong is an [`Error::Corruption`] that names
//! the file, the offset in it and the thing that was read there; it is never a panic and never a missing
//! key. And an error is never only logged: it reaches the caller who asked; or, when background work met
//! it, [`Db::background_error`](crate::Db::background_error) and those who wait for the work; or, when it ended
//! writing, every later writer ([`Error::Poisoned`]).
//!
//! Code that works on bytes without knowing which file they come from (layer 2) returns a
//! [`DecodeError`](crate::codec::DecodeError); the file layer adds the path and the base offset.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codec::{DecodeError, DecodeErrorKind};
use crate::filter::FilterError;

/// The result of every call of this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The result of a movement that is made so often that it must fit in a register. `?` converts it.
pub(crate) type Step = Result<(), Box<Error>>;

impl From<Box<Error>> for Error {
    fn from(error: Box<Error>) -> Self {
        *error
    }
}

/// Everything that can go wrong; the [guide](crate::guide::errors) says what to do about each.
///
/// Cheap to clone: all writers of one commit group receive the same failure.
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
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation.
    #[non_exhaustive]
    Io {
        /// What was being done: `"read"`, `"append to"`, `"sync"`, …
        op: &'static str,
        /// The file or directory it was done to.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// A file does not contain what this crate wrote there.
    #[non_exhaustive]
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Where in it, in bytes from its start.
        offset: u64,
        /// The structure or field that was being read.
        what: &'static str,
        /// What was expected and what was found.
        detail: Box<str>,
    },
    /// The caller asked for something that has no meaning; nothing was changed.
    #[non_exhaustive]
    InvalidArgument {
        /// Which argument, and why it cannot be used.
        what: String,
    },
    /// An intact file asks for something that this version of the crate does not know.
    #[non_exhaustive]
    Unsupported {
        /// The file that asks for it.
        file: PathBuf,
        /// Which property of the file is unknown here.
        what: &'static str,
        /// Its value in the file.
        found: u64,
        /// The largest value (or the set of feature bits) this version knows.
        supported: u64,
    },
    /// A key, value, batch or name is larger than the format allows: the store is as it was. Or a new filter
    /// takes more memory than the budget has: its table keeps the one it has. Or a call was made to begin again too
    /// often by other writers (`update`) or by flushes (`commit` of a transaction): it may succeed later.
    #[non_exhaustive]
    LimitExceeded {
        /// Which limit.
        what: &'static str,
        /// Its value.
        limit: u64,
        /// What was asked for.
        asked: u64,
    },
    /// Another process (or another handle in this one) has the store open for writing.
    #[non_exhaustive]
    Locked {
        /// The store's directory.
        dir: PathBuf,
        /// It is this process that has it open. Always `false` where the system cannot tell.
        by_this_process: bool,
    },
    /// The directory was moved, or its file `LOCK` removed or replaced, while the store was open: another
    /// process may be writing to what is there now. Nothing more is written. No synced write was acknowledged
    /// after it was noticed.
    #[non_exhaustive]
    LockLost {
        /// The directory as it was opened.
        dir: PathBuf,
    },
    /// The handle was opened by another process, from which this one was forked. It cannot be used here; the
    /// store can be opened anew once that process has closed it.
    #[non_exhaustive]
    Forked {
        /// The id of the process that opened the store.
        opened_by: u32,
    },
    /// The directory holds files that are not a store's, and no store. Nothing was written: see
    /// [`Options::create_among_other_files`](crate::Options::create_among_other_files).
    #[non_exhaustive]
    OtherFiles {
        /// The directory.
        dir: PathBuf,
        /// Names of the first few of them.
        found: Vec<String>,
        /// How many there are.
        count: usize,
    },
    /// Background work, or a writer that wrote for others, panicked. Writing is disabled, since it may have
    /// been interrupted anywhere.
    #[non_exhaustive]
    Panicked {
        /// What was being done.
        during: &'static str,
        /// What the panic said.
        message: Box<str>,
    },
    /// A store was read while another process wrote to it, and no single moment of it could be seen. It is not damaged, and
    /// the call can be made again.
    #[non_exhaustive]
    Changed {
        /// The directory of the store, or the file that the writer has removed.
        path: PathBuf,
        /// What has changed, and how often it was tried.
        detail: Box<str>,
    },
    /// There is no store in this directory, and this way of opening does not create one.
    #[non_exhaustive]
    NoStore {
        /// The directory that was looked at.
        dir: PathBuf,
        /// What is there instead.
        why: &'static str,
    },
    /// What was computed is not what it must be, or came out different the second time: the memory or the
    /// processor of this machine cannot be trusted. Nothing of it was written.
    #[non_exhaustive]
    FaultyMemory {
        /// What was computed.
        what: &'static str,
        /// How it was noticed.
        detail: Box<str>,
    },
    /// A change would have let two tables of one run overlap. It was not made, and the store is as it was; work
    /// of the background is tried again. This is a defect of this crate.
    #[non_exhaustive]
    Overlap {
        /// The keyspace.
        keyspace: String,
        /// The numbers of the two tables.
        tables: (u64, u64),
    },
    /// An earlier failure made it unsafe to write. Reads go on; to write again, reopen the store.
    #[non_exhaustive]
    Poisoned {
        /// The failure.
        cause: Arc<Error>,
    },
    /// The store was opened read-only.
    ReadOnly,
    /// The store was closed with [`Db::close`](crate::Db::close).
    Closed,
    /// The call was cancelled by its caller ([`Progress::cancel`](crate::Progress::cancel)).
    Cancelled,
    /// A key that a transaction has read, or one in a range that it has read, was changed by another writer
    /// before the transaction was committed. Nothing of it was written; it may be run again.
    ///
    /// It names one key: of the changes that the commit has found, the first in the order of keyspaces, as they were
    /// created, and of keys. It has found all changes that were visible when it began; if there were none, it looks
    /// for later ones.
    #[non_exhaustive]
    Conflict {
        /// The name of the keyspace.
        keyspace: String,
        /// The first key that has changed.
        key: Box<[u8]>,
    },
    /// The handle belongs to a keyspace that has been dropped.
    #[non_exhaustive]
    KeyspaceDropped {
        /// The name it had.
        name: String,
    },
}

impl Error {
    pub(crate) fn io(op: &'static str, path: &Path, source: io::Error) -> Self {
        // What the locked directory refuses is an error of the store already.
        if let Some(error) = source.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            return error.clone();
        }
        Self::Io { op, path: path.to_path_buf(), source: Arc::new(source) }
    }

    pub(crate) fn corruption(
        file: &Path,
        offset: u64,
        what: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self::Corruption { file: file.to_path_buf(), offset, what, detail: detail.into().into_boxed_str() }
    }

    pub(crate) fn changed(path: &Path, detail: impl Into<String>) -> Self {
        Self::Changed { path: path.to_path_buf(), detail: detail.into().into_boxed_str() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::InvalidArgument { what: what.into() }
    }

    pub(crate) fn limit(what: &'static str, limit: u64, asked: u64) -> Self {
        Self::LimitExceeded { what, limit, asked }
    }

    /// The error that later writers get once `self` has made writing unsafe.
    pub(crate) fn poison(&self) -> Self {
        match self {
            Self::Poisoned { .. } => self.clone(),
            other => Self::Poisoned { cause: Arc::new(other.clone()) },
        }
    }

    /// The file that the error is about, if it is about one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. } => Some(path),
            Self::Corruption { file, .. } | Self::Unsupported { file, .. } => Some(file),
            _ => None,
        }
    }

    /// Whether the cause is damage in a file, directly or inside an [`Error::Poisoned`].
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

/// For functions that return [`io::Result`]. The error of the system keeps its kind, and every error can be found
/// again as the [`io::Error::get_ref`] of what it became.
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

/// Gives a decode error the file it happened in.
pub(crate) trait InFile {
    /// The error as it reaches the caller; what was decoded starts `base` bytes into `file`.
    fn in_file(self, file: &Path, base: u64) -> Error;
}

impl InFile for DecodeError {
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
