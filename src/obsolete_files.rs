//! Files of the tree, and when they are removed.
//!
//! Handles of a table read from the table file, and from a filter file if the filter was rebuilt. When that filter is
//! replaced, the table gets a new handle, which shares the table file with the old handle but has another filter file.
//! So each file has its own [`SharedFile`], held by all handles that read from it. The file is removed when a durable
//! edit has dropped it *and* the last holder is dropped.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::batch::KeyspaceId;
use crate::filename::FileName;
use crate::sync::{Waker, lock};

/// A file that handles of tables read from.
pub(crate) struct SharedFile {
    name: FileName,
    bytes: u64,
    obsolete: AtomicBool,
    obsolete_files: Arc<ObsoleteFiles>,
}

impl SharedFile {
    pub(crate) fn new(name: FileName, bytes: u64, obsolete_files: Arc<ObsoleteFiles>) -> Arc<Self> {
        Arc::new(Self { name, bytes, obsolete: AtomicBool::new(false), obsolete_files })
    }

    pub(crate) fn name(&self) -> FileName {
        self.name
    }

    pub(crate) fn obsolete_files(&self) -> &Arc<ObsoleteFiles> {
        &self.obsolete_files
    }

    /// Called when no manifest edit names the file any more. The file is removed after the last holder was dropped.
    pub(crate) fn set_obsolete(&self) {
        if !self.obsolete.swap(true, Ordering::AcqRel) {
            self.obsolete_files.held_files.fetch_add(1, Ordering::Relaxed);
            self.obsolete_files.held_bytes.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.obsolete_files.held_files.fetch_sub(1, Ordering::Relaxed);
            self.obsolete_files.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            self.obsolete_files.add(self.name);
        }
    }
}

/// Files that no handle reads any more. Background work removes them.
#[derive(Default)]
pub(crate) struct ObsoleteFiles {
    names: Mutex<Vec<FileName>>,
    /// The files that are not removed yet, one set for each [`Kept`].
    kept: Mutex<Vec<Arc<BTreeSet<FileName>>>>,
    clearing: Mutex<()>,
    pub(crate) unusable: UnusableFilters,
    /// Number of the obsolete files that handles still read from.
    held_files: AtomicU64,
    /// Sum of their lengths; it wraps, because a damaged manifest may have any length.
    held_bytes: AtomicU64,
    waker: Waker,
}

/// Files that stay in the directory until this is dropped, also if they become obsolete.
pub(crate) struct Kept {
    names: Arc<BTreeSet<FileName>>,
    obsolete_files: Arc<ObsoleteFiles>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        lock(&self.obsolete_files.kept).retain(|names| !Arc::ptr_eq(names, &self.names));
        self.obsolete_files.wake();
    }
}

/// The keyspaces that may have unusable filters, to be replaced by new ones.
#[derive(Default)]
pub(crate) struct UnusableFilters(Mutex<BTreeSet<KeyspaceId>>);

impl UnusableFilters {
    pub(crate) fn add(&self, keyspaces: impl IntoIterator<Item = KeyspaceId>) {
        lock(&self.0).extend(keyspaces);
    }

    pub(crate) fn take(&self) -> BTreeSet<KeyspaceId> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl ObsoleteFiles {
    pub(crate) fn held(&self) -> (u64, u64) {
        (self.held_files.load(Ordering::Relaxed), self.held_bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn wake_with(&self, waker: impl Fn() + Send + Sync + 'static) {
        self.waker.set(waker);
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Wakes the background work: a filter of this keyspace has turned out unusable.
    pub(crate) fn wake_for_unusable(&self, keyspace: KeyspaceId) {
        self.unusable.add([keyspace]);
        self.wake();
    }

    pub(crate) fn add(&self, name: FileName) {
        lock(&self.names).push(name);
        self.wake();
    }

    /// Keeps these files. The caller holds the lock of the manifest, which names all of them, so none is obsolete yet.
    pub(crate) fn keep(self: &Arc<Self>, names: BTreeSet<FileName>) -> Kept {
        let names = Arc::new(names);
        lock(&self.kept).push(Arc::clone(&names));
        Kept { names, obsolete_files: Arc::clone(self) }
    }

    /// Whether a [`Kept`] has this file.
    pub(crate) fn is_kept(&self, name: FileName) -> bool {
        lock(&self.kept).iter().any(|kept| kept.contains(&name))
    }

    /// Passes every obsolete file to `remove`, unless it is kept, and keeps those for which that is `false`. Waits if
    /// another thread is removing files. Returns `true` if any was removed.
    pub(crate) fn clear(&self, mut remove: impl FnMut(FileName) -> bool) -> bool {
        let _one_at_a_time = lock(&self.clearing);
        let mut names = std::mem::take(&mut *lock(&self.names));
        let before = names.len();
        names.retain(|&name| self.is_kept(name) || !remove(name));
        let any = names.len() < before;
        lock(&self.names).extend(names);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_removed_only_when_it_is_obsolete_and_nobody_holds_it() {
        let obsolete_files = Arc::new(ObsoleteFiles::default());
        let kept = SharedFile::new(FileName::Table(1), 100, Arc::clone(&obsolete_files));
        let gone = SharedFile::new(FileName::Filter(2), 30, Arc::clone(&obsolete_files));
        gone.set_obsolete();
        let reader = Arc::clone(&gone);
        gone.set_obsolete();
        drop((kept, gone));
        assert_eq!(obsolete_files.held(), (1, 30));
        assert!(!obsolete_files.clear(|_| panic!("a reader holds it")));
        drop(reader);
        assert_eq!(obsolete_files.held(), (0, 0));
        let mut cleared = Vec::new();
        let mut clear = |name, is_removed| {
            cleared.push(name);
            is_removed
        };
        assert!(!obsolete_files.clear(|name| clear(name, false)), "it could not be removed");
        assert!(obsolete_files.clear(|name| clear(name, true)));
        assert!(!obsolete_files.clear(|name| clear(name, true)));
        assert_eq!(cleared, [FileName::Filter(2); 2]);
    }

    #[test]
    fn a_file_that_is_kept_twice_is_removed_after_both() {
        let obsolete_files = Arc::new(ObsoleteFiles::default());
        let (log, table) = (FileName::Log(1), FileName::Table(2));
        let one = obsolete_files.keep([log].into());
        let two = obsolete_files.keep([log, table].into());
        [log, table].into_iter().for_each(|name| obsolete_files.add(name));
        let cleared = || {
            let mut cleared = Vec::new();
            obsolete_files.clear(|name| {
                cleared.push(name);
                true
            });
            cleared
        };
        assert_eq!(cleared(), []);
        drop(two);
        assert_eq!(cleared(), [table]);
        drop(one);
        assert_eq!(cleared(), [log]);
    }
}
