//! Calls that run again because other writers came first: pauses, and at last priority.
//!
//! After each lost try a call pauses for a random time, whose limit doubles from 50 µs on. A call that lost nine tries
//! takes priority for its tenth: the batches of other threads wait before they enter the commit queue, each for a second
//! at most, whichever thread has priority meanwhile. Without it a transaction that takes longer than the time between
//! two updates of a key it reads would never commit, however long it paused: the updates do not lose, so they do not
//! pause.
//!
//! No result relies on priority. A closure that waits for another writer is delayed, never deadlocked.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::sync::{lock, wait_for};

/// How long a thread waits for the one that has priority.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Each tenth try of a call has priority.
pub(in crate::db) const PRIORITY_ONE_IN: u32 = 10;

/// The longest pause after the first try; it doubles after each further one of ten.
const PAUSE: Duration = Duration::from_micros(50);

/// Which thread has priority.
#[derive(Default)]
pub(in crate::db) struct PriorityLane {
    /// The thread, and until when others wait for it.
    holder: Mutex<Option<(ThreadId, Instant)>>,
    /// Whether there is one, readable without the lock.
    is_taken: AtomicBool,
    is_free: Condvar,
}

/// While it exists, its thread has priority, but not longer than [`PATIENCE`].
pub(in crate::db) struct Priority<'l> {
    lane: &'l PriorityLane,
    thread: ThreadId,
}

impl Drop for Priority<'_> {
    fn drop(&mut self) {
        let mut holder = lock(&self.lane.holder);
        // Another thread has it, if this one had it for too long.
        if holder.is_some_and(|(thread, _)| thread == self.thread) {
            *holder = None;
            self.lane.is_taken.store(false, Ordering::Relaxed);
            drop(holder);
            self.lane.is_free.notify_all();
        }
    }
}

impl PriorityLane {
    #[inline]
    pub(in crate::db) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }

    /// Waits while other threads have priority.
    #[inline]
    pub(super) fn wait(&self) {
        if self.is_taken() {
            drop(self.give_way(PATIENCE));
        }
    }

    /// Waits while other threads have priority, one after the other, but not longer than `patience`.
    fn give_way(&self, patience: Duration) -> MutexGuard<'_, Option<(ThreadId, Instant)>> {
        let own = std::thread::current().id();
        let end = Instant::now() + patience;
        let mut holder = lock(&self.holder);
        while let Some((_, until)) = holder.filter(|(thread, _)| *thread != own) {
            let left = until.min(end).saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            holder = wait_for(&self.is_free, holder, left);
        }
        holder
    }

    /// Takes priority, after the threads that had it before. `None`: this thread has it already.
    pub(in crate::db) fn take(&self) -> Option<Priority<'_>> {
        self.take_for(PATIENCE)
    }

    fn take_for(&self, patience: Duration) -> Option<Priority<'_>> {
        let mut holder = self.give_way(PATIENCE);
        let own = std::thread::current().id();
        if holder.is_some_and(|(thread, _)| thread == own) {
            return None;
        }
        *holder = Some((own, Instant::now() + patience));
        self.is_taken.store(true, Ordering::Relaxed);
        Some(Priority { lane: self, thread: own })
    }
}

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

    /// To be called when a try was lost; the caller no longer holds its priority. Returns when the next try may begin:
    /// after a pause, or with priority. `barrier` returns when the writers are done that came before.
    pub(in crate::db) fn lost<'l, E>(
        &mut self,
        lane: &'l PriorityLane,
        barrier: impl FnOnce() -> Result<(), E>,
    ) -> Option<Priority<'l>> {
        self.lost += 1;
        let has_priority = self.current().is_multiple_of(PRIORITY_ONE_IN);
        let priority = if has_priority { lane.take() } else { None };
        match priority {
            None => pause(self.lost),
            // If writing has failed, the next try returns the error.
            Some(_) => drop(barrier()),
        }
        priority
    }
}

/// Waits for a random time, so that two calls that made each other lose do not do so again.
fn pause(lost: u32) {
    let longest = PAUSE.saturating_mul(1 << (lost % PRIORITY_ONE_IN));
    let share = RandomState::new().hash_one(lost) % 1024;
    std::thread::sleep(longest.mul_f64(share as f64 / 1024.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_wait_for_the_thread_with_priority_and_it_waits_for_none() {
        const LONG: Duration = Duration::from_secs(600);
        let lane = PriorityLane::default();
        let pass = || drop(lane.give_way(LONG));
        pass();
        let way = lane.take_for(LONG).unwrap();
        pass();
        assert!(lane.take().is_none(), "it has it already");
        let said = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pass();
                lock(&said).push("another");
            });
            std::thread::sleep(Duration::from_millis(50));
            lock(&said).push("the first");
            drop(way);
        });
        assert_eq!(*lock(&said), ["the first", "another"]);
        assert!(lane.take().is_some() && !lane.is_taken());
    }

    #[test]
    fn a_thread_that_keeps_priority_for_too_long_loses_it() {
        let lane = PriorityLane::default();
        let pass = || drop(lane.give_way(Duration::from_secs(60)));
        let slow = lane.take_for(Duration::from_millis(20)).unwrap();
        std::thread::scope(|scope| {
            // From now on nobody waits for it: each of these would wait for a minute with a limit of its own.
            scope.spawn(pass).join().unwrap();
            let others = scope.spawn(|| {
                let second = lane.take_for(Duration::from_secs(600)).unwrap();
                let id = std::thread::current().id();
                drop(slow);
                assert!(lock(&lane.holder).is_some_and(|(holder, _)| holder == id), "the second has it");
                drop(second);
            });
            others.join().unwrap();
        });
        assert!(!lane.is_taken());
    }

    #[test]
    fn a_batch_passes_threads_that_take_priority_again_and_again() {
        let lane = PriorityLane::default();
        let has_passed = AtomicBool::new(false);
        let (begun, mut way) = (Instant::now(), lane.take());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(lane.give_way(PATIENCE));
                has_passed.store(true, Ordering::Relaxed);
            });
            while !has_passed.load(Ordering::Relaxed) && begun.elapsed() < 60 * PATIENCE {
                drop(way.take());
                way = lane.take();
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(has_passed.load(Ordering::Relaxed), "it waits as long as anybody has it");
            drop(way);
        });
    }

    #[test]
    fn one_of_two_threads_that_wait_for_priority_has_it_at_a_time() {
        let lane = PriorityLane::default();
        let (first, holders) = (lane.take().unwrap(), Mutex::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let priority = lane.take_for(Duration::from_secs(600)).unwrap();
                    *lock(&holders) += 1;
                    std::thread::sleep(Duration::from_millis(50));
                    assert_eq!(std::mem::take(&mut *lock(&holders)), 1, "both have it");
                    drop(priority);
                });
            }
            std::thread::sleep(Duration::from_millis(50));
            drop(first);
        });
    }
}
