//! Work that failed and is tried again: what failed, since when, and when it is due.
//!
//! Background work that fails before its edit is appended removes what it began and is put off: for 50 ms
//! after the first failure, twice as long after each further one, at most 4 s. It is due at once when files
//! were removed or a caller waits for it. Until it succeeds, its error is told
//! ([`Db::background_error`](crate::Db::background_error), `stats`, `tracing`), and writers are slowed down.
//! A writer that waits for work which has been failing for 60 s gets the error.
//!
//! Each kind of work of each keyspace is put off by itself, so that the others go on.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::reservations::{Job, Upkeep};
use crate::batch::KeyspaceId;
use crate::db::state::failure::is_out_of_space;
use crate::db::state::lifecycle::Flag;
use crate::error::Error;
use crate::sync::lock;

/// How long work is put off after its first failure.
const DELAY_MIN: Duration = Duration::from_millis(50);

/// The longest time for which work is put off.
const DELAY_MAX: Duration = Duration::from_secs(4);

/// How long writers wait for work that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Work that can fail and be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::db) enum Work {
    Flush(KeyspaceId),
    Compact(KeyspaceId),
    Refilter(KeyspaceId),
    /// Going on with a new log and a new manifest after an append failed.
    Resume,
    /// Beginning the next log, so that memtables can be sealed.
    BeginLog,
    /// Preparing the next log. The leader can do without it.
    PrepareLog,
    /// Replacing a manifest that has become long.
    ReplaceManifest,
    /// Raising horizons.
    Expire,
    /// Making the file `RESERVE`, and finding out whether the disk has space again.
    ReserveFile,
    /// Removing obsolete files.
    Remove,
}

impl Work {
    /// The work that a job does, if it is one that is tried again. Of flushes that are done together it is the
    /// first one, the only one whose error ends the job: none of the others was failing before.
    pub(in crate::db) fn of(job: &Job) -> Option<Self> {
        match job {
            Job::Flush(memtables) => memtables.first().map(|(tree, _)| Self::Flush(tree.id)),
            Job::Compact(tree, _) => Some(Self::Compact(tree.id)),
            Job::Refilter(tree, _) => Some(Self::Refilter(tree.id)),
            Job::Upkeep(Upkeep::Expire) | Job::Drop(_) => Some(Self::Expire),
            Job::Upkeep(_) | Job::Residency(_) | Job::CompactRange(..) => None,
        }
    }

    /// Whether the background tries it again. Beginning a log or replacing a manifest is tried when that is next
    /// needed.
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

/// Work that failed.
#[derive(Debug)]
struct Failed {
    /// The newest failure, and its number.
    error: Error,
    number: u64,
    at: Instant,
    /// The first of the failures in a row.
    since: Instant,
    delay: Duration,
    due: Instant,
    /// Whether the search for jobs has been told that it is due.
    is_taken: bool,
}

impl Failed {
    fn set_due(&mut self, due: Instant) {
        self.due = due;
        self.is_taken = false;
    }
}

/// The work that failed and has not succeeded since.
pub(in crate::db) struct Retry {
    failed: Mutex<BTreeMap<Work, Failed>>,
    /// Whether there is any, readable without the lock.
    any: Flag,
    /// Failures so far.
    failures: AtomicU64,
    /// Tests set the clock ahead by so many milliseconds.
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

    /// Changes what failed, if anything did.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<Work, Failed>)) {
        if !self.is_empty() {
            let mut failed = lock(&self.failed);
            change(&mut failed);
            self.any.set(!failed.is_empty());
        }
    }

    /// How many failures there were so far.
    pub(in crate::db) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Counts a failure that is not tried again as work of its own.
    pub(in crate::db) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// Puts work off that failed.
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

    /// To be called when work was done, or is not needed any more.
    pub(in crate::db) fn done(&self, work: Work) {
        self.change(|failed| drop(failed.remove(&work)));
    }

    /// Forgets the work of a keyspace that does not exist any more.
    pub(in crate::db) fn forget(&self, keyspace: KeyspaceId) {
        self.change(|failed| failed.retain(|work, _| work.keyspace() != Some(keyspace)));
    }

