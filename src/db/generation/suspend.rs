//! Suspending writing after a failed append, and waiting for an attempt to resume.

use std::time::Duration;

use crate::db::engine::Engine;
use crate::db::queues::retry::Work;
use crate::db::state::failure::is_out_of_space;
use crate::error::{Error, Result};
use crate::sync::lock;

pub(in crate::db) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

impl Engine {
    pub(in crate::db) fn suspend(&self, error: Error) -> Error {
        self.suspend_if(error, || true)
    }

    /// Suspends writing unless it has resumed in another log.
    pub(in crate::db) fn suspend_log(&self, number: u64, error: Error) {
        self.suspend_if(error, || self.log().active() == number);
    }

    fn suspend_if(&self, error: Error, is_needed: impl FnOnce() -> bool) -> Error {
        let error = self.fail_if_final(error);
        let is_refusal = matches!(error, Error::Closed | Error::Forked { .. });
        if is_refusal || self.lifecycle.has_failed() {
            return error;
        }
        // Under this lock, resuming ends the suspension after its log is active, then clears the retry.
        let mut state = lock(&self.lifecycle.suspension);
        if !self.lifecycle.is_suspended() && is_needed() {
            self.lifecycle.suspend(&mut state, error.clone());
            if is_out_of_space(&error) {
                let free = self.free_bytes().ok().flatten();
                self.note_full_disk(&error, free, self.disk_space.file_bytes());
            }
            self.put_off(Work::Resume, error.clone());
        }
        error
    }

    /// Waits until writing is not suspended or an attempt is due. Without background threads an attempt is always
    /// due.
    ///
    /// # Errors
    ///
    /// The failure of a concurrent attempt.
    #[inline]
    pub(in crate::db) fn await_resume(&self) -> Result<()> {
        if self.lifecycle.is_suspended() { self.wait_for_resume() } else { Ok(()) }
    }

    #[cold]
    fn wait_for_resume(&self) -> Result<()> {
        let reservations = &self.background.reservations;
        let failures = {
            let _state = lock(&self.lifecycle.suspension);
            self.retry.failures()
        };
        loop {
            if !self.lifecycle.is_suspended() {
                return Ok(());
            }
            let epoch = reservations.epoch();
            if let Some(error) = self.retry.failed_since(failures, |work| work == Work::Resume) {
                return Err(error);
            }
            if self.may_try(Work::Resume) || !self.lifecycle.is_suspended() {
                return Ok(());
            }
            self.check_writable()?;
            let until_due = self.retry.due_in(Work::Resume).unwrap_or(LOOK_INTERVAL);
            reservations.wait_past(epoch, Some(until_due.min(LOOK_INTERVAL)));
        }
    }
}
