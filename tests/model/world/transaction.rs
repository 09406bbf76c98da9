//! Transactions: what each sees, and whether others have changed what it read.

use std::ops::RangeBounds;

use super::super::ops::{Ends, Step};
use super::*;

/// A put, or a delete.
type Write = (Space, Vec<u8>, Option<Vec<u8>>);

/// What a transaction has read.
enum Read {
    Key(Space, Vec<u8>),
    /// Of a range what was passed from both ends: up to this key, and from that one on. `None`: the whole range.
    Range(Space, ByteBounds, Option<[Option<Vec<u8>>; 2]>),
}

impl Read {
    fn holds(&self, of: Space, key: &Vec<u8>) -> bool {
        match self {
            Self::Key(space, read) => *space == of && read == key,
            Self::Range(space, bounds, passed) => {
                let is_passed = passed.as_ref().is_none_or(|[low, high]| {
                    low.as_ref().is_some_and(|low| key <= low)
                        || high.as_ref().is_some_and(|high| key >= high)
                });
                *space == of && bounds.contains(key) && is_passed
            }
        }
    }
}

impl World {
    /// Does the steps in a transaction, then what others write meanwhile, and commits: there is a conflict exactly
    /// if the transaction writes, and others have written what it has read.
    pub(super) fn transaction(
        &mut self,
        steps: &[Step],
        others: Vec<Write>,
        is_flushed: bool,
        synced: bool,
    ) -> Result<(), String> {
        let tx = self.db.transaction();
        // What the transaction sees, and what it has done.
        let mut seen: Vec<Option<Arc<Map>>> = (0..SPACES).map(|at| Some(self.space(at)?.1)).collect();
        let (mut reads, mut writes) = (Vec::new(), Vec::<Write>::new());
        for step in steps {
            let (Step::Look(space, _) | Step::Walk(space, ..) | Step::Write(space, ..)) = step;
            let Some(keyspace) = self.spaces[usize::from(*space)].clone() else { continue };
            let map = seen[usize::from(*space)].as_mut().expect("it exists");
            let inside = tx.keyspace(&keyspace);
            match step {
                Step::Look(space, key) => {
                    let key = key.bytes();
                    let wanted = map.get(&key[..]).cloned();
                    self.compare_value(&key, &ok("get", inside.get(&key))?, wanted.as_ref())?;
                    let many = ok("multi_contains", inside.multi_contains(&[&key]))?;
                    equal("multi_contains", many, vec![wanted.is_some()])?;
                    if !writes.iter().any(|(of, written, _)| of == space && *written == key) {
                        reads.push(Read::Key(*space, key));
                    }
                }
                Step::Walk(space, bounds, ends, most) => {
                    let bounds = byte_bounds(*bounds);
                    let left = within(map, &bounds);
                    let passed = self.walk_in(inside.range(&bounds), left, ends, usize::from(*most))?;
                    reads.push(Read::Range(*space, bounds, passed));
                }
                Step::Write(space, key, val) => {
                    let (key, value) = (key.bytes(), val.map(|val| val.bytes()));
                    let map = Arc::make_mut(map);
                    match &value {
                        Some(value) => {
                            inside.put(&key, value);
                            map.insert(key[..].into(), value[..].into());
                        }
                        None => {
                            inside.delete(&key);
                            map.remove(&key[..]);
                        }
                    }
                    writes.push((*space, key, value));
                }
            }
        }
        let is_there = |(space, ..): &(Space, _, _)| self.spaces[usize::from(*space)].is_some();
        let changed: Vec<_> = others
            .iter()
            .filter(|other| is_there(other))
            .map(|(space, key, _)| (*space, key.clone()))
            .collect();
        self.batch(others, false)?;
        if is_flushed {
            ok("flush", self.db.flush())?;
        }
        let conflicts = changed.iter().any(|(space, key)| reads.iter().any(|read| read.holds(*space, key)));
        let is_refused = conflicts && !writes.is_empty();
        match tx.commit_with(durability(synced)) {
            Ok(()) if !is_refused => {}
            Err(Error::Conflict { .. }) if is_refused => {}
            other => return Err(format!("the commit gave {other:?}; a conflict was due: {is_refused}")),
        }
        self.count_change(!is_refused);
        is_refused.hash(&mut self.answer);
        if !is_refused {
            writes.into_iter().for_each(|(space, key, value)| self.reference.write(space, key, value));
        }
        Ok(())
    }

    /// Goes some steps into a range from both ends. Returns the last keys of each end; `None` after the last.
    fn walk_in(
        &mut self,
        mut iter: Iter<'_>,
        mut left: VecDeque<Entry>,
        ends: &Ends,
        most: usize,
    ) -> Result<Option<[Option<Vec<u8>>; 2]>, String> {
        let mut passed = [None, None];
        for &is_front in ends.iter().cycle().take(most) {
            let (found, wanted) = match is_front {
                true => (iter.next(), left.pop_front()),
                false => (iter.next_back(), left.pop_back()),
            };
            let found = found.map(|item| ok("a step", item)).transpose()?;
            let found = found.as_ref().map(|(key, value)| (&key[..], &value[..]));
            let wanted = wanted.as_ref().map(|(key, value)| (&key[..], &value[..]));
            equal("a step", found, wanted)?;
            let Some((key, _)) = wanted else { return Ok(None) };
            passed[usize::from(!is_front)] = Some(key.to_vec());
        }
        Ok(Some(passed))
    }
}
