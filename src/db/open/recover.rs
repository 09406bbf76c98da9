//! Recovery, the part that only reads: finds out what is on disk and checks that it is consistent. It changes
//! no file.
//!
//! 1. List the directory. Files with names that the store does not use are reported and left alone.
//! 2. Read `CURRENT`, and apply all edits of the manifest that it names. Without a `CURRENT` there is no
//!    store, unless there are tables, filters, or logs with records: then `CURRENT` was lost.
//! 3. Every table and log that the manifest names must exist. The newest logs may be unused: created, and
//!    nothing but a header. Every log before the last that was used must be intact and end with a close record,
//!    and so must that one if the manifest says that it was closed. A log that the manifest says was cut must be
//!    intact up to there, and the bytes behind do not count. Otherwise the last log that was used may have a
//!    torn tail after everything that was promised: the records before it are recovered, and the tail is
//!    reported.
//! 4. The promises in the logs (also in logs that the manifest does not name) must not name an edit that the
//!    manifest lacks. If one does, the manifest has lost its tail.
//! 5. Every batch of the logs is decoded. Entries that were flushed already, and entries of dropped
//!    keyspaces, are skipped.
//!
//! When all of that is valid, the batches go to [`replay_to_memtables`](super::replay_to_memtables). So the whole store is
//! checked before anything is written or removed. Batches are kept in memory for that ([`LogPart`]); if there are too
//! many, the logs are read a second time, part by part.

use std::collections::{BTreeMap, BTreeSet};
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
use crate::sorting::sort_by;
use crate::wal::reader::{Record, is_zeros_from};
use crate::wal::{
    Boundary, Content, ContentReader, EditMark, Ending, Expected, FramedReader, RecordKind, decode_close,
    decode_promise,
};
use crate::{DroppedTail, IgnoredFile, OpenReport};

/// How far the number of a file that the manifest does not name can be above the manifest's next number.
const NUMBER_GAP_MAX: u64 = 1 << 32;

/// What recovery found in a directory.
pub(in crate::db) struct Recovered {
    pub(in crate::db) store_id: FileId,
    /// With the bucket boundaries of the logs.
    pub(in crate::db) manifest: ReadManifest,
    /// What `CURRENT` says; `None` if the store is new.
    pub(in crate::db) current: Option<Current>,
    /// Bytes of the batches in the logs that hold entries which are not in tables.
    pub(in crate::db) log_bytes: u64,
    /// Those batches, unless they are too many.
    pub(in crate::db) kept: Option<LogPart>,
    /// The newest log that was used; 0 if there is none.
    pub(super) last_log: u64,
    /// How much of it was durable when it was written.
    pub(in crate::db) durable: u64,
    pub(in crate::db) last_seqno: SeqNo,
    pub(in crate::db) report: OpenReport,
    /// The largest number of a file of this store.
    pub(super) largest_number: u64,
    /// Files of this store that the manifest does not name. They can be removed.
    pub(in crate::db) strays: Vec<FileName>,
    /// Numbers of files that are named like files of the store but belong to others. They are kept, and no
    /// new file gets such a number.
    pub(super) taken_numbers: BTreeSet<u64>,
}

/// The names in a directory: those that a store uses, and all others.
pub(in crate::db) struct Listing {
    pub(in crate::db) ours: Vec<FileName>,
    pub(in crate::db) ignored: Vec<IgnoredFile>,
}

/// Reads the store in `dir`; `None` if there is none. The batches of its logs are kept if they take no more than
/// `part_bytes`.
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
    report.ignored.extend(ignored_strays(&strays, &others));
    // A stray's number is taken from its name, and a user can give any name to a copy. No crash of ours
    // leaves a gap as large as this limit.
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

/// Whether a file with a name that a store uses was written by a store: by one with these ids, if they are given.
/// A file that a crash interrupted right after its creation counts too: empty, zeros, or with part of a
/// header.
pub(super) fn is_ours(fs: &dyn Fs, path: &Path, store_ids: Option<&StoreIds>) -> bool {
    let mut head = [0; HEADER_BYTES];
    let read = fs.open(path).and_then(|file| {
        let len = file.len()?.min(HEADER_BYTES as u64) as usize;
        file.read_at(&mut head[..len], 0).map(|()| len)
    });
    // A file that cannot be read is left alone.
    let Ok(len) = read else { return false };
    match FileHeader::decode(&head[..len]) {
        Ok(header) => store_ids.is_none_or(|ids| ids.contains(&header.store_id)),
        Err(_) => {
            head[..len].iter().all(|&byte| byte == 0) || MAGIC.starts_with(&head[..len.min(MAGIC.len())])
        }
    }
}

