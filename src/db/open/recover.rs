//! Recovery, the read-only part: reads the files of a store and checks their consistency before anything changes.
//!
//! 1. List the directory. Foreign names are reported.
//! 2. Read `CURRENT` and its manifest. Without `CURRENT` there is no store. But if tables, filters or logs with
//!    records exist, `CURRENT` was lost.
//! 3. Check the named tables and logs: all must exist. The newest logs may be unused, with only a header. Logs before
//!    the last used one must be intact to their close record. So must the last used log if the manifest states that
//!    it was closed; a cut log must be intact up to its cut. Otherwise the last used log may have a torn tail after
//!    its last promise, which is reported.
//! 4. Compare the promises, also those in unnamed logs, with the manifest: a promised edit that is missing shows that
//!    the manifest has lost its tail.
//! 5. Decode every batch. Flushed entries and entries of dropped keyspaces are skipped.
//!
//! [`replay_to_memtables`](super::replay_to_memtables) takes the batches from memory ([`LogPart`]). If they are too
//! many, it reads the logs again.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::replay_buffer::{LogPart, Logged, Piece};
use crate::batch::{BatchReader, KeyspaceId};
use crate::checksum::FileId;
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES, MAGIC, StoreIds};
use crate::filename::FileName;
use crate::fs::{Fs, ReadFile};
use crate::key::SeqNo;
use crate::manifest::current::Current;
use crate::manifest::edit::LogEnd;
use crate::manifest::log::{self as manifest_log, ReadManifest};
use crate::manifest::state::{LogState, ManifestState};
use crate::number_map::{NumberMap, NumberSet};
use crate::sorting::sort_by;
use crate::wal::reader::{Record, is_zeros_from};
use crate::wal::{
    Boundary, Content, ContentReader, EditMark, Ending, Expected, FramedReader, RecordKind, decode_close,
    decode_promise,
};
use crate::{DroppedTail, IgnoredFile, OpenReport};

const NUMBER_GAP_MAX: u64 = 1 << 32;

pub(in crate::db) struct Recovered {
    pub(in crate::db) store_id: FileId,
    pub(in crate::db) manifest: ReadManifest,
    pub(in crate::db) current: Option<Current>,
    pub(in crate::db) log_bytes: u64,
    pub(in crate::db) kept: Option<LogPart>,
    pub(super) last_log: u64,
    pub(in crate::db) durable: u64,
    pub(in crate::db) last_seqno: SeqNo,
    pub(in crate::db) report: OpenReport,
    pub(super) largest_number: u64,
    pub(in crate::db) strays: Vec<FileName>,
    /// Numbers of foreign files that have a store's names. They are not assigned.
    pub(super) taken_numbers: NumberSet<u64>,
}

pub(in crate::db) struct Listing {
    pub(in crate::db) ours: Vec<FileName>,
    pub(in crate::db) ignored: Vec<IgnoredFile>,
}

pub(in crate::db) fn recover(fs: &dyn Fs, dir: &Path, part_bytes: usize) -> Result<Option<Recovered>> {
    let listing = list(fs, dir)?;
    let Some(current) = Current::read(fs, dir)? else {
        check_never_used(fs, dir, &listing)?;
        return Ok(None);
    };
    let mut manifest = manifest_log::read(fs, dir, &current)?;
    if let Some(error) = manifest.state.faults().next() {
        return Err(error.in_file(&manifest.path, 0));
    }
    check_tables(dir, &manifest, &listing)?;
    let mut replay = Replay::new(Purpose::Check, fs, dir, current.store_id, &manifest);
    replay.part = Some(LogPart::new(part_bytes));
    replay.torn(&manifest.path, manifest.ending);
    replay.logs()?;
    replay.unknown_logs(&listing)?;
    let Replay { last_seqno, log_bytes, part, last_log, durable, boundaries, mut report, .. } = replay;
    manifest.state.begin_buckets(boundaries);
    let Strays { ours: strays, others } = Strays::find(fs, dir, &listing, &manifest.state, &current);
    report.ignored = listing.ignored;
    report.ignored.extend(ignored_strays(fs, dir, &strays, &others));
    // A stray with a larger number is a user's file: a crash never leaves a gap this large.
    let next = manifest.state.next_file;
    let numbers = strays.iter().filter_map(|name| name.number());
    let largest_number = numbers.filter(|number| number.saturating_sub(next) < NUMBER_GAP_MAX).max();
    Ok(Some(Recovered {
        store_id: current.store_id,
        manifest,
        current: Some(current),
        log_bytes,
        kept: part,
        last_log,
        durable,
        last_seqno,
        report,
        largest_number: largest_number.unwrap_or(0),
        strays,
        taken_numbers: others.iter().filter_map(|name| name.number()).collect(),
    }))
}

