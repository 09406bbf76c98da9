//! The first change of a store that was closed.
//!
//! Opening a store that was closed changes nothing and syncs nothing. The logs are replayed into memory and stay,
//! and there is no log to append to. Before the first batch is logged, before the first edit is published, and
//! before the first answer that a caller wants synced, [`Engine::begin_writing`] makes what an opening makes
//! otherwise: a new log and a new manifest that names it beside the logs that are still needed, `CURRENT`, the first
//! promise. It goes the way of `resume`, with the memtables kept.
//!
//! # Why nothing has to be synced before
//!
//! What an opening reads may be in the memory of the operating system only: the process before may have died between
//! an append and its sync, or the sync may have failed. So what it finds is durable only if something shows it. In
//! a store that was closed ([`Closed::of`]) it is the last edit of the manifest, which says nothing but how logs ended:
//!
//! - An edit is durable before the next is appended. So every edit but this one is durable, and with them the tables,
//!   filters and logs that they name.
//! - Edits are appended to a manifest only after `CURRENT` names it, durably. This one is not its first.
//! - The close record of a log is durable before an edit says that the log is closed, and every older log is durable to
//!   its end before that.
//! - This edit itself may not be durable. Without it the last log is one that ends with a close record, and is read the
//!   same.
//!
//! If the power fails before the store changes, the next opening finds what this one has found. Whatever of this is
//! not the case, the files are written anew before the opening returns. A copy of a store is durable once its maker
//! has synced it: an opening syncs neither its tables nor its logs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::engine::Engine;
use super::health::{catch, is_out_of_space};
use super::log::Log;
use super::recover::Recovered;
use super::resume::Memory;
use crate::error::Result;
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::manifest::current::Current;
use crate::manifest::edit::{EditItem, LogEnd};
use crate::manifest::log::ManifestLog;
use crate::manifest::state::{LogState, ManifestState};
use crate::sync::lock;
use crate::wal::FramedWriter;

/// With more logs than this an opening writes the files anew, so that they do not become more and more.
const LOGS_MAX: usize = 8;

/// Whether nothing has changed since the store was opened.
#[derive(Default)]
pub(super) struct Unchanged {
    is_unchanged: AtomicBool,
    /// One thread begins.
    beginning: Mutex<()>,
}

/// A store that was closed, and of which everything is durable.
pub(super) struct Closed<'r> {
    current: Current,
    last_log: &'r LogState,
    end: LogEnd,
}

impl<'r> Closed<'r> {
    /// `state` is what the store is to be opened with.
    pub(super) fn of(recovered: &'r Recovered, state: &ManifestState) -> Option<Self> {
        let manifest = &recovered.manifest;
        let current = recovered.current?;
        let last_log = manifest.state.logs.get(&recovered.last_log)?;
        let end = last_log.end.filter(|end| !end.is_cut)?;
        let is_whole = manifest.ends_with_closed_log && recovered.report.dropped.is_empty();
        let is_same = state.keyspaces == manifest.state.keyspaces;
        let is_closed = is_whole && is_same && manifest.state.logs.len() <= LOGS_MAX;
        is_closed.then_some(Self { current, last_log, end })
    }
}

impl Engine {
    /// Makes it a store of which nothing has changed.
    pub(super) fn set_unchanged(&mut self, closed: &Closed<'_>, recovered: &Recovered) {
        let &Closed { current, last_log, end } = closed;
        let number = recovered.last_log;
        let (fs, dir) = (Arc::clone(&self.files.fs), &self.files.dir);
        let manifest = ManifestLog::ended(fs, dir, current, &recovered.manifest);
        let older = manifest.state().logs.range(..number);
        let older = older.map(|(&number, log)| (number, log.end.map_or(0, |end| end.len))).collect();
        let header = FileHeader::new(FileKind::Log, current.store_id, last_log.file_id);
        let writer = FramedWriter::ended(&FileName::Log(number).path(dir), header, end.len);
        let end = EditItem::LogEnded { number, end: LogEnd { is_cut: false, ..end } };
        self.set_writable(Log::ended(number, writer, end, older), manifest);
        *self.unchanged.is_unchanged.get_mut() = true;
    }

