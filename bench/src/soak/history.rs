//! The writes of one thread, and the states that a store may show. A thread has its own keys and makes one write at a
//! time. An acknowledged batch is *sure*. A failed batch is *in doubt*: present as a whole or absent. At a stop, the
//! store must show all sure batches since the last stop and may show batches in doubt. After a power loss, a prefix is
//! enough.

use std::collections::{BTreeMap, BTreeSet};

pub(super) type Space = usize;

pub(super) const SHARED: usize = 3;

pub(super) const OWN: Space = SHARED;

pub(super) type Key = Vec<u8>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) batch: u64,
    pub(super) len: usize,
}

pub(super) type State = Option<Stamp>;

pub(super) type Found = BTreeMap<(Space, Key), Stamp>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Absent,
    Present,
    InDoubt,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    base: State,
    /// Later writes: the position of the batch, and the state.
    writes: Vec<(usize, State)>,
}

#[derive(Debug, Clone, Copy)]
struct Written {
    /// The time on a clock that counts events.
    began: u64,
    ended: u64,
    is_sure: bool,
}

#[derive(Debug)]
pub(super) struct History {
    pub(super) thread: usize,
    pub(super) own: Own,
    entries: BTreeMap<(Space, Key), Entry>,
    first: u64,
    batches: Vec<Written>,
    /// The beginning of the last successful call that made all earlier writes durable.
    pub(super) synced: u64,
    durable: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) least: usize,
    pub(super) most: usize,
}

impl History {
    pub(super) fn new(thread: usize) -> Self {
        Self {
            thread,
            own: Own::Absent,
            entries: BTreeMap::new(),
            first: 1,
            batches: Vec::new(),
            synced: 0,
            durable: 0,
        }
    }

    pub(super) fn next(&self) -> u64 {
        self.first + self.batches.len() as u64
    }

