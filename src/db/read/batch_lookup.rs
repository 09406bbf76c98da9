//! Lookups of several keys as of one point in time.
//!
//! Keys are looked up in groups of [`TOGETHER`], which share the work of finding and probing filters. Several threads look
//! up the remaining groups if reads wait for a disk, because disks serve reads in parallel, or if thousands of keys remain
//! and tables are read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::counters::Stripe;
use crate::db::engine::Engine;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::{Tree, View};
use crate::db::state::parallel::each_in_parallel;
use crate::error::Result;
use crate::hash::key_hash;
use crate::iter::EntryValue;
use crate::key::{EntryKind, Tag};
use crate::version::{Lookups, Set, TOGETHER};

/// A longer mean time of a read means that reads wait for a disk.
const DISK_READ: Duration = Duration::from_micros(20);

const READS_MIN: usize = 16;

/// Threads start only for at least this many remaining groups of keys.
const LEFT_MIN: usize = 4;

/// So many groups take milliseconds, even from cached blocks: much longer than the start of a thread.
const BUSY_LEFT_MIN: usize = 64;

const THREADS_MAX: usize = 4;

static PROCESSORS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// The number of threads for the remaining groups, by the mean time of a read.
fn threads(left: usize, read: Duration, processors: usize) -> usize {
    if read >= DISK_READ {
        left.min(THREADS_MAX)
    } else if left >= BUSY_LEFT_MIN {
        processors.min(THREADS_MAX)
    } else {
        1
    }
}

impl Engine {
    pub(in crate::db) fn multi_get<K: AsRef<[u8]>, T: Send>(
        &self,
        tree: &Tree,
        user_keys: &[K],
        past: Option<&Past>,
        read: impl Fn(EntryValue) -> Result<T> + Sync,
    ) -> Result<Vec<Option<T>>> {
        let mut values = Vec::with_capacity(user_keys.len());
        values.resize_with(user_keys.len(), || None);
        self.get_many(tree, user_keys, past, &mut values, |place, value| {
            *place = Some(read(value)?);
            Ok(())
        })?;
        Ok(values)
    }

    pub(in crate::db) fn multi_contains<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        user_keys: &[K],
        past: Option<&Past>,
    ) -> Result<Vec<bool>> {
        let mut found = vec![false; user_keys.len()];
        self.get_many(tree, user_keys, past, &mut found, |place, _| {
            *place = true;
            Ok(())
        })?;
        Ok(found)
    }

    /// Calls `found` with the index and value of each present key, in any order.
    fn get_many<K: AsRef<[u8]>, P: Send>(
        &self,
        tree: &Tree,
        user_keys: &[K],
        past: Option<&Past>,
        places: &mut [P],
        found: impl Fn(&mut P, EntryValue) -> Result<()> + Sync,
    ) -> Result<()> {
        let (view, past) = self.moment(tree, past)?;
        let moment = Moment { engine: self, tree, view, past };
        let mut left = user_keys.chunks(TOGETHER).zip(places.chunks_mut(TOGETHER));
        let has_threads = self.options.background_threads > 0;
        let (start, mut reads, mut threads) = (Instant::now(), 0, 1);
        while threads == 1 {
            let Some((user_keys, places)) = left.next() else { return Ok(()) };
            reads += moment.look_up(user_keys, places, &found)?;
            if has_threads && left.len() >= LEFT_MIN && reads >= READS_MIN {
                threads = self::threads(left.len(), start.elapsed() / reads as u32, *PROCESSORS);
            }
        }
        let slices = left.enumerate().map(|(group, (user_keys, places))| {
            let user_keys: Vec<&[u8]> = user_keys.iter().map(AsRef::as_ref).collect();
            (group, user_keys, places)
        });
        let left: Vec<_> = slices.collect();
        let first_failed = AtomicUsize::new(usize::MAX);
        let look_up = |(group, user_keys, places): (usize, Vec<&[u8]>, &mut [P])| {
            if group > first_failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let looked_up = moment.look_up(&user_keys, places, &found);
            looked_up.map(drop).inspect_err(|_| {
                first_failed.fetch_min(group, Ordering::Relaxed);
            })
        };
        each_in_parallel(left, threads, "sievedb-read", look_up).into_iter().collect()
    }
}

struct Moment<'a> {
    engine: &'a Engine,
    tree: &'a Tree,
    view: Arc<View>,
    past: Past,
}

