//! The program's allocations, counted by its allocator, compared with the memory budget. The tests run one by one.

#![expect(clippy::disallowed_methods, reason = "tests spell out keys")]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use peak_alloc::PeakAlloc;
use sievedb::{Db, Error, FilterKind, FilterPolicy, KeyspaceOptions, Options, WriteBatch};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const BUDGET: usize = 16 << 20;

/// Memory that does not depend on the data: slots of caches, buffers of logs and files, blocks being read, threads.
const FIXED_BYTES: usize = 2 << 20;

const KEYS: u64 = 200_000;

/// Building this filter takes half of the budget.
const MANY: u64 = 400_000;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn value(number: u64) -> [u8; 300] {
    let mut value = [7; 300];
    for (index, chunk) in value.chunks_exact_mut(16).enumerate() {
        chunk[..8].copy_from_slice(&key(number ^ (index as u64) << 32));
    }
    value
}

fn policy(bits: f64) -> FilterPolicy {
    FilterPolicy::new(FilterKind::Ribbon).bits_per_key(bits)
}

fn open(dir: &Path) -> Db {
    let options = Options::new().memory_budget(BUDGET).background_threads(2);
    options.default_keyspace(KeyspaceOptions::new().filter(policy(16.0))).open(dir).unwrap()
}

fn copy(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn write_with_a_large_budget(crashed: &Path) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let large = KeyspaceOptions::new().memtable_bytes(16 * BUDGET);
    let options = Options::new().memory_budget(64 * BUDGET).default_keyspace(large.clone());
    let db = options.open(dir.path()).unwrap();
    let few = db.keyspace("few", large).unwrap();
    for number in 0..KEYS / 10 {
        let mut batch = WriteBatch::new();
        batch.put_in(&few, key(number), "");
        (10 * number..10 * number + 10).for_each(|number| {
            batch.put(key(number), value(number));
        });
        db.write(batch).unwrap();
    }
    assert_eq!(db.stats().flushes, 0);
    copy(dir.path(), crashed);
    KEYS / 10
}

fn tables_of_a_large_budget(dir: &Path) {
    let options = Options::new().memory_budget(64 * BUDGET).background_threads(0);
    let db = options.open(dir).unwrap();
    let many = db.keyspace("many", KeyspaceOptions::new()).unwrap();
    for number in 0..MANY / 100 {
        db.put(key(number), [value(number), value(!number)].concat().repeat(5)).unwrap();
        let mut batch = WriteBatch::new();
        (100 * number..100 * number + 100).for_each(|number| {
            batch.put_in(&many, key(number), "");
        });
        db.write(batch).unwrap();
    }
    db.flush().unwrap();
    let total = db.stats().keyspaces.into_iter().find(|keyspace| keyspace.name == "many").unwrap().total();
    assert_eq!((total.tables, total.keys), (1, MANY));
    db.close().unwrap();
}

fn phase<T>(name: &str, before: usize, run: impl FnOnce() -> T) -> T {
    ALLOCATED.reset_peak_usage();
    let result = run();
    let peak = ALLOCATED.peak_usage() - before;
    println!("{name}: {:.1} MiB", peak as f64 / f64::from(1 << 20));
    assert!(peak <= BUDGET + FIXED_BYTES, "{name}: {peak} bytes were allocated, the budget is {BUDGET}");
    result
}

fn check_ledger(db: &Db) {
    let memory = db.stats().memory;
    assert!(memory.total() <= memory.budget && memory.builders <= memory.budget / 8, "{memory:?}");
}

