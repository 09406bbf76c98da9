//! Writes whose durability is reported later.
//!
//! `Db::write_pending` returns a [`Commit`] when its batch is visible.
//!
//! 1. When a log becomes durable up to a position, [`Completions::complete`] sets the results of the commits up to
//!    there and makes their callbacks *ready*. This may happen in the commit leader, so it runs no callback. A commit
//!    is registered before `write_pending` checks its durability, so no sync is missed.
//! 2. The completion thread runs ready callbacks in log order. It holds no lock, and no other thread of the store
//!    waits for it. If no callback is ready and a commit wants a sync, it syncs the log. Without background threads,
//!    `step`, `sync` and `close` do this work.
//! 3. Closing completes all other commits and waits for all callbacks, except for one that closes the store.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::thread::{self};

use crate::batch::WriteBatch;
use crate::db::engine::Engine;
use crate::db::state::completions::{Callback, END, Entry, Next, run};
use crate::db::state::durability::Durability;
use crate::db::state::failure::catch;
use crate::db::state::log::LogPosition;
use crate::error::{Error, Result};

/// The durability of a visible batch; see [`Db::write_pending`](crate::Db::write_pending).
///
/// A commit is complete when the batch is durable, or when its durability has failed. Then
/// [`is_durable`](Self::is_durable) and [`wait`](Self::wait) return the result, callbacks run, and an awaiting task
/// of any async runtime is woken. Dropping a commit has no effect.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// use sievedb::{Durability, WriteBatch};
///
/// let mut commits = Vec::new();
/// for number in 0..100_u32 {
///     let batch = WriteBatch::from_iter([(number.to_be_bytes(), "order")]);
///     commits.push(db.write_pending(batch, Durability::Synced)); // waits for no disk
/// }
/// for commit in commits {
///     commit.wait()?; // one sync is enough for many of them
/// }
/// # Ok::<(), sievedb::Error>(())
/// ```
#[must_use = "it has the error if the batch was not written"]
pub struct Commit {
    engine: Weak<Engine>,
    entry: Arc<Entry>,
}

impl Commit {
    /// Whether the batch is durable: an atomic load.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use sievedb::{Durability, WriteBatch};
    ///
    /// let commit = db.write_pending(WriteBatch::from_iter([("k", "v")]), Durability::Buffered);
    /// db.sync()?;
    /// assert!(commit.is_durable());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn is_durable(&self) -> bool {
        matches!(self.entry.result.get(), Some(Ok(())))
    }

    /// Waits until the batch is durable. If no other thread syncs the log, this call does, also after
    /// [`Durability::Buffered`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use sievedb::{Durability, WriteBatch};
    ///
    /// let commit = db.write_pending(WriteBatch::from_iter([("k", "v")]), Durability::Synced);
    /// commit.wait()?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the write or of the sync: see [`Db::write_with`](crate::Db::write_with).
    pub fn wait(&self) -> Result<()> {
        if let Some(result) = self.entry.result.get() {
            return result.clone();
        }
        let Some(engine) = self.engine.upgrade() else { return self.entry.result_at_end() };
        engine.files.check_process()?;
        engine.wait_durable(self.entry.place.0)
    }

    /// Runs a function once the commit is complete, with the result of [`wait`](Self::wait).
    ///
    /// Functions run once, even if the write fails or the store is closed. They run one at a time, without locks, in
    /// a separate thread. Their order is the log order of the batches; for one batch, the order of these calls.
    /// Functions of commits at the same log position run in any order. A function may write, [`wait`](Self::wait) for
    /// other commits (but not await them, because this thread wakes tasks), and drop the last handle. A slow function
    /// delays the others, and closing waits for all. A panic is traced (crate `tracing`).
    ///
    /// With [`Options::background_threads`](crate::Options::background_threads)`(0)` they run in [`step`](crate::Db::step),
    /// [`sync`](crate::Db::sync) and [`close`](crate::Db::close). If the store is closed or read-only, the function runs in this
    /// call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use sievedb::{Durability, WriteBatch};
    ///
    /// let (tells, told) = std::sync::mpsc::channel();
    /// let commit = db.write_pending(WriteBatch::from_iter([("k", "v")]), Durability::Synced);
    /// commit.on_durable(move |result| tells.send(result).unwrap());
    /// told.recv().unwrap()?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn on_durable(&self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        let callback: Callback = Box::new(callback);
        let late = match self.engine.upgrade() {
            // A forked child must not wait for a lock.
            Some(engine) => match engine.files.check_process() {
                Ok(()) => {
                    engine.completions.call(&self.entry, callback).map(|it| (it, self.entry.result_at_end()))
                }
                Err(forked) => Some((callback, Err(forked))),
            },
            None => Some((callback, self.entry.result_at_end())),
        };
        if let Some((callback, result)) = late {
            run(callback, result);
        }
    }
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit").field("result", &self.entry.result.get()).finish_non_exhaustive()
    }
}

