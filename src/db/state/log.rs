//! The active write-ahead log: appends for the commit leader, and syncs for writers that wait for durability.
//!
//! Appending and syncing are separate stages. A writer that wants durability waits in [`Log::wait_durable`]
//! for a position. The first writer syncs everything that has been appended so far; the others wait for it,
//! and the next sync covers what was appended meanwhile. So the number of syncs depends on the speed of the
//! disk, not on the number of writers.
//!
//! Writers that a sync has released write again at once. A sync that began before they have done so would leave them
//! to the next one, and the writers would split into two groups that take turns. So if several writers waited when
//! the last sync ended, the next one begins when as many wait again, or after half the time that a sync takes
//! ([`company_patience`]). A writer that is alone does not wait. If nothing was appended during a sync, a promise record is appended,
//! which states how far the log is durable.

use std::collections::BTreeMap;
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
use crate::sync::{lock, wait, wait_for};
use crate::wal::{
    Boundary, EditMark, FramedWriter, RecordKind, encode_boundaries, encode_close, encode_promise,
};

/// How long a sync waits for company at most. If it would be shorter than the least, it does not wait.
const PATIENCE_MAX: Duration = Duration::from_millis(1);
const PATIENCE_MIN: Duration = Duration::from_micros(20);

/// Unsynced bytes of the log at which it is synced in the background.
pub(in crate::db) const LOG_SYNC_BYTES: u64 = 8 << 20;

/// How many logs before the active one may be kept for keyspaces that are rarely written. The limit keeps
/// recovery short.
pub(in crate::db) const OLDER_LOGS_MAX: usize = 16;

/// A place in the sequence of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::db) struct LogPosition {
    pub(in crate::db) number: u64,
    pub(in crate::db) offset: u64,
}

/// What [`Log::append`] has done.
pub(in crate::db) struct Appended {
    /// Where the last batch ends.
    pub(in crate::db) position: LogPosition,
    /// Bytes of the log that are not known to be durable.
    pub(in crate::db) unsynced_before: u64,
    pub(in crate::db) unsynced: u64,
}

/// The active log and the lengths of the older ones that are still needed.
pub(in crate::db) struct Log {
    state: Mutex<LogState>,
    synced: Condvar,
    /// As many writers wait as the thread that syncs next waits for.
    joined: Condvar,
    /// Number of the active log, to be read without the lock.
    active: AtomicU64,
    syncs: AtomicU64,
}

/// What [`Log::wait_durable`] has found.
pub(in crate::db) struct Synced {
    /// Everything up to here is durable.
    pub(in crate::db) up_to: LogPosition,
    /// A log to which the promise could not be appended, and the error: nothing can be appended to it any more.
    pub(in crate::db) unpromised: Option<(u64, Error)>,
}

struct LogState {
    number: u64,
    writer: FramedWriter,
    /// Where the last batch record ends. A sync makes the log durable up to here.
    batches_end: u64,
    /// Whether it may hold a batch.
    has_batches: bool,
    /// A thread syncs, or waits for company before it does.
    syncing: bool,
    /// How far the sync goes that runs, and how many threads wait for it.
    running_to: Option<LogPosition>,
    covered: usize,
    /// How many threads wait for the next one, and how many waited in all when the last one ended.
    waiting: usize,
    company: usize,
    /// How many threads wait for the end of a sync: nobody else is woken.
    asleep: usize,
    /// How long the last sync took.
    sync_time: Duration,
    /// Nothing may be appended: the log was closed or cut, or one of these failed.
    ended: bool,
    /// The edit that says where the log ends, once it is durable to there.
    end: Option<EditItem>,
    failed: Option<Error>,
    /// Lengths of older logs, by number.
    older: BTreeMap<u64, u64>,
}

