//! The memtable against a `BTreeMap`, and under readers that run while it is written.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::thread;

use super::*;
use crate::iter::{EntryValue, InternalIterator, LentValue};
use crate::key::{EntryKind, InternalKey};
use crate::limits::SEQNO_MAX;

const ENTRIES: u64 = if cfg!(miri) { 60 } else { 20_000 };

fn hash(key: &[u8]) -> u64 {
    crate::hash::key_hash(3, key)
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn key(&mut self) -> Vec<u8> {
        (0..self.below(11)).map(|_| [0, b'a', b'b', 0xff][self.below(4) as usize]).collect()
    }
}

type Model = BTreeMap<(Vec<u8>, Reverse<Tag>), Vec<u8>>;

fn filled(entries: u64, seed: u64) -> (Arc<Memtable>, Model) {
    let (memtable, mut model, mut random) = (Memtable::new(1 << 20, 3), Model::new(), Random(seed));
    for seqno in 1..=entries {
        let key = random.key();
        let (kind, value) = match random.below(4) {
            0 => (EntryKind::Delete, Vec::new()),
            _ => (EntryKind::Put, seqno.to_le_bytes().to_vec()),
        };
        let tag = Tag::new(seqno, kind);
        memtable.insert(&key, tag, &value);
        model.insert((key, Reverse(tag)), value);
    }
    (Arc::new(memtable), model)
}

#[test]
fn entries_that_are_inserted_together_are_found_like_others() {
    for entries in [0, 1, 31, 32, 33, 1500, ENTRIES] {
        let (one_by_one, model) = filled(entries, 5);
        let memtable = Memtable::new(1 << 20, 3);
        let all = || model.iter().map(|((key, Reverse(tag)), value)| NewEntry { key, tag: *tag, value });
        memtable.insert_all(all().take(700));
        let has_grown = memtable.insert_all(all().skip(700));
        assert_eq!(has_grown, entries > 1000);
        assert_eq!((memtable.len(), memtable.tombstones()), (one_by_one.len(), one_by_one.tombstones()));
        assert_eq!(memtable.seqno_max(), one_by_one.seqno_max());
        assert_eq!(memtable.filter.is_made(), one_by_one.filter.is_made());
        for NewEntry { key, tag, value } in all() {
            assert_eq!(found(&memtable, key, tag.seqno()), Some((tag, value.to_vec())));
        }
    }
}

fn found(memtable: &Memtable, key: &[u8], seqno: SeqNo) -> Option<(Tag, Vec<u8>)> {
    memtable
        .get(hash(key), key, seqno)
        .and_then(|newest| newest.entry())
        .map(|entry| (entry.tag(), entry.value().to_vec()))
}

#[test]
fn keys_that_are_looked_up_together_are_found_as_alone() {
    for entries in [0, 20, 1500, ENTRIES / 4] {
        let (memtable, mut random) = (filled(entries, 6).0, Random(9));
        for round in 0..ENTRIES / 100 {
            if round == ENTRIES / 200 {
                memtable.delete_range(b"a", b"b", entries + 1);
            }
            let keys: Vec<_> = (0..random.below(65)).map(|_| random.key()).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let hashes: Vec<_> = keys.iter().map(|key| hash(key)).collect();
            let seqno = random.below(entries + 2);
            let told = |newest: Newest<'_>| (newest.seqno(), newest.put().map(|put| put.value()));
            let wanted: Vec<_> = (0..keys.len()).filter(|_| random.below(5) > 0).collect();
            let alone = |&at: &usize| Some((at, told(memtable.get(hashes[at], keys[at], seqno)?)));
            let mut together = Vec::new();
            let found = |at, newest: Newest<'_>| together.push((at, told(newest)));
            memtable.get_many(&keys, &hashes, wanted.iter().copied(), seqno, found);
            assert_eq!(together, wanted.iter().filter_map(alone).collect::<Vec<_>>());
        }
    }
}

fn here(iter: &MemtableIter) -> Option<(Vec<u8>, Tag, Vec<u8>)> {
    let key = iter.key()?;
    let EntryValue::Inline(value) = iter.value() else { panic!("not in memory") };
    Some((key.user.to_vec(), key.tag, value.to_vec()))
}

fn entry(((key, tag), value): (&(Vec<u8>, Reverse<Tag>), &Vec<u8>)) -> (Vec<u8>, Tag, Vec<u8>) {
    (key.clone(), tag.0, value.clone())
}

