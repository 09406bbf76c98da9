//! Conditional writes: one answer per key, answers after a power loss, refused calls.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::fs::{CrashPolicy, MemFs};
use sievedb::limits::KEY_BYTES_MAX;
use sievedb::{Db, Durability, Error, KeyspaceOptions};

use crate::support::rng::Rng;
use crate::support::store::{self, DIR};

const THREADS: u64 = 8;

fn key(n: u64) -> Vec<u8> {
    [&b"key "[..], &n.to_be_bytes()].concat()
}

pub(crate) fn during_flushes<T: Send>(db: &Db, deed: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let background = scope.spawn(|| {
            for round in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    return;
                }
                db.flush().unwrap();
                if round % 8 == 7 {
                    db.compact().unwrap();
                }
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let deed = &deed;
                scope.spawn(move || deed(thread))
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>();
        is_done.store(true, Ordering::Relaxed);
        background.join().unwrap();
        results.into_iter().map(|result| result.unwrap()).collect()
    })
}

#[test]
fn each_key_is_new_to_one_of_eight_threads_through_flushes_kills_and_reopenings() {
    let (keys, rounds, calls) = (4000, 5, 1500);
    let winners: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    let mut fs = MemFs::new();
    for round in 1..=rounds {
        let db = store::options(&fs).background_threads(2).open(DIR).unwrap();
        during_flushes(&db, |thread| {
            let rng = &mut Rng::new(round << 8 | thread);
            let name = round << 8 | thread;
            let claim = |n: u64| {
                let before = winners[n as usize].swap(name, Ordering::Relaxed);
                assert_eq!(before, 0, "key {n} was new twice");
            };
            let mut any = || rng.below(keys * round / rounds);
            let mut made = 0;
            while made < calls {
                let number = if any() % 4 == 0 { 1 + any() % 40 } else { 1 };
                made += number;
                let wanted: Vec<u64> = (0..number).map(|_| any()).collect();
                let durability = if any() % 64 == 0 { Durability::Synced } else { Durability::Buffered };
                if number == 1 {
                    let is_new = db.insert_if_absent_with(key(wanted[0]), name.to_le_bytes(), durability);
                    if is_new.unwrap() {
                        claim(wanted[0]);
                    }
                } else {
                    let entries = wanted.iter().map(|&n| (key(n), name.to_le_bytes()));
                    let new = db.insert_new_many_with(entries, durability).unwrap();
                    wanted.iter().zip(new.iter()).filter(|(_, new)| *new).for_each(|(&n, _)| claim(n));
                }
            }
        });
        match round % 3 {
            0 => db.close().unwrap(),
            1 => fs = fs.crash(CrashPolicy::KeepAll),
            _ => {}
        }
    }
    let db = store::open(&fs).unwrap();
    let mut inserted = 0;
    for (n, winner) in winners.iter().enumerate() {
        let value = db.get(key(n as u64)).unwrap();
        let winner = Some(winner.load(Ordering::Relaxed)).filter(|&winner| winner > 0);
        assert_eq!(value.as_deref(), winner.map(u64::to_le_bytes).as_ref().map(|value| &value[..]), "{n}");
        inserted += u64::from(winner.is_some());
    }
    assert!(inserted > keys * 9 / 10, "only {inserted} keys");
    assert!(db.verify().unwrap().damage.is_empty());
}

