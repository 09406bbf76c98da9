//! How long calls and jobs take, by kind: histograms that [`Options::latency_histograms`](crate::Options::latency_histograms)
//! turns on.
//!
//! The clock is read here, and only here for this purpose. A call of a fast kind is always counted and timed one in 64
//! times ([`Histogram::count`]); the others are always timed.

use std::sync::Arc;
use std::time::Instant;

use crate::db::state::durability::Durability;
use crate::histogram::{CallLatency, Histogram};
use crate::memory::{Lease, LeaseKind, Memory};

/// A kind of call or job.
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

/// The number of kinds.
const KINDS: usize = Call::Compaction as usize + 1;

impl Call {
    /// A write, which is of its own kind if it waits for a sync.
    pub(in crate::db) fn of_write(self, durability: Durability) -> Self {
        match durability {
            Durability::Buffered => self,
            Durability::Synced => Self::SyncedWrite,
        }
    }

    /// Whether only a part of these calls is timed.
    fn is_sampled(self) -> bool {
        (self as usize) < Self::SyncedWrite as usize
    }
}

/// Histograms of calls and jobs, if they are on.
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

    /// Does `work`, a call of this kind. If the histograms are off, this costs a comparison and a branch.
    #[inline(always)]
    pub(in crate::db) fn time<T>(&self, call: Call, work: impl FnOnce() -> T) -> T {
        if self.are_on() { self.timed(call, work) } else { work() }
    }

    /// A function of its own, so that calls are not longer while the histograms are off.
    #[cold]
    #[inline(never)]
    fn timed<T>(&self, call: Call, work: impl FnOnce() -> T) -> T {
        let _timer = self.start(call);
        work()
    }

    /// Counts a call, and times it if it is chosen, until the timer is dropped.
    #[inline(always)]
    pub(in crate::db) fn start(&self, call: Call) -> Timer<'_> {
        if self.choose(call) { self.timer(call) } else { Timer(None) }
    }

    /// Counts a call. `true`: it is to be timed.
    #[inline(always)]
    pub(in crate::db) fn choose(&self, call: Call) -> bool {
        self.0.as_ref().is_some_and(|histograms| {
            let histogram = &histograms.by_kind[call as usize];
            // Only the commit leader writes groups.
            let is_chosen =
                if call == Call::CommitGroup { histogram.count_alone() } else { histogram.count() };
            is_chosen || !call.is_sampled()
        })
    }

    /// Times a call that was chosen, until the timer is dropped.
    #[inline(always)]
    pub(in crate::db) fn timer(&self, call: Call) -> Timer<'_> {
        Timer(self.0.as_ref().map(|histograms| (&histograms.by_kind[call as usize], Instant::now())))
    }

    /// The calls of a kind so far; `None` if the histograms are off.
    pub(in crate::db) fn of(&self, call: Call) -> Option<CallLatency> {
        self.0.as_ref().map(|histograms| histograms.by_kind[call as usize].latency())
    }
}

/// A call, and when it began if it is timed.
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
