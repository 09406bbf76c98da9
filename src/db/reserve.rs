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

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

/// How much of it is written at a time.
const PIECE_BYTES: usize = 64 << 10;

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
    /// One thread makes it.
    making: Mutex<()>,
}

/// How long the reserve is to be: a power of two, so that it is seldom made anew while the tables grow.
fn wanted_bytes(table_bytes: u64, set_by_caller: Option<u64>) -> u64 {
    set_by_caller.unwrap_or_else(|| match (table_bytes / PART_OF_TABLES).min(BYTES_MAX) {
        bytes if bytes < BYTES_MIN => 0,
        bytes => 1 << bytes.ilog2(),
    })
}

/// Length of the reserve of this store in the directory; 0 if there is none. `None` if the file belongs to
/// others.
pub(super) fn reserve_bytes(fs: &dyn Fs, dir: &Path, store_id: FileId) -> Option<u64> {
    let mut head = [0; size_of::<FileId>()];
    let read = fs.open(&FileName::Reserve.path(dir)).and_then(|file| {
        let len = file.len()?;
        let head = &mut head[..len.min(size_of::<FileId>() as u64) as usize];
        file.read_at(head, 0).map(|()| len)
    });
    match read {
        Ok(len) if head == store_id => Some(len),
        // A crash interrupted right after its creation.
        Ok(len)
            if head == [0; size_of::<FileId>()] || store_id.starts_with(&head[..len.min(15) as usize]) =>
        {
            Some(0)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Some(0),
        _ => None,
    }
}

impl Reserve {
    pub(super) fn new(bytes: u64, table_bytes: u64) -> Self {
        Self { bytes: bytes.into(), table_bytes: table_bytes.into(), ..Self::default() }
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
        wanted_bytes(table_bytes, self.options.reserve_bytes)
    }

    /// Whether the reserve is to be made now: it is shorter than it should be. Flushes that failed come
    /// first, because they need the space and give back more.
    pub(super) fn lacks_reserve(&self) -> bool {
        let is_short = self.reserve.bytes.load(Ordering::Relaxed) < self.reserve_wanted();
        (is_short || self.reserve.is_spent.load(Ordering::Acquire))
            && self.retry.is_due(Work::Reserve)
            && !self.retry.is_failing(|work| matches!(work, Work::Flush(_) | Work::Resume))
    }

    /// Refuses puts from now on, in a store that is to have a reserve, if this failure was that of a full
    /// disk.
    pub(super) fn notice_full_disk(&self, cause: &Error) {
        let has_reserve = self.reserve.bytes.load(Ordering::Relaxed) > 0 || self.reserve_wanted() > 0;
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
        let bytes = self.reserve.bytes.load(Ordering::Relaxed);
        self.notice_full_disk(cause);
        if bytes > 0 {
            if let Err(error) = self.remove_reserve() {
                let error = self.fail_if_final(error);
                if !self.health.has_failed() {
                    self.put_off(Work::Reserve, error);
                }
                return;
            }
            self.reserve.bytes.store(0, Ordering::Relaxed);
        }
        self.await_reserve(cause);
        if bytes > 0 {
            tracing::warn!(dir = %self.files.dir.display(), bytes, "the disk is full, and the reserve is given up");
            self.retry.note_room();
        }
    }

    /// Makes the reserve. What fails is put off.
    pub(super) fn make_reserve(&self) {
        let _one_at_a_time = lock(&self.reserve.making);
        if self.suspension.is_suspended() {
            return;
        }
        let wanted = self.reserve_wanted();
        if self.reserve.bytes.load(Ordering::Relaxed) < wanted {
            self.reserve.bytes.store(0, Ordering::Relaxed);
            if let Err(error) = self.write_reserve_quietly(wanted) {
                let error = self.fail_if_final(error);
                if !self.health.has_failed() {
                    self.put_off(Work::Reserve, error);
                }
                return;
            }
            self.reserve.bytes.store(wanted, Ordering::Relaxed);
        }
        self.reserve.is_spent.store(false, Ordering::Release);
        self.retry.done(Work::Reserve);
    }

    /// Removes the file, unless it belongs to others.
    fn remove_reserve(&self) -> Result<()> {
        let path = FileName::Reserve.path(&self.files.dir);
        if reserve_bytes(&*self.files.fs, &self.files.dir, self.files.store_id).is_none() {
            return Ok(());
        }
        match self.files.fs.remove(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", &path, error)),
            _ => Ok(()),
        }
    }

    /// Writes the file, or removes what there is of it. On a full disk nothing else is appended meanwhile:
    /// what this takes up for a moment is what deletes need.
    fn write_reserve_quietly(&self, bytes: u64) -> Result<()> {
        let is_spent = self.reserve.cause().is_some();
        let _quiet = is_spent.then(|| (self.manifest.lock(), self.log().pause()));
        self.write_reserve(bytes).inspect_err(|_| {
            // The next attempt removes it if this one cannot.
            let _ = self.remove_reserve();
        })
    }

    fn write_reserve(&self, bytes: u64) -> Result<()> {
        let path = FileName::Reserve.path(&self.files.dir);
        self.remove_reserve()?;
        let file = self.files.fs.create(&path).map_err(|error| Error::io("create", &path, error))?;
        let append = |bytes: &[u8]| file.append(bytes).map_err(|error| Error::io("append to", &path, error));
        let mut noise = Noise(self.context.hash_seed);
        let mut left = bytes.saturating_sub(self.files.store_id.len() as u64);
        append(&self.files.store_id)?;
        while left > 0 {
            let piece = noise.bytes(left.min(PIECE_BYTES as u64) as usize);
            append(&piece)?;
            left -= piece.len() as u64;
        }
        file.sync().map_err(|error| Error::io("sync", &path, error))
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
    use crate::fs::MemFs;
    use crate::options::Options;

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
            making.engine().make_reserve();
            tells.send(())
        });
        told.recv_timeout(Duration::from_secs(60)).expect("it does not hang");
        assert!(matches!(db.put("k", "v"), Err(Error::Poisoned { .. })));
    }
}
