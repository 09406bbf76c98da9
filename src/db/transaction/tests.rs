//! Transactions: read sets, conflicts, and decisions of the leader.

mod cursors;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::batch::WriteBatch;
use crate::db::commit::conflict_check::decide;
use crate::db::handles::keyspace::Keyspace;
use crate::db::handles::reads_tell::ReadsTell;
use crate::db::handles::store::Db;
use crate::db::queues::commit_queue::{Turn, Wanted};
use crate::db::queues::condition::{Admitted, Check, Condition, Decision, ReadCondition};
use crate::db::queues::read_set;
use crate::db::state::durability::Durability;
use crate::db::{IndexedBatch, KeyspaceTransaction, Transaction};
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::filter::{FilterKind, FilterPolicy};
use crate::fs::{CrashPolicy, MemFs, Op};
use crate::limits::KEY_BYTES_MAX;
use crate::memory::LeaseKind;
use crate::options::{KeyspaceOptions, Options};
use crate::sync::lock;

fn options(fs: &MemFs) -> Options {
    Options::new().fs(Arc::new(fs.clone())).background_threads(0)
}

fn open() -> Db {
    options(&MemFs::new()).open("/db").unwrap()
}

fn is_log(op: &Op<'_>) -> bool {
    matches!(op, Op::Append(path, _) if path.extension().is_some_and(|end| end == "wal"))
}

#[track_caller]
fn assert_conflict(result: Result<()>, keyspace: &str, key: &str) {
    let Err(Error::Conflict { keyspace: of, key: found }) = &result else { panic!("{result:?}") };
    assert_eq!((&of[..], &found[..]), (keyspace, key.as_bytes()));
}

