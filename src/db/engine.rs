//! The shared state of an open store, and its final failures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::batch::{KeyspaceId, OpenId};
use crate::db::latencies::Latencies;
use crate::db::queues::commit_queue::CommitQueue;
use crate::db::queues::retry::{Retry, Work};
use crate::db::queues::workers::Background;
use crate::db::state::completions::Completions;
use crate::db::state::disk_space::account::DiskSpace;
use crate::db::state::expiry::clock::Clock;
use crate::db::state::expiry::horizons::Horizons;
use crate::db::state::failure::{catch, ends_writing};
use crate::db::state::files::StoreFiles;
use crate::db::state::keyspace::keyspaces::Keyspaces;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::lifecycle::Lifecycle;
use crate::db::state::log::Log;
use crate::db::state::next_log::NextLog;
use crate::db::state::open_report::OpenReport;
use crate::db::state::snapshot_list::SnapshotList;
use crate::error::{Error, Result};
use crate::key::SeqNo;
use crate::manifest::log::ManifestLog;
use crate::number_map::NumberSet;
use crate::options::Options;
use crate::sync::lock;
use crate::table::TableContext;
use crate::wal::EditMark;

pub(in crate::db) struct Engine {
    pub(in crate::db) id: OpenId,
    pub(in crate::db) options: Options,
    pub(in crate::db) report: OpenReport,
    pub(in crate::db) files: StoreFiles,
    pub(in crate::db) context: Arc<TableContext>,
    pub(in crate::db) keyspaces: Keyspaces,
    pub(in crate::db) sequence: Sequence,
    pub(in crate::db) commit: CommitQueue,
    pub(in crate::db) log: Option<Log>,
    pub(in crate::db) next_log: NextLog,
    pub(in crate::db) manifest: Manifest,
    pub(in crate::db) background: Background,
    pub(in crate::db) retry: Retry,
    pub(in crate::db) disk_space: DiskSpace,
    pub(in crate::db) completions: Completions,
    pub(in crate::db) counters: Counters,
    pub(in crate::db) latencies: Latencies,
    pub(in crate::db) lifecycle: Lifecycle,
    pub(in crate::db) clock: Clock,
    /// Time of the next check of horizons, in milliseconds by the system clock.
    pub(in crate::db) expiry_look_at: AtomicU64,
    /// Time of the last check. If the clock has since been set back, a check is due, because `expiry_look_at` may be
    /// too late.
    pub(in crate::db) expiry_looked_at: AtomicU64,
    /// Keyspaces with tables that may have expired for all readers.
    pub(in crate::db) with_expired_tables: Mutex<NumberSet<KeyspaceId>>,
    pub(in crate::db) raising: Mutex<()>,
    /// Held while a horizon becomes visible. The leader holds it from the decision of conditional batches until they
    /// are visible.
    pub(in crate::db) horizon_gate: Mutex<()>,
}

pub(in crate::db) struct Sequence {
    visible: AtomicU64,
    pub(in crate::db) snapshots: SnapshotList,
}

impl Sequence {
    fn new(visible: SeqNo) -> Self {
        Self { visible: AtomicU64::new(visible), snapshots: SnapshotList::default() }
    }

    #[inline]
    pub(in crate::db) fn visible(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    pub(in crate::db) fn publish(&self, seqno: SeqNo) {
        self.visible.store(seqno, Ordering::Release);
    }

    pub(in crate::db) fn register_snapshot(&self) -> (SeqNo, Arc<Horizons>) {
        self.snapshots.register(&self.visible)
    }
}

pub(in crate::db) struct Manifest {
    log: Mutex<Option<ManifestLog>>,
    mark: Mutex<EditMark>,
}

impl Manifest {
    fn new(log: Option<ManifestLog>) -> Self {
        let mark = log.as_ref().map(|log| log.state().mark).unwrap_or_default();
        Self { log: Mutex::new(log), mark: Mutex::new(mark) }
    }

    pub(in crate::db) fn lock(&self) -> MutexGuard<'_, Option<ManifestLog>> {
        lock(&self.log)
    }

    pub(in crate::db) fn mark(&self) -> EditMark {
        *lock(&self.mark)
    }

    pub(in crate::db) fn set_mark(&self, mark: EditMark) {
        *lock(&self.mark) = mark;
    }
}

#[derive(Debug, Default)]
pub(in crate::db) struct Counters {
    pub(in crate::db) batches: AtomicU64,
    pub(in crate::db) groups: AtomicU64,
    pub(in crate::db) entries: AtomicU64,
    pub(in crate::db) flushes: AtomicU64,
    pub(in crate::db) compactions: AtomicU64,
    pub(in crate::db) trivial_moves: AtomicU64,
    /// Number of unreadable tables; 0 skips the search for them.
    pub(in crate::db) set_aside: AtomicU64,
    pub(in crate::db) flushed_bytes: AtomicU64,
    pub(in crate::db) compacted_bytes: AtomicU64,
    pub(in crate::db) rebuilt_filters: AtomicU64,
    pub(in crate::db) rebuilt_filter_bytes: AtomicU64,
    pub(in crate::db) failed_rebuilds: AtomicU64,
    pub(in crate::db) logged_bytes: AtomicU64,
    pub(in crate::db) transactions: AtomicU64,
    pub(in crate::db) conflicts: AtomicU64,
    pub(in crate::db) residency_changes: AtomicU64,
    pub(in crate::db) delays: AtomicU64,
    pub(in crate::db) delay_nanos: AtomicU64,
    pub(in crate::db) longest_delay_nanos: AtomicU64,
}

