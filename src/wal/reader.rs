//! The reader of a framed log: returns the records, and how the file ends.
//!
//! 1. The file header was synced before any reference to the file, so damage to it is corruption.
//! 2. Records are assembled from fragments, in a window of 128 KiB and a buffer.
//! 3. At the first damage, the rest of the file decides, see [`wal`](super). A log with a torn tail ends after its last
//!    whole record.
//!
//! Damage is a damaged or misplaced fragment, a record over the limit, or the end of the file within a record. Damaged
//! bytes are read again, because the damage may have happened in transfer. An unknown kind or flag is
//! [`Error::Unsupported`].
//!
//! In a log, trailing zeros are preallocated space. In a manifest, they are a torn tail: the file system may have
//! extended the file before a power loss.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::record::{
    BadFragment, FRAGMENT_HEADER_BYTES, Fragment, PAGE_BYTES, RecordKind, open_fragment, page_left,
    payload_offset,
};
use super::search::Search;
use super::sequence::{Refused, Sequence};
use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES};
use crate::fs::ReadFile;

/// A whole number of pages. A window of 1 MiB is not faster; with the buffer, it would exceed the smallest budget.
const WINDOW_BYTES: usize = 4 * PAGE_BYTES;

pub(crate) const READER_BYTES: usize = 2 * WINDOW_BYTES;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) kind: FileKind,
    pub(crate) store_id: Option<FileId>,
    pub(crate) file_id: Option<FileId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) bytes: &'a [u8],
}

impl Record<'_> {
    fn place(&self, at: u64) -> u64 {
        match self.bytes.len() as u64 {
            0 => payload_offset(self.offset, 0),
            len if at >= len => payload_offset(self.offset, len - 1) + 1,
            _ => payload_offset(self.offset, at),
        }
    }

    pub(crate) fn error(&self, error: DecodeError, path: &Path) -> Error {
        let offset = self.place(error.offset);
        DecodeError { offset, ..error }.in_file(path, 0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The log ends right after a record or the header, apart from preallocated zeros.
    Complete,
    /// The file ends within a record, after all promised bytes.
    Torn {
        offset: u64,
        dropped_bytes: u64,
        /// `offset`, or more if the record begins with intact fragments.
        damage_offset: u64,
        damage: BadFragment,
    },
}

#[derive(Debug)]
pub(crate) struct FramedReader<'f> {
    window: Window<'f>,
    header: FileHeader,
    position: u64,
    assembled: Vec<u8>,
    sequence: Sequence,
    durable: u64,
    outcome: Option<Result<Ending>>,
}

