//! The writer of a framed log: frames records in memory and appends them in large writes.
//!
//! Calls: `create · (append_record* · flush_frames · (preallocate? · sync elsewhere · set_synced)?)* · trim_to_len?`
//!
//! 1. [`FramedWriter::append_record`] splits a record into fragments in a buffer, which is written at about 1 MiB.
//! 2. [`FramedWriter::flush_frames`] writes the rest: a whole commit group with one append.
//! 3. A syncing thread reads [`FramedWriter::flushed_len`], syncs [`FramedWriter::file`] without the lock of the
//!    writer, and passes that length to [`FramedWriter::set_synced`]: every later fragment promises it.
//!
//! After a failed append every later call returns the same error: a record after a gap would read as corruption, and a
//! record after half a record would be lost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::record::{PAGE_BYTES, RECORD_BYTES_MAX, RecordKind, put_with};
use crate::checksum::FileChecksum;
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, HEADER_BYTES};
use crate::fs::{AppendFile, Fs};

const FRAMES_BYTES_MAX: usize = 1 << 20;

const PREALLOCATE_BYTES: u64 = 1 << 20;
const PREALLOCATE_BELOW: u64 = 1 << 16;

#[derive(Debug)]
pub(crate) struct FramedWriter {
    file: Arc<dyn AppendFile>,
    path: PathBuf,
    header: FileHeader,
    sums: FileChecksum,
    frames: Vec<u8>,
    flushed: u64,
    allocated_end: u64,
    synced: u64,
    failure: Option<Error>,
}

#[derive(Debug)]
struct Ended;