#[test]
fn scans_in_both_directions_give_what_the_model_holds() {
    let (memtable, model) = filled(ENTRIES, 1);
    let mut iter = memtable.iter();
    assert_eq!(here(&iter), None);
    iter.seek_first().unwrap();
    for expected in model.iter().map(entry) {
        assert_eq!(here(&iter), Some(expected));
        iter.next().unwrap();
    }
    assert_eq!(here(&iter), None);
    iter.seek_last().unwrap();
    for expected in model.iter().rev().map(entry) {
        assert_eq!(here(&iter), Some(expected));
        iter.prev().unwrap();
    }
    assert_eq!(here(&iter), None);
}

#[test]
fn what_is_lent_is_the_entry_whatever_was_lent_before() {
    let (memtable, mut random) = (Memtable::new(1 << 20, 3), Random(8));
    for seqno in 1..=ENTRIES / 20 {
        let bytes = |len: u64| (0..len).map(|at| (seqno * 7 + at) as u8).collect::<Vec<u8>>();
        let value_max = if random.below(10) == 0 { 3000 } else { 40 };
        let (key, value) = (bytes(random.below(30)), bytes(random.below(value_max)));
        memtable.insert(&key, Tag::new(seqno, EntryKind::Put), &value);
    }
    let mut iter = Arc::new(memtable).iter();
    assert!(iter.lent().is_none());
    iter.seek_first().unwrap();
    let mut entries = 0;
    while let Some(expected) = here(&iter) {
        let Some((key, LentValue::Inline(value))) = iter.lent() else { panic!("not in memory") };
        assert_eq!((key.user.to_vec(), key.tag, value.to_vec()), expected);
        entries += 1;
        iter.next().unwrap();
    }
    assert!(iter.lent().is_none());
    assert_eq!(entries, ENTRIES / 20);
}

#[test]
fn seeks_and_gets_agree_with_the_model_at_every_snapshot() {
    let (memtable, model) = filled(ENTRIES / 10, 2);
    let mut random = Random(3);
    let mut iter = memtable.iter();
    for _ in 0..ENTRIES {
        let (key, seqno) = (random.key(), random.below(ENTRIES / 10 + 2));
        let tag = Tag::newest_at(seqno);
        let target = (key.clone(), Reverse(tag));
        iter.seek(InternalKey::new(&key, tag)).unwrap();
        let after = model.range(target.clone()..).next().map(entry);
        assert_eq!(here(&iter), after);
        iter.seek_before(InternalKey::new(&key, tag)).unwrap();
        assert_eq!(here(&iter), model.range(..target).next_back().map(entry));

        let newest = after.filter(|(found, ..)| *found == key).map(|(_, tag, value)| (tag, value));
        assert_eq!(found(&memtable, &key, seqno), newest);
    }
}

#[test]
fn keys_of_any_length_are_searched_for_among_the_longest_entries() {
    const MAX: usize = crate::limits::KEY_BYTES_MAX;
    let padded = |start: &[u8], len: usize, end: &[u8]| {
        let mut key = start.to_vec();
        key.resize(len, 0);
        key.extend_from_slice(end);
        key
    };
    let lengths = [0, 1, 2, 1000, MAX - 1, MAX, MAX + 1, MAX + 9, 2 * MAX, 1 << 20, (1 << 20) + 1];
    let starts: [&[u8]; 3] = [b"", b"x", &[0xff]];
    let ends: [&[u8]; 4] = [b"", &[0xe0], &[1], &[0xff; 9]];
    let keys = starts.into_iter().flat_map(|start| {
        lengths.into_iter().flat_map(move |len| ends.map(|end| padded(start, len.max(start.len()), end)))
    });
    let keys: Vec<_> = keys.collect();
    let (memtable, mut model) = (Memtable::new(1 << 20, 3), Model::new());
    for (seqno, key) in (1..).zip(keys.iter().chain(&keys).filter(|key| key.len() <= MAX)) {
        let tag = Tag::new(seqno, EntryKind::Put);
        memtable.insert(key, tag, b"");
        model.insert((key.clone(), Reverse(tag)), Vec::new());
    }
    let memtable = Arc::new(memtable);
    let mut iter = memtable.iter();
    for key in &keys {
        let newest = Tag::newest_at(SEQNO_MAX);
        let place = (key.clone(), Reverse(newest));
        let after = model.range(place.clone()..).next().map(entry);
        let before = model.range(..place).next_back().map(entry);
        iter.seek(InternalKey::new(key, newest)).unwrap();
        assert!(here(&iter) == after, "after a key of {} bytes", key.len());
        iter.seek_before(InternalKey::new(key, newest)).unwrap();
        assert!(here(&iter) == before, "before a key of {} bytes", key.len());
        let expected = after.filter(|(user, ..)| user == key).map(|(_, tag, value)| (tag, value));
        assert_eq!(found(&memtable, key, SEQNO_MAX), expected, "a key of {} bytes", key.len());
    }
}

