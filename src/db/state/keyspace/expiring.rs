//! The buckets of time of a keyspace, and its own time if a caller sets that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::expiry::buckets::Buckets;
use crate::expiry::options::{Expiry, TimeSource};
use crate::sync::lock;

/// The part of a tree that is about expiry.
pub(super) struct Expiring {
    /// Whether the options state a time to live, to be read without them.
    pub(super) is_on: AtomicBool,
    pub(super) buckets: Mutex<Arc<Buckets>>,
    /// The time that the caller has set, in milliseconds.
    pub(super) caller_time: AtomicU64,
}

impl Expiring {
    pub(super) fn new(expiry: Option<Expiry>, buckets: Buckets) -> Self {
        let time = buckets.last().map_or(0, |last| last.time);
        let caller_time = AtomicU64::new(if is_of_caller(expiry) { time } else { 0 });
        Self { is_on: AtomicBool::new(expiry.is_some()), buckets: Mutex::new(Arc::new(buckets)), caller_time }
    }

    /// Takes over new options. Entries that no longer expire have no buckets.
    pub(super) fn set(&self, expiry: Option<Expiry>) {
        self.is_on.store(expiry.is_some(), Ordering::Release);
        if expiry.is_none() {
            Arc::make_mut(&mut lock(&self.buckets)).forget_boundaries();
        }
        if !is_of_caller(expiry) {
            self.caller_time.store(0, Ordering::Release);
        }
    }
}

fn is_of_caller(expiry: Option<Expiry>) -> bool {
    expiry.is_some_and(|expiry| expiry.time_source == TimeSource::Caller)
}
