//! Trees of keyspaces with expiry: counts of bytes written, bytes on disk, and runs probed. The test sets the clock.

use std::collections::BTreeMap;
use std::time::Duration;

use sievedb::fs::MemFs;
use sievedb::{BucketStats, Db, ExpiryStats, Keyspace, KeyspaceOptions, Snapshot, TimeSource};

use crate::support::rng::Rng;
use crate::support::store::{self, DIR};

const HOUR: Duration = Duration::from_secs(3600);
const BUCKETS: u32 = 24;

fn hour(hour: u32) -> Duration {
    1000 * HOUR + hour * HOUR
}

fn day(options: KeyspaceOptions) -> KeyspaceOptions {
    options.ttl(24 * HOUR).ttl_buckets(BUCKETS.into()).time_source(TimeSource::Caller)
}

fn open(fs: &MemFs) -> (Db, Keyspace) {
    let db = store::options(fs).memory_budget(8 << 20).open(DIR).unwrap();
    let options = KeyspaceOptions::new().memtable_bytes(16 << 10).table_bytes(64 << 10).block_bytes(1024);
    let keyspace = db.keyspace("ids", day(options)).unwrap();
    (db, keyspace)
}

fn work(db: &Db) {
    while db.step().unwrap() {}
}

fn expiry(db: &Db) -> ExpiryStats {
    db.stats().keyspace("ids").unwrap().expiry.clone().unwrap()
}

fn table_bytes(db: &Db) -> u64 {
    db.stats().keyspace("ids").unwrap().total().bytes
}

fn visible(buckets: &[BucketStats]) -> impl DoubleEndedIterator<Item = &BucketStats> {
    buckets.iter().filter(|bucket| !bucket.is_hidden)
}

