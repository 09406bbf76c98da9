//! The memory budget holds at every step of a store's life.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sievedb::fs::MemFs;
use sievedb::{Compression, Db, FilterKind, FilterPolicy, KeyspaceOptions, Options};

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn open(fs: &MemFs, budget: usize, threads: usize) -> Db {
    let filter = FilterPolicy::new(FilterKind::Bloom).bits_per_key(64.0);
    let options = Options::new().fs(Arc::new(fs.clone())).memory_budget(budget).background_threads(threads);
    options.default_keyspace(KeyspaceOptions::new().filter(filter)).open("/db").unwrap()
}

fn check(db: &Db, at: &str) -> f64 {
    let memory = db.stats().memory;
    assert!(memory.total() <= memory.budget, "{at}: {memory:?}");
    assert!(memory.memtables <= memory.budget / 4, "{at}: {memory:?}");
    memory.total() as f64 / memory.budget as f64
}

#[test]
fn memory_stays_within_a_budget_that_is_much_too_small() {
    for (budget, threads, keys) in [(1 << 20, 0, 90_000u64), (2 << 20, 2, 30_000)] {
        let fs = MemFs::new();
        let db = open(&fs, budget, threads);
        let other = db.keyspace("other", KeyspaceOptions::new()).unwrap();
        for number in 0..keys {
            let value = [7; 40];
            if number % 3 == 0 { other.put(key(number), value) } else { db.put(key(number), value) }.unwrap();
            if number % 32 == 0 {
                check(&db, "while writing");
            }
        }
        db.flush().unwrap();
        check(&db, "after flushing");
        let mut most: f64 = 0.0;
        for number in (0..keys).step_by(5) {
            assert_eq!(db.contains(key(number)).unwrap(), number % 3 != 0);
            assert_eq!(other.contains(key(number)).unwrap(), number % 3 == 0);
            most = most.max(check(&db, "while reading"));
        }
        assert!(most > 0.4, "the rest is used for blocks: {most}");
        let total = db.stats().keyspaces[0].total();
        assert_eq!(
            total.unloaded_filters > 0,
            keys > 50_000,
            "half a megabyte of filters has no room: {total:?}"
        );
        assert_eq!(db.iter().filter(|item| item.is_ok()).count() as u64, keys - keys.div_ceil(3));
        check(&db, "after a scan");
        db.compact().unwrap();
        check(&db, "after compacting");
        (0..3000u64).for_each(|number| db.put(key(keys + number), [8; 40]).unwrap());
        drop((db, other));
        let db = open(&fs, budget, threads);
        check(&db, "after opening");
        db.open_tables().unwrap();
        check(&db, "after opening all tables");
        assert!((0..3000).all(|number| db.contains(key(keys + number)).unwrap()));
    }
}

#[test]
fn idle_memory_is_lent_to_blocks_which_give_way_before_memtables_and_tables_grow() {
    let budget = 32 << 20;
    let db = open(&MemFs::new(), budget, 2);
    let keys = 400_000u64;
    let read = |from: u64, count: u64| {
        for number in (from..from + count).map(|number| number * 7919 % keys) {
            assert!(db.get(key(number)).unwrap().is_some());
        }
    };
    let write = |from: u64| {
        for number in from..from + 1000 {
            db.put(key(number % keys), [7; 100]).unwrap();
        }
        let mut batch = sievedb::WriteBatch::new();
        for number in from..from + 500 {
            batch.put(key(number % keys), [8; 1000]);
        }
        db.write(batch).unwrap();
    };
    (0..keys).for_each(|number| db.put(key(number), [7; 100]).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    read(0, keys);
    let idle = db.stats().memory;
    assert_eq!((idle.memtables, idle.builders), (0, 0));
    assert!(check(&db, "idle") > 0.95, "{idle:?}");
    let (mut memtables, mut builders, mut blocks) = (0, 0, u64::MAX);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..200).for_each(|round| write(round * 2000));
            db.flush().unwrap();
            is_done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            let mut from = 0;
            while !is_done.load(Ordering::Relaxed) {
                read(from, 1000);
                from += 1000;
            }
        });
        while !is_done.load(Ordering::Relaxed) {
            check(&db, "while writing and reading");
            let memory = db.stats().memory;
            (memtables, builders) = (memtables.max(memory.memtables), builders.max(memory.builders));
            blocks = blocks.min(memory.blocks);
        }
    });
    assert!(
        memtables > 1 << 20 && builders > 1 << 16 && blocks < idle.blocks,
        "{memtables} {builders} {blocks}"
    );
    db.settle().unwrap();
    read(0, keys);
    assert!(check(&db, "idle again") > 0.95, "{:?}", db.stats().memory);
}

#[test]
fn a_batch_larger_than_all_memtables_is_written_alone() {
    let db = open(&MemFs::new(), 1 << 20, 0);
    let mut batch = sievedb::WriteBatch::new();
    for number in 0..2000 {
        batch.put(key(number), [1; 500]);
    }
    db.put("before", "1").unwrap();
    db.write(batch).unwrap();
    assert!(db.stats().memory.memtables > 1 << 18);
    db.put("after", "2").unwrap();
    check(&db, "after the next write");
    assert!((0..2000).all(|number| db.contains(key(number)).unwrap()));
    assert!(db.contains("before").unwrap() && db.contains("after").unwrap());
}

#[test]
fn a_scan_of_a_large_store_leaves_half_of_the_cache_free_and_one_of_a_small_store_is_cached() {
    const BUDGET: u64 = 16 << 20;
    let cached = |entries: u32| {
        let keyspace = KeyspaceOptions::new().compression(Compression::None);
        let options = Options::new().fs(Arc::new(MemFs::new())).memory_budget(BUDGET as usize);
        let options = options.background_threads(0).default_keyspace(keyspace);
        let db = options.clone().open("/db").unwrap();
        (0..entries).for_each(|n| db.put(n.to_be_bytes(), [7; 300]).unwrap());
        db.compact().unwrap();
        db.close().unwrap();
        let db = options.open("/db").unwrap();
        for _ in 0..2 {
            assert_eq!(db.iter().inspect(|item| assert!(item.is_ok())).count(), entries as usize);
        }
        let reads = db.stats().data_block_reads;
        assert_eq!(db.iter().count(), entries as usize);
        (db.stats().memory.blocks, db.stats().data_block_reads - reads)
    };
    let (blocks, reads) = cached(60_000);
    assert!((BUDGET / 4..BUDGET * 5 / 8).contains(&blocks) && reads > 1000, "{blocks} bytes, {reads} reads");
    let (_, reads) = cached(10_000);
    assert_eq!(reads, 0, "all blocks are cached");
}