type Read = fn(&KeyspaceTransaction<'_>);

const READS: [(&str, Read); 17] = [
    ("get", |tx| drop(tx.get("k").unwrap())),
    ("contains", |tx| assert!(tx.contains("k").is_ok())),
    ("multi_get", |tx| drop(tx.multi_get(&["a", "k", "z"]).unwrap())),
    ("multi_contains", |tx| drop(tx.multi_contains(&["k"]).unwrap())),
    ("range", |tx| assert!(tx.range("j".."l").count() < 3)),
    ("range backward", |tx| assert!(tx.range("j"..="k").rev().count() < 3)),
    ("range from both ends", |tx| {
        let mut iter = tx.range("c"..);
        while iter.next().is_some() && iter.next_back().is_some() {}
    }),
    ("prefix", |tx| assert!(tx.prefix("k").count() < 3)),
    ("keys", |tx| assert!(tx.keys().all(|key| key.is_ok()))),
    ("values", |tx| assert!(tx.values().all(|value| value.is_ok()))),
    ("len", |tx| assert!(tx.len().is_ok())),
    ("first", |tx| drop((tx.first().unwrap(), tx.last().unwrap()))),
    ("cursor up", |tx| {
        let mut cursor = tx.cursor("c"..);
        while cursor.next().unwrap() {}
    }),
    ("cursor down", |tx| {
        let mut cursor = tx.cursor("c"..="x");
        while cursor.prev().unwrap() {}
    }),
    ("seek", |tx| assert!(tx.cursor(..).seek("k").is_ok())),
    ("seek_for_prev", |tx| assert!(tx.cursor(..).seek_for_prev("k").is_ok())),
    ("a cursor that turns", |tx| {
        let mut cursor = tx.cursor(..);
        assert!(!cursor.seek("z").unwrap());
        let _ = cursor.prev().unwrap();
    }),
];

type Change = fn(&Keyspace);

const CHANGES: [(&str, bool, Change); 5] = [
    ("put", true, |keyspace| keyspace.put("k", "2").unwrap()),
    ("put anew", false, |keyspace| keyspace.put("k", "1").unwrap()),
    ("delete", true, |keyspace| keyspace.delete("k").unwrap()),
    ("delete of nothing", false, |keyspace| keyspace.delete("k").unwrap()),
    ("put and delete", false, |keyspace| {
        keyspace.put("k", "1").unwrap();
        keyspace.delete("k").unwrap();
    }),
];

type Move = fn(&Db);

const MOVES: [(&str, Move); 4] = [
    ("nothing", |_| ()),
    ("a flush", |db| db.flush().unwrap()),
    ("a compaction", |db| db.compact().unwrap()),
    ("compactions with others", |db| {
        for _ in 0..2 {
            db.put("k ", "").unwrap();
            db.keyspaces().iter().for_each(|name| db.open_keyspace(name).unwrap().put("y", "").unwrap());
            db.compact().unwrap();
        }
    }),
];

#[test]
fn every_change_of_what_was_read_is_a_conflict_whatever_is_flushed_and_compacted() {
    for (read, run) in READS {
        for (change, was_there, make) in CHANGES {
            for (moved, happens) in MOVES {
                let what = format!("{read}, {change}, {moved}");
                let db = open();
                let other = db.open_keyspace("other").unwrap();
                if was_there {
                    other.put("k", "1").unwrap();
                    db.compact().unwrap();
                }
                // "first" and "last" read "k" only if it is the only key.
                let (tx, blind) = (db.transaction(), db.transaction());
                run(&tx.keyspace(&other));
                tx.put("written", "");
                blind.keyspace(&other).put("k", "blind");
                make(&other);
                happens(&db);
                let result = tx.commit();
                assert!(matches!(result, Err(Error::Conflict { .. })), "{what}: {result:?}");
                assert!(!db.contains("written").unwrap(), "{what}");
                assert!(blind.commit().is_ok(), "{what}: it has read nothing");
            }
        }
    }
}

#[test]
fn what_was_not_read_conflicts_with_nothing() {
    for (moved, happens) in MOVES {
        let db = open();
        let other = db.open_keyspace("other").unwrap();
        ["b", "d", "f"].iter().for_each(|key| db.put(key, "").unwrap());
        let tx = db.transaction();
        tx.put("own", "");
        assert!(tx.contains("own").unwrap() && tx.get("b").unwrap().is_some());
        let mut iter = tx.range("c"..);
        assert_eq!(iter.next().unwrap().unwrap().0, "d");
        assert_eq!(iter.next_back().unwrap().unwrap().0, "own");
        assert_eq!(tx.range(.."b").count() + tx.range("x".."c").count(), 0);
        assert!(tx.get_untracked("f").unwrap().is_some());
        assert_eq!(tx.snapshot().len().unwrap(), 3);
        assert!(tx.keyspace(&other).get_untracked("a").unwrap().is_none());
        for key in ["bb", "dd", "f", "ow"] {
            db.put(key, "changed").unwrap();
        }
        ["a", "b", "d"].iter().for_each(|key| other.put(key, "").unwrap());
        happens(&db);
        if moved == "compactions with others" {
            assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
            continue;
        }
        tx.commit().unwrap();
        assert!(db.contains("own").unwrap());
    }
}

#[test]
fn a_conflict_names_the_first_key_of_a_range_that_changed() {
    let db = open();
    let users = db.open_keyspace("users").unwrap();
    let read = |tx: &Transaction| assert_eq!(tx.keyspace(&users).range("b".."m").count(), 0);
    let tx = db.transaction();
    read(&tx);
    tx.put("k", "");
    users.put("l", "").unwrap();
    db.flush().unwrap();
    users.put("c", "").unwrap();
    users.put("a", "").unwrap();
    db.flush().unwrap();
    users.delete("d").unwrap();
    assert_conflict(tx.commit(), "users", "c");
    let error = Error::Conflict { keyspace: "users".into(), key: b"c\xff".as_slice().into() };
    assert_eq!(
        error.to_string(),
        "key \"c\\xff\" of keyspace \"users\" was changed since the transaction has read it"
    );
}

#[test]
fn a_conflict_that_the_leader_finds_names_the_first_changed_key_of_the_first_keyspace() {
    let db = open();
    let users = db.open_keyspace("users").unwrap();
    let name = |refused: Admitted| match refused.condition.map(|(_, condition)| *condition) {
        Some(Condition::Reads(ReadCondition { check: Check::Refused { why, .. }, .. })) => why.to_string(),
        _ => panic!("it is refused"),
    };
    let only = |[only]: [Admitted; 1]| only;
    let reads = ["b", "d", "f", "h"];
    let mut in_memtables = [asks(&db, &reads)];
    let ask_both = || {
        let tx = db.transaction();
        assert!(tx.keyspace(&users).contains("a").is_ok() && tx.contains("z").is_ok());
        admit(&db, &tx)
    };
    let mut of_two = [ask_both()];
    users.put("a", "").unwrap();
    ["z", "f", "e", "d", "h"].iter().for_each(|key| db.put(key, "").unwrap());
    db.engine().seal(vec![db.engine().keyspaces.default_tree()]).unwrap();
    ["h", "g"].iter().for_each(|key| db.put(key, "").unwrap());
    run(&db, &mut in_memtables);
    run(&db, &mut of_two);
    assert!(name(only(in_memtables)).contains("\"d\" of keyspace \"default\""));
    assert!(name(only(of_two)).contains("\"z\" of keyspace \"default\""));

    let mut batch = WriteBatch::new();
    batch.put_in(&users, "a", "").put("h", "").put("f", "").put("c", "").put("z", "");
    let (bytes, ids, _) = batch.into_parts().unwrap();
    let plain = || Admitted {
        bytes: bytes.clone(),
        trees: db.engine().keyspaces.admit(&ids).unwrap(),
        condition: None,
        may_exceed: None,
    };
    let (mut in_group, mut of_two) = ([plain(), asks(&db, &reads)], [plain(), ask_both()]);
    run(&db, &mut in_group);
    run(&db, &mut of_two);
    let last = |[_, last]: [Admitted; 2]| last;
    assert!(name(last(in_group)).contains("\"f\" of keyspace \"default\""));
    assert!(name(last(of_two)).contains("\"z\" of keyspace \"default\""));
}

#[test]
fn commits_and_conflicts_are_counted() {
    let db = open();
    let counts = || (db.stats().transactions, db.stats().conflicts);
    let tx = db.transaction();
    assert!(!tx.contains("k").unwrap());
    tx.commit().unwrap();
    assert_eq!(counts(), (0, 0), "it has written nothing");
    db.transact(|tx| tx.put("k", "").contains("l")).unwrap();
    let tx = db.transaction();
    tx.put("blind", "");
    tx.commit().unwrap();
    assert_eq!(counts(), (2, 0));
    let mut runs = 0;
    db.transact(|tx| {
        runs += 1;
        if !tx.contains("m")? && runs < 4 {
            db.put("m", "")?;
            db.delete("m")?;
        }
        tx.put("k", "");
        Ok(())
    })
    .unwrap();
    assert_eq!((runs, counts()), (4, (3, 3)));
    let tx = db.transaction();
    tx.put(vec![0; KEY_BYTES_MAX + 1], "");
    assert!(tx.commit().is_err());
    assert_eq!(counts(), (3, 3));
}

#[test]
fn write_skew_and_phantoms_cannot_happen() {
    let db = open();
    let count_and_add = |name: &str| {
        let tx = db.transaction();
        assert_eq!(tx.prefix("booking:").count(), 0);
        tx.put(format!("booking:{name}"), "");
        tx
    };
    let (first, second) = (count_and_add("ada"), count_and_add("grace"));
    first.commit().unwrap();
    assert_conflict(second.commit(), "default", "booking:ada");
    let (one, other) = (db.transaction(), db.transaction());
    one.put("y", one.get("x").unwrap().unwrap_or_default());
    other.put("x", other.get("y").unwrap().unwrap_or_default());
    one.commit().unwrap();
    assert_conflict(other.commit(), "default", "y");
}

#[test]
fn one_that_only_reads_never_conflicts_and_needs_no_place_in_the_queue() {
    let db = open();
    db.put("k", "1").unwrap();
    let tx = db.transaction();
    assert_eq!((tx.len().unwrap(), tx.get("k").unwrap()), (1, Some("1".into())));
    db.put("k", "2").unwrap();
    assert_eq!(tx.get("k").unwrap(), Some("1".into()), "it reads its snapshot");
    let Turn::Leads(_) = db.engine().commit.enter(Wanted::Barrier) else { panic!("nobody leads") };
    tx.commit().unwrap();
    db.engine().commit.hand_on();
}

#[test]
fn what_a_synced_commit_has_read_is_on_disk_even_if_it_wrote_nothing() {
    let fs = MemFs::new();
    let db = options(&fs).open("/db").unwrap();
    for writes in [false, true] {
        db.put("k", [u8::from(writes)]).unwrap();
        let tx = db.transaction();
        assert!(tx.contains("k").unwrap());
        if writes {
            tx.put("l", "");
        }
        tx.commit_with(Durability::Synced).unwrap();
        let image = options(&fs.crash(CrashPolicy::DropUnsynced)).open("/db").unwrap();
        assert_eq!(image.get("k").unwrap().unwrap(), [u8::from(writes)]);
        assert_eq!(image.contains("l").unwrap(), writes);
    }
}

fn asks(db: &Db, keys: &[&str]) -> Admitted {
    let tx = db.transaction();
    keys.iter().for_each(|key| drop(tx.get(key).unwrap()));
    admit(db, &tx)
}

fn admit(db: &Db, tx: &Transaction) -> Admitted {
    let reads = std::mem::replace(&mut *lock(tx.read_set()), read_set::ReadSet::new(0));
    let mut batch = WriteBatch::new();
    batch.put("written", "");
    let (bytes, ids, _) = batch.into_parts().unwrap();
    let trees = db.engine().keyspaces.admit(&ids).unwrap();
    let horizons = reads.parts().map(|part| part.tree.horizon()).collect();
    let condition = ReadCondition::new(reads, db.engine().sequence.visible(), horizons);
    Admitted::asking(bytes, trees, Condition::Reads(condition))
}

fn run(db: &Db, group: &mut [Admitted]) -> Vec<(Decision, bool)> {
    decide(group, db.engine().sequence.visible(), db.engine().keyspaces.hash_seed).unwrap();
    let asked =
        group.iter().filter_map(|one| Some((one.condition.as_ref()?.1.decision(), one.stands_alone())));
    asked.collect()
}

#[test]
fn the_leader_looks_at_what_came_since_in_memtables_and_in_the_group() {
    use Decision::{LookAgain, Write};
    let [alone, in_group] = [false, true].map(|rests_on_group| Decision::Nothing { rests_on_group });
    let db = open();
    db.put("old", "").unwrap();
    let cases = || {
        ["immutable", "active", "old", "in the group", "deleted in the group"].map(|key| asks(&db, &[key]))
    };
    let [mut first, mut late, mut kept] = [cases(), cases(), cases()];
    db.put("immutable", "").unwrap();
    db.engine().seal(vec![db.engine().keyspaces.default_tree()]).unwrap();
    db.put("active", "").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("in the group", "").delete("deleted in the group");
    let plain = || {
        let (bytes, ids, _) = batch.clone().into_parts().unwrap();
        Admitted {
            bytes,
            trees: db.engine().keyspaces.admit(&ids).unwrap(),
            condition: None,
            may_exceed: None,
        }
    };
    let with_plain = |cases: &mut [Admitted; 5]| {
        let cases = std::mem::replace(cases, [(); 5].map(|()| plain()));
        std::iter::once(plain()).chain(cases).collect::<Vec<_>>()
    };
    // Only the third earlier batch was written, and the other requests have not read its key.
    let wanted = [(alone, true), (alone, true), (Write, false), (in_group, false), (in_group, false)];
    assert_eq!(run(&db, &mut with_plain(&mut first)), wanted);
    let tree = db.engine().keyspaces.default_tree();
    let keeper = tree.keep_memtables(0);
    db.flush().unwrap();
    assert_eq!(run(&db, &mut with_plain(&mut kept)), wanted, "they were kept");
    drop(keeper);
    assert_eq!(run(&db, &mut with_plain(&mut late)), [(LookAgain, true); 5]);
    let mut group = [asks(&db, &["written"]), asks(&db, &["x", "written"]), asks(&db, &["y"])];
    assert_eq!(run(&db, &mut group), [(Write, false), (in_group, false), (Write, false)]);
}

/// While the leader is blocked in the log, one thread queues a put of "k", then another queues a transaction that has
/// read "k". Then the append of their group succeeds or fails.
fn compete(is_failing: bool) -> (Db, Result<()>) {
    let fs = MemFs::new();
    let db = options(&fs).open("/db").unwrap();
    let (opens, gate) = mpsc::channel::<()>();
    let gate = Mutex::new((gate, 0));
    fs.observe(move |_, op| {
        if is_log(&op) {
            let mut gate = lock(&gate);
            gate.1 += 1;
            match gate.1 {
                1 => drop(gate.0.recv()),
                2 if is_failing => return Err(std::io::ErrorKind::StorageFull.into()),
                _ => {}
            }
        }
        Ok(())
    });
    let tx = db.transaction();
    tx.put("seen", [u8::from(tx.contains("k").unwrap())]);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| db.put("other", "").unwrap());
        while !db.engine().commit.is_led() {
            std::thread::yield_now();
        }
        let put = scope.spawn(|| db.put("k", ""));
        while db.engine().commit.waiting() < 1 {
            std::thread::yield_now();
        }
        let commit = scope.spawn(|| tx.commit());
        while db.engine().commit.waiting() < 2 {
            std::thread::yield_now();
        }
        let held = db.engine().sequence.snapshots.numbers().len();
        assert_eq!(held, 1, "that of the transaction, until it is decided");
        drop(opens);
        assert_eq!(put.join().unwrap().is_err(), is_failing);
        commit.join().unwrap()
    });
    (db, result)
}

