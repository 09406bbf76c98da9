//! Errors of planning and building a filter.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

/// A filter could not be planned or built.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterError {
    /// A parameter is invalid.
    #[non_exhaustive]
    InvalidArgument {
        /// The parameter and the reason.
        what: String,
    },
    /// The block exceeds the address space or the memory.
    #[non_exhaustive]
    TooLarge {
        /// The size of the block, in bytes.
        asked: u64,
    },
    /// The finished bits lack an added key, or a repeated computation had a different result: the memory or processor
    /// is faulty.
    #[non_exhaustive]
    FaultyMemory {
        /// The failed check.
        detail: Box<str>,
    },
}

impl FilterError {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::InvalidArgument { what: what.into() }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument { what } => write!(f, "invalid argument: {what}"),
            Self::TooLarge { asked } => write!(f, "no memory for a filter block of {asked} bytes"),
            Self::FaultyMemory { detail } => {
                write!(f, "the memory of this machine cannot be trusted: construction of a filter: {detail}")
            }
        }
    }
}

impl core::error::Error for FilterError {}
