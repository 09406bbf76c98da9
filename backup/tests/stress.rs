//! Checkpoints, backups and restores under 8 writers that make calls of every kind. Each copy opens, verifies, and equals the
//! model.
//!
//! # Model
//!
//! Each writer has its own keys in the default keyspace, and its own keyspace. A seed determines its operations, each of which
//! increments `count/WRITER` in the same batch. So this counter shows the writer's operations in a copy, and a map that repeats
//! them has the expected entries. A counter that all writers increment shows that the copy is one moment. A copy has all
//! operations that returned before it was begun, and none that began after it was made.
//!
//! The entries of a third keyspace expire. Its model has the times before and after each operation. A copy is opened at a later
//! time, and must have the entries that are younger than the time to live, and none that is older by a bucket and a second.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use sievedb::{
    Db, Durability, FilterKind, FilterPolicy, KeyspaceOptions, Options, SimulatedClock, WriteBatch,
};
use sievedb_backup::{Control, Repository, Restore};

use crate::support::rng::Rng;
use crate::support::sample::thorough;

const WRITERS: u64 = 8;
const KEYS: u64 = 200;

const EXPIRING: &str = "expiring";
/// In milliseconds, as all times here.
const TTL: u64 = 60_000;
const BUCKET: u64 = 10_000;
const SECOND: u64 = 1000;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// In addition to counting itself.
enum Operation {
    /// Creates or drops the writer's keyspace.
    Keyspace,
    /// Only counts, if the counter has its last value.
    Conditional,
    /// Writes to all three keyspaces, in a batch or, if `shares` is set, in a transaction that increments the common counter.
    Write { range: Option<(Vec<u8>, Vec<u8>)>, puts: Vec<(Vec<u8>, Option<Vec<u8>>)>, shares: bool },
}

fn operation(seed: u64, writer: u64, count: u64) -> Operation {
    let mut rng = Rng::new(seed ^ writer << 56 ^ count);
    match rng.below(30) {
        0 => return Operation::Keyspace,
        1..4 => return Operation::Conditional,
        _ => {}
    }
    let range = rng.one_in(9).then(|| {
        let start = rng.below(KEYS);
        (key(writer, start), key(writer, start + 1 + rng.below(30)))
    });
    let puts = (0..=rng.below(6)).map(|_| {
        let value = || format!("{count} {}", "x".repeat(count as usize * 37 % 300)).into_bytes();
        (key(writer, rng.below(KEYS)), (!rng.one_in(4)).then(value))
    });
    Operation::Write { range, puts: puts.collect(), shares: rng.one_in(5) }
}

fn key(writer: u64, number: u64) -> Vec<u8> {
    format!("w{writer}/{number:04}").into_bytes()
}

fn counter(writer: u64) -> String {
    format!("count/{writer}")
}

fn share(writer: u64) -> String {
    format!("share/{writer}")
}

fn own_name(writer: u64) -> String {
    format!("of {writer}")
}

fn number(value: Option<sievedb::Value>) -> u64 {
    value.map_or(0, |value| str::from_utf8(&value).unwrap().parse().unwrap())
}

