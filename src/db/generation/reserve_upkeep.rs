//! When the reserve is made, given up and made again, and what a store takes meanwhile.

use crate::batch::BatchReader;
use crate::db::engine::Engine;
use crate::db::queues::condition::PartMut;
use crate::db::queues::retry::Work;
use crate::db::state::failure::is_out_of_space;
use crate::db::state::reserve::file::{Found, find, remove_reserve, write_reserve};
use crate::error::{Error, Result};
use crate::key::EntryKind;
use crate::sync::lock;

/// It is made if so many times its length is free.
const FREE_MIN: u64 = 3;

impl Engine {
    /// Whether an attempt to make the reserve is due. Flushes that found no room come first, because they
    /// need the space and give back more.
    pub(in crate::db) fn lacks_reserve(&self) -> bool {
        let reserve = &self.reserve;
        (reserve.is_spent() || !reserve.fits() && reserve.may_ask())
            && self.retry.is_due(Work::Reserve)
            && !self.retry.is_short_of_space(|work| matches!(work, Work::Flush(_)))
    }

    /// Refuses puts from now on, in a store that is to have a reserve, if this failure was that of a full
    /// disk.
    pub(super) fn notice_full_disk(&self, cause: &Error) {
        let has_reserve = self.reserve.bytes() > 0 || self.reserve.wanted() > 0;
        if is_out_of_space(cause) && has_reserve {
            self.reserve.set_spent(cause);
        }
    }

    /// Tells of the full disk until the reserve is made again, if the store is to have one.
    pub(in crate::db) fn await_reserve(&self, cause: &Error) {
        self.notice_full_disk(cause);
        if self.reserve.cause().is_some() {
            self.put_off(Work::Reserve, cause.clone());
        }
    }

    /// Gives the reserve up, because the disk is full.
    pub(in crate::db) fn spend_reserve(&self, cause: &Error) {
        let _one_at_a_time = lock(&self.reserve.making);
        self.notice_full_disk(cause);
        let bytes = self.reserve.bytes();
        if let Err(error) = self.remove_reserve() {
            self.fail_or_put_off(Work::Reserve, error);
            return;
        }
        self.await_reserve(cause);
        if bytes > 0 {
            tracing::warn!(dir = %self.files.dir.display(), bytes, "the disk is full, and the reserve is given up");
            self.retry.note_room();
        }
    }

    /// Gives the reserve the length that it is to have. `false` if that cannot be done now: it is put off, or
    /// a shorter one is tried next.
    pub(in crate::db) fn make_reserve(&self) -> bool {
        let _one_at_a_time = lock(&self.reserve.making);
        if self.lifecycle.is_suspended() {
            return false;
        }
        let (cause, wanted) = (self.reserve.cause(), self.reserve.wanted());
        let result = self.fit_reserve(wanted, cause.is_some());
        if result.as_ref().is_err_and(is_out_of_space) {
            self.reserve.note_no_room(wanted);
        }
        match (result, cause) {
            (Ok(true), _) => {
                self.reserve.set_whole();
                self.retry.done(Work::Reserve);
                return true;
            }
            (Ok(false), Some(cause)) => self.await_reserve(&cause),
            // In a store that takes puts a lack of room is no failure, and an earlier failure has passed.
            (Ok(false), None) => {
                self.reserve.deny();
                self.retry.done(Work::Reserve);
            }
            (Err(error), None) if is_out_of_space(&error) => {
                tracing::warn!(dir = %self.files.dir.display(), wanted, %error, "there is no room for the reserve");
                self.retry.done(Work::Reserve);
            }
            (Err(error), _) => self.fail_or_put_off(Work::Reserve, error),
        }
        false
    }

    /// How much is free, if the file system says so. It may be too much: a quota is lower.
    fn free_bytes(&self) -> Result<Option<u64>> {
        let dir = &self.files.dir;
        self.files.fs.free_bytes(dir).map_err(|error| Error::io("find the free space of", dir, error))
    }

