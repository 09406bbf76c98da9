//! How far a long call is, and whether its caller wants it to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// How far a long call is; a way to cancel it. Clones are the same: give one to the call and keep another, in
/// another thread. For [`Db::compact_with`](crate::Db::compact_with) and
/// [`Db::refilter_with`](crate::Db::refilter_with).
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
    /// Nothing done, nothing to do.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of keys and values read so far.
    #[must_use]
    pub fn bytes_done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed).min(self.bytes())
    }

    /// Bytes to read in all, estimated when the call began; exact when it has ended.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed)
    }

    /// Has the call end soon, with [`Error::Cancelled`](crate::Error::Cancelled). What it has finished stays.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether [`Progress::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed)
    }

    /// More is to be done than was known.
    pub(in crate::db) fn expect(&self, bytes: u64) {
        self.0.total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(in crate::db) fn add(&self, bytes: u64) {
        self.0.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that were read, and checks that the call may continue.
    pub(in crate::db) fn add_and_check(&self, bytes: u64) -> Result<()> {
        self.add(bytes);
        self.check()
    }

    /// [`Error::Cancelled`] if [`Progress::cancel`] was called.
    pub(in crate::db) fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// The call has ended well: there is nothing more to do.
    pub(in crate::db) fn end(&self) {
        let done = self.0.done.load(Ordering::Relaxed).max(self.bytes());
        self.0.done.store(done, Ordering::Relaxed);
        self.0.total.store(done, Ordering::Relaxed);
    }
}
