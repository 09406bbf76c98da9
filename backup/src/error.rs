//! The errors of this crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use sievedb::{Damage, DecodeError, DecodeErrorKind};

/// The result of a call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// All errors of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The store returned an error.
    Store(sievedb::Error),
    /// An operation failed in the repository, or in the directory of a restored store.
    #[non_exhaustive]
    Io {
        /// The operation: `"read"`, `"append to"`, `"sync"`, …
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file of the repository is damaged. After [`Repository::verify`](crate::Repository::verify), the next backup
    /// copies the file again if the store still has it. An index cannot be copied again.
    #[non_exhaustive]
    Damaged {
        /// The damaged file.
        file: PathBuf,
        /// See [`DamagedFile::offset`](crate::DamagedFile::offset); of an index, the place of the damage.
        offset: Option<u64>,
        /// The expected and the found value.
        detail: String,
    },
    /// The index is intact, but needs a newer version of this crate.
    #[non_exhaustive]
    Unsupported {
        /// The index.
        file: PathBuf,
        /// The unsupported property and its value.
        detail: String,
    },
    /// The store was damaged before it was backed up.
    #[non_exhaustive]
    Unsound {
        /// The backup.
        id: String,
        /// The damage. Its paths are in a removed directory.
        damage: Vec<Damage>,
    },
    /// The directory is not a repository.
    #[non_exhaustive]
    NoRepository {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        detail: String,
    },
    /// The directory has files of other programs, and was not changed.
    #[non_exhaustive]
    OtherFiles {
        /// The directory.
        dir: PathBuf,
        /// The name of one of the files.
        found: String,
    },
    /// The repository lacks the backup, or has no complete backup.
    #[non_exhaustive]
    NoBackup {
        /// The repository.
        dir: PathBuf,
        /// The reason.
        detail: String,
    },
    /// Several backups match.
    #[non_exhaustive]
    Ambiguous {
        /// The matching backups.
        detail: String,
    },
    /// Another restore to the directory is running.
    #[non_exhaustive]
    Locked {
        /// The directory in which the store is built.
        dir: PathBuf,
    },
    /// The call is invalid; nothing was changed.
    #[non_exhaustive]
    InvalidArgument {
        /// The argument and the reason.
        what: String,
    },
    /// The caller has cancelled the call.
    Cancelled,
}

impl Error {
    pub(crate) fn io(op: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { op, path: path.to_path_buf(), source }
    }

    pub(crate) fn damaged(file: &Path, offset: u64, detail: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_path_buf(), offset: Some(offset), detail: detail.into() }
    }

    pub(crate) fn decode(file: &Path, error: &DecodeError) -> Self {
        match &error.kind {
            DecodeErrorKind::Unsupported { .. } => {
                Self::Unsupported { file: file.to_path_buf(), detail: error.to_string() }
            }
            _ => Self::damaged(file, error.offset, error.to_string()),
        }
    }
}

pub(crate) fn from_offset(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" from offset {offset} on"))
}

impl From<sievedb::Error> for Error {
    fn from(error: sievedb::Error) -> Self {
        match error {
            sievedb::Error::Cancelled => Self::Cancelled,
            error => Self::Store(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Io { op, path, source } => write!(f, "cannot {op} {}: {source}", path.display()),
            Self::Damaged { file, offset, detail } => {
                write!(f, "{} is damaged{}: {detail}", file.display(), from_offset(*offset))
            }
            Self::Unsupported { file, detail } => {
                write!(f, "{} needs a newer version of this program: {detail}", file.display())
            }
            Self::Unsound { id, damage } => {
                write!(f, "backup {id} is of a store that was damaged before")?;
                match damage.first() {
                    Some(first) => write!(f, ": {first}"),
                    None => Ok(()),
                }
            }
            Self::NoRepository { dir, detail } => {
                write!(f, "{} is not a repository of backups: {detail}", dir.display())
            }
            Self::OtherFiles { dir, found } => {
                write!(f, "{} has files of other programs, such as {found}", dir.display())
            }
            Self::NoBackup { dir, detail } => write!(f, "no backup in {}: {detail}", dir.display()),
            Self::Locked { dir } => {
                write!(f, "another restore to the same directory is running: {} is locked", dir.display())
            }
            Self::InvalidArgument { what } => f.write_str(what),
            Self::Ambiguous { detail } => f.write_str(detail),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
