//! Data and index blocks.
//!
//! # Strategy
//!
//! The first byte chooses:
//!
//! 0. *raw*: a sealed block, for the envelope.
//! 1. *resealed*: with the checksum recomputed, for lengths, kinds and LZ4.
//! 2. *payload*: sealed here, compressed or not.
//! 3. *built* from a description of entries; then some bytes are changed.
//!
//! # Invariants
//!
//! - Every sealed block opens to the same payload and kind.
//! - Cursors do not panic, and every step moves. Every entry of a walk takes at least one byte.
//! - A block that passes `verify` has the same entries in both directions, and for walk, search, lookup, hash index and
//!   fences. Without the hash index, a lookup in a damaged block agrees with the cursor or fails. Building the entries
//!   again gives a block with the same entries.

use bytes::Bytes;

use super::seal;
use crate::block::{
    BlockBuilder, BlockHandle, BlockIter, BlockKind, BlockValues, Compression, Fences, Found, Sealer, Sought,
    find, find_user_key, unseal,
};
use crate::codec::DecodeError;
use crate::filter::fuzzing::Input;
use crate::key::{EntryKind, InternalKey, Tag};

const OWNER: [u8; 16] = [7; 16];
const OFFSET: u64 = 64;

type Entry = (Vec<u8>, Tag, Vec<u8>, bool);

const SEEKS_MAX: usize = 64;

/// Runs one input of a data block.
pub fn data(bytes: &[u8]) {
    run(bytes, BlockValues::Data, BlockKind::Data);
}

/// Runs one input of an index block.
pub fn index(bytes: &[u8]) {
    run(bytes, BlockValues::Index, BlockKind::Index);
}

fn run(bytes: &[u8], values: BlockValues, kind: BlockKind) {
    let mut input = Input::new(bytes);
    let mode = input.below(4);
    let payload = match mode {
        0 | 1 => {
            let mut sealed = input.rest().to_vec();
            if mode == 1 {
                seal::block(&mut sealed, &OWNER, OFFSET);
            }
            match unseal(&OWNER, OFFSET, sealed) {
                Ok((kind, payload)) => {
                    assert_opens_again(kind, &payload);
                    payload
                }
                Err(_) => return,
            }
        }
        2 => Bytes::copy_from_slice(input.rest()),
        _ => built(&mut input, values),
    };
    assert_opens_again(kind, &payload);
    check(payload, values);
}

fn assert_opens_again(kind: BlockKind, payload: &Bytes) {
    for compression in [Compression::None, Compression::Lz4] {
        let mut sealed = Vec::new();
        let len = Sealer::new(OWNER).seal(&mut sealed, OFFSET, kind, compression, payload);
        assert_eq!(len, sealed.len() as u64);
        assert_eq!(unseal(&OWNER, OFFSET, sealed), Ok((kind, payload.clone())));
    }
}

fn built(input: &mut Input<'_>, values: BlockValues) -> Bytes {
    let shape = input.below(32);
    let mut changes = Vec::new();
    for _ in 0..input.below(4) {
        changes.push((input.u16(), input.u8()));
    }
    let mut entries: Vec<Entry> = Vec::new();
    while !input.is_empty() {
        let before = entries.last().map_or(&[][..], |entry| &entry.0[..]);
        let mut key = before[..input.below(256).min(before.len())].to_vec();
        key.extend_from_slice(input.short());
        let kind = if input.flag() { EntryKind::Put } else { EntryKind::Delete };
        let tag = Tag::new(input.u16().into(), kind);
        let value = match values {
            BlockValues::Index => handle(input),
            BlockValues::Data if kind == EntryKind::Put => input.short().to_vec(),
            BlockValues::Data => Vec::new(),
        };
        entries.push((key, tag, value, false));
    }
    entries.sort_by(|a, b| InternalKey::new(&a.0, a.1).cmp(&InternalKey::new(&b.0, b.1)));
    entries.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
    let mut payload = rebuilt(&entries, 1 + shape % 16, shape >= 16).to_vec();
    for (at, xor) in changes {
        let at = usize::from(at) % payload.len();
        payload[at] ^= xor;
    }
    payload.into()
}

fn handle(input: &mut Input<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    BlockHandle { offset: input.u32().into(), len: input.u16().into() }.encode(&mut out);
    out
}

fn rebuilt(entries: &[Entry], interval: usize, hash_index: bool) -> Bytes {
    let mut builder =
        if hash_index { BlockBuilder::with_hash_index(interval) } else { BlockBuilder::new(interval) };
    for (user, tag, value, chunked) in entries {
        builder.add(InternalKey::new(user, *tag), value, *chunked);
    }
    Bytes::copy_from_slice(builder.finish())
}

