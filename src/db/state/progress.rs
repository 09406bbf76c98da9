//! Progress and cancellation of long calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Progress and cancellation of a long call, such as [`Db::compact_with`](crate::Db::compact_with). Clones share their state.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// use sievedb::Progress;
///
/// db.put("k", "v")?;
/// let progress = Progress::new();
/// std::thread::scope(|scope| {
///     let call = scope.spawn(|| db.compact_with(&progress));
///     println!("{} of {} bytes", progress.bytes_done(), progress.bytes());
///     // progress.cancel() would end the call with Error::Cancelled.
///     call.join().unwrap()
/// })?;
/// assert_eq!(progress.bytes_done(), progress.bytes());
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<State>);

#[derive(Debug, Default)]
struct State {
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Starts at 0 of 0 bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of keys and values read so far.
    #[must_use]
    pub fn bytes_done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed).min(self.bytes())
    }

    /// Bytes to read: an estimate until the call has ended.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed)
    }

    /// Ends the call soon with [`Error::Cancelled`](crate::Error::Cancelled). Completed parts stay.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether [`Progress::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn expect(&self, bytes: u64) {
        self.0.total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(in crate::db) fn add(&self, bytes: u64) {
        self.0.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(in crate::db) fn add_and_check(&self, bytes: u64) -> Result<()> {
        self.add(bytes);
        self.check()
    }

    pub(in crate::db) fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    pub(in crate::db) fn end(&self) {
        let done = self.0.done.load(Ordering::Relaxed).max(self.bytes());
        self.0.done.store(done, Ordering::Relaxed);
        self.0.total.store(done, Ordering::Relaxed);
    }
}
