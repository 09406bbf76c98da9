//! How far one time may be ahead of the latest one.
//!
//! A sketch that forgets by time keeps the latest time that it was given, and an earlier one counts as that. So a
//! single time from far in the future would stop its clock until that time has come: nothing is forgotten
//! meanwhile, the sketch fills up, and nearly every new key is found. A bound makes such a time an error.

use crate::error::Error;

/// The default bound, in longest lifetimes.
const LIFETIMES: u64 = 1000;

/// The bound, and whether it applies yet. It is part of neither the encoding nor the value of a sketch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaps {
    max: u64,
    has_begun: bool,
}

impl Leaps {
    /// The default bound for a sketch with this longest lifetime. The first time of one that has not begun is
    /// taken as it is.
    pub(crate) fn new(longest: u64, has_begun: bool) -> Self {
        Self { max: longest.saturating_mul(LIFETIMES), has_begun }
    }

    /// Sets the bound. `span` is the length of a step of the clock, which is always allowed.
    pub(crate) fn set_max(&mut self, max: u64, span: u64) {
        self.max = max.max(span);
    }

    /// Refuses a time that is too far ahead of `present`, the beginning of the present step of the clock.
    pub(crate) fn check(&self, present: u64, now: u64) -> Result<(), Error> {
        let ahead = now.saturating_sub(present);
        if self.has_begun && ahead > self.max {
            return Err(Error::LeapTooLarge { ahead, max: self.max });
        }
        Ok(())
    }

    /// From now on the bound applies.
    pub(crate) fn begin(&mut self) {
        self.has_begun = true;
    }
}
