//! Back-off of calls that retry after a conflict, and priority for each tenth attempt.
//!
//! After a lost attempt a call sleeps for a random time, whose limit starts at 100 µs and doubles. Instead, each tenth
//! attempt has priority: the batches of other threads wait before the commit queue, for at most a second in total.
//!
//! Rejected: back-off alone. A transaction longer than the time between updates of its keys lost each of ten attempts
//! against eight threads (`transaction/tests`).
//!
//! Correctness does not depend on priority.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::sync::{lock, wait_for};

pub(super) const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

pub(in crate::db) const PRIORITY_ONE_IN: u32 = 10;

/// The longest pause after attempt n is this shifted left by n modulo ten.
const PAUSE: Duration = Duration::from_micros(50);

#[derive(Default, Clone, Copy)]
enum Holder {
    #[default]
    Nobody,
    Until(ThreadId, Instant),
    /// The store is closed: no thread takes priority again.
    Ended,
}

#[derive(Default)]
pub(in crate::db) struct PriorityLane {
    holder: Mutex<Holder>,
    is_taken: AtomicBool,
    is_free: Condvar,
}

impl PriorityLane {
    #[inline]
    pub(in crate::db) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn wait(&self) {
        if self.is_taken() {
            drop(self.give_way(PATIENCE));
        }
    }

    fn give_way(&self, patience: Duration) -> MutexGuard<'_, Holder> {
        let own = std::thread::current().id();
        let end = Instant::now() + patience;
        let mut holder = lock(&self.holder);
        while let Holder::Until(thread, until) = *holder
            && thread != own
        {
            let left = until.min(end).saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            holder = wait_for(&self.is_free, holder, left);
        }
        holder
    }

    /// Waits for threads that have priority now. Returns `false` if this thread already has it, or after
    /// [`end`](Self::end).
    pub(super) fn take(&self, patience: Duration) -> bool {
        let mut holder = self.give_way(PATIENCE);
        let own = std::thread::current().id();
        let is_new = match *holder {
            Holder::Nobody => true,
            Holder::Until(thread, _) => thread != own,
            Holder::Ended => false,
        };
        if is_new {
            *holder = Holder::Until(own, Instant::now() + patience);
            self.is_taken.store(true, Ordering::Relaxed);
        }
        is_new
    }

    pub(super) fn release(&self) {
        let own = std::thread::current().id();
        let holder = lock(&self.holder);
        if matches!(*holder, Holder::Until(thread, _) if thread == own) {
            self.set_free(holder, Holder::Nobody);
        }
    }

    /// Lets all threads pass from now on, because the store closes.
    pub(in crate::db) fn end(&self) {
        self.set_free(lock(&self.holder), Holder::Ended);
    }

    fn set_free(&self, mut holder: MutexGuard<'_, Holder>, now: Holder) {
        *holder = now;
        self.is_taken.store(false, Ordering::Relaxed);
        drop(holder);
        self.is_free.notify_all();
    }
}

pub(in crate::db) struct Tries<'l> {
    lane: &'l PriorityLane,
    lost: u32,
    has_priority: bool,
}

impl<'l> Tries<'l> {
    pub(in crate::db) fn new(lane: &'l PriorityLane) -> Self {
        Self { lane, lost: 0, has_priority: false }
    }

    pub(in crate::db) fn is_last_of_ten(&self) -> bool {
        (self.lost + 1).is_multiple_of(PRIORITY_ONE_IN)
    }

    /// Call after a lost attempt. Returns when the next one may begin. `barrier` returns when earlier writers are
    /// done.
    pub(in crate::db) fn lost<E>(&mut self, barrier: impl FnOnce() -> Result<(), E>) {
        self.release();
        self.lost += 1;
        self.has_priority = self.is_last_of_ten() && self.lane.take(PATIENCE);
        match self.has_priority {
            true => drop(barrier()),
            false => pause(self.lost),
        }
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.has_priority) {
            self.lane.release();
        }
    }
}

