//! The queue in front of the commit leader.
//!
//! If there is no leader, a writer becomes the leader at once. Otherwise it queues a request, and waits until a
//! leader has executed it or has made it the leader.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::db::queues::condition::Admitted;
use crate::db::queues::priority::PriorityLane;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::error::Result;
use crate::sync::{lock, wait};

/// Bytes of one group. A larger batch forms its own group.
const GROUP_BYTES_MAX: usize = 1 << 20;

pub(in crate::db) enum Wanted {
    Batch(Admitted),
    Seal(Vec<Arc<Tree>>),
    /// Returns after all earlier requests; resumes writing if due.
    Barrier,
    Close,
    /// Exclusive work that the requester does as leader.
    Alone,
}

pub(in crate::db) enum Answer {
    Done(Outcome),
    /// Memory is full and no background thread is free. Nothing was decided or written.
    Stalled(Admitted),
}

pub(in crate::db) struct Outcome {
    /// A sync up to here covers the write and all reads of its condition.
    pub(in crate::db) position: LogPosition,
    pub(in crate::db) decided: Option<Admitted>,
}

pub(in crate::db) struct Request {
    bytes: usize,
    is_alone: bool,
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Waiting(Wanted),
    Taken,
    Leads(Wanted),
    Done(Result<Answer>),
}

pub(in crate::db) enum Turn {
    Leads(Wanted),
    Done(Result<Answer>),
}

#[derive(Default)]
pub(in crate::db) struct CommitQueue {
    queue: Mutex<Queue>,
    waiting: AtomicUsize,
    pub(in crate::db) priority: PriorityLane,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Request>>,
    led: bool,
}

impl Wanted {
    fn bytes(&self) -> usize {
        match self {
            Self::Batch(admitted) => admitted.part_max().0.len(),
            Self::Seal(_) | Self::Barrier | Self::Close | Self::Alone => 0,
        }
    }

    fn is_alone(&self) -> bool {
        match self {
            Self::Batch(admitted) => admitted.may_exceed == Some(true),
            Self::Close | Self::Alone => true,
            Self::Seal(_) | Self::Barrier => false,
        }
    }
}

impl Request {
    fn new(work: Wanted) -> Arc<Self> {
        let (bytes, is_alone) = (work.bytes(), work.is_alone());
        Arc::new(Self { bytes, is_alone, state: Mutex::new(State::Waiting(work)), changed: Condvar::new() })
    }

    fn wait(&self) -> Turn {
        let mut state = lock(&self.state);
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Done(result) => return Turn::Done(result),
                State::Leads(work) => return Turn::Leads(work),
                unchanged => *state = unchanged,
            }
            state = wait(&self.changed, state);
        }
    }

    pub(in crate::db) fn take(&self) -> Wanted {
        match std::mem::replace(&mut *lock(&self.state), State::Taken) {
            State::Waiting(work) => work,
            State::Taken | State::Leads(_) | State::Done(_) => {
                unreachable!("a request leaves the queue once, and it waits there")
            }
        }
    }

    fn lead(&self) {
        let work = self.take();
        self.set(State::Leads(work));
    }

    pub(in crate::db) fn finish(&self, result: Result<Answer>) {
        self.set(State::Done(result));
    }

    fn set(&self, state: State) {
        *lock(&self.state) = state;
        self.changed.notify_one();
    }
}

impl CommitQueue {
    pub(in crate::db) fn enter(&self, work: Wanted) -> Turn {
        if matches!(work, Wanted::Batch(_)) {
            self.priority.wait();
        }
        let mut queue = lock(&self.queue);
        if !std::mem::replace(&mut queue.led, true) {
            return Turn::Leads(work);
        }
        let request = Request::new(work);
        queue.waiting.push_back(Arc::clone(&request));
        self.waiting.store(queue.waiting.len(), Ordering::Relaxed);
        drop(queue);
        request.wait()
    }

    /// Makes the caller the leader, unless another thread is the leader or has priority.
    #[inline]
    pub(in crate::db) fn lead(&self) -> bool {
        // Checked under the lock, so that no leader that missed the priority begins after the barrier of the thread
        // that took it.
        let mut queue = lock(&self.queue);
        !self.priority.is_taken() && !std::mem::replace(&mut queue.led, true)
    }

