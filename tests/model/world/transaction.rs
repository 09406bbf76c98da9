use super::super::ops::{Ends, Step};
use super::super::reference::half_open;
use super::*;

enum Read {
    Key(Space, Vec<u8>),
    /// The parts of a range read from both ends: up to the first key, and from the second key on. `None` means the
    /// whole range.
    Range(Space, ByteBounds, Option<[Option<Vec<u8>>; 2]>),
}

impl Read {
    fn is_changed_by(&self, write: &Done) -> bool {
        let (Self::Key(space, _) | Self::Range(space, ..)) = self;
        if *space != write.space() {
            return false;
        }
        let written = match write {
            Done::Key(_, key, _) => (Bound::Included(key.clone()), Bound::Included(key.clone())),
            Done::Range(_, bounds) => bounds.clone(),
        };
        self.intervals().iter().any(|read| meet(read, &written))
    }

    fn intervals(&self) -> Vec<ByteBounds> {
        match self {
            Self::Key(_, key) => vec![(Bound::Included(key.clone()), Bound::Included(key.clone()))],
            Self::Range(_, bounds, None) => vec![bounds.clone()],
            Self::Range(_, (start, end), Some([low, high])) => {
                let low = low.iter().map(|low| (start.clone(), Bound::Included(low.clone())));
                let high = high.iter().map(|high| (Bound::Included(high.clone()), end.clone()));
                low.chain(high).collect()
            }
        }
    }
}

fn meet(one: &ByteBounds, other: &ByteBounds) -> bool {
    let ((one, one_end), (other, other_end)) = (half_open(one), half_open(other));
    let is_before = |key: &Vec<u8>, end: &Option<Vec<u8>>| end.as_ref().is_none_or(|end| key < end);
    let start = one.max(other);
    is_before(&start, &one_end) && is_before(&start, &other_end)
}

impl World {
    /// Expects a conflict if and only if the transaction writes, and others have written entries that it read.
    pub(super) fn transaction(
        &mut self,
        steps: &[Step],
        others: &[Done],
        is_flushed: bool,
        synced: bool,
    ) -> Result<(), String> {
        let tx = self.db.transaction();
        let mut seen: Vec<Option<Arc<Map>>> = (0..SPACES).map(|at| Some(self.space(at)?.1)).collect();
        let (mut reads, mut writes) = (Vec::new(), Vec::<Done>::new());
        for step in steps {
            let space = match step {
                Step::Look(space, _) | Step::Walk(space, ..) => space,
                Step::Write(Write::Key(space, ..) | Write::Range(space, _)) => space,
            };
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
                    let is_own = |write: &Done| match write {
                        Done::Key(of, written, _) => of == space && *written == key,
                        Done::Range(of, bounds) => of == space && holds(bounds, &key),
                    };
                    if !writes.iter().any(is_own) {
                        reads.push(Read::Key(*space, key));
                    }
                }
                Step::Walk(space, bounds, ends, most) => {
                    let bounds = byte_bounds(*bounds);
                    let left = within(map, &bounds);
                    let passed = self.walk_in(inside.range(&bounds), left, ends, usize::from(*most))?;
                    reads.push(Read::Range(*space, bounds, passed));
                }
                Step::Write(write) => {
                    let map = Arc::make_mut(map);
                    for write in done(&[*write]) {
                        match &write {
                            Done::Key(_, key, Some(value)) => {
                                inside.put(key, value);
                                map.insert(key[..].into(), value[..].into());
                            }
                            Done::Key(_, key, None) => {
                                inside.delete(key);
                                map.remove(&key[..]);
                            }
                            Done::Range(_, bounds) => {
                                inside.delete_range(bounds);
                                map.retain(|key, _| !holds(bounds, key));
                            }
                        }
                        if !matches!(&write, Done::Range(_, bounds) if !meet(bounds, bounds)) {
                            writes.push(write);
                        }
                    }
                }
            }
        }
        let is_there = |write: &&Done| self.spaces[usize::from(write.space())].is_some();
        let changed: Vec<_> = others.iter().filter(is_there).cloned().collect();
        self.batch(others, false)?;
        if is_flushed {
            ok("flush", self.db.flush())?;
        }
        let conflicts = changed.iter().any(|write| reads.iter().any(|read| read.is_changed_by(write)));
        let is_refused = conflicts && !writes.is_empty();
        match tx.commit_with(durability(synced)) {
            Ok(()) if !is_refused => {}
            Err(Error::Conflict { .. }) if is_refused => {}
            other => return Err(format!("the commit gave {other:?}; a conflict was due: {is_refused}")),
        }
        self.count_change(!is_refused);
        is_refused.hash(&mut self.answer);
        if !is_refused {
            writes.into_iter().for_each(|write| self.note(write));
        }
        Ok(())
    }

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
