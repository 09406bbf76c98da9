//! The active write-ahead log: appends by the commit leader, syncs for durability.
//!
//! Writers wait in [`Log::wait_durable`] for a position. The first one syncs everything appended so far, so the
//! number of syncs depends on the disk, not on the number of writers.
//!
//! Released writers write again at once. A sync that starts too early would split them into two alternating groups.
//! So if several writers waited at the end of the last sync, the next sync starts when as many wait again, or after
//! half the duration of a sync ([`company_patience`]). If nothing was appended during a sync, a promise record states
//! the durable position.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::failure::catch;
use super::switch_points::point;
use crate::batch::KeyspaceId;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::key::SeqNo;
use crate::manifest::edit::{EditItem, LogEnd};
use crate::number_map::NumberMap;
use crate::sync::{lock, wait, wait_for};
use crate::wal::{
    Boundary, EditMark, FramedWriter, RecordKind, encode_boundaries, encode_close, encode_promise,
};

/// Limits of the wait for other writers before a sync.
const PATIENCE_MAX: Duration = Duration::from_millis(1);
const PATIENCE_MIN: Duration = Duration::from_micros(20);

/// A background job syncs the log at this size.
pub(in crate::db) const LOG_SYNC_BYTES: u64 = 8 << 20;

/// Rarely written keyspaces are flushed above this number of logs. Limits recovery time.
pub(in crate::db) const OLDER_LOGS_MAX: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::db) struct LogPosition {
    pub(in crate::db) number: u64,
    pub(in crate::db) offset: u64,
}

pub(in crate::db) struct Appended {
    pub(in crate::db) position: LogPosition,
    pub(in crate::db) unsynced_before: u64,
    pub(in crate::db) unsynced: u64,
}

pub(in crate::db) struct Log {
    state: Mutex<LogState>,
    synced: Condvar,
    joined: Condvar,
    active: AtomicU64,
    syncs: AtomicU64,
}

pub(in crate::db) struct Synced {
    pub(in crate::db) up_to: LogPosition,
    /// The log to which the promise could not be appended, and the error.
    pub(in crate::db) unpromised: Option<(u64, Error)>,
}

struct LogState {
    number: u64,
    writer: FramedWriter,
    batches_end: u64,
    has_batches: bool,
    syncing: bool,
    running_to: Option<LogPosition>,
    covered: usize,
    /// `waiting` counts threads for the next sync; `company` is their number at the end of the last sync.
    waiting: usize,
    company: usize,
    asleep: usize,
    sync_time: Duration,
    ended: bool,
    end: Option<EditItem>,
    failed: Option<Error>,
    older: NumberMap<u64, u64>,
}

impl Log {
    pub(in crate::db) fn new(number: u64, writer: FramedWriter, older: NumberMap<u64, u64>) -> Self {
        let batches_end = writer.len();
        Self {
            state: Mutex::new(LogState {
                number,
                writer,
                batches_end,
                has_batches: true,
                syncing: false,
                running_to: None,
                covered: 0,
                waiting: 0,
                company: 0,
                asleep: 0,
                sync_time: Duration::ZERO,
                ended: false,
                end: None,
                failed: None,
                older,
            }),
            synced: Condvar::new(),
            joined: Condvar::new(),
            active: AtomicU64::new(number),
            syncs: AtomicU64::new(0),
        }
    }

    pub(in crate::db) fn ended(
        number: u64,
        writer: FramedWriter,
        end: EditItem,
        older: NumberMap<u64, u64>,
    ) -> Self {
        let log = Self::new(number, writer, older);
        let mut state = log.lock();
        (state.ended, state.end) = (true, Some(end));
        drop(state);
        log
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        lock(&self.state)
    }

    fn await_sync<'l>(&'l self, mut state: MutexGuard<'l, LogState>) -> MutexGuard<'l, LogState> {
        state.asleep += 1;
        state = wait(&self.synced, state);
        state.asleep -= 1;
        state
    }

