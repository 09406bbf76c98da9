//! Progress, rate limit and cancellation of a call.

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The longest pause between two checks for cancellation.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A stage of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Files are copied.
    Copying,
    /// Files are verified.
    Verifying,
    /// A store is made from the readable data of a damaged one. Progress counts keyspaces instead of bytes.
    Salvaging,
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The stage of the call.
    pub stage: Stage,
    /// Bytes completed in this stage.
    pub bytes_done: u64,
    /// Total bytes in this stage.
    pub bytes: u64,
}

type Watch<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Watches a long call, limits its rate, and cancels it.
///
/// ```
/// use std::ops::ControlFlow;
/// use sievedb_backup::Control;
///
/// let _ten_mib_a_second = Control::new().limit_rate(10 << 20).watch(|progress| {
///     println!("{} of {} bytes", progress.bytes_done, progress.bytes);
///     ControlFlow::Continue(())
/// });
/// ```
#[derive(Default)]
pub struct Control<'a> {
    rate: Option<u64>,
    watch: Option<Box<Watch<'a>>>,
    progress: Option<Progress>,
    /// The time of the first byte under the limit, and the number of bytes since.
    paced: Option<(Instant, u64)>,
}

impl fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("rate", &self.rate).finish_non_exhaustive()
    }
}

impl<'a> Control<'a> {
    /// No rate limit and no watcher.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the bytes per second that are copied, compared with the repository, or read by
    /// [`Repository::verify`](crate::Repository::verify), on average over the call; 0 means no limit.
    #[must_use]
    pub fn limit_rate(mut self, bytes_per_second: u64) -> Self {
        self.rate = Some(bytes_per_second).filter(|&rate| rate > 0);
        self
    }

    /// Calls `watch` after each part of a file, and after each file of a restored store. [`ControlFlow::Break`] ends the call with
    /// [`Error::Cancelled`] and leaves nothing half done.
    #[must_use]
    pub fn watch(mut self, watch: impl FnMut(Progress) -> ControlFlow<()> + 'a) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    /// Time before the call does not count for the rate.
    pub(crate) fn begin_call(&mut self) {
        self.paced = None;
    }

    pub(crate) fn begin(&mut self, stage: Stage, bytes: u64) -> Result<()> {
        self.at(Progress { stage, bytes_done: 0, bytes })
    }

    fn at(&mut self, progress: Progress) -> Result<()> {
        if self.flow(progress).is_break() { Err(Error::Cancelled) } else { Ok(()) }
    }

    pub(crate) fn flow(&mut self, progress: Progress) -> ControlFlow<()> {
        self.progress = Some(progress);
        self.watch.as_mut().map_or(ControlFlow::Continue(()), |watch| watch(progress))
    }

    pub(crate) fn done(&mut self, bytes: u64) -> Result<()> {
        match self.progress {
            Some(mut progress) => {
                progress.bytes_done += bytes;
                self.at(progress)
            }
            None => Ok(()),
        }
    }

    /// Adds bytes to the total of this stage.
    pub(crate) fn add(&mut self, bytes: u64) {
        if let Some(progress) = &mut self.progress {
            progress.bytes += bytes;
        }
    }

    /// Adds copied or compared bytes to the progress, and waits as the rate requires.
    pub(crate) fn copied(&mut self, bytes: u64) -> Result<()> {
        self.done(bytes)?;
        let Some(rate) = self.rate else { return Ok(()) };
        let (start, before) = self.paced.unwrap_or_else(|| (Instant::now(), 0));
        let copied = before + bytes;
        self.paced = Some((start, copied));
        loop {
            let pause = ahead(copied, rate, start.elapsed());
            if pause.is_zero() {
                return Ok(());
            }
            std::thread::sleep(pause.min(PAUSE_MAX));
            self.done(0)?;
        }
    }
}

fn ahead(bytes: u64, rate: u64, elapsed: Duration) -> Duration {
    let due = Duration::try_from_secs_f64(bytes as f64 / rate as f64).unwrap_or(Duration::MAX);
    due.saturating_sub(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_brings_the_average_down_to_the_limit() {
        let seconds = Duration::from_secs;
        assert_eq!(ahead(1000, 100, seconds(0)), seconds(10));
        assert_eq!(ahead(1000, 100, seconds(4)), seconds(6));
        assert_eq!(ahead(1000, 100, seconds(11)), seconds(0));
        assert_eq!(ahead(u64::MAX, 1, seconds(0)), Duration::MAX);
    }

    #[test]
    fn the_time_between_two_calls_is_no_allowance() {
        let mut control = Control::new().limit_rate(1 << 40);
        control.begin_call();
        control.copied(1).unwrap();
        assert!(control.paced.is_some());
        control.begin_call();
        assert!(control.paced.is_none());
    }

    #[test]
    fn a_call_that_waits_for_its_rate_can_be_cancelled() {
        let mut calls = 0;
        let mut control = Control::new().limit_rate(1).watch(|_| {
            calls += 1;
            if calls == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        control.begin(Stage::Copying, 1 << 30).unwrap();
        assert!(matches!(control.copied(1 << 30), Err(Error::Cancelled)));
        drop(control);
        assert_eq!(calls, 4);
    }
}
