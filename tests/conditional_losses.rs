//! Conditional writes during failures: power loss, readers, failed appends, closing, little memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use sievedb::fs::{CrashPolicy, MemFs, Op};
use sievedb::{Db, Durability, Error, Result};

use crate::support::rng::Rng;
use crate::support::sample::thorough;
use crate::support::store::{self, DIR};

#[derive(Clone)]
struct History {
    states: Vec<Option<u64>>,
    durable: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { states: vec![None], durable: 0 }
    }
}

type Histories = HashMap<(u64, u64), History>;

fn name((thread, n): (u64, u64)) -> String {
    format!("thread {thread} key {n}")
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

fn check(image: &MemFs, histories: &Histories) -> Result<(), String> {
    let db = store::open(image).map_err(|error| error.to_string())?;
    for (&key, History { states, durable }) in histories {
        let found = db.get(name(key)).map_err(|error| error.to_string())?.map(|value| number(&value));
        let allowed = &states[*durable..];
        if !allowed.contains(&found) {
            return Err(format!("{} is {found:?} and none of {allowed:?}", name(key)));
        }
    }
    Ok(())
}

fn call(
    db: &Db,
    kind: u64,
    key: &str,
    before: Option<u64>,
    after: u64,
    durability: Durability,
) -> (Option<u64>, bool) {
    let bytes = after.to_le_bytes();
    let old = before.map(u64::to_le_bytes);
    let old = old.as_ref().map(|old| &old[..]);
    let is_before = |found: Option<sievedb::Value>| found.as_deref() == old;
    match kind {
        0 => {
            let set = db.compare_and_set_with(key, old, Some(&bytes), durability).unwrap();
            (Some(after), set.is_ok())
        }
        1 => {
            let refused = db.compare_and_set_with(key, Some(b"never"), None, durability).unwrap();
            (before, refused.is_err_and(|refused| is_before(refused.found)))
        }
        2 => {
            let updated = db.update_with(key, durability, |_| Some(bytes.to_vec())).unwrap();
            (Some(after), updated.as_deref() == Some(&bytes[..]))
        }
        3 => (None, db.update_with(key, durability, |_| None).unwrap().is_none()),
        4 => (Some(after), is_before(db.replace_with(key, bytes, durability).unwrap())),
        _ => (None, is_before(db.remove_with(key, durability).unwrap())),
    }
}

#[test]
fn no_power_loss_takes_back_a_synced_compare_and_set_update_replace_or_remove() {
    let (threads, keys, calls) = (3, 6, 40);
    let fs = MemFs::new();
    let db = store::options(&fs).background_threads(1).open(DIR).unwrap();
    let histories: Arc<Mutex<Histories>> = Arc::default();
    let (images, failure) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None::<String>)));
    let (known, made, failed) = (Arc::clone(&histories), Arc::clone(&images), Arc::clone(&failure));
    fs.observe(move |fs, op| {
        let number = made.fetch_add(1, Ordering::Relaxed);
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::Random(number)] {
            let before = known.lock().unwrap().clone();
            let image = fs.crash(policy);
            let mut known = known.lock().unwrap().clone();
            for (key, history) in &mut known {
                history.durable = before.get(key).map_or(0, |before| before.durable);
            }
            if let Err(what) = check(&image, &known) {
                failed.lock().unwrap().get_or_insert(format!("{op:?}, {policy:?}: {what}"));
            }
        }
        Ok(())
    });
    thread::scope(|scope| {
        for thread in 0..threads {
            let (db, histories) = (&db, &histories);
            scope.spawn(move || {
                let (rng, mut held) = (&mut Rng::new(thread), HashMap::new());
                for n in 1..=calls {
                    let (key, kind) = ((thread, rng.below(keys)), rng.below(6));
                    let before: Option<u64> = held.get(&key).copied().flatten();
                    let outcome = match kind {
                        0 | 2 | 4 => Some(n),
                        1 => before,
                        _ => None,
                    };
                    histories.lock().unwrap().entry(key).or_default().states.push(outcome);
                    let is_synced = rng.one_in(3);
                    let durability = if is_synced { Durability::Synced } else { Durability::Buffered };
                    let (after, is_right) = call(db, kind, &name(key), before, n, durability);
                    assert!(is_right && after == outcome, "call {n} of thread {thread}, kind {kind}");
                    held.insert(key, after);
                    if is_synced {
                        let mut histories = histories.lock().unwrap();
                        for (_, history) in histories.iter_mut().filter(|((owner, _), _)| *owner == thread) {
                            history.durable = history.states.len() - 1;
                        }
                    }
                    if n % 20 == 10 {
                        db.flush().unwrap();
                    }
                }
            });
        }
    });
    fs.stop_observing();
    assert_eq!(*failure.lock().unwrap(), None);
    let images = images.load(Ordering::Relaxed);
    println!("{images} operations on files");
    assert!(images > 100, "{images} operations on files");
}

