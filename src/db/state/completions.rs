//! Incomplete commits, and the callbacks of completed ones.

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

pub(in crate::db) struct Entry {
    pub(in crate::db) place: Place,
    pub(in crate::db) result: OnceLock<Result<()>>,
}

pub(in crate::db) type Place = (LogPosition, u64);

const COMMIT_BYTES: u64 =
    (size_of::<(Place, Waiting)>() + 2 * size_of::<usize>() + size_of::<Entry>()) as u64;

pub(in crate::db) fn bytes_of(callback: &Callback) -> u64 {
    (size_of::<(Callback, Result<()>)>() + size_of_val(&**callback)) as u64
}

pub(in crate::db) const END: LogPosition = LogPosition { number: u64::MAX, offset: u64::MAX };

#[derive(Default)]
pub(in crate::db) struct Completions {
    pub(in crate::db) state: Mutex<State>,
    pub(in crate::db) changed: Condvar,
    pub(in crate::db) waiting: AtomicUsize,
    callback_bytes: AtomicU64,
}

#[derive(Default)]
pub(in crate::db) struct State {
    pub(in crate::db) calls: u64,
    pub(in crate::db) waiting: BTreeMap<Place, Waiting>,
    pub(in crate::db) wanted: Option<LogPosition>,
    pub(in crate::db) ready: BTreeMap<Place, VecDeque<(Callback, Result<()>)>>,
    callback_bytes: u64,
    deliverer: Option<ThreadId>,
    pub(in crate::db) is_served: bool,
    pub(in crate::db) thread: Option<JoinHandle<()>>,
    pub(in crate::db) ended: Option<Result<()>>,
}

pub(in crate::db) struct Waiting {
    pub(in crate::db) entry: Arc<Entry>,
    pub(in crate::db) callbacks: Vec<Callback>,
    pub(in crate::db) waker: Option<Waker>,
}

pub(in crate::db) enum Next {
    Deliver,
    Sync(LogPosition),
    End,
}

impl Entry {
    pub(in crate::db) fn result_at_end(&self) -> Result<()> {
        self.result.get().cloned().unwrap_or(Err(Error::Closed))
    }
}

pub(in crate::db) fn run(callback: Callback, result: Result<()>) {
    if let Err(error) = catch("a callback of a commit", || callback(result)) {
        let _ = catch("tracing", || tracing::error!(%error, "a callback panicked"));
    }
}

impl State {
    pub(in crate::db) fn complete(&mut self, up_to: LogPosition, result: &Result<()>) {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= up_to) {
            let (place, waiting) = first.remove_entry();
            self.complete_one(place, waiting, result);
        }
        self.wanted = self.wanted.filter(|&wanted| wanted > up_to);
    }

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

    pub(in crate::db) fn bytes(&self) -> u64 {
        let waiting = self.waiting.load(Ordering::Relaxed) as u64;
        waiting * COMMIT_BYTES + self.callback_bytes.load(Ordering::Relaxed)
    }

    /// Publishes the counts for readers without the lock. Call after each change.
    pub(in crate::db) fn count(&self, state: &State) {
        self.waiting.store(state.waiting.len(), Ordering::Release);
        self.callback_bytes.store(state.callback_bytes, Ordering::Relaxed);
    }

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

    pub(in crate::db) fn call(&self, entry: &Entry, callback: Callback) -> Option<Callback> {
        let mut state = self.lock();
        let bytes = bytes_of(&callback);
        if let Some(waiting) = state.waiting.get_mut(&entry.place) {
            waiting.callbacks.push(callback);
            state.callback_bytes += bytes;
            self.count(&state);
            return None;
        }
        // A store that is closing runs its ready callbacks.
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

    pub(in crate::db) fn complete(&self, up_to: LogPosition, result: &Result<()>) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.lock();
        state.complete(up_to, result);
        self.count(&state);
        self.changed.notify_all();
    }

    pub(in crate::db) fn fail(&self, error: &Error) {
        self.complete(END, &Err(error.clone()));
    }

    /// Runs the ready callbacks, unless another thread runs them. Returns whether it ran any.
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

    /// Waits for all callbacks, unless one of them closes the store.
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
