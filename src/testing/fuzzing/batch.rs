//! Batches, and the other records of a log: promise, close and boundaries.
//!
//! # Strategy
//!
//! The first byte chooses: 0 *raw*; 1 *header prepended*, the rest are entries; 2 a promise; 3 a close record; 4
//! boundaries; 5 *built*, the rest describes entries.
//!
//! # Invariants
//!
//! - If a batch decodes to its end, no other bytes encode its entries.
//! - Sequence numbers ascend by one, within the limit.
//! - The number of bytes bounds the number of entries.
//! - In a memtable, the last entry of each key is found, and keys are in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{self, BatchEntry, BatchReader, HEADER_BYTES, WriteBatch};
use crate::filter::fuzzing::Input;
use crate::hash::key_hash;
use crate::iter::InternalIterator;
use crate::key::{EntryKind, Tag};
use crate::limits::SEQNO_MAX;
use crate::memtable::Memtable;
use crate::wal::{
    decode_boundaries, decode_close, decode_promise, encode_boundaries, encode_close, encode_promise,
};

const SEED: u64 = 5;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(6) {
        0 => check(input.rest()),
        1 => {
            let first = u64::from(input.u32());
            let mut batch = [&first.to_le_bytes()[..], &[0; 4], input.rest()].concat();
            let count = count_entries(&batch);
            batch[8..12].copy_from_slice(&count.to_le_bytes());
            check(&batch);
        }
        2 => {
            if let Ok(mark) = decode_promise(input.rest()) {
                assert_eq!(encode_promise(mark), &bytes[1..]);
            }
        }
        3 => {
            if let Ok((last_seqno, mark)) = decode_close(input.rest()) {
                assert_eq!(encode_close(last_seqno, mark), &bytes[1..]);
            }
        }
        4 => {
            if let Ok(boundaries) = decode_boundaries(input.rest()) {
                assert_eq!(encode_boundaries(&boundaries), &bytes[1..]);
            }
        }
        _ => check(&built(&mut input)),
    }
}

fn count_entries(batch: &[u8]) -> u32 {
    let mut claimed = batch.to_vec();
    let most = (batch.len() - HEADER_BYTES) / 3;
    claimed[8..12].copy_from_slice(&(most as u32).to_le_bytes());
    let reader = BatchReader::open(&claimed).expect("the count is possible");
    reader.take_while(Result::is_ok).count() as u32
}

fn built(input: &mut Input<'_>) -> Vec<u8> {
    let first = u64::from(input.u32()) << input.below(24);
    let mut batch = WriteBatch::new();
    while !input.is_empty() {
        let keyspace = u32::from(input.u8()) << input.below(25);
        match input.below(3) {
            0 => batch.push_delete(keyspace, input.short()),
            1 => batch.push_put(keyspace, input.short(), input.short()),
            _ => {
                let (start, end) = (input.short(), input.short());
                let end = if start < end { end } else { &[] };
                batch.push_range_delete(keyspace, start, end)
            }
        };
    }
    let (mut bytes, ..) = batch.into_parts().expect("short keys and values are accepted");
    batch::stamp(&mut bytes, first);
    bytes
}

fn check(bytes: &[u8]) {
    let Ok(reader) = BatchReader::open(bytes) else { return };
    let (first, last) = (reader.first, reader.last_seqno());
    assert!(reader.count as usize <= bytes.len() && last <= SEQNO_MAX);
    let count = reader.count;
    let Ok(entries) = reader.collect::<Result<Vec<BatchEntry>, _>>() else { return };
    assert_eq!(entries.len(), count as usize);
    let mut again = WriteBatch::new();
    for (index, entry) in entries.iter().enumerate() {
        assert_eq!(entry.seqno, first + index as u64);
        let key = &bytes[entry.key.clone()];
        match entry.kind {
            EntryKind::Put => again.push_put(entry.keyspace, key, &bytes[entry.value.clone()]),
            EntryKind::Delete => again.push_delete(entry.keyspace, key),
            EntryKind::RangeDelete => {
                let end = &bytes[entry.value.clone()];
                assert!(end.is_empty() || key < end, "a range has keys");
                again.push_range_delete(entry.keyspace, key, end)
            }
        };
    }
    assert_eq!(again.len(), entries.len());
    let (mut encoded, ..) = again.into_parts().expect("what was decoded is within the limits");
    batch::stamp(&mut encoded, first);
    assert_eq!(encoded, bytes, "a batch has one encoding");
    apply(&Bytes::copy_from_slice(bytes), &entries);
}

fn apply(batch: &Bytes, entries: &[BatchEntry]) {
    let memtable = Arc::new(Memtable::new(64 << 10, SEED));
    let mut newest: BTreeMap<Bytes, (Tag, Bytes)> = BTreeMap::new();
    let is_range = |entry: &&BatchEntry| entry.kind == EntryKind::RangeDelete;
    for entry in entries {
        let (key, value) = (batch.slice(entry.key.clone()), batch.slice(entry.value.clone()));
        if is_range(&entry) {
            memtable.delete_range(&key, &value, entry.seqno);
            continue;
        }
        let tag = Tag::new(entry.seqno, entry.kind);
        memtable.insert(&key, tag, &value);
        newest.insert(key, (tag, value));
    }
    for (key, found) in &newest {
        let seqno = found.0.seqno();
        let get = |seqno| memtable.get(key_hash(SEED, key), key, seqno)?.entry();
        assert_eq!(get(seqno).map(|entry| (entry.tag(), entry.value())).as_ref(), Some(found));
        assert!(seqno.checked_sub(1).and_then(get).is_none_or(|entry| entry.tag() < found.0));
        let is_over = |range: &&BatchEntry| {
            let (start, end) = (&batch[range.key.clone()], &batch[range.value.clone()]);
            range.seqno > seqno && *start <= **key && (end.is_empty() || **key < *end)
        };
        assert_eq!(get(SEQNO_MAX).is_none(), entries.iter().filter(is_range).any(|range| is_over(&range)));
    }
    let mut iter = memtable.iter();
    let mut walked = 0;
    iter.seek_first().expect("a memtable has no errors");
    while iter.key().is_some() {
        walked += 1;
        iter.next().expect("a memtable has no errors");
    }
    assert_eq!(walked, entries.iter().filter(|entry| !is_range(entry)).count());
}
