use std::fmt;

/// A failed operation, which has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An argument is invalid.
    InvalidArgument(String),
    /// The structure would need this many bytes, beyond the memory or the format's limit.
    TooLarge(u64),
    /// Two structures differ in this parameter.
    Differ(&'static str),
    /// No room for another key.
    Full,
    /// The key is certainly absent.
    Absent,
    /// Two entries have the same key or hash.
    Duplicate,
    /// A time is too far ahead.
    LeapTooLarge {
        /// Distance from the present span or tick.
        ahead: u64,
        /// Largest allowed distance.
        max: u64,
    },
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::InvalidArgument(what.into())
    }

    pub(crate) fn unless_same(parameters: &[(&'static str, bool)]) -> Result<(), Self> {
        parameters.iter().find(|(_, same)| !same).map_or(Ok(()), |(what, _)| Err(Self::Differ(what)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument(what) => write!(f, "invalid argument: {what}"),
            Self::TooLarge(bytes) => write!(f, "no memory for {bytes} bytes"),
            Self::Differ(what) => write!(f, "structures that differ in their {what} cannot be combined"),
            Self::Full => f.write_str("there is no room for another key"),
            Self::Duplicate => f.write_str("two entries have the same key or hash"),
            Self::LeapTooLarge { ahead, max } => {
                write!(f, "a time is {ahead} units ahead of the latest one, over the limit of {max}")
            }
            Self::Absent => f.write_str("the key to remove is absent"),
        }
    }
}

impl std::error::Error for Error {}