#[test]
fn all_new_entries_of_a_call_become_visible_at_one_moment() {
    let (rounds, each) = (if thorough() { 150 } else { 40 }, 300_u32);
    let db = store::options(&MemFs::new()).background_threads(1).memory_budget(64 << 20).open(DIR).unwrap();
    let round = AtomicU64::new(0);
    let key = |round: u32, n: u32| format!("{n:05} {round}");
    let partial = thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (db, round) = (&db, &round);
                scope.spawn(move || {
                    let mut partial = None;
                    loop {
                        let now = round.load(Ordering::Acquire) as u32;
                        if now == rounds {
                            return partial;
                        }
                        let keys: Vec<_> = (0..each).step_by(23).map(|n| key(now, n)).collect();
                        let seen = if reader == 0 {
                            db.multi_contains(&keys).unwrap()
                        } else {
                            let snapshot = db.snapshot();
                            keys.iter().rev().map(|key| snapshot.contains(key).unwrap()).collect()
                        };
                        let count = seen.iter().filter(|&&seen| seen).count();
                        if count != 0 && count != keys.len() {
                            partial = Some((now, count));
                        }
                    }
                })
            })
            .collect();
        for now in 0..rounds {
            let is_old = |n: &u32| n % 2 == 1 && !n.is_multiple_of(23);
            (0..each).filter(is_old).for_each(|n| db.put(key(now, n), "").unwrap());
            let new = db.insert_new_many((0..each).map(|n| (key(now, n), ""))).unwrap();
            assert_eq!(new.count(), (0..each).filter(|n| !is_old(n)).count());
            round.store(u64::from(now) + 1, Ordering::Release);
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(partial, [None, None], "round, and how many of its entries were seen");
}

fn insert_until_closed(db: &Db, keys: u64, calls: u64, close: impl FnOnce() + Send) -> (Vec<u64>, u64) {
    let made = AtomicU64::new(0);
    let threads = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let made = &made;
                scope.spawn(move || {
                    let (rng, mut new, mut failed) = (&mut Rng::new(thread), Vec::new(), 0);
                    loop {
                        made.fetch_add(1, Ordering::Relaxed);
                        let wanted: Vec<u64> = (0..1 + rng.below(4)).map(|_| rng.below(keys)).collect();
                        let name = |n: &u64| format!("key {n}");
                        let durability =
                            if rng.one_in(8) { Durability::Synced } else { Durability::Buffered };
                        let answers: Result<Vec<bool>> = match wanted[..] {
                            [n] => {
                                db.insert_if_absent_with(name(&n), [7; 40], durability).map(|new| vec![new])
                            }
                            _ => {
                                let entries = wanted.iter().map(|n| (name(n), [7; 40]));
                                db.insert_new_many_with(entries, durability).map(|new| new.iter().collect())
                            }
                        };
                        let count = |value: Option<&[u8]>| Some([value.unwrap_or_default(), b"+"].concat());
                        let added =
                            if rng.one_in(16) { db.update(name(&keys), count).map(drop) } else { Ok(()) };
                        match answers.and_then(|answers| added.map(|()| answers)) {
                            Ok(answers) => {
                                new.extend(
                                    wanted.iter().zip(answers).filter(|(_, new)| *new).map(|(n, _)| *n),
                                );
                            }
                            Err(Error::Closed) => return (new, failed),
                            Err(Error::Io { .. }) => failed += 1,
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        while made.load(Ordering::Relaxed) < calls {
            thread::yield_now();
        }
        close();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let failed = threads.iter().map(|(_, failed)| failed).sum();
    (threads.into_iter().flat_map(|(new, _)| new).collect(), failed)
}

#[test]
fn a_key_is_new_once_despite_failed_appends_little_memory_and_closing() {
    let fs = MemFs::new();
    let db = store::options(&fs).background_threads(2).open(DIR).unwrap();
    let (appends, is_failing) = (AtomicU64::new(0), Arc::new(AtomicBool::new(true)));
    let fails = Arc::clone(&is_failing);
    fs.observe(move |_, op| match op {
        Op::Append(path, _) if path.extension().is_some_and(|end| end == "wal") => {
            let is_turn = appends.fetch_add(1, Ordering::Relaxed) % 100 == 99;
            if is_turn && fails.load(Ordering::Relaxed) {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            Ok(())
        }
        _ => Ok(()),
    });
    let keys = 3000;
    let (mut new, failed) = insert_until_closed(&db, keys, 4000, || {
        is_failing.store(false, Ordering::Relaxed);
        db.clone().close().unwrap();
    });
    println!("{} keys were new, {failed} calls failed", new.len());
    let answers = new.len();
    new.sort_unstable();
    new.dedup();
    assert_eq!(new.len(), answers, "a key was new twice");
    assert!(failed > 3 && answers > 1000, "{failed} calls failed, {answers} keys were new");
    fs.stop_observing();
    drop(db);
    let db = store::open(&fs).unwrap();
    for n in new {
        assert!(!db.insert_if_absent(format!("key {n}"), "").unwrap(), "key {n} was lost");
    }
    assert!(db.verify().unwrap().damage.is_empty());
}