    /// Whether nothing has changed since the store was opened.
    pub(super) fn is_unchanged(&self) -> bool {
        self.unchanged.is_unchanged.load(Ordering::Acquire)
    }

    /// Makes the new files of a store of which nothing has changed, on a full disk with the reserve's room. Not for
    /// who holds the lock of the manifest or of the log.
    ///
    /// # Errors
    ///
    /// Nothing has changed, and the next caller tries again, unless the failure ends or suspends writing.
    pub(super) fn begin_writing(&self) -> Result<()> {
        if !self.is_unchanged() {
            return Ok(());
        }
        let _one = lock(&self.unchanged.beginning);
        if !self.is_unchanged() {
            return Ok(());
        }
        self.health.check_open()?;
        self.health.check_not_failed()?;
        catch("beginning to write", || self.begin_once()).unwrap_or_else(|panic| Err(self.fail(panic)))
    }

    fn begin_once(&self) -> Result<()> {
        let begin = || {
            let moved = self.files.check_locked().and_then(|()| self.move_to_new_files(Memory::Kept));
            moved.map_err(|error| self.fail_if_final(error))
        };
        let activated = match begin() {
            Err(error) if is_out_of_space(&error) => {
                self.spend_reserve(&error);
                // What the attempt has left takes room.
                self.remove_obsolete_files();
                // The reserve tells of the full disk; where there is none the caller is told.
                if self.reserve.cause().is_none() {
                    return Err(error);
                }
                begin()?
            }
            begun => begun?,
        };
        self.unchanged.is_unchanged.store(false, Ordering::Release);
        activated.map_err(|error| self.suspend(error))?;
        self.remove_obsolete_files();
        Ok(())
    }

    /// Whether the store is to be closed as it was found. Nobody begins after that.
    pub(super) fn stays_unchanged(&self) -> bool {
        let _one = lock(&self.unchanged.beginning);
        self.is_unchanged()
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::db::recover::recover;
    use crate::fs::{MemFs, Op};
    use crate::options::Options;

    const DIR: &str = "/db";

    /// A store that was closed, and its manifest.
    fn closed() -> (MemFs, (PathBuf, Vec<u8>)) {
        let fs = MemFs::new();
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open(DIR).unwrap();
        db.put("k", "v").unwrap();
        db.close().unwrap();
        let is_manifest = |(path, _): &(PathBuf, _)| path.to_string_lossy().contains("MANIFEST");
        let manifest = fs.files(Path::new(DIR)).into_iter().find(is_manifest);
        (fs, manifest.expect("a manifest"))
    }

    /// Whether an opening makes no files; the store is whole in any case.
    fn opens_unchanged(fs: &MemFs) -> bool {
        let created = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&created);
        fs.observe(move |_, op| {
            counted.fetch_add(u64::from(matches!(op, Op::Create(_))), Ordering::SeqCst);
            Ok(())
        });
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open(DIR).unwrap();
        fs.stop_observing();
        assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"v"[..]));
        created.load(Ordering::SeqCst) == 0
    }

    #[test]
    fn a_closed_store_whose_manifest_ends_within_an_edit_is_written_anew() {
        let (fs, (manifest, mut bytes)) = closed();
        assert!(opens_unchanged(&fs));
        bytes.extend([0; 3]);
        fs.overwrite(&manifest, bytes);
        assert!(!opens_unchanged(&fs));
    }

    #[test]
    fn a_closed_store_whose_manifest_has_one_edit_is_written_anew() {
        let (fs, _) = closed();
        let recovered = recover(&fs, Path::new(DIR), 0).unwrap().unwrap();
        let current = recovered.current.unwrap();
        let manifest = ManifestLog::ended(Arc::new(fs.clone()), Path::new(DIR), current, &recovered.manifest);
        assert!(opens_unchanged(&fs));
        manifest.prepare_next(1000, &|| Ok([7; 16])).unwrap().install().unwrap();
        assert!(!opens_unchanged(&fs));
    }
}