    fn wake(&self, state: &LogState) {
        if state.asleep > 0 {
            self.synced.notify_all();
        }
    }

    pub(in crate::db) fn active(&self) -> u64 {
        self.active.load(Ordering::SeqCst)
    }

    pub(in crate::db) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    #[inline]
    pub(in crate::db) fn append<'b>(
        &self,
        boundaries: &[(KeyspaceId, Boundary)],
        batches: impl Iterator<Item = &'b [u8]>,
    ) -> Result<Appended> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if state.ended {
            return Err(Error::Closed);
        }
        let unsynced_before = state.unsynced();
        if !boundaries.is_empty() {
            state.writer.append_record(RecordKind::Boundaries, &encode_boundaries(boundaries))?;
        }
        for batch in batches {
            state.writer.append_record(RecordKind::Batch, batch)?;
        }
        state.writer.flush_frames()?;
        state.batches_end = state.writer.len();
        state.has_batches = true;
        let position = LogPosition { number: state.number, offset: state.batches_end };
        Ok(Appended { position, unsynced_before, unsynced: state.unsynced() })
    }

    pub(in crate::db) fn end(&self) -> LogPosition {
        let state = self.lock();
        LogPosition { number: state.number, offset: state.batches_end }
    }

    pub(in crate::db) fn unsynced_bytes(&self) -> u64 {
        self.lock().unsynced()
    }

    pub(in crate::db) fn total_bytes(&self) -> u64 {
        let state = self.lock();
        state.writer.len() + state.older.values().sum::<u64>()
    }

    pub(in crate::db) fn older(&self) -> usize {
        self.lock().older.len()
    }

    /// Returns once everything up to `position` is durable. The promise record states `mark`.
    ///
    /// # Errors
    ///
    /// Every call returns the error of the first failed sync, whose losses are unknown.
    pub(in crate::db) fn wait_durable(
        &self,
        position: LogPosition,
        mark: impl Fn() -> EditMark,
    ) -> Result<Synced> {
        self.wait_in_company(position, mark, company_patience)
    }

    /// As [`Log::wait_durable`], but waits for other threads for `patience(duration of the last sync)`.
    fn wait_in_company(
        &self,
        position: LogPosition,
        mark: impl Fn() -> EditMark,
        patience: impl Fn(Duration) -> Duration,
    ) -> Result<Synced> {
        point();
        let mut state = self.lock();
        let (mut is_counted, mut unpromised) = (false, None);
        loop {
            if let Some(up_to) = state.durable_if(position)? {
                return Ok(Synced { up_to, unpromised });
            }
            if !std::mem::replace(&mut is_counted, true) && state.join(position) {
                self.joined.notify_one();
            }
            if state.syncing {
                state = self.await_sync(state);
                continue;
            }
            state.syncing = true;
            state = self.await_company(state, &patience);
            let begun = Instant::now();
            // Other threads need the result even after a panic.
            let allocated = catch("preallocating the log", || state.writer.preallocate());
            let (number, end, file) = (state.number, state.writer.flushed_len(), state.writer.file());
            let path = state.writer.path().to_path_buf();
            state.running_to = Some(LogPosition { number, offset: end });
            state.covered = std::mem::take(&mut state.waiting);
            drop(state);
            let sync = || file.sync().map_err(|error| Error::io("sync", &path, error));
            let result = allocated.and_then(|()| catch("syncing the log", sync).flatten());
            self.syncs.fetch_add(1, Ordering::Relaxed);
            state = self.lock();
            state.syncing = false;
            state.running_to = None;
            (state.company, state.sync_time) = (state.covered + state.waiting, begun.elapsed());
            match result {
                Ok(()) if state.number == number => {
                    let noted = catch("promising in the log", || state.note_synced(end, &mark)).flatten();
                    unpromised = noted.err().map(|error| (number, error));
                }
                Ok(()) => {}
                Err(error) => drop(state.failed.get_or_insert(error)),
            }
            self.wake(&state);
        }
    }

    /// Waits for as many threads as at the end of the last sync, if there were several, up to a timeout.
    fn await_company<'l>(
        &'l self,
        mut state: MutexGuard<'l, LogState>,
        patience: impl Fn(Duration) -> Duration,
    ) -> MutexGuard<'l, LogState> {
        if state.waiting >= state.company || state.company < 2 {
            return state;
        }
        let end = Instant::now() + patience(state.sync_time);
        while state.waiting < state.company {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = wait_for(&self.joined, state, left);
        }
        state
    }

    pub(in crate::db) fn is_durable(&self, position: LogPosition) -> Result<bool> {
        self.lock().durable_if(position).map(|up_to| up_to.is_some())
    }

    pub(in crate::db) fn close_active(&self, last_seqno: SeqNo, mark: EditMark) -> Result<(u64, u64)> {
        let mut state = self.lock();
        while state.syncing {
            state = self.await_sync(state);
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if state.ended {
            return Err(Error::Closed);
        }
        state.ended = true;
        state.writer.append_record(RecordKind::Close, &encode_close(last_seqno, mark))?;
        state.writer.flush_frames()?;
        state.writer.trim_to_len();
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = state.writer.sync() {
            state.failed = Some(error.clone());
            return Err(error);
        }
        state.batches_end = state.writer.len();
        let (number, len) = (state.number, state.writer.len());
        state.end = Some(EditItem::LogEnded { number, end: LogEnd { len, last_seqno, is_cut: false } });
        Ok((number, len))
    }

    pub(in crate::db) fn cut_active(&self, last_seqno: SeqNo) -> Result<Option<EditItem>> {
        let mut state = self.lock();
        while state.syncing {
            state = self.await_sync(state);
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        state.ended = true;
        if state.end.is_some() || !state.has_batches {
            return Ok(state.end.clone());
        }
        let (number, len) = (state.number, state.batches_end);
        if state.writer.synced() < len {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            let synced = state.writer.file().sync();
            if let Err(error) = synced.map_err(|error| Error::io("sync", state.writer.path(), error)) {
                state.failed = Some(error.clone());
                self.wake(&state);
                return Err(error);
            }
            state.writer.set_synced(len);
            self.wake(&state);
        }
        state.end = Some(EditItem::LogEnded { number, end: LogEnd { len, last_seqno, is_cut: true } });
        Ok(state.end.clone())
    }

    /// The caller ensures that the previous log is durable, or that its entries are in tables.
    ///
    /// # Errors
    ///
    /// Fails if the promise could not be appended. The log then accepts no appends.
    pub(in crate::db) fn activate(&self, number: u64, writer: FramedWriter, mark: EditMark) -> Result<()> {
        let mut state = self.lock();
        let (old, len) = (state.number, state.batches_end);
        state.older.insert(old, len);
        (state.number, state.writer, state.ended) = (number, writer, false);
        (state.has_batches, state.end) = (false, None);
        state.batches_end = state.writer.len();
        self.active.store(number, Ordering::SeqCst);
        self.wake(&state);
        state.begin(mark)
    }

    pub(in crate::db) fn begin(&self, mark: EditMark) -> Result<()> {
        self.lock().begin(mark)
    }

    pub(in crate::db) fn take_below(&self, floor: u64) -> Vec<u64> {
        let mut state = self.lock();
        let kept = state.older.split_off(&floor);
        std::mem::replace(&mut state.older, kept).keys().copied().collect()
    }

    pub(in crate::db) fn forget(&self, names: &[FileName]) {
        let mut state = self.lock();
        state.older.retain(|&number, _| !names.contains(&FileName::Log(number)));
    }

    pub(in crate::db) fn pause(&self) -> impl Drop + use<'_> {
        self.lock()
    }

    pub(in crate::db) fn fail(&self, error: &Error) {
        let mut state = self.lock();
        state.failed.get_or_insert_with(|| error.clone());
        self.wake(&state);
    }
}

