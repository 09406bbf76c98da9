//! Write rate of a keyspace while flushes or compactions are behind.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::compaction::debt::is_none;
use crate::sync::lock;
pub(in crate::db) const DELAY_MAX: Duration = Duration::from_millis(100);

/// Timers are too imprecise for a shorter delay.
pub(in crate::db) const DELAY_MIN: Duration = Duration::from_micros(20);

pub(in crate::db) fn has_no_pressure(immutables: usize, runs: usize, debt: u64) -> bool {
    immutables <= 1 && is_none(runs + immutables, debt)
}

#[derive(Debug, Default)]
pub(in crate::db) struct Pace(Mutex<Option<Instant>>);

impl Pace {
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