#[test]
fn counts_are_those_of_the_entries() {
    let (memtable, model) = filled(ENTRIES / 4, 4);
    assert_eq!(memtable.len(), model.len() as u64);
    assert_eq!(memtable.seqno_max(), Some(ENTRIES / 4));
}

#[test]
fn entries_that_are_inserted_together_are_there_as_if_each_were_inserted_alone() {
    for group in [2, GROUP_MAX, 3 * GROUP_MAX - 1] {
        let (alone, model) = filled(ENTRIES / 10, 9);
        let mut all: Vec<_> = model.iter().map(entry).collect();
        all.sort_by_key(|(_, tag, _)| tag.seqno());
        let entries: Vec<_> =
            all.iter().map(|(key, tag, value)| NewEntry { key, tag: *tag, value }).collect();
        let together = Arc::new(Memtable::new(1 << 20, 3));
        for group in entries.chunks(group) {
            together.insert_group(group);
        }
        assert_eq!((together.len(), together.tombstones()), (alone.len(), alone.tombstones()));
        assert_eq!((together.seqno_max(), together.size_bytes()), (alone.seqno_max(), alone.size_bytes()));
        assert_eq!(together.filter.is_made(), alone.filter.is_made());
        let mut iter = together.iter();
        iter.seek_first().unwrap();
        for expected in model.iter().map(entry) {
            assert_eq!(here(&iter).as_ref(), Some(&expected));
            assert_eq!(found(&together, &expected.0, SEQNO_MAX), found(&alone, &expected.0, SEQNO_MAX));
            iter.next().unwrap();
        }
        assert_eq!(here(&iter), None);
    }
}

#[test]
fn an_empty_memtable_has_nothing_and_is_small() {
    let memtable = Arc::new(Memtable::new(1 << 20, 3));
    assert!(memtable.is_empty());
    assert_eq!(memtable.seqno_max(), None);
    assert!(memtable.get(hash(b""), b"", 9).is_none());
    assert!(memtable.size_bytes() < 4 << 10, "{}", memtable.size_bytes());
    let mut iter = memtable.iter();
    iter.seek_first().unwrap();
    assert_eq!(here(&iter), None);
    iter.seek_last().unwrap();
    assert_eq!(here(&iter), None);
    iter.next().unwrap();
    iter.prev().unwrap();
    assert_eq!(here(&iter), None);
}

#[test]
fn ascending_and_descending_and_alternating_insertions_give_the_same_scan() {
    let orders: [fn(u64) -> u64; 3] =
        [|n| n, |n| ENTRIES - 1 - n, |n| if n % 2 == 0 { n } else { ENTRIES - n }];
    for order in orders {
        let memtable = Arc::new(Memtable::new(1 << 20, 3));
        for n in 0..ENTRIES {
            memtable.insert(&order(n).to_be_bytes(), Tag::new(n + 1, EntryKind::Put), &[]);
        }
        let mut iter = memtable.iter();
        iter.seek_first().unwrap();
        for n in 0..ENTRIES {
            assert_eq!(iter.key().unwrap().user, n.to_be_bytes());
            iter.next().unwrap();
        }
        assert_eq!(iter.key(), None);
    }
}

fn seqnos_of_scan(memtable: &Arc<Memtable>, seqno: SeqNo, forward: bool) -> Vec<SeqNo> {
    let mut iter = memtable.iter();
    if forward { iter.seek_first() } else { iter.seek_last() }.unwrap();
    let mut found = Vec::new();
    let mut last: Option<(Vec<u8>, Tag)> = None;
    while let Some(key) = iter.key() {
        if let Some((user, tag)) = &last {
            let previous = InternalKey::new(user, *tag);
            assert!(if forward { previous < key } else { previous > key }, "a scan is in order");
        }
        last = Some((key.user.to_vec(), key.tag));
        if key.tag.seqno() <= seqno {
            found.push(key.tag.seqno());
        }
        if forward { iter.next() } else { iter.prev() }.unwrap();
    }
    found.sort_unstable();
    found
}

#[test]
fn readers_see_exactly_the_entries_complete_when_their_snapshot_was_published() {
    read_while_groups_are_inserted(1);
    read_while_groups_are_inserted(GROUP_MAX as u64);
}