#[test]
fn concurrent_sums_moves_and_removals_are_neither_lost_nor_repeated() {
    let (jobs, each) = (600, 150);
    let fs = MemFs::new();
    let db = store::options(&fs).background_threads(2).open(DIR).unwrap();
    (0..jobs).for_each(|job| db.put(key(job), job.to_le_bytes()).unwrap());
    let add = |name: &str, by: u64| {
        let sum =
            |value: Option<&[u8]>| value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
        db.update(name, |value| Some((sum(value) + by).to_le_bytes().to_vec())).unwrap()
    };
    let count_up = || loop {
        let before = db.get("counter").unwrap();
        let now = before.as_deref().map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
        let next = (now + 1).to_le_bytes();
        if db.compare_and_set("counter", before.as_deref(), Some(&next)).unwrap().is_ok() {
            return;
        }
    };
    let taken = during_flushes(&db, |thread| {
        let (rng, mut taken) = (&mut Rng::new(thread), Vec::new());
        for n in 0..each {
            add("sum", n);
            count_up();
            let previous = db.replace("hand", [thread as u8]).unwrap();
            assert!(previous.is_none_or(|by| u64::from(by[0]) < THREADS));
            for _ in 0..8 {
                let job = rng.below(jobs);
                if let Some(value) = db.remove(key(job)).unwrap() {
                    assert_eq!(value, job.to_le_bytes()[..]);
                    taken.push(job);
                }
            }
        }
        taken
    });
    let number = |name| u64::from_le_bytes(db.get(name).unwrap().unwrap()[..].try_into().unwrap());
    assert_eq!(number("sum"), THREADS * (0..each).sum::<u64>());
    assert_eq!(number("counter"), THREADS * each);
    let mut all: Vec<u64> = taken.into_iter().flatten().collect();
    let taken = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), taken, "a job was taken twice");
    let left = (0..jobs).filter(|&job| db.contains(key(job)).unwrap()).count();
    assert_eq!(left + taken, jobs as usize);
}

#[test]
fn no_power_loss_contradicts_a_synced_answer() {
    let (keys, calls) = (60, 60);
    let fs = MemFs::new();
    let db = store::options(&fs).background_threads(1).open(DIR).unwrap();
    // Each synced answer requires this value.
    let answered: Arc<Mutex<HashMap<u64, u64>>> = Arc::default();
    let (images, failure) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None::<String>)));
    let (known, made, failed) = (Arc::clone(&answered), Arc::clone(&images), Arc::clone(&failure));
    fs.observe(move |fs, op| {
        let known = known.lock().unwrap().clone();
        let number = made.fetch_add(1, Ordering::Relaxed);
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::Random(number)] {
            let check = || -> Result<(), String> {
                let db = store::open(&fs.crash(policy)).map_err(|error| error.to_string())?;
                for (&n, &value) in &known {
                    let found = db.get(key(n)).map_err(|error| error.to_string())?;
                    if found.as_deref() != Some(&value.to_le_bytes()[..]) {
                        return Err(format!("key {n} is {found:?} and not {value}"));
                    }
                    if db.insert_if_absent(key(n), "").map_err(|error| error.to_string())? {
                        return Err(format!("key {n} is new again"));
                    }
                }
                Ok(())
            };
            if let Err(what) = check() {
                failed.lock().unwrap().get_or_insert(format!("{op:?}, {policy:?}: {what}"));
            }
        }
        Ok(())
    });
    let synced_no = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (db, answered, synced_no) = (&db, &answered, &synced_no);
            scope.spawn(move || {
                let rng = &mut Rng::new(thread);
                for call in 0..calls {
                    // All threads insert the same values, so "seen" implies the value.
                    let wanted: Vec<u64> = (0..1 + rng.below(3)).map(|_| rng.below(keys)).collect();
                    let is_synced = rng.one_in(3);
                    let durability = if is_synced { Durability::Synced } else { Durability::Buffered };
                    let new = match wanted[..] {
                        [n] => {
                            u64::from(db.insert_if_absent_with(key(n), n.to_le_bytes(), durability).unwrap())
                        }
                        _ => {
                            let entries = wanted.iter().map(|&n| (key(n), n.to_le_bytes()));
                            db.insert_new_many_with(entries, durability).unwrap().count() as u64
                        }
                    };
                    if is_synced {
                        synced_no.fetch_add(wanted.len() as u64 - new, Ordering::Relaxed);
                        answered.lock().unwrap().extend(wanted.iter().map(|&n| (n, n)));
                    }
                    if call % 20 == 10 {
                        db.flush().unwrap();
                    }
                }
            });
        }
    });
    fs.stop_observing();
    assert_eq!(*failure.lock().unwrap(), None);
    let (images, synced_no) = (images.load(Ordering::Relaxed), synced_no.load(Ordering::Relaxed));
    println!("{images} operations on files, {synced_no} times a synced \"seen\"");
    assert!(images > 100 && synced_no > 20, "{images} operations, {synced_no} times seen");
}

