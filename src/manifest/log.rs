//! The manifest file: reads it, appends edits, and starts a new one.
//!
//! A new manifest starts with a snapshot of the whole state. It is written when a store is opened for writing, and when
//! the manifest is much longer than a snapshot. It is durable before `CURRENT` names it, so a crash at any time is
//! harmless.
//!
//! Each edit is durable before the next is written, so damage before an intact edit is corruption. Damage at the end is
//! an unacknowledged edit, unless a log has a promise of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::current::Current;
use super::edit::{EditItem, EditItems, LogEnd, VersionEdit};
use super::state::ManifestState;
use crate::checksum::FileId;
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::fs::{Fs, ReadFile};
use crate::wal::{EditMark, Ending, Expected, FramedReader, FramedWriter, RecordKind};

const ROTATE_BYTES_MIN: u64 = 4 << 20;

#[derive(Debug, Clone)]
pub(crate) struct ReadManifest {
    pub(crate) path: PathBuf,
    pub(crate) state: ManifestState,
    pub(crate) marks: Vec<EditMark>,
    pub(crate) ending: Ending,
    pub(crate) len: u64,
    /// The last edit only ends logs. It is not the first edit, so all other edits and `CURRENT` are durable.
    pub(crate) ends_with_closed_log: bool,
    /// Files of the previous state. The last edit may not be durable, so they are kept.
    pub(crate) let_go: Vec<FileName>,
}

pub(crate) fn read(fs: &dyn Fs, dir: &Path, current: &Current) -> Result<ReadManifest> {
    let (manifest, damage) = read_prefix(fs, dir, current, None)?;
    damage.map_or(Ok(manifest), Err)
}

/// Reads a manifest, or its first `len` bytes, up to the first error, which is also returned. Fails if the header is
/// not readable. After an error, the last edit may be partly applied.
pub(crate) fn read_prefix(
    fs: &dyn Fs,
    dir: &Path,
    current: &Current,
    len: Option<u64>,
) -> Result<(ReadManifest, Option<Error>)> {
    let path = FileName::Manifest(current.manifest).path(dir);
    let file = fs.open(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::corruption(&path, 0, "manifest", "CURRENT names it, but it is missing")
        }
        _ => Error::io("open", &path, error),
    })?;
    let mut manifest = ReadManifest::empty(path);
    let damage = manifest.read_edits(&*file, current, len)?;
    Ok((manifest, damage))
}

