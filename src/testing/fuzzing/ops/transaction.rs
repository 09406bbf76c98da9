//! A transaction, and the writes of others before it is committed.

use std::ops::Bound;

use super::*;
use crate::error::Error;

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The reads of a transaction in a keyspace: a key, or all keys within the bounds.
enum Read {
    Key(usize, Vec<u8>),
    Range(usize, Bounds),
}

impl Read {
    fn holds(&self, of: usize, key: &Vec<u8>) -> bool {
        match self {
            Self::Key(space, read) => *space == of && read == key,
            Self::Range(space, bounds) => *space == of && within(bounds, key),
        }
    }
}

impl World {
    /// It sees the maps at its start and its own writes. It conflicts exactly if it writes, and others have written
    /// an entry that it read.
    pub(super) fn transaction(&mut self, input: &mut Input<'_>) {
        let spaces: [Keyspace; SPACES] = std::array::from_fn(|at| self.space(at));
        let tx = self.db().transaction();
        let (mut seen, mut after) = (Maps::clone(self.now()), Maps::clone(self.now()));
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for _ in 0..1 + input.below(8) {
            let at = input.below(SPACES);
            let (inside, map) = (tx.keyspace(&spaces[at]), &mut seen[at]);
            match input.below(6) {
                0 | 1 => {
                    let key = key(input);
                    let found = inside.get(&key).expect("a lookup succeeds");
                    assert_eq!(found.as_deref(), map.get(&key).map(|value| &value[..]), "{key:?}");
                    if !writes.iter().any(|(space, written, _)| *space == at && *written == key) {
                        reads.push(Read::Key(at, key));
                    }
                }
                2 => {
                    let bounds = (bound(input), bound(input));
                    let inside = inside.range(bounds.clone());
                    walk(inside, map.iter().filter(|(key, _)| within(&bounds, key)), input);
                    reads.push(Read::Range(at, bounds));
                }
                3 => {
                    let key = key(input);
                    inside.delete(&key);
                    map.remove(&key);
                    writes.push((at, key, None));
                }
                _ => {
                    let (key, value) = (key(input), value(input));
                    inside.put(&key, &value);
                    map.insert(key.clone(), value.clone());
                    writes.push((at, key, Some(value)));
                }
            }
        }
        let mut conflicts = false;
        for _ in 0..input.below(3) {
            let (at, key, value) = (input.below(SPACES), key(input), value(input));
            spaces[at].put(&key, &value).expect("a write succeeds");
            conflicts |= reads.iter().any(|read| read.holds(at, &key));
            after[at].insert(key, value);
            self.history.push(Arc::new(after.clone()));
        }
        match input.below(6) {
            0 => self.db().flush().expect("a flush succeeds"),
            1 => self.db().compact().expect("a compaction succeeds"),
            _ => {}
        }
        let durability = if input.below(8) == 7 { Durability::Synced } else { Durability::Buffered };
        let is_refused = conflicts && !writes.is_empty();
        match tx.commit_with(durability) {
            Ok(()) => assert!(!is_refused, "a conflict was not found"),
            Err(Error::Conflict { .. }) => assert!(is_refused, "there was no conflict"),
            Err(error) => panic!("a commit succeeds or conflicts: {error}"),
        }
        if is_refused {
            return;
        }
        for (at, key, value) in writes {
            match value {
                Some(value) => after[at].insert(key, value),
                None => after[at].remove(&key),
            };
        }
        self.history.push(Arc::new(after));
        if durability == Durability::Synced {
            self.all_durable();
        }
    }
}
