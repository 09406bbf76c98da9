use crate::error::Error;

/// The default limit, in longest lifetimes.
const LIFETIMES: u64 = 1000;

/// Neither encoded nor compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaps {
    max: u64,
    has_begun: bool,
}

impl Leaps {
    /// The first time of a new sketch is always accepted.
    pub(crate) fn new(longest: u64, has_begun: bool) -> Self {
        Self { max: longest.saturating_mul(LIFETIMES), has_begun }
    }

    /// A leap of one `span` is always allowed.
    pub(crate) fn set_max(&mut self, max: u64, span: u64) {
        self.max = max.max(span);
    }

    /// `present` is the start of the present step.
    pub(crate) fn check(&self, present: u64, now: u64) -> Result<(), Error> {
        let ahead = now.saturating_sub(present);
        if self.has_begun && ahead > self.max {
            return Err(Error::LeapTooLarge { ahead, max: self.max });
        }
        Ok(())
    }

    pub(crate) fn begin(&mut self) {
        self.has_begun = true;
    }
}