/// Ready when the commit is complete, with the result of [`Commit::wait`]. Polling starts no sync: after
/// [`Durability::Buffered`], the commit is complete after another sync of the log. The callback thread wakes the
/// task.
impl Future for Commit {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(result) = self.entry.result.get() {
            return Poll::Ready(result.clone());
        }
        let Some(engine) = self.engine.upgrade() else { return Poll::Ready(self.entry.result_at_end()) };
        engine.files.check_process()?;
        // The runtime copies or drops wakers, so this happens without the lock.
        let new = Some(context.waker().clone());
        let before = {
            let mut state = engine.completions.lock();
            let Some(waiting) = state.waiting.get_mut(&self.entry.place) else {
                return Poll::Ready(self.entry.result_at_end());
            };
            std::mem::replace(&mut waiting.waker, new)
        };
        drop(before);
        Poll::Pending
    }
}

impl Engine {
    pub(in crate::db) fn write_pending(
        self: &Arc<Self>,
        batch: WriteBatch,
        durability: Durability,
    ) -> Commit {
        let written = self.start_completions().and_then(|()| self.write_visible(batch));
        match written {
            Ok(position) => self.commit_at(position, durability),
            Err(error) => {
                let entry = Arc::new(Entry { place: (END, 0), result: OnceLock::from(Err(error)) });
                Commit { engine: Arc::downgrade(self), entry }
            }
        }
    }

    /// Runs a conditional call. The commit covers everything on which the answer depends.
    pub(in crate::db) fn pending<A>(
        self: &Arc<Self>,
        durability: Durability,
        call: impl FnOnce() -> Result<(A, Option<LogPosition>)>,
    ) -> Result<(A, Commit)> {
        self.start_completions()?;
        let (answer, up_to) = call()?;
        Ok((answer, self.commit_at(up_to.unwrap_or_else(|| self.log().end()), durability)))
    }

    fn commit_at(self: &Arc<Self>, position: LogPosition, durability: Durability) -> Commit {
        let entry = self.completions.add(position, durability);
        match self.log().is_durable(position) {
            Ok(true) => self.completions.complete(position, &Ok(())),
            Ok(false) => {}
            Err(error) => self.completions.fail(&error),
        }
        Commit { engine: Arc::downgrade(self), entry }
    }

    fn start_completions(self: &Arc<Self>) -> Result<()> {
        let completes_in_callers = self.completes_in_callers()?;
        self.lifecycle.check_open()?;
        let mut state = self.completions.lock();
        if state.is_served || state.ended.is_some() || self.log.is_none() {
            return Ok(());
        }
        if completes_in_callers {
            state.is_served = true;
            return Ok(());
        }
        let engine = Arc::clone(self);
        let spawned = thread::Builder::new().name("sievedb-commits".into()).spawn(move || engine.tell());
        state.thread =
            Some(spawned.map_err(|error| Error::io("start a thread for", &self.files.dir, error))?);
        state.is_served = true;
        Ok(())
    }

    /// A panic fails the store but does not end the thread.
    fn tell(&self) {
        loop {
            let goes_on = catch("completing commits", || {
                match self.completions.next() {
                    Next::Deliver => drop(self.completions.deliver()),
                    Next::Sync(position) => drop(self.sync_wanted(position)),
                    Next::End => return false,
                }
                true
            });
            match goes_on {
                Ok(true) => {}
                Ok(false) => return,
                Err(panic) => drop(self.fail(panic)),
            }
        }
    }

    fn sync_wanted(&self, position: LogPosition) -> Result<()> {
        self.wait_durable(position).inspect_err(|error| self.completions.fail(error))
    }

    fn completes_in_callers(&self) -> Result<bool> {
        self.files.check_process()?;
        Ok(self.background.threads == 0)
    }

    /// Without background threads, syncs the log if wanted, and runs callbacks. Returns whether there was work.
    pub(in crate::db) fn step_completions(&self) -> Result<bool> {
        if !self.completes_in_callers()? {
            return Ok(false);
        }
        let wanted = self.completions.lock().wanted;
        let synced = wanted.map_or(Ok(()), |position| self.sync_wanted(position));
        let any = self.completions.deliver();
        synced.map(|()| any || wanted.is_some())
    }

    pub(in crate::db) fn deliver_completions(&self) {
        if self.completes_in_callers().is_ok_and(|completes| completes) {
            self.completions.deliver();
        }
    }
}
