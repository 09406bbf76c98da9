//! The lifecycle of an open store.
//!
//! One word has a bit for each reason to refuse or delay writes. A writer checks it before it enters the commit
//! queue, and the leader checks it for the whole group.
//!
//! | bit | meaning | ends |
//! |---|---|---|
//! | read-only | the store has no log | never |
//! | closed | every call is refused | never |
//! | failed | a failure disabled writing ([`failure`](super::failure)) | never |
//! | suspended | an append failed; the end of the log is unknown (`generation/resume`) | with a new log and manifest |
//! | unchanged | the files are as the opening found them (`generation/begin`) | before the first change |
//! | short of space | the disk is full, and puts are refused (`generation/disk_space`) | when there is space |
//! | work failing | background work failed and is retried (`queues/retry`) | when it succeeds |

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::keyspace::change::{Change, TreeChange};
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::sync::lock;
use crate::version::TableHandle;

const READ_ONLY: u32 = 1;
const CLOSED: u32 = 1 << 1;
const FAILED: u32 = 1 << 2;
const SUSPENDED: u32 = 1 << 3;
const UNCHANGED: u32 = 1 << 4;
const SHORT_OF_SPACE: u32 = 1 << 5;
const WORK_FAILING: u32 = 1 << 6;

#[derive(Debug)]
pub(in crate::db) struct Flag {
    word: Arc<AtomicU32>,
    bit: u32,
}

impl Default for Flag {
    fn default() -> Self {
        Lifecycle::new().short_of_space()
    }
}

impl Flag {
    #[inline]
    pub(in crate::db) fn is_set(&self) -> bool {
        self.word.load(Ordering::Acquire) & self.bit != 0
    }

    pub(in crate::db) fn set(&self, is_set: bool) -> bool {
        let before = match is_set {
            true => self.word.fetch_or(self.bit, Ordering::AcqRel),
            false => self.word.fetch_and(!self.bit, Ordering::AcqRel),
        };
        before & self.bit != 0
    }
}

pub(in crate::db) struct Lifecycle {
    word: Arc<AtomicU32>,
    failure: OnceLock<Error>,
    pub(in crate::db) suspension: Mutex<Suspension>,
    pub(in crate::db) beginning: Mutex<()>,
}

#[derive(Default)]
pub(in crate::db) struct Suspension {
    cause: Option<Error>,
    pub(in crate::db) in_doubt: InDoubt,
}

/// Files of a manifest or edit that may or may not be in force.
#[derive(Default)]
pub(in crate::db) struct InDoubt {
    pub(in crate::db) files: Vec<FileName>,
    pub(in crate::db) tables: Vec<Arc<TableHandle>>,
}

impl Lifecycle {
    pub(in crate::db) fn new() -> Self {
        Self {
            word: Arc::new(AtomicU32::new(READ_ONLY)),
            failure: OnceLock::new(),
            suspension: Mutex::default(),
            beginning: Mutex::default(),
        }
    }

    fn flag(&self, bit: u32) -> Flag {
        Flag { word: Arc::clone(&self.word), bit }
    }

    pub(in crate::db) fn short_of_space(&self) -> Flag {
        self.flag(SHORT_OF_SPACE)
    }

    pub(in crate::db) fn work_failing(&self) -> Flag {
        self.flag(WORK_FAILING)
    }

    #[inline]
    fn has(&self, bits: u32) -> bool {
        self.word.load(Ordering::Acquire) & bits != 0
    }

    #[inline]
    pub(in crate::db) fn is_ready(&self) -> bool {
        !self.has(u32::MAX)
    }

    #[inline]
    pub(in crate::db) fn check_writable(&self) -> Result<()> {
        if self.has(READ_ONLY | CLOSED | FAILED) { self.refuse() } else { Ok(()) }
    }

    #[cold]
    fn refuse(&self) -> Result<()> {
        if self.has(READ_ONLY) {
            return Err(Error::ReadOnly);
        }
        self.check_open()?;
        self.check_not_failed()
    }

    #[inline]
    pub(in crate::db) fn check_open(&self) -> Result<()> {
        if self.has(CLOSED) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(in crate::db) fn check_not_failed(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(in crate::db) fn set_writable(&self) {
        self.flag(READ_ONLY).set(false);
    }

    pub(in crate::db) fn set_closed(&self) -> bool {
        !self.flag(CLOSED).set(true)
    }

    pub(in crate::db) fn set_failure(&self, error: Error) -> bool {
        let is_first = self.failure.set(error).is_ok();
        self.flag(FAILED).set(true);
        is_first
    }

    pub(in crate::db) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    pub(in crate::db) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    #[inline]
    pub(in crate::db) fn is_unchanged(&self) -> bool {
        self.has(UNCHANGED)
    }

    pub(in crate::db) fn set_unchanged(&self, is_unchanged: bool) {
        self.flag(UNCHANGED).set(is_unchanged);
    }

    #[inline]
    pub(in crate::db) fn is_suspended(&self) -> bool {
        self.has(SUSPENDED)
    }

    pub(in crate::db) fn suspended_by(&self) -> Option<Error> {
        if self.is_suspended() { lock(&self.suspension).cause.clone() } else { None }
    }

    pub(in crate::db) fn suspend(&self, suspension: &mut Suspension, cause: Error) {
        suspension.cause = Some(cause);
        self.flag(SUSPENDED).set(true);
    }

    pub(in crate::db) fn end_suspension(&self) {
        let mut suspension = lock(&self.suspension);
        suspension.cause = None;
        self.flag(SUSPENDED).set(false);
    }

    /// Call before the append; end when the change is visible.
    pub(in crate::db) fn doubt(&self, change: &Change) -> Doubt<'_> {
        let tables = match change {
            Change::Trees(changes) => changes.iter().flat_map(TreeChange::new_tables).collect(),
            Change::Filters(change) => vec![Arc::clone(&change.new)],
            Change::None | Change::End | Change::Options(..) | Change::Horizons(_) | Change::Drop(_) => {
                Vec::new()
            }
        };
        Doubt { lifecycle: self, tables }
    }

    pub(in crate::db) fn keep_file(&self, name: FileName) {
        lock(&self.suspension).in_doubt.files.push(name);
    }

    pub(in crate::db) fn keep_files(&self, changes: &[TreeChange], names: Vec<FileName>) {
        let in_doubt = &mut lock(&self.suspension).in_doubt;
        for change in changes {
            in_doubt.tables.extend(change.new_tables());
            change.set_added_obsolete();
        }
        in_doubt.files.extend(names);
    }
}

/// Until [`Doubt::end`], the new tables of the change are kept, also after a panic.
pub(in crate::db) struct Doubt<'a> {
    lifecycle: &'a Lifecycle,
    tables: Vec<Arc<TableHandle>>,
}

impl Doubt<'_> {
    pub(in crate::db) fn end(mut self) {
        self.tables.clear();
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.tables.is_empty() {
            lock(&self.lifecycle.suspension).in_doubt.tables.append(&mut self.tables);
        }
    }
}
