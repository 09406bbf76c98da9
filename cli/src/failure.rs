//! Why a command ends early: the message on standard error and the exit code.
//!
//! | code | meaning |
//! |---|---|
//! | 1 | the key is absent, or does not hold what it must |
//! | 2 | the arguments or the input make no sense; nothing was done with them |
//! | 3 | a store, file or stream is damaged, missing, in use, or failed; memory is short |
//! | 130 | interrupted while loading or deleting: what was written stays (see `bulk`); or by a backup or restore, which leave nothing half done |
//!
//! A reader that closes the pipe (`sievedb scan DB | head`) is satisfied: the command ends with 0, unless its exit
//! code is already determined ([`answered`]).

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use sievedb_backup as backup;
use sievedb_sketches as sketch;
use sievedb_sketches::store::StoreError;

use crate::escape::printable;
use crate::interrupt::EXIT_INTERRUPTED;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The key is absent; the key as it is printed.
    Absent(String),
    /// The key does not have the expected value, and nothing was written; its value.
    Declined(String),
    /// The answer is no, and is printed already.
    No,
    /// The arguments or the input make no sense.
    Usage(String),
    /// The store returned an error.
    Store(sievedb::Error),
    /// The store or its files do not meet the requirements of the command.
    Refused(String),
    /// A file or stream outside the store could not be read or written.
    Io { what: String, source: io::Error },
    /// There is not enough memory for this.
    NoMemory(String),
    /// The reader of standard output has closed the pipe.
    PipeClosed,
    /// The command was interrupted, and has left nothing half done.
    Interrupted,
    /// The messages are printed already; the exit code.
    Printed(u8),
    /// Another failure, with a note behind its message.
    Noted { failure: Box<Failure>, note: String },
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// `what` is a verb and its object: "read words.txt".
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    /// There is not enough memory for `what`.
    pub(crate) fn no_memory(what: impl Into<String>) -> Self {
        Self::NoMemory(what.into())
    }

    /// This failure with a note behind its message.
    pub(crate) fn with_note(self, note: impl Into<String>) -> Self {
        match self {
            Self::PipeClosed => Self::PipeClosed,
            failure => Self::Noted { failure: Box::new(failure), note: note.into() },
        }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::PipeClosed => 0,
            Self::Interrupted => EXIT_INTERRUPTED as u8,
            Self::Printed(code) => *code,
            Self::Absent(_) | Self::Declined(_) | Self::No => 1,
            Self::Usage(_) => 2,
            Self::Store(sievedb::Error::InvalidArgument { .. } | sievedb::Error::LimitExceeded { .. }) => 2,
            Self::Store(_) | Self::Refused(_) | Self::NoMemory(_) | Self::Io { .. } => 3,
            Self::Noted { failure, .. } => failure.code(),
        }
    }

    /// Prints the message on standard error, with the name of the program before it.
    pub(crate) fn report(&self, program: &str) -> ExitCode {
        if !matches!(self, Self::PipeClosed | Self::No | Self::Printed(_)) {
            warn(program, &self.to_string());
        }
        ExitCode::from(self.code())
    }
}

/// The result of a command whose answer is known: the answer counts also if a reader closed the pipe before
/// it was printed.
pub(crate) fn answered(printed: Result<()>, answer: Result<()>) -> Result<()> {
    match printed {
        Ok(()) | Err(Failure::PipeClosed) => answer,
        failure => failure,
    }
}

/// Prints a line on standard error, with control characters escaped. A closed standard error is ignored.
pub(crate) fn warn(program: &str, message: &str) {
    let _ = writeln!(io::stderr(), "{program}: {}", printable(message));
}

impl From<sievedb::Error> for Failure {
    fn from(error: sievedb::Error) -> Self {
        Self::Store(error)
    }
}

impl From<backup::Error> for Failure {
    fn from(error: backup::Error) -> Self {
        match error {
            backup::Error::Store(error) => error.into(),
            backup::Error::InvalidArgument { what, .. } => Self::Usage(what),
            backup::Error::Cancelled => Self::Interrupted,
            error => Self::Refused(error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Store(error) => error.into(),
            StoreError::Sketch(error @ sketch::Error::InvalidArgument(_)) => Self::Usage(error.to_string()),
            StoreError::Sketch(sketch::Error::TooLarge(bytes)) => Self::no_memory(format!("{bytes} bytes")),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(key) => write!(f, "absent: {key}"),
            Self::Declined(message) | Self::Usage(message) | Self::Refused(message) => f.write_str(message),
            Self::Store(error) => error.fmt(f),
            Self::Io { what, source } => write!(f, "cannot {what}: {source}"),
            Self::NoMemory(what) => write!(f, "not enough memory for {what}"),
            Self::Interrupted => f.write_str("interrupted; nothing is left half done"),
            Self::No => f.write_str("no"),
            Self::PipeClosed => f.write_str("standard output is closed"),
            Self::Printed(_) => f.write_str("see above"),
            Self::Noted { failure, note } => write!(f, "{failure}; {note}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_changes_the_message_and_not_the_code() {
        let failure = Failure::Usage("line 3 is bad".into()).with_note("2 lines are loaded");
        assert_eq!(failure.to_string(), "line 3 is bad; 2 lines are loaded");
        assert_eq!(failure.code(), 2);
        assert_eq!(Failure::PipeClosed.with_note("x").code(), 0);
        assert_eq!(Failure::io("read x", io::ErrorKind::NotFound.into()).code(), 3);
    }
}