/// Whether a store wrote the file, as far as its first bytes show.
pub(super) fn is_ours(fs: &dyn Fs, path: &Path) -> bool {
    head(fs, path).is_ok_and(|(_, head)| FileHeader::decode(&head).is_ok() || may_be_torn(&head))
}

/// Whether the file can be removed: a store (with one of these ids, if given) wrote it, or its creation was
/// interrupted. Then an incomplete header is followed by zeros at most.
pub(super) fn is_leftover(fs: &dyn Fs, path: &Path, store_ids: Option<&StoreIds>) -> bool {
    let Ok((file, head)) = head(fs, path) else { return false };
    match FileHeader::decode(&head) {
        Ok(header) => store_ids.is_none_or(|ids| ids.contains(&header.store_id)),
        Err(_) => may_be_torn(&head) && is_zero_after_header(&*file).unwrap_or(false),
    }
}

fn head(fs: &dyn Fs, path: &Path) -> std::io::Result<(Arc<dyn ReadFile>, Vec<u8>)> {
    let file = fs.open(path)?;
    let mut head = vec![0; file.len()?.min(HEADER_BYTES as u64) as usize];
    file.read_at(&mut head, 0)?;
    Ok((file, head))
}

fn may_be_torn(head: &[u8]) -> bool {
    head.iter().all(|&byte| byte == 0) || MAGIC.starts_with(&head[..head.len().min(MAGIC.len())])
}

fn is_zero_after_header(file: &dyn ReadFile) -> std::io::Result<bool> {
    let (len, mut at, mut part) = (file.len()?, HEADER_BYTES as u64, vec![0; 64 << 10]);
    while at < len {
        let count = (len - at).min(part.len() as u64) as usize;
        file.read_at(&mut part[..count], at)?;
        if part[..count].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += count as u64;
    }
    Ok(true)
}

/// Passes on the batches in order. Batches not kept in memory are read again, `part_bytes` at a time.
pub(in crate::db) fn replay(
    fs: &dyn Fs,
    dir: &Path,
    recovered: &Recovered,
    part_bytes: usize,
    take: &mut Take<'_>,
) -> Result<()> {
    if let Some(kept) = &recovered.kept {
        return take(Portion::Piece(kept.all()));
    }
    let mut replay = Replay::new(Purpose::Check, fs, dir, recovered.store_id, &recovered.manifest);
    replay.take = Some(take);
    replay.part = Some(LogPart::new(part_bytes));
    replay.logs()?;
    replay.hand_over()
}

pub(in crate::db) fn list(fs: &dyn Fs, dir: &Path) -> Result<Listing> {
    let names = fs.list(dir).map_err(|error| Error::io("list", dir, error))?;
    let mut listing = Listing { ours: Vec::new(), ignored: Vec::new() };
    for name in names {
        match name.to_str().and_then(FileName::parse) {
            Some(ours) => listing.ours.push(ours),
            None => {
                let name = name.to_string_lossy().into_owned();
                listing.ignored.push(IgnoredFile { name, why: "not a name of a store's file" });
            }
        }
    }
    sort_by(&mut listing.ours, Ord::cmp);
    sort_by(&mut listing.ignored, |a, b| a.name.cmp(&b.name));
    Ok(listing)
}

/// Fails if there is a table or a log with records, which an interrupted creation never leaves.
pub(in crate::db) fn check_never_used(fs: &dyn Fs, dir: &Path, listing: &Listing) -> Result<()> {
    let lost = |evidence: FileName| {
        let detail = format!("it is missing, but {evidence} is there");
        Err(Error::corruption(&FileName::Current.path(dir), 0, "CURRENT", detail))
    };
    for &name in &listing.ours {
        match name {
            FileName::Table(_) | FileName::Filter(_) if is_ours(fs, &name.path(dir)) => {
                return lost(name);
            }
            FileName::Log(_) if has_record(fs, &name.path(dir))? => return lost(name),
            _ => {}
        }
    }
    Ok(())
}

