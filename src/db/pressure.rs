//! Back-pressure: how far background work is behind, and what that costs a writer.
//!
//! Pressure is 0 while flushes and compactions keep up, and rises towards 1 with the memtables that wait to
//! be flushed and with the runs of level 0. Below 1 a writer is slowed to a rate that falls smoothly with
//! the pressure; at 1 memory is used up, and it waits until a flush or a compaction has ended.

use std::time::Duration;

use crate::options::IMMUTABLES_MAX;

/// Rate of writing when pressure has just begun, in bytes per second.
const RATE_MAX: f64 = 256.0 * 1024.0 * 1024.0;

/// Rate at a pressure of almost 1.
const RATE_MIN: f64 = 1024.0 * 1024.0;

/// Longest single delay.
const DELAY_MAX: Duration = Duration::from_millis(100);

/// Delays shorter than this are not worth a system call; the timer's own slack is longer.
const DELAY_MIN: Duration = Duration::from_micros(20);

/// The pressure of a keyspace: memtables waiting, runs in level 0, runs that make it worth compacting.
///
/// The first waiting memtable is normal. Level 0 begins to count at three times its trigger, and is full at
/// nine times.
pub(crate) fn pressure(immutables: usize, l0_runs: usize, l0_trigger: usize) -> f64 {
    let memory = (immutables as f64 - 1.0) / (IMMUTABLES_MAX as f64 - 1.0);
    let slow = 3.0 * l0_trigger as f64;
    let runs = (l0_runs as f64 - slow) / (2.0 * slow);
    memory.max(runs).max(0.0)
}

/// What a write of `bytes` waits at a pressure between 0 and 1.
pub(crate) fn delay(bytes: usize, pressure: f64) -> Duration {
    let rate = (RATE_MAX * (1.0 - pressure).powi(3)).max(RATE_MIN);
    let delay = Duration::from_secs_f64(bytes as f64 / rate).min(DELAY_MAX);
    if delay < DELAY_MIN { Duration::ZERO } else { delay }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_by_degrees_from_nothing_to_full() {
        assert_eq!([0, 1, 2, 3].map(|waiting| pressure(waiting, 0, 4)), [0.0, 0.0, 0.5, 1.0]);
        assert_eq!([0, 4, 12, 24, 36].map(|runs| pressure(0, runs, 4)), [0.0, 0.0, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn delays_grow_with_pressure_and_with_bytes_and_have_a_limit() {
        let delays: Vec<_> = (1..10).map(|tenth| delay(64 << 10, f64::from(tenth) / 10.0)).collect();
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]), "{delays:?}");
        assert!(delays[0] < Duration::from_millis(1) && delays[8] > Duration::from_millis(50), "{delays:?}");
        assert_eq!(delay(1 << 30, 0.9), DELAY_MAX);
        assert_eq!(delay(100, 0.1), Duration::ZERO);
    }
}
