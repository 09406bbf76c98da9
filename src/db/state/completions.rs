//! The commits that are not complete, and the callbacks of complete ones that have not run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::task::Waker;
use std::thread;
use std::thread::{JoinHandle, ThreadId};

use crate::Durability;
use crate::db::state::failure::catch;
use crate::db::state::log::LogPosition;
use crate::error::{Error, Result};
use crate::sync::{lock, wait};
pub(in crate::db) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// What the handle of a commit and the list of those that wait share.
pub(in crate::db) struct Entry {
    pub(in crate::db) place: Place,
    pub(in crate::db) result: OnceLock<Result<()>>,
}

/// The order of commits: by the ends of their groups in the log, and then by their calls.
pub(in crate::db) type Place = (LogPosition, u64);

/// What a commit takes that is not complete, about.
const COMMIT_BYTES: u64 =
    (size_of::<(Place, Waiting)>() + 2 * size_of::<usize>() + size_of::<Entry>()) as u64;

/// What a callback takes with all that it owns directly, about.
pub(in crate::db) fn bytes_of(callback: &Callback) -> u64 {
    (size_of::<(Callback, Result<()>)>() + size_of_val(&**callback)) as u64
}

/// A position behind every log.
pub(in crate::db) const END: LogPosition = LogPosition { number: u64::MAX, offset: u64::MAX };

/// The commits of a store that are not complete, and the callbacks of those that are.
#[derive(Default)]
pub(in crate::db) struct Completions {
    pub(in crate::db) state: Mutex<State>,
    pub(in crate::db) changed: Condvar,
    /// How many commits are not complete.
    pub(in crate::db) waiting: AtomicUsize,
    /// Memory of the callbacks that have not run.
    callback_bytes: AtomicU64,
}

#[derive(Default)]
pub(in crate::db) struct State {
    /// Commits so far.
    pub(in crate::db) calls: u64,
    pub(in crate::db) waiting: BTreeMap<Place, Waiting>,
    /// The last position for which a commit wants a sync.
    pub(in crate::db) wanted: Option<LogPosition>,
    pub(in crate::db) ready: BTreeMap<Place, VecDeque<(Callback, Result<()>)>>,
    /// Memory of the callbacks that have not run.
    callback_bytes: u64,
    /// The thread that runs callbacks now.
    deliverer: Option<ThreadId>,
    /// Something runs callbacks: the completion thread, or the calls of a store without threads.
    pub(in crate::db) is_served: bool,
    pub(in crate::db) thread: Option<JoinHandle<()>>,
    /// The store was closed, with this result.
    pub(in crate::db) ended: Option<Result<()>>,
}

/// Who waits for a commit.
pub(in crate::db) struct Waiting {
    pub(in crate::db) entry: Arc<Entry>,
    pub(in crate::db) callbacks: Vec<Callback>,
    pub(in crate::db) waker: Option<Waker>,
}

/// What the completion thread does next.
pub(in crate::db) enum Next {
    Deliver,
    Sync(LogPosition),
    End,
}

impl Entry {
    /// The result, of a store that is closed or a commit that is complete.
    pub(in crate::db) fn result_at_end(&self) -> Result<()> {
        self.result.get().cloned().unwrap_or(Err(Error::Closed))
    }
}

/// Runs a callback. It is the caller's code, so its panic is no failure of the store.
pub(in crate::db) fn run(callback: Callback, result: Result<()>) {
    if let Err(error) = catch("a callback of a commit", || callback(result)) {
        // So may be what takes the event.
        let _ = catch("tracing", || tracing::error!(%error, "a callback panicked"));
    }
}

impl State {
    /// Completes the commits up to this position.
    pub(in crate::db) fn complete(&mut self, up_to: LogPosition, result: &Result<()>) {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= up_to) {
            let (place, waiting) = first.remove_entry();
            self.complete_one(place, waiting, result);
        }
        self.wanted = self.wanted.filter(|&wanted| wanted > up_to);
    }

    /// Sets the result of a commit, and makes its callbacks ready.
    fn complete_one(&mut self, place: Place, waiting: Waiting, result: &Result<()>) {
        let Waiting { entry, callbacks, waker } = waiting;
        let _ = entry.result.set(result.clone());
        let wakes = waker.map(|waker| Box::new(move |_| waker.wake()) as Callback);
        self.callback_bytes += wakes.as_ref().map_or(0, bytes_of);
        let all = wakes.into_iter().chain(callbacks).map(|callback| (callback, result.clone()));
        let mut all = all.peekable();
        if all.peek().is_some() {
            self.ready.entry(place).or_default().extend(all);
        }
    }

    /// Takes the callback that is to run next.
    fn take_ready(&mut self) -> Option<(Callback, Result<()>)> {
        let mut first = self.ready.first_entry()?;
        let callback = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        self.callback_bytes -= callback.as_ref().map_or(0, |(callback, _)| bytes_of(callback));
        callback
    }
}

