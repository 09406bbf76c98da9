//! The reserve: a file that keeps space, so that a store on a full disk can go on with what frees space.
//!
//! `RESERVE` begins with the store's id, and the rest means nothing. If an append to the log or the manifest,
//! or a flush, finds the disk full, the file is removed. That is room for a new log and a new manifest
//! (`resume`), for deletes, for a flush, for the edits that drop tables. From then on the store takes deletes
//! only, so that nothing else uses the room up: a batch with a put gets the error of the full disk. When the
//! reserve could be made again, everything is taken again. The background tries that like other work that
//! failed (`retry`), but not before the flushes that failed.
//!
//! It is a part of what the tables take, so that it holds what is in memory if the store is large, and costs
//! little if it is small ([`wanted_bytes`]). The bytes cannot be compressed, and they are synced: a file
//! system that allocates late, compresses or leaves holes has given the space.
//!
//! Making it must not fill the disk. So it is written only if at least [`FREE_MIN`] times its length is free.
//! If the file system does not say what is free, or was wrong, writing it may take up for a moment what there is. Then a
//! store that takes puts tries once for each length, and one that takes deletes only tries again and again,
//! but appends nothing else meanwhile. If a longer reserve finds no room, one of the length before is made.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use byteorder::{ByteOrder, LittleEndian};

use super::background::Jobs;
use super::engine::Engine;
use super::health::is_out_of_space;
use super::queue::Admitted;
use super::retry::Work;
use crate::batch::BatchReader;
use crate::checksum::FileId;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::fs::Fs;
use crate::key::EntryKind;
use crate::sync::lock;

/// The reserve is this part of the tables.
const PART_OF_TABLES: u64 = 16;

/// A smaller reserve is not made.
const BYTES_MIN: u64 = 64 << 10;

/// The largest reserve, unless a caller wants more: as much as the largest memtable by default.
const BYTES_MAX: u64 = 64 << 20;

/// It is made if so many times its length is free.
const FREE_MIN: u64 = 3;

/// How much of it is written at a time.
const PIECE_BYTES: usize = 64 << 10;

/// How often a store that takes puts asks whether enough is free.
const ASK_INTERVAL: Duration = Duration::from_secs(10);

/// The reserve of an open store.
#[derive(Default)]
pub(crate) struct Reserve {
    /// Length of the file, 0 if there is none.
    bytes: AtomicU64,
    /// Length of the tables, by the manifest.
    table_bytes: AtomicU64,
    /// It was given up, and could not be made again since.
    is_spent: AtomicBool,
    /// Why.
    cause: Mutex<Option<Error>>,
    /// There can be none: the file belongs to others.
    is_barred: AtomicBool,
    /// One thread makes it.
    making: Mutex<()>,
    denied: Mutex<Denied>,
}

/// Why a store that takes puts does not try to make the reserve.
#[derive(Default)]
struct Denied {
    /// Too little was free then.
    at: Option<Instant>,
    /// There was no room for one of this length, though nothing had said so.
    bytes: Option<u64>,
}

impl Denied {
    fn allows(&self, bytes: u64) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= ASK_INTERVAL) && self.bytes != Some(bytes)
    }
}

/// How long the reserve is to be: a power of two, so that it is seldom made anew while the tables grow.
fn wanted_bytes(table_bytes: u64, set_by_caller: Option<u64>) -> u64 {
    set_by_caller.unwrap_or_else(|| match (table_bytes / PART_OF_TABLES).min(BYTES_MAX) {
        bytes if bytes < BYTES_MIN => 0,
        bytes => 1 << bytes.ilog2(),
    })
}

/// What is found under the name of the reserve.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// The reserve of this store. 0 bytes: a crash has interrupted its creation.
    Ours(u64),
    Others,
}

fn find(fs: &dyn Fs, dir: &Path, store_id: FileId) -> Result<Found> {
    let path = FileName::Reserve.path(dir);
    let mut head = [0; size_of::<FileId>()];
    let read = fs.open(&path).and_then(|file| {
        let len = file.len()?;
        let head = &mut head[..len.min(size_of::<FileId>() as u64) as usize];
        file.read_at(head, 0).map(|()| (len, &*head))
    });
    match read {
        Ok((len, head)) if *head == store_id => Ok(Found::Ours(len)),
        Ok((_, head)) if store_id.starts_with(head) || head.iter().all(|&byte| byte == 0) => {
            Ok(Found::Ours(0))
        }
        Ok(_) => Ok(Found::Others),
        // Not a regular file.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(Found::Others),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(Error::io("read", &path, error)),
    }
}

