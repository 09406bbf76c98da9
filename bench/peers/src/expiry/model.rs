//! An id is refused for one time to live after it was accepted, and accepted one bucket later. In between both answers are right,
//! and the model follows the store.

use std::collections::HashSet;
use std::ops::Range;

use super::stream::{Stream, TTL_MILLIS, end_of_bucket};
use crate::Result;

pub(crate) struct Model<'s> {
    stream: &'s Stream,
    /// For each id (its first event): the event of its last acceptance plus one, or 0.
    accepted: Vec<u32>,
    /// Ids that an unanswered call may have accepted again.
    uncertain: HashSet<u32>,
}

impl<'s> Model<'s> {
    pub(crate) fn new(stream: &'s Stream, ids: u32) -> Self {
        Self { stream, accepted: vec![0; ids as usize], uncertain: HashSet::new() }
    }

    pub(crate) fn check(&mut self, events: Range<u32>, new: &[bool]) -> Result<()> {
        let (first, mut before) = (events.start, Vec::new());
        for (event, &is_new) in events.zip(new) {
            let id = self.stream.original(event);
            let right = self.right(id, first);
            if right.is_some_and(|right| right != is_new) {
                before.into_iter().rev().for_each(|(id, accepted)| self.accepted[id as usize] = accepted);
                return Err(format!("event {event}: new is {is_new}").into());
            }
            if is_new {
                before.push((id, self.accepted[id as usize]));
                // A batch has the time of its first event.
                self.accepted[id as usize] = first + 1;
            }
        }
        before.iter().for_each(|(id, _)| _ = self.uncertain.remove(id));
        Ok(())
    }

    pub(crate) fn check_repeated(&mut self, events: Range<u32>, new: &[bool]) -> Result<()> {
        let unanswered = self.check(events.clone(), new);
        if unanswered.is_err() && new.iter().all(|is_new| !is_new) {
            for event in events.clone() {
                let id = self.stream.original(event);
                match self.right(id, events.start) {
                    Some(true) => self.accepted[id as usize] = events.start + 1,
                    Some(false) => {}
                    None => _ = self.uncertain.insert(id),
                }
            }
            return Ok(());
        }
        unanswered
    }

    fn right(&self, id: u32, event: u32) -> Option<bool> {
        let now = self.stream.time(event);
        match self.accepted[id as usize].checked_sub(1).map(|event| self.stream.time(event)) {
            _ if self.uncertain.contains(&id) => None,
            None => Some(true),
            Some(before) if now < before + TTL_MILLIS => Some(false),
            Some(before) if now >= end_of_bucket(before) + TTL_MILLIS => Some(true),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expiry::tests::PLAN;

    #[test]
    fn a_wrong_answer_is_an_error() {
        let stream = Stream::new(&PLAN);
        let mut model = Model::new(&stream, PLAN.ids);
        let repeated = (0..PLAN.ids).find(|event| stream.original(*event) != *event).unwrap();
        for event in 0..repeated {
            model.check(event..event + 1, &[false]).unwrap_err();
            model.check(event..event + 1, &[true]).unwrap();
        }
        model.check(repeated..repeated + 1, &[true]).unwrap_err();
        model.check(repeated..repeated + 1, &[false]).unwrap();
    }

    #[test]
    fn a_repeated_call_was_executed_as_a_whole_or_not_at_all() {
        let stream = Stream::new(&PLAN);
        let events = 0..3;
        assert!(events.clone().all(|event| stream.original(event) == event));
        let check = |new: [bool; 3]| Model::new(&stream, PLAN.ids).check_repeated(0..3, &new);
        check([true; 3]).unwrap();
        check([false; 3]).unwrap();
        check([false, false, true]).unwrap_err();
        check([true, false, true]).unwrap_err();
    }
}