    /// Takes the oldest requests that fit into the leader's group.
    pub(in crate::db) fn take_followers(&self, own: &Wanted) -> Vec<Arc<Request>> {
        let mut group = Vec::new();
        if own.is_alone() || self.waiting.load(Ordering::Relaxed) == 0 {
            return group;
        }
        let mut bytes = own.bytes();
        let mut queue = lock(&self.queue);
        while let Some(next) = queue.waiting.front() {
            bytes += next.bytes;
            if next.is_alone || bytes > GROUP_BYTES_MAX {
                break;
            }
            group.extend(queue.waiting.pop_front());
        }
        self.waiting.store(queue.waiting.len(), Ordering::Relaxed);
        group
    }

    #[inline]
    pub(in crate::db) fn hand_on(&self) {
        let mut queue = lock(&self.queue);
        match queue.waiting.pop_front() {
            Some(next) => {
                self.waiting.store(queue.waiting.len(), Ordering::Relaxed);
                next.lead();
            }
            None => queue.led = false,
        }
    }
}

#[cfg(test)]
impl CommitQueue {
    pub(in crate::db) fn waiting(&self) -> usize {
        lock(&self.queue).waiting.len()
    }

    pub(in crate::db) fn is_led(&self) -> bool {
        lock(&self.queue).led
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;
    use crate::db::queues::priority::PATIENCE;

    #[test]
    fn a_writer_that_finds_no_leader_makes_no_request_and_leaves_none_behind() {
        let queue = CommitQueue::default();
        for _ in 0..2 {
            let Turn::Leads(work) = queue.enter(Wanted::Barrier) else { panic!("nobody else leads") };
            assert!(queue.take_followers(&work).is_empty());
            assert_eq!(lock(&queue.queue).waiting.capacity(), 0, "no request was made");
            queue.hand_on();
        }
    }

    #[test]
    fn a_batch_waits_for_priority_before_it_enters_the_queue_and_a_barrier_does_not() {
        let queue = CommitQueue::default();
        assert!(queue.priority.take(PATIENCE));
        let is_free = AtomicBool::new(false);
        let enter = |work| {
            let Turn::Leads(_) = queue.enter(work) else { panic!("nobody else leads") };
            queue.hand_on();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| enter(Wanted::Barrier)).join().unwrap();
            scope.spawn(|| {
                let batch =
                    Admitted { bytes: Vec::new(), trees: Vec::new(), condition: None, may_exceed: None };
                enter(Wanted::Batch(batch));
                assert!(is_free.load(Ordering::Relaxed));
            });
            std::thread::sleep(Duration::from_millis(50));
            is_free.store(true, Ordering::Relaxed);
            queue.priority.release();
        });
    }

    #[test]
    fn those_who_wait_are_carried_out_with_the_leader_or_lead_themselves_in_their_order() {
        let queue = CommitQueue::default();
        let Turn::Leads(own) = queue.enter(Wanted::Barrier) else { panic!("nobody else leads") };
        std::thread::scope(|scope| {
            let mut waiters = Vec::new();
            for (at, work) in [Wanted::Barrier, Wanted::Close, Wanted::Barrier].into_iter().enumerate() {
                let queue = &queue;
                waiters.push(scope.spawn(move || queue.enter(work)));
                while queue.waiting() <= at {
                    std::thread::yield_now();
                }
            }
            let followers = queue.take_followers(&own);
            assert_eq!((followers.len(), queue.waiting()), (1, 2), "one that closes is alone");
            queue.hand_on();
            followers.iter().for_each(|request| {
                assert!(matches!(request.take(), Wanted::Barrier));
                request.finish(Err(crate::error::Error::Closed));
            });
            let mut turns = waiters.into_iter().map(|waiter| waiter.join().unwrap());
            assert!(matches!(turns.next(), Some(Turn::Done(Err(_)))));
            let Some(Turn::Leads(close)) = turns.next() else { panic!("it has waited longest") };
            assert!(matches!(close, Wanted::Close) && queue.take_followers(&close).is_empty());
            queue.hand_on();
            assert!(matches!(turns.next(), Some(Turn::Leads(Wanted::Barrier))));
        });
    }
}
