//! The visible entries against a model, with every kind of source and with failing sources.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::half::Half;
use super::*;
use crate::error::Result;
use crate::iter::InternalIterator;
use crate::key::{EntryKind, SeqNo, Tag};
use crate::memtable::Memtable;
use crate::merge::MergeIter;
use crate::merge::vec_iter::{self, BlockSource, Random, VecIter};

fn put(key: &[u8], seqno: SeqNo) -> vec_iter::Entry {
    (key.to_vec(), Tag::new(seqno, EntryKind::Put), seqno.to_le_bytes().to_vec())
}

fn delete(key: &[u8], seqno: SeqNo) -> vec_iter::Entry {
    (key.to_vec(), Tag::new(seqno, EntryKind::Delete), Vec::new())
}

struct History {
    entries: Vec<vec_iter::Entry>,
    memtable: Arc<Memtable>,
    vectors: Vec<Vec<vec_iter::Entry>>,
}

impl History {
    fn random(random: &mut Random, entries: u64) -> Self {
        let mut all = Vec::new();
        let mut key = random.key();
        for seqno in 1..=entries {
            if random.below(4) > 0 {
                key = if random.below(8) == 0 { b"a".to_vec() } else { random.key() };
            }
            all.push(if random.below(3) == 0 { delete(&key, seqno) } else { put(&key, seqno) });
        }
        Self::new(all, random.below(4) as usize)
    }

    fn new(entries: Vec<vec_iter::Entry>, vectors: usize) -> Self {
        let mut parts: Vec<Vec<vec_iter::Entry>> =
            entries.chunks((entries.len() / (vectors + 1)).max(1)).map(<[_]>::to_vec).rev().collect();
        let memtable = Memtable::new(1 << 20, 0);
        for (key, tag, value) in if parts.is_empty() { Vec::new() } else { parts.remove(0) } {
            memtable.insert(&key, tag, &value);
        }
        Self { entries, memtable: Arc::new(memtable), vectors: parts }
    }

    fn source(&self) -> Box<dyn InternalIterator> {
        let mut sources: Vec<Box<dyn InternalIterator>> = vec![Box::new(self.memtable.iter())];
        for (at, vector) in self.vectors.iter().enumerate() {
            match (at + self.entries.len()) % 3 {
                0 => sources.push(Box::new(VecIter::new(vector.clone()))),
                _ => sources.push(Box::new(BlockSource::new(vector.clone()))),
            }
        }
        Box::new(MergeIter::new(sources))
    }

    fn range(self: &Arc<Self>, seqno: SeqNo, range: KeyRange) -> Boxed {
        let history = Arc::clone(self);
        Range::new(Box::new(move || Ok(history.source())), seqno, range)
    }

    fn model(&self, seqno: SeqNo, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut state = BTreeMap::new();
        for (key, tag, value) in self.entries.iter().filter(|entry| entry.1.seqno() <= seqno) {
            match tag.kind() {
                EntryKind::Put => state.insert(key.clone(), value.clone()),
                EntryKind::Delete | EntryKind::RangeDelete => state.remove(key),
            };
        }
        let within = |key: &Vec<u8>| std::ops::RangeBounds::<&[u8]>::contains(&(start, end), &key.as_slice());
        state.into_iter().filter(|(key, _)| within(key)).collect()
    }
}

fn pair(item: Result<Entry>) -> (Vec<u8>, Vec<u8>) {
    let (key, value) = item.unwrap();
    (key.to_vec(), value.read().unwrap().to_vec())
}

type Boxed = Range<Box<dyn InternalIterator>>;

fn up(range: &mut Boxed) -> Option<Result<Entry>> {
    range.next().map(|entry| entry.map(Visible::into_entry)).transpose()
}

fn down(range: &mut Boxed) -> Option<Result<Entry>> {
    range.next_back().map(|entry| entry.map(Visible::into_entry)).transpose()
}

fn all(mut range: Boxed, step: fn(&mut Boxed) -> Option<Result<Entry>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    std::iter::from_fn(|| step(&mut range)).map(pair).collect()
}