    /// Gives the reserve this length. `false` if too little is free.
    fn fit_reserve(&self, wanted: u64, is_spent: bool) -> Result<bool> {
        if find(&*self.files.fs, &self.files.dir, self.files.store_id)? == Found::Others {
            tracing::warn!(dir = %self.files.dir.display(), "RESERVE is a file of others: there is no reserve");
            self.reserve.bar();
        }
        if self.reserve.fits() {
            return Ok(true);
        }
        let (before, free) = (self.reserve.bytes(), self.free_bytes()?);
        let is_known = free.is_some() && !self.reserve.was_surprised();
        let is_enough = |free: u64| free.saturating_add(before) / FREE_MIN >= wanted;
        if before < wanted && !free.is_none_or(is_enough) {
            return Ok(false);
        }
        // What this may take up for a moment is what deletes need.
        let _quiet = (is_spent && !is_known).then(|| (self.manifest.lock(), self.log().pause()));
        self.remove_reserve()?;
        let written = self.write_reserve(wanted);
        if written.is_err() {
            // The next attempt removes it if this one cannot.
            let _ = self.remove_reserve();
            if before < wanted && self.write_reserve(before).is_err() {
                let _ = self.remove_reserve();
            }
        }
        written.map(|()| true)
    }

    /// Removes the file, unless it belongs to others.
    fn remove_reserve(&self) -> Result<()> {
        remove_reserve(&*self.files.fs, &self.files.dir, self.files.store_id)?;
        self.reserve.set_removed();
        Ok(())
    }

    /// Writes a new file of this length; none of length 0.
    fn write_reserve(&self, bytes: u64) -> Result<()> {
        if bytes > 0 {
            write_reserve(&*self.files.fs, &self.files.dir, self.files.store_id, bytes)?;
            self.reserve.set_made(bytes);
        }
        Ok(())
    }

    /// Makes the reserve again if that is due, or if asking for the free space shows whether there is room. Finding out
    /// by writing is expensive and waits until it is due.
    pub(in crate::db) fn make_reserve_if_cheap(&self) {
        let is_cheap = || !self.reserve.was_surprised() && self.free_bytes().is_ok_and(|free| free.is_some());
        if self.reserve.cause().is_some() && (self.retry.is_due(Work::Reserve) || is_cheap()) {
            self.make_reserve();
        }
    }

