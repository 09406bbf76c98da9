//! A part of the logs in memory. Its entries are inserted in key order, so that each insertion starts at the previous
//! one, in cached memory.

use std::cmp::Ordering;
use std::ops::Range;

use crate::batch::{BatchEntry, KeyspaceId};
use crate::key::{EntryKind, SeqNo, Tag, key_prefix};
use crate::memtable::{Memtable, NewEntry};
use crate::number_map::NumberMap;

/// Overhead of an entry: its position, a copy of the position for sorting, and slack.
const ENTRY_BYTES: usize = 3 * size_of::<EntryPlace>();

const BATCH_BYTES: usize = 2 * size_of::<BatchPlace>();

/// Offsets in a part have 32 bits.
const PART_BYTES_MAX: usize = 256 << 20;

pub(super) fn part_bytes_max(memory_budget: usize) -> usize {
    (memory_budget / 8).min(PART_BYTES_MAX)
}

#[derive(Debug, Default)]
pub(in crate::db) struct LogPart {
    bytes: Vec<u8>,
    batches: Vec<BatchPlace>,
    entries: NumberMap<KeyspaceId, Entries>,
    count: usize,
    bytes_max: usize,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::db) struct Logged<'b> {
    pub(in crate::db) bytes: &'b [u8],
    pub(in crate::db) log: u64,
    pub(in crate::db) end: u64,
}

#[derive(Debug, Clone, Copy)]
struct BatchPlace {
    at: u32,
    log: u64,
    end: u64,
}

#[derive(Debug, Default)]
struct Entries {
    places: Vec<EntryPlace>,
    range_deletes: Vec<RangeDeletePlace>,
    log: u64,
}

#[derive(Debug, Clone, Copy)]
struct RangeDeletePlace {
    seqno: SeqNo,
    start: (u32, u32),
    end: (u32, u32),
}

#[derive(Debug, Clone, Copy)]
struct EntryPlace {
    prefix: u64,
    tag: Tag,
    key: (u32, u32),
    value: (u32, u32),
}

impl LogPart {
    pub(in crate::db) fn new(bytes_max: usize) -> Self {
        Self { bytes_max: bytes_max.min(PART_BYTES_MAX), ..Self::default() }
    }

    pub(in crate::db) fn expect(&mut self, bytes: u64) {
        let room = self.bytes_max - self.bytes.len().min(self.bytes_max);
        self.bytes.reserve_exact(usize::try_from(bytes).unwrap_or(room).min(room));
    }

    pub(in crate::db) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(in crate::db) fn has_room(&self, bytes: usize, entries: u32) -> bool {
        let more =
            (entries as usize).saturating_mul(ENTRY_BYTES).saturating_add(bytes).saturating_add(BATCH_BYTES);
        self.size_bytes().saturating_add(more) <= self.bytes_max
    }

    pub(in crate::db) fn size_bytes(&self) -> usize {
        self.bytes.len() + self.count * ENTRY_BYTES + self.batches.len() * BATCH_BYTES
    }

    pub(in crate::db) fn begin(&mut self, batch: Logged<'_>) {
        self.batches.push(BatchPlace { at: self.bytes.len() as u32, log: batch.log, end: batch.end });
        self.bytes.extend_from_slice(batch.bytes);
    }

    pub(in crate::db) fn add(&mut self, entry: &BatchEntry) {
        let Some(batch) = self.batches.last() else { return };
        let place = |range: &Range<usize>| (batch.at + range.start as u32, batch.at + range.end as u32);
        let (key, value) = (place(&entry.key), place(&entry.value));
        let log = batch.log;
        let entries =
            self.entries.get_or_insert_with(entry.keyspace, || Entries { log, ..Entries::default() });
        if entry.kind == EntryKind::RangeDelete {
            entries.range_deletes.push(RangeDeletePlace { seqno: entry.seqno, start: key, end: value });
        } else {
            let prefix = key_prefix(slice(&self.bytes, key));
            let tag = Tag::new(entry.seqno, entry.kind);
            entries.places.push(EntryPlace { prefix, tag, key, value });
        }
        self.count += 1;
    }