enum Stop {
    Damaged(u64, BadFragment),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<'f> FramedReader<'f> {
    /// `path` is only used in errors.
    ///
    /// # Errors
    ///
    /// [`Error::Corruption`] for a missing, damaged or unexpected header, [`Error::Unsupported`] for a newer one.
    pub(crate) fn open(file: &'f dyn ReadFile, path: &Path, expected: Expected) -> Result<Self> {
        let mut window = Window::new(file, path)?;
        let start = window.rest_of_page(0)?;
        let header = FileHeader::decode_kind(&start[..start.len().min(HEADER_BYTES)], expected.kind)
            .map_err(|error| error.in_file(path, 0))?;
        for (place, what, expected, found) in [
            (16, "store id", expected.store_id, header.store_id),
            (32, "file id", expected.file_id, header.file_id),
        ] {
            if let Some(expected) = expected.filter(|&expected| expected != found) {
                let detail = format!("expected {expected:02x?}, found {found:02x?}");
                return Err(Error::corruption(path, place, what, detail));
            }
        }
        let position = HEADER_BYTES as u64;
        let sequence = Sequence::new(expected.kind);
        Ok(Self { window, header, position, assembled: Vec::new(), sequence, durable: 0, outcome: None })
    }

    pub(crate) fn store_id(&self) -> FileId {
        self.header.store_id
    }

    pub(crate) fn end_at(&mut self, len: u64) {
        self.window.len = self.window.len.min(len);
    }

    /// Starts after a record. Call it before the first record is read.
    pub(crate) fn start_at(&mut self, position: u64) {
        self.position = position;
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// `None` until [`FramedReader::next_record`] has returned `None`.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.outcome.as_ref()?.as_ref().ok().copied()
    }

    /// Returns `None` at the end, which [`FramedReader::ending`] describes.
    ///
    /// # Errors
    ///
    /// [`Error::Corruption`] if promised bytes are damaged, [`Error::Unsupported`] if a record is newer, [`Error::Io`]
    /// if the file cannot be read. Every later call returns the same error.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        if let Some(outcome) = &self.outcome {
            return outcome.clone().map(|_| None);
        }
        let offset = self.position;
        if offset == self.window.len {
            self.outcome = Some(Ok(Ending::Complete));
            return Ok(None);
        }
        let outcome = match self.read_record() {
            Ok((kind, within)) => {
                let bytes = within.map_or(&self.assembled[..], |range| self.window.slice(range));
                return Ok(Some(Record { kind, offset, end: self.position, bytes }));
            }
            Err(Stop::Damaged(at, damage)) => self.judge(at, damage),
            Err(Stop::Failed(error)) => Err(error),
        };
        self.outcome = Some(outcome.clone());
        outcome.map(|_| None)
    }

    fn read_record(&mut self) -> Result<(RecordKind, Option<Range<u64>>), Stop> {
        self.assembled.clear();
        self.assembled.shrink_to(WINDOW_BYTES);
        let mut at = self.position;
        let found = loop {
            let fragment = self.read_fragment(at)?;
            let kind = self.check(&fragment)?;
            self.durable = self.durable.max(fragment.synced);
            let start = at + FRAGMENT_HEADER_BYTES as u64;
            let payload = start..start + fragment.payload_bytes as u64;
            at = fragment.end();
            if fragment.first && fragment.last {
                break (kind, Some(payload));
            }
            self.assembled.extend_from_slice(self.window.slice(payload));
            if fragment.last {
                break (kind, None);
            }
        };
        self.position = at;
        Ok(found)
    }

    fn read_fragment(&mut self, at: u64) -> Result<Fragment, Stop> {
        if let Ok(fragment) = open_fragment(&self.header.file_id, at, self.window.rest_of_page(at)?) {
            return Ok(fragment);
        }
        self.window.forget();
        open_fragment(&self.header.file_id, at, self.window.rest_of_page(at)?)
            .map_err(|damage| Stop::Damaged(at, damage))
    }

    fn check(&mut self, fragment: &Fragment) -> Result<RecordKind, Stop> {
        self.sequence.take(fragment).map_err(|refused| match refused {
            Refused::Damaged(damage) => Stop::Damaged(fragment.offset, damage),
            Refused::Newer { what, found, supported } => {
                let (file, found, supported) = (self.window.path.clone(), found.into(), supported.into());
                Stop::Failed(Error::Unsupported { file, what, found, supported })
            }
        })
    }

    /// Decides whether the damage at `at` is corruption or a torn tail, by the fragments after it.
    fn judge(&mut self, at: u64, damage: BadFragment) -> Result<Ending> {
        let mut zeros = at < self.window.len;
        let mut next = at;
        while next < self.window.len {
            let rest = self.window.rest_of_page(next)?;
            if rest.iter().all(|&byte| byte == 0) {
                next += rest.len() as u64;
                next = self.window.next_data(next)?;
                continue;
            }
            zeros = false;
            // No fragment at `at` can have `synced > at`.
            let mut search = Search::new(&self.header.file_id, next, rest);
            if let Some(witness) = search.first_from(next, at + 1) {
                let (from, synced) = (witness.offset, witness.synced);
                let detail =
                    format!("{damage}; the intact fragment at {from} says it was durable to {synced}");
                return Err(Error::corruption(&self.window.path, at, "log fragment", detail));
            }
            next += rest.len() as u64;
        }
        let offset = self.position;
        if zeros && at == offset && self.header.kind == FileKind::Log {
            return Ok(Ending::Complete);
        }
        let damage = if zeros { BadFragment::Zeros } else { damage };
        let dropped_bytes = self.window.len - offset;
        Ok(Ending::Torn { offset, dropped_bytes, damage_offset: at, damage })
    }
}

pub(crate) fn is_zeros_from(file: &dyn ReadFile, path: &Path, offset: u64) -> Result<bool> {
    let mut window = Window::new(file, path)?;
    let mut at = offset;
    while at < window.len {
        let rest = window.rest_of_page(at)?;
        if rest.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += rest.len() as u64;
        at = window.next_data(at)?;
    }
    Ok(true)
}