#[test]
fn a_program_with_a_store_allocates_little_more_than_the_budget() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let before = ALLOCATED.current_usage();
    let db = phase("open", before, || open(dir.path()));
    phase("write", before, || {
        for number in 0..KEYS {
            db.put(key(number), value(number)).unwrap();
            if number % 1000 == 0 {
                check_ledger(&db);
            }
        }
    });
    phase("settle", before, || db.settle().unwrap());
    let read = |db: &Db| {
        for number in (0..2 * KEYS).step_by(7) {
            assert_eq!(db.contains(key(number)).unwrap(), number < KEYS);
        }
        check_ledger(db);
    };
    phase("read", before, || read(&db));
    phase("scan", before, || assert_eq!(db.iter().map(Result::unwrap).count() as u64, KEYS));
    phase("write to two keyspaces at once", before, || {
        let small = db.keyspace("small", KeyspaceOptions::new()).unwrap();
        let large = db.keyspace("large", KeyspaceOptions::new()).unwrap();
        for number in 0..10_000 {
            let mut batch = WriteBatch::new();
            batch.put_in(&small, key(number), "").put_in(&large, key(number), [7; 4000]);
            db.write(batch).unwrap();
        }
    });
    phase("compact", before, || db.compact().unwrap());
    phase("compact several", before, || {
        let names = ["a", "b", "c", "d", "e", "f"];
        let keyspaces = names.map(|name| db.keyspace(name, KeyspaceOptions::new()).unwrap());
        for keyspace in &keyspaces {
            (0..KEYS / 20).for_each(|number| keyspace.put(key(number), value(number)).unwrap());
        }
        let left = AtomicUsize::new(keyspaces.len());
        std::thread::scope(|scope| {
            for keyspace in &keyspaces {
                scope.spawn(|| {
                    keyspace.compact().unwrap();
                    keyspace.refilter(policy(12.0)).unwrap();
                    left.fetch_sub(1, Ordering::Relaxed);
                });
            }
            while left.load(Ordering::Relaxed) > 0 {
                check_ledger(&db);
                std::thread::yield_now();
            }
        });
    });
    phase("fill the cache", before, || read(&db));
    let number = |index: u64| index * (KEYS / 500);
    let held: Vec<_> = phase("hold", before, || {
        let values = (0..500).map(|index| db.get(key(number(index))).unwrap().unwrap()).collect();
        read(&db);
        values
    });
    let bytes = db.stats().memory.held as usize;
    assert!((500 * 2000..500 * 6000).contains(&bytes), "blocks of 500 values: {bytes}");
    phase("read beside what is held", before + bytes, || read(&db));
    assert!((0..500).all(|index| held[index as usize][..] == value(number(index))));
    drop(held);
    assert_eq!(db.stats().memory.held, 0);
    phase("new filters", before, || {
        db.refilter(policy(10.0)).unwrap();
    });
    let crashed = tempfile::tempdir().unwrap();
    (0..20_000).for_each(|number| db.put(key(number), value(number)).unwrap());
    db.flush().unwrap();
    (0..1500).for_each(|number| db.put(key(number), value(number)).unwrap());
    db.settle().unwrap();
    copy(dir.path(), crashed.path());
    phase("close", before, || db.close().unwrap());
    let db = phase("open again", before, || open(dir.path()));
    let taken = || (ALLOCATED.current_usage(), db.stats().memory.total() as usize);
    let empty = taken();
    phase("read again", before, || read(&db));
    let full = taken();
    let (allocated, counted) = (full.0 - empty.0, full.1 - empty.1);
    assert!(counted > BUDGET / 8 * 7, "{counted}");
    assert!(allocated <= counted, "{allocated} bytes are allocated, {counted} are counted");
    db.close().unwrap();
    let db = phase("open after a crash", before, || open(crashed.path()));
    assert!(db.open_report().batches > 1000, "{:?}", db.open_report());
    phase("read what was recovered", before, || read(&db));
    db.close().unwrap();
    let crashed = tempfile::tempdir().unwrap();
    let batches = write_with_a_large_budget(crashed.path());
    let db = phase("open with logs of several times the budget", before, || open(crashed.path()));
    let report = db.open_report();
    assert!((report.batches, report.entries) == (batches, batches * 11) && report.flushes > 20, "{report:?}");
    check_ledger(&db);
    phase("read what was flushed", before, || {
        read(&db);
        let (few, keys) = (db.existing_keyspace("few").unwrap(), (0..batches).map(key));
        assert!(keys.map(|key| few.get(key).unwrap()).all(|value| value.unwrap().is_empty()));
    });
    db.close().unwrap();
    let large = tempfile::tempdir().unwrap();
    tables_of_a_large_budget(large.path());
    let db = phase("open with large tables", before, || open(large.path()));
    let many = db.existing_keyspace("many").unwrap();
    phase("new filters for large tables", before, || {
        assert_eq!(db.iter().map(Result::unwrap).count() as u64, MANY / 100);
        assert!((0..MANY / 100).all(|number| db.contains(key(number)).unwrap()));
        assert!(db.stats().memory.blocks as usize > BUDGET / 2);
        many.refilter(policy(10.0)).unwrap();
        let refused = many.refilter(policy(40.0)).unwrap_err();
        assert!(matches!(refused, Error::LimitExceeded { .. }), "{refused}");
        assert!(
            (0..2 * MANY).step_by(17).all(|number| many.contains(key(number)).unwrap() == (number < MANY))
        );
        check_ledger(&db);
        many.compact().unwrap();
        many.refilter(policy(20.0)).unwrap();
    });
    db.close().unwrap();
    drop(many);
    let left = ALLOCATED.current_usage().saturating_sub(before);
    assert!(left < 1 << 20, "{left} bytes are left when it is closed");
}

/// The guide states the maximum of a table's and a keyspace's entry.
const TABLE_ENTRY_BYTES: usize = 1900;
const KEYSPACE_ENTRY_BYTES: usize = 2700;

fn check_peak(name: &str, before: usize, (budget, beside): (usize, usize)) {
    let peak = ALLOCATED.peak_usage() - before;
    println!("{name}: {:.1} MiB", peak as f64 / f64::from(1 << 20));
    assert!(
        peak <= budget + beside + FIXED_BYTES,
        "{name}: {peak} bytes, the budget is {budget}, and {beside}"
    );
    ALLOCATED.reset_peak_usage();
}

