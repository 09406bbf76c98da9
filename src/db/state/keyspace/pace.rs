//! The rate at which the writers of a keyspace may write while flushes or compactions are behind.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::compaction::debt::is_none;
use crate::sync::lock;
/// Longest single delay.
pub(in crate::db) const DELAY_MAX: Duration = Duration::from_millis(100);

/// Shorter delays are skipped, because timers are less precise than that.
pub(in crate::db) const DELAY_MIN: Duration = Duration::from_micros(20);

/// Whether so many memtables that wait to be flushed, runs of level 0, and bytes that compactions owe slow nobody down.
pub(in crate::db) fn has_no_pressure(immutables: usize, runs: usize, debt: u64) -> bool {
    immutables <= 1 && is_none(runs + immutables, debt)
}

/// The rate of all writers of a keyspace under pressure: when the writes so far have had their time.
#[derive(Debug, Default)]
pub(in crate::db) struct Pace(Mutex<Option<Instant>>);

impl Pace {
    /// Adds a write that takes this time. Returns how long its writer has to wait.
    pub(in crate::db) fn delay(&self, now: Instant, time: Duration) -> Duration {
        let mut busy_until = lock(&self.0);
        let end = (busy_until.unwrap_or(now).max(now) + time).min(now + DELAY_MAX);
        *busy_until = Some(end);
        let delay = end - now;
        if delay < DELAY_MIN { Duration::ZERO } else { delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_of_a_keyspace_share_its_rate_and_small_writes_add_up() {
        let (pace, now) = (Pace::default(), Instant::now());
        let (small, large) = (DELAY_MIN / 4, DELAY_MAX / 4);
        assert_eq!(
            [(); 4].map(|()| pace.delay(now, small)),
            [Duration::ZERO, Duration::ZERO, Duration::ZERO, DELAY_MIN]
        );
        assert_eq!([(); 2].map(|()| pace.delay(now, large)), [DELAY_MIN + large, DELAY_MIN + 2 * large]);
        assert_eq!(pace.delay(now, DELAY_MAX), DELAY_MAX);
        let later = now + 2 * DELAY_MAX;
        assert_eq!(pace.delay(later, large), large, "nobody has written meanwhile");
    }
}
