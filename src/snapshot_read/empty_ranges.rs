//! The empty ranges of a keyspace, such as the front of a drained queue. Scans found only hidden entries there, so
//! later scans jump over these ranges. A put into a range splits it.
//!
//! # Why no visible key is skipped
//!
//! No key in a range is visible at any sequence number from `since` to the last published one. Readers with lower
//! numbers do not use the range.
//!
//! The commit leader reports puts after inserting and before publishing them ([`EmptyRanges::note_puts`]), so a reader
//! that sees a put finds no range that contains it.
//!
//! A scan reads the number of the last reported put before it loads its view and its sequence number
//! ([`EmptyRanges::known`]). If the put's number is higher than the scan's, the scan records nothing. A [`Claim`] can
//! only begin if no other put was reported since. Later puts are compared with the claim, which ends before the nearest
//! put.
//!
//! If there are no ranges and no claims, the leader takes no lock. It stores the number of the put, then checks for
//! ranges and claims. A scan stores its claim, then checks for a put. Both orders are sequentially consistent, so at
//! least one check succeeds.
//!
//! Ranges are leased from the budget, up to [`BYTES_MAX`]. Without room, they are dropped in key order, round-robin.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use super::successor;
use crate::key::SeqNo;
use crate::memory::{Lease, LeaseKind, Memory};
use crate::sync::lock;

const BYTES_MAX: u64 = 1 << 20;

const LEASE_BYTES: u64 = 4 << 10;

/// The cost in addition to the two keys: headers, unused room of the list, allocation units.
const OVERHEAD_BYTES: usize = 160;

pub(crate) struct EmptyRanges {
    memory: Arc<Memory>,
    last_put: AtomicU64,
    is_watched: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Disjoint, in key order.
    ranges: Vec<EmptyRange>,
    bytes: u64,
    lease: Option<Lease>,
    forgotten: Vec<u8>,
    claims: Vec<Claimed>,
    claims_begun: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct EmptyRange {
    start: Vec<u8>,
    /// The exclusive end; `None` if unbounded.
    end: Option<Vec<u8>>,
    since: SeqNo,
}

struct Claimed {
    id: u64,
    first: Vec<u8>,
    upward: bool,
    /// The nearest put in this direction since the claim began.
    put: Option<Vec<u8>>,
}

#[derive(Clone)]
pub(crate) struct Known {
    ranges: Arc<EmptyRanges>,
    last_put: SeqNo,
}

pub(super) struct Claim {
    ranges: Arc<EmptyRanges>,
    id: u64,
    seqno: SeqNo,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Edge {
    Key(Vec<u8>),
    Open,
}

impl EmptyRanges {
    pub(crate) fn new(memory: &Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::clone(memory),
            last_put: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// Called before a scan loads its view and its sequence number.
    pub(crate) fn known(self: &Arc<Self>) -> Known {
        Known { ranges: Arc::clone(self), last_put: self.last_put.load(Ordering::SeqCst) }
    }

    /// Called by the commit leader, after inserting and before publishing. `keys` is called only if there are ranges or
    /// claims.
    pub(crate) fn note_puts<'k, K: Iterator<Item = &'k [u8]>>(&self, seqno: SeqNo, keys: impl FnOnce() -> K) {
        self.last_put.store(seqno, Ordering::SeqCst);
        if self.is_watched.load(Ordering::SeqCst) {
            self.change(&mut lock(&self.state), |state| keys().for_each(|key| state.note_put(key)));
        }
    }

    fn change<T>(&self, state: &mut State, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(state);
        state.fit(&self.memory);
        self.is_watched.store(!state.ranges.is_empty() || !state.claims.is_empty(), Ordering::SeqCst);
        result
    }
}

impl Known {
    /// Returns the end of the range with the key, if it is empty at this number.
    pub(super) fn end_of(&self, key: &[u8], seqno: SeqNo, upward: bool) -> Option<Edge> {
        if !self.ranges.is_watched.load(Ordering::Relaxed) {
            return None;
        }
        self.try_locked(|state| {
            let range = &state.ranges[state.containing(key)?];
            if range.since > seqno {
                return None;
            }
            Some(match &range.end {
                _ if !upward => Edge::Key(range.start.clone()),
                Some(end) => Edge::Key(end.clone()),
                None => Edge::Open,
            })
        })
    }

    pub(super) fn claim(&self, first: &[u8], seqno: SeqNo, upward: bool) -> Option<Claim> {
        if self.last_put > seqno {
            return None;
        }
        let ranges = &self.ranges;
        let claim = self.try_locked(|state| {
            let id = state.claims_begun;
            ranges.change(state, |state| {
                state.claims_begun += 1;
                state.claims.push(Claimed { id, first: first.to_vec(), upward, put: None });
            });
            Some(Claim { ranges: Arc::clone(ranges), id, seqno })
        });
        claim.filter(|_| ranges.last_put.load(Ordering::SeqCst) == self.last_put)
    }