fn has_record(fs: &dyn Fs, path: &Path) -> Result<bool> {
    let expected = Expected { kind: FileKind::Log, store_id: None, file_id: None };
    let file = match fs.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(false),
        Err(error) => return Err(Error::io("open", path, error)),
    };
    match FramedReader::open(&*file, path, expected) {
        Ok(mut reader) => Ok(!matches!(reader.next_record(), Ok(None))),
        Err(error @ Error::Io { .. }) => Err(error),
        Err(_) => Ok(false),
    }
}

fn check_tables(dir: &Path, manifest: &ReadManifest, listing: &Listing) -> Result<()> {
    for number in manifest.state.keyspaces.values().flat_map(|keyspace| keyspace.tables.keys()) {
        if listing.ours.binary_search(&FileName::Table(*number)).is_err() {
            let path = FileName::Table(*number).path(dir);
            return Err(Error::corruption(&path, 0, "table", "the manifest names it, but it is missing"));
        }
    }
    Ok(())
}

pub(in crate::db) struct Strays {
    pub(in crate::db) ours: Vec<FileName>,
    pub(in crate::db) others: Vec<FileName>,
}

impl Strays {
    pub(in crate::db) fn find(
        fs: &dyn Fs,
        dir: &Path,
        listing: &Listing,
        state: &ManifestState,
        current: &Current,
    ) -> Self {
        let (ids, none) = (&state.store_ids, NumberSet::new());
        let is_leftover = |name: &FileName| {
            // Only these are linked from other stores.
            let is_linked = matches!(name, FileName::Table(_) | FileName::Filter(_) | FileName::Log(_));
            let ids = StoreIds::new(current.store_id, if is_linked { ids } else { &none });
            is_leftover(fs, &name.path(dir), Some(&ids))
        };
        let (ours, others) = strays(listing, state, current.manifest).into_iter().partition(is_leftover);
        Self { ours, others }
    }
}

pub(in crate::db) fn ignored_strays(
    fs: &dyn Fs,
    dir: &Path,
    ours: &[FileName],
    others: &[FileName],
) -> impl Iterator<Item = IgnoredFile> {
    let ignored = |name: &FileName, why| IgnoredFile { name: name.to_string(), why };
    let ours = ours.iter().map(move |name| ignored(name, "left over"));
    ours.chain(others.iter().map(move |name| ignored(name, why_kept(fs, &name.path(dir)))))
}

fn why_kept(fs: &dyn Fs, path: &Path) -> &'static str {
    match head(fs, path) {
        // A power loss may leave such a file, but another program may also have written it.
        Ok((_, head)) if FileHeader::decode(&head).is_err() && may_be_torn(&head) => {
            "its header is lost or damaged, so its owner is unknown"
        }
        _ => "named like a file of the store, but is none",
    }
}

pub(in crate::db) fn strays(listing: &Listing, state: &ManifestState, manifest: u64) -> Vec<FileName> {
    let places = || state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let tables = NumberSet::from_iter(places().map(|place| place.meta.number));
    let filters =
        NumberSet::from_iter(places().flat_map(|place| &place.meta.filters).filter_map(|filter| filter.file));
    let is_stray = |name: &&FileName| match **name {
        FileName::Lock | FileName::Current | FileName::Reserve => false,
        FileName::CurrentTemporary => true,
        FileName::Manifest(number) => number != manifest,
        FileName::Log(number) => !state.logs.contains_key(&number),
        FileName::Table(number) => !tables.contains(&number),
        FileName::Filter(number) => !filters.contains(&number),
    };
    listing.ours.iter().filter(is_stray).copied().collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) enum Purpose {
    Check,
    /// The store is open for writing: promises may name edits appended after the manifest was read.
    CheckOpen,
    /// There is no manifest, so keyspaces and promises cannot be checked.
    CheckAlone,
}

pub(in crate::db) enum Portion<'p> {
    Piece(Piece<'p>),
    Batch(Logged<'p>),
}

impl<'p> Portion<'p> {
    pub(in crate::db) fn batches(&self) -> impl Iterator<Item = Logged<'p>> {
        let (piece, batch) = match self {
            Self::Piece(piece) => (Some(piece.batches()), None),
            Self::Batch(batch) => (None, Some(*batch)),
        };
        piece.into_iter().flatten().chain(batch)
    }
}

