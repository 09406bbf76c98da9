//! Writes of one key that depend on its value.
//!
//! A refusal is as durable as a write: with [`Synced`](crate::Durability::Synced), the call syncs everything that was
//! logged before the refusal.

use std::sync::Arc;
use std::{mem, slice};

use bytes::Bytes;

use super::conditional_loop::{Conditional, Look};
use crate::batch::{self, BatchReader, own_batch};
use crate::db::engine::Engine;
use crate::db::queues::bits::Bits;
use crate::db::queues::condition::{Admitted, AskedKey, Condition, Decision, Rule};
use crate::db::queues::priority::Tries;
use crate::db::queues::value::Value;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::error::{Error, Result};
use crate::hash::key_hash;

/// Each run except the first is due to a change during the previous one.
pub(super) const CLOSURE_RUNS_MAX: u64 = 10_000;

pub(in crate::db) struct KeyWrite<'k> {
    pub(in crate::db) key: &'k [u8],
    pub(in crate::db) value: Option<&'k [u8]>,
    pub(in crate::db) rule: Rule,
    /// The caller needs the previous value, not only whether it exists.
    pub(in crate::db) is_read: bool,
}

pub(in crate::db) struct Single {
    pub(in crate::db) is_allowed: bool,
    pub(in crate::db) before: Option<Value>,
}

struct WriteOne<'t, 'k> {
    tree: &'t Arc<Tree>,
    write: KeyWrite<'k>,
    hash: u64,
    batch: Vec<u8>,
    found: Option<Value>,
}

impl Conditional for WriteOne<'_, '_> {
    type Answer = Single;

    fn look(&mut self, engine: &Engine, read_at: Past) -> Result<Look<Single>> {
        let KeyWrite { key, value, rule, is_read } = &self.write;
        let found = engine.look_up(self.tree, key, None, |value| {
            if *is_read { Value::read(value) } else { Ok(Value::new(Bytes::new())) }
        })?;
        let is_allowed = rule.allows(found.as_deref());
        if !is_allowed || value.is_none() && found.is_none() {
            return Ok(Look::Answer(Single { is_allowed, before: found }));
        }
        self.found = found;
        Ok(Look::Ask(one(self.tree, mem::take(&mut self.batch), read_at, rule.clone(), self.hash)?))
    }

    fn decided(&mut self, _: &Engine, condition: Condition, batch: Vec<u8>) -> Result<Option<Single>> {
        if condition.is_undecided() {
            self.batch = condition.of_keys().into_all(batch).0;
            return Ok(None);
        }
        let is_allowed = condition.decision() == Decision::Write;
        let changed_to = condition.of_keys().changed_to();
        let before = changed_to.unwrap_or_else(|| self.found.take());
        Ok(Some(Single { is_allowed, before }))
    }
}

struct Update<'t, 'k, 'e, C> {
    tree: &'t Arc<Tree>,
    key: &'k [u8],
    hash: u64,
    change: C,
    runs: u64,
    last: Option<(Option<Value>, Option<Vec<u8>>)>,
    tries: Tries<'e>,
}

impl<C: FnMut(Option<&[u8]>) -> Option<Vec<u8>>> Conditional for Update<'_, '_, '_, C> {
    type Answer = Option<Value>;

    fn look(&mut self, engine: &Engine, read_at: Past) -> Result<Look<Self::Answer>> {
        let before = engine.look_up(self.tree, self.key, None, Value::read)?;
        let after = match self.last.take() {
            Some((same, after)) if same == before => after,
            _ if self.runs == CLOSURE_RUNS_MAX => {
                let runs = self.runs + 1;
                return Err(Error::limit("runs of the closure of an update", CLOSURE_RUNS_MAX, runs));
            }
            _ => {
                self.runs += 1;
                (self.change)(before.as_deref())
            }
        };
        let batch = batch::of_one(self.tree.id, self.key, after.as_deref())?;
        if before.is_none() && after.is_none() {
            return Ok(Look::Answer(None));
        }
        let rule = before.clone().map_or(Rule::Absent, Rule::Equals);
        let asked = one(self.tree, batch, read_at, rule, self.hash)?;
        self.last = Some((before, after));
        Ok(Look::Ask(asked))
    }

    /// Repeats the lookup after a concurrent write or a flush, with a pause.
    fn decided(&mut self, engine: &Engine, condition: Condition, _: Vec<u8>) -> Result<Option<Self::Answer>> {
        if condition.decision() == Decision::Write {
            let after = self.last.take().and_then(|(_, after)| after);
            return Ok(Some(after.map(|value| Value::new(value.into()))));
        }
        self.tries.lost(|| engine.barrier());
        Ok(None)
    }
}

