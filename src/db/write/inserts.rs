//! Inserts of many absent keys, with optional entries that depend on the answers.
//!
//! 1. Look up all keys together. If all are present and there is no closure, the call ends.
//! 2. Run the closure, if any, on the answers. Its entries follow the inserts in the batch. They are kept as long as
//!    the answers do not change.
//! 3. The leader decides (`commit/conflict_check`). Without a closure, it writes the keys that are absent at that
//!    moment. With a closure, it writes the batch only if no answer has changed; otherwise the call begins again
//!    after a pause.
//!
//! An answer "already present" is as durable as "new"; see [`key_writes`](super::key_writes).

use std::sync::Arc;
use std::{mem, slice};

use super::conditional_loop::{Conditional, Look};
use super::key_writes::CLOSURE_RUNS_MAX;
use crate::batch::{self, WriteBatch};
use crate::db::engine::Engine;
use crate::db::queues::bits::Bits;
use crate::db::queues::condition::{Admitted, AskedKey, Condition, Rule};
use crate::db::queues::priority::Tries;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::error::{Error, Result};
use crate::hash::key_hash;
use crate::limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};

const FRAMING_BYTES_MAX: usize = 32;

pub(in crate::db) type Then<'c> = &'c mut dyn FnMut(&Bits, &mut WriteBatch) -> Result<()>;

#[derive(Clone, Copy)]
pub(in crate::db) struct New<'e> {
    pub(in crate::db) key: &'e [u8],
    pub(in crate::db) value: &'e [u8],
}

impl AsRef<[u8]> for New<'_> {
    fn as_ref(&self) -> &[u8] {
        self.key
    }
}

struct Inserts<'t, 'e> {
    tree: &'t Arc<Tree>,
    entries: &'t [New<'t>],
    /// Empty until the batch is needed, and while the leader owns it.
    all: Vec<u8>,
    keys: Vec<AskedKey>,
    bytes: usize,
    follow: Option<Follow<'t, 'e>>,
}

struct Follow<'t, 'e> {
    engine: &'e Engine,
    then: Then<'t>,
    runs: u64,
    last: Option<(Bits, Vec<u8>, Vec<Arc<Tree>>)>,
    tries: Tries<'e>,
}

impl Conditional for Inserts<'_, '_> {
    type Answer = Bits;

    fn look(&mut self, engine: &Engine, read_at: Past) -> Result<Look<Bits>> {
        let found = engine.multi_contains(self.tree, self.entries, None)?;
        let are_seen = found.iter().all(|&found| found);
        if are_seen && self.follow.is_none() {
            return Ok(Look::Answer(Bits::none(found.len())));
        }
        if self.all.is_empty() {
            self.encode()?;
        }
        set_hashes(&mut self.keys, &self.all, engine.keyspaces.hash_seed);
        let writes: Bits =
            found.iter().zip(&self.keys).map(|(found, key)| !found && key.hash.is_some()).collect();
        let followed_by = self.follow.as_mut().map(|follow| follow.of(&writes)).transpose()?;
        if are_seen && followed_by.is_none_or(|(_, trees)| trees.is_empty()) {
            return Ok(Look::Answer(writes));
        }
        let (all, keys) = (mem::take(&mut self.all), mem::take(&mut self.keys));
        let asked = Admitted::conditional(self.tree, all, read_at, Rule::Absent, keys, writes)?;
        Ok(Look::Ask(match followed_by {
            Some((more, trees)) => asked.followed_by(more, trees)?,
            None => asked,
        }))
    }

    fn decided(&mut self, _: &Engine, condition: Condition, batch: Vec<u8>) -> Result<Option<Bits>> {
        let is_undecided = condition.is_undecided();
        let condition = condition.of_keys();
        if !is_undecided {
            return Ok(Some(condition.into_writes()));
        }
        (self.all, self.keys) = condition.into_all(batch);
        if let Some(follow) = &mut self.follow {
            batch::truncate(&mut self.all, self.bytes, self.keys.len() as u32);
            follow.look_again();
        }
        Ok(None)
    }
}

impl Inserts<'_, '_> {
    fn check_limits(&mut self) -> Result<()> {
        let entries = self.entries.iter();
        let [key, value, all] = entries.fold([0_usize; 3], |[key, value, all], entry| {
            let bytes = entry.key.len() + entry.value.len() + FRAMING_BYTES_MAX;
            [key.max(entry.key.len()), value.max(entry.value.len()), all.saturating_add(bytes)]
        });
        let is_within =
            key <= KEY_BYTES_MAX && value <= VALUE_BYTES_MAX && all <= BATCH_BYTES_MAX - FRAMING_BYTES_MAX;
        if is_within { Ok(()) } else { self.encode() }
    }

