//! Locks that ignore poisoning, because their data is valid between any two statements.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn get_mut<T: ?Sized>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    patience: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, patience).unwrap_or_else(PoisonError::into_inner).0
}

/// A callback that is set once, after its owner was created.
#[derive(Default)]
pub(crate) struct Waker(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl Waker {
    pub(crate) fn set(&self, waker: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(waker));
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.0.get() {
            waker();
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waker").field(&self.0.get().is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_holder_panicked_is_taken_like_any_other() {
        let mut mutex = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                *lock(&mutex) += 1;
                let _held = lock(&mutex);
                panic!("while the lock is held");
            });
            holder.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
        assert_eq!(*get_mut(&mut mutex), 2);
    }
}