#[test]
fn a_change_in_the_same_group_is_a_conflict_unless_the_group_fails() {
    let (db, result) = compete(false);
    assert_conflict(result, "default", "k");
    assert!(!db.contains("seen").unwrap());
    let (db, result) = compete(true);
    assert!(matches!(result, Err(Error::Io { .. })), "{result:?}: nothing was changed");
    assert!(!db.contains("k").unwrap() && !db.contains("seen").unwrap());
}

#[test]
fn past_the_limit_of_reads_a_transaction_is_coarser_and_never_wrong() {
    let db = open();
    for (reads, changed) in [(0..20_000_u32, 7777_u32), (0..1000, 500)] {
        let tx = db.transaction();
        lock(tx.read_set()).limit(50_000);
        reads.clone().for_each(|n| assert!(!tx.contains((2 * n).to_be_bytes()).unwrap()));
        tx.put("k", "");
        db.put((2 * changed).to_be_bytes(), "").unwrap();
        db.compact().unwrap();
        assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
        db.delete((2 * changed).to_be_bytes()).unwrap();
    }
    let tx = db.transaction();
    lock(tx.read_set()).limit(50_000);
    (0..20_000_u32).for_each(|n| assert!(!tx.contains(n.to_be_bytes()).unwrap()));
    tx.put("k", "");
    db.put("far", "").unwrap();
    tx.commit().unwrap();
}

