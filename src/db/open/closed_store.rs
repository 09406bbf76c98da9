//! Closed, fully durable stores, whose opening changes nothing.

use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::generation::new_generation::older_logs;
use crate::db::open::recover::Recovered;
use crate::db::state::log::Log;
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::manifest::current::Current;
use crate::manifest::edit::{EditItem, LogEnd};
use crate::manifest::log::ManifestLog;
use crate::manifest::state::{LogState, ManifestState};
use crate::wal::FramedWriter;

/// If there are more logs, an opening rewrites the files.
const LOGS_MAX: usize = 8;

pub(in crate::db) struct Closed<'r> {
    current: Current,
    last_log: &'r LogState,
    end: LogEnd,
}

impl<'r> Closed<'r> {
    pub(in crate::db) fn of(recovered: &'r Recovered, state: &ManifestState) -> Option<Self> {
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
    pub(in crate::db) fn set_unchanged(&mut self, closed: &Closed<'_>, recovered: &Recovered) {
        let &Closed { current, last_log, end } = closed;
        let number = recovered.last_log;
        let (fs, dir) = (Arc::clone(&self.files.fs), &self.files.dir);
        let manifest = ManifestLog::ended(fs, dir, current, &recovered.manifest);
        self.disk_space.set_sizes(manifest.state().table_bytes, manifest.len());
        let older = older_logs(manifest.state(), number);
        let header = FileHeader::new(FileKind::Log, current.store_id, last_log.file_id);
        let writer = FramedWriter::ended(&FileName::Log(number).path(dir), header, end.len);
        let end = EditItem::LogEnded { number, end: LogEnd { is_cut: false, ..end } };
        self.set_writable(Log::ended(number, writer, end, older), Some(manifest));
        self.lifecycle.set_unchanged(true);
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::db::open::recover::recover;
    use crate::fs::{MemFs, Op};
    use crate::options::Options;

    const DIR: &str = "/db";

    /// A closed store and its manifest.
    fn closed() -> (MemFs, (PathBuf, Vec<u8>)) {
        let fs = MemFs::new();
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open(DIR).unwrap();
        db.put("k", "v").unwrap();
        db.close().unwrap();
        let is_manifest = |(path, _): &(PathBuf, _)| path.to_string_lossy().contains("MANIFEST");
        let manifest = fs.files(Path::new(DIR)).into_iter().find(is_manifest);
        (fs, manifest.expect("a manifest"))
    }

    /// Whether an opening creates no files. The store is intact in any case.
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
