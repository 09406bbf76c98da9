//! What a piece of work costs: processor time of the calling thread where the system tells it, else time that
//! passes. The first does not count what other programs take meanwhile, though it counts the misses they cause.

use std::time::{Duration, Instant};

/// What [`cost`] measures, in words.
pub(crate) const WHAT: &str =
    if cfg!(target_os = "linux") { "processor time of the thread" } else { "time that passed" };

/// What `work` costs.
pub(crate) fn cost<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = now();
    let result = work();
    (now().saturating_sub(start), result)
}

/// Time that passes during `work`.
pub(crate) fn elapsed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

#[cfg(target_os = "linux")]
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(not(target_os = "linux"))]
fn now() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed()
}