#[test]
fn transact_runs_again_after_a_conflict() {
    let db = open();
    let mut runs = 0;
    let count = db.transact(|tx| {
        runs += 1;
        let before = tx.get("k")?;
        if runs < 4 {
            db.put("k", [runs])?;
        }
        tx.put("k", "done");
        Ok(before.map(|value| value[0]))
    });
    assert_eq!((count.unwrap(), runs), (Some(3), 4));
}

#[test]
fn a_transaction_longer_than_the_time_between_two_updates_of_its_key_commits_and_no_update_starves() {
    let add = |value: Option<&[u8]>| {
        let before = value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
        (before + 1).to_le_bytes().to_vec()
    };
    let db = open();
    let (is_over, mut tries) = (AtomicBool::new(false), 0);
    let updates: Vec<u64> = std::thread::scope(|scope| {
        let update = || {
            let mut updates = 0;
            while updates == 0 || !is_over.load(Ordering::Relaxed) {
                db.update("hot", |value| Some(add(value))).unwrap();
                updates += 1;
            }
            updates
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(update)).collect();
        let result = db.transact(|tx| {
            tries += 1;
            let before = tx.get("hot")?;
            for _ in 0..10_000 {
                if db.get("hot")? != before {
                    break;
                }
            }
            tx.put("hot", add(before.as_deref()));
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        result.unwrap();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let done = updates.iter().sum::<u64>() + 1;
    assert_eq!(db.get("hot").unwrap().unwrap(), done.to_le_bytes()[..], "{updates:?} after {tries} tries");
}

#[test]
fn transact_gives_up_after_ten_conflicts_and_at_once_after_any_other_error() {
    let fs = MemFs::new();
    let db = options(&fs).open("/db").unwrap();
    let runs_of = |change: &dyn Fn()| {
        let mut runs = 0_u32;
        let result = db.transact(|tx| {
            runs += 1;
            let _ = tx.get("k")?;
            tx.put("own", "");
            change();
            Ok(())
        });
        (runs, result.unwrap_err())
    };
    let (runs, error) = runs_of(&|| db.put("k", "").unwrap());
    assert!(runs == 10 && matches!(error, Error::Conflict { .. }), "{runs} {error}");
    assert!(!db.engine().commit.priority.is_taken() && !db.contains("own").unwrap());
    let mut runs = 0;
    let result: Result<()> = db.transact(|_| {
        runs += 1;
        Err(Error::invalid("told to fail"))
    });
    assert!(runs == 1 && matches!(result, Err(Error::InvalidArgument { .. })));
    fs.observe(|_, op| if is_log(&op) { Err(std::io::ErrorKind::Other.into()) } else { Ok(()) });
    let (runs, error) = runs_of(&|| ());
    assert!(runs == 1 && matches!(error, Error::Io { .. }), "{runs} {error}");
}

#[test]
fn a_closure_that_panics_unwinds_to_its_caller_with_nothing_written_and_nothing_stuck() {
    let db = open();
    for at in [1, 10] {
        let mut runs = 0;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            db.transact(|tx| -> Result<()> {
                runs += 1;
                let _ = tx.get("k")?;
                tx.put("own", "");
                assert!(runs < at, "told to panic");
                db.put("k", "")
            })
        }));
        let said = panicked.unwrap_err();
        assert_eq!(said.downcast_ref::<&str>().copied(), Some("told to panic"));
        assert!(runs == at && !db.contains("own").unwrap() && !db.engine().commit.priority.is_taken());
        assert_eq!(db.stats().snapshots, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| db.put("after", "").unwrap());
        });
        db.transact(|tx| {
            tx.put("after", "");
            Ok(())
        })
        .unwrap();
    }
    db.close().unwrap();
}