fn insert(db: &Db, keyspace: &Keyspace, at: u32, ids: u32) {
    keyspace.advance_time(hour(at)).unwrap();
    let id = |number: u32| {
        let mixed = (u64::from(at) << 32 | u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [mixed.rotate_left(29), mixed].map(u64::to_be_bytes).concat()
    };
    for first in (0..ids).step_by(100) {
        let new = keyspace.insert_new_many((first..ids.min(first + 100)).map(|number| (id(number), [7; 40])));
        assert!(new.unwrap().iter().all(|is_new| is_new));
        work(db);
    }
}

#[test]
fn three_windows_cost_three_bytes_a_byte_and_the_disk_of_a_window_and_two_buckets() {
    const IDS: u32 = 1500;
    let (db, keyspace) = open(&MemFs::new());
    let mut most = 0;
    for at in 0..3 * BUCKETS {
        insert(&db, &keyspace, at, IDS);
        assert_eq!(db.stats().keyspace("ids").unwrap().owed_bytes, 0);
        let expiry = expiry(&db);
        let closed: Vec<_> = visible(&expiry.buckets).rev().skip(1).collect();
        assert!(closed.iter().all(|bucket| bucket.runs == 1), "hour {at}: {closed:?}");
        let runs = db.stats().keyspace("ids").unwrap().total().runs;
        assert!(runs <= u64::from(BUCKETS + 1 + 12), "hour {at}: {runs} runs");
        most = most.max(table_bytes(&db));
    }
    let stats = db.stats();
    let (flushed, compacted) = (stats.flushed_bytes, stats.compacted_bytes);
    assert!(flushed + compacted <= 3 * flushed, "{flushed} + {compacted}");
    assert!(compacted > flushed, "it shows nothing if nothing is merged");
    let of_bucket = flushed / u64::from(3 * BUCKETS);
    let most_allowed = of_bucket * u64::from(BUCKETS + 2);
    assert!(most <= most_allowed, "{most} of {most_allowed}");
    assert!(stats.keyspace("ids").unwrap().levels[1..].iter().all(|level| level.tables == 0));
}

#[test]
fn buckets_that_have_expired_are_dropped_unread_also_if_nothing_is_written() {
    let (db, keyspace) = open(&MemFs::new());
    (0..4).for_each(|at| insert(&db, &keyspace, at, 3000));
    keyspace.flush().unwrap();
    work(&db);
    let (before, bytes) = (db.stats(), table_bytes(&db));
    keyspace.advance_time(hour(2 + 24)).unwrap();
    work(&db);
    let left = table_bytes(&db);
    assert!(left < bytes * 6 / 10 && left > bytes * 4 / 10, "{left} of {bytes}");
    keyspace.advance_time(hour(5 + 24)).unwrap();
    work(&db);
    let after = db.stats();
    assert_eq!((table_bytes(&db), keyspace.iter().count()), (0, 0));
    assert_eq!(
        (after.compactions, after.data_block_reads, after.flushes),
        (before.compactions, before.data_block_reads, before.flushes)
    );
    assert!(db.verify().unwrap().damage.is_empty());
}

#[test]
fn the_memory_of_bucket_boundaries_is_counted_and_released() {
    let db = store::options(&MemFs::new()).open(DIR).unwrap();
    let options = KeyspaceOptions::new().ttl(128 * HOUR).ttl_buckets(128).time_source(TimeSource::Caller);
    let keyspace = db.keyspace("ids", options).unwrap();
    let entries = || db.stats().memory.entries;
    let before = entries();
    for at in 0..64 {
        keyspace.advance_time(hour(2 * at)).unwrap();
        keyspace.put("id", "").unwrap();
    }
    // The tree and the state of the manifest have 16 bytes per boundary, in vectors that grow by doubling.
    let (counted, least) = (entries() - before, 127 * 2 * 16);
    assert!((least..=2 * least + 64).contains(&counted), "{counted}, {least}");
    keyspace.set_options(KeyspaceOptions::new()).unwrap();
    assert_eq!(entries(), before);
}

#[test]
fn a_snapshot_holds_buckets_and_statistics_name_them() {
    let (db, keyspace) = open(&MemFs::new());
    (0..3).for_each(|at| insert(&db, &keyspace, at, 1000));
    let snapshot: Snapshot = db.snapshot();
    keyspace.advance_time(hour(40)).unwrap();
    work(&db);
    assert_eq!(keyspace.iter().count(), 0);
    let held = expiry(&db);
    let hidden: Vec<_> = held.buckets.iter().filter(|bucket| bucket.is_hidden).collect();
    assert_eq!(hidden.iter().map(|bucket| bucket.bytes).sum::<u64>(), table_bytes(&db), "{held:?}");
    assert_eq!(db.stats().oldest_snapshot, Some(snapshot.seqno()));
    assert!(db.stats().to_string().contains("held by a snapshot"), "{}", db.stats());
    assert_eq!(snapshot.keyspace(&keyspace).iter().count(), 3000);
    keyspace.compact().unwrap();
    assert_eq!(snapshot.keyspace(&keyspace).iter().count(), 3000);
    drop(snapshot);
    work(&db);
    assert_eq!((table_bytes(&db), expiry(&db).buckets), (0, vec![]));
}

#[test]
fn compact_makes_one_run_of_each_bucket_and_keeps_them_apart() {
    let (db, keyspace) = open(&MemFs::new());
    for at in 0..3 {
        insert(&db, &keyspace, at, 3000);
    }
    keyspace.compact().unwrap();
    let buckets = expiry(&db).buckets;
    assert_eq!(buckets.iter().map(|bucket| bucket.runs).collect::<Vec<_>>(), [1, 1, 1], "{buckets:?}");
    assert!(buckets.windows(2).all(|pair| pair[0].ends == pair[1].begins), "{buckets:?}");
    let times: Vec<_> = (1..=3).map(|at| Some(hour(at).as_millis() as u64)).collect();
    assert_eq!(buckets.iter().map(|bucket| bucket.ends).collect::<Vec<_>>(), times);
    let in_a_day = |time: Option<u64>| time.map(|time| time + 24 * 3_600_000);
    assert!(buckets.iter().all(|bucket| bucket.expires == in_a_day(bucket.ends)));
    assert_eq!(expiry(&db).next_expiry, buckets[0].expires);
    let compactions = db.stats().compactions;
    keyspace.compact().unwrap();
    assert_eq!(db.stats().compactions, compactions);
    keyspace.advance_time(hour(1 + 24)).unwrap();
    work(&db);
    assert_eq!(expiry(&db).buckets.len(), 2);
    assert_eq!(keyspace.len().unwrap(), 6000);
}

#[test]
fn an_idle_keyspace_has_few_runs_and_its_entries_expire_on_time() {
    let (db, keyspace) = open(&MemFs::new());
    // Runs below 1 MiB are small.
    keyspace.set_options(day(KeyspaceOptions::new())).unwrap();
    let mut most = 0;
    for at in 0..4 * BUCKETS {
        keyspace.advance_time(hour(at)).unwrap();
        keyspace.put(at.to_be_bytes(), "v").unwrap();
        keyspace.flush().unwrap();
        work(&db);
        let first = at.saturating_sub(BUCKETS);
        let keys: Vec<_> = keyspace.keys().map(|key| key.unwrap().to_vec()).collect();
        let expected: Vec<_> = (first..=at).map(|at| at.to_be_bytes().to_vec()).collect();
        assert_eq!(keys, expected, "hour {at}");
        most = most.max(db.stats().keyspace("ids").unwrap().total().runs);
    }
    assert!(most <= 12, "{most} runs");
}

#[test]
fn answers_are_those_of_a_map_through_merges_snapshots_and_reopening() {
    for seed in 1..=4 {
        let (fs, mut rng) = (MemFs::new(), Rng::new(seed));
        let (mut db, mut keyspace) = open(&fs);
        let mut model: BTreeMap<[u8; 2], (u32, u32)> = BTreeMap::new();
        for at in 0..2 * BUCKETS + 6 {
            keyspace.advance_time(hour(at)).unwrap();
            model.retain(|_, (written, _)| *written + BUCKETS >= at);
            for round in 0..3 {
                for _ in 0..60 {
                    let key = (rng.below(400) as u16).to_be_bytes();
                    let value = at * 100 + round;
                    match rng.below(4) {
                        0 => {
                            keyspace.delete(key).unwrap();
                            model.remove(&key);
                        }
                        1 => {
                            keyspace.put(key, value.to_be_bytes()).unwrap();
                            model.insert(key, (at, value));
                        }
                        _ => {
                            let is_new = keyspace.insert_if_absent(key, value.to_be_bytes()).unwrap();
                            assert_eq!(is_new, !model.contains_key(&key), "seed {seed}, hour {at}, {key:?}");
                            model.entry(key).or_insert((at, value));
                        }
                    }
                }
                match rng.below(6) {
                    0..4 => keyspace.flush().unwrap(),
                    4 => keyspace.compact().unwrap(),
                    _ => {}
                }
                work(&db);
                let found: Vec<_> = keyspace.iter().map(Result::unwrap).collect();
                let found = found.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
                let expected =
                    model.iter().map(|(key, (_, value))| (key.to_vec(), value.to_be_bytes().to_vec()));
                assert!(found.eq(expected), "seed {seed}, hour {at}");
            }
            if rng.below(5) == 0 {
                drop(keyspace);
                db.close().unwrap();
                (db, keyspace) = open(&fs);
                assert!(db.verify().unwrap().damage.is_empty());
            }
        }
    }
}
