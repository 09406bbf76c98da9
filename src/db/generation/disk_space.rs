//! Disk checks, and the file `RESERVE`.

use std::sync::atomic::Ordering;

use crate::batch::BatchReader;
use crate::db::engine::Engine;
use crate::db::queues::condition::PartMut;
use crate::db::queues::retry::Work;
use crate::db::state::disk_space::need::{Held, Verdict};
use crate::db::state::disk_space::reserve_file::{Found, find, remove_reserve_file, write_reserve_file};
use crate::db::state::failure::is_out_of_space;
use crate::error::{Error, Result};
use crate::key::EntryKind;
use crate::sync::lock;

impl Engine {
    #[inline]
    pub(in crate::db) fn look_at_disk_if_due(&self) {
        if self.disk_space.is_look_due(self.counters.logged_bytes.load(Ordering::Relaxed)) {
            self.look_and_give_way();
        }
    }

    #[cold]
    fn look_and_give_way(&self) {
        if self.look_at_disk().is_some_and(|verdict| verdict.gives_up_file) {
            self.remove_for_space(None);
        }
    }

    pub(in crate::db) fn look_at_disk(&self) -> Option<Verdict> {
        let (held, free) = (self.held(), self.free_bytes().ok()?);
        let space = self.disk_space.space(free, held.files);
        let verdict = space.judge(&held);
        self.disk_space.note(&space, &verdict, self.counters.logged_bytes.load(Ordering::Relaxed));
        if !verdict.takes_puts && !space.is_short {
            self.refuse_puts(None, None);
        } else if verdict.takes_puts && space.is_short && self.is_figure_right(free) {
            self.take_puts();
        }
        Some(verdict)
    }

    fn held(&self) -> Held {
        let (disk, trees) = (&self.disk_space, &self.keyspaces.memtables);
        let logs = self.log.as_ref().map_or(0, |log| log.total_bytes());
        let (compaction, flush) = trees.largest_step();
        Held {
            memtables: self.context.memory.memtables() as u64,
            flush,
            compaction,
            manifest: disk.manifest_bytes(),
            files: disk.table_bytes().saturating_add(logs).saturating_add(disk.manifest_bytes()),
        }
    }

    pub(super) fn free_bytes(&self) -> Result<Option<u64>> {
        let dir = &self.files.dir;
        self.files.fs.free_bytes(dir).map_err(|error| Error::io("find the free space of", dir, error))
    }

    pub(in crate::db) fn background_error(&self) -> Option<Error> {
        self.retry.error().or_else(|| self.disk_space.is_short().then(|| self.full_disk(0)))
    }

    /// Returns the error for a batch of `bytes`.
    pub(in crate::db) fn full_disk(&self, bytes: usize) -> Error {
        self.disk_space.cause().unwrap_or_else(|| self.kept_space(bytes))
    }

    /// Returns an error with the figures of the last disk check.
    fn kept_space(&self, bytes: usize) -> Error {
        let judged = self.disk_space.judged();
        let needed = judged.need.of_batch(bytes as u64, self.disk_space.is_short());
        let free = judged.available.map_or("an unknown size".into(), |free| format!("{} KiB", free >> 10));
        let needed = needed.div_ceil(1 << 10);
        let why = format!(
            "the disk is full: free is {free}, with RESERVE; the write, flushes and compactions need {needed} KiB"
        );
        Error::io(
            "use the space of",
            &self.files.dir,
            std::io::Error::new(std::io::ErrorKind::StorageFull, why),
        )
    }

    /// Whether the free space is known and no operation has contradicted it.
    fn is_figure_right(&self, free: Option<u64>) -> bool {
        free.is_some() && !self.disk_space.has_capacity()
    }

    /// `cause`: an error of the file system.
    fn refuse_puts(&self, cause: Option<&Error>, capacity: Option<u64>) {
        if self.disk_space.set_short(cause, capacity) {
            tracing::warn!(dir = %self.files.dir.display(), error = %self.full_disk(0), "the disk is full: puts are refused");
            self.keyspaces.all().iter().for_each(|tree| tree.mark());
            self.background.notify();
        }
    }

