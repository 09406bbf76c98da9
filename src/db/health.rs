//! Whether a store may be used: it may have been closed, and writing may be disabled by a failure.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// The failure switch and whether the store is closed.
#[derive(Default)]
pub(crate) struct Health {
    failure: OnceLock<Error>,
    closed: AtomicBool,
}

impl Health {
    /// Remembers the first failure. `false` if there was one before.
    pub(super) fn set_failure(&self, error: Error) -> bool {
        self.failure.set(error).is_ok()
    }

    /// The failure that disabled writing.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    pub(crate) fn check_not_failed(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Marks the store as closed. `false` if it was before.
    pub(super) fn set_closed(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }
}
