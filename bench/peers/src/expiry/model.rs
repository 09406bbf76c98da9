//! The right answers: an id is refused for one time to live after it was accepted, and accepted one bucket later. In between
//! both are right, and the model follows the store.

use std::ops::Range;

use super::stream::{Stream, TTL_MILLIS, end_of_bucket};
use crate::Result;

pub(crate) struct Model<'s> {
    stream: &'s Stream,
    /// By the first event of an id: one more than the event at which it was last accepted; 0: never.
    accepted: Vec<u32>,
}

impl<'s> Model<'s> {
    pub(crate) fn new(stream: &'s Stream, ids: u32) -> Self {
        // Written now, so that its memory is not counted to the store.
        let accepted = vec![1; ids as usize].into_iter().map(|_: u32| 0).collect();
        Self { stream, accepted }
    }

    /// Checks the answers to these events, which were given together.
    pub(crate) fn check(&mut self, now: u64, events: Range<u32>, new: &[bool]) -> Result<()> {
        let first = events.start;
        for (event, &is_new) in events.zip(new) {
            let accepted = &mut self.accepted[self.stream.original(event) as usize];
            let before = accepted.checked_sub(1).map(|event| self.stream.time(event));
            let must_be_refused = before.is_some_and(|before| now < before + TTL_MILLIS);
            let must_be_accepted = before.is_none_or(|before| now >= end_of_bucket(before) + TTL_MILLIS);
            if must_be_refused && is_new || must_be_accepted && !is_new {
                return Err(
                    format!("event {event} at {now}: new is {is_new}, last accepted at {before:?}").into()
                );
            }
            if is_new {
                // The batch has the time of its first event.
                *accepted = first + 1;
            }
        }
        Ok(())
    }
}