    pub(super) fn undo(&mut self) {
        if let Some(batch) = self.batches.pop() {
            self.bytes.truncate(batch.at as usize);
        }
    }

    pub(in crate::db) fn clear(&mut self) {
        self.bytes.clear();
        self.batches.clear();
        self.entries = NumberMap::new();
        self.count = 0;
    }

    pub(in crate::db) fn all(&self) -> Piece<'_> {
        Piece { part: self, batches: 0..self.batches.len() }
    }
}

#[derive(Debug, Clone)]
pub(in crate::db) struct Piece<'p> {
    part: &'p LogPart,
    batches: Range<usize>,
}

impl<'p> Piece<'p> {
    pub(in crate::db) fn batches(&self) -> impl Iterator<Item = Logged<'p>> {
        let part = self.part;
        self.batches.clone().map(|number| {
            let BatchPlace { at, log, end } = part.batches[number];
            let bytes = &part.bytes[at as usize..part.start_of(number + 1)];
            Logged { bytes, log, end }
        })
    }

    pub(in crate::db) fn halves(&self) -> Option<[Self; 2]> {
        let Range { start, end } = self.batches;
        let middle = start + (end - start) / 2;
        let half = |batches| Self { part: self.part, batches };
        (middle > start).then(|| [half(start..middle), half(middle..end)])
    }

    pub(in crate::db) fn entries(&self) -> impl Iterator<Item = KeyspaceEntries<'p>> {
        let (part, start) = (self.part, self.part.start_of(self.batches.start));
        let end = part.start_of(self.batches.end);
        part.entries.iter().filter_map(move |(&keyspace, entries)| {
            let before = |at: usize| entries.places.partition_point(|place| place.key.0 as usize <= at);
            let places = &entries.places[before(start)..before(end)];
            let before =
                |at: usize| entries.range_deletes.partition_point(|place| place.start.0 as usize <= at);
            let range_deletes = &entries.range_deletes[before(start)..before(end)];
            let is_empty = places.is_empty() && range_deletes.is_empty();
            let entries = KeyspaceEntries { keyspace, part, places, range_deletes, log: entries.log };
            (!is_empty).then_some(entries)
        })
    }
}

impl LogPart {
    fn start_of(&self, batch: usize) -> usize {
        self.batches.get(batch).map_or(self.bytes.len(), |batch| batch.at as usize)
    }
}

#[derive(Debug, Clone, Copy)]
pub(in crate::db) struct KeyspaceEntries<'p> {
    pub(in crate::db) keyspace: KeyspaceId,
    part: &'p LogPart,
    places: &'p [EntryPlace],
    range_deletes: &'p [RangeDeletePlace],
    pub(in crate::db) log: u64,
}

impl KeyspaceEntries<'_> {
    pub(in crate::db) fn len(&self) -> usize {
        self.places.len()
    }

    pub(in crate::db) fn bytes(&self) -> usize {
        self.places.iter().map(|place| len(place.key) + len(place.value)).sum()
    }

    pub(in crate::db) fn range_deletes(&self) -> (usize, usize) {
        let bytes = self.range_deletes.iter().map(|place| len(place.start) + len(place.end)).sum();
        (self.range_deletes.len(), bytes)
    }

    /// Inserts the entries, with range deletes in log order. Returns whether memory was allocated.
    pub(super) fn insert_into(&self, memtable: &Memtable) -> bool {
        let bytes = &self.part.bytes;
        let mut sorted = self.places.to_vec();
        sorted.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| compare(bytes, a, b)));
        let entry = |place: &EntryPlace| NewEntry {
            key: slice(bytes, place.key),
            tag: place.tag,
            value: slice(bytes, place.value),
        };
        for place in self.range_deletes {
            memtable.delete_range(slice(bytes, place.start), slice(bytes, place.end), place.seqno);
        }
        memtable.insert_all(sorted.iter().map(entry)) || !self.range_deletes.is_empty()
    }
}

fn len((start, end): (u32, u32)) -> usize {
    (end - start) as usize
}

#[inline(never)]
fn compare(bytes: &[u8], a: &EntryPlace, b: &EntryPlace) -> Ordering {
    slice(bytes, a.key).cmp(slice(bytes, b.key)).then_with(|| b.tag.cmp(&a.tag))
}

