//! Latency histograms of calls and jobs.
//!
//! All calls are counted. [`Histogram::count`] selects the calls of frequent kinds to time.

use std::sync::Arc;
use std::time::Instant;

use crate::db::state::durability::Durability;
use crate::histogram::{CallLatency, Histogram};
use crate::memory::{Lease, LeaseKind, Memory};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) enum Call {
    Get,
    Multi,
    ConditionalWrite,
    Write,
    ScanStep,
    CommitGroup,
    SyncedWrite,
    Flush,
    Compaction,
}

const KINDS: usize = Call::Compaction as usize + 1;

impl Call {
    pub(in crate::db) fn of_write(self, durability: Durability) -> Self {
        match durability {
            Durability::Buffered => self,
            Durability::Synced => Self::SyncedWrite,
        }
    }

    fn is_sampled(self) -> bool {
        (self as usize) < Self::SyncedWrite as usize
    }
}

#[derive(Debug, Clone, Default)]
pub(in crate::db) struct Latencies(Option<Arc<Histograms>>);

#[derive(Debug)]
struct Histograms {
    by_kind: [Histogram; KINDS],
    _lease: Lease,
}

impl Latencies {
    pub(in crate::db) fn new(is_on: bool, memory: &Arc<Memory>) -> Self {
        Self(is_on.then(|| {
            let lease = memory.lease(LeaseKind::Histograms, KINDS * Histogram::BYTES as usize);
            Arc::new(Histograms { by_kind: std::array::from_fn(|_| Histogram::new()), _lease: lease })
        }))
    }

    #[inline]
    pub(in crate::db) fn are_on(&self) -> bool {
        self.0.is_some()
    }

    /// When disabled, costs a comparison and a branch.
    #[inline(always)]
    pub(in crate::db) fn time<T>(&self, call: Call, work: impl FnOnce() -> T) -> T {
        if self.are_on() { self.timed(call, work) } else { work() }
    }

    /// Out of line, so that disabled histograms add little code to the callers.
    #[cold]
    #[inline(never)]
    fn timed<T>(&self, call: Call, work: impl FnOnce() -> T) -> T {
        let _timer = self.start(call);
        work()
    }

    /// Times a chosen call until the timer is dropped.
    #[inline(always)]
    pub(in crate::db) fn start(&self, call: Call) -> Timer<'_> {
        if self.choose(call) { self.timer(call) } else { Timer(None) }
    }

    #[inline(always)]
    pub(in crate::db) fn choose(&self, call: Call) -> bool {
        self.0.as_ref().is_some_and(|histograms| {
            let histogram = &histograms.by_kind[call as usize];
            let is_chosen =
                if call == Call::CommitGroup { histogram.count_alone() } else { histogram.count() };
            is_chosen || !call.is_sampled()
        })
    }

    #[inline(always)]
    pub(in crate::db) fn timer(&self, call: Call) -> Timer<'_> {
        Timer(self.0.as_ref().map(|histograms| (&histograms.by_kind[call as usize], Instant::now())))
    }

    pub(in crate::db) fn of(&self, call: Call) -> Option<CallLatency> {
        self.0.as_ref().map(|histograms| histograms.by_kind[call as usize].latency())
    }
}

pub(in crate::db) struct Timer<'a>(Option<(&'a Histogram, Instant)>);

impl Drop for Timer<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some((histogram, start)) = self.0 {
            record(histogram, start);
        }
    }
}

#[cold]
#[inline(never)]
fn record(histogram: &Histogram, start: Instant) {
    histogram.record(start.elapsed());
}