    /// Refuses a group with a put if the reserve is given up.
    pub(in crate::db) fn check_puts(&self, group: &[PartMut<'_>]) -> Result<()> {
        match self.reserve.cause() {
            Some(cause) if group.iter().any(|(bytes, _)| has_put(bytes)) => Err(cause),
            _ => Ok(()),
        }
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

    /// The file, if there is one.
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

    /// Does all work that is due. A store that takes puts asks at once how much is free.
    fn work(db: &Db) {
        db.engine().reserve.ask_now();
        while db.step().unwrap() {}
    }

    fn full() -> Error {
        Error::io("append to", Path::new(DIR), io::ErrorKind::StorageFull.into())
    }

    #[test]
    fn a_longer_reserve_is_made_only_where_several_times_its_length_is_free() {
        let fs = MemFs::new();
        let db = open(&fs, 100_000);
        work(&db);
        assert_eq!(len(&fs), 100_000);
        db.close().unwrap();
        fs.set_room(Some(used(&fs) + 500_000));
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
        fs.set_room(Some(used(&fs) + 1_200_000));
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
    fn a_reserve_that_finds_no_room_for_more_is_as_long_as_before_and_tries_once() {
        let fs = MemFs::new();
        let db = open(&fs, 100_000);
        work(&db);
        db.close().unwrap();
        let db = open(&fs, 400_000);
        // The file system says that all is free, and has room for half of it.
        let attempts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&attempts);
        fs.observe(move |fs, op| match op {
            Op::Append(path, bytes) if path.ends_with("RESERVE") && len(fs) + bytes.len() > 200_000 => {
                counted.fetch_add(1, Ordering::Relaxed);
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        });
        (0..3).for_each(|_| work(&db));
        assert_eq!((len(&fs), attempts.load(Ordering::Relaxed)), (100_000, 1));
        db.put("k", "v").unwrap();
        assert!(db.background_error().is_none());
    }

    /// Makes the reserve find room for so many bytes, though nothing says so. Counts what is written to it.
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

    #[test]
    fn a_reserve_for_which_there_is_no_room_becomes_shorter_until_there_is() {
        let fs = MemFs::new();
        let db = open(&fs, 16 << 20);
        let written = limit(&fs, 1500 << 10);
        (0..3).for_each(|_| work(&db));
        assert_eq!(len(&fs), 1 << 20);
        assert!(db.background_error().is_none());
        // 16 MiB and 4 MiB found no room.
        assert!(written.load(Ordering::Relaxed) < 5 << 20, "{written:?}");
        db.put("k", "v").unwrap();
    }

    #[test]
    fn a_reserve_that_was_given_up_while_a_longer_one_was_tried_is_made_again_as_it_was() {
        let fs = MemFs::new();
        let db = open(&fs, 100_000);
        work(&db);
        db.close().unwrap();
        let db = open(&fs, 16 << 20);
        let written = limit(&fs, 300_000);
        // A writer found the disk full meanwhile.
        db.engine().spend_reserve(&full());
        db.put("k", "v").unwrap();
        assert_eq!((len(&fs), written.load(Ordering::Relaxed)), (100_000, 100_000));
        assert!(db.background_error().is_none());
    }

    #[test]
    fn too_little_that_is_free_refuses_the_reserve_also_after_there_was_no_room_for_it() {
        let fs = MemFs::new();
        let db = open(&fs, 100_000);
        work(&db);
        db.engine().spend_reserve(&full());
        let _written = limit(&fs, 0);
        assert!(db.put("k", "v").is_err());
        assert!(db.engine().reserve.was_surprised());
        let written = limit(&fs, usize::MAX);
        for (free, expected) in [(200_000, 0), (400_000, 100_000)] {
            fs.set_room(Some(used(&fs) + free));
            std::thread::sleep(Duration::from_millis(60));
            db.engine().retry.note_room();
            work(&db);
            assert_eq!(written.load(Ordering::Relaxed), expected);
        }
        db.put("k", "v").unwrap();
    }

    #[test]
    fn a_failure_that_has_passed_is_not_told_any_more_where_there_is_no_room_for_the_reserve() {
        for says_what_is_free in [true, false] {
            let fs = MemFs::new();
            let db = open(&fs, 1 << 20);
            fs.observe(|_, op| match op {
                Op::Create(path) if path.ends_with("RESERVE") => Err(io::Error::other("broken")),
                _ => Ok(()),
            });
            work(&db);
            assert!(db.background_error().unwrap().to_string().contains("broken"));
            let _written = limit(&fs, 0);
            if says_what_is_free {
                fs.set_room(Some(used(&fs) + (1 << 20)));
            }
            std::thread::sleep(Duration::from_millis(60));
            work(&db);
            assert!(db.background_error().is_none(), "{:?}", db.background_error());
        }
    }

    #[test]
    fn without_threads_puts_that_are_refused_do_not_write_the_reserve_each_time() {
        let fs = MemFs::new();
        let db = open(&fs, 1 << 20);
        work(&db);
        db.engine().spend_reserve(&full());
        let (written, start) = (limit(&fs, 900_000), Instant::now());
        assert!((0..1000).all(|_| db.put("k", "v").is_err()));
        // It is tried as often as other work that fails.
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
            db.engine().spend_reserve(&full());
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
        engine.spend_reserve(&full());
        engine.retry.note_room();
        std::thread::sleep(Duration::from_millis(60));
        engine.retry.put_off(Work::Flush(0), full());
        assert!(!engine.lacks_reserve());
        engine.retry.put_off(Work::Flush(0), Error::io("sync", Path::new(DIR), io::Error::other("broken")));
        assert!(engine.lacks_reserve());
    }

    #[test]
    fn a_lock_that_is_lost_while_the_reserve_is_made_again_ends_writing_and_hangs_nobody() {
        let fs = MemFs::new();
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0).reserve_bytes(100_000);
        let db = options.open("/db").unwrap();
        db.engine().spend_reserve(&Error::io(
            "append to",
            Path::new("/db"),
            io::ErrorKind::StorageFull.into(),
        ));
        fs.overwrite(Path::new("/db/LOCK"), Vec::new());
        let (tells, told) = mpsc::channel();
        let making = db.clone();
        std::thread::spawn(move || {
            making.engine().retry.done(Work::Reserve);
            tells.send(making.step())
        });
        let step = told.recv_timeout(Duration::from_secs(60)).expect("it does not hang");
        assert!(step.is_err());
        assert!(matches!(db.put("k", "v"), Err(Error::Poisoned { .. })));
    }
}