impl Completions {
    pub(in crate::db) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Memory of the commits that are not complete, and of the callbacks that have not run, about.
    pub(in crate::db) fn bytes(&self) -> u64 {
        let waiting = self.waiting.load(Ordering::Relaxed) as u64;
        waiting * COMMIT_BYTES + self.callback_bytes.load(Ordering::Relaxed)
    }

    /// To be called after a change: for those who take no lock.
    pub(in crate::db) fn count(&self, state: &State) {
        self.waiting.store(state.waiting.len(), Ordering::Release);
        self.callback_bytes.store(state.callback_bytes, Ordering::Relaxed);
    }

    /// Adds the commit of a batch that ends at this position.
    pub(in crate::db) fn add(&self, position: LogPosition, durability: Durability) -> Arc<Entry> {
        let mut state = self.lock();
        state.calls += 1;
        let place = (position, state.calls);
        let entry = Arc::new(Entry { place, result: OnceLock::new() });
        if let Some(ended) = &state.ended {
            let _ = entry.result.set(ended.clone());
            return entry;
        }
        let waiting = Waiting { entry: Arc::clone(&entry), callbacks: Vec::new(), waker: None };
        state.waiting.insert(place, waiting);
        self.count(&state);
        if durability == Durability::Synced {
            state.wanted = state.wanted.max(Some(position));
            self.changed.notify_all();
        }
        entry
    }

    /// Has a callback run when the commit is complete. Returns it if nobody will run it any more.
    pub(in crate::db) fn call(&self, entry: &Entry, callback: Callback) -> Option<Callback> {
        let mut state = self.lock();
        let bytes = bytes_of(&callback);
        if let Some(waiting) = state.waiting.get_mut(&entry.place) {
            waiting.callbacks.push(callback);
            state.callback_bytes += bytes;
            self.count(&state);
            return None;
        }
        // While the store is closed, the callbacks that are ready are run to the last.
        let is_served = state.is_served && state.ended.is_none();
        match entry.result.get() {
            Some(result) if is_served || state.deliverer.is_some() || !state.ready.is_empty() => {
                state.ready.entry(entry.place).or_default().push_back((callback, result.clone()));
                state.callback_bytes += bytes;
                self.count(&state);
                self.changed.notify_all();
                None
            }
            _ => Some(callback),
        }
    }

    /// Completes the commits up to this position.
    pub(in crate::db) fn complete(&self, up_to: LogPosition, result: &Result<()>) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.lock();
        state.complete(up_to, result);
        self.count(&state);
        self.changed.notify_all();
    }

    /// Completes every commit because the log has failed.
    pub(in crate::db) fn fail(&self, error: &Error) {
        self.complete(END, &Err(error.clone()));
    }

    /// Runs the callbacks that are ready, unless another thread does. `true` if it ran any.
    pub(in crate::db) fn deliver(&self) -> bool {
        let mut state = self.lock();
        let mut any = false;
        if state.deliverer.is_some() {
            return any;
        }
        state.deliverer = Some(thread::current().id());
        while let Some((callback, result)) = state.take_ready() {
            self.count(&state);
            drop(state);
            run(callback, result);
            any = true;
            state = self.lock();
        }
        state.deliverer = None;
        self.changed.notify_all();
        any
    }

    /// Waits for something to do.
    pub(in crate::db) fn next(&self) -> Next {
        let mut state = self.lock();
        loop {
            match (state.ready.is_empty(), state.wanted, &state.ended) {
                (false, ..) => return Next::Deliver,
                (true, _, Some(_)) => return Next::End,
                (true, Some(wanted), None) => return Next::Sync(wanted),
                (true, None, None) => state = wait(&self.changed, state),
            }
        }
    }

    /// Completes all commits because the store is closed, and waits until their callbacks have run, unless it
    /// is one of them that closes the store.
    pub(in crate::db) fn end(&self, result: &Result<()>) {
        let mut state = self.lock();
        state.complete(END, result);
        self.count(&state);
        state.ended = Some(result.clone());
        let thread = state.thread.take();
        self.changed.notify_all();
        drop(state);
        let this = thread::current().id();
        match thread {
            Some(thread) if thread.thread().id() == this => {}
            Some(thread) => drop(thread.join()),
            None => {
                self.deliver();
                let mut state = self.lock();
                while state.deliverer.is_some_and(|deliverer| deliverer != this) {
                    state = wait(&self.changed, state);
                }
            }
        }
    }
}
