//! Whether a store may be used: it may have been closed, and writing may be disabled by a failure.
//!
//! A panic is a failure too. Nobody knows where it left what was being done, and whoever waits for that must
//! hear of it; so work that others may wait for is done within [`catch`].

use std::panic::{AssertUnwindSafe, catch_unwind};
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

/// Does something; a panic is an error that says what it interrupted.
pub(super) fn catch<T>(during: &'static str, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Error::Panicked { during, message: text.unwrap_or_default().into_boxed_str() }
    })
}