pub(super) type Take<'a> = dyn FnMut(Portion<'_>) -> Result<()> + 'a;

pub(in crate::db) struct Replay<'a> {
    purpose: Purpose,
    fs: &'a dyn Fs,
    dir: &'a Path,
    store_id: FileId,
    manifest: &'a ReadManifest,
    take: Option<&'a mut Take<'a>>,
    /// The batches since the last call of `take`, or all batches without `take`; `None` if unwanted or too many.
    part: Option<LogPart>,
    log_bytes: u64,
    last_log: u64,
    durable: u64,
    pub(in crate::db) last_seqno: SeqNo,
    contents: ContentReader,
    boundaries: Vec<(KeyspaceId, Boundary)>,
    pub(in crate::db) report: OpenReport,
}

pub(in crate::db) fn open_log(fs: &dyn Fs, path: &Path) -> Result<Arc<dyn ReadFile>> {
    fs.open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::corruption(path, 0, "log", "the manifest names it, but it is missing"),
        _ => Error::io("open", path, error),
    })
}

/// Returns the last used log, or the first one if none was used. A log takes appends only after the previous one is
/// durable to its end, so only a log with a record proves this. `len` takes index and number.
pub(in crate::db) fn last_used(
    logs: &NumberMap<u64, LogState>,
    mut len: impl FnMut(usize, u64) -> Result<u64>,
) -> Result<u64> {
    for (index, (&number, log)) in (0..logs.len()).rev().zip(logs.iter().rev()) {
        if log.end.is_some() || len(index, number)? > HEADER_BYTES as u64 {
            return Ok(number);
        }
    }
    Ok(logs.keys().next().copied().unwrap_or(0))
}

struct ReadEnd {
    ending: Ending,
    position: u64,
    closed: Option<SeqNo>,
}

impl<'a> Replay<'a> {
    pub(in crate::db) fn new(
        purpose: Purpose,
        fs: &'a dyn Fs,
        dir: &'a Path,
        store_id: FileId,
        manifest: &'a ReadManifest,
    ) -> Self {
        Self {
            purpose,
            fs,
            dir,
            store_id,
            manifest,
            take: None,
            part: None,
            log_bytes: 0,
            last_log: 0,
            durable: 0,
            last_seqno: manifest.state.last_seqno,
            contents: ContentReader::default(),
            boundaries: Vec::new(),
            report: OpenReport::default(),
        }
    }

    pub(in crate::db) fn torn(&mut self, file: &Path, ending: Ending) {
        if let Ending::Torn { offset, dropped_bytes, damage, .. } = ending {
            let (file, reason) = (file.to_path_buf(), damage.to_string());
            self.report.dropped.push(DroppedTail { file, offset, bytes: dropped_bytes, reason });
        }
    }

    fn logs(&mut self) -> Result<()> {
        let manifest = self.manifest;
        let logs = &manifest.state.logs;
        let last_used = last_used(logs, |_, number| {
            let path = FileName::Log(number).path(self.dir);
            open_log(self.fs, &path)?.len().map_err(|error| Error::io("read", &path, error))
        })?;
        for (&number, log) in logs {
            let path = FileName::Log(number).path(self.dir);
            let file = open_log(self.fs, &path)?;
            let before = (self.last_log, self.durable);
            self.last_log = number;
            self.log(&*file, &path, log, number >= last_used)?;
            if log.end.is_some() {
                self.durable = u64::MAX;
            }
            if number > last_used {
                (self.last_log, self.durable) = before;
            }
        }
        Ok(())
    }