    pub(super) fn written(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn set_durable(&mut self, began: u64) {
        (self.synced, self.durable) = (began, self.batches.len());
    }

    pub(super) fn durable(&self, time: u64) -> usize {
        self.returned_before(time).max(self.durable)
    }

    pub(super) fn add(&mut self, writes: &[(Space, Key, State)], times: (u64, u64), is_sure: bool) {
        let at = self.batches.len();
        self.batches.push(Written { began: times.0, ended: times.1, is_sure });
        for (space, key, state) in writes {
            let entry = self.entries.entry((*space, key.clone())).or_default();
            entry.writes.retain(|(other, _)| *other != at);
            entry.writes.push((at, *state));
        }
    }

    pub(super) fn forget_own(&mut self) {
        self.entries.retain(|(space, _), _| *space != OWN);
    }

    pub(super) fn possible(&self, space: Space, key: &Key) -> Vec<State> {
        self.entries.get(&(space, key.clone())).map_or(vec![None], |entry| self.states(entry))
    }

    fn states(&self, entry: &Entry) -> Vec<State> {
        self.candidates(entry, self.batches.len()).into_iter().map(|(_, state)| state).collect()
    }

    /// Returns the newest sure write among the first `prefix` batches, and later writes in doubt, newest first. `None`
    /// means the state at the last stop.
    fn candidates(&self, entry: &Entry, prefix: usize) -> Vec<(Option<usize>, State)> {
        let mut candidates = Vec::new();
        for (at, state) in entry.writes.iter().rev().filter(|(at, _)| *at < prefix) {
            candidates.push((Some(*at), *state));
            if self.batches[*at].is_sure {
                return candidates;
            }
        }
        candidates.push((None, entry.base));
        candidates
    }

    pub(super) fn all(&self, space: Space) -> BTreeMap<Key, Vec<State>> {
        let range = (space, Key::new())..(space + 1, Key::new());
        self.entries.range(range).map(|((_, key), entry)| (key.clone(), self.states(entry))).collect()
    }

    pub(super) fn returned_before(&self, time: u64) -> usize {
        self.batches.iter().rposition(|batch| batch.is_sure && batch.ended < time).map_or(0, |at| at + 1)
    }

    pub(super) fn last_began(&self, prefix: usize) -> Option<u64> {
        self.batches[..prefix].iter().rev().find(|batch| batch.is_sure).map(|batch| batch.began)
    }

    /// Returns the prefixes of at least `durable` batches that explain the entries. The own keyspace may be missing if
    /// it is in doubt.
    pub(super) fn explain(&self, found: &Found, durable: usize, has_own: bool) -> Result<Prefix, String> {
        if self.own == Own::Present && !has_own || self.own == Own::Absent && has_own {
            return Err(format!("the keyspace of thread {} is {:?}, but {has_own}", self.thread, self.own));
        }
        if let Some(key) = found.keys().find(|key| !self.entries.contains_key(key)) {
            return Err(format!("thread {}: {key:?} was never written", self.thread));
        }
        let mut why = String::new();
        let mut fits =
            (durable..=self.batches.len()).rev().filter(|&prefix| match self.fits(found, prefix, has_own) {
                Ok(()) => true,
                Err(wrong) if why.is_empty() => {
                    why = wrong;
                    false
                }
                Err(_) => false,
            });
        let most = fits.next();
        let least = fits.last().or(most);
        match (least, most) {
            (Some(least), Some(most)) => Ok(Prefix { least, most }),
            _ => Err(format!(
                "thread {}: no prefix of {} to {} batches since batch {} explains what is there: {why}",
                self.thread,
                durable,
                self.batches.len(),
                self.first
            )),
        }
    }

    fn fits(&self, found: &Found, prefix: usize, has_own: bool) -> Result<(), String> {
        let (mut present, mut absent) = (BTreeSet::new(), BTreeSet::new());
        for (key, entry) in self.entries.iter().filter(|((space, _), _)| has_own || *space != OWN) {
            let found = found.get(key).copied();
            let candidates = self.candidates(entry, prefix);
            let mut matching = candidates.iter().filter(|(_, state)| *state == found);
            let Some((newest, _)) = matching.next() else {
                return Err(format!("{key:?} is {found:?}, not one of {candidates:?}"));
            };
            absent.extend(candidates.iter().map(|(at, _)| *at).take_while(|at| at != newest).flatten());
            if matching.next().is_none() {
                present.extend(newest.filter(|at| !self.batches[*at].is_sure));
            }
        }
        match present.intersection(&absent).next() {
            Some(at) => Err(format!("batch {} is there only in part", self.first + *at as u64)),
            None => Ok(()),
        }
    }

    pub(super) fn settle(&mut self, found: &Found, has_own: bool) {
        self.own = if has_own { Own::Present } else { Own::Absent };
        self.first = self.next();
        (self.synced, self.durable) = (0, 0);
        self.batches.clear();
        self.entries.clear();
        for (key, stamp) in found {
            self.entries.insert(key.clone(), Entry { base: Some(*stamp), writes: Vec::new() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        name.into()
    }

    fn put(batch: u64) -> State {
        Some(Stamp { batch, len: 16 })
    }

    fn found(entries: &[(&str, u64)]) -> Found {
        entries.iter().map(|(name, batch)| ((0, key(name)), put(*batch).unwrap())).collect()
    }

    fn history() -> History {
        let mut history = History::new(0);
        history.add(&[(0, key("a"), put(1))], (1, 2), true);
        history.add(&[(0, key("a"), put(2)), (0, key("b"), put(2))], (3, 4), false);
        history.add(&[(0, key("c"), put(3))], (5, 6), true);
        history
    }

    #[test]
    fn a_batch_in_doubt_is_there_or_not_and_never_in_part() {
        let history = history();
        let all = Prefix { least: 3, most: 3 };
        assert_eq!(history.explain(&found(&[("a", 1), ("c", 3)]), 3, false), Ok(all));
        assert_eq!(history.explain(&found(&[("a", 2), ("b", 2), ("c", 3)]), 3, false), Ok(all));
        assert!(history.explain(&found(&[("a", 2), ("c", 3)]), 3, false).unwrap_err().contains("in part"));
        assert!(
            history
                .explain(&found(&[("a", 1), ("b", 2), ("c", 3)]), 3, false)
                .unwrap_err()
                .contains("in part")
        );
        assert_eq!(history.possible(0, &key("a")), [put(2), put(1)]);
        assert_eq!(history.possible(0, &key("c")), [put(3)]);
    }

    #[test]
    fn after_a_power_loss_a_prefix_is_there_and_the_durable_part_of_it() {
        let history = history();
        assert_eq!(history.explain(&found(&[("a", 1)]), 0, false), Ok(Prefix { least: 1, most: 2 }));
        assert!(history.explain(&found(&[("a", 1)]), 3, false).is_err(), "batch 3 was durable");
        assert!(history.explain(&found(&[("c", 3)]), 0, false).is_err(), "batch 1 came before");
        assert!(history.explain(&found(&[]), 1, false).is_err());
        assert!(history.explain(&found(&[("z", 1)]), 0, false).is_err(), "nobody wrote it");
        assert_eq!(history.returned_before(5), 1);
        assert_eq!(history.last_began(2), Some(1));
    }

    #[test]
    fn deletes_and_the_last_stop_count_like_any_other_state() {
        let mut history = history();
        history.settle(&found(&[("a", 1), ("c", 3)]), false);
        assert_eq!(history.next(), 4);
        history.add(&[(0, key("a"), None), (0, key("c"), put(4)), (0, key("a"), put(4))], (7, 8), true);
        history.add(&[(0, key("c"), None)], (9, 10), false);
        assert!(history.explain(&found(&[("a", 4)]), 2, false).is_ok());
        assert!(history.explain(&found(&[("a", 4), ("c", 4)]), 2, false).is_ok());
        assert!(history.explain(&found(&[("a", 4), ("c", 3)]), 2, false).is_err(), "an older value");
        assert!(history.explain(&found(&[("a", 1), ("c", 3)]), 0, false).is_ok(), "nothing has survived");
        assert_eq!(history.all(0).len(), 2);
    }
}