impl AppendFile for Ended {
    fn append(&self, _: &[u8]) -> io::Result<()> {
        Err(io::Error::other("the file was ended"))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl FramedWriter {
    /// Neither the file nor its directory entry is durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; the file may then exist.
    pub(crate) fn create(fs: &dyn Fs, path: &Path, header: FileHeader) -> Result<Self> {
        let file = fs.create(path).map_err(|error| Error::io("create", path, error))?;
        file.append(&header.encode()).map_err(|error| Error::io("append to", path, error))?;
        Ok(Self::of_file(file, path, header, HEADER_BYTES as u64))
    }

    /// A writer for a durable file of this length that another writer ended. It accepts no records.
    pub(crate) fn ended(path: &Path, header: FileHeader, len: u64) -> Self {
        let writer = Self::of_file(Arc::new(Ended), path, header, len);
        Self { synced: len, failure: Some(Error::Closed), ..writer }
    }

    fn of_file(file: Arc<dyn AppendFile>, path: &Path, header: FileHeader, flushed: u64) -> Self {
        let (path, sums) = (path.to_path_buf(), FileChecksum::new(&header.file_id));
        let (frames, allocated_end, synced, failure) = (Vec::new(), 0, 0, None);
        Self { file, path, header, sums, frames, flushed, allocated_end, synced, failure }
    }

    /// Returns the record's offset. The record is in the file after [`FramedWriter::flush_frames`]; parts of a long
    /// record are written earlier.
    ///
    /// # Errors
    ///
    /// [`Error::LimitExceeded`] if the payload is too long; nothing was framed. [`Error::Io`] if a write fails or has
    /// failed.
    pub(crate) fn append_record(&mut self, kind: RecordKind, mut payload: &[u8]) -> Result<u64> {
        debug_assert!(kind.belongs_in(self.header.kind), "{kind:?} in {:?}", self.header.kind);
        self.check()?;
        if payload.len() > RECORD_BYTES_MAX {
            return Err(Error::limit("log record", RECORD_BYTES_MAX as u64, payload.len() as u64));
        }
        let start = self.len();
        let mut first = true;
        while first || !payload.is_empty() {
            let (at, place) = (self.len(), (kind, first));
            put_with(&mut self.frames, &self.sums, at, place, self.synced, &mut payload);
            first = false;
            if self.frames.len() >= FRAMES_BYTES_MAX - PAGE_BYTES {
                self.flush_frames()?;
            }
        }
        Ok(start)
    }

    /// # Errors
    ///
    /// [`Error::Io`] if a write fails or has failed.
    pub(crate) fn flush_frames(&mut self) -> Result<()> {
        self.check()?;
        if self.frames.is_empty() {
            return Ok(());
        }
        let appended =
            self.file.append(&self.frames).map_err(|error| Error::io("append to", &self.path, error));
        self.remember(appended)?;
        self.flushed += self.frames.len() as u64;
        self.frames.clear();
        Ok(())
    }

    /// Preallocates space, because a sync is cheaper if the file's length does not change. Not retried after a refusal.
    pub(crate) fn preallocate(&mut self) {
        if self.failure.is_none() && self.allocated_end < self.flushed + PREALLOCATE_BELOW {
            let end = self.flushed + PREALLOCATE_BYTES;
            self.allocated_end = self.file.set_len(end).map_or(u64::MAX, |()| end);
        }
    }

    /// Removes preallocated space. After a failure, trailing zeros remain.
    pub(crate) fn trim_to_len(&mut self) {
        if self.failure.is_none() && (self.flushed..u64::MAX).contains(&self.allocated_end) {
            let _ = self.file.set_len(self.flushed);
        }
        self.allocated_end = u64::MAX;
    }

    /// Syncs while appends wait. A failure ends the writer.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.flush_frames()?;
        let synced = self.file.sync().map_err(|error| Error::io("sync", &self.path, error));
        self.remember(synced)?;
        self.set_synced(self.flushed);
        Ok(())
    }

    pub(crate) fn set_synced(&mut self, offset: u64) {
        debug_assert!(offset <= self.flushed, "{offset} bytes durable of {}", self.flushed);
        self.synced = self.synced.max(offset.min(self.flushed));
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    pub(crate) fn len(&self) -> u64 {
        self.flushed + self.frames.len() as u64
    }

    pub(crate) fn flushed_len(&self) -> u64 {
        self.flushed
    }

    pub(crate) fn file(&self) -> Arc<dyn AppendFile> {
        Arc::clone(&self.file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[inline]
    fn check(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn remember(&mut self, done: Result<()>) -> Result<()> {
        if let Err(error) = &done {
            self.failure = Some(error.clone());
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::file_header::FileKind;
    use crate::fs::{MemFs, Op};

    fn writer(fs: &MemFs) -> FramedWriter {
        fs.create_dir(Path::new("/db")).unwrap();
        let header = FileHeader::new(FileKind::Log, [1; 16], [2; 16]);
        FramedWriter::create(fs, Path::new("/db/000001.wal"), header).unwrap()
    }

    fn appends(fs: &MemFs) -> Arc<Mutex<Vec<usize>>> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let appends = Arc::clone(&seen);
        fs.observe(move |_, op| {
            if let Op::Append(_, bytes) = op {
                seen.lock().unwrap().push(bytes.len());
            }
            Ok(())
        });
        appends
    }

    #[test]
    fn several_records_are_one_append() {
        let fs = MemFs::new();
        let mut log = writer(&fs);
        let appends = appends(&fs);
        let starts: Vec<_> =
            (0..3).map(|n| log.append_record(RecordKind::Batch, &vec![7; n * 8]).unwrap()).collect();
        assert_eq!((&starts[..], log.len(), log.flushed_len()), (&[64, 80, 104][..], 136, 64));
        log.flush_frames().unwrap();
        log.flush_frames().unwrap();
        assert_eq!((&appends.lock().unwrap()[..], log.flushed_len()), (&[72][..], 136));
    }

    #[test]
    fn a_long_record_is_written_in_pieces_of_a_mebibyte() {
        let fs = MemFs::new();
        let mut log = writer(&fs);
        let appends = appends(&fs);
        log.append_record(RecordKind::Batch, &vec![1; 5 << 20]).unwrap();
        log.flush_frames().unwrap();
        let appends = appends.lock().unwrap();
        assert!(appends.len() >= 5 && appends.iter().all(|&len| len <= FRAMES_BYTES_MAX), "{appends:?}");
        assert!(log.frames.capacity() <= 2 * FRAMES_BYTES_MAX);
    }

    #[test]
    fn a_record_beyond_the_limit_is_refused_and_nothing_of_it_is_written() {
        let fs = MemFs::new();
        let mut log = writer(&fs);
        // These zeroed bytes are never touched, so the system allocates no memory for them.
        let longer = vec![0; RECORD_BYTES_MAX + 1];
        let refused = log.append_record(RecordKind::Batch, &longer);
        assert!(matches!(refused, Err(Error::LimitExceeded { .. })), "{refused:?}");
        assert_eq!((log.len(), log.flushed_len()), (64, 64));
    }

    #[test]
    fn after_a_failed_append_or_sync_the_writer_repeats_the_error_and_writes_no_more() {
        for fail_sync in [false, true] {
            let fs = MemFs::new();
            let mut log = writer(&fs);
            fs.observe(move |_, op| match op {
                Op::Sync(_) if fail_sync => Err(io::ErrorKind::StorageFull.into()),
                Op::Append(..) if !fail_sync => Err(io::ErrorKind::StorageFull.into()),
                _ => Ok(()),
            });
            log.append_record(RecordKind::Batch, b"x").unwrap();
            let first = log.sync().unwrap_err().to_string();
            let before = fs.files(Path::new("/db"));
            fs.stop_observing();
            assert_eq!(log.append_record(RecordKind::Batch, b"y").unwrap_err().to_string(), first);
            assert_eq!(log.flush_frames().unwrap_err().to_string(), first);
            assert_eq!(log.sync().unwrap_err().to_string(), first);
            assert_eq!((log.synced(), fs.files(Path::new("/db"))), (0, before));
        }
    }

    #[test]
    fn space_is_preallocated_if_little_is_left_and_trimmed_in_the_end_and_a_refusal_is_final() {
        let fs = MemFs::new();
        let mut log = writer(&fs);
        let lens = Arc::new(Mutex::new(Vec::new()));
        let (seen, refuse) = (Arc::clone(&lens), Arc::new(Mutex::new(false)));
        let refuses = Arc::clone(&refuse);
        fs.observe(move |_, op| match op {
            Op::SetLen(_, len) => {
                seen.lock().unwrap().push(len);
                if *refuses.lock().unwrap() { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
            }
            _ => Ok(()),
        });
        let append = |log: &mut FramedWriter, bytes: u64| {
            log.append_record(RecordKind::Batch, &vec![1; bytes as usize]).unwrap();
            log.flush_frames().unwrap();
        };
        log.preallocate();
        append(&mut log, PREALLOCATE_BYTES - PREALLOCATE_BELOW - 2000);
        log.preallocate();
        assert_eq!(*lens.lock().unwrap(), [64 + PREALLOCATE_BYTES]);
        append(&mut log, 4000);
        log.preallocate();
        let end = log.len();
        assert_eq!(lens.lock().unwrap()[1..], [end + PREALLOCATE_BYTES]);
        log.trim_to_len();
        log.trim_to_len();
        assert_eq!(lens.lock().unwrap()[2..], [end]);
        assert_eq!(fs.files(Path::new("/db"))[0].1.len() as u64, end);
        *refuse.lock().unwrap() = true;
        log.allocated_end = 0;
        (0..3).for_each(|_| log.preallocate());
        log.trim_to_len();
        append(&mut log, 10);
        assert_eq!((lens.lock().unwrap().len(), log.len()), (4, end + 32));
    }

    #[test]
    fn the_writer_of_an_ended_file_takes_nothing_and_is_durable_to_its_end() {
        let header = FileHeader::new(FileKind::Log, [1; 16], [2; 16]);
        let mut log = FramedWriter::ended(Path::new("/db/000001.wal"), header, 500);
        assert!(matches!(log.append_record(RecordKind::Batch, b"x"), Err(Error::Closed)));
        assert!(matches!(log.sync(), Err(Error::Closed)));
        assert_eq!((log.len(), log.flushed_len(), log.synced()), (500, 500, 500));
        assert!(log.file().append(b"x").is_err());
    }

    #[test]
    fn only_what_was_handed_to_the_file_counts_as_synced_and_it_never_shrinks() {
        let fs = MemFs::new();
        let mut log = writer(&fs);
        log.append_record(RecordKind::Batch, b"x").unwrap();
        log.sync().unwrap();
        assert_eq!((log.synced(), log.len()), (88, 88));
        log.set_synced(64);
        assert_eq!(log.synced(), 88);
    }
}