/// Removes the reserve, unless the file belongs to others.
pub(super) fn remove_reserve(fs: &dyn Fs, dir: &Path, store_id: FileId) -> Result<()> {
    let Found::Ours(_) = find(fs, dir, store_id)? else { return Ok(()) };
    let path = FileName::Reserve.path(dir);
    match fs.remove(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", &path, error)),
        _ => Ok(()),
    }
}

impl Reserve {
    /// The reserve of the store in this directory. If it cannot be read, there is none so far; making it or
    /// giving it up tells why.
    pub(super) fn open(fs: &dyn Fs, dir: &Path, store_id: FileId, table_bytes: u64) -> Self {
        let found = find(fs, dir, store_id);
        let bytes = if let Ok(Found::Ours(bytes)) = found { bytes } else { 0 };
        let is_barred = found.is_ok_and(|found| found == Found::Others);
        Self {
            bytes: bytes.into(),
            table_bytes: table_bytes.into(),
            is_barred: is_barred.into(),
            ..Self::default()
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// To be called when the length of all tables has changed.
    pub(super) fn set_table_bytes(&self, bytes: u64) {
        self.table_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The error of the full disk, if the reserve was given up and could not be made again.
    pub(crate) fn cause(&self) -> Option<Error> {
        if self.is_spent.load(Ordering::Acquire) { lock(&self.cause).clone() } else { None }
    }

    fn set_spent(&self, cause: &Error) {
        *lock(&self.cause) = Some(cause.clone());
        self.is_spent.store(true, Ordering::Release);
    }
}

impl Engine {
    fn reserve_wanted(&self) -> u64 {
        let table_bytes = self.reserve.table_bytes.load(Ordering::Relaxed);
        let is_barred = self.reserve.is_barred.load(Ordering::Relaxed);
        if is_barred { 0 } else { wanted_bytes(table_bytes, self.options.reserve_bytes) }
    }

    /// Whether the reserve has a length that it may keep. It becomes shorter only if the caller wants that.
    fn reserve_fits(&self) -> bool {
        let longest = self.options.reserve_bytes.unwrap_or(BYTES_MAX);
        (self.reserve_wanted()..=longest).contains(&self.reserve.bytes())
    }

    /// Whether an attempt to make the reserve is due. Flushes that found no room come first, because they
    /// need the space and give back more.
    pub(super) fn lacks_reserve(&self) -> bool {
        let may_try = || lock(&self.reserve.denied).allows(self.reserve_wanted());
        let is_spent = self.reserve.is_spent.load(Ordering::Acquire);
        (is_spent || !self.reserve_fits() && may_try())
            && self.retry.is_due(Work::Reserve)
            && !self.retry.is_short_of_space(|work| matches!(work, Work::Flush(_)))
    }

    /// Refuses puts from now on, in a store that is to have a reserve, if this failure was that of a full
    /// disk.
    pub(super) fn notice_full_disk(&self, cause: &Error) {
        let has_reserve = self.reserve.bytes() > 0 || self.reserve_wanted() > 0;
        if is_out_of_space(cause) && has_reserve {
            self.reserve.set_spent(cause);
        }
    }

    /// Tells of the full disk until the reserve is made again, if the store is to have one.
    pub(super) fn await_reserve(&self, cause: &Error) {
        self.notice_full_disk(cause);
        if self.reserve.cause().is_some() {
            self.put_off(Work::Reserve, cause.clone());
        }
    }

    /// Gives the reserve up, because the disk is full.
    pub(super) fn spend_reserve(&self, cause: &Error) {
        let _one_at_a_time = lock(&self.reserve.making);
        self.notice_full_disk(cause);
        let bytes = self.reserve.bytes();
        if let Err(error) = self.remove_reserve() {
            self.put_off_reserve(error);
            return;
        }
        self.await_reserve(cause);
        if bytes > 0 {
            tracing::warn!(dir = %self.files.dir.display(), bytes, "the disk is full, and the reserve is given up");
            self.retry.note_room();
        }
    }

    /// Gives the reserve the length that it is to have. `false` if that cannot be done now: it is put off.
    pub(super) fn make_reserve(&self) -> bool {
        let _one_at_a_time = lock(&self.reserve.making);
        if self.suspension.is_suspended() {
            return false;
        }
        let cause = self.reserve.cause();
        match self.fit_reserve(cause.is_some()) {
            Ok(true) => {
                self.reserve.is_spent.store(false, Ordering::Release);
                *lock(&self.reserve.denied) = Denied::default();
                self.retry.done(Work::Reserve);
                return true;
            }
            Ok(false) => match cause {
                Some(cause) => self.await_reserve(&cause),
                None => lock(&self.reserve.denied).at = Some(Instant::now()),
            },
            Err(error) => {
                let is_full = is_out_of_space(&error);
                if is_full {
                    lock(&self.reserve.denied).bytes = Some(self.reserve_wanted());
                }
                if is_full && cause.is_none() {
                    tracing::warn!(dir = %self.files.dir.display(), %error, "there is no room for the reserve");
                } else {
                    self.put_off_reserve(error);
                }
            }
        }
        false
    }

    fn put_off_reserve(&self, error: Error) {
        let error = self.fail_if_final(error);
        if !self.health.has_failed() {
            self.put_off(Work::Reserve, error);
        }
    }

    /// Gives the reserve the length that it is to have. `false` if too little is free.
    fn fit_reserve(&self, is_spent: bool) -> Result<bool> {
        if find(&*self.files.fs, &self.files.dir, self.files.store_id)? == Found::Others {
            tracing::warn!(dir = %self.files.dir.display(), "RESERVE is a file of others: there is no reserve");
            self.reserve.is_barred.store(true, Ordering::Relaxed);
            self.reserve.set_bytes(0);
        }
        if self.reserve_fits() {
            return Ok(true);
        }
        let (before, wanted) = (self.reserve.bytes(), self.reserve_wanted());
        let dir = &self.files.dir;
        let free =
            self.files.fs.free_bytes(dir).map_err(|error| Error::io("find the free space of", dir, error))?;
        let is_enough = |free: u64| free.saturating_add(before) / FREE_MIN >= wanted;
        if before < wanted && !free.is_none_or(is_enough) {
            return Ok(false);
        }
        // What this may take up for a moment is what deletes need.
        let is_known = free.is_some() && lock(&self.reserve.denied).bytes.is_none();
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
        self.reserve.set_bytes(0);
        Ok(())
    }

    /// Writes a new file of this length; none of length 0.
    fn write_reserve(&self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (path, store_id) = (FileName::Reserve.path(&self.files.dir), self.files.store_id);
        let file = self.files.fs.create(&path).map_err(|error| Error::io("create", &path, error))?;
        let append = |bytes: &[u8]| file.append(bytes).map_err(|error| Error::io("append to", &path, error));
        let mut noise = Noise(LittleEndian::read_u64(&store_id));
        let mut left = bytes.saturating_sub(store_id.len() as u64);
        append(&store_id)?;
        while left > 0 {
            let piece = noise.bytes(left.min(PIECE_BYTES as u64) as usize);
            append(&piece)?;
            left -= piece.len() as u64;
        }
        file.sync().map_err(|error| Error::io("sync", &path, error))?;
        self.reserve.set_bytes(bytes);
        Ok(())
    }

    /// Refuses a batch with a put as long as the reserve is given up. `true` if it is, and the batch only
    /// deletes.
    pub(super) fn takes_only_deletes(&self, batch: &Admitted) -> Result<bool> {
        if !self.reserve.is_spent.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut entries = BatchReader::open(&batch.bytes).into_iter().flatten();
        if !entries.any(|entry| entry.is_ok_and(|entry| entry.kind == EntryKind::Put)) {
            return Ok(true);
        }
        if self.background.threads == 0 {
            self.resume_first()?;
            self.retry.at_once();
            while self.reserve.cause().is_some() && self.step(Jobs::Urgent)? {}
            if self.reserve.cause().is_some() {
                self.make_reserve();
            }
        }
        self.reserve.cause().map_or(Ok(false), Err)
    }
}

/// Bytes that cannot be compressed (SplitMix64).
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len.next_multiple_of(8)];
        for word in out.chunks_exact_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            LittleEndian::write_u64(word, z ^ (z >> 31));
        }
        out.truncate(len);
        out
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;
    use crate::db::Db;
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
        lock(&db.engine().reserve.denied).at = None;
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
    fn what_a_crash_has_left_of_a_new_reserve_is_removed_when_it_is_given_up() {
        let fs = MemFs::new();
        let db = open(&fs, 100_000);
        let path = FileName::Reserve.path(Path::new(DIR));
        let id = db.engine().files.store_id;
        for left in [vec![], vec![0; 5000], id[..7].to_vec(), id.to_vec()] {
            fs.overwrite(&path, left);
            remove_reserve(&fs, Path::new(DIR), id).unwrap();
            assert_eq!(file(&fs), None);
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
    fn a_reserve_is_a_power_of_two_and_a_small_part_of_the_tables_or_what_the_caller_says() {
        let wanted = |mebibytes: u64| wanted_bytes(mebibytes << 20, None);
        assert_eq!([0, 1, 3, 40, 1 << 20].map(wanted), [0, 64 << 10, 128 << 10, 2 << 20, 64 << 20]);
        assert_eq!([0, 1 << 30].map(|set| wanted_bytes(100, Some(set))), [0, 1 << 30]);
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
