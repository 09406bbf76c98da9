//! Whether a store may be used: it may have been closed, and writing may be disabled by a failure.
//!
//! A panic is a failure too: it may have interrupted a change halfway, and threads that wait for the work
//! must get its error. So work that others may wait for is run by [`catch`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// The failure that disabled writing, if any, and whether the store is closed.
#[derive(Default)]
pub(crate) struct Health {
    failure: OnceLock<Error>,
    closed: AtomicBool,
}

impl Health {
    /// Stores the first failure. `false` if there was one before.
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

/// Runs a function. Returns a panic as an error that names what it interrupted.
pub(super) fn catch<T>(during: &'static str, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Error::Panicked { during, message: text.unwrap_or_default().into_boxed_str() }
    })
}
