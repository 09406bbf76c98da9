//! The next log, prepared in the background, so that writers do not wait for its syncs and edit.
//!
//! 1. *want*: memtables become half full ([`Engine::want_log_for`]).
//! 2. *prepare*: a thread creates and syncs the file and publishes the edit ([`Engine::prepare_log`]).
//! 3. *begin*: when a memtable is full, the leader ends the active log durably and continues in the next one
//!    ([`Engine::begin_log`]).
//! 4. *state the end*: the next edit first states the end of the previous log; a background job publishes an edit
//!    at once.
//!
//! If no log is prepared, the leader creates one, or waits for a thread that is creating one.
//!
//! Recovery ignores a named log without records (`recover`). Resuming replaces it (`resume`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::new_generation::{create_log, log_created};
use crate::db::engine::Engine;
use crate::db::queues::retry::Work;
use crate::db::state::keyspace::change::Change;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::next_log::NewLog;
use crate::error::Result;
use crate::filename::FileName;
use crate::sync::lock;

const LOOK_BYTES: u64 = 1 << 10;

impl Engine {
    /// Requests the next log if one of these memtables is half full, or if all memtables together are. Also checks the
    /// disk if due. `appended` bytes of the log end at `offset`. Called by the leader only.
    #[inline]
    pub(in crate::db) fn want_log_for<'t>(
        &self,
        touched: impl Iterator<Item = &'t [Arc<Tree>]>,
        offset: u64,
        appended: u64,
    ) {
        let has_looked = offset / LOOK_BYTES == offset.saturating_sub(appended) / LOOK_BYTES;
        if has_looked {
            return;
        }
        self.look_at_disk_if_due();
        if self.next_log.is_wanted.load(Ordering::Relaxed) {
            return;
        }
        self.want_log_if_half_full(touched.flatten());
    }

    #[inline(never)]
    fn want_log_if_half_full<'t>(&self, mut touched: impl Iterator<Item = &'t Arc<Tree>>) {
        let memory = &self.context.memory;
        let is_half_full = |tree: &Arc<Tree>| tree.active_bytes() >= tree.memtable_bytes() / 2;
        if touched.any(is_half_full) || memory.memtables() >= memory.memtables_max() / 2 {
            self.next_log.is_wanted.store(true, Ordering::Relaxed);
            self.background.notify();
        }
    }

    pub(in crate::db) fn has_log_work(&self) -> bool {
        let next = &self.next_log;
        let lacks_next = || next.is_wanted.load(Ordering::Relaxed) && !next.is_prepared();
        self.retry.is_due(Work::PrepareLog) && (next.ended().is_some() || lacks_next())
    }

    /// Creates the next log. The edit also states the end of the previous log. On failure schedules a retry and
    /// returns `false`.
    pub(in crate::db) fn prepare_log(&self) -> bool {
        match self.try_prepare_log().map_err(|error| self.fail_if_final(error)) {
            Ok(()) => self.retry.done(Work::PrepareLog),
            Err(error) if self.check_writable().is_ok() && !self.lifecycle.is_suspended() => {
                self.give_up_reserve_file(&error);
                self.put_off(Work::PrepareLog, error);
                return false;
            }
            Err(_) => {}
        }
        true
    }

    fn try_prepare_log(&self) -> Result<()> {
        if self.next_log.ended().is_some() {
            self.publish(Vec::new(), Change::None)?;
        }
        let mut prepared = lock(&self.next_log.prepared);
        if prepared.is_some() || !self.next_log.is_wanted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let log = create_log(&self.files)?;
        let name = FileName::Log(log.number);
        self.name_log(&log).inspect_err(|_| {
            if self.lifecycle.is_suspended() {
                self.lifecycle.keep_file(name);
            } else if !self.lifecycle.has_failed() {
                self.files.obsolete.add(name);
            }
        })?;
        tracing::debug!(log = %name, "prepared a log");
        *prepared = Some(log);
        Ok(())
    }

    fn name_log(&self, log: &NewLog) -> Result<()> {
        self.publish(vec![log_created(log, self.log().active())], Change::None).map(drop)
    }

    /// Called by the leader only.
    pub(in crate::db) fn begin_log(&self) -> Result<()> {
        let mut prepared = lock(&self.next_log.prepared);
        let is_named = prepared.is_some();
        let created = prepared.take().map_or_else(|| create_log(&self.files), Ok);
        let next = created.map_err(|error| self.fail_if_final(error))?;
        let name = FileName::Log(next.number);
        let ended = self.end_active().and_then(|ended| {
            *lock(&self.next_log.ended) = Some(ended);
            if is_named { Ok(()) } else { self.name_log(&next) }
        });
        ended.map_err(|error| {
            // The manifest may name the new log, and the old one accepts no appends.
            self.lifecycle.keep_file(name);
            self.suspend(error)
        })?;
        self.activate(Some(next)).map_err(|error| self.suspend(error))?;
        self.next_log.is_wanted.store(false, Ordering::Relaxed);
        tracing::debug!(log = %name, "began a log");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::AtomicBool;
    use std::sync::{Mutex, mpsc};
    use std::time::Duration;

    use super::*;
    use crate::ManifestCondition;
    use crate::batch::WriteBatch;
    use crate::db::handles::store::Db;
    use crate::db::state::durability::Durability;
    use crate::db::state::switch_points::in_order;
    use crate::error::Error;
    use crate::file_header::HEADER_BYTES;
    use crate::fs::{CrashPolicy, Fs, MemFs, Op};
    use crate::options::{KeyspaceOptions, Options};

    const DIR: &str = "/db";

    fn options(fs: &MemFs) -> Options {
        let keyspace = KeyspaceOptions::new().memtable_bytes(64 << 10);
        Options::new().fs(Arc::new(fs.clone())).background_threads(0).default_keyspace(keyspace)
    }

    fn open(fs: &MemFs) -> Db {
        options(fs).open(DIR).unwrap()
    }

    fn log(number: u64) -> PathBuf {
        FileName::Log(number).path(Path::new(DIR))
    }

    fn bytes(fs: &MemFs, path: &Path) -> Vec<u8> {
        let found = fs.files(Path::new(DIR)).into_iter().find(|(other, _)| other == path);
        found.expect("the file is there").1
    }

    fn active(db: &Db) -> u64 {
        db.engine().log().active()
    }

    fn prepared(db: &Db) -> Option<u64> {
        lock(&db.engine().next_log.prepared).as_ref().map(|log| log.number)
    }

    /// Writes until `done` returns true. Returns the number of entries.
    fn fill(db: &Db, done: impl Fn() -> bool) -> u32 {
        let put = |n: &u32| db.put(n.to_be_bytes(), [7; 500]).unwrap();
        let count = (0..5000u32).take_while(|_| !done()).inspect(put).count();
        assert!(done(), "nothing happens");
        count as u32
    }

    /// A store with one synced entry and unsynced ones, and the numbers of its log and the next one.
    fn with_next_log(fs: &MemFs) -> (Db, u64, u64) {
        let db = open(fs);
        let mut batch = WriteBatch::new();
        batch.put("synced", "value");
        db.write_with(batch, Durability::Synced).unwrap();
        fill(&db, || db.engine().has_log_work());
        assert!(db.step().unwrap());
        let (number, next) = (active(&db), prepared(&db).expect("a log was prepared"));
        (db, number, next)
    }

    fn with_begun_log(fs: &MemFs) -> (Db, u64, u64) {
        let (db, number, next) = with_next_log(fs);
        fill(&db, || active(&db) != number);
        assert_eq!(active(&db), next);
        (db, number, next)
    }

    fn is_end_stated(db: &Db, number: u64) -> bool {
        db.engine().manifest.lock().as_ref().unwrap().state().logs[&number].end.is_some()
    }

    /// Returns the file that is reported corrupt by opening (for reading and for writing) and by verifying.
    fn damaged_file(fs: &MemFs) -> PathBuf {
        let verified = options(fs).verify(DIR).unwrap();
        let read_only = options(fs).read_only().open(DIR).expect_err("it is damaged");
        let error = options(fs).open(DIR).expect_err("it is damaged");
        assert!(matches!(error, Error::Corruption { .. }), "{error}");
        assert_eq!(read_only.to_string(), error.to_string());
        assert_eq!(verified.damage[0].error.to_string(), error.to_string());
        error.file().expect("a file").to_path_buf()
    }

    /// Opens an intact store for reading and for writing. Returns the number of entries and of dropped tails.
    fn opens(fs: &MemFs) -> (usize, usize) {
        assert!(options(fs).verify(DIR).unwrap().damage.is_empty());
        let entries = options(fs).read_only().open(DIR).unwrap().iter().count();
        let db = open(fs);
        assert!(db.contains("synced").unwrap() && db.verify().unwrap().damage.is_empty());
        assert_eq!(db.iter().count(), entries);
        (entries, db.open_report().dropped.len())
    }

    #[test]
    fn a_put_that_fills_a_memtable_only_syncs_the_end_of_its_log() {
        let fs = MemFs::new();
        let (db, number, next) = with_next_log(&fs);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let ops = Arc::clone(&seen);
        fs.observe(move |_, op| {
            let is_log = |path: &Path| path.extension().is_some_and(|end| end == "wal");
            match op {
                Op::Append(path, _) if is_log(path) => {}
                op => lock(&ops).push(format!("{op:?}")),
            }
            Ok(())
        });
        fill(&db, || active(&db) != number);
        // The log was synced before, so it has preallocated space, which closing cuts off.
        let path = log(number);
        let set_len = format!("SetLen({path:?}, {})", bytes(&fs, &path).len());
        assert_eq!(*lock(&seen), [set_len, format!("Sync({path:?})")]);
        assert_eq!(active(&db), next);
        assert!(!is_end_stated(&db, number));
        db.step().unwrap();
        assert!(is_end_stated(&db, number) && db.stats().flushes == 0);
        while db.step().unwrap() {}
        assert_eq!((db.stats().flushes, bytes(&fs, &log(next)).len() > HEADER_BYTES), (1, true));
    }

    #[test]
    fn a_writer_begins_a_log_itself_while_the_only_thread_is_busy() {
        let fs = MemFs::new();
        let db = options(&fs).background_threads(1).open(DIR).unwrap();
        let (begins, begun) = mpsc::channel();
        let (opens, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        fs.observe(move |_, op| {
            if matches!(op, Op::Create(path) if path.extension().is_some_and(|end| end == "sst")) {
                let _ = begins.send(());
                let _ = lock(&gate).recv();
            }
            Ok(())
        });
        let wait = Duration::from_secs(60);
        let first = active(&db);
        fill(&db, || active(&db) != first);
        begun.recv_timeout(wait).expect("the thread flushes");
        std::thread::scope(|scope| {
            let (tells, told) = mpsc::channel();
            let db = &db;
            scope.spawn(move || {
                for _ in 0..2 {
                    let before = active(db);
                    fill(db, || active(db) != before);
                }
                tells.send(())
            });
            let is_done = told.recv_timeout(wait);
            drop(opens);
            is_done.expect("writers wait for the thread");
        });
        db.flush().unwrap();
    }

    #[test]
    fn a_store_with_an_unused_log_opens_whatever_a_power_loss_leaves() {
        let fs = MemFs::new();
        let (db, number, next) = with_next_log(&fs);
        let entries = db.iter().count();
        let dropped = fs.crash(CrashPolicy::DropUnsynced);
        assert_eq!(bytes(&dropped, &log(next)).len(), HEADER_BYTES);
        assert_eq!(opens(&dropped), (1, 0));
        assert_eq!(opens(&fs.crash(CrashPolicy::KeepAll)), (entries, 0));
        for seed in 0..20 {
            opens(&fs.crash(CrashPolicy::Random(seed)));
        }
        let torn = fs.crash(CrashPolicy::KeepAll);
        let mut cut = bytes(&torn, &log(number));
        let room = cut.iter().rev().take_while(|&&byte| byte == 0).count();
        assert!(room > 1000, "it was synced");
        cut.truncate(cut.len() - room - 5);
        torn.overwrite(&log(number), cut);
        assert_eq!(opens(&torn), (entries - 1, 1));
        assert_eq!(fs.files(Path::new(DIR)).len(), 5, "LOCK, CURRENT, a manifest, two logs");
    }

    #[test]
    fn zeros_behind_the_last_record_of_a_log_are_no_torn_tail_and_a_closed_log_has_none() {
        let fs = MemFs::new();
        let (db, number, _) = with_next_log(&fs);
        let entries = db.iter().count();
        let room = |fs: &MemFs| bytes(fs, &log(number)).iter().rev().take_while(|&&byte| byte == 0).count();
        let died = fs.crash(CrashPolicy::KeepAll);
        assert!(room(&died) > 1000);
        assert_eq!(opens(&died), (entries, 0));
        db.close().unwrap();
        let closed = || fs.crash(CrashPolicy::DropUnsynced);
        assert!(room(&closed()) < 8);
        // Whether the shorter length is durable does not matter.
        let longer = [&bytes(&closed(), &log(number))[..], &[0; 50_000]].concat();
        for (last, dropped) in [(0, 0), (1, 1)] {
            let image = closed();
            image.overwrite(&log(number), [&longer[..], &[last]].concat());
            assert_eq!(opens(&image), (entries, dropped));
        }
    }

    #[test]
    fn an_unused_log_that_is_missing_or_damaged_is_noticed() {
        let fs = MemFs::new();
        let (db, number, next) = with_next_log(&fs);
        let image = || fs.crash(CrashPolicy::KeepAll);
        let missing = image();
        missing.remove(&log(next)).unwrap();
        assert_eq!(damaged_file(&missing), log(next));
        let header = bytes(&fs, &log(next));
        for damaged in [&header[..0], &header[..30], &[&header[..50], &[1; 14]].concat()] {
            let image = image();
            image.overwrite(&log(next), damaged.to_vec());
            assert_eq!(damaged_file(&image), log(next));
        }
        // A record was appended to the next log, so the previous log was complete.
        let appended = image();
        appended.overwrite(&log(next), [&header[..], &[0; 8]].concat());
        assert_eq!(damaged_file(&appended), log(number));
        db.close().unwrap();
        // A closed store states the end of its log, so later bytes do not matter.
        let closed = fs.crash(CrashPolicy::DropUnsynced);
        let mut cut = bytes(&closed, &log(number));
        opens(&closed.crash(CrashPolicy::KeepAll));
        cut.truncate(cut.len() - 40);
        closed.overwrite(&log(number), cut);
        assert_eq!(damaged_file(&closed), log(number));
    }

    #[test]
    fn a_log_that_ended_is_complete_once_the_next_is_used_or_its_end_is_stated() {
        let fs = MemFs::new();
        let (db, number, next) = with_begun_log(&fs);
        let entries = db.iter().count();
        let image = |fs: &MemFs, next_len: usize, cut_bytes: usize| {
            let image = fs.crash(CrashPolicy::KeepAll);
            for (number, len) in [(next, next_len), (number, bytes(fs, &log(number)).len() - cut_bytes)] {
                let mut bytes = bytes(fs, &log(number));
                bytes.truncate(len);
                image.overwrite(&log(number), bytes);
            }
            image
        };
        // The first promise of the next log was not synced.
        assert_eq!(opens(&fs.crash(CrashPolicy::DropUnsynced)), (entries, 0));
        assert_eq!(opens(&image(&fs, HEADER_BYTES, 0)), (entries, 0));
        assert_eq!(opens(&image(&fs, HEADER_BYTES + 5, 0)), (entries, 1));
        // The close record is lost.
        assert_eq!(damaged_file(&image(&fs, HEADER_BYTES + 5, 40)), log(number));
        assert!(!is_end_stated(&db, number));
        db.step().unwrap();
        assert!(is_end_stated(&db, number));
        assert_eq!(damaged_file(&image(&fs, HEADER_BYTES, 40)), log(number));
        assert_eq!(opens(&image(&fs, HEADER_BYTES, 0)), (entries, 0));
    }

    #[test]
    fn an_unused_log_makes_no_key_doubtful_when_a_store_is_repaired() {
        let fs = MemFs::new();
        let (db, ..) = with_next_log(&fs);
        let is_manifest = |path: &Path| path.to_string_lossy().contains("MANIFEST");
        let manifest =
            |fs: &MemFs| fs.files(Path::new(DIR)).into_iter().find(|(path, _)| is_manifest(path)).unwrap();
        let image = fs.crash(CrashPolicy::KeepAll);
        let (entries, report) = (db.iter().count(), options(&image).repair(DIR, "/new").unwrap());
        assert_eq!(report.manifest, ManifestCondition::Whole, "{report:#?}");
        assert_eq!((report.certain_keys(), report.doubtful_keys()), (entries as u64, 0), "{report:#?}");
        assert!(report.lost_writes.is_empty() && report.damage.is_empty(), "{report:#?}");
        // The edit that named it is lost; a promise of the active log shows this.
        db.sync().unwrap();
        let image = fs.crash(CrashPolicy::KeepAll);
        let (path, mut bytes) = manifest(&image);
        let first_edit = u16::from_le_bytes([bytes[68], bytes[69]]) as usize;
        bytes.truncate(64 + (16 + first_edit).next_multiple_of(8));
        image.overwrite(&path, bytes);
        let report = options(&image).repair(DIR, "/new").unwrap();
        assert_eq!(report.manifest, ManifestCondition::Cut, "{report:#?}");
        assert_eq!((report.certain_keys(), report.doubtful_keys()), (entries as u64, 0), "{report:#?}");
        assert!(report.lost_writes.is_empty(), "{report:#?}");
    }

    #[test]
    fn an_edit_that_lets_a_log_go_says_before_how_it_ended_in_every_order() {
        for seed in 0..150 {
            let fs = MemFs::new();
            let (db, ..) = with_begun_log(&fs);
            assert!(db.step().unwrap(), "it says how the log before ended");
            // Another log is prepared, and the active log is empty.
            db.engine().next_log.is_wanted.store(true, Ordering::Relaxed);
            assert!(db.step().unwrap() && prepared(&db).is_some());
            let (entries, before) = (db.iter().count(), active(&db));
            let flush = || db.step().map(drop);
            let begin = || db.engine().begin_log();
            let done = in_order(seed, [&flush as &(dyn Fn() -> Result<()> + Sync), &begin]);
            assert!(done.iter().all(Result::is_ok) && active(&db) > before, "order {seed}: {done:?}");
            while db.step().unwrap_or_else(|error| panic!("order {seed}: {error}")) {}
            assert!(!db.engine().lifecycle.is_suspended(), "order {seed}");
            assert_eq!(opens(&fs.crash(CrashPolicy::DropUnsynced)).0, entries, "order {seed}");
        }
    }

    #[test]
    fn a_store_on_a_full_disk_opens_behind_a_log_whose_end_no_edit_says() {
        let fs = MemFs::new();
        let (db, number, next) = with_begun_log(&fs);
        db.put("last", "value").unwrap();
        let entries = db.iter().count();
        let image = fs.crash(CrashPolicy::KeepAll);
        image.set_room(Some(image.used() + (4 << 10)));
        let db = open(&image);
        assert!(db.open_report().full_disk.is_some() && db.iter().count() == entries);
        let logs = || db.engine().manifest.lock().as_ref().unwrap().state().logs.clone();
        assert_eq!(logs().get(&number).map(|log| log.end.is_some()), Some(false), "{:?}", logs());
        assert!(!logs().contains_key(&next), "what it held was copied");
        for seed in 0..10 {
            let left = image.crash(CrashPolicy::Random(seed));
            left.set_room(None);
            assert_eq!(opens(&left).0, entries);
        }
        image.set_room(None);
        while db.step().unwrap() {}
        db.flush().unwrap();
        while db.step().unwrap() {}
        assert!(!logs().contains_key(&number), "it is in tables");
        assert_eq!(opens(&image.crash(CrashPolicy::DropUnsynced)).0, entries);
    }

    #[test]
    fn a_next_log_that_cannot_be_created_is_told_and_created_when_it_is_needed() {
        let fs = MemFs::new();
        let db = options(&fs).reserve_bytes(0).open(DIR).unwrap();
        let number = active(&db);
        fill(&db, || db.engine().has_log_work());
        fs.observe(|_, op| match op {
            Op::Create(path) if path.extension().is_some_and(|end| end == "wal") => {
                Err(ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        });
        db.step().unwrap();
        assert!(db.background_error().is_some() && prepared(&db).is_none());
        assert_eq!(db.stats().background_failures, 1);
        fs.stop_observing();
        fill(&db, || active(&db) != number);
        assert!(db.background_error().is_none());
        assert!(is_end_stated(&db, number), "the edit that names the new log says so");
    }

    #[test]
    fn when_writing_resumes_the_unused_log_goes_and_nothing_is_lost() {
        for (kind, has_begun) in [
            (ErrorKind::StorageFull, false),
            (ErrorKind::StorageFull, true),
            (ErrorKind::QuotaExceeded, false),
            (ErrorKind::TooManyLinks, false),
            (ErrorKind::TooManyLinks, true),
        ] {
            let fs = MemFs::new();
            let (db, _, next) = if has_begun { with_begun_log(&fs) } else { with_next_log(&fs) };
            let failed = AtomicBool::new(false);
            fs.observe(move |_, op| match op {
                Op::Append(path, _) if path.extension().is_some_and(|end| end == "wal") => {
                    let is_first = !failed.swap(true, Ordering::SeqCst);
                    if is_first { Err(kind.into()) } else { Ok(()) }
                }
                _ => Ok(()),
            });
            let entries = db.iter().count();
            assert!(db.put("fails", "value").is_err());
            assert_eq!(opens(&fs.crash(CrashPolicy::KeepAll)).0, entries);
            db.put("last", "value").unwrap();
            assert!(prepared(&db).is_none() && active(&db) > next, "{kind}");
            while db.step().unwrap() {}
            let image = fs.crash(CrashPolicy::KeepAll);
            assert_eq!(opens(&image), (entries + 1, 0), "{kind}");
            let manifest = db.engine().manifest.lock();
            let logs = &manifest.as_ref().unwrap().state().logs;
            assert!(logs.values().rev().skip(1).all(|log| log.end.is_some()), "{kind}: {logs:?}");
            drop(manifest);
            assert!(db.background_error().is_none());
            db.flush().unwrap();
            while db.step().unwrap() {}
            assert!(fs.open(&log(next)).is_err(), "{kind}");
            db.close().unwrap();
        }
    }
}