fn check(payload: Bytes, values: BlockValues) {
    let Ok(mut iter) = BlockIter::new(payload.clone(), values) else { return };
    let verified = iter.verify().is_ok();
    let forward = walk(&mut iter, payload.len(), BlockIter::seek_first, BlockIter::next);
    let backward = walk(&mut iter, payload.len(), BlockIter::seek_last, BlockIter::prev);
    let (Ok(entries), true) = (&forward, verified) else {
        return seek_anywhere(&mut iter, &payload, values);
    };
    let mut backward = backward.expect("a block that is verified has no error from the end");
    backward.reverse();
    assert_eq!(*entries, backward, "a verified block is the same from both ends");
    let fences = if values == BlockValues::Index { Fences::of(&payload) } else { None };
    for at in (0..entries.len()).step_by(1 + entries.len() / SEEKS_MAX) {
        if let Some(fences) = &fences {
            assert_fences(fences, entries, &entries[at].0);
            assert_fences(fences, entries, &[&entries[at].0[..], &[0]].concat());
        }
        assert_seek(&mut iter, entries, InternalKey::new(&entries[at].0, entries[at].1));
        assert_seek(&mut iter, entries, InternalKey::new(&entries[at].0, Tag::newest_at(u64::MAX)));
        let longer = [&entries[at].0[..], &[0]].concat();
        assert_seek(&mut iter, entries, InternalKey::new(&longer, entries[at].1));
    }
    for (interval, hash_index) in [(1, false), (16, false), (1, true), (16, true)] {
        let again = rebuilt(entries, interval, hash_index);
        let mut again = BlockIter::new(again, values).expect("a built block opens");
        again.verify().expect("a built block is verified");
        let found = walk(&mut again, usize::MAX, BlockIter::seek_first, BlockIter::next);
        assert_eq!(found.as_ref(), Ok(entries), "what was built holds what was added");
    }
}

fn seek_anywhere(iter: &mut BlockIter, payload: &[u8], values: BlockValues) {
    for at in (0..payload.len()).step_by(1 + payload.len() / SEEKS_MAX) {
        let key = &payload[at..payload.len().min(at + 5)];
        let target = InternalKey::new(key, Tag::newest_at(at as u64));
        let found = find(payload, values, target);
        let by_user_key = find_user_key(payload, target);
        if payload.last() == Some(&0) && values == BlockValues::Data {
            let same = |found: Option<Found>| found.filter(|found| found.same_user_key);
            assert_eq!(by_user_key, found.clone().map(same), "there is no hash index");
        }
        if iter.seek_by_whole_keys(target).is_ok() {
            assert_found(found.clone(), iter, target);
        }
        let sought = iter.seek(target);
        assert_eq!(sought.is_ok(), found.is_ok(), "a cursor and a lookup fail at the same targets");
        if sought.is_ok() {
            assert_found(found, iter, target);
        }
        if iter.is_valid() {
            let _ = iter.prev();
            let _ = iter.next();
        }
    }
}

fn walk(
    iter: &mut BlockIter,
    steps_max: usize,
    start: fn(&mut BlockIter) -> Result<(), Box<DecodeError>>,
    step: fn(&mut BlockIter) -> Result<(), Box<DecodeError>>,
) -> Result<Vec<Entry>, Box<DecodeError>> {
    let mut found = Vec::new();
    start(iter)?;
    while let Some(key) = iter.key() {
        assert!(found.len() < steps_max, "a walk visits more entries than there are bytes");
        if let Ok(handle) = BlockHandle::decode(iter.value()) {
            let _ = handle.check(1 << 40);
        }
        found.push((key.user.to_vec(), key.tag, iter.value().to_vec(), iter.chunks().is_some()));
        step(iter)?;
    }
    Ok(found)
}

fn assert_seek(iter: &mut BlockIter, entries: &[Entry], target: InternalKey<'_>) {
    iter.seek(target).expect("a verified block can be searched");
    let place = (iter.key().map(|key| (key.user.to_vec(), key.tag)), iter.value().to_vec());
    iter.seek_by_whole_keys(target).expect("a verified block can be searched");
    let reached = (iter.key().map(|key| (key.user.to_vec(), key.tag)), iter.value().to_vec());
    assert_eq!(place, reached, "a search finds the same whether or not it decodes each key");
    let found = find(iter.payload(), iter.values(), target);
    if iter.values() == BlockValues::Data {
        let same = |found: Option<Found>| found.filter(|found| found.same_user_key);
        let by_user_key = find_user_key(iter.payload(), target);
        assert_eq!(by_user_key, found.clone().map(same), "a verified hash index leads to the entry");
    }
    assert_found(found, iter, target);
    let expected = entries.iter().map(|entry| InternalKey::new(&entry.0, entry.1)).find(|key| *key >= target);
    assert_eq!(iter.key(), expected, "a search finds what a walk finds");
}

fn assert_found(found: Result<Option<Found>, DecodeError>, iter: &BlockIter, target: InternalKey<'_>) {
    let found = found.expect("a lookup fails only where a cursor fails");
    let expected = iter.key().map(|key| (key.user == target.user, key.tag, iter.value(), iter.chunks()));
    let found =
        found.map(|found| (found.same_user_key, found.tag, &iter.payload()[found.value], found.chunks));
    assert_eq!(found, expected, "a lookup finds what a cursor finds");
}

fn assert_fences(fences: &Fences, entries: &[Entry], user_key: &[u8]) {
    let target = InternalKey::new(user_key, Tag::newest_at(u64::MAX));
    let first = entries.iter().position(|entry| InternalKey::new(&entry.0, entry.1) >= target);
    match fences.find(user_key) {
        Sought::In(index) => assert_eq!(Some(index), first, "fences lead to the first separator not before"),
        Sought::PastEnd => assert_eq!(first, None, "fences know the end"),
        Sought::Unknown => {}
    }
}