impl ReadManifest {
    pub(crate) fn read_edits(
        &mut self,
        file: &dyn ReadFile,
        current: &Current,
        len: Option<u64>,
    ) -> Result<Option<Error>> {
        let expected = Expected {
            kind: FileKind::Manifest,
            store_id: Some(current.store_id),
            file_id: Some(current.manifest_id),
        };
        let path = self.path.clone();
        let mut reader = FramedReader::open(file, &path, expected)?;
        if let Some(len) = len {
            reader.end_at(len);
        }
        if !self.marks.is_empty() {
            reader.start_at(self.len);
        }
        let mut damage = loop {
            match self.read_edit(&mut reader) {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
        };
        if self.marks.is_empty() {
            let missing =
                || Error::corruption(&path, reader.position(), "manifest", "its first edit is missing");
            damage.get_or_insert_with(missing);
        }
        self.ending = reader.ending().unwrap_or(Ending::Complete);
        self.len = reader.position();
        Ok(damage)
    }

    fn read_edit(&mut self, reader: &mut FramedReader<'_>) -> Result<bool> {
        let Some(record) = reader.next_record()? else { return Ok(false) };
        let wrong = |error| record.error(error, &self.path);
        let (items, mark) = EditItems::open(record.bytes, self.marks.last().copied()).map_err(wrong)?;
        let (mut ends_logs, mut let_go) = (true, Vec::new());
        for item in items {
            let item = item.map_err(wrong)?;
            ends_logs &= matches!(
                item,
                EditItem::NextFile(_) | EditItem::LogEnded { end: LogEnd { is_cut: false, .. }, .. }
            );
            let_go.extend(self.state.let_go_by(&item));
            let applied = self.state.apply_item(&item);
            applied.map_err(|detail| Error::corruption(&self.path, record.offset, "edit", detail))?;
        }
        self.state.mark = mark;
        self.marks.push(mark);
        (self.ends_with_closed_log, self.let_go) = (ends_logs && self.marks.len() > 1, let_go);
        Ok(true)
    }

    pub(crate) fn empty(path: PathBuf) -> Self {
        let (state, marks, ending) = (ManifestState::default(), Vec::new(), Ending::Complete);
        Self { path, state, marks, ending, len: 0, ends_with_closed_log: false, let_go: Vec::new() }
    }

    pub(crate) fn check_promise(&self, promised: EditMark, log: &Path) -> Result<()> {
        let behind = promised.count > self.state.mark.count;
        let first = self.marks[0].count;
        let at = promised.count.checked_sub(first).and_then(|index| self.marks.get(index as usize));
        if !behind && at.is_none_or(|mark| mark.hash == promised.hash) {
            return Ok(());
        }
        let offset = match self.ending {
            Ending::Torn { offset, .. } => offset,
            Ending::Complete => 0,
        };
        let detail = format!(
            "it ends with edit {}, but {} was written after edit {} (hash {:016x})",
            self.state.mark.count,
            log.display(),
            promised.count,
            promised.hash
        );
        Err(Error::corruption(&self.path, offset, "manifest", detail))
    }
}

#[derive(Debug)]
pub(crate) struct ManifestLog {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    current: Current,
    writer: FramedWriter,
    snapshot_bytes: u64,
    state: ManifestState,
    end: u64,
    /// The file may contain the last edit, and the state may contain a part of it.
    is_in_doubt: bool,
}

#[derive(Debug)]
pub(crate) struct NewManifest(ManifestLog);

impl NewManifest {
    pub(crate) fn state(&self) -> &ManifestState {
        self.0.state()
    }

    /// Makes `CURRENT` name the manifest.
    ///
    /// # Errors
    ///
    /// `CURRENT` may or may not name it.
    pub(crate) fn install(self) -> Result<ManifestLog> {
        Current::replace(&*self.0.fs, &self.0.dir)?;
        Ok(self.0)
    }
}

impl ManifestLog {
    #[cfg(test)]
    pub(crate) fn create(
        fs: Arc<dyn Fs>,
        dir: &Path,
        store_id: FileId,
        number: u64,
        state: ManifestState,
        random: &dyn Fn() -> Result<FileId>,
    ) -> Result<Self> {
        Self::prepare(fs, dir, store_id, number, state, random)?.install()
    }

