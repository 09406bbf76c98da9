use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sievedb::Error;

use super::faults::{Fault, PANIC, Weather, is_fault};
use super::watch::{Call, Watch};

#[derive(Debug)]
pub(super) struct Life {
    pub(super) weather: Arc<Weather>,
    pub(super) watch: Arc<Watch>,
    clock: AtomicU64,
    fired_before: [u64; Fault::ALL.len()],
    /// The directory was moved, or its `LOCK` was removed.
    pub(super) is_disturbed: AtomicBool,
    pub(super) is_closing: AtomicBool,
    pub(super) is_over: AtomicBool,
}

pub(super) enum Outcome<T> {
    Done(T),
    Refused,
    InDoubt,
}

impl Life {
    pub(super) fn new(weather: &Arc<Weather>, watch: &Arc<Watch>) -> Self {
        Self {
            weather: Arc::clone(weather),
            watch: Arc::clone(watch),
            clock: AtomicU64::new(1),
            fired_before: weather.fired(),
            is_disturbed: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn has_fired(&self, faults: &[Fault]) -> bool {
        let fired = self.weather.fired();
        let happened = |fault: &Fault| fired[*fault as usize] > self.fired_before[*fault as usize];
        faults.iter().any(happened)
    }

    pub(super) fn met_faults(&self) -> bool {
        self.has_fired(&Fault::ALL)
    }

    pub(super) fn may_have_failed(&self) -> bool {
        self.is_disturbed.load(Ordering::SeqCst) || self.has_fired(&[Fault::Sync, Fault::Panic])
    }

    pub(super) fn call<T>(
        &self,
        thread: usize,
        call: Call,
        work: impl FnOnce() -> sievedb::Result<T>,
    ) -> Result<Outcome<T>, String> {
        let result = self.watch.during(thread, call, || catch_unwind(AssertUnwindSafe(work)));
        let counts = &self.watch.counts[call as usize];
        let error = match result {
            Ok(Ok(done)) => {
                counts.done.fetch_add(1, Ordering::Relaxed);
                return Ok(Outcome::Done(done));
            }
            Ok(Err(error)) => error,
            Err(payload) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                let finding = format!("{} panicked", call.name());
                return if is_fault(&*payload) { Ok(Outcome::InDoubt) } else { Err(finding) };
            }
        };
        counts.failed.fetch_add(1, Ordering::Relaxed);
        if !self.is_excused(&error) {
            return Err(format!("{} failed without a reason: {error} ({error:?})", call.name()));
        }
        if ends_writing(&error) {
            self.is_over.store(true, Ordering::SeqCst);
        }
        Ok(if is_refusal(&error) { Outcome::Refused } else { Outcome::InDoubt })
    }

    fn is_excused(&self, error: &Error) -> bool {
        match error {
            Error::Poisoned { cause, .. } => self.may_have_failed() && self.is_excused(cause),
            Error::Closed => self.is_closing.load(Ordering::SeqCst),
            Error::LockLost { .. } => self.is_disturbed.load(Ordering::SeqCst),
            Error::Panicked { message, .. } => &**message == PANIC,
            Error::Io { .. } => self.has_fired(&Fault::ALL),
            Error::LimitExceeded { .. } => true,
            _ => false,
        }
    }
}

fn ends_writing(error: &Error) -> bool {
    matches!(error, Error::Poisoned { .. } | Error::Closed | Error::LockLost { .. } | Error::Panicked { .. })
}

fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Closed | Error::LimitExceeded { .. } | Error::InvalidArgument { .. })
}