fn work(db: &Db, seed: u64, writer: u64, count: u64) -> sievedb::Result<()> {
    let (name, counted) = (own_name(writer), count.to_string());
    let own = db.existing_keyspace(&name);
    let spaces = || [Some(db.default_keyspace()), db.existing_keyspace(EXPIRING), own.clone()];
    match operation(seed, writer, count) {
        Operation::Conditional => {
            let before = (count > 1).then(|| (count - 1).to_string());
            let set = db.compare_and_set(
                counter(writer),
                before.as_deref().map(str::as_bytes),
                Some(counted.as_bytes()),
            )?;
            assert!(set.is_ok(), "nobody else sets it");
            Ok(())
        }
        // Counted first: a copy may have either state.
        Operation::Keyspace => {
            db.put(counter(writer), counted)?;
            match own {
                Some(_) => db.drop_keyspace(&name),
                None => db.keyspace(&name, KeyspaceOptions::new().memtable_bytes(64 << 10)).map(drop),
            }
        }
        Operation::Write { range, puts, shares: true } => db.transact(|all| {
            let (shared, mine) = (number(all.get("shared")?), number(all.get(share(writer))?));
            for space in spaces().iter().flatten() {
                let space = all.keyspace(space);
                if let Some((start, end)) = &range {
                    space.delete_range(&start[..]..&end[..]);
                }
                puts.iter().for_each(|(key, value)| match value {
                    Some(value) => _ = space.put(key, value),
                    None => _ = space.delete(key),
                });
            }
            all.put("shared", (shared + 1).to_string()).put(share(writer), (mine + 1).to_string());
            all.put(counter(writer), &counted);
            Ok(())
        }),
        Operation::Write { range, puts, shares: false } => {
            let mut batch = WriteBatch::new();
            for space in spaces().iter().flatten() {
                if let Some((start, end)) = &range {
                    batch.delete_range_in(space, &start[..]..&end[..]);
                }
                puts.iter().for_each(|(key, value)| match value {
                    Some(value) => _ = batch.put_in(space, key, value),
                    None => _ = batch.delete_in(space, key),
                });
            }
            batch.put(counter(writer), counted);
            let durability = if count.is_multiple_of(50) { Durability::Synced } else { Durability::Buffered };
            db.write_with(batch, durability)
        }
    }
}

#[derive(Default)]
struct Model {
    count: u64,
    default: Entries,
    /// Entries of the writer's keyspace, if it exists.
    own: Option<Entries>,
    /// `own` before the last operation, if that created or dropped the keyspace.
    before: Option<Option<Entries>>,
    shared: u64,
    /// Values with the operation that wrote them.
    expiring: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
}

impl Model {
    fn advance(&mut self, seed: u64, writer: u64, count: u64) {
        while self.count < count {
            self.count += 1;
            self.before = None;
            match operation(seed, writer, self.count) {
                Operation::Conditional => {}
                Operation::Keyspace => {
                    let now = self.own.is_none().then(Entries::new);
                    self.before = Some(std::mem::replace(&mut self.own, now));
                }
                Operation::Write { range, puts, shares } => {
                    if let Some((start, end)) = &range {
                        self.expiring.retain(|key, _| key < start || key >= end);
                    }
                    for (key, value) in &puts {
                        match value {
                            Some(value) => {
                                drop(self.expiring.insert(key.clone(), (value.clone(), self.count)));
                            }
                            None => drop(self.expiring.remove(key)),
                        }
                    }
                    for entries in [Some(&mut self.default), self.own.as_mut()].into_iter().flatten() {
                        if let Some((start, end)) = &range {
                            entries.retain(|key, _| key < start || key >= end);
                        }
                        for (key, value) in &puts {
                            match value {
                                Some(value) => drop(entries.insert(key.clone(), value.clone())),
                                None => drop(entries.remove(key)),
                            }
                        }
                    }
                    self.shared += u64::from(shares);
                }
            }
        }
    }
}

fn entries(keyspace: &sievedb::Keyspace) -> Entries {
    let entry = |item: sievedb::Result<(sievedb::Value, sievedb::Value)>| {
        let (key, value) = item.unwrap();
        (key.to_vec(), value.to_vec())
    };
    keyspace.iter().map(entry).collect()
}

/// Of an operation: before, and after if it has returned.
type Times = (u64, Option<u64>);

/// Checks copies, each of which has more operations than the last.
struct Checker<'a> {
    seed: u64,
    models: Vec<Model>,
    times: &'a [Mutex<Vec<Times>>],
    /// Checked entries that have expired, and that have not.
    expired: u64,
    visible: u64,
}