/// Passes each batch of the logs that has entries not yet in tables to `take`, in order. Reads the logs a second time
/// if the batches were not kept, so many bytes at once.
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
    listing.ours.sort_unstable();
    sort_by(&mut listing.ignored, |a, b| a.name.cmp(&b.name));
    Ok(listing)
}

/// Without a `CURRENT`, checks that these files were never part of a store in use. An interrupted creation
/// leaves a manifest and an empty log, but never a table or a log with records.
pub(in crate::db) fn check_never_used(fs: &dyn Fs, dir: &Path, listing: &Listing) -> Result<()> {
    let lost = |evidence: FileName| {
        let detail = format!("it is missing, but {evidence} is there");
        Err(Error::corruption(&FileName::Current.path(dir), 0, "CURRENT", detail))
    };
    for &name in &listing.ours {
        match name {
            FileName::Table(_) | FileName::Filter(_) if is_ours(fs, &name.path(dir), None) => {
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
        // Not a regular file.
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

/// [`strays`], told apart.
pub(in crate::db) struct Strays {
    /// What this store has left over.
    pub(in crate::db) ours: Vec<FileName>,
    /// What only has such a name: files of other stores or programs.
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
        let (ids, none) = (&state.store_ids, BTreeSet::new());
        let is_ours = |name: &FileName| {
            // Only these are ever linked from another store.
            let is_linked = matches!(name, FileName::Table(_) | FileName::Filter(_) | FileName::Log(_));
            let ids = StoreIds::new(current.store_id, if is_linked { ids } else { &none });
            is_ours(fs, &name.path(dir), Some(&ids))
        };
        let (ours, others) = strays(listing, state, current.manifest).into_iter().partition(is_ours);
        Self { ours, others }
    }
}

/// What a report says of strays.
pub(in crate::db) fn ignored_strays(
    ours: &[FileName],
    others: &[FileName],
) -> impl Iterator<Item = IgnoredFile> {
    let ignored = |why| move |name: &FileName| IgnoredFile { name: name.to_string(), why };
    let ours = ours.iter().map(ignored("left over"));
    ours.chain(others.iter().map(ignored("named like a file of the store, but is none")))
}

/// Files with names of a store's files that the manifest does not name.
pub(in crate::db) fn strays(listing: &Listing, state: &ManifestState, manifest: u64) -> Vec<FileName> {
    let places = || state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let tables: BTreeSet<u64> = places().map(|place| place.meta.number).collect();
    let filters: BTreeSet<u64> =
        places().flat_map(|place| &place.meta.filters).filter_map(|filter| filter.file).collect();
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

/// What a replay is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) enum Purpose {
    /// To open the store, or to check the logs of one that nobody writes to.
    Check,
    /// To check the logs of a store that is open for writing. The manifest was read earlier, so promises may
    /// name later edits.
    CheckOpen,
    /// To check logs without a manifest. Their keyspaces and promised edits cannot be checked.
    CheckAlone,
}

/// What a replay passes on at once.
pub(in crate::db) enum Portion<'p> {
    Piece(Piece<'p>),
    /// One for which no part has room.
    Batch(Logged<'p>),
}

impl<'p> Portion<'p> {
    /// The batches, in order.
    pub(in crate::db) fn batches(&self) -> impl Iterator<Item = Logged<'p>> {
        let (piece, batch) = match self {
            Self::Piece(piece) => (Some(piece.batches()), None),
            Self::Batch(batch) => (None, Some(*batch)),
        };
        piece.into_iter().flatten().chain(batch)
    }
}

/// Called with all batches, in order.
pub(super) type Take<'a> = dyn FnMut(Portion<'_>) -> Result<()> + 'a;

/// Reads logs and checks their records against the manifest.
pub(in crate::db) struct Replay<'a> {
    purpose: Purpose,
    fs: &'a dyn Fs,
    dir: &'a Path,
    store_id: FileId,
    manifest: &'a ReadManifest,
    /// Called with the batches that have entries not yet in tables.
    take: Option<&'a mut Take<'a>>,
    /// Those that were read since it was called, or all if nothing is called; `None` if they are not wanted, or too many.
    part: Option<LogPart>,
    /// Bytes of those batches.
    log_bytes: u64,
    /// The log that is being read, if the manifest names it; and what of it was durable.
    last_log: u64,
    durable: u64,
    pub(in crate::db) last_seqno: SeqNo,
    contents: ContentReader,
    /// Bucket boundaries of keyspaces, in their order in the logs.
    boundaries: Vec<(KeyspaceId, Boundary)>,
    pub(in crate::db) report: OpenReport,
}

/// Opens a log that the manifest names.
pub(in crate::db) fn open_log(fs: &dyn Fs, path: &Path) -> Result<Arc<dyn ReadFile>> {
    fs.open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::corruption(path, 0, "log", "the manifest names it, but it is missing"),
        _ => Error::io("open", path, error),
    })
}

