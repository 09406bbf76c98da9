//! The clock of expiry.
//!
//! The system time may be wrong by years after a boot, and be corrected later. So a reading includes the *even*
//! period since this clock last leapt ahead of a steady clock. Without a leap, the period begins at the boot, or at the
//! opening if the uptime is unknown. A keyspace trusts a time far from its last boundary only after an even period of
//! one bucket.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::sync::lock;

/// The year 9999. A clock with a later time is considered broken.
pub(in crate::db) const TIME_MAX: u64 = 253_402_300_799_999;

/// Maximum gain on the steady clock between two readings, in milliseconds.
const GAIN_MAX: u64 = 1000;

pub(in crate::db) struct Clock {
    source: Source,
    even: Mutex<Option<Even>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) struct Now {
    pub(in crate::db) time: u64,
    /// Milliseconds for which the clock has advanced evenly.
    pub(in crate::db) even_for: u64,
}

#[derive(Debug, Clone, Copy)]
struct Even {
    since: u64,
    last: (u64, u64),
}

enum Source {
    System(Instant, u64),
    Simulated(SimulatedClock),
}

/// A clock for tests that advances on request. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct SimulatedClock(Arc<Simulated>);

#[derive(Debug, Default)]
struct Simulated {
    time: AtomicU64,
    steady: AtomicU64,
}

impl SimulatedClock {
    /// A clock at `time`, in milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn at(time: u64) -> Self {
        let clock = Self::default();
        clock.step_to(time);
        clock
    }

    /// Advances both the time and the steady clock.
    pub fn advance(&self, by: Duration) {
        let by = by.as_millis() as u64;
        self.0.steady.fetch_add(by, Ordering::SeqCst);
        self.0.time.fetch_add(by, Ordering::SeqCst);
    }

    /// Sets the time but not the steady clock, like an adjustment or a boot.
    pub fn step_to(&self, time: u64) {
        self.0.time.store(time, Ordering::SeqCst);
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.time.load(Ordering::SeqCst)
    }
}

impl Clock {
    pub(in crate::db) fn new(simulated: Option<&SimulatedClock>) -> Self {
        let source = simulated.map_or_else(
            || Source::System(Instant::now(), uptime()),
            |clock| Source::Simulated(clock.clone()),
        );
        let clock = Self { source, even: Mutex::new(None) };
        let _ = clock.read();
        if let (Source::System(..), Some(even)) = (&clock.source, &mut *lock(&clock.even)) {
            even.since = 0;
        }
        clock
    }

    pub(in crate::db) fn read(&self) -> Result<Now> {
        let mut even = lock(&self.even);
        let (time, steady) = match &self.source {
            Source::System(start, up_before) => {
                let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, millis);
                (time, up_before.saturating_add(millis(start.elapsed())))
            }
            Source::Simulated(clock) => (clock.now(), clock.0.steady.load(Ordering::SeqCst)),
        };
        if time > TIME_MAX {
            *even = None;
            return Err(Error::Clock {
                what: "the clock of the system is not between 1970 and 9999".to_owned(),
            });
        }
        let since = match *even {
            Some(Even { since, last: (last_time, last_steady) }) => {
                let passed = steady.saturating_sub(last_steady);
                if time > last_time.saturating_add(passed).saturating_add(GAIN_MAX) { steady } else { since }
            }
            None => steady,
        };
        *even = Some(Even { since, last: (time, steady) });
        Ok(Now { time, even_for: steady - since })
    }
}

/// Full seconds in milliseconds; 0 if unknown.
fn uptime() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split('.').next().and_then(|seconds| seconds.parse::<u64>().ok());
    seconds.map_or(0, |seconds| seconds.saturating_mul(1000))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_even_until_it_leaps_forward_and_a_broken_clock_is_an_error() {
        let simulated = SimulatedClock::at(5_000_000);
        let clock = Clock::new(Some(&simulated));
        let read = || clock.read().map(|now| (now.time, now.even_for)).map_err(|error| error.to_string());
        assert_eq!(read(), Ok((5_000_000, 0)));
        simulated.advance(Duration::from_secs(60));
        assert_eq!(read(), Ok((5_060_000, 60_000)));
        // A little forward, and back.
        simulated.step_to(5_060_900);
        assert_eq!(read(), Ok((5_060_900, 60_000)));
        simulated.step_to(4_000_000);
        assert_eq!(read(), Ok((4_000_000, 60_000)));
        simulated.step_to(9_000_000);
        assert_eq!(read(), Ok((9_000_000, 0)));
        simulated.advance(Duration::from_secs(1));
        assert_eq!(read(), Ok((9_001_000, 1000)));
        for broken in [TIME_MAX + 1, u64::MAX] {
            simulated.step_to(broken);
            assert!(read().is_err());
        }
        simulated.step_to(9_001_000);
        assert_eq!(read(), Ok((9_001_000, 0)));
        let now = Clock::new(None).read().unwrap();
        assert!(now.time > 1_700_000_000_000 && now.even_for >= uptime().saturating_sub(1000), "{now:?}");
    }
}
