//! A checkpoint: an independent store in a new directory, with all keyspaces as of one point in time.
//!
//! | step | durable before the next |
//! |---|---|
//! | 1 create and lock the directory `NAME.checkpoint-incomplete` next to `NAME` | |
//! | 2 choose the state and protect its files from removal ([`Source`]) | the log of the store up to this state |
//! | 3 link or copy tables, filters and closed logs | copies |
//! | 4 copy the batches of other logs into closed logs with the new store id ([`log_copy`](super::log_copy)) | these logs |
//! | 5 write a manifest with the whole state, and `CURRENT` | all files and their names |
//! | 6 rename the directory to `NAME` | the ancestor directories |
//!
//! Only step 2 takes a lock (the manifest's), and neither syncs nor links under it.
//!
//! # A consistent state
//!
//! Under the lock no edit is published, and the tables have only entries that were logged earlier. So the state
//! together with the log up to its end equals the store after a `kill -9`.
//!
//! # Promises
//!
//! A promise names an edit that was durable when the promise was written, so the copied state has every promised edit.
//! Later edits of the copy have the same numbers as later edits of the store, but other hashes. So the copy gets no log
//! with promises of the store's later edits.
//!
//! # Complete or absent
//!
//! A failure before step 6 removes everything. In the copied store, only the log is synced.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::destination::Destination;
use super::source::Source;
use crate::checksum::FileId;
use crate::db::engine::Engine;
use crate::db::open::live_view::LiveView;
use crate::db::state::files::random_id;
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, HEADER_BYTES};
use crate::filename::FileName;
use crate::manifest::log::ManifestLog;
use crate::manifest::state::LogState;

const COPY_BYTES: u64 = 1 << 20;

pub(in crate::db) fn checkpoint(engine: &Engine, view: Option<&LiveView>, dir: &Path) -> Result<()> {
    engine.lifecycle.check_open()?;
    engine.files.check_process()?;
    let fs = view.map_or_else(|| engine.files.locked().unlocked(), LiveView::unlocked);
    let files = Arc::clone(&engine.context.files);
    let destination = Destination::create(fs, dir, &engine.files.dir, move || files.close_one())?;
    let source = match view {
        Some(view) => Source::of_view(view, &engine.files.dir)?,
        None => Source::of_store(engine)?,
    };
    let store_id = random_id()?;
    let copied = Copying { source: &source, to: &destination, store_id, links_are_refused: false }.run();
    // Without a lock on the store, another opening may have removed files.
    source.check_in_place().and(copied)?;
    destination.finish()
}

struct Copying<'a> {
    source: &'a Source,
    to: &'a Destination,
    store_id: FileId,
    links_are_refused: bool,
}

impl Copying<'_> {
    fn run(mut self) -> Result<()> {
        let mut state = self.source.state.clone();
        state.store_ids.insert(self.source.store_id);
        for name in self.source.tables() {
            self.link(name)?;
        }
        let logs = std::mem::take(&mut state.logs);
        let (mut unclosed, mut last_seqno): (Option<PathBuf>, _) = (None, state.last_seqno);
        for (number, mut log) in logs {
            let name = FileName::Log(number);
            match log.end {
                Some(end) => {
                    self.link(name)?;
                    last_seqno = last_seqno.max(end.last_seqno);
                }
                None => {
                    let copied = self.source.copy_log(number, &log, self.to, (self.store_id, last_seqno))?;
                    if let Some(path) = unclosed.take_if(|_| copied.was_used) {
                        let detail = "a later log was used, but this one has no close record";
                        return Err(Error::corruption(&path, 0, "log", detail));
                    }
                    if !copied.was_closed {
                        unclosed = Some(name.path(&self.source.dir));
                    }
                    last_seqno = last_seqno.max(copied.last_seqno);
                    let Some((file_id, end)) = copied.log else { continue };
                    (log.file_id, log.end) = (file_id, Some(end));
                }
            }
            let predecessor = state.logs.keys().next_back().copied().unwrap_or(log.predecessor);
            state.logs.insert(number, LogState { predecessor, ..log });
        }
        state.last_seqno = last_seqno;
        let (fs, number) = (Arc::clone(self.to.fs()), state.next_file);
        ManifestLog::prepare(fs, self.to.path(), self.store_id, number, state, &random_id)?.install()?;
        Ok(())
    }

    fn link(&mut self, name: FileName) -> Result<()> {
        let (from, to) = (name.path(&self.source.dir), name.path(self.to.path()));
        if !self.links_are_refused {
            match self.to.fs().hard_link(&from, &to) {
                Ok(()) if !self.source.is_view() || self.is_named(name, &to)? => return Ok(()),
                Ok(()) => self.to.fs().remove(&to).map_err(|error| Error::io("remove", &to, error))?,
                Err(error) => match error.kind() {
                    ErrorKind::NotFound | ErrorKind::TooManyLinks => {}
                    ErrorKind::CrossesDevices
                    | ErrorKind::InvalidInput
                    | ErrorKind::PermissionDenied
                    | ErrorKind::Unsupported => self.links_are_refused = true,
                    _ => return Err(Error::io("link", &to, error)),
                },
            }
        }
        self.copy(&from, &to)?;
        match !self.source.is_view() || self.is_named(name, &to)? {
            true => Ok(()),
            false => Err(Error::changed(&from, "it is a file of another store")),
        }
    }

    fn is_named(&self, name: FileName, path: &Path) -> Result<bool> {
        let Some(file_id) = self.source.file_id(name) else { return Ok(true) };
        let io_error = |error| Error::io("read", path, error);
        let file = self.to.fs().open(path).map_err(io_error)?;
        let len = file.len().map_err(io_error)?.min(HEADER_BYTES as u64);
        let bytes = file.read_to_vec(len as usize, 0).map_err(io_error)?;
        Ok(FileHeader::decode(&bytes).map_or(true, |header| header.file_id == file_id))
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        let read_error = |error| Error::io("read", from, error);
        let file = self.source.fs.open(from).map_err(|error| Error::io("open", from, error))?;
        let len = file.len().map_err(read_error)?;
        let copy = self.to.fs().create(to).map_err(|error| Error::io("create", to, error))?;
        let mut at = 0;
        while at < len {
            let part = file.read_to_vec(COPY_BYTES.min(len - at) as usize, at).map_err(read_error)?;
            copy.append(&part).map_err(|error| Error::io("append to", to, error))?;
            at += part.len() as u64;
        }
        copy.sync().map_err(|error| Error::io("sync", to, error))
    }
}