impl Checker<'_> {
    /// A copy has at least `returned` operations of each writer, and at most `begun`. It was complete at `made`, and is opened
    /// at `now`.
    fn check(
        &mut self,
        dir: &Path,
        (made, now): (u64, u64),
        (returned, begun): (&[u64], &[u64]),
        about: &str,
    ) {
        let options = Options::new().background_threads(0).memory_budget(8 << 20);
        let copy = options.clock(SimulatedClock::at(now)).open(dir).unwrap();
        let report = copy.open_report();
        assert!(report.dropped.is_empty() && report.ignored.is_empty(), "{about}: {report:?}");
        let mut expected = Entries::new();
        let mut shared = 0;
        for (writer, model) in (0..).zip(&mut self.models) {
            let count = number(copy.get(counter(writer)).unwrap());
            let (least, most) = (returned[writer as usize], begun[writer as usize]);
            assert!(
                (least..=most).contains(&count),
                "{about}: {count} of writer {writer}, not {least} to {most}"
            );
            model.advance(self.seed, writer, count);
            expected.extend(model.default.clone());
            shared += model.shared;
            if count > 0 {
                expected.insert(counter(writer).into(), count.to_string().into());
            }
            if model.shared > 0 {
                expected.insert(share(writer).into(), model.shared.to_string().into());
            }
            let own = copy.existing_keyspace(&own_name(writer)).map(|own| entries(&own));
            let is_right = own == model.own || model.before.as_ref() == Some(&own);
            assert!(is_right, "{about}: the keyspace of writer {writer} after {count} operations");
        }
        if shared > 0 {
            expected.insert("shared".into(), shared.to_string().into());
        }
        assert!(entries(&copy.default_keyspace()) == expected, "{about}: the default keyspace");
        let found = entries(&copy.existing_keyspace(EXPIRING).unwrap());
        self.check_expiring(&found, made, now, about);
        assert!(copy.verify().unwrap().damage.is_empty(), "{about}");
        copy.put("it can be", "written to").unwrap();
        copy.close().unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }

    fn check_expiring(&mut self, found: &Entries, made: u64, now: u64, about: &str) {
        let mut allowed = Entries::new();
        for (model, times) in self.models.iter().zip(self.times) {
            let times = times.lock().unwrap();
            for (key, (value, count)) in &model.expiring {
                let (before, after) = times[*count as usize - 1];
                let is_young = now - before < TTL;
                let written = after.map_or(made, |after| after.min(made));
                let is_old = now - written >= TTL + BUCKET + SECOND;
                let is_right = !is_young || found.get(key) == Some(value);
                assert!(is_right, "{about}: {key:?} of {before} is hidden at {now}");
                self.visible += u64::from(is_young);
                self.expired += u64::from(is_old);
                if !is_old {
                    allowed.insert(key.clone(), value.clone());
                }
            }
        }
        let wrong = found.iter().find(|(key, value)| allowed.get(*key) != Some(value));
        assert!(wrong.is_none(), "{about}: {wrong:?} at {now}");
    }
}

fn loads(counts: &[AtomicU64]) -> Vec<u64> {
    counts.iter().map(|count| count.load(Ordering::SeqCst)).collect()
}

/// By small steps, which are no leap of the clock.
fn pass(clock: &SimulatedClock, millis: u64) {
    (0..millis / 100).for_each(|_| clock.advance(Duration::from_millis(100)));
}

