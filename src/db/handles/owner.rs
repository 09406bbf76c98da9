//! Shared ownership of an open store, and closing.
//!
//! Closing first sets a flag, which the leader checks, and wakes all calls that wait for background work: they return
//! [`Error::Closed`]. So closing waits only for work that began before:
//!
//! 1. jobs: flushes and new files end, compactions and filter builds are cancelled;
//! 2. requests that are in the commit queue, without the wait for room;
//! 3. a running sync of the log, and one that covers the rest;
//! 4. callbacks of commits.

use std::panic::RefUnwindSafe;
use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::open::live_view::LiveView;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::switch_points::point;
use crate::error::{Error, Result};
impl Engine {
    /// Stops background work, ends the log, releases the lock, completes pending commits. Idempotent.
    ///
    /// Does nothing in a forked child: the child has no threads, a lock may be held for ever, and the files belong to
    /// the parent.
    pub(in crate::db) fn close(&self) -> Result<()> {
        self.files.check_process()?;
        if !self.lifecycle.set_closed() {
            return Ok(());
        }
        self.commit.priority.end();
        point();
        self.background.stop();
        point();
        let result = match (&self.log, self.lifecycle.failure()) {
            (None, _) => Ok(()),
            (Some(_), Some(error)) => Err(error.clone()),
            (Some(_), None) => self.close_log(),
        };
        if self.log.is_some() {
            self.remove_obsolete_files();
        }
        *self.manifest.lock() = None;
        point();
        self.files.unlock();
        self.completions.end(&result);
        result
    }
}

/// Shared by all handles; dropping the last one closes the store.
pub(in crate::db) struct Owner {
    engine: Arc<Engine>,
    view: Option<LiveView>,
}

/// A caller's closure runs without any lock, and a panic in the engine ends writing.
impl RefUnwindSafe for Owner {}
impl RefUnwindSafe for Tree {}

impl Owner {
    pub(in crate::db) fn new(engine: Arc<Engine>, view: Option<LiveView>) -> Arc<Self> {
        Arc::new(Self { engine, view })
    }

    pub(in crate::db) fn view(&self) -> Option<&LiveView> {
        self.view.as_ref()
    }

    #[inline]
    pub(in crate::db) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").field("dir", &self.engine.files.dir).finish_non_exhaustive()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        match self.engine.close() {
            // The engine's parts must not be dropped: see `Engine::close`.
            Err(Error::Forked { .. }) => std::mem::forget(Arc::clone(&self.engine)),
            Err(error) => {
                tracing::error!(dir = %self.engine.files.dir.display(), %error, "closing failed");
            }
            Ok(()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use crate::db::queues::priority::Tries;
    use crate::db::{Db, Keyspace, KeyspaceSnapshot, Snapshot};
    use crate::error::Error;
    use crate::fs::MemFs;
    use crate::options::Options;

    #[test]
    fn a_put_that_waits_for_a_thread_with_priority_is_refused_when_the_store_closes() {
        let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap();
        let mut tries = Tries::new(&db.engine().commit.priority);
        while !db.engine().commit.priority.is_taken() {
            tries.lost(|| Ok::<(), ()>(()));
        }
        std::thread::scope(|scope| {
            let (tells, told) = mpsc::channel();
            let writer = &db;
            scope.spawn(move || tells.send(writer.put("k", "v")));
            let waits = told.recv_timeout(Duration::from_millis(50));
            assert!(waits.is_err(), "{waits:?}");
            db.clone().close().unwrap();
            let written = told.recv_timeout(Duration::from_secs(20));
            drop(tries);
            assert!(matches!(written, Ok(Err(Error::Closed))), "{written:?}");
        });
    }

    #[test]
    fn handles_can_be_used_after_a_panic_that_was_caught() {
        fn is_safe<T: UnwindSafe + RefUnwindSafe>() {}
        is_safe::<Db>();
        is_safe::<Keyspace>();
        is_safe::<Snapshot>();
        is_safe::<KeyspaceSnapshot>();
        let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap();
        db.put("k", "before").unwrap();
        let panicked = catch_unwind(|| db.update("k", |_| panic!("in the closure of a caller")));
        assert!(panicked.is_err());
        assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"before"[..]));
        db.update("k", |_| Some(b"after".to_vec())).unwrap();
        assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"after"[..]));
    }
}
