//! File numbers and file names. File numbers are unique. A name is valid only if its number, formatted again, gives the
//! same name.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::limits::FILE_NUMBER_MAX;
use crate::number_map::Number;

/// # Errors
///
/// [`Error::NoStore`] if there is no such directory, [`Error::Io`] if it cannot be listed.
pub(crate) fn names_in(fs: &dyn Fs, dir: &Path) -> Result<Vec<OsString>> {
    fs.list(dir).map_err(|error| match error.kind() {
        ErrorKind::NotFound if fs.has_dangling_link(dir) => dangling(dir),
        ErrorKind::NotFound => Error::NoStore { dir: dir.to_path_buf(), why: "no such directory" },
        ErrorKind::NotADirectory => {
            Error::NoStore { dir: dir.to_path_buf(), why: "it is a file, not a directory" }
        }
        _ => Error::io("list", dir, error),
    })
}

pub(crate) fn dangling(dir: &Path) -> Error {
    Error::NoStore { dir: dir.to_path_buf(), why: "its path has a symbolic link whose target does not exist" }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileName {
    /// Locked while a process has the store open for writing.
    Lock,
    Current,
    CurrentTemporary,
    /// Reserves space for a full disk.
    Reserve,
    Manifest(u64),
    Log(u64),
    Table(u64),
    Filter(u64),
}

impl Number for FileName {
    fn to_u128(self) -> u128 {
        let kind: u64 = match self {
            Self::Lock => 0,
            Self::Current => 1,
            Self::CurrentTemporary => 2,
            Self::Reserve => 3,
            Self::Manifest(_) => 4,
            Self::Log(_) => 5,
            Self::Table(_) => 6,
            Self::Filter(_) => 7,
        };
        (kind, self.number().unwrap_or(0)).to_u128()
    }
}

impl FileName {
    #[must_use]
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let numbered = |prefix: &str, suffix: &str| -> Option<u64> {
            let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let found = match name {
            "LOCK" => Some(Self::Lock),
            "CURRENT" => Some(Self::Current),
            "CURRENT.new" => Some(Self::CurrentTemporary),
            "RESERVE" => Some(Self::Reserve),
            _ => numbered("MANIFEST-", "")
                .map(Self::Manifest)
                .or_else(|| numbered("", ".wal").map(Self::Log))
                .or_else(|| numbered("", ".sst").map(Self::Table))
                .or_else(|| numbered("", ".filter").map(Self::Filter)),
        };
        let numbered =
            |found: &Self| found.number().is_none_or(|number| (1..=FILE_NUMBER_MAX).contains(&number));
        found.filter(numbered).filter(|found| found.to_string() == name)
    }

    #[must_use]
    pub(crate) fn number(self) -> Option<u64> {
        match self {
            Self::Manifest(number) | Self::Log(number) | Self::Table(number) | Self::Filter(number) => {
                Some(number)
            }
            Self::Lock | Self::Current | Self::CurrentTemporary | Self::Reserve => None,
        }
    }

    #[must_use]
    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lock => f.write_str("LOCK"),
            Self::Current => f.write_str("CURRENT"),
            Self::CurrentTemporary => f.write_str("CURRENT.new"),
            Self::Reserve => f.write_str("RESERVE"),
            Self::Manifest(number) => write!(f, "MANIFEST-{number:06}"),
            Self::Log(number) => write!(f, "{number:06}.wal"),
            Self::Table(number) => write!(f, "{number:06}.sst"),
            Self::Filter(number) => write!(f, "{number:06}.filter"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in [
            FileName::Lock,
            FileName::Current,
            FileName::CurrentTemporary,
            FileName::Reserve,
            FileName::Manifest(7),
            FileName::Log(12),
            FileName::Table(1_234_567),
            FileName::Filter(FILE_NUMBER_MAX),
        ] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
        assert_eq!(FileName::Table(15).to_string(), "000015.sst");
    }

    #[test]
    fn only_names_exactly_as_the_store_writes_them_are_accepted() {
        for name in [
            "",
            "1.sst",
            "0000015.sst",
            "+00015.sst",
            "00001é.sst",
            "000015.sst ",
            "../000015.sst",
            "99999999999999999999.sst",
            "4611686018427387904.sst",
            "000000.wal",
            "MANIFEST-",
            "000015.SST",
            "current",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