    /// `may_be_open`: no later log was used.
    pub(in crate::db) fn log(
        &mut self,
        file: &dyn ReadFile,
        path: &Path,
        log: &LogState,
        may_be_open: bool,
    ) -> Result<()> {
        let end = self.read(file, path, Some(log))?;
        self.report.logs += 1;
        let Some(stated) = log.end else {
            if !may_be_open && end.closed.is_none() {
                let detail = "a later log was used, but this one has no close record";
                return Err(Error::corruption(path, end.position, "log", detail));
            }
            self.torn(path, end.ending);
            return Ok(());
        };
        let LogEnd { len, last_seqno, is_cut } = stated;
        let expected = (len, Some(last_seqno).filter(|_| !is_cut), Ending::Complete);
        let at = match end.ending {
            Ending::Torn { damage_offset, .. } => damage_offset,
            Ending::Complete => end.position.min(len),
        };
        if (end.position, end.closed, end.ending) != expected {
            let (how, what) = if is_cut { ("cut", "cut log") } else { ("closed", "closed log") };
            let record = if end.closed.is_some() { "with" } else { "without" };
            let detail = format!(
                "it was {how} at length {len} with sequence number {last_seqno}, but ends at {} {record} a close record",
                end.position
            );
            return Err(Error::corruption(path, at, what, detail));
        }
        let last_batch = self.contents.last_batch();
        if is_cut && last_batch > last_seqno {
            let detail = format!("it was cut after sequence number {last_seqno}, but has {last_batch}");
            return Err(Error::corruption(path, at, "cut log", detail));
        }
        self.last_seqno = self.last_seqno.max(last_seqno);
        let behind = file.len().map_err(|error| Error::io("read", path, error))? - len;
        if behind > 0 && !is_cut && !is_zeros_from(file, path, len)? {
            let (file, reason) = (path.to_path_buf(), "data after the close record".to_owned());
            self.report.dropped.push(DroppedTail { file, offset: len, bytes: behind, reason });
        }
        Ok(())
    }

    /// A promise in a log newer than the manifest's logs shows that the manifest has lost the edit with that log.
    pub(in crate::db) fn unknown_logs(&mut self, listing: &Listing) -> Result<()> {
        let newest = self.manifest.state.logs.keys().next_back().copied().unwrap_or(0);
        for name in &listing.ours {
            let &FileName::Log(number) = name else { continue };
            if number <= newest {
                continue;
            }
            let path = name.path(self.dir);
            let file = match self.fs.open(&path) {
                Err(error) if error.kind() == ErrorKind::InvalidInput => continue,
                opened => opened.map_err(|error| Error::io("open", &path, error))?,
            };
            let expected = Expected { kind: FileKind::Log, store_id: Some(self.store_id), file_id: None };
            let Ok(mut reader) = FramedReader::open(&*file, &path, expected) else { continue };
            while let Ok(Some(record)) = reader.next_record() {
                let promised = match record.kind {
                    RecordKind::Promise => decode_promise(record.bytes),
                    RecordKind::Close => decode_close(record.bytes).map(|(_, mark)| mark),
                    RecordKind::Batch | RecordKind::Edit | RecordKind::Boundaries => continue,
                };
                if let Ok(mark) = promised {
                    self.manifest.check_promise(mark, &path)?;
                }
            }
        }
        Ok(())
    }

    pub(in crate::db) fn log_alone(&mut self, file: &dyn ReadFile, path: &Path) -> Result<()> {
        let end = self.read(file, path, None)?;
        self.report.logs += 1;
        self.torn(path, end.ending);
        Ok(())
    }

    fn read(&mut self, file: &dyn ReadFile, path: &Path, log: Option<&LogState>) -> Result<ReadEnd> {
        let file_id = log.map(|log| log.file_id);
        let end = log.and_then(|log| log.end);
        // An ended log may have the id of the store that it was copied from.
        let store_id = Some(self.store_id).filter(|_| log.is_some() && end.is_none());
        let mut reader = FramedReader::open(file, path, Expected { kind: FileKind::Log, store_id, file_id })?;
        let found = reader.store_id();
        let is_own = found == self.store_id;
        if !is_own && !self.manifest.state.store_ids.contains(&found) {
            return Err(Error::corruption(path, 16, "store id", "the file is of another store"));
        }
        if let Some(end) = end {
            reader.end_at(end.len);
        }
        if let Some(part) = &mut self.part {
            part.expect(file.len().map_err(|error| Error::io("read", path, error))?);
        }
        let mut closed = None;
        while let Some(record) = reader.next_record()? {
            let content = self.contents.decode(record.kind, record.bytes);
            match content.map_err(|error| record.error(error, path))? {
                Content::Batch(batch) => self.batch(batch, &record, path)?,
                Content::Boundaries(all) => {
                    // Numbers below a boundary are not reassigned, even if the group after it was lost.
                    let before = all.iter().map(|(_, boundary)| boundary.seqno.saturating_sub(1)).max();
                    self.last_seqno = self.last_seqno.max(before.unwrap_or(0));
                    self.boundaries.extend(all);
                }
                Content::Promise(mark) if is_own => self.promise(mark, path)?,
                Content::Promise(_) => {}
                Content::Close(seqno, mark) => {
                    if is_own {
                        self.promise(mark, path)?;
                    }
                    closed = Some(seqno);
                    self.last_seqno = self.last_seqno.max(seqno);
                }
            }
        }
        self.durable = reader.durable();
        let ending = reader.ending().unwrap_or(Ending::Complete);
        Ok(ReadEnd { ending, position: reader.position(), closed })
    }