#[test]
fn what_is_dropped_or_rolled_back_has_done_nothing() {
    let db = open();
    let tx = db.transaction();
    tx.put("k", "v").delete("l");
    drop(tx);
    let tx = db.transaction();
    tx.put("k", "v");
    tx.rollback();
    assert!(!tx.contains("k").unwrap());
    tx.put("m", "");
    tx.commit().unwrap();
    assert_eq!(db.keys().map(Result::unwrap).collect::<Vec<_>>(), ["m"]);
    assert_eq!(db.stats().snapshots, 0);
}

#[test]
fn limits_other_stores_dropped_keyspaces_and_closed_stores_are_typed_errors() {
    let (db, foreign) = (open(), open());
    let (users, theirs) = (db.open_keyspace("users").unwrap(), foreign.open_keyspace("theirs").unwrap());
    let before = db.snapshot().seqno();
    let is_limit = |error: &Error| matches!(error, Error::LimitExceeded { .. });
    let tx = db.transaction();
    tx.put("k", "v").put(vec![0; KEY_BYTES_MAX + 1], "");
    assert!(is_limit(&tx.get("k").unwrap_err()) && is_limit(&tx.iter().next().unwrap().unwrap_err()));
    assert!(is_limit(&tx.commit().unwrap_err()));

    let is_invalid = |error: &Error| matches!(error, Error::InvalidArgument { .. });
    let tx = db.transaction();
    assert!(is_invalid(&tx.keyspace(&theirs).get("k").unwrap_err()));
    assert!(is_invalid(&tx.keyspace(&theirs).range(..).next().unwrap().unwrap_err()));
    tx.commit().unwrap();
    let tx = db.transaction();
    tx.keyspace(&theirs).put("k", "v");
    assert!(is_invalid(&tx.commit().unwrap_err()));

    let is_dropped = |error: &Error| matches!(error, Error::KeyspaceDropped { .. });
    let [read, written, reads] = [(); 3].map(|()| db.transaction());
    assert!(read.keyspace(&users).is_empty().unwrap() && reads.keyspace(&users).is_empty().unwrap());
    read.put("k", "v");
    written.keyspace(&users).put("k", "v");
    db.drop_keyspace("users").unwrap();
    assert!(is_dropped(&read.keyspace(&users).get("k").unwrap_err()));
    assert!(is_dropped(&written.keyspace(&users).get("k").unwrap_err()));
    assert!(is_dropped(&read.commit().unwrap_err()), "what it has read is gone");
    assert!(is_dropped(&written.commit().unwrap_err()));
    reads.commit().unwrap();
    assert_eq!(db.snapshot().seqno(), before, "nothing was written");

    let [read, written, both] = [(); 3].map(|()| db.transaction());
    written.put("k", "v");
    both.put("k", [u8::from(both.contains("k").unwrap())]);
    assert!(!read.contains("k").unwrap());
    db.clone().close().unwrap();
    assert!(matches!(read.get("l"), Err(Error::Closed)) && matches!(written.get("k"), Err(Error::Closed)));
    for tx in [read, written, both] {
        assert!(matches!(tx.commit(), Err(Error::Closed)));
    }
    assert!(matches!(db.transaction().commit(), Err(Error::Closed)));
    assert!(matches!(db.transact(|tx| tx.get("k")), Err(Error::Closed)));
}

