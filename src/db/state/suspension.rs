//! Whether writing is suspended after a failed append, and the files to keep until it resumes.

use crate::Error;
use crate::db::state::keyspace::change::Change;
use crate::db::state::keyspace::change::TreeChange;
use crate::filename::FileName;
use crate::sync::lock;
use crate::version::TableHandle;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
/// Whether writing is suspended, and what to keep until it resumes.
#[derive(Default)]
pub(crate) struct Suspension {
    pub(in crate::db) is_suspended: AtomicBool,
    pub(in crate::db) state: Mutex<State>,
}

#[derive(Default)]
pub(in crate::db) struct State {
    /// The newest failure.
    pub(in crate::db) cause: Option<Error>,
    pub(in crate::db) in_doubt: InDoubt,
}

/// Files that a manifest may name of which it is unknown whether it counts, or whether it has the edit.
#[derive(Default)]
pub(in crate::db) struct InDoubt {
    pub(in crate::db) files: Vec<FileName>,
    /// Handles of tables. They are marked as obsolete, and their files are removed with the last handle.
    pub(in crate::db) tables: Vec<Arc<TableHandle>>,
}

impl Suspension {
    #[inline]
    pub(crate) fn is_suspended(&self) -> bool {
        self.is_suspended.load(Ordering::Acquire)
    }

    /// The failure because of which writing is suspended, if it is.
    pub(crate) fn cause(&self) -> Option<Error> {
        if self.is_suspended() { lock(&self.state).cause.clone() } else { None }
    }

    /// What to hold from before the edit of a change is appended until the change is visible.
    pub(in crate::db) fn doubt(&self, change: &Change) -> Doubt<'_> {
        let tables = match change {
            Change::Trees(changes) => changes.iter().flat_map(TreeChange::new_tables).collect(),
            Change::Filters(change) => vec![Arc::clone(&change.new)],
            Change::None | Change::End | Change::Options(..) | Change::Drop(_) => Vec::new(),
        };
        Doubt { suspension: self, tables }
    }

    /// Keeps a file that a manifest may name.
    pub(in crate::db) fn keep_file(&self, name: FileName) {
        lock(&self.state).in_doubt.files.push(name);
    }

    pub(in crate::db) fn keep_files(&self, changes: &[TreeChange], names: Vec<FileName>) {
        let in_doubt = &mut lock(&self.state).in_doubt;
        for change in changes {
            in_doubt.tables.extend(change.new_tables());
            change.set_added_obsolete();
        }
        in_doubt.files.extend(names);
    }

    pub(in crate::db) fn begin(&self, state: &mut State, cause: Error) {
        state.cause = Some(cause);
        self.is_suspended.store(true, Ordering::Release);
    }

    pub(in crate::db) fn end(&self) {
        lock(&self.state).cause = None;
        self.is_suspended.store(false, Ordering::Release);
    }
}

/// The new tables and filters of a change whose edit may be in the manifest. Unless that ends, they are kept,
/// also if a panic has interrupted the change.
pub(in crate::db) struct Doubt<'a> {
    pub(in crate::db) suspension: &'a Suspension,
    pub(in crate::db) tables: Vec<Arc<TableHandle>>,
}

impl Doubt<'_> {
    /// The change is visible.
    pub(in crate::db) fn end(mut self) {
        self.tables.clear();
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.tables.is_empty() {
            lock(&self.suspension.state).in_doubt.tables.append(&mut self.tables);
        }
    }
}