    /// Writes a manifest with a snapshot of `state`, and the next `CURRENT`. `random` makes file ids.
    ///
    /// # Errors
    ///
    /// The state is unchanged; the file may exist.
    pub(crate) fn prepare(
        fs: Arc<dyn Fs>,
        dir: &Path,
        store_id: FileId,
        number: u64,
        mut state: ManifestState,
        random: &dyn Fn() -> Result<FileId>,
    ) -> Result<NewManifest> {
        state.next_file = state.next_file.max(number + 1);
        let path = FileName::Manifest(number).path(dir);
        let manifest_id = random()?;
        let mut writer =
            FramedWriter::create(&*fs, &path, FileHeader::new(FileKind::Manifest, store_id, manifest_id))?;
        let (record, mark) = state.snapshot().encode(state.mark);
        writer.append_record(RecordKind::Edit, &record)?;
        writer.sync()?;
        fs.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))?;
        let current = Current { store_id, manifest: number, manifest_id };
        current.prepare(&*fs, dir, random()?)?;
        state.mark = mark;
        let (snapshot_bytes, dir) = (writer.len(), dir.to_path_buf());
        let (end, is_in_doubt) = (snapshot_bytes, false);
        Ok(NewManifest(Self { fs, dir, current, writer, snapshot_bytes, state, end, is_in_doubt }))
    }

    /// The manifest of a closed store, which accepts no edits.
    pub(crate) fn ended(fs: Arc<dyn Fs>, dir: &Path, current: Current, read: &ReadManifest) -> Self {
        let header = FileHeader::new(FileKind::Manifest, current.store_id, current.manifest_id);
        let writer = FramedWriter::ended(&read.path, header, read.len);
        let (dir, state) = (dir.to_path_buf(), read.state.clone());
        Self { fs, dir, current, writer, snapshot_bytes: read.len, state, end: read.len, is_in_doubt: false }
    }

    pub(crate) fn number(&self) -> u64 {
        self.current.manifest
    }

    pub(crate) fn state(&self) -> &ManifestState {
        &self.state
    }

    pub(crate) fn known_state(&self) -> Result<ManifestState> {
        if !self.is_in_doubt {
            return Ok(self.state.clone());
        }
        let (manifest, damage) = read_prefix(&*self.fs, &self.dir, &self.current, Some(self.end))?;
        damage.map_or(Ok(manifest.state), Err)
    }

    /// Makes an edit durable.
    ///
    /// # Errors
    ///
    /// The file may contain the edit. Later appends are refused.
    pub(crate) fn append(&mut self, items: Vec<EditItem>) -> Result<EditMark> {
        let edit = VersionEdit::new(items);
        let (record, mark) = edit.encode(self.state.mark);
        self.is_in_doubt = true;
        self.state
            .apply(&edit)
            .map_err(|detail| Error::invalid(format!("an edit does not fit: {detail}")))?;
        self.writer.append_record(RecordKind::Edit, &record)?;
        self.writer.sync()?;
        self.state.mark = mark;
        (self.end, self.is_in_doubt) = (self.writer.len(), false);
        Ok(mark)
    }

    pub(crate) fn len(&self) -> u64 {
        self.writer.len()
    }

    pub(crate) fn is_long(&self) -> bool {
        self.writer.len() > ROTATE_BYTES_MIN.max(8 * self.snapshot_bytes)
    }

    #[cfg(test)]
    pub(crate) fn prepare_next(
        &self,
        number: u64,
        random: &dyn Fn() -> Result<FileId>,
    ) -> Result<NewManifest> {
        let (fs, store_id) = (Arc::clone(&self.fs), self.current.store_id);
        Self::prepare(fs, &self.dir, store_id, number, self.state.clone(), random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{CrashPolicy, MemFs};

    const DIR: &str = "/db";

    fn random() -> Result<FileId> {
        Ok([7; 16])
    }

    fn create(fs: &MemFs) -> ManifestLog {
        fs.create_dir(Path::new(DIR)).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        let fs: Arc<dyn Fs> = Arc::new(fs.clone());
        ManifestLog::create(fs, Path::new(DIR), [1; 16], 1, ManifestState::default(), &random).unwrap()
    }

    fn reread(fs: &MemFs) -> Result<ReadManifest> {
        let dir = Path::new(DIR);
        read(fs, dir, &Current::read(fs, dir)?.expect("a CURRENT"))
    }

    #[test]
    fn edits_are_durable_when_append_returns_and_survive_a_rotation() {
        let fs = MemFs::new();
        let mut manifest = create(&fs);
        for seqno in 1..20 {
            manifest.append(vec![EditItem::LastSeqno(seqno)]).unwrap();
            let found = reread(&fs.crash(CrashPolicy::DropUnsynced)).unwrap();
            assert_eq!((&found.state, found.ending), (manifest.state(), Ending::Complete));
            if seqno == 10 {
                manifest = manifest.prepare_next(5, &random).unwrap().install().unwrap();
            }
        }
        assert_eq!(manifest.number(), 5);
    }

    #[test]
    fn only_a_later_edit_that_says_nothing_but_how_logs_ended_shows_that_the_others_are_durable() {
        let fs = MemFs::new();
        let mut manifest = create(&fs);
        let created = EditItem::LogCreated { number: 5, file_id: [3; 16], predecessor: 0 };
        let closed = EditItem::LogEnded { number: 5, end: LogEnd { len: 64, last_seqno: 0, is_cut: false } };
        let mut ends = |items| {
            manifest.append(items).unwrap();
            reread(&fs).unwrap().ends_with_closed_log
        };
        assert!(!ends(vec![created]));
        assert!(ends(vec![EditItem::NextFile(9), closed.clone()]));
        assert!(!ends(vec![EditItem::NextFile(9), closed.clone(), EditItem::LastSeqno(7)]));
        assert!(ends(vec![closed]));
        manifest.prepare_next(6, &random).unwrap().install().unwrap();
        assert!(!reread(&fs).unwrap().ends_with_closed_log);
    }

    #[test]
    fn an_error_in_an_edit_has_the_offset_of_what_is_wrong_in_the_file() {
        let (fs, dir) = (MemFs::new(), Path::new(DIR));
        fs.create_dir(dir).unwrap();
        let path = FileName::Manifest(2).path(dir);
        let header = FileHeader::new(FileKind::Manifest, [1; 16], [7; 16]);
        let mut writer = FramedWriter::create(&fs, &path, header).unwrap();
        let items = vec![
            EditItem::Base(EditMark::default()),
            EditItem::KeyspaceCreated { id: 0, name: "default".into(), options: vec![2; 40_000].into() },
        ];
        let (record, mark) = VersionEdit::new(items).encode(EditMark::default());
        writer.append_record(RecordKind::Edit, &record).unwrap();
        let bad = [&[23, 0x81, 0x9c, 0x02, 0][..], &vec![2; 36_352], &[7, 2, 9, 0xee]].concat();
        let mark = mark.after(&bad);
        let record = [&mark.count.to_le_bytes()[..], &mark.hash.to_le_bytes(), &bad].concat();
        writer.append_record(RecordKind::Edit, &record).unwrap();
        writer.sync().unwrap();
        let current = Current { store_id: [1; 16], manifest: 2, manifest_id: [7; 16] };
        let Err(Error::Corruption { file, offset, what, .. }) = read(&fs, dir, &current) else {
            panic!("it is damaged")
        };
        assert_eq!((&file, what), (&path, "edit field"));
        assert_eq!(fs.files(&path)[0].1[offset as usize], 0xee);
    }

    #[test]
    fn a_manifest_that_lost_its_end_does_not_keep_a_promise() {
        let fs = MemFs::new();
        let mut manifest = create(&fs);
        let before = manifest.state().mark;
        let after = manifest.append(vec![EditItem::LastSeqno(9)]).unwrap();
        let whole = reread(&fs).unwrap();
        whole.check_promise(before, Path::new("log")).unwrap();
        whole.check_promise(after, Path::new("log")).unwrap();
        whole.check_promise(EditMark::default(), Path::new("log")).unwrap();
        let other = EditMark { hash: after.hash ^ 1, ..after };
        assert!(whole.check_promise(other, Path::new("log")).unwrap_err().is_corruption());

        let path = FileName::Manifest(1).path(Path::new(DIR));
        let bytes = fs.files(&path).remove(0).1;
        fs.overwrite(&path, bytes[..bytes.len() - 1].to_vec());
        let cut = reread(&fs).unwrap();
        assert!(matches!(cut.ending, Ending::Torn { .. }));
        cut.check_promise(before, Path::new("log")).unwrap();
        assert!(cut.check_promise(after, Path::new("log")).unwrap_err().is_corruption());
    }
}