#[test]
fn handles_of_a_copy_of_a_store_and_of_an_earlier_opening_are_those_of_another_store() {
    let fs = MemFs::new();
    let db = options(&fs).open("/db").unwrap();
    db.open_keyspace("users").unwrap().put("k", "v").unwrap();
    db.sync().unwrap();
    let copy = options(&fs.crash(CrashPolicy::KeepAll)).open("/db").unwrap();
    assert_eq!(db.engine().files.store_id, copy.engine().files.store_id);
    let is_invalid =
        |result: Result<()>| assert!(matches!(result, Err(Error::InvalidArgument { .. })), "{result:?}");
    let refuse = |db: &Db, theirs: &Keyspace| {
        let mut batch = WriteBatch::new();
        batch.put_in(theirs, "k", "w");
        is_invalid(db.write(&batch));
        is_invalid(db.write_pending(batch, Durability::Synced).wait());
        let mut batch = WriteBatch::new();
        batch.put_in(theirs, "k", "w").put_in(&db.open_keyspace("users").unwrap(), "k", "w");
        is_invalid(db.write(batch));
        let mut batch = IndexedBatch::new();
        batch.delete_in(theirs, "k");
        is_invalid(batch.over(db).contains("k").map(drop));
        is_invalid(db.write(batch));
        let [read, written] = [(); 2].map(|()| db.transaction());
        is_invalid(read.keyspace(theirs).contains("k").map(drop));
        written.keyspace(theirs).put("k", "w");
        is_invalid(written.commit());
        is_invalid(db.snapshot().keyspace(theirs).contains("k").map(drop));
    };
    let [ours, theirs] = [&db, &copy].map(|db| db.open_keyspace("users").unwrap());
    refuse(&db, &theirs);
    refuse(&copy, &ours);
    db.close().unwrap();
    let db = options(&fs).open("/db").unwrap();
    refuse(&db, &ours);
    assert_eq!(db.open_keyspace("users").unwrap().get("k").unwrap(), Some("v".into()));
}

