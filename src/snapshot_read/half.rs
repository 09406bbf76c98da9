//! One direction of a read.

use bytes::Bytes;

use super::{KeyRange, Moment, Visible};
use crate::error::{Error, Result};

pub(super) trait Half<S>: Sized {
    fn new(source: S, moment: Moment, range: KeyRange) -> Self;

    fn restart(&mut self, range: KeyRange);

    /// Ends the half before `key`, which comes later in this direction.
    fn stop_before(&mut self, key: Bytes);

    /// Returns `false` at the end. A failed half stays failed.
    fn step(&mut self) -> Result<bool, Box<Error>>;

    /// Returns the entry. Its value can be taken once.
    fn here(&mut self) -> Visible<'_, S>;

    fn last(&self) -> Option<&[u8]>;

    fn skipped(&mut self) -> &mut u64;

    fn next(&mut self) -> Result<Option<Visible<'_, S>>> {
        Ok(self.step()?.then(|| self.here()))
    }
}

pub(super) enum State {
    New,
    Moved,
    Ended,
    Failed(Error),
}

impl State {
    pub(super) fn start(&mut self) -> Result<bool, Box<Error>> {
        match self {
            Self::New | Self::Moved => {
                *self = Self::Moved;
                Ok(true)
            }
            Self::Ended => Ok(false),
            Self::Failed(error) => Err(error.clone().into()),
        }
    }

    pub(super) fn restart(&mut self) {
        if !matches!(self, Self::Failed(_)) {
            *self = Self::New;
        }
    }

    #[cold]
    pub(super) fn end(&mut self, over: Result<bool, Box<Error>>) -> Result<bool, Box<Error>> {
        *self = match &over {
            Ok(_) => Self::Ended,
            Err(error) => Self::Failed((**error).clone()),
        };
        over
    }
}
