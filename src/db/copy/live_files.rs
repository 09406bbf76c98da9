//! The files of a store as of one point in time, for backup programs.
//!
//! Cut to their stated lengths, the files form a store as after a `kill -9`. Tables, filters and ended logs are
//! immutable; manifest and active log are append-only; `CURRENT` is only replaced as a whole, and held open.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::source::Source;
use crate::checksum::FileId;
use crate::db::engine::Engine;
use crate::db::open::live_view::LiveView;
use crate::db::open::recover::open_log;
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES};
use crate::filename::FileName;
use crate::fs::{FrozenFile, Fs, ReadFile};
use crate::key::SeqNo;
use crate::manifest::current::{self, Current};
use crate::manifest::state::{LogState, TablePlace};
use crate::wal::{Ending, Expected, FramedReader};

/// A file of a store as of one point in time; see [`Db::live_files`](crate::Db::live_files).
///
/// Two files have equal bytes if kind, name, id, checksum and length are equal, also across checkpoints. Only the
/// file headers of filters may differ.
#[derive(Debug, Clone)]
pub struct LiveFile {
    name: FileName,
    kind: FileKind,
    len: u64,
    file_id: FileId,
    checksum: u32,
    protected: Arc<Protected>,
}

struct Protected {
    source: Source,
    current: Arc<dyn ReadFile>,
    _view: Option<LiveView>,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for Protected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Protected").field("dir", &self.source.dir).finish_non_exhaustive()
    }
}

impl LiveFile {
    /// The name of the file, also in a copy.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.to_string()
    }

    /// The kind of file.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Length at that time, in bytes; the file itself may be longer.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no file of a store is empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The random id in the file's header; for a filter, the id of its table.
    #[must_use]
    pub fn file_id(&self) -> [u8; 16] {
        self.file_id
    }

    /// The checksum that the manifest has for a table's footer or a filter block's header; 0 for other files. It does
    /// not cover all bytes.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Opens the file for reading, limited to [`LiveFile::len`] bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Changed`] if the writer has removed a file that a read-only handle does not hold open.
    pub fn open(&self) -> Result<Arc<dyn ReadFile>> {
        let file = match self.kind {
            FileKind::Current => Arc::clone(&self.protected.current),
            _ => {
                let path = self.name.path(&self.protected.source.dir);
                self.protected.source.fs.open(&path).map_err(|error| Error::io("open", &path, error))?
            }
        };
        Ok(Arc::new(FrozenFile::first_bytes(file, self.len)))
    }
}

#[derive(Debug)]
pub(in crate::db) struct Listed {
    pub(in crate::db) files: Vec<LiveFile>,
    pub(in crate::db) store_id: FileId,
    pub(in crate::db) seqno: SeqNo,
}

pub(in crate::db) fn live_files(
    engine: &Engine,
    view: Option<&LiveView>,
    owner: Arc<dyn Any + Send + Sync>,
) -> Result<Listed> {
    engine.lifecycle.check_open()?;
    engine.files.check_process()?;
    // Read first: every write up to this number is in the logs.
    let seqno = engine.sequence.visible();
    let (source, current, manifest_len) = match view {
        Some(view) => {
            let source = Source::of_view(view, &engine.files.dir)?;
            let current = OpenCurrent::open(&*source.fs, &source.dir)?;
            let manifest = FileName::Manifest(current.content.manifest).path(&source.dir);
            let len = source.fs.open(&manifest).and_then(|file| file.len());
            let len = len.map_err(|error| Error::io("read", &manifest, error))?;
            (source, current, len)
        }
        None => {
            let (source, (current, len)) = Source::of_store_with(engine, |manifest| {
                let current = OpenCurrent::open(&*engine.files.fs, &engine.files.dir)?;
                if current.content.manifest != manifest.number() {
                    let detail = format!("it names manifest {}", current.content.manifest);
                    return Err(Error::corruption(&current.path, 64, "CURRENT", detail));
                }
                Ok((current, manifest.len()))
            })?;
            (source, current, len)
        }
    };
    let (store_id, content) = (source.store_id, current.content);
    let mut found = vec![
        (FileName::Current, FileKind::Current, current::BYTES as u64, current.file_id, 0),
        (FileName::Manifest(content.manifest), FileKind::Manifest, manifest_len, content.manifest_id, 0),
    ];
    for (&number, log) in source.state.logs.iter().chain(&source.unused_logs) {
        found.push((FileName::Log(number), FileKind::Log, source.log_len(number, log)?, log.file_id, 0));
    }
    let places = source.state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    places.for_each(|place| found.extend(table_files(place)));
    let protected = Protected { source, current: current.file, _view: view.cloned(), _owner: owner };
    let protected = Arc::new(protected);
    let file = |(name, kind, len, file_id, checksum)| {
        let protected = Arc::clone(&protected);
        LiveFile { name, kind, len, file_id, checksum, protected }
    };
    Ok(Listed { files: found.into_iter().map(file).collect(), store_id, seqno })
}

fn table_files(place: &TablePlace) -> Vec<(FileName, FileKind, u64, FileId, u32)> {
    let meta = &place.meta;
    let table = (FileName::Table(meta.number), FileKind::Table, meta.len, meta.file_id, meta.footer_checksum);
    let filters = meta.filters.iter().filter_map(|filter| {
        let (name, len) = (FileName::Filter(filter.file?), filter.offset + filter.len);
        Some((name, FileKind::Filter, len, meta.file_id, filter.header_checksum))
    });
    filters.chain([table]).collect()
}

struct OpenCurrent {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    file_id: FileId,
    content: Current,
}

impl OpenCurrent {
    fn open(fs: &dyn Fs, dir: &Path) -> Result<Self> {
        let path = FileName::Current.path(dir);
        let read_error = |error| Error::io("read", &path, error);
        let file = fs.open(&path).map_err(|error| Error::io("open", &path, error))?;
        let len = file.len().map_err(read_error)?.min(current::BYTES as u64 + 1);
        let bytes = file.read_to_vec(len as usize, 0).map_err(read_error)?;
        let decode_error = |error| crate::error::InFile::in_file(error, &path, 0);
        let content = Current::decode(&bytes).map_err(decode_error)?;
        let file_id = FileHeader::decode(&bytes).map_err(decode_error)?.file_id;
        Ok(Self { file, file_id, content, path })
    }
}

impl Source {
    fn log_len(&self, number: u64, log: &LogState) -> Result<u64> {
        if self.unused_logs.contains_key(&number) {
            return Ok(HEADER_BYTES as u64);
        }
        if let Some(end) = log.end {
            return Ok(end.len);
        }
        if let Some(end) = self.end.filter(|end| end.number == number) {
            return Ok(end.offset);
        }
        let path = FileName::Log(number).path(&self.dir);
        let file = open_log(&*self.fs, &path)?;
        let expected = Expected { kind: FileKind::Log, store_id: None, file_id: Some(log.file_id) };
        let mut reader = FramedReader::open(&*file, &path, expected)?;
        while reader.next_record()?.is_some() {}
        Ok(match reader.ending() {
            Some(Ending::Torn { offset, .. }) => offset,
            _ => reader.position(),
        })
    }
}
