//! Calls that are run again because other writers came between: pauses, and at last the right of way.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::db::engine::Engine;
use crate::db::queues::commit_queue::Priority;

/// Each tenth try of a call has the right of way.
pub(in crate::db) const ALONE_ONE_IN: u32 = 10;

/// The longest pause after the first try; it doubles after each further one of ten.
const PAUSE: Duration = Duration::from_micros(50);

/// The tries of a call.
#[derive(Default)]
pub(in crate::db) struct Tries {
    lost: u32,
}

impl Tries {
    /// The number of the try that is under way.
    pub(in crate::db) fn current(&self) -> u32 {
        self.lost + 1
    }

    /// To be called when a try was in vain. Returns when the next one may begin: after a pause, or with the right of
    /// way, for as long as the call holds it. The caller no longer holds that of the last try.
    pub(in crate::db) fn lost<'e>(&mut self, engine: &'e Engine) -> Option<Priority<'e>> {
        self.lost += 1;
        let is_alone = self.current().is_multiple_of(ALONE_ONE_IN);
        let way = if is_alone { engine.commit.take_priority() } else { None };
        match way {
            None => pause(self.lost),
            // Waits until the writers are done that came before. If they have failed, the next try finds out why.
            Some(_) => drop(engine.barrier()),
        }
        way
    }
}

/// Waits for a random time, so that two who come between each other do not do so again.
fn pause(lost: u32) {
    let longest = PAUSE.saturating_mul(1 << (lost % ALONE_ONE_IN));
    let share = RandomState::new().hash_one(lost) % 1024;
    std::thread::sleep(longest.mul_f64(share as f64 / 1024.0));
}