    fn encode(&mut self) -> Result<()> {
        let mut batch = WriteBatch::new();
        let places = self.entries.iter().map_while(|new| batch.add_put(self.tree.id, new.key, new.value));
        self.keys = places.map(|place| AskedKey { place, hash: None }).collect();
        (self.all, ..) = batch.into_parts()?;
        self.bytes = self.all.len();
        Ok(())
    }
}

impl Follow<'_, '_> {
    fn of(&mut self, answers: &Bits) -> Result<(&[u8], &[Arc<Tree>])> {
        if self.last.as_ref().is_none_or(|(before, ..)| before != answers) {
            if self.runs == CLOSURE_RUNS_MAX {
                return Err(Error::limit(
                    "runs of the closure of an insert",
                    CLOSURE_RUNS_MAX,
                    self.runs + 1,
                ));
            }
            self.runs += 1;
            let mut batch = WriteBatch::new();
            (self.then)(answers, &mut batch)?;
            let (bytes, trees) = self.engine.admit(batch)?;
            self.last = Some((answers.clone(), bytes, trees));
        }
        let (_, bytes, trees) = self.last.as_ref().expect("it was set");
        Ok((bytes, trees))
    }

    fn look_again(&mut self) {
        self.tries.lost(|| self.engine.barrier());
    }
}

