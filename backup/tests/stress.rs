//! Checkpoints, backups and restores under 8 writers that make calls of every kind. Each copy opens, verifies, and equals the
//! model.
//!
//! # Model
//!
//! Each writer has its own keys in the default keyspace, and its own keyspace. A seed determines its operations, each of which
//! increments `count/WRITER` in the same batch. So this counter shows the writer's operations in a copy, and a map that repeats
//! them has the expected entries. A counter that all writers increment shows that the copy is one moment. A copy has all
//! operations that returned before it was begun, and none that began after it was made.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sievedb::{Db, Durability, FilterKind, FilterPolicy, KeyspaceOptions, Options, WriteBatch};
use sievedb_backup::{Control, Repository, Restore};

use crate::support::rng::Rng;
use crate::support::sample::thorough;

const WRITERS: u64 = 8;
const KEYS: u64 = 200;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// In addition to counting itself.
enum Operation {
    /// Creates or drops the writer's keyspace.
    Keyspace,
    /// Only counts, if the counter has its last value.
    Conditional,
    /// Writes to both keyspaces, in a batch or, if `shares` is set, in a transaction that increments the common counter.
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
            let spaces =
                [Some(all.keyspace(&db.default_keyspace())), own.as_ref().map(|own| all.keyspace(own))];
            for space in spaces.iter().flatten() {
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
            for space in [Some(db.default_keyspace()), own].iter().flatten() {
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

/// A copy has at least `returned` operations of each writer, and at most `begun`.
fn check(dir: &Path, models: &mut [Model], seed: u64, returned: &[u64], begun: &[u64], about: &str) {
    let copy = Options::new().background_threads(0).memory_budget(8 << 20).open(dir).unwrap();
    let report = copy.open_report();
    assert!(report.dropped.is_empty() && report.ignored.is_empty(), "{about}: {report:?}");
    let mut expected = Entries::new();
    let mut shared = 0;
    for (writer, model) in (0..).zip(models) {
        let count = number(copy.get(counter(writer)).unwrap());
        let (least, most) = (returned[writer as usize], begun[writer as usize]);
        assert!(
            (least..=most).contains(&count),
            "{about}: {count} of writer {writer}, not {least} to {most}"
        );
        model.advance(seed, writer, count);
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
    assert!(copy.verify().unwrap().damage.is_empty(), "{about}");
    copy.put("it can be", "written to").unwrap();
    copy.close().unwrap();
    std::fs::remove_dir_all(dir).unwrap();
}

fn loads(counts: &[AtomicU64]) -> Vec<u64> {
    counts.iter().map(|count| count.load(Ordering::SeqCst)).collect()
}

#[test]
fn copies_under_eight_writers_open_verify_and_are_one_moment_of_all() {
    let seed = std::env::var("SIEVEDB_SEED").map_or(20_261_126, |seed| seed.parse().unwrap());
    let rounds = if thorough() { 200 } else { 12 };
    println!("seed {seed}, {rounds} copies");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let keyspace =
        KeyspaceOptions::new().memtable_bytes(64 << 10).table_bytes(32 << 10).level_base_bytes(128 << 10);
    let options = Options::new().background_threads(2).memory_budget(16 << 20).default_keyspace(keyspace);
    let db = options.open(at("db")).unwrap();
    let repository = Repository::create(at("repo")).unwrap();
    let [begun, returned] = [0; 2].map(|_| (0..WRITERS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let stop = AtomicBool::new(false);
    let mut models: Vec<Model> = (0..WRITERS).map(|_| Model::default()).collect();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, begun, returned, stop) =
                (&db, &begun[writer as usize], &returned[writer as usize], &stop);
            scope.spawn(move || {
                for count in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    begun.store(count, Ordering::SeqCst);
                    // A transaction may lose all its attempts on a slow disk; nothing is written then.
                    while let Err(error) = work(db, seed, writer, count) {
                        let is_conflict = matches!(error, sievedb::Error::Conflict { .. });
                        assert!(is_conflict, "writer {writer}, {count}: {error}");
                    }
                    returned.store(count, Ordering::SeqCst);
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
            for round in 0..rounds {
                let least = loads(&returned);
                let about = format!("seed {seed}, {round}");
                match round % 3 {
                    0 => db.checkpoint(at("copy")).unwrap(),
                    kind => {
                        let backup = match kind {
                            1 => repository.backup(&db, &mut Control::new()),
                            _ => {
                                let reader =
                                    Options::new().read_only().memory_budget(8 << 20).open(at("db")).unwrap();
                                repository.backup(&reader, &mut Control::new())
                            }
                        };
                        let id = backup.unwrap_or_else(|error| panic!("{about}: {error}")).backup.id;
                        let restore = Restore::new().at(id).options(Options::new().memory_budget(8 << 20));
                        let report = repository.restore(at("copy"), &restore, &mut Control::new());
                        let report = report.unwrap_or_else(|error| panic!("{about}: {error}"));
                        assert!(report.repair.is_none());
                    }
                }
                check(&at("copy"), &mut models, seed, &least, &loads(&begun), &about);
                if round % 10 == 9 {
                    repository.prune(3).unwrap();
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        copies.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(repository.verify(&mut Control::new()).unwrap().is_sound());
    let done: u64 = loads(&returned).iter().sum();
    let stats = db.stats();
    println!(
        "{done} operations of the writers, {} flushes, {} compactions",
        stats.flushes, stats.compactions
    );
    assert!(done > 500 && stats.flushes > 5 && stats.compactions > 0, "{done}");
    db.close().unwrap();
    check(&at("db"), &mut models, seed, &loads(&returned), &loads(&begun), "the store itself");
}
