//! The state that all handles and threads of an open store share, and its failure switch.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;

use super::background::Background;
use super::log::Log;
use super::open::OpenReport;
use super::snapshot::SnapshotList;
use super::tree::Tree;
use super::write::CommitQueue;
use crate::batch::KeyspaceId;
use crate::checksum::FileId;
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::fs::{Fs, LockGuard};
use crate::key::SeqNo;
use crate::manifest::edit::EditMark;
use crate::manifest::log::ManifestLog;
use crate::obsolete_files::ObsoleteFiles;
use crate::options::Options;
use crate::table::TableContext;
use crate::wal::FramedWriter;

/// The keyspaces, by id.
pub(crate) type Trees = BTreeMap<KeyspaceId, Arc<Tree>>;

/// An open store.
pub(crate) struct Engine {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) store_id: FileId,
    pub(crate) hash_seed: u64,
    pub(crate) report: OpenReport,
    pub(crate) context: Arc<TableContext>,
    pub(crate) obsolete_files: Arc<ObsoleteFiles>,

    pub(crate) trees: ArcSwap<Trees>,
    /// Serialises creating and dropping keyspaces.
    pub(crate) changing_keyspaces: Mutex<KeyspaceId>,

    /// The newest sequence number that readers see.
    pub(crate) visible: AtomicU64,
    pub(crate) next_file: AtomicU64,
    pub(crate) snapshots: SnapshotList,

    pub(crate) commit: CommitQueue,
    /// `None` if read-only.
    pub(crate) log: Option<Log>,
    /// `None` if read-only.
    pub(crate) manifest: Mutex<Option<ManifestLog>>,
    /// How far the manifest has come, to be read without its lock.
    pub(crate) mark: Mutex<EditMark>,

    pub(crate) background: Background,
    pub(crate) counters: Counters,
    failure: OnceLock<Error>,
    closed: AtomicBool,
    lock: Mutex<Option<Box<dyn LockGuard>>>,
}

/// Sums over the life of a handle.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) trivial_moves: AtomicU64,
    pub(crate) flushed_bytes: AtomicU64,
    pub(crate) compacted_bytes: AtomicU64,
    pub(crate) rebuilt_filters: AtomicU64,
    pub(crate) rebuilt_filter_bytes: AtomicU64,
    pub(crate) failed_rebuilds: AtomicU64,
    pub(crate) logged_bytes: AtomicU64,
    pub(crate) delays: AtomicU64,
    pub(crate) delay_nanos: AtomicU64,
    pub(crate) longest_delay_nanos: AtomicU64,
}

/// What [`Engine::new`] needs; everything else starts at nothing.
pub(crate) struct Parts {
    pub(crate) options: Options,
    pub(crate) dir: PathBuf,
    pub(crate) store_id: FileId,
    pub(crate) hash_seed: u64,
    pub(crate) report: OpenReport,
    pub(crate) context: Arc<TableContext>,
    pub(crate) obsolete_files: Arc<ObsoleteFiles>,
    pub(crate) trees: Trees,
    pub(crate) next_keyspace: KeyspaceId,
    pub(crate) visible: SeqNo,
    pub(crate) next_file: u64,
    pub(crate) log: Option<Log>,
    pub(crate) manifest: Option<ManifestLog>,
    pub(crate) lock: Option<Box<dyn LockGuard>>,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Self {
        let mark = parts.manifest.as_ref().map(|manifest| manifest.state().mark).unwrap_or_default();
        Self {
            fs: Arc::clone(&parts.options.fs),
            dir: parts.dir,
            background: Background::new(parts.options.background_threads),
            options: parts.options,
            store_id: parts.store_id,
            hash_seed: parts.hash_seed,
            report: parts.report,
            context: parts.context,
            obsolete_files: parts.obsolete_files,
            trees: ArcSwap::from_pointee(parts.trees),
            changing_keyspaces: Mutex::new(parts.next_keyspace),
            visible: AtomicU64::new(parts.visible),
            next_file: AtomicU64::new(parts.next_file),
            snapshots: SnapshotList::default(),
            commit: CommitQueue::default(),
            log: parts.log,
            manifest: Mutex::new(parts.manifest),
            mark: Mutex::new(mark),
            counters: Counters::default(),
            failure: OnceLock::new(),
            closed: AtomicBool::new(false),
            lock: Mutex::new(parts.lock),
        }
    }

    /// The log. Writers have checked that the store is not read-only.
    pub(crate) fn log(&self) -> &Log {
        self.log.as_ref().expect("writers check that the store is writable")
    }

    pub(crate) fn lock_manifest(&self) -> MutexGuard<'_, Option<ManifestLog>> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn new_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::SeqCst)
    }

    /// Creates a log file, durable with its header and name.
    pub(crate) fn create_log(&self, number: u64) -> Result<(FramedWriter, FileId)> {
        create_log(&*self.fs, &self.dir, self.store_id, number)
    }

    /// Remembers the first failure that makes writing unsafe, and gives the error to return for this one.
    pub(crate) fn fail(&self, error: Error) -> Error {
        if matches!(error, Error::KeyspaceDropped { .. } | Error::Closed | Error::ReadOnly) {
            return error;
        }
        if self.failure.set(error.poison()).is_ok() {
            tracing::error!(dir = %self.dir.display(), %error, "writing is disabled");
            if let Some(log) = &self.log {
                log.fail(&error.poison());
            }
            self.background.notify();
        }
        error
    }

    pub(crate) fn check_not_failed(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The failure that disabled writing.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.log.is_none() {
            return Err(Error::ReadOnly);
        }
        self.check_open()?;
        self.check_not_failed()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn check_readable(&self, tree: &Tree) -> Result<()> {
        self.check_open()?;
        tree.check_alive()
    }

    /// Stops background work, ends the log and releases the lock. Later calls do nothing.
    pub(crate) fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.background.stop();
        let result = match (&self.log, self.failure.get()) {
            (None, _) => Ok(()),
            (Some(_), Some(error)) => Err(error.clone()),
            (Some(_), None) => self.close_log(),
        };
        self.remove_obsolete_files();
        *self.lock_manifest() = None;
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
        result
    }
}

/// Creates a log file, durable with its header and name.
pub(crate) fn create_log(
    fs: &dyn Fs,
    dir: &std::path::Path,
    store_id: FileId,
    number: u64,
) -> Result<(FramedWriter, FileId)> {
    let file_id = random_id()?;
    let path = FileName::Log(number).path(dir);
    let mut writer = FramedWriter::create(fs, &path, FileHeader::new(FileKind::Log, store_id, file_id))?;
    writer.sync()?;
    fs.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))?;
    Ok((writer, file_id))
}

/// Random bytes of the operating system.
pub(crate) fn random_id() -> Result<FileId> {
    let mut id = [0; 16];
    match getrandom::fill(&mut id) {
        Ok(()) => Ok(id),
        Err(error) => {
            let source = std::io::Error::other(error.to_string());
            Err(Error::io("read random bytes from", std::path::Path::new("the operating system"), source))
        }
    }
}

/// What the handles share: the last one to go closes the store.
pub(crate) struct Owner {
    engine: Arc<Engine>,
}

impl Owner {
    pub(crate) fn new(engine: Arc<Engine>) -> Arc<Self> {
        Arc::new(Self { engine })
    }
}

impl std::ops::Deref for Owner {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").field("dir", &self.engine.dir).finish_non_exhaustive()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Err(error) = self.engine.close() {
            tracing::error!(dir = %self.engine.dir.display(), %error, "closing failed");
        }
    }
}
