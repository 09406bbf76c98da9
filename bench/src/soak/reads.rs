use super::history::{Key, SHARED, Space};
use super::value::{owner, stamp};
use super::watch::Call;
use super::worker::{Expected, Walk, Worker};

impl Worker<'_> {
    fn agree(&self, space: Space, key: &Key, found: Option<&[u8]>) -> Result<(), String> {
        let found = found.map(|found| stamp(key, found)).transpose()?;
        let possible = self.history.possible(space, key);
        if possible.contains(&found) {
            return Ok(());
        }
        Err(format!("{key:?} of keyspace {space} is {found:?} instead of {possible:?}"))
    }

    pub(super) fn look(&mut self, call: Call) -> Result<(), String> {
        let (space, keyspace) = self.any_space();
        let count = if call == Call::MultiGet { 1 + self.dice.below(20) } else { 1 };
        let keys: Vec<Key> = (0..count).map(|_| self.any_key()).collect();
        match call {
            Call::Contains => {
                let Some(found) = self.done(call, |_| keyspace.contains(&keys[0]))? else { return Ok(()) };
                self.agree_contains(space, &keys[0], found)
            }
            Call::MayContain => {
                let Some(found) = self.done(call, |_| Ok(keyspace.may_contain(&keys[0])))? else {
                    return Ok(());
                };
                if found { Ok(()) } else { self.agree_contains(space, &keys[0], false) }
            }
            _ => {
                let Some(found) = self.done(call, |_| keyspace.multi_get(&keys))? else { return Ok(()) };
                keys.iter().zip(&found).try_for_each(|(key, found)| self.agree(space, key, found.as_deref()))
            }
        }
    }

    fn agree_contains(&self, space: Space, key: &Key, found: bool) -> Result<(), String> {
        let possible = self.history.possible(space, key);
        match possible.iter().any(|state| state.is_some() == found) {
            true => Ok(()),
            false => Err(format!("{key:?} of keyspace {space} has presence {found} instead of {possible:?}")),
        }
    }

    pub(super) fn scan(&mut self, call: Call) -> Result<(), String> {
        let (space, keyspace) = self.any_space();
        let first = self.dice.below(16) as u8;
        let (from, to) = ([first], [first + 1]);
        let mut expected = self.history.all(space);
        expected.retain(|key, _| key[0] == first);
        let iter = match call {
            Call::Prefix => self.done(call, |_| collect(keyspace.prefix(from)))?,
            _ => self.done(call, |_| collect(keyspace.range(&from[..]..&to[..]).rev()))?,
        };
        let Some(mut found) = iter else { return Ok(()) };
        if call == Call::RangeBackward {
            found.reverse();
        }
        self.agree_all(&mut expected, &found)?;
        missing(&expected)
    }

    fn agree_all(&self, expected: &mut Expected, found: &[(Key, Vec<u8>)]) -> Result<(), String> {
        if let Some(pair) = found.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(format!("{:?} comes before {:?}", pair[0].0, pair[1].0));
        }
        for (key, bytes) in found {
            let found = stamp(key, bytes)?;
            if owner(key) == Some(self.history.thread) {
                let possible = expected.remove(key).unwrap_or_default();
                if !possible.contains(&Some(found)) {
                    return Err(format!("{key:?} is {found:?} instead of {possible:?}"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn take_snapshot(&mut self) -> Result<(), String> {
        let space = self.dice.below(SHARED as u64) as usize;
        let expected = self.history.all(space);
        if let Some(snapshot) = self.done(Call::Snapshot, |worker| Ok(worker.db.snapshot()))? {
            self.snapshots.push_back((snapshot, space, expected));
        }
        if self.snapshots.len() > 3 { self.read_snapshot() } else { Ok(()) }
    }

    pub(super) fn read_snapshot(&mut self) -> Result<(), String> {
        let Some((snapshot, space, mut expected)) = self.snapshots.pop_front() else { return Ok(()) };
        let keyspace = snapshot.keyspace(&self.spaces[space]);
        let Some(found) = self.done(Call::SnapshotRead, |_| collect(keyspace.iter()))? else { return Ok(()) };
        self.agree_all(&mut expected, &found).map_err(|wrong| format!("in a snapshot {wrong}"))?;
        missing(&expected).map_err(|wrong| format!("in a snapshot {wrong}"))
    }

    pub(super) fn iterate(&mut self) -> Result<(), String> {
        let space = self.dice.below(SHARED as u64) as usize;
        let expected = self.history.all(space);
        let iter = self.done(Call::Iterate, |worker| Ok(worker.spaces[space].iter()))?;
        self.walks.extend(iter.map(|iter| Walk { iter, expected }));
        let most = self.dice.below(1000) as usize;
        match self.walks.pop_front() {
            Some(walk) => self.walk_on(walk, if self.walks.len() > 2 { usize::MAX } else { most }),
            None => Ok(()),
        }
    }

    pub(super) fn walk_on(&mut self, mut walk: Walk, most: usize) -> Result<(), String> {
        let found = self.done(Call::Iterate, |_| collect(walk.iter.by_ref().take(most)))?;
        let Some(found) = found else { return Ok(()) };
        self.agree_all(&mut walk.expected, &found).map_err(|wrong| format!("in an iterator {wrong}"))?;
        if found.len() < most {
            return missing(&walk.expected).map_err(|wrong| format!("in an iterator {wrong}"));
        }
        self.walks.push_back(walk);
        Ok(())
    }
}

pub(super) fn collect(
    iter: impl Iterator<Item = sievedb::Result<(sievedb::Value, sievedb::Value)>>,
) -> sievedb::Result<Vec<(Key, Vec<u8>)>> {
    iter.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

fn missing(expected: &Expected) -> Result<(), String> {
    match expected.iter().find(|(_, possible)| !possible.contains(&None)) {
        Some((key, possible)) => Err(format!("{key:?} is missing: {possible:?}")),
        None => Ok(()),
    }
}