#[test]
fn copies_under_eight_writers_open_verify_and_are_one_moment_of_all() {
    let seed = std::env::var("SIEVEDB_SEED").map_or(20_261_126, |seed| seed.parse().unwrap());
    let rounds = if thorough() { 200 } else { 12 };
    let seconds = std::env::var("SIEVEDB_SECONDS").map_or(0, |seconds| seconds.parse().unwrap());
    println!("seed {seed}, at least {rounds} copies and {seconds} seconds");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let keyspace =
        KeyspaceOptions::new().memtable_bytes(64 << 10).table_bytes(32 << 10).level_base_bytes(128 << 10);
    let options =
        Options::new().background_threads(2).memory_budget(16 << 20).default_keyspace(keyspace.clone());
    let clock = SimulatedClock::at(1_720_000_200_000);
    let db = options.clock(clock.clone()).open(at("db")).unwrap();
    let keyspace = keyspace.ttl(Duration::from_millis(TTL)).ttl_buckets(TTL / BUCKET);
    db.keyspace(EXPIRING, keyspace).unwrap();
    // It trusts the clock after a bucket.
    pass(&clock, BUCKET);
    let reading = || Options::new().memory_budget(8 << 20).clock(clock.clone());
    // A day passes in eight copies.
    let hours = Arc::new(AtomicU64::new(0));
    let passed = Arc::clone(&hours);
    let repository = Repository::create(at("repo"))
        .unwrap()
        .clock(move || SystemTime::now() + Duration::from_secs(3600 * passed.load(Ordering::SeqCst)));
    let [begun, returned] = [0; 2].map(|_| (0..WRITERS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let stop = AtomicBool::new(false);
    let times: Vec<Mutex<Vec<Times>>> = (0..WRITERS).map(|_| Mutex::default()).collect();
    let models = (0..WRITERS).map(|_| Model::default()).collect();
    let mut checker = Checker { seed, models, times: &times, expired: 0, visible: 0 };
    let (start, mut made, mut deleted) = (Instant::now(), 0, 0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (begun, returned) = (&begun[writer as usize], &returned[writer as usize]);
            let (db, times, clock, stop) = (&db, &times[writer as usize], &clock, &stop);
            scope.spawn(move || {
                for count in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    times.lock().unwrap().push((clock.now(), None));
                    begun.store(count, Ordering::SeqCst);
                    // A transaction may lose all its attempts on a slow disk; nothing is written then.
                    while let Err(error) = work(db, seed, writer, count) {
                        let is_conflict = matches!(error, sievedb::Error::Conflict { .. });
                        assert!(is_conflict, "writer {writer}, {count}: {error}");
                    }
                    times.lock().unwrap().last_mut().unwrap().1 = Some(clock.now());
                    returned.store(count, Ordering::SeqCst);
                    clock.advance(Duration::from_millis(count % 50));
                }
            });
        }
        scope.spawn(|| {
            let mut rng = Rng::new(seed);
            while !stop.load(Ordering::Relaxed) {
                match rng.below(4) {
                    0 => db.flush().unwrap(),
                    1 => db.compact().unwrap(),
                    2 => db.settle().unwrap(),
                    _ => {
                        let kind = if rng.one_in(2) { FilterKind::Ribbon } else { FilterKind::Bloom };
                        db.refilter(FilterPolicy::new(kind).bits_per_key(8.0 + rng.below(8) as f64)).unwrap();
                    }
                }
            }
        });
        let copies = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while made < rounds || start.elapsed().as_secs() < seconds {
                let (round, least) = (made, loads(&returned));
                let about = format!("seed {seed}, {round}");
                let most = match round % 3 {
                    0 => {
                        db.checkpoint(at("copy")).unwrap();
                        loads(&begun)
                    }
                    kind => {
                        let backup = match kind {
                            1 => repository.backup(&db, &mut Control::new()),
                            _ => {
                                let reader = reading().read_only().open(at("db")).unwrap();
                                repository.backup(&reader, &mut Control::new())
                            }
                        };
                        let most = loads(&begun);
                        let id = backup.unwrap_or_else(|error| panic!("{about}: {error}")).backup.id;
                        let restore = Restore::new().at(id).options(reading());
                        let report = repository.restore(at("copy"), &restore, &mut Control::new());
                        let report = report.unwrap_or_else(|error| panic!("{about}: {error}"));
                        assert!(report.repair.is_none());
                        most
                    }
                };
                let complete = clock.now();
                // The copy is opened at once, when some have expired, or when all have.
                let now = complete + [0, TTL / 2, TTL + BUCKET + SECOND][round / 3 % 3];
                checker.check(&at("copy"), (complete, now), (&least, &most), &about);
                if round % 10 == 9 {
                    deleted += repository.prune(3).unwrap().deleted_files;
                }
                made += 1;
                hours.fetch_add(3, Ordering::SeqCst);
                pass(&clock, 6 * SECOND);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        copies.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(repository.verify(&mut Control::new()).unwrap().is_sound());
    let done: u64 = loads(&returned).iter().sum();
    let stats = db.stats();
    let horizon = stats.keyspace(EXPIRING).unwrap().expiry.as_ref().unwrap().horizon;
    println!(
        "{made} copies, {done} operations of the writers, {} flushes, {} compactions, horizon {horizon}, {deleted} files deleted",
        stats.flushes, stats.compactions
    );
    assert!(done > 500 && stats.flushes > 5 && stats.compactions > 0, "{done}");
    db.close().unwrap();
    let (now, counts) = (clock.now(), (loads(&returned), loads(&begun)));
    checker.check(&at("db"), (now, now), (&counts.0, &counts.1), "the store itself");
    println!("{} entries were visible, {} had expired", checker.visible, checker.expired);
    assert!(checker.visible > 500 && checker.expired > 500 && horizon > 0);
}