impl Moment<'_> {
    /// At most [`TOGETHER`] keys. Returns the number of table reads.
    fn look_up<K: AsRef<[u8]>, P>(
        &self,
        user_keys: &[K],
        places: &mut [P],
        found: impl Fn(&mut P, EntryValue) -> Result<()>,
    ) -> Result<usize> {
        let Self { engine, tree, view, past: Past { seqno, horizon } } = self;
        let (seqno, stripe, len) = (*seqno, Stripe::of_thread(), user_keys.len());
        let hash_seed = engine.keyspaces.hash_seed;
        let (mut parts, mut hashes): ([&[u8]; TOGETHER], _) = ([&[]; TOGETHER], [0; TOGETHER]);
        for ((part, hash), user_key) in parts.iter_mut().zip(&mut hashes).zip(user_keys) {
            *part = user_key.as_ref();
            *hash = key_hash(hash_seed, part);
        }
        let lookups = Lookups { user_keys: &parts[..len], hashes: &hashes[..len], seqno, stripe };
        let mut found = |number: usize, (tag, value): (Tag, EntryValue)| match tag.kind() {
            EntryKind::Put if tag.seqno() >= *horizon => found(&mut places[number], value),
            _ => Ok(()),
        };
        let mut wanted = Set::below(len);
        let mut told = Ok(());
        for memtable in view.memtables() {
            memtable.memtable.get_many(&parts, &hashes, wanted, seqno, |number, newest| {
                wanted.remove(number);
                if told.is_ok()
                    && let Some(put) = newest.put()
                {
                    told = found(number, (put.tag(), EntryValue::Inline(put.value())));
                }
            });
        }
        told?;
        tree.count_lookups(stripe, wanted.len() as u64);
        view.version.get_many(&lookups, wanted, &mut found)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Condvar, Mutex};
    use std::thread::{self, ThreadId};

    use super::*;
    use crate::Db;
    use crate::db::handles::reads_tell::ReadsTell;
    use crate::options::Options;
    use crate::sync::lock;

    const LEN: u32 = TOGETHER as u32 * 12;

    /// Each key is absent or has its own block.
    fn key(number: u32) -> Vec<u8> {
        number.wrapping_mul(0x9e37_79b1).to_be_bytes().to_vec()
    }

    fn is_there(number: u32) -> bool {
        !number.is_multiple_of(5)
    }

    fn open(fs: &ReadsTell, threads: usize) -> Db {
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(threads);
        let db = options.open("/db").unwrap();
        db.open_tables().unwrap();
        db
    }

    fn sample() -> ReadsTell {
        let fs = ReadsTell::default();
        let db = open(&fs, 0);
        for number in (0..LEN).filter(|&number| is_there(number)) {
            db.put(key(number), [number as u8; 4096]).unwrap();
        }
        db.compact().unwrap();
        db.close().unwrap();
        fs
    }

    fn keys(groups: u32) -> Vec<Vec<u8>> {
        (0..groups * TOGETHER as u32).map(key).collect()
    }

    /// A slow disk that waits for the expected other threads.
    struct Disk {
        caller: ThreadId,
        reads: Mutex<Vec<(u64, ThreadId)>>,
        has_other: Condvar,
        others: usize,
    }

    const LONG: Duration = Duration::from_secs(60);

    impl Disk {
        fn set(fs: &ReadsTell, others: usize) -> Arc<Self> {
            let caller = thread::current().id();
            let disk = Arc::new(Self { caller, reads: Mutex::default(), has_other: Condvar::new(), others });
            let same = Arc::clone(&disk);
            fs.tell_each(move |offset| {
                same.read(offset);
                Ok(())
            });
            disk
        }

        fn read(&self, offset: u64) {
            let reader = thread::current().id();
            let mut reads = lock(&self.reads);
            reads.push((offset, reader));
            self.has_other.notify_all();
            // By then the caller has looked up the first keys.
            if reader != self.caller || reads.len() > 2 * TOGETHER {
                let is_alone = |reads: &mut Vec<_>| self.others_of(reads) < self.others;
                let waited = self.has_other.wait_timeout_while(reads, LONG, is_alone).unwrap();
                assert!(!waited.1.timed_out(), "there are fewer threads");
            } else {
                drop(reads);
                thread::sleep(5 * DISK_READ);
            }
        }

        fn others_of(&self, reads: &[(u64, ThreadId)]) -> usize {
            let readers: HashSet<_> = reads.iter().map(|(_, reader)| *reader).collect();
            readers.iter().filter(|reader| **reader != self.caller).count()
        }

        fn offsets(&self) -> Vec<u64> {
            let reads = lock(&self.reads);
            assert_eq!(self.others_of(&reads), self.others);
            reads.iter().map(|(offset, _)| *offset).collect()
        }
    }

    #[test]
    fn a_batch_that_waits_for_a_disk_is_read_by_four_threads_and_each_block_once() {
        for (background, groups, others) in [(1, 12, 3), (0, 12, 0), (1, LEFT_MIN as u32, 0)] {
            let fs = sample();
            let (db, keys) = (open(&fs, background), keys(groups));
            let disk = Disk::set(&fs, others);
            let found = db.multi_get(&keys).unwrap();
            let mut offsets = disk.offsets();
            let len = offsets.len();
            let values = found.iter().flatten().count();
            assert!(len >= values, "{len} reads of {values} blocks");
            offsets.sort_unstable();
            offsets.dedup();
            assert_eq!(offsets.len(), len, "a block was read twice");
            fs.tell(|| ());
            for ((number, key), found) in (0..).zip(&keys).zip(&found) {
                assert_eq!(*found, db.get(key).unwrap(), "{number}");
                assert_eq!(found.as_deref(), is_there(number).then_some(&[number as u8; 4096][..]));
            }
            let contains: Vec<bool> = found.iter().map(Option::is_some).collect();
            db.close().unwrap();

            let db = open(&fs, background);
            let disk = Disk::set(&fs, others);
            assert_eq!(db.multi_contains(&keys).unwrap(), contains);
            assert!(disk.offsets().len() >= values);
            db.close().unwrap();

            let db = open(&fs, background);
            let disk = Disk::set(&fs, others);
            let new = db.insert_new_many(keys.iter().map(|key| (key, "new"))).unwrap();
            assert!(new.iter().eq(contains.iter().map(|found| !found)));
            assert!(disk.offsets().len() >= values);
            fs.tell(|| ());
            drop(db);
        }
    }

    #[test]
    fn several_threads_look_up_many_keys_that_need_no_disk_and_few_keys_only_if_they_wait_for_it() {
        let fast = DISK_READ - Duration::from_nanos(1);
        assert_eq!([1, 2, 9].map(|processors| threads(BUSY_LEFT_MIN, fast, processors)), [1, 2, THREADS_MAX]);
        assert_eq!([1, 2, 9].map(|processors| threads(LEFT_MIN, DISK_READ, processors)), [LEFT_MIN; 3]);
        assert_eq!(threads(BUSY_LEFT_MIN, DISK_READ, 1), THREADS_MAX);
        assert_eq!(threads(BUSY_LEFT_MIN - 1, fast, 9), 1);
    }

    #[test]
    fn a_large_batch_is_answered_like_its_parts() {
        let (fs, keys) = (sample(), keys(3 * BUSY_LEFT_MIN as u32));
        let db = open(&fs, 1);
        let found = db.multi_contains(&keys).unwrap();
        assert!((0..).zip(&found).all(|(number, &found)| found == (number < LEN && is_there(number))));
        let new = db.insert_new_many(keys.iter().map(|key| (key, "new"))).unwrap();
        assert!(new.iter().eq(found.iter().map(|found| !found)));
    }

    #[test]
    fn of_two_blocks_that_cannot_be_read_the_error_is_that_of_the_earlier_group() {
        let (fs, keys) = (sample(), keys(12));
        let db = open(&fs, 1);
        let [early, late] = [TOGETHER as u32 * 3 + 7, TOGETHER as u32 * 5 + 8].map(|number| {
            assert!(is_there(number));
            let disk = Disk::set(&fs, 0);
            assert!(db.get(key(number)).unwrap().is_some());
            *disk.offsets().last().unwrap()
        });
        db.close().unwrap();
        for background in [1, 0] {
            let db = open(&fs, background);
            let caller = thread::current().id();
            let late_failed = AtomicBool::new(background == 0);
            fs.tell_each(move |offset| {
                let start = Instant::now();
                while offset == early && !late_failed.load(Ordering::Acquire) && start.elapsed() < LONG {
                    thread::sleep(DISK_READ);
                }
                if thread::current().id() == caller {
                    thread::sleep(5 * DISK_READ);
                }
                late_failed.fetch_or(offset == late, Ordering::Release);
                if [early, late].contains(&offset) {
                    Err(io::Error::other(offset.to_string()))
                } else {
                    Ok(())
                }
            });
            let error = db.multi_get(&keys).unwrap_err();
            assert!(error.to_string().contains(&early.to_string()), "{background} {error} {early} {late}");
            fs.tell(|| ());
            db.close().unwrap();
        }
    }
}
