//! The read set of a transaction: disjoint key intervals for each keyspace.
//!
//! A lookup adds its key, a scan the range that it passed. Beyond the memory limit, neighbours are merged until the set
//! takes half of the limit. This may report false conflicts but misses none.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::intervals::{Interval, Intervals};
use crate::batch::KeyspaceId;
use crate::db::state::keyspace::tree::Tree;
use crate::number_map::NumberMap;
use crate::snapshot_read::successor;
use crate::sync::lock;

pub(in crate::db) const READ_BYTES_MAX: usize = 4 << 20;

pub(in crate::db) struct ReadSet {
    parts: NumberMap<KeyspaceId, Part>,
    bytes: usize,
    bytes_max: usize,
}

pub(in crate::db) struct Part {
    pub(in crate::db) tree: Arc<Tree>,
    intervals: Intervals,
}

#[derive(Clone)]
pub(in crate::db) struct Tracker {
    pub(in crate::db) reads: Arc<Mutex<ReadSet>>,
    pub(in crate::db) tree: Arc<Tree>,
}

pub(in crate::db) fn only_key((start, end): Interval<'_>) -> Option<&Bytes> {
    let is_one =
        end.is_some_and(|end| end.len() == start.len() + 1 && end.ends_with(&[0]) && end.starts_with(start));
    is_one.then_some(start)
}

impl Tracker {
    pub(in crate::db) fn note_key(&self, key: &[u8]) {
        let end = Bytes::from(successor(key));
        self.note(end.slice(..key.len()), Some(end));
    }

    pub(in crate::db) fn note(&self, start: Bytes, end: Option<Bytes>) {
        lock(&self.reads).add(&self.tree, start, end);
    }
}

impl std::fmt::Debug for Tracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "reads of {:?}", self.tree)
    }
}

impl ReadSet {
    pub(in crate::db) fn new(bytes_max: usize) -> Self {
        Self { parts: NumberMap::new(), bytes: 0, bytes_max }
    }

    #[cfg(test)]
    pub(in crate::db) fn limit(&mut self, bytes: usize) {
        self.bytes_max = bytes;
    }

    pub(in crate::db) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(in crate::db) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.values()
    }

    pub(in crate::db) fn part(&self, keyspace: KeyspaceId) -> Option<&Part> {
        self.parts.get(&keyspace)
    }

    fn add(&mut self, tree: &Arc<Tree>, start: Bytes, end: Option<Bytes>) {
        if end.as_ref().is_some_and(|end| *end <= start) {
            return;
        }
        let new = || Part { tree: Arc::clone(tree), intervals: Intervals::default() };
        let part = self.parts.get_or_insert_with(tree.id, new);
        let freed = part.intervals.add(start, end, &mut self.bytes);
        self.bytes -= freed;
        if self.bytes > self.bytes_max {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        while self.bytes > self.bytes_max / 2 && self.parts().any(|part| part.intervals.len() > 1) {
            self.parts.iter_mut().for_each(|(_, part)| part.intervals.join_neighbours());
            self.bytes = self.parts().map(|part| part.intervals.bytes()).sum();
        }
    }
}

impl Part {
    pub(in crate::db) fn intervals(&self) -> impl Iterator<Item = Interval<'_>> {
        self.intervals.iter()
    }

    pub(in crate::db) fn contains(&self, key: &[u8]) -> bool {
        self.intervals.contains(key)
    }

    pub(in crate::db) fn first_in<'a>(&'a self, start: &'a [u8], end: &[u8]) -> Option<&'a [u8]> {
        self.intervals.first_in(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemFs;
    use crate::merge::vec_iter::Random;
    use crate::options::Options;

    fn trees() -> [Arc<Tree>; 2] {
        let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap();
        [db.default_keyspace().tree, db.open_keyspace("other").unwrap().tree]
    }

    fn check(reads: &ReadSet) {
        assert_eq!(reads.bytes, reads.parts().map(|part| part.intervals.bytes()).sum::<usize>());
        for part in reads.parts() {
            let intervals: Vec<_> = part.intervals().collect();
            assert!(intervals.iter().all(|(start, end)| end.is_none_or(|end| end > *start)));
            let meet = |pair: &[Interval<'_>]| pair[0].1.is_none_or(|end| end >= pair[1].0);
            assert!(!intervals.windows(2).any(meet), "{intervals:?}");
        }
    }

    impl ReadSet {
        fn contains(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
            self.part(keyspace).is_some_and(|part| part.contains(key))
        }
    }

    #[test]
    fn a_set_holds_the_keys_that_were_read_and_no_others() {
        let (trees, random) = (trees(), &mut Random(3));
        for _ in 0..300 {
            let reads = Arc::new(Mutex::new(ReadSet::new(READ_BYTES_MAX)));
            let mut noted = Vec::new();
            for _ in 0..random.below(30) {
                let tree = &trees[random.below(2) as usize];
                let tracker = Tracker { reads: Arc::clone(&reads), tree: Arc::clone(tree) };
                let start = Bytes::from(random.key());
                let end = match random.below(4) {
                    0 => (random.below(8) > 0).then(|| Bytes::from(random.key())),
                    _ => Some(Bytes::from(successor(&start))),
                };
                if random.below(2) == 0 && end == Some(Bytes::from(successor(&start))) {
                    tracker.note_key(&start);
                } else {
                    tracker.note(start.clone(), end.clone());
                }
                noted.push((tree.id, start, end));
                let reads = lock(&reads);
                check(&reads);
                for tree in &trees {
                    let key = random.key();
                    let is_read = |(id, start, end): &(_, Bytes, Option<Bytes>)| {
                        *id == tree.id && *start <= key && end.as_ref().is_none_or(|end| key < *end)
                    };
                    assert_eq!(reads.contains(tree.id, &key), noted.iter().any(is_read), "{key:?} {noted:?}");
                }
            }
        }
    }

    #[test]
    fn past_its_limit_a_set_becomes_coarser_and_forgets_nothing() {
        let trees = trees();
        let reads = Arc::new(Mutex::new(ReadSet::new(10_000)));
        let key = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
        for n in 0..5000 {
            let tree = Arc::clone(&trees[n as usize % 2]);
            Tracker { reads: Arc::clone(&reads), tree }.note_key(&key(n));
            let reads = lock(&reads);
            assert!(reads.bytes <= 10_000);
            if n % 100 == 0 {
                check(&reads);
                assert!((0..=n).all(|n| reads.contains(trees[n as usize % 2].id, &key(n))), "{n}");
            }
        }
        let joined: usize = lock(&reads).parts().map(|part| part.intervals.len()).sum();
        assert!((10..100).contains(&joined), "{joined}");
        // A set that cannot shrink keeps its size.
        let reads = Arc::new(Mutex::new(ReadSet::new(10)));
        Tracker { reads: Arc::clone(&reads), tree: Arc::clone(&trees[0]) }.note_key(b"k");
        assert!(lock(&reads).contains(0, b"k") && !lock(&reads).contains(0, b"l"));
    }

    #[test]
    fn an_interval_of_one_key_is_told_from_others() {
        let bytes = |key: &'static [u8]| Bytes::from_static(key);
        let only = |start, end: Option<&'static [u8]>| {
            only_key((&bytes(start), end.map(Bytes::from_static).as_ref())).is_some()
        };
        assert!(only(b"", Some(b"\0")) && only(b"a", Some(b"a\0")) && only(b"\0", Some(b"\0\0")));
        assert!(
            !only(b"a", Some(b"b"))
                && !only(b"a", None)
                && !only(b"a", Some(b"a\x01"))
                && !only(b"", Some(b"a"))
        );
    }
}
