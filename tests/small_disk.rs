//! Small disks are filled, emptied by deletes and refilled. Every remaining key must be right, and space must be freed.
//! Runs in memory, and on a tmpfs if it can be mounted. Each stage ends with a refused write and a reopening.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sievedb::fs::{Fs, MemFs, StdFs};
use sievedb::{Db, Error, Options};

const MIB: u64 = 1 << 20;

const PATIENCE: Duration = Duration::from_secs(120);

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
}

fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn key(number: u64) -> [u8; 8] {
    mixed(number).to_be_bytes()
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8) as u64).flat_map(|word| mixed(mixed(number) ^ word).to_le_bytes());
    words.take(bytes).collect()
}

struct Disk {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// `None` if the disk is in memory.
    mounted: Option<PathBuf>,
}

impl Disk {
    fn in_memory(bytes: u64) -> Self {
        let fs = MemFs::new();
        fs.set_room(Some(bytes));
        Self { fs: Arc::new(fs), dir: "/db".into(), mounted: None }
    }

    fn mount(bytes: u64) -> Option<Self> {
        let at = tempfile::tempdir().unwrap().keep();
        let size = format!("size={bytes}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            let _ = std::fs::remove_dir(&at);
            return None;
        }
        Some(Self { fs: Arc::new(StdFs), dir: at.join("db"), mounted: Some(at) })
    }

    fn free_bytes(&self) -> u64 {
        let dir = self.mounted.as_deref().unwrap_or(&self.dir);
        self.fs.free_bytes(dir).unwrap().expect("it is known")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(at) = &self.mounted {
            let _ = Command::new("umount").arg("-l").arg(at).status();
            let _ = std::fs::remove_dir(at);
        }
    }
}

struct History<'d> {
    disk: &'d Disk,
    budget: Option<usize>,
    threads: usize,
    value_bytes: usize,
    db: Option<Db>,
    held: BTreeMap<[u8; 8], u64>,
    refused: Vec<[u8; 8]>,
    next: u64,
}

impl<'d> History<'d> {
    fn new(disk: &'d Disk, budget: Option<usize>, threads: usize, value_bytes: usize) -> Self {
        let (held, refused) = (BTreeMap::new(), Vec::new());
        Self { disk, budget, threads, value_bytes, db: None, held, refused, next: 0 }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("it is open")
    }

    fn options(&self) -> Options {
        let options = Options::new().fs(Arc::clone(&self.disk.fs)).background_threads(self.threads);
        self.budget.map_or(options.clone(), |bytes| options.memory_budget(bytes))
    }

    fn reopen(&mut self) {
        if let Some(db) = self.db.take() {
            db.close().unwrap_or_else(|error| panic!("close: {error}"));
        }
        let opened = self.options().open(&self.disk.dir);
        self.db = Some(
            opened.unwrap_or_else(|error| panic!("open with {} bytes free: {error}", self.disk.free_bytes())),
        );
    }

    /// Checks the state after a kill, which includes unsynced writes.
    fn check(&self) {
        let mut found = BTreeMap::new();
        for item in self.db().iter() {
            let (key, value) = item.unwrap();
            let key: [u8; 8] = key.as_ref().try_into().unwrap();
            assert!(found.insert(key, value.to_vec()).is_none());
        }
        for (key, number) in &self.held {
            let value = value(*number, self.value_bytes);
            assert!(found.remove(key).as_ref() == Some(&value) || self.refused.contains(key), "key {number}");
        }
        assert!(found.keys().all(|key| self.refused.contains(key)), "{} keys too many", found.len());
    }

    fn fill(&mut self) -> u64 {
        let before = self.next;
        loop {
            let number = self.next;
            self.next += 1;
            match self.db().put(key(number), value(number, self.value_bytes)) {
                Ok(()) => drop(self.held.insert(key(number), number)),
                Err(error) => {
                    assert!(is_full(&error), "{error}");
                    self.refused.push(key(number));
                    return number - before;
                }
            }
        }
    }

    fn delete_all_but(&mut self, one_in: usize) {
        let start = Instant::now();
        let keys: Vec<_> = self.held.keys().copied().enumerate().filter(|(at, _)| at % one_in != 0).collect();
        for (_, key) in keys {
            while let Err(error) = self.db().delete(key) {
                assert!(is_full(&error), "{error}");
                assert!(
                    start.elapsed() < PATIENCE,
                    "deletes are refused, {} bytes free",
                    self.disk.free_bytes()
                );
                if self.threads == 0 {
                    while self.db().step().unwrap_or(false) {}
                }
            }
            self.held.remove(&key);
        }
    }

    fn await_room(&mut self) {
        let start = Instant::now();
        loop {
            let number = self.next;
            self.next += 1;
            match self.db().put(key(number), value(number, self.value_bytes)) {
                Ok(()) => {
                    self.held.insert(key(number), number);
                    return;
                }
                Err(error) => {
                    assert!(is_full(&error), "{error}");
                    self.refused.push(key(number));
                    assert!(start.elapsed() < PATIENCE, "no room, {} bytes free", self.disk.free_bytes());
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    fn run(&mut self, bytes: u64) {
        self.reopen();
        let first = self.fill();
        let written = first * (8 + self.value_bytes as u64);
        assert!(written > bytes / 4, "{written} of {bytes} bytes");
        self.check();
        self.reopen();
        self.check();
        self.delete_all_but(5);
        self.reopen();
        self.check();
        self.await_room();
        self.reopen();
        let again = self.fill();
        assert!(again > first / 3, "{again} after {first}\n{}", self.db().stats());
        self.reopen();
        self.check();
        self.delete_all_but(5);
        self.db()
            .compact()
            .unwrap_or_else(|error| panic!("compact with {} bytes free: {error}", self.disk.free_bytes()));
        self.check();
        self.reopen();
        self.await_room();
        self.check();
        assert!(self.fill() > first / 3);
        self.check();
        self.reopen();
        assert!(self.db().verify().unwrap().damage.is_empty());
    }
}

const BUDGETS: [Option<usize>; 4] = [Some(1 << 20), Some(4 << 20), Some(16 << 20), None];

fn run_all(sizes: &[(u64, usize)], disk: impl Fn(u64) -> Option<Disk>) {
    for &(size, value_bytes) in sizes {
        for budget in BUDGETS {
            for threads in [0, 2] {
                let Some(disk) = disk(size) else {
                    eprintln!("skipped: a tmpfs cannot be mounted here");
                    return;
                };
                println!("{size} bytes, budget {budget:?}, {threads} threads");
                History::new(&disk, budget, threads, value_bytes).run(size);
            }
        }
    }
}

fn sizes() -> Vec<(u64, usize)> {
    match std::env::var_os("SIEVEDB_LARGE_DISKS") {
        None => vec![(8 * MIB, 400), (20 * MIB, 1000)],
        Some(_) => vec![(8 * MIB, 100), (20 * MIB, 100), (120 * MIB, 400), (400 * MIB, 1000)],
    }
}

#[test]
fn a_small_disk_in_memory_that_is_filled_and_emptied_has_room_again_each_time() {
    run_all(&sizes(), |bytes| Some(Disk::in_memory(bytes)));
}

#[test]
fn a_small_tmpfs_that_is_filled_and_emptied_has_room_again_each_time() {
    run_all(&sizes(), Disk::mount);
}