#[test]
fn a_transaction_over_a_read_only_store_reads_and_cannot_write() {
    let fs = MemFs::new();
    options(&fs).open("/db").unwrap().put("k", "v").unwrap();
    let db = options(&fs).read_only().open("/db").unwrap();
    let tx = db.transaction();
    assert!(tx.contains("k").unwrap());
    tx.commit_with(Durability::Synced).unwrap();
    let tx = db.transaction();
    tx.put("k", [u8::from(tx.contains("k").unwrap())]);
    assert!(matches!(tx.commit(), Err(Error::ReadOnly)));
}

#[test]
fn a_check_that_cannot_be_made_is_an_error_and_writes_nothing() {
    let fs = MemFs::new();
    let db = options(&fs).open("/db").unwrap();
    let keys = || (0..200_u64).map(u64::to_be_bytes);
    keys().for_each(|key| db.put(key, [1; 50]).unwrap());
    db.compact().unwrap();
    let [by_key, by_range, other] = [(); 3].map(|()| db.transaction());
    assert!(by_key.contains(7_u64.to_be_bytes()).unwrap());
    assert_eq!(by_range.keys().count(), 200);
    assert!(!other.contains("other").unwrap());
    for tx in [&by_key, &by_range, &other] {
        tx.put("written", "");
    }
    keys().for_each(|key| db.put(key, [2; 50]).unwrap());
    db.flush().unwrap();
    let version = Arc::clone(&db.engine().keyspaces.default_tree().view().version);
    let seqno = other.snapshot().seqno();
    for (_, table) in version.all_tables().filter(|(_, table)| table.meta.seqno_max > seqno) {
        let name = FileName::Table(table.meta.number);
        let path = name.path(Path::new("/db"));
        let (_, mut bytes) = fs.files(Path::new("/db")).into_iter().find(|(file, _)| *file == path).unwrap();
        bytes[200..300].iter_mut().for_each(|byte| *byte ^= 0x55);
        fs.overwrite(&path, bytes);
        db.engine().context.forget(name);
    }
    let entries = db.stats().entries;
    for tx in [by_key, by_range] {
        let result = tx.commit();
        assert!(matches!(result, Err(Error::Corruption { .. })), "{result:?}");
    }
    assert_eq!(db.stats().entries, entries);
    other.commit().unwrap();
}

