//! Incomplete commits, and the callbacks of completed ones.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
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
    (size_of::<(Callback, Arc<Entry>)>() + size_of_val(&**callback)) as u64
}

pub(in crate::db) const END: LogPosition = LogPosition { number: u64::MAX, offset: u64::MAX };

#[derive(Default)]
pub(in crate::db) struct Completions {
    pub(in crate::db) state: Mutex<State>,
    pub(in crate::db) changed: Condvar,
    bytes: AtomicU64,
}

#[derive(Default)]
pub(in crate::db) struct State {
    pub(in crate::db) calls: u64,
    pub(in crate::db) waiting: BTreeMap<Place, Waiting>,
    pub(in crate::db) wanted: Option<LogPosition>,
    /// The same type as `waiting`: each type of tree costs kilobytes of code.
    pub(in crate::db) ready: BTreeMap<Place, Waiting>,
    callback_bytes: u64,
    deliverer: Option<ThreadId>,
    pub(in crate::db) is_served: bool,
    pub(in crate::db) thread: Option<JoinHandle<()>>,
    pub(in crate::db) ended: Option<Result<()>>,
}

pub(in crate::db) struct Waiting {
    entry: Arc<Entry>,
    /// Each with the entry of its commit.
    callbacks: VecDeque<(Callback, Arc<Entry>)>,
    pub(in crate::db) waker: Option<Waker>,
}

impl Waiting {
    fn new(entry: &Arc<Entry>) -> Self {
        Self { entry: Arc::clone(entry), callbacks: VecDeque::new(), waker: None }
    }

    fn call(&mut self, callback: Callback, entry: &Arc<Entry>) {
        self.callbacks.push_back((callback, Arc::clone(entry)));
    }
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

    fn complete_one(&mut self, place: Place, mut waiting: Waiting, result: &Result<()>) {
        let _ = waiting.entry.result.set(result.clone());
        if let Some(waker) = waiting.waker.take() {
            let wakes: Callback = Box::new(move |_| waker.wake());
            self.callback_bytes += bytes_of(&wakes);
            waiting.callbacks.push_front((wakes, Arc::clone(&waiting.entry)));
        }
        if !waiting.callbacks.is_empty() {
            self.ready.insert(place, waiting);
        }
    }

    fn take_ready(&mut self) -> Option<(Callback, Arc<Entry>)> {
        let mut first = self.ready.first_entry()?;
        let callback = first.get_mut().callbacks.pop_front();
        if first.get().callbacks.is_empty() {
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
        self.bytes.load(Ordering::Relaxed)
    }

    /// Publishes the memory in use for readers without the lock. Call after each change.
    fn count(&self, state: &State) {
        let bytes = state.waiting.len() as u64 * COMMIT_BYTES + state.callback_bytes;
        self.bytes.store(bytes, Ordering::Release);
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
        state.waiting.insert(place, Waiting::new(&entry));
        self.count(&state);
        if durability == Durability::Synced {
            state.wanted = state.wanted.max(Some(position));
            self.changed.notify_all();
        }
        entry
    }

    pub(in crate::db) fn call(&self, entry: &Arc<Entry>, callback: Callback) -> Option<Callback> {
        let mut state = self.lock();
        let bytes = bytes_of(&callback);
        if let Some(waiting) = state.waiting.get_mut(&entry.place) {
            waiting.call(callback, entry);
            state.callback_bytes += bytes;
            self.count(&state);
            return None;
        }
        // A store that is closing runs its ready callbacks.
        let is_served = state.is_served && state.ended.is_none();
        match entry.result.get() {
            Some(_) if is_served || state.deliverer.is_some() || !state.ready.is_empty() => {
                state.ready.entry(entry.place).or_insert_with(|| Waiting::new(entry)).call(callback, entry);
                state.callback_bytes += bytes;
                self.count(&state);
                self.changed.notify_all();
                None
            }
            _ => Some(callback),
        }
    }

    pub(in crate::db) fn complete(&self, up_to: LogPosition, result: &Result<()>) {
        if self.bytes.load(Ordering::Acquire) == 0 {
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
        while let Some((callback, entry)) = state.take_ready() {
            self.count(&state);
            drop(state);
            run(callback, entry.result_at_end());
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
