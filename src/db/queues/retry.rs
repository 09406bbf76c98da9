//! Retries of failed work.
//!
//! Background work that fails before it appends its edit removes its files. It is retried after 50 ms, doubling up to 4
//! s, and at once when files are removed or a caller waits. Meanwhile its error is reported
//! ([`Db::background_error`](crate::Db::background_error), `stats`, `tracing`) and writers are slowed down.
//!
//! Each kind of work of each keyspace is retried separately.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::reservations::{Job, Upkeep};
use crate::batch::KeyspaceId;
use crate::db::state::failure::is_out_of_space;
use crate::db::state::lifecycle::Flag;
use crate::error::Error;
use crate::number_map::{Number, NumberMap};
use crate::sync::lock;

const DELAY_MIN: Duration = Duration::from_millis(50);

const DELAY_MAX: Duration = Duration::from_secs(4);

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::db) enum Work {
    Flush(KeyspaceId),
    Compact(KeyspaceId),
    Refilter(KeyspaceId),
    Resume,
    BeginLog,
    PrepareLog,
    ReplaceManifest,
    Expire,
    ReserveFile,
    Remove,
}

impl Work {
    /// For several flushes, returns the first: only its error ends the job.
    pub(in crate::db) fn of(job: &Job) -> Option<Self> {
        match job {
            Job::Flush(memtables) => memtables.first().map(|(tree, _)| Self::Flush(tree.id)),
            Job::Compact(tree, _) => Some(Self::Compact(tree.id)),
            Job::Refilter(tree, _) => Some(Self::Refilter(tree.id)),
            Job::Upkeep(Upkeep::Expire) | Job::Drop(_) => Some(Self::Expire),
            Job::Upkeep(_) | Job::Residency(_) | Job::CompactRange(..) => None,
        }
    }

    /// Beginning a log and replacing a manifest are retried when next needed.
    pub(in crate::db) fn is_background(self) -> bool {
        !matches!(self, Self::BeginLog | Self::ReplaceManifest)
    }

    fn keyspace(self) -> Option<KeyspaceId> {
        match self {
            Self::Flush(id) | Self::Compact(id) | Self::Refilter(id) => Some(id),
            Self::Resume
            | Self::BeginLog
            | Self::PrepareLog
            | Self::ReplaceManifest
            | Self::Expire
            | Self::ReserveFile
            | Self::Remove => None,
        }
    }
}

impl Number for Work {
    fn to_u128(self) -> u128 {
        let (kind, keyspace) = match self {
            Self::Flush(id) => (0, id),
            Self::Compact(id) => (1, id),
            Self::Refilter(id) => (2, id),
            Self::Resume => (3, 0),
            Self::BeginLog => (4, 0),
            Self::PrepareLog => (5, 0),
            Self::ReplaceManifest => (6, 0),
            Self::Expire => (7, 0),
            Self::ReserveFile => (8, 0),
            Self::Remove => (9, 0),
        };
        (kind, keyspace).to_u128()
    }
}

#[derive(Debug)]
struct Failed {
    error: Error,
    number: u64,
    at: Instant,
    since: Instant,
    delay: Duration,
    due: Instant,
    is_taken: bool,
}

impl Failed {
    fn set_due(&mut self, due: Instant) {
        self.due = due;
        self.is_taken = false;
    }
}

pub(in crate::db) struct Retry {
    failed: Mutex<NumberMap<Work, Failed>>,
    any: Flag,
    failures: AtomicU64,
    ahead: AtomicU64,
}

impl Retry {
    pub(in crate::db) fn new(any: Flag) -> Self {
        Self { failed: Mutex::default(), any, failures: AtomicU64::new(0), ahead: AtomicU64::new(0) }
    }