#[inline]
fn slice(bytes: &[u8], (start, end): (u32, u32)) -> &[u8] {
    &bytes[start as usize..end as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchReader, WriteBatch, stamp};
    use crate::key::SeqNo;

    fn part() -> LogPart {
        let mut part = LogPart::new(1 << 20);
        let mut seqno = 1;
        let batches: [&[(KeyspaceId, &str, Option<&str>)]; 3] = [
            &[(3, "long enough", Some("1")), (5, "b", Some("")), (3, "long 2", None)],
            &[(3, "", None), (3, "", None)],
            &[(5, "a", Some("2"))],
        ];
        for (number, entries) in batches.iter().enumerate() {
            let mut batch = WriteBatch::new();
            for &(keyspace, key, value) in *entries {
                match value {
                    Some(value) => batch.push_put(keyspace, key.as_bytes(), value.as_bytes()),
                    None => batch.push_delete(keyspace, key.as_bytes()),
                };
            }
            let (mut bytes, ..) = batch.into_parts().unwrap();
            stamp(&mut bytes, seqno);
            seqno += entries.len() as u64;
            let log = number as u64;
            part.begin(Logged { bytes: &bytes, log, end: 100 * log });
            BatchReader::open(&bytes).unwrap().for_each(|entry| part.add(&entry.unwrap()));
            part.begin(Logged { bytes: b"nothing of it is wanted", log, end: 0 });
            part.undo();
        }
        part
    }

    fn found(piece: &Piece<'_>) -> Vec<(KeyspaceId, u64, Vec<SeqNo>)> {
        let seqnos = |entries: &KeyspaceEntries<'_>| entries.places.iter().map(|e| e.tag.seqno()).collect();
        piece.entries().map(|entries| (entries.keyspace, entries.log, seqnos(&entries))).collect()
    }

    #[test]
    fn halves_have_the_entries_of_their_batches_and_no_others() {
        let part = part();
        let all = part.all();
        assert_eq!(found(&all), [(3, 0, vec![1, 3, 4, 5]), (5, 0, vec![2, 6])]);
        let [first, rest] = all.halves().unwrap();
        assert_eq!(found(&first), [(3, 0, vec![1, 3]), (5, 0, vec![2])]);
        assert!(first.halves().is_none());
        let [second, third] = rest.halves().unwrap();
        assert_eq!((found(&second), found(&third)), (vec![(3, 0, vec![4, 5])], vec![(5, 0, vec![6])]));
        let places: Vec<_> = rest.batches().map(|batch| (batch.log, batch.end)).collect();
        assert_eq!(places, [(1, 100), (2, 200)]);
        let firsts = all.batches().map(|batch| BatchReader::open(batch.bytes).unwrap().first);
        assert!(firsts.eq([1, 4, 6]));
        let bytes: Vec<_> = all.entries().map(|entries| (entries.len(), entries.bytes())).collect();
        assert_eq!(bytes, [(4, 18), (2, 3)]);
    }

    #[test]
    fn entries_are_inserted_in_the_order_of_internal_keys() {
        let part = part();
        for (entries, expected) in part.all().entries().zip([vec![5, 4, 3, 1], vec![6, 2]]) {
            let memtable = Memtable::new(1 << 20, 0);
            entries.insert_into(&memtable);
            let inserted: Vec<_> = memtable.newest_first().map(|entry| entry.tag().seqno()).collect();
            assert!(inserted.iter().rev().eq(&expected), "{inserted:?}");
        }
    }

    #[test]
    fn a_part_has_room_for_what_it_takes_and_for_no_more() {
        let mut part = LogPart::new(10_000);
        let bytes = [0; 1000];
        let most = (0..20).find(|_| {
            let has_room = part.has_room(bytes.len(), 1);
            part.begin(Logged { bytes: &bytes, log: 1, end: 1 });
            !has_room
        });
        assert_eq!(most, Some(9), "{}", part.size_bytes());
        part.clear();
        assert!(part.is_empty() && part.size_bytes() == 0 && part.has_room(9000, 1));
        assert!(!part.has_room(1, u32::MAX) && !part.has_room(usize::MAX - 200, 1));
    }
}