/// The number of the last of these logs that was used; of the first if none was. A log is named before it is
/// needed, and before anything is appended to it the one before is durable to its end. So a log that has only
/// its header says nothing about the one before. `len` is called with the index and number of a log.
pub(in crate::db) fn last_used(
    logs: &BTreeMap<u64, LogState>,
    mut len: impl FnMut(usize, u64) -> Result<u64>,
) -> Result<u64> {
    for (index, (&number, log)) in logs.iter().enumerate().rev() {
        if log.end.is_some() || len(index, number)? > HEADER_BYTES as u64 {
            return Ok(number);
        }
    }
    Ok(logs.keys().next().copied().unwrap_or(0))
}

/// How a log ended when it was read.
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

    /// Adds a torn tail to the report.
    pub(in crate::db) fn torn(&mut self, file: &Path, ending: Ending) {
        if let Ending::Torn { offset, dropped_bytes, damage, .. } = ending {
            let (file, reason) = (file.to_path_buf(), damage.to_string());
            self.report.dropped.push(DroppedTail { file, offset, bytes: dropped_bytes, reason });
        }
    }

    /// Reads all logs that the manifest names.
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

    /// Reads one log that the manifest names. `may_be_open`: none after it was used.
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
            let (file, reason) = (path.to_path_buf(), "behind the close record".to_owned());
            self.report.dropped.push(DroppedTail { file, offset: len, bytes: behind, reason });
        }
        Ok(())
    }

    /// Checks logs that are newer than all logs that the manifest names. If such a log has a promise, it was
    /// in use, and the manifest has lost the edit that created it.
    pub(in crate::db) fn unknown_logs(&mut self, listing: &Listing) -> Result<()> {
        let newest = self.manifest.state.logs.keys().next_back().copied().unwrap_or(0);
        for name in &listing.ours {
            let &FileName::Log(number) = name else { continue };
            if number <= newest {
                continue;
            }
            let path = name.path(self.dir);
            let file = match self.fs.open(&path) {
                // Not a regular file.
                Err(error) if error.kind() == ErrorKind::InvalidInput => continue,
                opened => opened.map_err(|error| Error::io("open", &path, error))?,
            };
            let expected = Expected { kind: FileKind::Log, store_id: Some(self.store_id), file_id: None };
            // A log without a valid header was never in use.
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

    /// Reads a log without a manifest, and checks it by itself.
    pub(in crate::db) fn log_alone(&mut self, file: &dyn ReadFile, path: &Path) -> Result<()> {
        let end = self.read(file, path, None)?;
        self.report.logs += 1;
        self.torn(path, end.ending);
        Ok(())
    }

    fn read(&mut self, file: &dyn ReadFile, path: &Path, log: Option<&LogState>) -> Result<ReadEnd> {
        let file_id = log.map(|log| log.file_id);
        let end = log.and_then(|log| log.end);
        // A log whose end is stated may be one of the store of which this is a copy.
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
                    // Numbers below a boundary are not assigned again, even if the group after it was lost.
                    let before = all.iter().map(|(_, boundary)| boundary.seqno.saturating_sub(1)).max();
                    self.last_seqno = self.last_seqno.max(before.unwrap_or(0));
                    self.boundaries.extend(all);
                }
                Content::Promise(mark) if is_own => self.promise(mark, path)?,
                // It names an edit of the other store.
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
        self.make_room(logged, batch.count)?;
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

    /// Empties the part if there is no room for another batch in it.
    fn make_room(&mut self, batch: Logged<'_>, entries: u32) -> Result<()> {
        let is_full = |part: &LogPart| !part.has_room(batch.bytes.len(), entries);
        if self.take.is_some() && self.part.as_ref().is_some_and(is_full) { self.hand_over() } else { Ok(()) }
    }

    /// Passes on what was read.
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
