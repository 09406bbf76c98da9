//! Time buckets of a keyspace, and its caller-set time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::expiry::buckets::Buckets;
use crate::expiry::options::{Expiry, TimeSource};
use crate::memory::{Entry, Memory};
use crate::sync::lock;

pub(super) struct Expiring {
    pub(super) is_on: AtomicBool,
    buckets: Mutex<Counted>,
    pub(super) caller_time: AtomicU64,
}

struct Counted {
    buckets: Arc<Buckets>,
    _entry: Entry,
}

impl Counted {
    fn new(buckets: Arc<Buckets>, memory: &Arc<Memory>) -> Self {
        let _entry = memory.enter(2 * buckets.size_bytes());
        Self { buckets, _entry }
    }
}

impl Expiring {
    pub(super) fn new(expiry: Option<Expiry>, buckets: Buckets, memory: &Arc<Memory>) -> Self {
        let time = buckets.last().map_or(0, |last| last.time);
        let caller_time = AtomicU64::new(if is_of_caller(expiry) { time } else { 0 });
        let buckets = Mutex::new(Counted::new(Arc::new(buckets), memory));
        Self { is_on: AtomicBool::new(expiry.is_some()), buckets, caller_time }
    }

    pub(super) fn buckets(&self) -> Arc<Buckets> {
        Arc::clone(&lock(&self.buckets).buckets)
    }

    pub(super) fn change(&self, memory: &Arc<Memory>, change: impl FnOnce(&mut Buckets)) {
        let mut counted = lock(&self.buckets);
        let mut buckets = Arc::clone(&counted.buckets);
        change(Arc::make_mut(&mut buckets));
        *counted = Counted::new(buckets, memory);
    }

    pub(super) fn set(&self, expiry: Option<Expiry>, memory: &Arc<Memory>) {
        self.is_on.store(expiry.is_some(), Ordering::Release);
        if expiry.is_none() {
            self.change(memory, Buckets::forget_boundaries);
        }
        if !is_of_caller(expiry) {
            self.caller_time.store(0, Ordering::Release);
        }
    }
}

fn is_of_caller(expiry: Option<Expiry>) -> bool {
    expiry.is_some_and(|expiry| expiry.time_source == TimeSource::Caller)
}
