//! Bounds the distance of a time ahead of the latest one.
//!
//! A sketch with expiring keys keeps the latest time, and treats earlier times as that time. A single time
//! from far in the future would therefore stop its clock until then: nothing expires, the sketch fills up,
//! and nearly every new key is found. The bound makes such a time an error.

use crate::error::Error;

/// The default bound, in longest lifetimes.
const LIFETIMES: u64 = 1000;

/// The bound, and whether it applies yet. Neither encoded nor compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaps {
    max: u64,
    has_begun: bool,
}

impl Leaps {
    /// The default bound for a sketch with this longest lifetime. The first time of a new sketch is always
    /// accepted.
    pub(crate) fn new(longest: u64, has_begun: bool) -> Self {
        Self { max: longest.saturating_mul(LIFETIMES), has_begun }
    }

    /// Sets the bound. A step of the clock, `span`, is always allowed.
    pub(crate) fn set_max(&mut self, max: u64, span: u64) {
        self.max = max.max(span);
    }

    /// Rejects a time that is too far ahead of `present`, the beginning of the present step of the clock.
    pub(crate) fn check(&self, present: u64, now: u64) -> Result<(), Error> {
        let ahead = now.saturating_sub(present);
        if self.has_begun && ahead > self.max {
            return Err(Error::LeapTooLarge { ahead, max: self.max });
        }
        Ok(())
    }

    /// Enables the bound.
    pub(crate) fn begin(&mut self) {
        self.has_begun = true;
    }
}
