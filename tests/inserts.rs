//! Inserts with derived entries and deferred durability are atomic under concurrent operations and after a power loss.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::fs::{CrashPolicy, MemFs, Op};
use sievedb::{Db, Durability, Error, Keyspace, KeyspaceOptions};

use crate::conditional::during_flushes;
use crate::support::rng::Rng;
use crate::support::store::{self, DIR};

fn name(n: u64) -> String {
    format!("key {n}")
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

fn keyspaces(db: &Db) -> [Keyspace; 2] {
    ["counts", "owners"].map(|name| db.keyspace(name, KeyspaceOptions::new()).unwrap())
}

/// Also writes the thread's count of new keys to one keyspace, and a number for each new key to the other. `during`
/// runs in the closure.
fn insert(
    db: &Db,
    thread: u64,
    wanted: &[u64],
    before: u64,
    durability: Durability,
    mut during: impl FnMut(),
) -> sievedb::Result<u64> {
    let [counts, owners] = &keyspaces(db);
    let new = db.insert_new_many_then_with(
        wanted.iter().map(|&n| (name(n), thread.to_le_bytes())),
        durability,
        |new, batch| {
            during();
            batch.put_in(counts, name(thread), (before + new.count() as u64).to_le_bytes());
            for (&n, _) in wanted.iter().zip(new.iter()).filter(|(_, is_new)| *is_new) {
                batch.put_in(owners, name(n), thread.to_le_bytes());
            }
            Ok(())
        },
    )?;
    Ok(before + new.count() as u64)
}

fn check(db: &Db) -> Result<HashMap<u64, u64>, String> {
    let [counts, owners] = &keyspaces(db);
    let all = |keyspace: &Keyspace| keyspace.iter().map(|item| item.unwrap()).collect::<Vec<_>>();
    let keys = all(&db.default_keyspace());
    if keys != all(owners) {
        return Err(format!("{} keys, and {} have an owner", keys.len(), owners.len().unwrap()));
    }
    let mut by_thread: HashMap<u64, u64> = HashMap::new();
    keys.iter().for_each(|(_, thread)| *by_thread.entry(number(thread)).or_default() += 1);
    for (thread, count) in all(counts) {
        let thread = thread.to_string()["key ".len()..].parse().unwrap();
        let (count, has) = (number(&count), by_thread.get(&thread).copied().unwrap_or(0));
        if count != has {
            return Err(format!("thread {thread} counts {count} new keys, and has {has}"));
        }
    }
    Ok(by_thread)
}

#[test]
fn counts_and_owners_written_with_the_inserts_of_eight_threads_match_the_keys() {
    let (keys, calls) = (3000, 200);
    let db = store::options(&MemFs::new()).background_threads(2).open(DIR).unwrap();
    let (again, buffered) = (AtomicU64::new(0), Durability::Buffered);
    let counted = during_flushes(&db, |thread| {
        let (rng, mut count, mut stolen) = (&mut Rng::new(thread), 0, 0);
        for call in 0..calls {
            let some = |rng: &mut Rng| rng.below(keys * (call + 1) / calls);
            let wanted: Vec<u64> = (0..1 + rng.below(12)).map(|_| some(rng)).collect();
            let mut runs = 0;
            count = insert(&db, thread, &wanted, count, buffered, || {
                runs += 1;
                again.fetch_add(u64::from(runs == 2), Ordering::Relaxed);
                if call % 8 == 7 && runs == 1 {
                    stolen = insert(&db, 100 + thread, &wanted[..1], stolen, buffered, || {}).unwrap();
                }
            })
            .unwrap();
        }
        (thread, count, stolen)
    });
    let by_thread = check(&db).unwrap();
    let of = |thread| by_thread.get(&thread).copied().unwrap_or(0);
    for (thread, count, stolen) in counted {
        assert_eq!((of(thread), of(100 + thread)), (count, stolen), "thread {thread}");
    }
    let again = again.into_inner();
    println!("{} keys, and {again} calls whose closure ran again", db.len().unwrap());
    assert!(again > 20 && db.len().unwrap() > keys / 2, "{again} calls whose closure ran again");
    assert!(db.verify().unwrap().damage.is_empty());
}

#[test]
fn no_power_loss_separates_inserts_from_their_other_writes_or_reverts_a_synced_answer() {
    let (keys, calls) = (90, 40);
    let fs = MemFs::new();
    let db = store::options(&fs).background_threads(1).open(DIR).unwrap();
    keyspaces(&db);
    db.sync().unwrap();
    let answered: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (images, failure) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None::<String>)));
    let (known, made, failed) = (Arc::clone(&answered), Arc::clone(&images), Arc::clone(&failure));
    fs.observe(move |fs, op| {
        let known = known.lock().unwrap().clone();
        let seed = made.fetch_add(1, Ordering::Relaxed);
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::Random(seed)] {
            let survives = || -> Result<(), String> {
                let db = store::open(&fs.crash(policy)).map_err(|error| error.to_string())?;
                check(&db)?;
                let lost = known.iter().find(|&&n| !db.contains(name(n)).unwrap());
                lost.map_or(Ok(()), |n| Err(format!("key {n} is lost")))
            };
            if let Err(what) = survives() {
                failed.lock().unwrap().get_or_insert(format!("{op:?}, {policy:?}: {what}"));
            }
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (db, answered) = (&db, &answered);
            scope.spawn(move || {
                let (rng, mut count) = (&mut Rng::new(thread), 0);
                for call in 0..calls {
                    let wanted: Vec<u64> = (0..1 + rng.below(3)).map(|_| rng.below(keys)).collect();
                    let is_synced = rng.one_in(3);
                    let durability = if is_synced { Durability::Synced } else { Durability::Buffered };
                    count = insert(db, thread, &wanted, count, durability, || {}).unwrap();
                    if is_synced {
                        answered.lock().unwrap().extend(wanted);
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
    let images = images.load(Ordering::Relaxed);
    println!("{images} operations on files");
    assert!(images > 100, "{images} operations on files");
    check(&db).unwrap();
}

fn survive(fs: &MemFs, keys: &[&str]) -> Vec<bool> {
    store::open(&fs.crash(CrashPolicy::DropUnsynced)).unwrap().multi_contains(keys).unwrap()
}

#[test]
fn a_pending_answer_and_the_write_behind_a_seen_are_durable_when_the_commit_is_complete() {
    let fs = MemFs::new();
    let db = store::options(&fs).background_threads(0).open(DIR).unwrap();
    let other = db.keyspace("other", KeyspaceOptions::new()).unwrap();
    db.put("seen", "").unwrap();
    let (is_new, commit) = db.insert_if_absent_pending("seen", "", Durability::Synced).unwrap();
    assert!(!is_new && !commit.is_durable() && survive(&fs, &["seen"]) == [false]);
    assert!(db.step().unwrap(), "it syncs the log for the commit");
    assert!(commit.is_durable() && survive(&fs, &["seen"]) == [true]);

    let (new, first) = db.insert_new_many_pending([("a", ""), ("seen", "")], Durability::Buffered).unwrap();
    let (again, second) = db.insert_new_many_pending([("a", "")], Durability::Buffered).unwrap();
    let (is_new, third) = other.insert_if_absent_pending("a", "", Durability::Buffered).unwrap();
    assert_eq!((new.count(), new.is_new(0), again.count(), is_new), (1, true, 0, true));
    assert!(db.contains("a").unwrap() && other.contains("a").unwrap());
    assert!(survive(&fs, &["a"]) == [false] && ![&first, &second, &third].iter().any(|it| it.is_durable()));
    let called = Arc::new(AtomicU64::new(0));
    let calls = Arc::clone(&called);
    second.on_durable(move |result| {
        result.unwrap();
        calls.fetch_add(1, Ordering::Relaxed);
    });
    second.wait().unwrap();
    assert!(first.is_durable() && survive(&fs, &["a"]) == [true]);
    third.wait().unwrap();
    while db.step().unwrap() {}
    assert_eq!(called.load(Ordering::Relaxed), 1);
}

#[test]
fn the_commit_of_a_pending_answer_has_the_error_of_its_sync() {
    let fs = MemFs::new();
    let db = store::options(&fs).background_threads(2).open(DIR).unwrap();
    db.put("seen", "").unwrap();
    fs.observe(|_, op| match op {
        Op::Sync(_) => Err(std::io::ErrorKind::Other.into()),
        _ => Ok(()),
    });
    let (is_new, commit) = db.insert_if_absent_pending("seen", "", Durability::Buffered).unwrap();
    assert!(!is_new && matches!(commit.wait(), Err(Error::Io { .. })));
    assert!(matches!(
        db.insert_new_many_pending([("k", "")], Durability::Synced),
        Err(Error::Poisoned { .. })
    ));
    drop(db);
    fs.stop_observing();
    let db = store::open_read_only(&fs.crash(CrashPolicy::KeepAll)).unwrap();
    assert!(matches!(db.insert_if_absent_pending("k", "", Durability::Synced), Err(Error::ReadOnly)));
}