fn read_while_groups_are_inserted(group: u64) {
    let memtable = Arc::new(Memtable::new(1 << 20, 3));
    let published = AtomicU64::new(0);
    let key_of = |seqno: u64| (seqno.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44).to_be_bytes();
    thread::scope(|scope| {
        for reader in 0..3 {
            let (memtable, published) = (&memtable, &published);
            scope.spawn(move || {
                let mut random = Random(reader + 7);
                loop {
                    let seqno = published.load(Ordering::Acquire);
                    let expected: Vec<_> = (1..=seqno).collect();
                    assert_eq!(seqnos_of_scan(memtable, seqno, reader % 2 == 0), expected);
                    for _ in 0..100.min(seqno) {
                        let wanted = 1 + random.below(seqno);
                        let (tag, _) = found(memtable, &key_of(wanted), seqno).expect("complete");
                        assert!(tag.seqno() >= wanted && tag.seqno() <= seqno);
                    }
                    let wanted: Vec<_> = (0..50.min(seqno)).map(|_| 1 + random.below(seqno)).collect();
                    let keys: Vec<_> = wanted.iter().map(|&seqno| key_of(seqno)).collect();
                    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                    let hashes: Vec<_> = keys.iter().map(|key| hash(key)).collect();
                    let mut count = 0;
                    memtable.get_many(&keys, &hashes, 0..keys.len(), seqno, |at, newest| {
                        assert!((wanted[at]..=seqno).contains(&newest.seqno()));
                        count += 1;
                    });
                    assert_eq!(count, keys.len(), "all are complete");
                    if seqno == ENTRIES {
                        return;
                    }
                }
            });
        }
        for first in (1..=ENTRIES).step_by(group as usize) {
            let last = ENTRIES.min(first + group - 1);
            let keys: Vec<_> = (first..=last).map(|seqno| (key_of(seqno), seqno)).collect();
            let entry = |(key, seqno)| NewEntry { key, tag: Tag::new(seqno, EntryKind::Put), value: &[] };
            let entries: Vec<_> = keys.iter().map(|(key, seqno)| entry((&key[..], *seqno))).collect();
            memtable.insert_group(&entries);
            published.store(last, Ordering::Release);
        }
    });
}

#[test]
fn seeks_while_entries_are_inserted_pass_no_entry_that_is_complete() {
    let prefixes = ["https://example.org/page/", "https://example.org/p", "tenant-0007/", ""];
    let key_of = |number: u64| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{}{}", prefixes[(mixed >> 60) as usize % 4], mixed >> 44).into_bytes()
    };
    let (memtable, published) = (Arc::new(Memtable::new(1 << 20, 3)), AtomicU64::new(0));
    let numbers: BTreeMap<_, _> = (1..=ENTRIES).map(|number| (key_of(number), number)).collect();
    let sorted: Vec<(Vec<u8>, u64)> = numbers.into_iter().collect();
    let sorted = &sorted[..];
    thread::scope(|scope| {
        for reader in 0..3 {
            let (memtable, published) = (&memtable, &published);
            scope.spawn(move || {
                let (mut random, mut iter) = (Random(reader + 7), memtable.iter());
                while published.load(Ordering::Acquire) < ENTRIES {
                    let seqno = published.load(Ordering::Acquire);
                    let at = random.below(sorted.len() as u64) as usize;
                    let target = InternalKey::new(&sorted[at].0, Tag::newest_at(SEQNO_MAX));
                    let is_complete = |entry: &&(Vec<u8>, u64)| entry.1 <= seqno;
                    iter.seek(target).unwrap();
                    let (found, most) = (iter.key(), sorted[at..].iter().find(is_complete));
                    assert!(found.is_none_or(|found| found >= target));
                    assert!(most.is_none_or(|most| found.is_some_and(|found| found.user <= &most.0[..])));
                    iter.seek_before(target).unwrap();
                    let (found, least) = (iter.key(), sorted[..at].iter().rev().find(is_complete));
                    assert!(found.is_none_or(|found| found < target));
                    assert!(least.is_none_or(|least| found.is_some_and(|found| found.user >= &least.0[..])));
                }
            });
        }
        for number in 1..=ENTRIES {
            memtable.insert(&key_of(number), Tag::new(number, EntryKind::Put), &[]);
            published.store(number, Ordering::Release);
        }
    });
}