    /// The keyspaces with work that has become due since the last call.
    pub(in crate::db) fn take_due(&self) -> Vec<KeyspaceId> {
        let mut due = Vec::new();
        let now = self.now();
        self.change(|failed| {
            for (work, failed) in failed.iter_mut().filter(|(_, failed)| failed.due <= now) {
                // Who searches sees that such work for the store is due, and may have to do other work first.
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

    /// Whether work may be tried now.
    pub(in crate::db) fn is_due(&self, work: Work) -> bool {
        self.is_empty() || lock(&self.failed).get(&work).is_none_or(|failed| failed.due <= self.now())
    }

    /// How long until the background has work that is put off now. While writing is suspended, it only resumes
    /// writing and removes files; when writing has ended, it only removes files.
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

    /// How long until this work is due, if it is put off.
    pub(in crate::db) fn due_in(&self, work: Work) -> Option<Duration> {
        let failed = lock(&self.failed);
        failed.get(&work).map(|failed| failed.due.saturating_duration_since(self.now()))
    }

    /// Makes all work due that a caller may wait for: all but `RESERVE`. What fails again is put off for as
    /// long as it would be otherwise.
    pub(in crate::db) fn at_once(&self) {
        self.change(|failed| {
            let awaited = failed.iter_mut().filter(|(work, _)| **work != Work::ReserveFile);
            awaited.for_each(|(_, failed)| failed.set_due(failed.at));
        });
    }

    /// Makes this work due, because a caller waits for it.
    pub(in crate::db) fn work_at_once(&self, work: Work) {
        self.change(|failed| {
            failed.get_mut(&work).into_iter().for_each(|failed| failed.set_due(failed.at));
        });
    }

    /// Makes all work due, because files were removed. Work that failed just now waits for the shortest
    /// delay, since the files may be what it left, unless a caller waits for it.
    pub(in crate::db) fn note_room(&self) {
        self.change(|failed| {
            failed.values_mut().for_each(|failed| failed.set_due(failed.due.min(failed.at + DELAY_MIN)));
        });
    }

    /// The error of the work that has been failing for longest.
    pub(in crate::db) fn error(&self) -> Option<Error> {
        self.find(|_, _| true)
    }

    /// Whether some of this work is failing.
    pub(in crate::db) fn is_failing(&self, is_concerned: impl Fn(Work) -> bool) -> bool {
        !self.is_empty() && lock(&self.failed).keys().any(|work| is_concerned(*work))
    }

    /// Whether some of this work found no room on the disk.
    pub(in crate::db) fn is_short_of_space(&self, is_concerned: impl Fn(Work) -> bool) -> bool {
        self.find(|work, failed| is_concerned(work) && is_out_of_space(&failed.error)).is_some()
    }

    /// Whether a flush, a compaction or beginning a log has found no room on the disk, for the first time in a row.
    pub(in crate::db) fn is_newly_short_of_space(&self) -> bool {
        let frees_space = |work| matches!(work, Work::Flush(_) | Work::Compact(_) | Work::BeginLog);
        self.find(|work, failed| {
            frees_space(work) && failed.delay == DELAY_MIN && is_out_of_space(&failed.error)
        })
        .is_some()
    }

    /// The error of such work that has failed since there were `failures`.
    pub(in crate::db) fn failed_since(
        &self,
        failures: u64,
        is_concerned: impl Fn(Work) -> bool,
    ) -> Option<Error> {
        self.find(|work, failed| failed.number > failures && is_concerned(work))
    }

    /// The error of such work that has been failing for longer than writers wait.
    pub(in crate::db) fn out_of_patience(&self, is_concerned: impl Fn(Work) -> bool) -> Option<Error> {
        let now = self.now();
        self.find(|work, failed| now.duration_since(failed.since) >= PATIENCE && is_concerned(work))
    }

    fn find(&self, is_wanted: impl Fn(Work, &Failed) -> bool) -> Option<Error> {
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
        /// Sets the clock ahead.
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

    /// A store in which no table can be made while the flag is set.
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

    /// A writer waits until so many memtables cannot be flushed, and gets the error after a minute.
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
            // The writer must end, also if the test has failed.
            full.store(false, Ordering::SeqCst);
            failed.expect("the writer waits no longer")
        });
        assert!(is_broken(&failed), "{failed}");
        assert!(db.stats().disabled.is_none());
        // An attempt that began while there was no room may still fail.
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
            // The writer must end, also if the test has failed.
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