#[test]
fn the_snapshot_keeps_deletes_until_all_that_was_read_is_checked() {
    let fs = ReadsTell::default();
    let keyspace = KeyspaceOptions::new().filter(FilterPolicy::new(FilterKind::None));
    let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0).default_keyspace(keyspace);
    let db = options.open("/db").unwrap();
    let other = db.open_keyspace("other").unwrap();
    other.put("k", "").unwrap();
    db.compact().unwrap();
    let tx = db.transaction();
    assert!(!tx.contains("b").unwrap() && tx.keyspace(&other).contains("k").unwrap());
    tx.put("own", "");
    ["a", "c"].iter().for_each(|key| db.put(key, "").unwrap());
    other.delete("k").unwrap();
    db.flush().unwrap();
    db.engine().context.memory.blocks().set_capacity(0);
    // During the check of the first keyspace, a compaction drops the delete in the second keyspace together with the
    // deleted entry.
    let (compacts, is_told) = (db.clone(), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&is_told);
    fs.tell(move || {
        compacts.compact().unwrap();
        told.store(true, Ordering::Relaxed);
    });
    assert_conflict(tx.commit(), "other", "k");
    assert!(is_told.load(Ordering::Relaxed), "the check reads the table");
    db.compact().unwrap();
    assert_eq!(db.stats().keyspace("other").unwrap().total().entries, 0, "nothing holds it back any more");
}

/// At each of the next two table reads, flushes a memtable with other keys. It is not kept, for lack of memory.
fn flush_when_told(fs: &ReadsTell, db: &Db) {
    let (again, other) = (fs.clone(), db.clone());
    fs.tell(move || {
        ["a", "c"].iter().for_each(|key| other.put(key, "").unwrap());
        other.flush().unwrap();
        let memory = &other.engine().context.memory;
        drop(memory.lease(LeaseKind::Filters, memory.budget()));
        other.compact().unwrap();
        flush_when_told(&again, &other);
    });
}

#[test]
fn reads_that_cannot_be_checked_are_an_error_of_their_own_that_names_no_key() {
    let fs = ReadsTell::default();
    let keyspace = KeyspaceOptions::new().filter(FilterPolicy::new(FilterKind::None));
    let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0).default_keyspace(keyspace);
    let db = options.open("/db").unwrap();
    let tx = db.transaction();
    tx.put("own", [u8::from(tx.contains("b").unwrap())]);
    ["a", "c"].iter().for_each(|key| db.put(key, "").unwrap());
    db.flush().unwrap();
    db.engine().context.memory.blocks().set_capacity(0);
    flush_when_told(&fs, &db);
    let result = tx.commit();
    fs.tell(|| ());
    let is_limit = |error: &Error| matches!(error, Error::LimitExceeded { limit: 8, .. });
    assert!(is_limit(result.as_ref().unwrap_err()), "{result:?}");
    assert!(!db.contains("own").unwrap() && db.stats().conflicts == 0);
}

#[test]
fn a_write_while_the_reads_are_checked_is_found_by_the_leader() {
    let fs = ReadsTell::default();
    // Without a filter every lookup reads a block.
    let keyspace = KeyspaceOptions::new().filter(FilterPolicy::new(FilterKind::None));
    let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0).default_keyspace(keyspace);
    let db = options.open("/db").unwrap();
    let tx = db.transaction();
    tx.put("own", [u8::from(tx.contains("b").unwrap())]);
    ["a", "c"].iter().for_each(|key| db.put(key, "").unwrap());
    db.flush().unwrap();
    db.engine().context.memory.blocks().set_capacity(0);
    let (other, is_told) = (db.clone(), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&is_told);
    fs.tell(move || {
        other.put("b", "").unwrap();
        told.store(true, Ordering::Relaxed);
    });
    assert_conflict(tx.commit(), "default", "b");
    assert!(is_told.load(Ordering::Relaxed), "the check reads the table");
}
