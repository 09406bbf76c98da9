//! One direction of a read: the common part of its two implementations.

use bytes::Bytes;

use super::{KeyRange, Moment, Visible};
use crate::error::{Error, Result};

/// The visible entries of a range in one direction, over a source of its own.
pub(super) trait Half<S>: Sized {
    fn new(source: S, moment: Moment, range: KeyRange) -> Self;

    /// Begins again, in another range. A half that failed stays failed.
    fn restart(&mut self, range: KeyRange);

    /// Ends the range before `key`, which comes later in this direction.
    fn stop_before(&mut self, key: Bytes);

    /// Goes to the next visible entry; `false` at the end. A half that failed fails forever.
    fn step(&mut self) -> Result<bool, Box<Error>>;

    /// The entry to which the last step went. Its value can be taken once.
    fn here(&mut self) -> Visible<'_, S>;

    /// The key that was yielded last, before the end is reached.
    fn last(&self) -> Option<&[u8]>;

    /// Hidden entries that were skipped: tombstones, and what newer entries hide.
    fn skipped(&mut self) -> &mut u64;

    /// The next visible entry.
    fn next(&mut self) -> Result<Option<Visible<'_, S>>> {
        Ok(self.step()?.then(|| self.here()))
    }
}

/// The result of a step.
pub(super) enum State {
    /// The source has not been moved.
    New,
    /// The source is where the last step left it.
    Moved,
    Ended,
    Failed(Error),
}

impl State {
    /// Whether the source may be moved to where the range begins. It is then taken as moved.
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

    /// Keeps the result of a step that has found nothing.
    #[cold]
    pub(super) fn end(&mut self, over: Result<bool, Box<Error>>) -> Result<bool, Box<Error>> {
        *self = match &over {
            Ok(_) => Self::Ended,
            Err(error) => Self::Failed((**error).clone()),
        };
        over
    }
}