impl Engine {
    /// Returns the absent keys, and the position to which a sync makes the answers durable; `None`: everything
    /// visible.
    pub(in crate::db) fn insert_new(
        &self,
        tree: &Arc<Tree>,
        entries: &[New<'_>],
        then: Option<Then<'_>>,
    ) -> Result<(Bits, Option<LogPosition>)> {
        let follow = then.map(|then| {
            let tries = Tries::new(&self.commit.priority);
            Follow { engine: self, then, runs: 0, last: None, tries }
        });
        let mut call = Inserts { tree, entries, all: Vec::new(), keys: Vec::new(), bytes: 0, follow };
        call.check_limits()?;
        let (new, up_to) = self.conditional(slice::from_ref(tree), &mut call)?;
        if tree.sees() {
            let refused = entries.iter().enumerate().filter(|(at, _)| !new.get(*at));
            let seen = self.note_seen(tree, refused.map(|(_, entry)| entry.key));
            return Ok((new, up_to.map(|up_to| seen.map_or(up_to, |seen| seen.max(up_to)))));
        }
        Ok((new, up_to))
    }
}

fn set_hashes(keys: &mut [AskedKey], batch: &[u8], hash_seed: u64) {
    // A hash table with linear probing. A slot has the index of the first of equal keys, counted from 1.
    let mask = (2 * keys.len()).next_power_of_two() - 1;
    let mut slots = vec![0_u32; mask + 1];
    for at in 0..keys.len() {
        let key = &batch[keys[at].place.clone()];
        let hash = key_hash(hash_seed, key);
        let mut slot = hash as usize & mask;
        keys[at].hash = loop {
            match slots[slot].checked_sub(1) {
                None => {
                    slots[slot] = at as u32 + 1;
                    break Some(hash);
                }
                Some(earlier) if batch[keys[earlier as usize].place.clone()] == *key => break None,
                Some(_) => slot = (slot + 1) & mask,
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::db::Db;
    use crate::db::queues::commit_queue::{Turn, Wanted};
    use crate::fs::MemFs;
    use crate::options::{KeyspaceOptions, Options};

    fn open() -> Db {
        Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap()
    }

    fn value(db: &Db, key: &str) -> Option<Vec<u8>> {
        db.get(key).unwrap().map(|value| value.to_vec())
    }

    #[test]
    fn of_equal_keys_in_one_call_the_first_counts() {
        let db = open();
        db.put("old", "").unwrap();
        let keys = ["b", "old", "b", "a", "old", "a", "a"];
        let new =
            db.insert_new_many(keys.iter().zip(b"1234567").map(|(key, value)| (key, [*value]))).unwrap();
        assert_eq!(new.iter().collect::<Vec<_>>(), [true, false, false, true, false, false, false]);
        let values = db.multi_get(&["a", "b", "old"]).unwrap();
        assert_eq!(
            values.iter().flatten().map(|value| &value[..]).collect::<Vec<_>>(),
            [&b"4"[..], b"1", b""]
        );
    }

    #[test]
    fn a_key_or_value_that_is_too_long_is_an_error_although_the_other_keys_are_present() {
        let db = open();
        db.put("k", "").unwrap();
        let (long_key, long_value) = (vec![0; KEY_BYTES_MAX + 1], vec![0; VALUE_BYTES_MAX + 1]);
        let entries = db.stats().entries;
        for (entry, limited) in
            [((&long_key[..], &[][..]), "key length"), ((b"k", &long_value), "value length")]
        {
            let error = db.insert_new_many([(&b"k"[..], &b""[..]), entry, (b"new", b"")]).unwrap_err();
            assert!(matches!(error, Error::LimitExceeded { what, .. } if what == limited), "{error}");
        }
        assert_eq!(db.stats().entries, entries);
        assert_eq!(db.insert_new_many([("k", ""), ("new", "")]).unwrap().count(), 1);
    }

    #[test]
    fn what_follows_is_written_after_the_inserts_in_the_same_batch_and_also_to_other_keyspaces() {
        let db = open();
        let other = db.keyspace("other", KeyspaceOptions::new()).unwrap();
        db.put("old", "").unwrap();
        let before = db.stats();
        let new =
            db.insert_new_many_then([("a", "1"), ("old", "1"), ("b", "1"), ("a", "2")], |new, batch| {
                assert_eq!(new.iter().collect::<Vec<_>>(), [true, false, true, false]);
                batch.put("b", "from then").put_in(&other, "count", [new.count() as u8]).delete("old");
                Ok(())
            });
        assert_eq!(new.unwrap().count(), 2);
        assert_eq!(
            ["a", "b", "old"].map(|key| value(&db, key)),
            [Some(b"1".into()), Some(b"from then".into()), None]
        );
        assert_eq!(other.get("count").unwrap().unwrap(), [2]);
        let stats = db.stats();
        assert_eq!((stats.batches - before.batches, stats.entries - before.entries), (1, 5));
        other
            .insert_new_many_then([("a", "2")], |_, batch| {
                _ = batch.put("a", "3").put_in(&other, "b", "");
                Ok(())
            })
            .unwrap();
        assert_eq!(
            (value(&db, "a"), other.get("a").unwrap().unwrap().to_vec()),
            (Some(b"3".into()), b"2".to_vec())
        );
        let none: [(&str, &str); 0] = [];
        assert!(
            db.insert_new_many_then(none, |_, batch| {
                _ = batch.put("none", "");
                Ok(())
            })
            .unwrap()
            .is_empty()
        );
        assert!(value(&db, "none").is_some());
    }

    #[test]
    fn the_closure_runs_if_nothing_is_new_and_without_entries_of_it_nobody_is_waited_for() {
        let db = open();
        db.put("k", "").unwrap();
        let mut runs = 0;
        let seen = db.insert_new_many_then([("k", "1"), ("k", "2")], |new, batch| {
            runs += 1;
            assert_eq!(new.count(), 0);
            batch.put("offset", "2");
            Ok(())
        });
        assert_eq!((seen.unwrap().count(), runs, value(&db, "offset")), (0, 1, Some(b"2".into())));
        let Turn::Leads(_) = db.engine().commit.enter(Wanted::Barrier) else { panic!("nobody else leads") };
        assert_eq!(db.insert_new_many_then([("k", "")], |_, _| Ok(())).unwrap().count(), 0);
        db.engine().commit.hand_on();
    }

    #[test]
    fn an_insert_without_new_keys_makes_no_memtable_for_them() {
        let fs = MemFs::new();
        let options = Options::new().fs(Arc::new(fs.clone())).memory_budget(1 << 20).background_threads(0);
        let db = options.open("/db").unwrap();
        let other = db.keyspace("other", KeyspaceOptions::new()).unwrap();
        db.put("k", "").unwrap();
        db.flush().unwrap();
        for n in 0..5u8 {
            let offset = |_: &crate::NewKeys, batch: &mut WriteBatch| {
                _ = batch.put_in(&other, "offset", [n]);
                Ok(())
            };
            assert_eq!(db.insert_new_many_then([("k", "")], offset).unwrap().count(), 0);
            assert!(db.engine().keyspaces.default_tree().view().active.is_none());
            db.flush().unwrap();
            assert_eq!(db.engine().log().older(), 0, "no log is needed");
        }
        // A batch that needs all memory waits until every memtable is flushed.
        let large = vec![7; 2 * db.stats().memory.memtables_max as usize];
        db.put("large", &large).unwrap();
        assert_eq!(value(&db, "large"), Some(large));
    }

    #[test]
    fn the_closure_runs_again_with_new_answers_and_an_empty_batch_and_not_for_the_same_answers() {
        let db = open();
        db.put("deleted", "").unwrap();
        let entries = ["a", "b", "deleted", "kept"].map(|key| (key, "new"));
        let mut runs = Vec::new();
        let new = db.insert_new_many_then(entries, |new, batch| {
            runs.push(new.iter().collect::<Vec<_>>());
            assert!(batch.is_empty());
            batch.put(format!("run {}", runs.len()), [new.count() as u8]);
            // This write simulates another thread.
            match runs.len() {
                1 => db.put("a", "").unwrap(),
                2 => db.delete("deleted").unwrap(),
                // The memtable is flushed, but the answer is unchanged.
                3 => {
                    db.put("b", "").unwrap();
                    db.delete("b").unwrap();
                    db.flush().unwrap();
                }
                _ => {}
            }
            Ok(())
        });
        assert_eq!(new.unwrap().iter().collect::<Vec<_>>(), [false, true, true, true]);
        assert_eq!(runs, [[true, true, false, true], [false, true, false, true], [false, true, true, true]]);
        assert_eq!(["run 1", "run 2", "run 3"].map(|run| value(&db, run)), [None, None, Some(vec![3])]);
        assert_eq!(["a", "b", "deleted", "kept"].map(|key| value(&db, key).unwrap().len()), [0, 3, 3, 3]);
    }

    #[test]
    fn a_seen_that_has_changed_runs_the_closure_again_even_if_nothing_was_new() {
        let db = open();
        db.put("k", "").unwrap();
        let mut runs = 0;
        let new = db.insert_new_many_then([("k", "new")], |_, batch| {
            runs += 1;
            if runs == 1 {
                db.delete("k").unwrap();
            }
            batch.put("runs", [runs]);
            Ok(())
        });
        assert_eq!((new.unwrap().count(), value(&db, "runs")), (1, Some(vec![2])));
    }

    #[test]
    fn an_error_or_a_panic_of_the_closure_writes_nothing_and_leaves_nothing_behind() {
        let db = open();
        let tree = db.engine().keyspaces.default_tree();
        let gone = db.keyspace("gone", KeyspaceOptions::new()).unwrap();
        db.drop_keyspace("gone").unwrap();
        let (elsewhere, entries) = (open(), db.stats().entries);
        let long = vec![0; KEY_BYTES_MAX + 1];
        let foreign = elsewhere.keyspace("foreign", KeyspaceOptions::new()).unwrap();
        let insert = |then: &mut dyn FnMut(&mut WriteBatch) -> Result<()>| {
            db.insert_new_many_then([("k", "")], |_, batch| then(batch)).unwrap_err()
        };
        assert!(matches!(insert(&mut |_| Err(Error::Closed)), Error::Closed));
        let is_limit = |error| matches!(error, Error::LimitExceeded { what: "key length", .. });
        assert!(is_limit(insert(&mut |batch| {
            batch.put(&long, "");
            Ok(())
        })));
        assert!(matches!(
            insert(&mut |batch| {
                _ = batch.put_in(&foreign, "", "");
                Ok(())
            }),
            Error::InvalidArgument { .. }
        ));
        assert!(matches!(
            insert(&mut |batch| {
                _ = batch.put_in(&gone, "", "");
                Ok(())
            }),
            Error::KeyspaceDropped { .. }
        ));
        // The closure panics after an attempt with priority, while memtables are kept for the call.
        let mut runs = 0_usize;
        let panics = AssertUnwindSafe(|| {
            db.insert_new_many_then([("k", "")], |new, batch| {
                runs += 1;
                assert!(runs <= 12, "a panic in the closure");
                batch.put("never", "");
                if new.is_new(0) { db.put("k", "") } else { db.delete("k") }.and_then(|()| db.flush())
            })
        });
        assert!(catch_unwind(panics).is_err());
        assert!(runs == 13 && tree.memtables_since(0).is_none(), "no memtable is kept");
        assert!(!db.engine().commit.priority.is_taken());
        assert!(!db.engine().commit.is_led() && db.engine().commit.waiting() == 0);
        assert_eq!((db.stats().entries - entries, value(&db, "never")), (runs as u64 - 1, None));
        assert_eq!(db.insert_new_many_then([("l", "")], |_, _| Ok(())).unwrap().count(), 1);
        db.close().unwrap();
    }

    #[test]
    fn a_keyspace_dropped_while_the_closure_runs_refuses_the_batch() {
        let db = open();
        let going = db.keyspace("going", KeyspaceOptions::new()).unwrap();
        let inserted = db.insert_new_many_then([("k", "")], |_, batch| {
            batch.put_in(&going, "k", "");
            db.drop_keyspace("going")
        });
        assert!(matches!(inserted, Err(Error::KeyspaceDropped { .. })), "{inserted:?}");
        assert_eq!(value(&db, "k"), None);
    }

    #[test]
    fn an_insert_whose_answers_always_change_ends_with_an_error() {
        let db = open();
        let inserted = db.insert_new_many_then([("k", "")], |new, batch| {
            batch.put("never", "");
            if new.is_new(0) { db.put("k", "") } else { db.delete("k") }
        });
        assert!(
            matches!(inserted, Err(Error::LimitExceeded { limit: CLOSURE_RUNS_MAX, .. })),
            "{inserted:?}"
        );
        assert_eq!(value(&db, "never"), None);
    }
}