    /// Readers never wait for the lock: in a forked process, the wait might never end.
    fn try_locked<T>(&self, then: impl FnOnce(&mut State) -> Option<T>) -> Option<T> {
        let mut state = match self.ranges.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        then(&mut state)
    }
}

impl Claim {
    pub(super) fn end(self, end: &Edge) {
        self.ranges.change(&mut lock(&self.ranges.state), |state| {
            if let Some(range) = state.take_claim(self.id).and_then(|claim| claim.empty(end, self.seqno)) {
                state.add(range);
            }
        });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ranges.change(&mut lock(&self.ranges.state), |state| state.take_claim(self.id));
    }
}

impl Claimed {
    fn note_put(&mut self, key: &[u8]) {
        let is_nearer = |than: &[u8]| if self.upward { key < than } else { key > than };
        if !is_nearer(&self.first) && self.put.as_deref().is_none_or(is_nearer) {
            self.put = Some(key.to_vec());
        }
    }

    fn empty(self, end: &Edge, since: SeqNo) -> Option<EmptyRange> {
        let end = match end {
            Edge::Key(key) => Some(key),
            Edge::Open => None,
        };
        let (start, end) = if self.upward {
            (self.first, self.put.iter().chain(end).min().cloned())
        } else {
            let after_put = self.put.map(|put| successor(&put));
            (after_put.iter().chain(end).max().cloned().unwrap_or_default(), Some(successor(&self.first)))
        };
        let range = EmptyRange { start, end, since };
        range.is_after(&range.start).then_some(range)
    }
}

impl EmptyRange {
    fn is_after(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }

    fn bytes(&self) -> u64 {
        (self.start.len() + self.end.as_ref().map_or(0, Vec::len) + OVERHEAD_BYTES) as u64
    }
}

impl State {
    fn containing(&self, key: &[u8]) -> Option<usize> {
        let at = self.ranges.partition_point(|range| *range.start <= *key).checked_sub(1)?;
        self.ranges[at].is_after(key).then_some(at)
    }

    fn note_put(&mut self, key: &[u8]) {
        self.claims.iter_mut().for_each(|claim| claim.note_put(key));
        let Some(at) = self.containing(key) else { return };
        let range = self.remove(at);
        let after = successor(key);
        if range.is_after(&after) {
            self.insert(at, EmptyRange { start: after, end: range.end, ..range });
        }
        if *range.start < *key {
            self.insert(at, EmptyRange { end: Some(key.to_vec()), ..range });
        }
    }

    fn take_claim(&mut self, id: u64) -> Option<Claimed> {
        let at = self.claims.iter().position(|claim| claim.id == id)?;
        Some(self.claims.swap_remove(at))
    }

    /// Merges touching ranges. A longer union is valid from the larger of their numbers on.
    fn add(&mut self, added: EmptyRange) {
        let mut range = added.clone();
        let end = added.end.as_ref();
        let mut at = self.ranges.partition_point(|other| end.is_none_or(|end| other.start <= *end));
        while at > 0 && self.ranges[at - 1].end.as_ref().is_none_or(|end| *end >= added.start) {
            at -= 1;
            let before = self.remove(at);
            let is_longer = before.end.is_none() || range.end.is_some() && before.end > range.end;
            if before.start < range.start || is_longer {
                range.since = range.since.max(before.since);
            }
            if is_longer {
                range.end = before.end;
            }
            range.start = range.start.min(before.start);
        }
        self.insert(at, range);
    }

    fn insert(&mut self, at: usize, range: EmptyRange) {
        self.bytes += range.bytes();
        self.ranges.insert(at, range);
    }

    fn remove(&mut self, at: usize) -> EmptyRange {
        let range = self.ranges.remove(at);
        self.bytes -= range.bytes();
        range
    }

    fn fit(&mut self, memory: &Arc<Memory>) {
        while self.bytes > self.leased() {
            let wanted = self.bytes.next_multiple_of(LEASE_BYTES);
            self.lease = if self.ranges.len() == 1 || wanted == LEASE_BYTES {
                Some(memory.lease(LeaseKind::Tables, wanted as usize))
            } else {
                let is_allowed = wanted <= BYTES_MAX;
                let more = is_allowed.then(|| memory.try_lease_if_plenty(LeaseKind::Tables, wanted));
                more.flatten().or_else(|| {
                    self.forget_one();
                    self.lease.take()
                })
            };
        }
        if self.bytes == 0 {
            self.lease = None;
        }
    }

    fn leased(&self) -> u64 {
        self.lease.as_ref().map_or(0, Lease::bytes)
    }