#[test]
fn many_keyspaces_and_tables_allocate_their_entries_within_the_budget() {
    const KEYSPACES: usize = 1000;
    const TABLES: usize = 6 * KEYSPACES;
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().memory_budget(BUDGET).background_threads(0);
    let entries = TABLES * TABLE_ENTRY_BYTES + KEYSPACES * KEYSPACE_ENTRY_BYTES;
    let beside = entries - BUDGET / 2;
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let db = options().open(dir.path()).unwrap();
    let keyspaces: Vec<_> =
        (0..KEYSPACES).map(|n| db.keyspace(&format!("{n}"), KeyspaceOptions::new()).unwrap()).collect();
    let allocated = ALLOCATED.current_usage() - before;
    assert!(allocated <= KEYSPACES * KEYSPACE_ENTRY_BYTES + FIXED_BYTES / 4, "{allocated} bytes");
    for round in 0..6 {
        for keyspace in &keyspaces {
            let mut batch = WriteBatch::new();
            (10 * round..10 * round + 10).for_each(|number| {
                batch.put_in(keyspace, key(number), value(number));
            });
            db.write(batch).unwrap();
        }
        db.flush().unwrap();
        check_ledger(&db);
    }
    let tables: u64 = db.stats().keyspaces.iter().map(|keyspace| keyspace.total().tables).sum();
    assert_eq!(tables as usize, TABLES);
    let read = |db: &Db| {
        for n in 0..KEYSPACES {
            let keyspace = db.existing_keyspace(&format!("{n}")).unwrap();
            assert!((0..120).all(|number| keyspace.contains(key(number)).unwrap() == (number < 60)));
        }
        check_ledger(db);
    };
    read(&db);
    check_peak("1000 keyspaces with 6000 tables", before, (BUDGET, beside));
    drop(keyspaces);
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    let (allocated, counted) = (ALLOCATED.current_usage() - before, db.stats().memory.entries as usize);
    assert!(allocated <= entries + FIXED_BYTES / 4, "{allocated} bytes for entries of {entries}");
    assert!(
        (allocated * 8 / 10..=entries).contains(&counted),
        "{counted} bytes are counted, {allocated} allocated"
    );
    read(&db);
    check_peak("the same, opened again", before, (BUDGET, beside));
    db.close().unwrap();
}

#[test]
fn forty_snapshots_allocate_little_more_than_the_budget_and_the_held_memory() {
    const KEYS: u64 = 60_000;
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let budget = 2 * BUDGET;
    let before = ALLOCATED.current_usage();
    let db = Options::new().memory_budget(budget).background_threads(2).open(dir.path()).unwrap();
    let mut held = 0;
    let mut write = |from: u64| {
        for first in (from..from + 10_000).step_by(50) {
            let mut batch = WriteBatch::new();
            (first..first + 50).for_each(|number| {
                batch.put(key(number % KEYS), value(number));
            });
            db.write(batch).unwrap();
            held = held.max(db.stats().memory.held as usize);
        }
        check_ledger(&db);
    };
    (0..6).for_each(|round| write(10_000 * round));
    let mut snapshots = Vec::new();
    ALLOCATED.reset_peak_usage();
    for round in 6..46 {
        write(10_000 * round);
        snapshots.push(db.snapshot());
        assert!((0..KEYS).step_by(97).all(|number| snapshots[0].contains(key(number)).unwrap()));
    }
    for snapshot in snapshots.iter().step_by(8) {
        assert_eq!(snapshot.keys().take(20_000).map(Result::unwrap).count(), 20_000);
    }
    check_peak("40 snapshots", before, (budget, held));
    drop(snapshots);
    db.settle().unwrap();
    check_ledger(&db);
    let (allocated, counted) = (ALLOCATED.current_usage() - before, db.stats().memory);
    let counted = (counted.total() + counted.entries) as usize;
    assert!(allocated <= counted + FIXED_BYTES, "{allocated} bytes are allocated, {counted} are counted");
    db.close().unwrap();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn an_idle_store_returns_freed_memory_to_the_system() {
    use std::time::{Duration, Instant};

    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().memory_budget(16 * BUDGET).background_threads(2).open(dir.path()).unwrap();
    let _expiring = db.keyspace("expiring", KeyspaceOptions::new().ttl(Duration::from_secs(3600))).unwrap();
    let before = resident_bytes().saturating_sub(ALLOCATED.current_usage());
    // Another thread, so that its heap is separate.
    std::thread::scope(|scope| {
        scope.spawn(|| (0..KEYS).for_each(|number| db.put(key(number), value(number)).unwrap()));
    });
    db.settle().unwrap();
    let kept = || resident_bytes().saturating_sub(before + ALLOCATED.current_usage()) >> 20;
    let end = Instant::now() + Duration::from_secs(60);
    while kept() > 8 {
        assert!(Instant::now() < end, "the allocator keeps {} MiB", kept());
        std::thread::sleep(Duration::from_millis(20));
    }
}