    fn promise(&self, mark: EditMark, path: &Path) -> Result<()> {
        match self.purpose {
            Purpose::CheckAlone => Ok(()),
            Purpose::CheckOpen if mark.count > self.manifest.state.mark.count => Ok(()),
            _ => self.manifest.check_promise(mark, path),
        }
    }

    fn batch(&mut self, batch: BatchReader<'_>, record: &Record<'_>, path: &Path) -> Result<()> {
        let last = batch.last_seqno();
        let logged = Logged { bytes: record.bytes, log: self.last_log, end: record.end };
        self.hand_over_if_full(logged, batch.count)?;
        let mut part = self.part.as_mut().filter(|part| part.has_room(logged.bytes.len(), batch.count));
        if let Some(part) = &mut part {
            part.begin(logged);
        }
        let mut missing = 0;
        for entry in batch {
            let entry = entry.map_err(|error| record.error(error, path))?;
            let state = &self.manifest.state;
            if self.purpose == Purpose::CheckAlone {
                continue;
            }
            let was_created =
                entry.keyspace < state.next_keyspace || state.keyspaces.contains_key(&entry.keyspace);
            if !was_created && self.purpose == Purpose::Check {
                let detail = format!("keyspace {} was never created", entry.keyspace);
                return Err(Error::corruption(path, record.offset, "batch", detail));
            }
            if state.lacks(entry.keyspace, entry.seqno) {
                missing += 1;
                if let Some(part) = &mut part {
                    part.add(&entry);
                }
            }
        }
        self.report.entries += missing;
        self.report.batches += 1;
        self.last_seqno = self.last_seqno.max(last);
        if missing > 0 {
            self.log_bytes += record.bytes.len() as u64;
        }
        match (part, &mut self.take) {
            (Some(part), _) if missing == 0 => part.undo(),
            (None, Some(take)) if missing > 0 => take(Portion::Batch(logged))?,
            (None, None) if missing > 0 => self.part = None,
            _ => {}
        }
        Ok(())
    }

    fn hand_over_if_full(&mut self, batch: Logged<'_>, entries: u32) -> Result<()> {
        let is_full = |part: &LogPart| !part.has_room(batch.bytes.len(), entries);
        if self.take.is_some() && self.part.as_ref().is_some_and(is_full) { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<()> {
        if let (Some(part), Some(take)) = (&mut self.part, &mut self.take)
            && !part.is_empty()
        {
            take(Portion::Piece(part.all()))?;
            part.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::manifest::edit::tests::meta;
    use crate::manifest::edit::{EditItem, VersionEdit};
    use crate::table_meta::FilterRef;

    #[test]
    fn a_filter_beside_its_table_is_left_over_only_if_no_table_names_it() {
        let filter = |file| FilterRef { file, kind: 1, domain: 0, offset: 4096, len: 64, header_checksum: 0 };
        let mut table = meta(8, "a", "b", 5000);
        table.filters = vec![filter(Some(9)), filter(None)];
        let table = EditItem::TableAdded { keyspace: 0, level: 0, run: 8, meta: std::sync::Arc::new(table) };
        let keyspace = EditItem::KeyspaceCreated { id: 0, name: "default".into(), options: Bytes::new() };
        let mut state = ManifestState::default();
        state.apply(&VersionEdit::new(vec![keyspace, table])).unwrap();
        let ours = [FileName::Table(8), FileName::Filter(9), FileName::Filter(10)].into();
        let listing = Listing { ours, ignored: Vec::new() };
        assert_eq!(strays(&listing, &state, 1), [FileName::Filter(10)]);
    }
}