    fn forget_one(&mut self) {
        let next = self.ranges.partition_point(|range| range.start <= self.forgotten);
        if !self.ranges.is_empty() {
            self.forgotten = self.remove(next % self.ranges.len()).start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::vec_iter::Random;

    const KEYS: u8 = 48;

    fn ranges() -> (Arc<Memory>, Arc<EmptyRanges>) {
        let memory = Memory::new(16 << 20, 4 << 20);
        let ranges = EmptyRanges::new(&memory);
        (memory, ranges)
    }

    fn put(ranges: &EmptyRanges, seqno: SeqNo, key: &[u8]) {
        ranges.note_puts(seqno, || std::iter::once(key));
    }

    fn at(key: &[u8]) -> Edge {
        Edge::Key(key.to_vec())
    }

    fn find_empty(ranges: &Arc<EmptyRanges>, seqno: SeqNo, first: &[u8], end: &Edge) {
        ranges.known().claim(first, seqno, true).unwrap().end(end);
    }

    fn bytes(memory: &Memory) -> u64 {
        memory.stats().tables
    }

    #[test]
    fn a_range_is_known_from_its_number_on_until_a_put_divides_it() {
        let (memory, ranges) = ranges();
        find_empty(&ranges, 5, b"b", &at(b"m"));
        let up = |key: &[u8], seqno| ranges.known().end_of(key, seqno, true);
        let down = |key: &[u8], seqno| ranges.known().end_of(key, seqno, false);
        assert_eq!((up(b"b", 5), down(b"l", 9)), (Some(at(b"m")), Some(at(b"b"))));
        assert_eq!([up(b"a", 9), up(b"m", 9), up(b"c", 4), down(b"c", 4)], [None, None, None, None]);
        put(&ranges, 10, b"f");
        assert_eq!((up(b"b", 10), up(b"f", 10), up(b"f\0", 10)), (Some(at(b"f")), None, Some(at(b"m"))));
        assert_eq!((down(b"e", 10), down(b"k", 10)), (Some(at(b"b")), Some(at(b"f\0"))));
        find_empty(&ranges, 12, b"f", &at(b"f\0"));
        assert_eq!((up(b"b", 12), up(b"b", 11)), (Some(at(b"m")), None));
        find_empty(&ranges, 13, b"c", &Edge::Open);
        assert_eq!((up(b"b", 13), down(b"zzz", 13), up(b"b", 12)), (Some(Edge::Open), Some(at(b"b")), None));
        assert!(bytes(&memory) > 0);
        put(&ranges, 14, b"");
        assert_eq!(up(b"b", 14), Some(Edge::Open));
    }

    #[test]
    fn a_claim_ends_before_the_nearest_key_that_is_put_meanwhile() {
        for upward in [true, false] {
            let (_, ranges) = ranges();
            let claim = ranges.known().claim(b"m", 5, upward).unwrap();
            for (seqno, key) in [(6, b"c"), (7, b"p"), (8, b"h"), (9, b"r")] {
                put(&ranges, seqno, key);
            }
            claim.end(&if upward { at(b"t") } else { at(b"a") });
            let found = |key: &[u8]| ranges.known().end_of(key, 9, upward);
            let (inside, outside, end) =
                if upward { (b"o", b"q", b"p".to_vec()) } else { (b"i", b"d", successor(b"h")) };
            assert_eq!((found(inside), found(outside)), (Some(Edge::Key(end)), None));
        }
    }

    #[test]
    fn a_scan_that_may_have_missed_a_put_claims_nothing() {
        let (_, ranges) = ranges();
        let known = ranges.known();
        put(&ranges, 6, b"f");
        assert!(known.claim(b"b", 5, true).is_none() && known.claim(b"b", 6, true).is_none());
        assert!(ranges.known().claim(b"b", 5, true).is_none());
        assert!(!ranges.is_watched.load(Ordering::SeqCst));
        assert!(ranges.known().claim(b"b", 6, true).is_some());
    }

    #[test]
    fn a_claim_that_is_given_up_records_nothing() {
        let (memory, ranges) = ranges();
        drop(ranges.known().claim(b"b", 5, true));
        assert_eq!((ranges.known().end_of(b"b", 5, true), bytes(&memory)), (None, 0));
        assert!(!ranges.is_watched.load(Ordering::SeqCst));
    }

    struct Model(Vec<[bool; KEYS as usize]>);

    impl Model {
        fn now(&self) -> SeqNo {
            self.0.len() as SeqNo - 1
        }

        fn write(&mut self, ranges: &EmptyRanges, key: u8, is_put: bool) {
            let mut next = self.0[self.0.len() - 1];
            next[usize::from(key)] = is_put;
            if is_put {
                put(ranges, self.now() + 1, &[key]);
            }
            self.0.push(next);
        }

        /// Checks the keys that a reader at this number would skip from this key on.
        fn check(&self, ranges: &Arc<EmptyRanges>, key: u8, seqno: SeqNo) -> bool {
            let visible = &self.0[seqno as usize];
            let up = ranges.known().end_of(&[key], seqno, true);
            let down = ranges.known().end_of(&[key], seqno, false);
            let skipped_up = |other: u8| match &up {
                Some(Edge::Key(end)) => other >= key && [other][..] < end[..],
                Some(Edge::Open) => other >= key,
                None => false,
            };
            let skipped_down = |other: u8| match &down {
                Some(Edge::Key(start)) => other <= key && [other][..] >= start[..],
                _ => false,
            };
            let wrong = (0..KEYS)
                .find(|&other| visible[usize::from(other)] && (skipped_up(other) || skipped_down(other)));
            assert_eq!(wrong, None, "skipped from {key} at {seqno}: {up:?}, {down:?}");
            up.is_some()
        }
    }

    #[test]
    fn no_history_of_scans_and_writes_skips_a_visible_key() {
        let (mut random, mut skips) = (Random(17), 0);
        for _ in 0..80 {
            let (_, ranges) = ranges();
            let mut model = Model(vec![[false; KEYS as usize]]);
            for _ in 0..120 {
                let key = random.below(KEYS.into()) as u8;
                match random.below(4) {
                    0 => model.write(&ranges, key, true),
                    1 => (0..4).for_each(|n| model.write(&ranges, (key + n) % KEYS, false)),
                    2 => {
                        // A scan, with writes at each point where they matter.
                        let mut writes = |model: &mut Model| {
                            (0..random.below(3)).for_each(|_| {
                                model.write(&ranges, random.below(KEYS.into()) as u8, random.below(2) == 0);
                            });
                        };
                        let known = ranges.known();
                        writes(&mut model);
                        let view = model.0.len();
                        if view.is_multiple_of(3) {
                            writes(&mut model);
                        }
                        let (seqno, upward) = (model.now(), view.is_multiple_of(2));
                        let visible = model.0[view - 1];
                        let is_visible = |key: &u8| visible[usize::from(*key)];
                        let found = if upward {
                            (key..KEYS).find(is_visible)
                        } else {
                            (0..=key).rev().find(is_visible)
                        };
                        if found == Some(key) {
                            continue;
                        }
                        let claim = known.claim(&[key], seqno, upward);
                        writes(&mut model);
                        let end = match found {
                            Some(found) if upward => at(&[found]),
                            Some(found) => at(&successor(&[found])),
                            None if upward => Edge::Open,
                            None => at(&[]),
                        };
                        claim.into_iter().for_each(|claim| claim.end(&end));
                    }
                    _ => {
                        let seqno = model.now() - random.below(4).min(model.now());
                        skips += u64::from(model.check(&ranges, key, seqno));
                    }
                }
            }
            let all = (0..KEYS).flat_map(|key| (0..=model.now()).map(move |seqno| (key, seqno)));
            skips += all.filter(|&(key, seqno)| model.check(&ranges, key, seqno)).count() as u64;
        }
        assert!(skips > 3000, "{skips}");
    }

    #[test]
    fn ranges_are_in_the_ledger_and_as_many_as_there_is_room_for() {
        let (memory, ranges) = ranges();
        let key = |n: u32| n.to_be_bytes();
        let count = 20_000;
        for n in 0..count {
            find_empty(&ranges, 1, &key(2 * n), &at(&key(2 * n + 1)));
        }
        let kept = |ranges: &Arc<EmptyRanges>| {
            let known = ranges.known();
            (0..count).filter(|&n| known.end_of(&key(2 * n), 1, true).is_some()).count() as u64
        };
        let each = EmptyRange { start: key(0).to_vec(), end: Some(key(0).to_vec()), since: 1 }.bytes();
        assert!((BYTES_MAX / each - 30..=BYTES_MAX / each).contains(&kept(&ranges)), "{}", kept(&ranges));
        assert!(bytes(&memory) <= BYTES_MAX && bytes(&memory) >= kept(&ranges) * each);
        find_empty(&ranges, 1, &[7; 600_000], &at(&[7; 600_001]));
        assert!(ranges.known().end_of(&[7; 600_000], 1, true).is_some());
        assert!((1_200_000..1_210_000).contains(&bytes(&memory)), "{}", bytes(&memory));
        drop(ranges);
        assert_eq!(bytes(&memory), 0);
        let ranges = EmptyRanges::new(&memory);
        let _taken = memory.try_lease(LeaseKind::Filters, memory.room());
        let before = bytes(&memory);
        (0..1000).for_each(|n| find_empty(&ranges, 1, &key(2 * n), &at(&key(2 * n + 1))));
        assert!(kept(&ranges) > 20 && bytes(&memory) - before == LEASE_BYTES, "{}", kept(&ranges));
    }
}