impl Engine {
    /// Returns the log position that covers the answer; `None`: everything visible.
    pub(in crate::db) fn write_if(
        &self,
        tree: &Arc<Tree>,
        write: KeyWrite<'_>,
    ) -> Result<(Single, Option<LogPosition>)> {
        let hash = key_hash(self.keyspaces.hash_seed, write.key);
        let batch = batch::of_one(tree.id, write.key, write.value)?;
        let insert = (write.rule == Rule::Absent && write.value.is_some()).then_some(write.key);
        let mut call = WriteOne { tree, write, hash, batch, found: None };
        let (single, up_to) = self.conditional(slice::from_ref(tree), &mut call)?;
        if let Some(key) = insert.filter(|_| !single.is_allowed && tree.sees()) {
            self.note_seen(tree, [key]);
        }
        Ok((single, up_to))
    }

    /// Returns the new value and its log position. The priority has ended, so others need not wait for the disk.
    pub(in crate::db) fn update(
        &self,
        tree: &Arc<Tree>,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<(Option<Value>, Option<LogPosition>)> {
        let hash = key_hash(self.keyspaces.hash_seed, key);
        let tries = Tries::new(&self.commit.priority);
        let mut call = Update { tree, key, hash, change, runs: 0, last: None, tries };
        self.conditional(slice::from_ref(tree), &mut call)
    }
}

fn one(tree: &Arc<Tree>, batch: Vec<u8>, read_at: Past, rule: Rule, hash: u64) -> Result<Admitted> {
    let entry = BatchReader::open(&batch).map_err(own_batch)?.next();
    let place = entry.expect("it has one entry").map_err(own_batch)?.key;
    let keys = vec![AskedKey { place, hash: Some(hash) }];
    Admitted::conditional(tree, batch, read_at, rule, keys, Bits::from_iter([true]))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::db::queues::commit_queue::Turn;
    use crate::db::queues::priority::PRIORITY_ONE_IN;
    use crate::db::state::durability::Durability;
    use crate::fs::{CrashPolicy, MemFs, Op};
    use crate::options::Options;
    use crate::sync::lock;

    fn options(fs: &MemFs) -> Options {
        Options::new().fs(Arc::new(fs.clone())).background_threads(0)
    }

    fn is_log(op: &Op<'_>) -> bool {
        matches!(op, Op::Append(path, _) if path.extension().is_some_and(|end| end == "wal"))
    }

    /// While the leader is blocked in the log, threads queue inserts of the same keys. Then the append of their group
    /// succeeds or fails.
    fn compete(is_failing: bool) -> (crate::db::Db, Vec<Result<bool>>) {
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
        let answers = std::thread::scope(|scope| {
            let leader = scope.spawn(|| db.put("other", ""));
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    while thread == 0 && !db.engine().commit.is_led() {
                        std::thread::yield_now();
                    }
                    let db = &db;
                    scope.spawn(move || match thread % 2 {
                        0 => db.insert_if_absent("k", [thread]),
                        _ => db.insert_new_many([("k", [thread])]).map(|new| new.is_new(0)),
                    })
                })
                .collect();
            while db.engine().commit.waiting() < 4 {
                std::thread::yield_now();
            }
            drop(opens);
            leader.join().unwrap().unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        (db, answers)
    }

    #[test]
    fn of_those_who_insert_the_same_key_in_one_group_one_is_told_that_it_is_new() {
        let (db, answers) = compete(false);
        let new = answers.into_iter().filter(|answer| *answer.as_ref().unwrap()).count();
        assert_eq!(new, 1);
        assert!(db.contains("k").unwrap());
    }

    #[test]
    fn seen_because_of_an_earlier_request_fails_when_the_group_fails() {
        let (db, answers) = compete(true);
        for answer in answers {
            assert!(matches!(answer, Err(Error::Io { .. })), "{answer:?}: no such key was written");
        }
        assert!(!db.contains("k").unwrap());
        assert!(db.insert_if_absent("k", "").unwrap());
    }

    #[test]
    fn a_synced_no_is_on_disk_when_it_is_given() {
        let fs = MemFs::new();
        let db = options(&fs).open("/db").unwrap();
        let no: [fn(&crate::db::Db) -> bool; 6] = [
            |db| !db.insert_if_absent_with("k", "", Durability::Synced).unwrap(),
            |db| db.insert_new_many_with([("k", "")], Durability::Synced).unwrap().count() == 0,
            |db| db.compare_and_set_with("k", None, Some(b""), Durability::Synced).unwrap().is_err(),
            |db| db.compare_and_set_with("k", Some(b"x"), None, Durability::Synced).unwrap().is_err(),
            |db| db.remove_with("absent", Durability::Synced).unwrap().is_none(),
            |db| db.update_with("absent", Durability::Synced, |_| None).unwrap().is_none(),
        ];
        for (round, no) in no.into_iter().enumerate() {
            db.put("k", [round as u8]).unwrap();
            db.delete("absent").unwrap();
            db.put("last", [round as u8]).unwrap();
            assert!(no(&db));
            let image = options(&fs.crash(CrashPolicy::DropUnsynced)).open("/db").unwrap();
            let values = image.multi_get(&["k", "last"]).unwrap();
            assert!(values.iter().all(|value| value.as_deref() == Some(&[round as u8])), "call {round}");
        }
    }

    #[test]
    fn a_synced_no_gets_the_error_of_its_sync() {
        let fs = MemFs::new();
        let db = options(&fs).open("/db").unwrap();
        db.put("k", "").unwrap();
        fs.observe(|_, op| match op {
            Op::Sync(_) => Err(std::io::ErrorKind::Other.into()),
            _ => Ok(()),
        });
        assert!(!db.insert_if_absent("k", "").unwrap(), "a buffered one needs no sync");
        assert!(matches!(db.insert_if_absent_with("k", "", Durability::Synced), Err(Error::Io { .. })));
    }

    #[test]
    fn a_call_in_which_everything_was_seen_needs_no_place_in_the_queue() {
        let fs = MemFs::new();
        let db = options(&fs).open("/db").unwrap();
        db.put("k", "").unwrap();
        let before = db.stats();
        let Turn::Leads(_) = db.engine().commit.enter(crate::db::queues::commit_queue::Wanted::Barrier)
        else {
            panic!("nobody else leads")
        };
        assert!(!db.insert_if_absent("k", "").unwrap());
        assert_eq!(db.insert_new_many([("k", ""), ("k", "")]).unwrap().count(), 0);
        assert!(db.compare_and_set("k", Some(b"x"), None).unwrap().is_err());
        assert!(db.remove("absent").unwrap().is_none());
        db.engine().commit.hand_on();
        assert_eq!(db.stats().batches, before.batches);
    }

    #[test]
    fn an_answer_is_found_even_if_every_memtable_is_flushed_between_look_and_decision() {
        let db = options(&MemFs::new()).open("/db").unwrap();
        let mut runs = 0;
        let added = db.update("k", |value| {
            runs += 1;
            // This write simulates another thread.
            if runs == 1 {
                db.put("k", [runs as u8]).unwrap();
            }
            db.put("other", "").unwrap();
            db.flush().unwrap();
            Some([value.unwrap_or_default(), b"+"].concat())
        });
        // Before the last run only the other key was written, and its memtable was retained for the leader.
        assert_eq!(added.unwrap().as_deref(), Some(&[1, b'+'][..]));
        assert_eq!(runs, 2);
    }

    #[test]
    fn update_keeps_what_its_closure_has_made_of_a_value_that_is_still_there() {
        let db = options(&MemFs::new()).open("/db").unwrap();
        db.put("k", "1").unwrap();
        let mut runs = 0;
        let added = db.update("k", |value| {
            runs += 1;
            db.put("k", "2").unwrap();
            db.put("k", value.unwrap()).unwrap();
            db.flush().unwrap();
            Some([value.unwrap(), b"+"].concat())
        });
        assert_eq!((added.unwrap().as_deref(), runs), (Some(&b"1+"[..]), 1));
    }

    #[test]
    fn update_ends_with_an_error_if_its_key_always_has_another_value() {
        let db = options(&MemFs::new()).open("/db").unwrap();
        let mut runs = 0_u64;
        let added = db.update("k", |_| {
            runs += 1;
            db.put("k", runs.to_le_bytes()).unwrap();
            Some(Vec::new())
        });
        assert!(matches!(added, Err(Error::LimitExceeded { limit: CLOSURE_RUNS_MAX, .. })), "{added:?}");
        assert_eq!(db.get("k").unwrap().unwrap(), CLOSURE_RUNS_MAX.to_le_bytes()[..], "nothing was written");
    }

    #[test]
    fn an_update_that_others_make_fail_ten_times_has_the_right_of_way_from_then_on() {
        let db = options(&MemFs::new()).open("/db").unwrap();
        let (is_over, mut runs, mut held) = (AtomicBool::new(false), 0, Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0_u64.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    db.put("k", n.to_le_bytes()).unwrap();
                }
            });
            let updated = db.update("k", |before| {
                runs += 1;
                held.push(db.engine().commit.priority.is_taken());
                while runs < PRIORITY_ONE_IN && db.get("k").unwrap().as_deref() == before {
                    std::thread::yield_now();
                }
                Some(b"ours".to_vec())
            });
            is_over.store(true, Ordering::Relaxed);
            updated.unwrap();
        });
        assert_eq!(held, [false, false, false, false, false, false, false, false, false, true]);
        assert!(!db.engine().commit.priority.is_taken());
    }

    #[test]
    fn a_closure_that_panics_while_memtables_are_kept_for_it_leaves_nothing_behind() {
        let db = options(&MemFs::new()).background_threads(0).open("/db").unwrap();
        let tree = db.engine().keyspaces.default_tree();
        let mut runs = 0;
        let update = std::panic::AssertUnwindSafe(|| {
            db.update("k", |_| {
                runs += 1;
                db.put("k", [runs as u8]).unwrap();
                db.flush().unwrap();
                assert!(runs == 1, "a panic in the closure");
                Some(Vec::new())
            })
        });
        assert!(std::panic::catch_unwind(update).is_err());
        assert!(runs == 2 && tree.memtables_since(0).is_none(), "no memtable is kept");
        assert!(!db.engine().commit.is_led() && db.engine().commit.waiting() == 0);
        assert_eq!(db.update("k", |value| Some(value.unwrap().to_vec())).unwrap().unwrap(), [runs as u8]);
        db.close().unwrap();
    }

    #[test]
    fn update_runs_again_when_its_key_was_written_meanwhile() {
        let db = options(&MemFs::new()).open("/db").unwrap();
        let mut seen = Vec::new();
        let left = db.update("k", |value| {
            seen.push(value.map(<[u8]>::to_vec));
            match seen.len() {
                1 => db.put("k", "1").unwrap(),
                2 => db.delete("k").unwrap(),
                3 => db.put("k", "3").unwrap(),
                _ => {}
            }
            (seen.len() < 3).then(|| [value.unwrap_or_default(), b"!"].concat())
        });
        // The third run found no value and writes none, which is a valid answer.
        assert_eq!(left.unwrap(), None);
        assert_eq!(seen, [None, Some(b"1".to_vec()), None]);
    }
}