    fn take_puts(&self) {
        self.retry.done(Work::ReserveFile);
        if self.disk_space.set_enough() {
            tracing::info!(dir = %self.files.dir.display(), "the disk has space again: puts are accepted");
            self.background.notify();
        }
    }

    pub(in crate::db) fn give_up_reserve_file(&self, cause: &Error) -> bool {
        is_out_of_space(cause) && self.remove_for_space(Some(cause))
    }

    fn remove_for_space(&self, cause: Option<&Error>) -> bool {
        let _one_at_a_time = lock(&self.disk_space.making);
        let (free, file) = (self.free_bytes().ok().flatten(), self.disk_space.file_bytes());
        let removed = self.remove_reserve_file();
        self.note_full(cause, free, *removed.as_ref().unwrap_or(&file));
        let bytes = removed.unwrap_or_else(|error| {
            if self.retry.is_due(Work::ReserveFile) {
                self.fail_or_put_off(Work::ReserveFile, error);
            }
            0
        });
        if bytes > 0 {
            tracing::warn!(dir = %self.files.dir.display(), bytes, "the disk is full: removed RESERVE");
            self.retry.note_room();
        }
        bytes > 0
    }

    /// `free` and `file` are the free space and the length of `RESERVE` at the failure. A free space that does not
    /// explain the failure is considered wrong.
    pub(in crate::db) fn note_full_disk(&self, cause: &Error, free: Option<u64>, file: u64) {
        self.note_full(Some(cause), free, file);
    }

    fn note_full(&self, cause: Option<&Error>, free: Option<u64>, file: u64) {
        let held = self.held();
        let is_wrong = free.is_none_or(|free| free >= held.need().puts);
        self.refuse_puts(cause, is_wrong.then(|| held.files.saturating_add(file)));
        self.look_at_disk();
    }

    /// Returns `false` while flushes or compactions wait for space, because they free space.
    pub(in crate::db) fn lacks_reserve_file(&self) -> bool {
        let is_wanted = || self.disk_space.is_short() || self.disk_space.wants_file();
        let is_failing = || self.retry.is_failing(|work| work == Work::ReserveFile);
        (is_wanted() || is_failing())
            && self.retry.is_due(Work::ReserveFile)
            && !self.retry.is_short_of_space(|work| matches!(work, Work::Flush(_) | Work::Compact(_)))
    }

    /// Creates `RESERVE` and accepts puts if there is space. On failure schedules a retry and returns `false`.
    pub(in crate::db) fn make_reserve_file(&self) -> bool {
        let _one_at_a_time = lock(&self.disk_space.making);
        if self.lifecycle.is_suspended() {
            return false;
        }
        match self.try_make_reserve_file() {
            Ok(true) => {
                self.retry.done(Work::ReserveFile);
                return true;
            }
            Ok(false) => self.put_off(Work::ReserveFile, self.full_disk(0)),
            Err(error) => {
                if !is_out_of_space(&error) && !self.is_figure_right(self.free_bytes().ok().flatten()) {
                    self.take_puts();
                }
                self.fail_or_put_off(Work::ReserveFile, error);
            }
        }
        false
    }

    fn try_make_reserve_file(&self) -> Result<bool> {
        if find(&*self.files.fs, &self.files.dir, self.files.store_id)? == Found::Others {
            tracing::warn!(dir = %self.files.dir.display(), "RESERVE is a foreign file: the store has no reserve");
            self.disk_space.bar();
        }
        let (held, free) = (self.held(), self.free_bytes()?);
        let verdict = self.disk_space.space(free, held.files).judge(&held);
        self.look_at_disk();
        let is_short = self.disk_space.is_short();
        if is_short && self.is_figure_right(free) {
            return Ok(false);
        }
        // If the free space is unknown, a file of full length proves the space.
        let wanted = if is_short { self.disk_space.proof(&held) } else { verdict.wanted };
        if is_short && free.is_some_and(|free| free < wanted.unwrap_or(0)) {
            self.disk_space.forget_capacity();
            self.look_at_disk();
            return Ok(!self.disk_space.is_short());
        }
        wanted.map_or(Ok(()), |bytes| self.replace_reserve_file(bytes, is_short))?;
        self.take_puts();
        self.look_at_disk();
        Ok(true)
    }

