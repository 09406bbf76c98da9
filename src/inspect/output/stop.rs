//! The reasons for an early end of a description, and damage at a position.

use std::io;
use std::path::Path;

use crate::codec::DecodeError;
use crate::error::Error;

/// The reason for an early end of a description.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stop {
    /// The file could not be read.
    #[non_exhaustive]
    Read {
        /// Offset of the read.
        offset: u64,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The sink failed.
    Sink(io::Error),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read { offset, source } => write!(f, "cannot read at offset {offset}: {source}"),
            Self::Sink(source) => write!(f, "cannot write: {source}"),
        }
    }
}

impl Stop {
    pub(in crate::inspect) fn error(self, path: &Path) -> Error {
        let (Self::Read { source, .. } | Self::Sink(source)) = self;
        Error::io("read", path, source)
    }
}

impl std::error::Error for Stop {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Sink(source) => Some(source),
        }
    }
}

#[derive(Debug)]
pub(in crate::inspect) enum Fault {
    /// The offset is relative to the file.
    Decode(DecodeError),
    Stop(Stop),
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<Stop> for Fault {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

pub(in crate::inspect) type Result<T = (), E = Stop> = std::result::Result<T, E>;
