//! Parallel execution of independent parts.

use std::panic::resume_unwind;
use std::sync::{Mutex, OnceLock};
use std::thread::{self, Builder};

use crate::sorting::sort_by_key;
use crate::sync::lock;

pub(in crate::db) fn each_in_parallel<I: Send, T: Send + Sync>(
    all: Vec<I>,
    threads: usize,
    name: &str,
    work: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let left = Mutex::new(all.into_iter().enumerate());
    let take_some = |_| {
        let take = || lock(&left).next();
        std::iter::from_fn(take).map(|(place, one)| (place, work(one))).collect::<Vec<_>>()
    };
    let parts = in_parallel(threads, || Builder::new().name(name.to_owned()), take_some);
    let mut done: Vec<_> = parts.into_iter().flatten().collect();
    sort_by_key(&mut done, |(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Returns the results in order.
pub(in crate::db) fn in_parallel<T: Send + Sync>(
    parts: usize,
    thread: impl Fn() -> Builder,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let results: Vec<OnceLock<T>> = (0..parts.max(1)).map(|_| OnceLock::new()).collect();
    run_all(parts, &thread, &|part| drop(results[part].set(work(part))));
    results.into_iter().map(|result| result.into_inner().expect("each part has run")).collect()
}

/// The first part runs in this thread, as do parts for which no thread can be started. A panic propagates once all
/// parts have ended.
fn run_all(parts: usize, thread: &dyn Fn() -> Builder, work: &(dyn Fn(usize) + Sync)) {
    thread::scope(|scope| {
        let spawn = |part: usize| thread().spawn_scoped(scope, move || work(part));
        let others: Vec<_> = (1..parts).map(|part| (part, spawn(part))).collect();
        work(0);
        for (part, spawned) in others {
            match spawned {
                Ok(running) => running.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(error) => {
                    tracing::debug!(%error, "no thread could be started: the caller runs the part");
                    work(part);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn parts_are_done_in_threads_of_their_own_and_in_this_one_if_there_are_none() {
        let this = thread::current().id();
        let threads = |thread: fn() -> Builder| {
            let done = in_parallel(4, thread, |part| (part, thread::current().id()));
            assert!(done.iter().map(|(part, _)| *part).eq(0..4));
            done.into_iter().map(|(_, id)| id).collect::<HashSet<_>>()
        };
        let own = threads(Builder::new);
        assert!(own.len() == 4 && own.contains(&this));
        // The stack is too large for any system, so no thread starts.
        assert_eq!(threads(|| Builder::new().stack_size(usize::MAX / 4)), HashSet::from([this]));
    }

    #[test]
    fn a_panic_of_a_part_reaches_the_caller() {
        for part in 0..3 {
            let work = |this| assert!(this != part, "part {part}");
            assert!(catch_unwind(|| in_parallel(3, Builder::new, work)).is_err());
        }
    }
}