    fn replace_reserve_file(&self, bytes: u64, is_short: bool) -> Result<()> {
        // Appends wait, because the file temporarily takes the space that deletes need.
        let _quiet = is_short.then(|| (self.manifest.lock(), self.log().pause()));
        let before = self.remove_reserve_file()?;
        let written = self.write_reserve_file(bytes);
        let Err(error) = &written else { return Ok(()) };
        let _ = self.remove_reserve_file();
        if before < bytes && self.write_reserve_file(before).is_err() {
            let _ = self.remove_reserve_file();
        }
        if is_out_of_space(error) && !is_short && !self.disk_space.is_set_by_caller() {
            let capacity = self.held().files.saturating_add(self.disk_space.file_bytes());
            self.refuse_puts(Some(error), Some(capacity));
        }
        written
    }

    fn remove_reserve_file(&self) -> Result<u64> {
        let bytes = remove_reserve_file(&*self.files.fs, &self.files.dir, self.files.store_id)?;
        self.disk_space.set_file(0);
        Ok(bytes)
    }

    fn write_reserve_file(&self, bytes: u64) -> Result<()> {
        if bytes > 0 {
            write_reserve_file(&*self.files.fs, &self.files.dir, self.files.store_id, bytes)?;
            self.disk_space.set_file(bytes);
        }
        Ok(())
    }

    pub(in crate::db) fn adjust_reserve_file(&self) {
        self.look_at_disk();
        if self.disk_space.is_short() && self.lacks_reserve_file() {
            self.make_reserve_file();
        }
        self.look_and_give_way();
    }

    pub(in crate::db) fn check_puts(&self, group: &[PartMut<'_>]) -> Result<()> {
        if self.disk_space.is_short() && group.iter().any(|(bytes, _)| has_put(bytes)) {
            return Err(self.full_disk(group.iter().map(|(bytes, _)| bytes.len()).sum()));
        }
        Ok(())
    }
}

pub(in crate::db) fn has_put(batch: &[u8]) -> bool {
    let mut entries = BatchReader::open(batch).into_iter().flatten();
    entries.any(|entry| entry.is_ok_and(|entry| entry.kind == EntryKind::Put))
}
#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::db::Db;
    use crate::filename::FileName;
    use crate::fs::{CrashPolicy, MemFs, Op};
    use crate::options::Options;

    const DIR: &str = "/db";

