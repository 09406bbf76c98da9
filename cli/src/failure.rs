//! Failures of commands: the message on standard error and the exit code.
//!
//! | code | meaning |
//! |---|---|
//! | 1 | the key is absent, or has another value than expected; the stores differ |
//! | 2 | the arguments or the input are invalid; nothing was done with them |
//! | 3 | a store, file or stream is damaged, missing, in use, or failed; memory is short |
//! | 130, 143, 129 | SIGINT, SIGTERM or SIGHUP ended a backup, its verification or a restore: nothing is left half done |
//! | 130, 143, 129 | a second signal ended a command at once |
//! | 130, 143, 129 | a signal ended loading or deleting: the written lines stay (see `bulk`) |
//! | 130, 143, 129 | a signal ended `uniq`, and nothing failed: every stored line is printed |
//!
//! If the reader closes the pipe (`sievedb scan DB | head`), the exit code is 0 or the known answer ([`answered`]).

use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use sievedb_backup as backup;
use sievedb_sketches as sketch;
use sievedb_sketches::store::StoreError;

use crate::escape::{printable, quoted};
use crate::interrupt::{EXIT_INTERRUPTED, participle};

#[derive(Debug)]
pub(crate) enum Failure {
    Absent(String),
    /// The key has this value; nothing was written.
    Declined(String),
    No,
    Usage(String),
    Store(sievedb::Error),
    Refused(String),
    /// An I/O error outside the store. `what` is as in [`Failure::io`].
    Io {
        what: String,
        source: io::Error,
    },
    NoMemory(String),
    PipeClosed,
    /// Ended by the signal with this exit code.
    Interrupted(i32),
    /// The messages were printed; exits with this code.
    Printed(u8),
    Noted {
        failure: Box<Failure>,
        note: String,
    },
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// `what` is a verb and its object: "read words.txt".
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    pub(crate) fn no_memory(what: impl Into<String>) -> Self {
        Self::NoMemory(what.into())
    }

    pub(crate) fn with_note(self, note: impl Into<String>) -> Self {
        match self {
            Self::PipeClosed => Self::PipeClosed,
            failure => Self::Noted { failure: Box::new(failure), note: note.into() },
        }
    }

    pub(crate) fn with_notes_of(self, other: Self) -> Self {
        match other {
            Self::Noted { failure, note } => self.with_notes_of(*failure).with_note(note),
            _ => self,
        }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::PipeClosed => 0,
            Self::Interrupted(code) => *code as u8,
            Self::Printed(code) => *code,
            Self::Absent(_) | Self::Declined(_) | Self::No => 1,
            Self::Usage(_) => 2,
            Self::Store(sievedb::Error::InvalidArgument { .. } | sievedb::Error::LimitExceeded { .. }) => 2,
            Self::Store(_) | Self::Refused(_) | Self::NoMemory(_) | Self::Io { .. } => 3,
            Self::Noted { failure, .. } => failure.code(),
        }
    }

    pub(crate) fn report(&self, program: &str) -> ExitCode {
        if !matches!(self, Self::PipeClosed | Self::No | Self::Printed(_)) {
            warn(program, &self.to_string());
        }
        if let Some(store) = self.damaged_store() {
            let (name, remedy) = (quoted(&store.to_string_lossy()), remedy(store));
            warn(program, &format!("note: `sievedb verify {name}` lists all damage; {remedy}"));
        }
        if let Some(dir) = self.repository() {
            let dir = quoted(&dir.to_string_lossy());
            warn(
                program,
                &format!(
                    "note: {dir} has backups of stores: `sievedb backups {dir}` lists them, `sievedb backup --verify {dir}` \
                 verifies them, `sievedb restore {dir} DIR` makes a store"
                ),
            );
        }
        ExitCode::from(self.code())
    }

    fn repository(&self) -> Option<&Path> {
        match self {
            Self::Store(sievedb::Error::NoStore { dir, .. } | sievedb::Error::OtherFiles { dir, .. }) => {
                let found = backup::Repository::open(dir).and_then(|repository| repository.backups());
                found.is_ok_and(|found| !found.backups.is_empty()).then_some(dir)
            }
            Self::Noted { failure, .. } => failure.repository(),
            _ => None,
        }
    }

    fn damaged_store(&self) -> Option<&Path> {
        match self {
            Self::Store(sievedb::Error::Corruption { file, .. }) => file.parent(),
            Self::Noted { failure, .. } => failure.damaged_store(),
            _ => None,
        }
    }
}

/// The next commands for a damaged store.
pub(crate) fn remedy(store: &Path) -> String {
    let store = quoted(&store.to_string_lossy());
    format!("restore a backup, or save the rest with `sievedb repair {store} --into NEW`")
}

/// Returns a panic of `work` as a failure.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let panicked = |_| Err(Failure::Refused("internal error: a thread panicked, see above".into()));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

/// The result of a command with a known answer; a pipe that closed early does not change it.
pub(crate) fn answered(printed: Result<()>, answer: Result<()>) -> Result<()> {
    match printed {
        Ok(()) | Err(Failure::PipeClosed) => answer,
        failure => failure,
    }
}

/// Escapes control characters. Ignores a closed standard error.
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
            backup::Error::Ambiguous { detail, .. } => Self::Usage(detail),
            backup::Error::Cancelled => Self::Interrupted(EXIT_INTERRUPTED),
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
            Self::Interrupted(code) => write!(f, "{}; nothing is left half done", participle(*code)),
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
