//! Processor time of the calling thread, or elapsed time if the system does not report it.

use std::time::{Duration, Instant};

use system::{now, of_process};

use crate::report::count;

pub(crate) const WHAT: &str =
    if cfg!(target_os = "linux") { "processor time of the thread" } else { "time that passed" };

pub(crate) fn cost<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = now();
    let result = work();
    (now().saturating_sub(start), result)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    pub(crate) elapsed: Duration,
    pub(crate) processor: Option<Duration>,
}

impl Took {
    pub(crate) fn cells(self, keys: u64) -> [String; 3] {
        let seconds = self.elapsed.as_secs_f64();
        let each = self.processor.map(|time| time.as_secs_f64() * 1e6 / keys as f64);
        [
            format!("{seconds:.1}"),
            count((keys as f64 / seconds) as u64),
            each.map_or("unknown".into(), |each| format!("{each:.2}")),
        ]
    }

    pub(crate) const CELLS: [&'static str; 3] = ["seconds", "keys per second", "processor µs per key"];
}

pub(crate) fn took<T>(work: impl FnOnce() -> T) -> (Took, T) {
    let (start, processor) = (Instant::now(), of_process());
    let result = work();
    let processor = of_process().zip(processor).map(|(end, start)| end.saturating_sub(start));
    (Took { elapsed: start.elapsed(), processor }, result)
}

#[cfg(target_os = "linux")]
mod system {
    use super::Duration;
    use rustix::time::{ClockId, clock_gettime};

    fn read(clock: ClockId) -> Duration {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    }

    pub(super) fn now() -> Duration {
        read(ClockId::ThreadCPUTime)
    }

    pub(super) fn of_process() -> Option<Duration> {
        Some(read(ClockId::ProcessCPUTime))
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{Duration, Instant};

    pub(super) fn now() -> Duration {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        START.elapsed()
    }

    pub(super) fn of_process() -> Option<Duration> {
        None
    }
}
