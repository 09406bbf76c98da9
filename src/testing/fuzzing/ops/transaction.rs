use std::ops::Bound;

use super::*;
use crate::error::Error;

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

enum Read {
    Key(usize, Vec<u8>),
    Range(usize, Bounds),
}

enum Write {
    Key(usize, Vec<u8>, Option<Vec<u8>>),
    DeleteRange(usize, Vec<u8>, Vec<u8>),
}

impl Write {
    fn holds(&self, of: usize, sought: &Vec<u8>) -> bool {
        match self {
            Self::Key(space, key, _) => *space == of && key == sought,
            Self::DeleteRange(space, start, end) => *space == of && (start..end).contains(&sought),
        }
    }

    fn apply(self, maps: &mut Maps) {
        match self {
            Self::Key(space, key, Some(value)) => _ = maps[space].insert(key, value),
            Self::Key(space, key, None) => _ = maps[space].remove(&key),
            Self::DeleteRange(space, start, end) => {
                maps[space].retain(|key, _| !(&start..&end).contains(&key))
            }
        }
    }
}

fn two_keys(input: &mut Input<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let (a, b) = (key(input), key(input));
    let (start, end) = if a < b { (a, b) } else { (b, a) };
    (start < end).then_some((start, end))
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
    pub(super) fn transaction(&mut self, input: &mut Input<'_>) {
        let spaces: [Keyspace; SPACES] = std::array::from_fn(|at| self.space(at));
        let tx = self.db().transaction();
        let (mut seen, mut after) = (Maps::clone(self.now()), Maps::clone(self.now()));
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for _ in 0..1 + input.below(8) {
            let at = input.below(SPACES);
            let (inside, map) = (tx.keyspace(&spaces[at]), &mut seen[at]);
            match input.below(7) {
                0 | 1 => {
                    let key = key(input);
                    let found = inside.get(&key).expect("a lookup succeeds");
                    assert_eq!(found.as_deref(), map.get(&key).map(|value| &value[..]), "{key:?}");
                    if !writes.iter().any(|write: &Write| write.holds(at, &key)) {
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
                    writes.push(Write::Key(at, key, None));
                }
                4 => {
                    let Some((start, end)) = two_keys(input) else { continue };
                    inside.delete_range(&start..&end);
                    map.retain(|key, _| !(&start..&end).contains(&key));
                    writes.push(Write::DeleteRange(at, start, end));
                }
                _ => {
                    let (key, value) = (key(input), value(input));
                    inside.put(&key, &value);
                    map.insert(key.clone(), value.clone());
                    writes.push(Write::Key(at, key, Some(value)));
                }
            }
        }
        let (mut conflicts, mut may_conflict) = (false, false);
        for _ in 0..input.below(3) {
            let at = input.below(SPACES);
            if input.below(4) == 0 {
                let Some((start, end)) = two_keys(input) else { continue };
                spaces[at].delete_range(&start..&end).expect("a range delete succeeds");
                for read in &reads {
                    match read {
                        Read::Key(space, key) => conflicts |= *space == at && (&start..&end).contains(&key),
                        Read::Range(space, _) => may_conflict |= *space == at,
                    }
                }
                let mut deleted = after[at].keys().filter(|key| (&start..&end).contains(key));
                conflicts |= deleted.any(|key| reads.iter().any(|read| read.holds(at, key)));
                after[at].retain(|key, _| !(&start..&end).contains(&key));
            } else {
                let (key, value) = (key(input), value(input));
                spaces[at].put(&key, &value).expect("a write succeeds");
                conflicts |= reads.iter().any(|read| read.holds(at, &key));
                after[at].insert(key, value);
            }
            self.history.push(Arc::new(after.clone()));
        }
        match input.below(6) {
            0 => self.db().flush().expect("a flush succeeds"),
            1 => self.db().compact().expect("a compaction succeeds"),
            _ => {}
        }
        let durability = if input.below(8) == 7 { Durability::Synced } else { Durability::Buffered };
        let is_refused = match tx.commit_with(durability) {
            Ok(()) => false,
            Err(Error::Conflict { .. }) => true,
            Err(error) => panic!("a commit succeeds or conflicts: {error}"),
        };
        assert!(is_refused || !conflicts || writes.is_empty(), "a conflict was not found");
        assert!(!is_refused || conflicts || may_conflict, "there was no conflict");
        if is_refused {
            return;
        }
        writes.into_iter().for_each(|write| write.apply(&mut after));
        self.history.push(Arc::new(after));
        if durability == Durability::Synced {
            self.all_durable();
        }
    }
}