impl Drop for Tries<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

fn pause(lost: u32) {
    let longest = PAUSE.saturating_mul(1 << (lost % PRIORITY_ONE_IN));
    let share = RandomState::new().hash_one(lost) % 1024;
    std::thread::sleep(longest.mul_f64(share as f64 / 1024.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn others_wait_for_the_thread_with_priority_and_it_waits_for_none() {
        let lane = PriorityLane::default();
        let pass = || drop(lane.give_way(LONG));
        pass();
        assert!(lane.take(LONG));
        pass();
        assert!(!lane.take(LONG), "it has it already");
        let said = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pass();
                lock(&said).push("another");
            });
            std::thread::sleep(Duration::from_millis(50));
            lock(&said).push("the first");
            lane.release();
        });
        assert_eq!(*lock(&said), ["the first", "another"]);
        assert!(!lane.is_taken() && lane.take(LONG));
    }

    #[test]
    fn a_thread_that_keeps_priority_for_too_long_loses_it() {
        let lane = PriorityLane::default();
        let pass = || drop(lane.give_way(LONG));
        assert!(lane.take(Duration::from_millis(20)));
        std::thread::scope(|scope| {
            // A waiter with its own limit would wait for minutes.
            scope.spawn(pass).join().unwrap();
            let second = scope.spawn(|| {
                assert!(lane.take(LONG));
                std::thread::current().id()
            });
            let second = second.join().unwrap();
            lane.release();
            let holder = *lock(&lane.holder);
            assert!(matches!(holder, Holder::Until(holder, _) if holder == second), "the second has it");
        });
    }

    #[test]
    fn a_thread_that_waits_for_priority_passes_when_the_store_closes() {
        let lane = PriorityLane::default();
        assert!(lane.take(LONG));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(lane.give_way(LONG)));
            std::thread::sleep(Duration::from_millis(20));
            lane.end();
            waits.join().unwrap();
        });
        assert!(!lane.is_taken());
        assert!(!lane.take(LONG) && !lane.is_taken(), "another thread would wait again");
    }

    #[test]
    fn a_batch_passes_threads_that_take_priority_again_and_again() {
        let lane = PriorityLane::default();
        let has_passed = AtomicBool::new(false);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(lane.give_way(Duration::from_millis(50)));
                has_passed.store(true, Ordering::Relaxed);
            });
            while !has_passed.load(Ordering::Relaxed) && begun.elapsed() < LONG / 10 {
                lane.release();
                lane.take(LONG);
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(has_passed.load(Ordering::Relaxed), "it waits as long as anybody has it");
        });
    }

    #[test]
    fn one_of_two_threads_that_wait_for_priority_has_it_at_a_time() {
        let (lane, holders) = (PriorityLane::default(), Mutex::new(0));
        assert!(lane.take(LONG));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    assert!(lane.take(LONG));
                    *lock(&holders) += 1;
                    std::thread::sleep(Duration::from_millis(50));
                    assert_eq!(std::mem::take(&mut *lock(&holders)), 1, "both have it");
                    lane.release();
                });
            }
            std::thread::sleep(Duration::from_millis(50));
            lane.release();
        });
    }

    #[test]
    fn each_tenth_try_has_priority_until_it_is_lost_or_the_call_ends() {
        let (lane, mut barriers) = (PriorityLane::default(), 0);
        let mut tries = Tries::new(&lane);
        for try_number in 1..=20 {
            assert_eq!(
                (lane.is_taken(), tries.is_last_of_ten()),
                (try_number % 10 == 0, try_number % 10 == 0)
            );
            if try_number < 20 {
                tries.lost(|| {
                    barriers += 1;
                    Ok::<(), ()>(())
                });
            }
        }
        drop(tries);
        assert!(!lane.is_taken() && barriers == 2);
    }
}