#[test]
fn writers_that_race_lose_no_entry() {
    let memtable = Arc::new(Memtable::new(1 << 20, 3));
    thread::scope(|scope| {
        for writer in 0..2 {
            let memtable = &memtable;
            scope.spawn(move || {
                for n in 0..ENTRIES / 2 {
                    let seqno = 1 + 2 * n + writer;
                    let key = (seqno.wrapping_mul(0x9e37_79b9) as u16).to_be_bytes();
                    memtable.insert(&key, Tag::new(seqno, EntryKind::Put), &[]);
                }
            });
        }
    });
    assert_eq!(seqnos_of_scan(&memtable, ENTRIES, true), (1..=ENTRIES).collect::<Vec<_>>());
    assert_eq!(seqnos_of_scan(&memtable, ENTRIES, false), (1..=ENTRIES).collect::<Vec<_>>());
}

#[test]
fn a_full_memtable_is_mostly_keys_and_values_and_never_grows_by_more_than_it_said() {
    for (value_len, size, most) in [
        (64, 8 << 20, 1.65),
        (100, 1 << 20, 1.5),
        (100, 8 << 20, 1.46),
        (300, 8 << 20, 1.21),
        (1000, 8 << 20, 1.12),
        (1100, 8 << 20, 1.2),
        (4000, 8 << 20, 1.1),
    ] {
        let memtable = Memtable::new(size, 3);
        let (value, mut bytes) = (vec![7; value_len], 0);
        for seqno in 1u64.. {
            let (before, growth) = (memtable.size_bytes(), memtable.growth_max());
            let key = [seqno.wrapping_mul(0x9e37_79b9_7f4a_7c15), seqno].map(u64::to_be_bytes).concat();
            memtable.insert(&key, Tag::new(seqno, EntryKind::Put), &value);
            bytes += key.len() + value_len;
            let predicted = Memtable::bytes_max(1, key.len() + value_len, 1) + growth;
            assert!(memtable.size_bytes() - before <= predicted, "entry {seqno}");
            if memtable.size_bytes() >= size {
                break;
            }
        }
        let ratio = memtable.size_bytes() as f64 / bytes as f64;
        assert!(ratio < most, "{ratio} for values of {value_len} in {size}");
    }
}

#[test]
fn a_group_takes_no_more_of_any_memtables_than_was_foreseen() {
    // Only the size of filters depends on this.
    const FLUSH_BYTES: usize = 1 << 14;
    for (memtables, filled, group, value_len) in [
        (1, 0, 1, 0),
        (1, 0, 1, 100_000),
        (1, 0, 130, 0),
        (1, 0, 4110, 0),
        (1, 0, 70_000, 20),
        (1, 3, 3000, 1000),
        (1, 3, 300, 1040),
        (1, 4100, 4100, 4),
        (20, 0, 340, 1000),
        (20, 0, 1000, 100),
        (20, 1, 20, 1),
        (20, 70, 30_000, 4),
    ] {
        let all: Vec<Memtable> = (0..memtables).map(|_| Memtable::new(FLUSH_BYTES, 3)).collect();
        let (value, mut seqno) = (vec![7; value_len], 0u64);
        let mut insert = |into: usize, entries: usize| {
            for _ in 0..entries {
                seqno += 1;
                let key = seqno.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                all[into].insert(&key, Tag::new(seqno, EntryKind::Put), &value);
            }
        };
        (0..memtables).for_each(|at| insert(at, filled));
        let size = || all.iter().map(|memtable| memtable.size_bytes()).sum::<usize>();
        let (before, growth): (usize, usize) = match filled {
            0 => (0, memtables * Memtable::first_growth_max(FLUSH_BYTES)),
            _ => (size(), all.iter().map(Memtable::growth_max).sum()),
        };
        (0..memtables).for_each(|at| insert(at, group / memtables));
        let foreseen = growth + Memtable::bytes_max(group, group * (8 + value_len), memtables);
        let taken = size() - before;
        assert!(taken <= foreseen, "{taken}, not {foreseen}: {group} of {value_len} after {filled}");
        let twice =
            2 * growth + 3 * group * (node::OVERHEAD_BYTES_MAX + trie::BRANCH_BYTES_MAX + 8 + value_len);
        assert!(foreseen <= twice, "{foreseen} for {taken}: {group} of {value_len} after {filled}");
    }
}

#[test]
fn memtables_and_their_iterators_go_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<Memtable>();
    sent::<MemtableIter>();
}

#[test]
fn what_entries_may_take_does_not_overflow_however_many_they_are() {
    for (entries, bytes) in
        [(usize::MAX / 100, usize::MAX), (1, usize::MAX), (usize::MAX / 3, usize::MAX / 2)]
    {
        assert!(Memtable::bytes_max(entries, bytes, 3) > usize::MAX / 3, "{entries} of {bytes}");
    }
}