#[test]
fn a_refused_call_writes_nothing_and_delays_no_other_call() {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    db.put("k", "v").unwrap();
    let entries = db.stats().entries;
    let long = vec![7; KEY_BYTES_MAX + 1];
    let is_long = |error: Error| matches!(error, Error::LimitExceeded { what: "key length", .. });
    assert!(is_long(db.insert_if_absent(&long, "").unwrap_err()));
    assert!(is_long(db.insert_new_many([(&b"new"[..], ""), (&long, "")]).unwrap_err()));
    assert!(is_long(db.compare_and_set(&long, None, None).unwrap_err()));
    assert!(is_long(db.update(&long, |_| Some(Vec::new())).unwrap_err()));
    assert!(is_long(db.replace(&long, "").unwrap_err()));
    assert!(is_long(db.remove(&long).unwrap_err()));
    assert!(db.insert_new_many::<&str, &str>([]).unwrap().is_empty());

    let panicked = catch_unwind(AssertUnwindSafe(|| db.update("k", |_| panic!("in the closure"))));
    assert!(panicked.is_err());
    assert_eq!(db.stats().entries, entries);
    assert_eq!(db.update("k", |value| value.map(<[u8]>::to_vec)).unwrap().unwrap(), b"v");

    let gone = db.keyspace("gone", KeyspaceOptions::new()).unwrap();
    db.drop_keyspace("gone").unwrap();
    let is_dropped = |error: Error| matches!(error, Error::KeyspaceDropped { .. });
    assert!(is_dropped(gone.insert_if_absent("k", "").unwrap_err()));
    assert!(is_dropped(gone.insert_new_many([("k", "")]).unwrap_err()));
    assert!(is_dropped(gone.compare_and_set("k", None, Some(b"v")).unwrap_err()));
    assert!(is_dropped(gone.update("k", |_| None).unwrap_err()));
    assert!(is_dropped(gone.replace("k", "").unwrap_err()));
    assert!(is_dropped(gone.remove("k").unwrap_err()));

    // The keyspace is dropped while the closure runs, so the leader refuses the write.
    let going = db.keyspace("going", KeyspaceOptions::new()).unwrap();
    let dropped = going.update("k", |_| {
        db.drop_keyspace("going").unwrap();
        Some(Vec::new())
    });
    assert!(is_dropped(dropped.unwrap_err()));

    let other = db.clone();
    db.close().unwrap();
    assert!(matches!(other.insert_if_absent("k", ""), Err(Error::Closed)));
    let db = store::open_read_only(&fs).unwrap();
    assert!(matches!(db.insert_if_absent("k", ""), Err(Error::ReadOnly)));
    assert!(matches!(db.remove("k"), Err(Error::ReadOnly)));
}

#[test]
fn a_lookup_that_fails_is_no_absent_and_writes_nothing() {
    let fs = MemFs::new();
    let db = store::open(&fs).unwrap();
    (0..200).for_each(|n| db.put(key(n), [n as u8; 50]).unwrap());
    db.compact().unwrap();
    db.close().unwrap();
    for (name, mut bytes) in store::files(&fs).into_iter().filter(|(name, _)| name.ends_with(".sst")) {
        bytes[200..300].iter_mut().for_each(|byte| *byte ^= 0x55);
        fs.overwrite(&Path::new(DIR).join(name), bytes);
    }
    let db = store::open(&fs).unwrap();
    let is_damaged = |n: &u64| db.get(key(*n)).is_err();
    let damaged: Vec<u64> = (0..200).filter(is_damaged).collect();
    assert!(!damaged.is_empty() && damaged.len() < 200, "{} of 200 are damaged", damaged.len());
    let (entries, n) = (db.stats().entries, key(damaged[0]));
    let is_corrupt = |error: Error| matches!(error, Error::Corruption { .. });
    assert!(is_corrupt(db.insert_if_absent(&n, "").unwrap_err()));
    assert!(is_corrupt(db.insert_new_many([(&b"new"[..], ""), (&n, "")]).unwrap_err()));
    assert!(is_corrupt(db.compare_and_set(&n, None, Some(b"")).unwrap_err()));
    assert!(is_corrupt(db.update(&n, |_| Some(Vec::new())).unwrap_err()));
    assert!(is_corrupt(db.replace(&n, "").unwrap_err()));
    assert!(is_corrupt(db.remove(&n).unwrap_err()));
    assert_eq!(db.stats().entries, entries);
    assert!(!db.contains("new").unwrap() && db.insert_if_absent("new", "").unwrap());
}