#[derive(Debug)]
struct Window<'f> {
    file: &'f dyn ReadFile,
    path: PathBuf,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'f> Window<'f> {
    fn new(file: &'f dyn ReadFile, path: &Path) -> Result<Self> {
        let len = file.len().map_err(|error| Error::io("read", path, error))?;
        Ok(Self { file, path: path.to_path_buf(), len, start: 0, bytes: Vec::new() })
    }

    fn rest_of_page(&mut self, offset: u64) -> Result<&[u8]> {
        let end = self.len.min(offset + page_left(offset) as u64);
        if offset >= end {
            return Ok(&[]);
        }
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            self.read(offset - offset % PAGE_BYTES as u64)?;
        }
        Ok(self.slice(offset..end))
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        let data = self.file.next_data(offset).map_err(|error| Error::io("read", &self.path, error))?;
        let page = data.map_or(self.len, |data| data - data % PAGE_BYTES as u64);
        Ok(page.clamp(offset.min(self.len), self.len))
    }

    fn read(&mut self, start: u64) -> Result<()> {
        self.forget();
        let bytes = (self.len - start).min(WINDOW_BYTES as u64) as usize;
        self.bytes.resize(bytes, 0);
        let done = self.file.read_at(&mut self.bytes, start);
        if done.is_err() {
            self.forget();
        }
        self.start = start;
        done.map_err(|error| Error::io("read", &self.path, error))
    }

    fn forget(&mut self) {
        self.bytes.clear();
    }

    fn slice(&self, range: Range<u64>) -> &[u8] {
        &self.bytes[(range.start - self.start) as usize..(range.end - self.start) as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::record::put_fragment;
    use super::super::search::{AreaStatus, PageArea, areas};
    use super::super::writer::FramedWriter;
    use super::*;
    use crate::fs::{Fs, MemFs, Op};

    const STORE: FileId = [3; 16];
    const ID: FileId = [4; 16];
    const PATH: &str = "/db/000001.wal";

    #[derive(Debug)]
    struct Bytes(Vec<u8>);

    impl ReadFile for Bytes {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
            Ok(())
        }
    }

    #[derive(Debug)]
    struct Counted {
        bytes: Bytes,
        reads: AtomicUsize,
    }

    impl ReadFile for Counted {
        fn len(&self) -> io::Result<u64> {
            self.bytes.len()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.bytes.read_at(buffer, offset)
        }
    }

    /// Reports zeros as holes.
    #[derive(Debug)]
    struct WithHoles(Bytes);

    impl ReadFile for WithHoles {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.0.read_at(buffer, offset)
        }

        fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
            let zeros = self.0.0[offset as usize..].iter().position(|&byte| byte != 0);
            Ok(zeros.map(|zeros| offset + zeros as u64))
        }
    }

    type Owned = (RecordKind, u64, Vec<u8>);

    fn expected(kind: FileKind) -> Expected {
        Expected { kind, store_id: Some(STORE), file_id: Some(ID) }
    }

    fn replay(file: &dyn ReadFile, kind: FileKind) -> (Vec<Owned>, Result<Ending>) {
        let mut records = Vec::new();
        let mut reader = match FramedReader::open(file, Path::new(PATH), expected(kind)) {
            Ok(reader) => reader,
            Err(error) => return (records, Err(error)),
        };
        loop {
            match reader.next_record() {
                Ok(Some(record)) => records.push((record.kind, record.offset, record.bytes.to_vec())),
                Ok(None) => return (records, Ok(reader.ending().unwrap())),
                Err(error) => {
                    assert_eq!(reader.next_record().unwrap_err().to_string(), error.to_string());
                    return (records, Err(error));
                }
            }
        }
    }

    fn writer(kind: FileKind) -> (MemFs, FramedWriter) {
        let fs = MemFs::new();
        fs.create_dir(Path::new("/db")).unwrap();
        let header = FileHeader::new(kind, STORE, ID);
        let log = FramedWriter::create(&fs, Path::new(PATH), header).unwrap();
        fs.sync_dir(Path::new("/db")).unwrap();
        (fs, log)
    }

    fn contents(fs: &MemFs) -> Vec<u8> {
        fs.files(Path::new("/db")).remove(0).1
    }

    /// A log and the progress of its writer.
    struct Model {
        bytes: Vec<u8>,
        records: Vec<Owned>,
        /// Durable lengths, each with the length of the file when it was reached.
        syncs: Vec<(usize, usize)>,
        fragments: Vec<Fragment>,
    }

    impl Model {
        fn start(&self, index: usize) -> u64 {
            self.records.get(index).map_or(self.bytes.len() as u64, |record| record.1)
        }

        fn prefix(&self, offset: u64) -> &[Owned] {
            let whole = (0..self.records.len()).take_while(|&index| self.start(index + 1) <= offset).count();
            &self.records[..whole]
        }

        fn promised(&self, damage: u64) -> bool {
            self.fragments.iter().any(|fragment| fragment.offset > damage && fragment.synced > damage)
        }

        fn fragment_at(&self, byte: usize) -> &Fragment {
            self.fragments.iter().rfind(|fragment| fragment.offset <= byte as u64).unwrap()
        }

        /// Replays `bytes`, in which the fragment at `damage` is the first damaged one.
        fn check_damaged(&self, bytes: Vec<u8>, damage: u64, promised: bool, note: &str) {
            let len = bytes.len() as u64;
            let (records, ending) = replay(&Bytes(bytes), FileKind::Log);
            assert_eq!(records, self.prefix(damage), "{note}");
            let end = self.start(records.len());
            match ending {
                Err(Error::Corruption { offset, .. }) if promised => assert_eq!(offset, damage, "{note}"),
                Ok(Ending::Torn { offset, dropped_bytes, damage_offset, .. }) if !promised => {
                    assert_eq!((offset, dropped_bytes, damage_offset), (end, len - end, damage), "{note}");
                }
                other => panic!("{note}: promised {promised}, found {other:?}"),
            }
        }
    }

    /// Appends records of these lengths in random groups. Syncs some groups, sometimes while another record is
    /// appended, and appends a promise after some syncs. A close record ends the log.
    fn simulate(lengths: &[usize], seed: u64) -> Model {
        let (fs, mut log) = writer(FileKind::Log);
        let mut dice = Dice(seed);
        let (mut records, mut syncs) = (Vec::new(), Vec::new());
        let mut append = |log: &mut FramedWriter, kind, bytes: Vec<u8>| {
            let offset = log.append_record(kind, &bytes).unwrap();
            records.push((kind, offset, bytes));
        };
        log.sync().unwrap();
        for &len in lengths {
            append(&mut log, RecordKind::Batch, dice.bytes(len));
            if dice.below(3) == 0 {
                continue;
            }
            log.flush_frames().unwrap();
            if dice.below(2) == 0 {
                let durable = log.flushed_len();
                log.file().sync().unwrap();
                if dice.below(3) == 0 {
                    append(&mut log, RecordKind::Batch, dice.bytes(len / 2));
                    log.flush_frames().unwrap();
                }
                log.set_synced(durable);
                syncs.push((durable as usize, log.len() as usize));
                if dice.below(2) == 0 {
                    append(&mut log, RecordKind::Promise, dice.bytes(16));
                    log.flush_frames().unwrap();
                }
            }
        }
        append(&mut log, RecordKind::Close, dice.bytes(24));
        log.flush_frames().unwrap();
        let bytes = contents(&fs);
        let fragments = fragments(&bytes);
        Model { bytes, records, syncs, fragments }
    }

    fn fragments(bytes: &[u8]) -> Vec<Fragment> {
        let mut found = Vec::new();
        for (page, rest) in bytes.chunks(PAGE_BYTES).enumerate() {
            let skip = if page == 0 { HEADER_BYTES } else { 0 };
            for PageArea { status, .. } in areas(&ID, (page * PAGE_BYTES + skip) as u64, &rest[skip..]) {
                let AreaStatus::Intact(fragment) = status else { panic!("{status:?}") };
                found.push(fragment);
            }
        }
        found
    }

    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) % n as u64) as usize
        }

        fn bytes(&mut self, len: usize) -> Vec<u8> {
            (0..len).map(|_| self.below(256) as u8).collect()
        }
    }

    /// Two logs: one within a page, one over several pages, with records that begin and end at many offsets.
    fn models() -> [Model; 2] {
        let small: Vec<usize> = vec![0, 1, 7, 8, 9, 40, 3, 0, 16, 25, 5, 30];
        let large = [&small[..], &[32_000, 300, 9, 70_000, 1, 20_000, 5_000, 8, 12, 12_000, 40]].concat();
        [simulate(&small, 2), simulate(&large, 11)]
    }

    #[test]
    fn records_of_all_sizes_around_every_boundary_come_back() {
        let room = PAGE_BYTES - FRAGMENT_HEADER_BYTES;
        let mut lengths = vec![0, 1, 7, 8, 9, 3 << 20, 1 << 20, (1 << 20) + 1];
        for boundary in [room - HEADER_BYTES, room, 2 * room, PAGE_BYTES, 3 * PAGE_BYTES] {
            lengths.extend(boundary - 40..boundary + 40);
        }
        let mut dice = Dice(1);
        let payload = dice.bytes(3 << 20);
        for lengths in [&lengths[..], &[], &[0], &[room - HEADER_BYTES], &[room - HEADER_BYTES - 16, 1]] {
            let (fs, mut log) = writer(FileKind::Manifest);
            let write = |&len: &usize| {
                let bytes = payload[len % 251..][..len.min(payload.len() - len % 251)].to_vec();
                (RecordKind::Edit, log.append_record(RecordKind::Edit, &bytes).unwrap(), bytes)
            };
            let records: Vec<Owned> = lengths.iter().map(write).collect();
            log.sync().unwrap();
            let (found, ending) = replay(&*fs.open(Path::new(PATH)).unwrap(), FileKind::Manifest);
            assert!(found == records, "records differ");
            assert_eq!(ending.unwrap(), Ending::Complete);
        }
    }

    #[test]
    fn a_log_is_read_in_windows_each_of_them_once_and_in_the_stated_memory() {
        let (fs, mut log) = writer(FileKind::Log);
        for n in 0..300 {
            log.append_record(RecordKind::Batch, &vec![7; if n % 100 == 50 { 100_000 } else { 900 }])
                .unwrap();
        }
        log.flush_frames().unwrap();
        let file = Counted { bytes: Bytes(contents(&fs)), reads: AtomicUsize::new(0) };
        let mut reader = FramedReader::open(&file, Path::new(PATH), expected(FileKind::Log)).unwrap();
        let mut memory = 0;
        while reader.next_record().unwrap().is_some() {
            memory = memory.max(reader.window.bytes.capacity() + reader.assembled.capacity());
        }
        assert_eq!(file.reads.into_inner(), file.bytes.0.len().div_ceil(4 * PAGE_BYTES));
        assert!(memory > 200_000 && memory <= READER_BYTES, "{memory}");
    }

    #[test]
    fn bytes_behind_the_end_that_the_caller_knows_are_not_read() {
        let Model { mut bytes, records, .. } = models().into_iter().next().unwrap();
        let len = bytes.len() as u64;
        bytes.extend(b"not part of the log");
        let file = Bytes(bytes);
        for (end, complete) in [(len, true), (len + 1, false), (u64::MAX, false)] {
            let mut reader = FramedReader::open(&file, Path::new(PATH), expected(FileKind::Log)).unwrap();
            reader.end_at(end);
            for _ in &records {
                reader.next_record().unwrap().unwrap();
            }
            assert!(reader.next_record().unwrap().is_none());
            assert_eq!(reader.ending() == Some(Ending::Complete), complete);
        }
    }

    #[test]
    fn an_error_in_a_record_is_at_its_byte_in_the_file_or_at_the_end_of_the_record() {
        let (fs, mut log) = writer(FileKind::Log);
        let long: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        log.append_record(RecordKind::Batch, &[]).unwrap();
        log.append_record(RecordKind::Batch, &long).unwrap();
        log.flush_frames().unwrap();
        let file = Bytes(contents(&fs));
        let mut reader = FramedReader::open(&file, Path::new(PATH), expected(FileKind::Log)).unwrap();
        let offset = |record: &Record<'_>, at: u64| match record
            .error(DecodeError::corrupt(at, "a field", "is wrong"), Path::new(PATH))
        {
            Error::Corruption { offset, .. } => offset,
            other => panic!("{other}"),
        };
        let empty = reader.next_record().unwrap().unwrap();
        assert_eq!([offset(&empty, 0), offset(&empty, 5)], [80, 80]);
        let record = reader.next_record().unwrap().unwrap();
        let end = (80 + 100_000 + 4 * FRAGMENT_HEADER_BYTES) as u64;
        for at in [0, 1, 40_000, 99_999] {
            let place = offset(&record, at);
            assert_eq!(file.0[place as usize], long[at as usize], "byte {at} is at {place}");
        }
        assert_eq!([99_999, 100_000, 100_010].map(|at| offset(&record, at)), [end - 1, end, end]);
    }

    #[test]
    fn a_promise_behind_a_hole_in_the_file_is_found() {
        for (lengths, is_at_page) in [(vec![100, 4 * PAGE_BYTES], true), (vec![5000; 25], false)] {
            let (fs, mut log) = writer(FileKind::Log);
            for len in lengths {
                log.append_record(RecordKind::Batch, &vec![7; len]).unwrap();
                log.sync().unwrap();
            }
            let bytes = contents(&fs);
            let fragments = fragments(&bytes);
            let witness = fragments.iter().find(|fragment| {
                fragment.offset > 3 * PAGE_BYTES as u64
                    && fragment.offset.is_multiple_of(PAGE_BYTES as u64) == is_at_page
            });
            let witness = witness.unwrap();
            let mut holey = bytes[..witness.end() as usize].to_vec();
            holey[HEADER_BYTES..witness.offset as usize].fill(0);
            let (records, ending) = replay(&WithHoles(Bytes(holey)), FileKind::Log);
            assert_eq!(records, []);
            assert!(matches!(ending, Err(Error::Corruption { offset: 64, .. })), "{ending:?}");
        }
    }

    #[test]
    fn the_simulated_logs_replay_whole_and_have_both_promised_and_unpromised_parts() {
        for model in models() {
            let (records, ending) = replay(&Bytes(model.bytes.clone()), FileKind::Log);
            assert_eq!(records, model.records);
            assert_eq!(ending.unwrap(), Ending::Complete);
            assert!(model.syncs.len() > 2);
            let promised = model.fragments.iter().filter(|fragment| model.promised(fragment.offset)).count();
            assert!(promised > 2 && model.fragments.len() - promised > 2, "{promised}");
        }
        assert!(models()[1].bytes.len() > 4 * PAGE_BYTES);
    }

    #[test]
    fn a_flipped_bit_is_corruption_exactly_if_a_later_fragment_promised_it() {
        for (large, model) in models().iter().enumerate() {
            for byte in HEADER_BYTES..model.bytes.len() {
                let fragment = model.fragment_at(byte);
                let inside = (byte as u64 - fragment.offset) as usize;
                let end = FRAGMENT_HEADER_BYTES + fragment.payload_bytes;
                let payload = (FRAGMENT_HEADER_BYTES + 4..end.saturating_sub(4)).contains(&inside);
                for bit in 0..8 {
                    // Far inside a long payload, one bit in 29 is enough.
                    if large == 1 && payload && (byte * 8 + bit) % 29 != 0 {
                        continue;
                    }
                    let mut bytes = model.bytes.clone();
                    bytes[byte] ^= 1 << bit;
                    let (damage, promised) = (fragment.offset, model.promised(fragment.offset));
                    model.check_damaged(bytes, damage, promised, &format!("bit {bit} of byte {byte}"));
                }
            }
        }
    }

    #[test]
    fn a_log_cut_anywhere_is_a_torn_tail_with_the_records_before_the_cut() {
        for (large, model) in models().iter().enumerate() {
            for len in HEADER_BYTES..model.bytes.len() {
                if large == 1 && len % 8 > 1 && len % 31 != 0 {
                    continue;
                }
                let bytes = model.bytes[..len].to_vec();
                if model.records.iter().any(|record| record.1 == len as u64) {
                    let (records, ending) = replay(&Bytes(bytes), FileKind::Log);
                    assert_eq!((&records[..], ending.unwrap()), (model.prefix(len as u64), Ending::Complete));
                    continue;
                }
                let damage = model.fragments.iter().find(|fragment| fragment.end() > len as u64).unwrap();
                model.check_damaged(bytes, damage.offset, false, &format!("length {len}"));
            }
        }
    }

    #[test]
    fn a_power_loss_is_never_corruption_and_keeps_every_synced_record() {
        let model = &models()[1];
        let mut dice = Dice(17);
        let mut torn = 0;
        for round in 0..3000 {
            // Power is lost between this sync and the next. Each later sector is kept, zero or garbage.
            let last = dice.below(model.syncs.len());
            let (durable, written) = model.syncs[last];
            let next = model.syncs.get(last + 1).map_or(model.bytes.len(), |sync| sync.0).max(written);
            let len = durable + dice.below(next - durable + 1);
            let mut bytes = model.bytes[..len].to_vec();
            for at in (durable / 512..len.div_ceil(512)).map(|sector| (sector * 512).max(durable)) {
                let end = len.min(at / 512 * 512 + 512);
                match dice.below(4) {
                    0 => bytes[at..end].fill(0),
                    1 => bytes[at..end].copy_from_slice(&dice.bytes(end - at)),
                    _ => {}
                }
            }
            let (records, ending) = replay(&Bytes(bytes), FileKind::Log);
            assert!(model.records.starts_with(&records), "round {round}");
            assert!(
                records.len() >= model.prefix(durable as u64).len(),
                "round {round}: synced records lost"
            );
            let ending = ending.unwrap_or_else(|error| panic!("round {round}: {error}"));
            torn += usize::from(ending != Ending::Complete);
        }
        assert!(torn > 500, "{torn}");
    }

    #[test]
    fn fragments_after_a_damaged_length_are_found_in_its_page_and_later_ones() {
        for (between, at) in [(24, 64 + 24), (40_000, 64 + 24), (200_000, 64)] {
            let (fs, mut log) = writer(FileKind::Log);
            for _ in 0..3 {
                log.append_record(RecordKind::Batch, b"short").unwrap();
            }
            log.sync().unwrap();
            let durable = log.synced();
            let mut bytes = contents(&fs);
            let mut put = |synced, mut payload: &[u8]| {
                let mut first = true;
                while first || !payload.is_empty() {
                    let offset = bytes.len() as u64;
                    put_fragment(&mut bytes, &ID, offset, (RecordKind::Batch, first), synced, &mut payload);
                    first = false;
                }
            };
            put(0, &vec![1; between]);
            put(durable, b"");
            for length in [0u16, 1, 6, 100, 3_000, 32_000, 32_687, 32_688, 32_752, u16::MAX] {
                let mut bad = bytes.clone();
                bad[at + 4..at + 6].copy_from_slice(&length.to_le_bytes());
                let (records, ending) = replay(&Bytes(bad), FileKind::Log);
                assert_eq!(records.len(), (at - 64) / 24);
                assert!(
                    matches!(ending, Err(Error::Corruption { offset, .. }) if offset == at as u64),
                    "length {length}: {ending:?}"
                );
            }
        }
    }

    /// A log of fragments within one page, each `(type byte, payload, synced)`, with correct checksums.
    fn crafted(kind: FileKind, fragments: &[(u8, &[u8], u64)]) -> Vec<u8> {
        let mut bytes = FileHeader::new(kind, STORE, ID).encode().to_vec();
        for &(fragment_type, payload, synced) in fragments {
            let offset = bytes.len();
            put_fragment(&mut bytes, &ID, offset as u64, (RecordKind::Batch, true), synced, &mut &*payload);
            bytes[offset + 6] = fragment_type;
            reseal(&mut bytes, offset);
        }
        bytes
    }

    fn reseal(bytes: &mut [u8], offset: usize) {
        let crc = crate::checksum::checksum32(&ID, offset as u64, &[&bytes[offset + 4..]]);
        bytes[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
    }

    #[test]
    fn an_intact_fragment_where_it_cannot_be_is_damage() {
        const FULL: u8 = 3;
        const LAST: u8 = 2;
        let batch = 1 << 2;
        let page = &vec![5; PAGE_BYTES - HEADER_BYTES - FRAGMENT_HEADER_BYTES][..];
        let second = PAGE_BYTES as u64;
        let log = FileKind::Log;
        for (kind, fragments, at, records, what) in [
            (log, &[(batch | LAST, &b"x"[..], 0)][..], 64, 0, "a fragment that continues no record"),
            (log, &[(batch, page, 0)], 64, 0, "a fragment that continues no record"),
            (
                log,
                &[(batch | 1, page, 0), (batch | FULL, b"x", 0)],
                second,
                0,
                "a record begins within another",
            ),
            (log, &[(batch | 1, page, 0), (8 | LAST, b"x", 0)], second, 0, "a record changes its kind"),
            (log, &[(12 | FULL, b"", 0), (batch | FULL, b"", 0)], 80, 1, "a record after the close record"),
            (log, &[(16 | FULL, b"", 0)], 64, 0, "a record that does not belong in this kind of file"),
            (
                FileKind::Manifest,
                &[(16 | FULL, b"", 0), (batch | FULL, b"", 0)],
                80,
                1,
                "a record that does not belong in this kind of file",
            ),
            (log, &[(batch | 1, page, 0)], second, 0, ""),
        ] {
            let bytes = crafted(kind, fragments);
            let (found, ending) = replay(&Bytes(bytes.clone()), kind);
            let Ok(Ending::Torn { damage_offset, damage, .. }) = ending else { panic!("{what}: {ending:?}") };
            assert_eq!((found.len(), damage_offset), (records, at));
            let expected =
                if what.is_empty() { BadFragment::Unfinished } else { BadFragment::Misplaced(what) };
            assert_eq!(damage, expected);

            let witness = [fragments, &[(batch | FULL, b"", at + 1)]].concat();
            let (_, ending) = replay(&Bytes(crafted(kind, &witness)), kind);
            if bytes.len() as u64 > at {
                assert!(matches!(ending, Err(Error::Corruption { offset, .. }) if offset == at), "{what}");
            }
        }
    }

    #[test]
    fn an_intact_fragment_of_a_newer_version_is_unsupported_wherever_it_stands() {
        for (place, value, what, known) in [
            (6, 6 << 2 | 3, "log record kind", 5),
            (6, 3, "log record kind", 5),
            (7, 1, "log fragment flags", 0),
        ] {
            let mut bytes = crafted(FileKind::Log, &[(7, b"one", 0), (7, b"two", 0)]);
            bytes[88 + place] = value;
            reseal(&mut bytes, 88);
            let (records, ending) = replay(&Bytes(bytes), FileKind::Log);
            assert_eq!(records.len(), 1);
            let Err(Error::Unsupported { what: found, supported, .. }) = ending else { panic!("{ending:?}") };
            assert_eq!((found, supported), (what, known));
        }
    }

    #[test]
    fn fragments_of_another_file_or_from_another_place_are_damage() {
        let bytes = crafted(FileKind::Log, &[(7, b"one", 0), (7, b"two", 0), (7, b"two", 0)]);
        let mut moved = bytes.clone();
        moved.copy_within(64..88, 88);
        let mut swapped = bytes.clone();
        swapped[88..].rotate_left(24);
        let mut other = FileHeader::new(FileKind::Log, STORE, [9; 16]).encode().to_vec();
        other.extend(&bytes[64..]);
        for (bytes, records) in [(moved, 1), (swapped, 1)] {
            let (found, ending) = replay(&Bytes(bytes), FileKind::Log);
            assert_eq!(found.len(), records);
            let damage = BadFragment::Checksum { stored: 0, computed: 0 };
            let Ok(Ending::Torn { damage: found, .. }) = ending else { panic!("{ending:?}") };
            assert_eq!(std::mem::discriminant(&found), std::mem::discriminant(&damage));
        }
        let anyone = Expected { kind: FileKind::Log, store_id: None, file_id: None };
        let other = Bytes(other);
        let mut reader = FramedReader::open(&other, Path::new(PATH), anyone).unwrap();
        assert_eq!(reader.header.file_id, [9; 16]);
        assert_eq!(reader.next_record().unwrap(), None);
        assert!(matches!(reader.ending(), Some(Ending::Torn { offset: 64, dropped_bytes: 72, .. })));
        assert!(matches!(replay(&other, FileKind::Log), (_, Err(Error::Corruption { what: "file id", .. }))));
    }

    #[test]
    fn a_file_without_its_whole_header_or_of_another_kind_or_store_is_corrupt() {
        let bytes = crafted(FileKind::Log, &[(7, b"one", 0)]);
        for len in 0..HEADER_BYTES {
            let (records, ending) = replay(&Bytes(bytes[..len].to_vec()), FileKind::Log);
            assert!(records.is_empty() && matches!(ending, Err(Error::Corruption { .. })));
        }
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(replay(&Bytes(bad), FileKind::Log).1, Err(Error::Corruption { .. })));
        }
        let open = |expected| FramedReader::open(&Bytes(bytes.clone()), Path::new(PATH), expected).map(drop);
        assert!(open(expected(FileKind::Log)).is_ok());
        assert!(open(expected(FileKind::Manifest)).is_err());
        assert!(open(Expected { store_id: Some([0; 16]), ..expected(FileKind::Log) }).is_err());
    }

    #[test]
    fn zeros_behind_a_record_are_room_in_a_log_and_torn_in_a_manifest_and_do_not_end_the_search_for_promises()
    {
        for zeros in [1, 7, 8, 16, 4000, 70_000] {
            let mut manifest = crafted(FileKind::Manifest, &[(4 << 2 | 3, b"one", 0)]);
            manifest.resize(88 + zeros, 0);
            let (records, ending) = replay(&Bytes(manifest), FileKind::Manifest);
            let dropped_bytes = zeros as u64;
            let damage = BadFragment::Zeros;
            let torn = Ending::Torn { offset: 88, dropped_bytes, damage_offset: 88, damage };
            assert_eq!((records.len(), ending.unwrap()), (1, torn));
            let mut bytes = crafted(FileKind::Log, &[(7, b"one", 0)]);
            bytes.resize(88 + zeros, 0);
            let (records, ending) = replay(&Bytes(bytes.clone()), FileKind::Log);
            assert_eq!((records.len(), ending.unwrap()), (1, Ending::Complete));
            assert!(is_zeros_from(&Bytes(bytes.clone()), Path::new(PATH), 88).unwrap());
            assert!(!is_zeros_from(&Bytes(bytes.clone()), Path::new(PATH), 82).unwrap());
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let end = bytes.len() as u64;
            for (synced, promised) in [(88, false), (89.min(end), end > 88), (end, true)] {
                let mut bytes = bytes.clone();
                put_fragment(&mut bytes, &ID, end, (RecordKind::Promise, true), synced, &mut &b""[..]);
                let (_, ending) = replay(&Bytes(bytes), FileKind::Log);
                assert_eq!(ending.is_err(), promised, "{zeros} zeros, promise at {end} of {synced}");
            }
        }
    }

    #[test]
    fn a_manifest_that_is_synced_after_every_edit_protects_all_but_the_last() {
        let (fs, mut log) = writer(FileKind::Manifest);
        for edit in 0..10u8 {
            log.append_record(RecordKind::Edit, &[edit; 5]).unwrap();
            log.sync().unwrap();
        }
        for edit in 0..10 {
            let mut bytes = contents(&fs);
            bytes[64 + edit * 24 + 16] ^= 1;
            let (records, ending) = replay(&Bytes(bytes), FileKind::Manifest);
            assert_eq!((records.len(), ending.is_err()), (edit, edit != 9));
        }
    }

    #[derive(Debug)]
    struct Flaky(Bytes, AtomicUsize);

    impl ReadFile for Flaky {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.0.read_at(buffer, offset)?;
            if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
                buffer[100] ^= 1;
            }
            Ok(())
        }
    }

    #[test]
    fn bytes_that_are_intact_when_read_again_are_not_damage() {
        let bytes = crafted(FileKind::Log, &[(7, b"one", 0), (7, b"two", 0)]);
        let (records, ending) = replay(&Flaky(Bytes(bytes), AtomicUsize::new(0)), FileKind::Log);
        assert_eq!((records.len(), ending.unwrap()), (2, Ending::Complete));
    }

    #[test]
    fn a_record_half_of_which_was_appended_when_the_disk_was_full_is_a_torn_tail() {
        let (fs, mut log) = writer(FileKind::Log);
        log.append_record(RecordKind::Batch, b"kept").unwrap();
        log.sync().unwrap();
        let left = Mutex::new(2);
        fs.observe(move |_, op| match op {
            Op::Append(..) if *left.lock().unwrap() == 0 => Err(io::ErrorKind::StorageFull.into()),
            Op::Append(..) => {
                *left.lock().unwrap() -= 1;
                Ok(())
            }
            _ => Ok(()),
        });
        assert!(log.append_record(RecordKind::Batch, &vec![1; 4 << 20]).is_err());
        let (records, ending) = replay(&*fs.open(Path::new(PATH)).unwrap(), FileKind::Log);
        assert_eq!(records.len(), 1);
        assert!(matches!(
            ending.unwrap(),
            Ending::Torn { offset: 88, damage: BadFragment::Unfinished, damage_offset, .. } if damage_offset > 2_000_000
        ));
    }
}