pub(in crate::db) struct EngineParts {
    pub(in crate::db) options: Options,
    pub(in crate::db) report: OpenReport,
    pub(in crate::db) files: StoreFiles,
    pub(in crate::db) context: Arc<TableContext>,
    pub(in crate::db) keyspaces: Keyspaces,
    pub(in crate::db) visible: SeqNo,
    pub(in crate::db) disk_space: DiskSpace,
}

impl Engine {
    /// Creates an engine without log and manifest, for a read-only store or for one that is being opened.
    pub(in crate::db) fn new(parts: EngineParts) -> Self {
        let (lifecycle, sequence) = (Lifecycle::new(), Sequence::new(parts.visible));
        // Includes keyspaces whose entries no longer expire.
        sequence.snapshots.raise(&parts.keyspaces.horizons(), || {});
        Self {
            id: OpenId::new(),
            background: Background::new(parts.options.background_threads, &parts.keyspaces.memtables.marks),
            latencies: Latencies::new(parts.options.latency_histograms, &parts.context.memory),
            expiry_look_at: AtomicU64::new(0),
            expiry_looked_at: AtomicU64::new(0),
            with_expired_tables: Mutex::default(),
            raising: Mutex::default(),
            horizon_gate: Mutex::default(),
            clock: Clock::new(parts.options.clock.as_ref()),
            options: parts.options,
            report: parts.report,
            files: parts.files,
            context: parts.context,
            keyspaces: parts.keyspaces,
            sequence,
            commit: CommitQueue::default(),
            log: None,
            next_log: NextLog::default(),
            manifest: Manifest::new(None),
            retry: Retry::new(lifecycle.work_failing()),
            disk_space: parts.disk_space.with_flag(lifecycle.short_of_space()),
            completions: Completions::default(),
            counters: Counters::default(),
            lifecycle,
        }
    }

    pub(in crate::db) fn set_writable(&mut self, log: Log, manifest: Option<ManifestLog>) {
        self.lifecycle.set_writable();
        self.log = Some(log);
        self.manifest = Manifest::new(manifest);
    }

    /// The caller has checked that the store is not read-only.
    pub(in crate::db) fn log(&self) -> &Log {
        self.log.as_ref().expect("writers check that the store is writable")
    }

    /// Entries with smaller numbers are invisible to all readers and later openings.
    pub(in crate::db) fn droppable_below(&self, tree: &Tree) -> SeqNo {
        self.sequence.snapshots.lowest_horizon(tree.id).min(tree.buckets().horizon())
    }

    pub(in crate::db) fn remove_obsolete_files(&self) -> bool {
        if !self.retry.is_due(Work::Remove) {
            return false;
        }
        let (any, failure) = self.files.remove_obsolete(&self.context);
        self.notice_lost_lock();
        if any {
            self.retry.note_room();
        }
        match failure {
            None => self.retry.done(Work::Remove),
            Some(error) => self.put_off(Work::Remove, error),
        }
        any
    }

    /// Disables writing if the removal of a file found the lock lost.
    pub(in crate::db) fn notice_lost_lock(&self) {
        if self.files.has_lost_lock() {
            self.fail(Error::LockLost { dir: self.files.dir.clone() });
        }
    }

    pub(in crate::db) fn may_try(&self, work: Work) -> bool {
        self.background.threads == 0 || self.retry.is_due(work)
    }

    pub(in crate::db) fn put_off(&self, work: Work, error: Error) {
        tracing::warn!(dir = %self.files.dir.display(), ?work, %error, "work failed and will be retried");
        self.retry.put_off(work, error);
        self.background.notify();
    }

    /// Disables writing if the failure is final; otherwise schedules a retry.
    pub(in crate::db) fn fail_or_put_off(&self, work: Work, error: Error) {
        let error = self.fail_if_final(error);
        if !self.lifecycle.has_failed() {
            self.put_off(work, error);
        }
    }

    pub(in crate::db) fn fail_if_final(&self, error: Error) -> Error {
        if ends_writing(&error, &self.files.dir) { self.fail(error) } else { error }
    }

    /// Disables writing at the first failure. Returns the error to report.
    pub(in crate::db) fn fail(&self, error: Error) -> Error {
        let is_refusal = matches!(error, Error::KeyspaceDropped { .. } | Error::Closed | Error::ReadOnly);
        // A forked child must not wait for a lock: its holder may not exist in the child.
        if is_refusal || matches!(error, Error::Forked { .. }) {
            return error;
        }
        if self.lifecycle.set_failure(error.poison()) {
            if let Some(log) = &self.log {
                log.fail(&error.poison());
            }
            self.completions.fail(&error);
            self.background.notify();
            // A panicking subscriber must not affect waiting threads.
            let _ = catch("telling that writing is disabled", || {
                tracing::error!(dir = %self.files.dir.display(), %error, "writing is disabled");
            });
        }
        error
    }

    #[inline]
    pub(in crate::db) fn check_writable(&self) -> Result<()> {
        self.files.check_not_forked()?;
        self.lifecycle.check_writable()
    }

    #[inline]
    pub(in crate::db) fn check_readable(&self, tree: &Tree) -> Result<()> {
        self.files.check_not_forked()?;
        self.lifecycle.check_open()?;
        tree.check_alive()
    }
}
