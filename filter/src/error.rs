//! What can go wrong when a filter is planned or built. Bytes that cannot be read are a
//! [`DecodeError`](crate::DecodeError) instead.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

/// Why a filter could not be planned or built.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterError {
    /// A parameter has no meaning; nothing was built.
    #[non_exhaustive]
    InvalidArgument {
        /// Which parameter, and why it cannot be used.
        what: String,
    },
    /// The filter block would be larger than the address space, or there is no memory for it.
    #[non_exhaustive]
    TooLarge {
        /// The size of the block, in bytes.
        asked: u64,
    },
    /// A key that was added is not found in the finished bits, or a computation came out different the second
    /// time: the memory or the processor of this machine cannot be trusted. No block was returned.
    #[non_exhaustive]
    FaultyMemory {
        /// How it was noticed.
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