impl Log {
    /// `older` are the lengths of the older logs that are still needed.
    pub(in crate::db) fn new(number: u64, writer: FramedWriter, older: BTreeMap<u64, u64>) -> Self {
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

    /// The last log of a store that was closed, which takes nothing. `end` says how it ended.
    pub(in crate::db) fn ended(
        number: u64,
        writer: FramedWriter,
        end: EditItem,
        older: BTreeMap<u64, u64>,
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

    /// Waits for the end of a sync, or of the log.
    fn await_sync<'l>(&'l self, mut state: MutexGuard<'l, LogState>) -> MutexGuard<'l, LogState> {
        state.asleep += 1;
        state = wait(&self.synced, state);
        state.asleep -= 1;
        state
    }

    /// Wakes those who wait for the end of a sync.
    fn wake(&self, state: &LogState) {
        if state.asleep > 0 {
            self.synced.notify_all();
        }
    }

    pub(in crate::db) fn active(&self) -> u64 {
        self.active.load(Ordering::SeqCst)
    }

    /// How many times a log was synced.
    pub(in crate::db) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Appends batches as records with one write, after these bucket boundaries, if there are any.
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

    /// Where the last batch ends.
    pub(in crate::db) fn end(&self) -> LogPosition {
        let state = self.lock();
        LogPosition { number: state.number, offset: state.batches_end }
    }

    /// Bytes of the active log that are not known to be durable.
    pub(in crate::db) fn unsynced_bytes(&self) -> u64 {
        self.lock().unsynced()
    }

    /// Length of all logs that are still needed.
    pub(in crate::db) fn total_bytes(&self) -> u64 {
        let state = self.lock();
        state.writer.len() + state.older.values().sum::<u64>()
    }

    /// Number of logs before the active one that are still needed.
    pub(in crate::db) fn older(&self) -> usize {
        self.lock().older.len()
    }

    /// Returns once everything up to `position` is durable. `mark` is stated in the promise record.
    ///
    /// # Errors
    ///
    /// The error of the first failed sync, from every later call: it is unknown what that sync has lost.
    pub(in crate::db) fn wait_durable(
        &self,
        position: LogPosition,
        mark: impl Fn() -> EditMark,
    ) -> Result<Synced> {
        self.wait_in_company(position, mark, company_patience)
    }

    /// [`Log::wait_durable`], where a sync waits for company for as long as `patience` says if the last one took so
    /// long.
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
            // Others wait for the result of this sync, also after a panic.
            let room = catch("making room in the log", || state.writer.make_room());
            let (number, end, file) = (state.number, state.writer.flushed_len(), state.writer.file());
            let path = state.writer.path().to_path_buf();
            state.running_to = Some(LogPosition { number, offset: end });
            state.covered = std::mem::take(&mut state.waiting);
            drop(state);
            let sync = || file.sync().map_err(|error| Error::io("sync", &path, error));
            let result = room.and_then(|()| catch("syncing the log", sync).flatten());
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

    /// Waits until as many threads wait as waited when the last sync ended, if these were several, or until a time.
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

    /// Whether everything up to `position` is durable; the error if a sync has failed.
    pub(in crate::db) fn is_durable(&self, position: LogPosition) -> Result<bool> {
        self.lock().durable_if(position).map(|up_to| up_to.is_some())
    }

    /// Ends the active log: appends a close record and syncs the log. Returns its number and length.
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
        state.writer.cut_room();
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

    /// Ends the active log where its last batch ends, and makes it durable up to there. Nothing can be
    /// appended to it any more, so there is no close record, unless there was one before. Returns the edit
    /// that says where the log ends; `None` if it holds no batch.
    ///
    /// # Errors
    ///
    /// That of the sync; it is final.
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

    /// Makes `writer` the active log. What was appended to the one before is durable: there, after
    /// [`Log::close_active`] or [`Log::cut_active`], or in tables. The first record is a promise, which shows
    /// that the log is in use.
    ///
    /// # Errors
    ///
    /// That of appending the promise. The log is active, but nothing can be appended to it.
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

    /// Appends the first promise, which shows that the log is in use.
    pub(in crate::db) fn begin(&self, mark: EditMark) -> Result<()> {
        self.lock().begin(mark)
    }

    /// Drops the older logs below `floor` from the list and returns their numbers.
    pub(in crate::db) fn take_below(&self, floor: u64) -> Vec<u64> {
        let mut state = self.lock();
        let kept = state.older.split_off(&floor);
        std::mem::replace(&mut state.older, kept).into_keys().collect()
    }

    /// Drops those of these files that are logs from the list of older ones.
    pub(in crate::db) fn forget(&self, names: &[FileName]) {
        let mut state = self.lock();
        state.older.retain(|&number, _| !names.contains(&FileName::Log(number)));
    }

    /// Nothing is appended as long as the guard is held.
    pub(in crate::db) fn pause(&self) -> impl Drop + use<'_> {
        self.lock()
    }

    /// Makes every later write and wait fail with this error.
    pub(in crate::db) fn fail(&self, error: &Error) {
        let mut state = self.lock();
        state.failed.get_or_insert_with(|| error.clone());
        self.wake(&state);
    }
}

/// How long a sync waits for company if the last one took so long: half of that, if a timer is as precise as that.
fn company_patience(sync_time: Duration) -> Duration {
    let half = (sync_time / 2).min(PATIENCE_MAX);
    if half < PATIENCE_MIN { Duration::ZERO } else { half }
}

impl LogState {
    fn unsynced(&self) -> u64 {
        self.batches_end.saturating_sub(self.writer.synced())
    }

    /// Counts a thread that waits. Returns whether as many wait as the next sync waits for, if it waits for several.
    fn join(&mut self, position: LogPosition) -> bool {
        if self.running_to.is_some_and(|end| position <= end) {
            self.covered += 1;
            return false;
        }
        self.waiting += 1;
        self.company > 1 && self.waiting == self.company
    }

    /// How far the logs are durable, if that is at least to `position`.
    fn durable_if(&self, position: LogPosition) -> Result<Option<LogPosition>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // An older log was synced to its end before the next one became active.
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
        Log::new(1, writer, BTreeMap::new())
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
        // As if all had waited for a sync before.
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