    fn now(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.ahead.load(Ordering::Relaxed))
    }

    #[inline]
    pub(in crate::db) fn is_empty(&self) -> bool {
        !self.any.is_set()
    }

    fn change(&self, change: impl FnOnce(&mut NumberMap<Work, Failed>)) {
        if !self.is_empty() {
            let mut failed = lock(&self.failed);
            change(&mut failed);
            self.any.set(!failed.is_empty());
        }
    }

    pub(in crate::db) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    pub(in crate::db) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    pub(in crate::db) fn put_off(&self, work: Work, error: Error) {
        let now = self.now();
        let mut failed = lock(&self.failed);
        let number = self.failures.fetch_add(1, Ordering::AcqRel) + 1;
        let before = failed.get(&work);
        let since = before.map_or(now, |before| before.since);
        let delay = before.map_or(DELAY_MIN, |before| (before.delay * 2).min(DELAY_MAX));
        failed
            .insert(work, Failed { error, number, at: now, since, delay, due: now + delay, is_taken: false });
        self.any.set(!failed.is_empty());
    }

    pub(in crate::db) fn done(&self, work: Work) {
        self.change(|failed| drop(failed.remove(&work)));
    }

    pub(in crate::db) fn forget(&self, keyspace: KeyspaceId) {
        self.change(|failed| failed.retain(|work, _| work.keyspace() != Some(keyspace)));
    }

    pub(in crate::db) fn take_due(&self) -> Vec<KeyspaceId> {
        let mut due = Vec::new();
        let now = self.now();
        self.change(|failed| {
            for (work, failed) in failed.iter_mut().filter(|(_, failed)| failed.due <= now) {
                if work.keyspace().is_some()
                    || matches!(work, Work::ReserveFile | Work::PrepareLog | Work::Expire)
                {
                    let was_taken = std::mem::replace(&mut failed.is_taken, true);
                    due.extend(work.keyspace().filter(|_| !was_taken));
                }
            }
        });
        due
    }

    pub(in crate::db) fn is_due(&self, work: Work) -> bool {
        self.is_empty() || lock(&self.failed).get(&work).is_none_or(|failed| failed.due <= self.now())
    }

    /// Time until the next background retry. While writing is suspended, only resuming and removing files count;
    /// after writing has ended, only removing files.
    pub(in crate::db) fn next_due(&self, has_ended: bool) -> Option<Duration> {
        if self.is_empty() {
            return None;
        }
        let failed = lock(&self.failed);
        let is_suspended = failed.contains_key(&Work::Resume);
        let is_possible = |work: &Work| match work {
            Work::Remove => true,
            Work::Resume => !has_ended,
            _ => !has_ended && !is_suspended,
        };
        let waiting = failed.iter().filter(|(work, _)| work.is_background() && is_possible(work));
        let waiting = waiting.filter(|(_, failed)| !failed.is_taken);
        let due = waiting.map(|(_, failed)| failed.due).min();
        due.map(|due| due.saturating_duration_since(self.now()))
    }

    pub(in crate::db) fn due_in(&self, work: Work) -> Option<Duration> {
        let failed = lock(&self.failed);
        failed.get(&work).map(|failed| failed.due.saturating_duration_since(self.now()))
    }

    /// Makes all work due except `RESERVE`, for a waiting caller. The next delay is unchanged.
    pub(in crate::db) fn at_once(&self) {
        self.change(|failed| {
            let awaited = failed.iter_mut().filter(|(work, _)| **work != Work::ReserveFile);
            awaited.for_each(|(_, failed)| failed.set_due(failed.at));
        });
    }

    pub(in crate::db) fn work_at_once(&self, work: Work) {
        self.change(|failed| {
            failed.get_mut(&work).into_iter().for_each(|failed| failed.set_due(failed.at));
        });
    }

    /// Makes all work due, because files were removed. Work that has just failed waits for the shortest delay,
    /// because the files may be its own.
    pub(in crate::db) fn note_room(&self) {
        self.change(|failed| {
            failed.iter_mut().for_each(|(_, failed)| failed.set_due(failed.due.min(failed.at + DELAY_MIN)));
        });
    }

    pub(in crate::db) fn error(&self) -> Option<Error> {
        self.find(&|_, _| true)
    }

    pub(in crate::db) fn is_failing(&self, is_concerned: impl Fn(Work) -> bool) -> bool {
        self.is_any(&|work, _| is_concerned(work))
    }

    pub(in crate::db) fn is_short_of_space(&self, is_concerned: impl Fn(Work) -> bool) -> bool {
        self.is_any(&|work, failed| is_concerned(work) && is_out_of_space(&failed.error))
    }

    /// Whether work that frees space has failed only once since its last success, for lack of space.
    pub(in crate::db) fn is_newly_short_of_space(&self) -> bool {
        let frees_space = |work| matches!(work, Work::Flush(_) | Work::Compact(_) | Work::BeginLog);
        self.is_any(&|work, failed| {
            frees_space(work) && failed.delay == DELAY_MIN && is_out_of_space(&failed.error)
        })
    }

    pub(in crate::db) fn failed_since(
        &self,
        failures: u64,
        is_concerned: impl Fn(Work) -> bool,
    ) -> Option<Error> {
        self.find(&|work, failed| failed.number > failures && is_concerned(work))
    }

    pub(in crate::db) fn out_of_patience(&self, is_concerned: impl Fn(Work) -> bool) -> Option<Error> {
        let now = self.now();
        self.find(&|work, failed| now.duration_since(failed.since) >= PATIENCE && is_concerned(work))
    }

    fn is_any(&self, is_wanted: &dyn Fn(Work, &Failed) -> bool) -> bool {
        !self.is_empty() && lock(&self.failed).iter().any(|(work, failed)| is_wanted(*work, failed))
    }

    fn find(&self, is_wanted: &dyn Fn(Work, &Failed) -> bool) -> Option<Error> {
        if self.is_empty() {
            return None;
        }
        let failed = lock(&self.failed);
        let wanted = failed.iter().filter(|(work, failed)| is_wanted(**work, failed));
        wanted.min_by_key(|(_, failed)| failed.since).map(|(_, failed)| failed.error.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::db::Db;
    use crate::db::queues::workers::Jobs;
    use crate::fs::{MemFs, Op};
    use crate::options::{KeyspaceOptions, Options};

    impl Retry {
        fn advance(&self, by: Duration) {
            self.ahead.fetch_add(by.as_millis() as u64, Ordering::Relaxed);
        }
    }

    const FLUSH: Work = Work::Flush(1);

    const MEMTABLE_BYTES: usize = 4 << 10;

    fn error(text: &'static str) -> Error {
        Error::io("append to", Path::new("a"), io::Error::other(text))
    }

    #[test]
    fn the_delay_doubles_from_50_milliseconds_to_four_seconds_and_begins_anew() {
        let retry = Retry::new(Flag::default());
        let delays: Vec<u128> = (0..9)
            .map(|_| {
                retry.put_off(FLUSH, error("full"));
                lock(&retry.failed)[&FLUSH].delay.as_millis()
            })
            .collect();
        assert_eq!(delays, [50, 100, 200, 400, 800, 1600, 3200, 4000, 4000]);
        assert!(!retry.is_due(FLUSH) && retry.is_due(Work::Compact(1)) && retry.is_due(Work::Flush(2)));
        retry.advance(DELAY_MAX);
        assert!(retry.is_due(FLUSH) && retry.next_due(false) == Some(Duration::ZERO));
        assert_eq!((retry.take_due(), retry.take_due(), retry.next_due(false)), (vec![1], vec![], None));
        retry.done(FLUSH);
        assert!(retry.error().is_none() && retry.next_due(false).is_none());
        retry.put_off(FLUSH, error("full"));
        assert_eq!(lock(&retry.failed)[&FLUSH].delay, DELAY_MIN);
    }

    #[test]
    fn while_writing_is_suspended_no_thread_wakes_for_work_that_cannot_be_done() {
        let retry = Retry::new(Flag::default());
        retry.put_off(FLUSH, error("full"));
        retry.advance(DELAY_MAX);
        assert_eq!(retry.next_due(false), Some(Duration::ZERO));
        retry.put_off(Work::Resume, error("full"));
        assert!(retry.next_due(false) > Some(Duration::ZERO));
        retry.put_off(Work::BeginLog, error("full"));
        retry.done(Work::Resume);
        retry.done(FLUSH);
        assert_eq!(retry.next_due(false), None, "the next group of writers begins a log");
    }

    #[test]
    fn once_writing_has_ended_no_thread_wakes_for_more_than_the_removal_of_files() {
        let fs = MemFs::new();
        let (db, full) = store(&fs, 0, MEMTABLE_BYTES);
        let engine = db.engine();
        full.store(true, Ordering::SeqCst);
        db.put("k", "v").unwrap();
        assert!(is_broken(&db.flush().unwrap_err()));
        engine.retry.advance(DELAY_MAX);
        assert_eq!(engine.until_next_work(Jobs::All), Some(Duration::ZERO));
        let lost = io::Error::other("lost");
        engine.fail(Error::Panicked { during: "a test", message: "".into() });
        assert_eq!(engine.until_next_work(Jobs::All), None);
        engine.retry.put_off(Work::Remove, Error::io("remove", Path::new("a"), lost));
        assert!(engine.until_next_work(Jobs::All) > Some(Duration::ZERO));
    }

    #[test]
    fn work_is_due_at_once_for_a_caller_and_after_the_shortest_delay_for_room() {
        let retry = Retry::new(Flag::default());
        (0..5).for_each(|_| retry.put_off(FLUSH, error("full")));
        retry.note_room();
        assert!(!retry.is_due(FLUSH));
        retry.advance(DELAY_MIN);
        assert!(retry.is_due(FLUSH));
        retry.put_off(FLUSH, error("full"));
        retry.at_once();
        assert!(retry.is_due(FLUSH));
        retry.note_room();
        assert!(retry.is_due(FLUSH), "a caller waits for it");
        retry.put_off(FLUSH, error("full"));
        assert_eq!(lock(&retry.failed)[&FLUSH].delay, Duration::from_millis(3200));
    }

    #[test]
    fn the_error_told_is_that_which_has_lasted_longest_and_new_ones_can_be_told_apart() {
        let retry = Retry::new(Flag::default());
        retry.put_off(Work::Compact(1), error("first"));
        retry.advance(Duration::from_secs(1));
        let before = retry.failures();
        retry.put_off(FLUSH, error("second"));
        let text = |error: Option<Error>| error.unwrap().to_string();
        assert!(text(retry.error()).ends_with("first"));
        assert!(text(retry.failed_since(before, |_| true)).ends_with("second"));
        assert!(retry.failed_since(before, |work| work != FLUSH).is_none());
        retry.advance(PATIENCE - Duration::from_secs(1));
        assert!(text(retry.out_of_patience(|_| true)).ends_with("first"));
        assert!(retry.out_of_patience(|work| work == FLUSH).is_none());
        retry.forget(1);
        assert!(retry.error().is_none());
    }

    /// A store in which no table can be created while the flag is set.
    fn store(fs: &MemFs, threads: usize, memtable_bytes: usize) -> (Db, Arc<AtomicBool>) {
        let is_full = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_full);
        fs.observe(move |_, op| match op {
            Op::Create(path)
                if flag.load(Ordering::SeqCst) && path.extension().is_some_and(|end| end == "sst") =>
            {
                Err(io::Error::other("broken"))
            }
            _ => Ok(()),
        });
        let keyspace = KeyspaceOptions::new().memtable_bytes(memtable_bytes);
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(threads);
        (options.memory_budget(1 << 20).default_keyspace(keyspace).open("/db").unwrap(), is_full)
    }

    /// Writes until a write fails.
    fn fill(db: &Db) -> Error {
        (0..20_000u32).find_map(|n| db.put(n.to_be_bytes(), [7; 200]).err()).expect("there is no room")
    }

    fn is_broken(error: &Error) -> bool {
        matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::Other)
    }

    /// A writer waits until `immutables` memtables cannot be flushed, and gets the error after a minute.
    fn check_patience(memtable_bytes: usize, immutables: u64) {
        let fs = MemFs::new();
        let (db, full) = store(&fs, 2, memtable_bytes);
        full.store(true, Ordering::SeqCst);
        let retry = &db.engine().retry;
        let failed = std::thread::scope(|scope| {
            let (ends, ended) = mpsc::channel();
            let writer = db.clone();
            scope.spawn(move || ends.send(fill(&writer)).unwrap());
            let did_wait = || ended.recv_timeout(Duration::from_millis(2)).is_err();
            while retry.failures() < 2 || db.stats().keyspaces[0].immutable_memtables < immutables {
                assert!(did_wait(), "the writer does not wait");
            }
            assert!(is_broken(&db.background_error().unwrap()) && did_wait());
            retry.advance(PATIENCE);
            let failed = ended.recv_timeout(Duration::from_secs(30));
            full.store(false, Ordering::SeqCst);
            failed.expect("the writer waits no longer")
        });
        assert!(is_broken(&failed), "{failed}");
        assert!(db.stats().disabled.is_none());
        // An attempt that began without disk space may still fail.
        assert!((0..3).any(|_| db.flush().is_ok()));
        db.settle().unwrap();
        assert!(db.background_error().is_none() && db.stats().background_failures >= 2);
        db.put("k", "v").unwrap();
    }

    #[test]
    fn writers_that_wait_for_a_failing_flush_get_its_error_after_a_minute_and_then_go_on() {
        check_patience(MEMTABLE_BYTES, 3);
    }

    #[test]
    fn writers_that_wait_for_memory_of_a_failing_flush_get_its_error_after_a_minute() {
        check_patience(1 << 20, 1);
    }

    #[test]
    fn a_writer_that_waits_for_the_first_files_of_a_closed_store_gets_their_error_after_a_minute() {
        let fs = MemFs::new();
        let (db, _) = store(&fs, 2, 1 << 20);
        db.put("most of the memory", vec![7; 200 << 10]).unwrap();
        db.close().unwrap();
        let full = Arc::new(AtomicBool::new(true));
        let flag = Arc::clone(&full);
        fs.observe(move |_, op| match op {
            Op::Create(_) if flag.load(Ordering::SeqCst) => Err(io::Error::other("broken")),
            _ => Ok(()),
        });
        let keyspace = KeyspaceOptions::new().memtable_bytes(1 << 20);
        let options = Options::new().fs(Arc::new(fs.clone())).memory_budget(1 << 20).background_threads(2);
        let db = options.default_keyspace(keyspace).open("/db").unwrap();
        let retry = &db.engine().retry;
        let failed = std::thread::scope(|scope| {
            let (ends, ended) = mpsc::channel();
            let writer = db.clone();
            scope.spawn(move || ends.send(writer.put("more", vec![7; 100 << 10])).unwrap());
            let failures = (0..10_000).find(|_| {
                assert!(ended.recv_timeout(Duration::from_millis(1)).is_err(), "the writer does not wait");
                retry.failures() >= 2
            });
            retry.advance(PATIENCE);
            let failed = ended.recv_timeout(Duration::from_secs(30));
            full.store(false, Ordering::SeqCst);
            assert!(failures.is_some(), "no failure is told");
            failed.expect("the writer waits no longer").unwrap_err()
        });
        assert!(failed.to_string().contains("broken"), "{failed}");
        retry.advance(DELAY_MAX);
        db.put("more", vec![7; 100 << 10]).unwrap();
        db.settle().unwrap();
        assert!(db.background_error().is_none());
    }

    #[test]
    fn without_threads_a_writer_gets_the_error_of_the_flush_it_tried_at_once() {
        let fs = MemFs::new();
        let (db, full) = store(&fs, 0, MEMTABLE_BYTES);
        full.store(true, Ordering::SeqCst);
        let failed = fill(&db);
        assert!(is_broken(&failed), "{failed}");
        assert!(is_broken(&db.flush().unwrap_err()) && is_broken(&db.settle().unwrap_err()));
        assert!(!db.step().unwrap(), "the flush is put off");
        db.engine().retry.advance(DELAY_MAX);
        assert!(is_broken(&db.step().unwrap_err()));
        full.store(false, Ordering::SeqCst);
        db.put("k", "v").unwrap();
        db.settle().unwrap();
        assert!(db.background_error().is_none());
    }
}
