//! Writes whose durability is told later.
//!
//! `Db::write_pending` returns when its batch is visible, with a [`Commit`]. The commit is *complete* when its
//! batch is durable, or when it is known that it will not be:
//!
//! 1. [`Engine::wait_durable`], and whatever else makes a log durable, calls [`Completions::complete`] with the
//!    position up to which it is. That sets the results of the commits up to there, and makes their callbacks
//!    *ready*. It runs none of them: its caller may be the commit leader. A commit is in the list before
//!    `write_pending` looks whether its batch is durable already, so that no sync is missed.
//! 2. The completion thread runs the callbacks that are ready, in the order of their batches in the log. If
//!    none is ready and a commit wants a sync, it syncs the log for all that have come so far. It holds no lock
//!    meanwhile, and no other thread of the store waits for it, so that a callback may do anything. Without
//!    background threads there is no completion thread: `step`, `sync` and `close` do its work.
//! 3. Closing completes all other commits, and waits until all callbacks have run, unless it is called by one.
//!
//! The thread is started by the first `write_pending`. It ends when the store is closed.

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

/// A batch that is visible, and whose durability is told later. [`Db::write_pending`](crate::Db::write_pending)
/// returns it.
///
/// It is complete when the batch is durable, or when it is known that it will not be. Then
/// [`is_durable`](Self::is_durable) and [`wait`](Self::wait) tell that, callbacks run, and the task wakes that
/// awaits it. It needs no async runtime and works with each. Dropping it changes nothing: the batch stays
/// written, and its callbacks run.
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
#[must_use = "it tells whether the batch was written"]
pub struct Commit {
    engine: Weak<Engine>,
    entry: Arc<Entry>,
}

impl Commit {
    /// Whether the batch is durable. Costs an atomic load.
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

    /// Waits until the batch is durable. If nobody else syncs the log, this thread does, also for a batch that
    /// was written with [`Durability::Buffered`].
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
    /// Those of [`Db::write_with`](crate::Db::write_with): of the write, if the batch was not written, or of the
    /// sync.
    pub fn wait(&self) -> Result<()> {
        if let Some(result) = self.entry.result.get() {
            return result.clone();
        }
        let Some(engine) = self.engine.upgrade() else { return self.entry.result_at_end() };
        engine.files.check_process()?;
        engine.wait_durable(self.entry.place.0)
    }

    /// Has a function run once the commit is complete. It gets what [`wait`](Self::wait) returns.
    ///
    /// Each function runs once, also if the write fails and if the store is closed. Those of one store run one
    /// after the other, in the order of the batches in the log (those that several threads wrote at the same
    /// moment, in any order), and those of one batch in the order of these calls; a function for a batch that is
    /// complete already runs as soon as it is its turn. They run in a thread of their own, which holds no lock:
    /// they may write, [`wait`](Self::wait) for other commits (but not await them: this thread is the one that
    /// wakes tasks), and drop the last handle of the store. A slow one delays the others, and closing the store
    /// waits for them. A panic in one is caught and traced (as an event of the crate `tracing`).
    ///
    /// Without background threads ([`Options::background_threads`](crate::Options::background_threads)) they
    /// run in the calls [`step`](crate::Db::step), [`sync`](crate::Db::sync) and
    /// [`close`](crate::Db::close). If there is nothing that runs it, because the store is closed already or
    /// read-only, the function runs in this call.
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
            // A forked process takes no lock.
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

/// Ready when the commit is complete, with what [`Commit::wait`] returns. A task that awaits it is woken by the
/// thread that runs the callbacks. For a batch that was written with [`Durability::Buffered`] no sync is begun:
/// it is complete when something else syncs the log.
impl Future for Commit {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(result) = self.entry.result.get() {
            return Poll::Ready(result.clone());
        }
        let Some(engine) = self.engine.upgrade() else { return Poll::Ready(self.entry.result_at_end()) };
        engine.files.check_process()?;
        // The lock is not held while the runtime copies or drops a waker.
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
    /// Writes a batch. Returns when it is visible.
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

    /// Runs a conditional call. Returns its answer when what it has written is visible, with the commit of what the
    /// answer rests on.
    pub(in crate::db) fn pending<A>(
        self: &Arc<Self>,
        durability: Durability,
        call: impl FnOnce() -> Result<(A, Option<LogPosition>)>,
    ) -> Result<(A, Commit)> {
        self.start_completions()?;
        let (answer, up_to) = call()?;
        Ok((answer, self.commit_at(up_to.unwrap_or_else(|| self.log().end()), durability)))
    }

    /// The commit of what is visible and ends at this position of the log.
    fn commit_at(self: &Arc<Self>, position: LogPosition, durability: Durability) -> Commit {
        let entry = self.completions.add(position, durability);
        match self.log().is_durable(position) {
            Ok(true) => self.completions.complete(position, &Ok(())),
            Ok(false) => {}
            Err(error) => self.completions.fail(&error),
        }
        Commit { engine: Arc::downgrade(self), entry }
    }

    /// Starts the completion thread, unless it runs. It is there for failed writes too.
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

    /// The completion thread. It lives on after a panic, which fails the store.
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

    /// Syncs the log for commits that want it. Completes them, whether it fails or not.
    fn sync_wanted(&self, position: LogPosition) -> Result<()> {
        self.wait_durable(position).inspect_err(|error| self.completions.fail(error))
    }

    /// Whether the callers of `step` run callbacks: there is no completion thread.
    fn completes_in_callers(&self) -> Result<bool> {
        self.files.check_process()?;
        Ok(self.background.threads == 0)
    }

    /// Without background threads: syncs the log if a commit wants it, and runs callbacks. `true` if it did
    /// anything.
    pub(in crate::db) fn step_completions(&self) -> Result<bool> {
        if !self.completes_in_callers()? {
            return Ok(false);
        }
        let wanted = self.completions.lock().wanted;
        let synced = wanted.map_or(Ok(()), |position| self.sync_wanted(position));
        let any = self.completions.deliver();
        synced.map(|()| any || wanted.is_some())
    }

    /// Without background threads: runs the callbacks that are ready.
    pub(in crate::db) fn deliver_completions(&self) {
        if self.completes_in_callers().is_ok_and(|completes| completes) {
            self.completions.deliver();
        }
    }
}