    fn open(fs: &MemFs, reserve_bytes: u64) -> Db {
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0);
        options.reserve_bytes(reserve_bytes).open(DIR).unwrap()
    }

    fn file(fs: &MemFs) -> Option<Vec<u8>> {
        let files = fs.files(Path::new(DIR)).into_iter();
        files.filter(|(path, _)| path.ends_with("RESERVE")).map(|(_, bytes)| bytes).next()
    }

    fn len(fs: &MemFs) -> usize {
        file(fs).unwrap_or_default().len()
    }

    fn used(fs: &MemFs) -> u64 {
        fs.files(Path::new(DIR)).iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    fn work(db: &Db) {
        db.engine().look_at_disk();
        while db.step().unwrap() {}
    }

    fn full() -> Error {
        Error::io("append to", Path::new(DIR), io::ErrorKind::StorageFull.into())
    }

    /// Limits `RESERVE` to this many bytes without reporting the limit. Counts the bytes written to it.
    fn limit(fs: &MemFs, bytes: usize) -> Arc<AtomicU64> {
        let written = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&written);
        fs.observe(move |fs, op| match op {
            Op::Append(path, added) if path.ends_with("RESERVE") => {
                counted.fetch_add(added.len() as u64, Ordering::Relaxed);
                let fits = len(fs) + added.len() <= bytes;
                if fits { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
            }
            _ => Ok(()),
        });
        written
    }

    /// A store with a `RESERVE` of default length and this many entries.
    fn filled(fs: &MemFs, entries: u32) -> Db {
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open(DIR).unwrap();
        (0..entries).for_each(|n| db.put(n.to_be_bytes(), [n as u8; 100]).unwrap());
        work(&db);
        assert!(len(fs) >= 256 << 10);
        db
    }

    #[test]
    fn the_error_of_a_full_disk_names_the_free_and_the_needed_space() {
        let fs = MemFs::new();
        let db = filled(&fs, 1000);
        fs.set_room(Some(used(&fs) + 5000));
        db.engine().look_at_disk();
        let needed = db.engine().held().need().puts.div_ceil(1024);
        let free = (5000 + len(&fs)) / 1024;
        assert_eq!(
            db.engine().full_disk(0).to_string(),
            format!(
                "cannot use the space of /db: the disk is full: free is {free} KiB, with RESERVE; the write, flushes and \
                 compactions need {needed} KiB"
            )
        );
    }

    #[test]
    fn while_puts_are_refused_their_errors_name_what_is_free_now_and_what_is_enough() {
        let fs = MemFs::new();
        let db = open(&fs, 0);
        (0..1000u32).for_each(|n| db.put(n.to_be_bytes(), [n as u8; 100]).unwrap());
        work(&db);
        // There is no `RESERVE`, so that only this is free.
        let set_free = |kib: u64| fs.set_room(Some(used(&fs) + kib * 1024));
        let figures = |error: Error| {
            let text = error.to_string();
            let after =
                |word: &str| text.split_once(word).unwrap().1.split(' ').next().unwrap().parse::<u64>();
            [after("free is "), after(" need ")].map(Result::unwrap)
        };
        for kib in [40, 31] {
            set_free(kib);
            db.engine().look_at_disk();
            assert_eq!(figures(db.background_error().unwrap())[0], kib);
        }
        let refusal = |bytes: usize| figures(db.put("k", vec![1; bytes]).unwrap_err());
        for kib in [29, 12, 30] {
            set_free(kib);
            assert_eq!(refusal(1)[0], kib);
        }
        for bytes in [1, 1 << 20] {
            set_free(20);
            db.engine().look_at_disk();
            let enough = refusal(bytes)[1];
            assert!(enough > bytes as u64 * 4 / 1024);
            set_free(enough - 1);
            assert_eq!(refusal(bytes), [enough - 1, enough]);
            set_free(enough);
            db.put("k", vec![1; bytes]).unwrap();
        }
    }

    #[test]
    fn a_file_gets_the_length_that_the_caller_wants_only_where_it_leaves_room_for_deletes() {
        let fs = MemFs::new();
        let db = open(&fs, 100_000);
        work(&db);
        assert_eq!(len(&fs), 100_000);
        db.close().unwrap();
        fs.set_room(Some(used(&fs) + 300_000));
        let before = file(&fs);
        let db = open(&fs, 400_000);
        fs.observe(|_, op| match op {
            Op::Create(path) | Op::Remove(path) if path.ends_with("RESERVE") => {
                Err(io::Error::other("touched"))
            }
            _ => Ok(()),
        });
        work(&db);
        db.put("k", "v").unwrap();
        assert!(file(&fs) == before && db.background_error().is_none());
        fs.stop_observing();
        fs.set_room(Some(used(&fs) + 600_000));
        work(&db);
        assert_eq!(len(&fs), 400_000);
        db.close().unwrap();
        for (wanted, expected) in [(50_000, 50_000), (0, 0)] {
            let db = open(&fs, wanted);
            work(&db);
            assert_eq!(len(&fs), expected, "it becomes shorter if the caller wants that");
            db.close().unwrap();
        }
    }

    #[test]
    fn a_file_that_finds_no_room_for_more_is_as_long_as_before_and_is_not_tried_each_time() {
        let fs = MemFs::new();
        let db = open(&fs, 100_000);
        work(&db);
        db.close().unwrap();
        let db = open(&fs, 400_000);
        // The file system reports all of the space as free, but has room for half.
        let (written, start) = (limit(&fs, 200_000), Instant::now());
        (0..3).for_each(|_| work(&db));
        let attempts = 1 + start.elapsed().as_millis() as u64 / 50;
        assert!(len(&fs) == 100_000 && written.load(Ordering::Relaxed) <= attempts * 500_000, "{written:?}");
        db.put("k", "v").unwrap();
        assert!(db.background_error().is_some());
        let _written = limit(&fs, usize::MAX);
        std::thread::sleep(Duration::from_millis(60));
        db.engine().retry.note_room();
        work(&db);
        assert!(len(&fs) == 400_000 && db.background_error().is_none());
    }

    #[test]
    fn puts_end_before_the_space_that_deletes_and_compactions_need() {
        let fs = MemFs::new();
        let db = open(&fs, 0);
        (0..1000u32).for_each(|n| db.put(n.to_be_bytes(), [n as u8; 100]).unwrap());
        let need = db.engine().held().need();
        let set_available = |bytes: u64| fs.set_room(Some(used(&fs) + bytes));
        set_available(need.puts + (16 << 10));
        db.engine().look_at_disk();
        db.put("k", "v").unwrap();
        let need = db.engine().held().need();
        set_available(need.deletes + (16 << 10));
        db.engine().look_at_disk();
        assert!(is_out_of_space(&db.put("k", "v").unwrap_err()) && db.background_error().is_some());
        db.delete("k").unwrap();
        set_available(need.deletes / 2);
        db.engine().look_at_disk();
        assert!(is_out_of_space(&db.delete("l").unwrap_err()));
        fs.set_room(None);
        db.put("k", "v").unwrap();
        assert!(db.background_error().is_none());
    }

    #[test]
    fn where_the_file_system_is_wrong_about_what_is_free_the_file_shows_whether_there_is_space() {
        let fs = MemFs::new();
        let db = filled(&fs, 100);
        let _written = limit(&fs, 0);
        assert!(db.engine().give_up_reserve_file(&full()) && len(&fs) == 0);
        assert!(is_out_of_space(&db.put("k", "v").unwrap_err()));
        db.delete("k").unwrap();
        let _written = limit(&fs, usize::MAX);
        std::thread::sleep(Duration::from_millis(60));
        db.engine().retry.note_room();
        db.put("k", "v").unwrap();
        assert!(len(&fs) > 0 && db.background_error().is_none());
    }

    #[test]
    fn a_store_that_can_make_no_file_where_it_proves_space_takes_no_puts() {
        let fs = MemFs::new();
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open(DIR).unwrap();
        let _written = limit(&fs, 1000);
        work(&db);
        assert!(is_out_of_space(&db.put("k", "v").unwrap_err()) && len(&fs) == 0);
        fs.stop_observing();
        std::thread::sleep(Duration::from_millis(60));
        db.put("k", "v").unwrap();
    }

    #[test]
    fn a_failure_that_has_passed_is_not_told_any_more_where_there_is_no_room_for_the_file() {
        let fs = MemFs::new();
        let db = open(&fs, 1 << 20);
        fs.observe(|_, op| match op {
            Op::Create(path) if path.ends_with("RESERVE") => Err(io::Error::other("broken")),
            _ => Ok(()),
        });
        work(&db);
        assert!(db.background_error().unwrap().to_string().contains("broken"));
        fs.set_room(Some(used(&fs) + (1 << 20)));
        std::thread::sleep(Duration::from_millis(60));
        work(&db);
        assert!(db.background_error().is_none(), "{:?}", db.background_error());
    }

    #[test]
    fn without_threads_puts_that_are_refused_do_not_write_the_reserve_each_time() {
        let fs = MemFs::new();
        let db = open(&fs, 1 << 20);
        work(&db);
        db.engine().give_up_reserve_file(&full());
        let (written, start) = (limit(&fs, 900_000), Instant::now());
        assert!((0..1000).all(|_| db.put("k", "v").is_err()));
        // The attempts are delayed like those of other failing work.
        let attempts = 2 + start.elapsed().as_millis() as u64 / 50;
        assert!(written.load(Ordering::Relaxed) <= attempts << 20, "{written:?} {attempts}");
    }

    #[test]
    fn a_writer_under_pressure_compacts_although_the_reserve_cannot_be_made() {
        for says_what_is_free in [true, false] {
            let fs = MemFs::new();
            let db = open(&fs, 1 << 30);
            if says_what_is_free {
                fs.set_room(Some(8 << 20));
            } else {
                fs.observe(|_, op| match op {
                    Op::Create(path) if path.ends_with("RESERVE") => Err(io::ErrorKind::StorageFull.into()),
                    _ => Ok(()),
                });
            }
            let (tells, told) = mpsc::channel();
            std::thread::spawn(move || {
                for n in 0..40u32 {
                    db.put(n.to_be_bytes(), "v").unwrap();
                    db.flush().unwrap();
                }
                tells.send(db.stats().compactions + db.stats().trivial_moves)
            });
            let compactions = told.recv_timeout(Duration::from_secs(60)).expect("the writer does not hang");
            assert!(compactions > 0);
        }
    }

    #[test]
    fn a_file_of_others_stays_and_keeps_no_store_from_taking_puts() {
        let fs = MemFs::new();
        let path = FileName::Reserve.path(Path::new(DIR));
        let db = open(&fs, 100_000);
        work(&db);
        fs.overwrite(&path, vec![7; 5000]);
        let image = fs.crash(CrashPolicy::KeepAll);
        for (fs, db) in [(&fs, db), (&image, open(&image, 100_000))] {
            db.engine().give_up_reserve_file(&full());
            db.put("k", "v").unwrap();
            work(&db);
            assert!(file(fs) == Some(vec![7; 5000]) && db.background_error().is_none());
        }
    }

    #[test]
    fn a_flush_that_fails_for_another_reason_than_space_keeps_no_reserve_from_being_made() {
        let fs = MemFs::new();
        let db = open(&fs, 100_000);
        let engine = db.engine();
        engine.give_up_reserve_file(&full());
        engine.retry.note_room();
        std::thread::sleep(Duration::from_millis(60));
        engine.retry.put_off(Work::Flush(0), full());
        assert!(!engine.lacks_reserve_file());
        engine.retry.put_off(Work::Flush(0), Error::io("sync", Path::new(DIR), io::Error::other("broken")));
        assert!(engine.lacks_reserve_file());
    }

    #[test]
    fn a_lock_that_is_lost_while_the_reserve_is_made_again_ends_writing_and_hangs_nobody() {
        let fs = MemFs::new();
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0).reserve_bytes(100_000);
        let db = options.open("/db").unwrap();
        db.engine().give_up_reserve_file(&Error::io(
            "append to",
            Path::new("/db"),
            io::ErrorKind::StorageFull.into(),
        ));
        fs.overwrite(Path::new("/db/LOCK"), Vec::new());
        let (tells, told) = mpsc::channel();
        let making = db.clone();
        std::thread::spawn(move || {
            making.engine().retry.done(Work::ReserveFile);
            tells.send(making.step())
        });
        let step = told.recv_timeout(Duration::from_secs(60)).expect("it does not hang");
        assert!(step.is_err());
        assert!(matches!(db.put("k", "v"), Err(Error::Poisoned { .. })));
    }
}
