//! Files of the tree, and their removal.
//!
//! Two table handles may have the same table file and different filter files, so each file has its own [`SharedFile`]. The
//! file is removed when a durable edit has dropped it *and* its last holder is dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::batch::KeyspaceId;
use crate::filename::FileName;
use crate::number_map::NumberSet;
use crate::sync::{Waker, lock};

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

    /// Requires that no manifest edit names the file.
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

#[derive(Default)]
pub(crate) struct ObsoleteFiles {
    names: Mutex<Vec<FileName>>,
    kept: Mutex<Vec<Arc<NumberSet<FileName>>>>,
    clearing: Mutex<()>,
    pub(crate) unusable: UnusableFilters,
    held_files: AtomicU64,
    /// May wrap, because a damaged manifest may contain any length.
    held_bytes: AtomicU64,
    waker: Waker,
}

/// While it exists, these files stay in the directory, even if they become obsolete.
pub(crate) struct Kept {
    names: Arc<NumberSet<FileName>>,
    obsolete_files: Arc<ObsoleteFiles>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        lock(&self.obsolete_files.kept).retain(|names| !Arc::ptr_eq(names, &self.names));
        self.obsolete_files.wake();
    }
}

#[derive(Default)]
pub(crate) struct UnusableFilters(Mutex<NumberSet<KeyspaceId>>);

impl UnusableFilters {
    pub(crate) fn add(&self, keyspaces: impl IntoIterator<Item = KeyspaceId>) {
        lock(&self.0).extend(keyspaces);
    }

    pub(crate) fn take(&self) -> NumberSet<KeyspaceId> {
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

    pub(crate) fn wake_for_unusable(&self, keyspace: KeyspaceId) {
        self.unusable.add([keyspace]);
        self.wake();
    }

    pub(crate) fn add(&self, name: FileName) {
        lock(&self.names).push(name);
        self.wake();
    }

    /// The caller holds the manifest's lock, and the manifest names all these files.
    pub(crate) fn keep(self: &Arc<Self>, names: NumberSet<FileName>) -> Kept {
        let names = Arc::new(names);
        lock(&self.kept).push(Arc::clone(&names));
        Kept { names, obsolete_files: Arc::clone(self) }
    }

    pub(crate) fn is_kept(&self, name: FileName) -> bool {
        lock(&self.kept).iter().any(|kept| kept.contains(&name))
    }

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
        let one = obsolete_files.keep([log].into_iter().collect());
        let two = obsolete_files.keep([log, table].into_iter().collect());
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