fn random_bound<'a>(random: &mut Random, key: &'a [u8]) -> Bound<&'a [u8]> {
    match random.below(3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

#[test]
fn mixed_calls_from_both_ends_meet_exactly_once_and_agree_with_the_model() {
    let mut random = Random(11);
    for round in 0..300 {
        let entries = random.below(120);
        let history = Arc::new(History::random(&mut random, entries));
        for _ in 0..10 {
            let seqno = random.below(entries + 2);
            let (low, high) = (random.key(), random.key());
            let bounds = (random_bound(&mut random, &low), random_bound(&mut random, &high));
            let expected = history.model(seqno, bounds.0, bounds.1);
            let mut range = history.range(seqno, KeyRange::new(&bounds));
            let (mut front, mut back) = (Vec::new(), Vec::new());
            let backward_in = [0, 1, 2, 4][random.below(4) as usize];
            loop {
                let from_back = random.below(4) < backward_in;
                let Some(item) = (if from_back { down(&mut range) } else { up(&mut range) }) else { break };
                if from_back { &mut back } else { &mut front }.push(pair(item));
            }
            assert!(up(&mut range).is_none() && down(&mut range).is_none());
            front.extend(back.into_iter().rev());
            assert_eq!(front, expected, "round {round} at {seqno} in {bounds:?}");
        }
    }
}

#[test]
fn keys_with_many_versions_are_seen_at_every_snapshot_in_both_directions() {
    let versions = 5 * STEPS_MAX as u64;
    let mut entries = vec![put(b"", 1), put(b"z", 2), put(b"k\0", 3)];
    entries.extend(
        (4..versions).map(|seqno| if seqno % 7 == 0 { delete(b"k", seqno) } else { put(b"k", seqno) }),
    );
    for vectors in [0, 3] {
        let history = Arc::new(History::new(entries.clone(), vectors));
        for seqno in 0..=versions {
            let expected = history.model(seqno, Bound::Unbounded, Bound::Unbounded);
            let range = || history.range(seqno, KeyRange::all());
            assert_eq!(all(range(), up), expected, "at {seqno}");
            let mut reversed = all(range(), down);
            reversed.reverse();
            assert_eq!(reversed, expected, "at {seqno}");
        }
    }
}

#[test]
fn a_long_history_of_one_key_is_jumped_over() {
    let entries: Vec<_> = (1..=10_000).map(|seqno| put(b"k", seqno)).chain([put(b"l", 1)]).collect();
    for seqno in [1, 5000, 10_000] {
        let source = VecIter::new(entries.clone());
        let movements = source.movements();
        let mut forward = Forward::new(source, seqno.into(), KeyRange::all());
        assert_eq!(forward.next().unwrap().unwrap().value().read().unwrap(), seqno.to_le_bytes()[..]);
        assert_eq!(forward.next().unwrap().unwrap().key, b"l");
        assert!(forward.next().unwrap().is_none());
        assert!(movements.load(Ordering::Relaxed) < 4 * STEPS_MAX);

        let source = VecIter::new(entries.clone());
        let movements = source.movements();
        let mut backward = Backward::new(source, seqno.into(), KeyRange::all());
        assert_eq!(backward.next().unwrap().unwrap().key, b"l");
        assert_eq!(backward.next().unwrap().unwrap().value().read().unwrap(), seqno.to_le_bytes()[..]);
        assert!(backward.next().unwrap().is_none());
        assert!(movements.load(Ordering::Relaxed) < 4 * STEPS_MAX);
    }
}

#[test]
fn many_tombstones_do_not_exhaust_the_stack() {
    let entries = (0..200_000u32).map(|n| delete(&n.to_be_bytes(), 1)).chain([put(&[0xff; 5], 2)]).collect();
    let history = Arc::new(History::new(entries, 0));
    assert_eq!(all(history.range(9, KeyRange::all()), up).len(), 1);
    assert_eq!(all(history.range(9, KeyRange::all()), down).len(), 1);
}

#[test]
fn of_equal_internal_keys_the_newer_source_is_seen() {
    fn entry(value: &[u8]) -> vec_iter::Entry {
        (b"k".to_vec(), Tag::new(0, EntryKind::Put), value.to_vec())
    }
    let sources = || -> Result<Box<dyn InternalIterator>> {
        let sources = [&b"newer"[..], b"older"].map(|value| VecIter::new(vec![entry(value)]));
        Ok(Box::new(MergeIter::new(sources.into())))
    };
    for step in [up, down] {
        let range = Range::new(Box::new(sources), 5, KeyRange::all());
        assert_eq!(all(range, step), [(b"k".to_vec(), b"newer".to_vec())]);
    }
}

#[test]
fn a_failing_source_yields_its_error_once_and_never_an_entry_after_it() {
    let entries: Vec<_> = (0..20u8).flat_map(|n| [put(&[n], 2), put(&[n], 1)]).collect();
    for failing_at in 0..45 {
        for from_back in [false, true] {
            let entries = entries.clone();
            let source = move || {
                Ok(Box::new(VecIter::new(entries.clone()).failing_at(failing_at))
                    as Box<dyn InternalIterator>)
            };
            let mut range = Range::new(Box::new(source), 9, KeyRange::all());
            let step = if from_back { down } else { up };
            let items: Vec<_> = std::iter::from_fn(|| step(&mut range)).collect();
            let errors = items.iter().filter(|item| item.is_err()).count();
            let failed = failing_at <= 40;
            assert_eq!(errors, usize::from(failed), "movement {failing_at}");
            assert_eq!(items.last().unwrap().is_err(), failed);
            assert!(up(&mut range).is_none() && down(&mut range).is_none());
        }
    }
}

#[test]
fn a_half_that_failed_repeats_its_error() {
    let source = || VecIter::new(vec![put(b"a", 1), put(b"b", 2)]).failing_at(1);
    let mut forward = Forward::new(source(), 9.into(), KeyRange::all());
    assert!(forward.next().unwrap().is_some());
    assert!((0..3).all(|_| forward.next().is_err()));
    let mut backward = Backward::new(source(), 9.into(), KeyRange::all());
    assert!((0..3).all(|_| backward.next().is_err()));
}

#[test]
fn a_source_that_cannot_be_made_is_an_error_and_an_empty_range_makes_none() {
    let broken = || Err(crate::error::Error::invalid("no source"));
    let mut range = Range::new(Box::new(broken), 9, KeyRange::all());
    assert!(down(&mut range).unwrap().is_err());
    assert!(up(&mut range).is_none());
    let mut range = Range::new(Box::new(broken), 9, KeyRange::new(&("b".."a")));
    assert!(up(&mut range).is_none() && down(&mut range).is_none());
}

#[test]
fn a_range_releases_its_pinned_memory_at_its_end() {
    let history = Arc::new(History::new(vec![put(b"a", 1)], 0));
    let mut range = history.range(9, KeyRange::all());
    assert!(up(&mut range).is_some());
    assert_eq!(Arc::strong_count(&history), 2);
    assert!(up(&mut range).is_none());
    assert_eq!(Arc::strong_count(&history), 1);
}

#[test]
fn ranges_go_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Boxed>();
}