/// Half the duration of the last sync, or zero if timers are too coarse for it.
fn company_patience(sync_time: Duration) -> Duration {
    let half = (sync_time / 2).min(PATIENCE_MAX);
    if half < PATIENCE_MIN { Duration::ZERO } else { half }
}

impl LogState {
    fn unsynced(&self) -> u64 {
        self.batches_end.saturating_sub(self.writer.synced())
    }

    fn join(&mut self, position: LogPosition) -> bool {
        if self.running_to.is_some_and(|end| position <= end) {
            self.covered += 1;
            return false;
        }
        self.waiting += 1;
        self.company > 1 && self.waiting == self.company
    }

    fn durable_if(&self, position: LogPosition) -> Result<Option<LogPosition>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // Older logs were synced before the next log became active.
        let up_to = LogPosition { number: self.number, offset: self.writer.synced() };
        Ok((position <= up_to).then_some(up_to))
    }

    fn begin(&mut self, mark: EditMark) -> Result<()> {
        self.writer.append_record(RecordKind::Promise, &encode_promise(mark))?;
        self.writer.flush_frames()?;
        self.batches_end = self.writer.len();
        Ok(())
    }

    fn note_synced(&mut self, end: u64, mark: impl Fn() -> EditMark) -> Result<()> {
        self.writer.set_synced(end);
        if self.writer.len() == end {
            self.writer.append_record(RecordKind::Promise, &encode_promise(mark()))?;
            self.writer.flush_frames()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::file_header::{FileHeader, FileKind};
    use crate::fs::{Fs, MemFs};

    const LONG: Duration = Duration::from_secs(600);

    fn log() -> Log {
        let fs = MemFs::new();
        fs.create_dir(Path::new("/db")).unwrap();
        let header = FileHeader::new(FileKind::Log, [1; 16], [2; 16]);
        let writer = FramedWriter::create(&fs, Path::new("/db/000001.wal"), header).unwrap();
        Log::new(1, writer, NumberMap::new())
    }

    fn write(log: &Log, patience: Duration) {
        let position = log.append(&[], std::iter::once(&b"a batch"[..])).unwrap().position;
        log.wait_in_company(position, EditMark::default, |_| patience).unwrap();
    }

    #[test]
    fn writers_that_one_sync_has_released_share_the_next_one_too() {
        const WRITERS: usize = 8;
        const ROUNDS: u64 = 40;
        let log = log();
        // Simulates that all writers waited for an earlier sync.
        log.lock().company = WRITERS;
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| (0..ROUNDS).for_each(|_| write(&log, LONG)));
            }
        });
        assert_eq!((log.syncs(), log.lock().company), (ROUNDS, WRITERS));
    }

    #[test]
    fn a_promise_that_panics_is_an_error_of_its_writer_and_keeps_no_other_waiting() {
        let log = log();
        log.lock().company = 2;
        let position = log.append(&[], std::iter::once(&b"a batch"[..])).unwrap().position;
        let wait = || log.wait_in_company(position, || panic!("the mark"), |_| LONG);
        let results = std::thread::scope(|scope| {
            let other = scope.spawn(wait);
            [wait(), other.join().unwrap()]
        });
        let unpromised = results.map(|synced| synced.unwrap().unpromised);
        let panicked = |error: &Option<(u64, Error)>| matches!(error, Some((1, Error::Panicked { .. })));
        assert_eq!(unpromised.iter().filter(|error| panicked(error)).count(), 1);
        assert_eq!(unpromised.iter().filter(|error| error.is_none()).count(), 1);
    }

    #[test]
    fn a_writer_that_is_alone_waits_for_nobody() {
        let log = log();
        (0..100).for_each(|_| write(&log, LONG));
        assert_eq!((log.syncs(), log.lock().company), (100, 1));
    }

    #[test]
    fn a_sync_waits_for_company_no_longer_than_half_a_sync() {
        let micros = Duration::from_micros;
        let waits = [0, 39, 40, 200, 5000].map(|time| company_patience(micros(time)));
        assert_eq!(waits, [0, 0, 20, 100, 1000].map(micros));
    }
}
