//! Shared ownership of an open store, and closing.

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
    use std::sync::Arc;

    use crate::db::{Db, Keyspace, KeyspaceSnapshot, Snapshot};
    use crate::fs::MemFs;
    use crate::options::Options;

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
