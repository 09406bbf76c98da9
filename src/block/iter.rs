//! A cursor over the entries of a data or index block, in both directions.
//!
//! A step forward appends the suffix to the key buffer; a seek copies only the found key ([`find`](super::find)). A
//! step backward decodes the interval since the previous restart, at most [`RESTART_INTERVAL_MAX`] entries.
//!
//! Each step moves the cursor by at least four bytes, so every loop ends, for any restarts. After an error the cursor
//! is invalid. Only `Table::verify` checks the order of keys.

use std::ops::Range;

use bytes::Bytes;

use crate::codec::DecodeError;
use crate::key::{EntryKind, InternalKey, SeqNo, Tag, compare_keys, copy_key, replace_rest};

use super::chunk_ref::ChunkRef;
use super::entry::{RawEntry, decode_after, decode_good, is_greater};
use super::find::{Placed, place};
use super::trailer::{RESTART_INTERVAL_MAX, Trailer, restart_offset};
use super::value::{BlockValues, follow_value, is_plain};
use super::walk::walk_entries;

pub(super) type Moved = Result<(), Box<DecodeError>>;

#[derive(Debug)]
pub(crate) struct BlockIter {
    payload: Bytes,
    values: BlockValues,
    entries_end: usize,
    restarts_at: usize,
    user_key: Vec<u8>,
    current: Option<Current>,
    backward: Interval,
}

pub(crate) struct PlainEntry<'a> {
    pub(crate) user_key: &'a [u8],
    pub(crate) payload: &'a Bytes,
    pub(crate) value: Range<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Current {
    start: usize,
    tag: Tag,
    value_start: usize,
    value_end: usize,
    chunked: bool,
}

impl Current {
    #[inline(always)]
    fn new(start: usize, entry: &RawEntry) -> Self {
        let Range { start: value_start, end: value_end } = entry.value;
        Self { start, tag: entry.tag, value_start, value_end, chunked: entry.chunked }
    }
}

#[derive(Debug, Default)]
struct Interval {
    entries: Vec<(Range<usize>, Current)>,
    /// Concatenated user keys; earlier bytes may be keys of an earlier interval.
    keys: Vec<u8>,
    restart: usize,
    /// After a step backward, the number of entries before the current one in `keys`.
    left: Option<usize>,
}

impl Interval {
    fn clear(&mut self) {
        self.entries.clear();
        self.left = None;
    }

    #[inline(always)]
    fn push_key(&mut self, before: Range<usize>, shared: usize, rest: &[u8]) -> Range<usize> {
        let key = before.end..before.end + shared + rest.len();
        if self.keys.len() < key.end {
            self.keys.resize(key.end, 0);
        }
        let (passed, free) = self.keys.split_at_mut(key.start);
        let (before, here) = (&passed[before], &mut free[..key.len()]);
        if before.len() == here.len() {
            copy_key(before, here);
        } else {
            here[..shared].copy_from_slice(&before[..shared]);
        }
        copy_key(rest, &mut here[shared..]);
        key
    }

    #[inline(always)]
    fn key(&self, index: usize) -> &[u8] {
        &self.keys[self.entries[index].0.clone()]
    }
}

impl BlockIter {
    pub(crate) fn closed(values: BlockValues) -> Self {
        Self {
            payload: Bytes::new(),
            values,
            entries_end: 0,
            restarts_at: 0,
            user_key: Vec::new(),
            current: None,
            backward: Interval::default(),
        }
    }

    pub(crate) fn new(payload: Bytes, values: BlockValues) -> Result<Self, DecodeError> {
        let mut iter = Self::closed(values);
        iter.open(payload)?;
        Ok(iter)
    }

    pub(crate) fn open(&mut self, payload: Bytes) -> Result<(), DecodeError> {
        self.close();
        let trailer = Trailer::of(&payload)?;
        (self.entries_end, self.restarts_at) = (trailer.entries.len(), trailer.restarts_at());
        self.payload = payload;
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        self.payload = Bytes::new();
        self.entries_end = 0;
        self.current = None;
        self.backward.clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.entries_end == 0
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn values(&self) -> BlockValues {
        self.values
    }

    #[inline(always)]
    pub(crate) fn is_valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        let current = self.current.as_ref()?;
        let user = match self.backward.left {
            None => &self.user_key[..],
            Some(left) => self.backward.key(left),
        };
        Some(InternalKey::new(user, current.tag))
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |current| &self.payload[current.value_start..current.value_end])
    }

    #[inline(always)]
    pub(crate) fn value_bytes(&self) -> Bytes {
        match &self.current {
            Some(current) => self.payload.slice(current.value_start..current.value_end),
            None => Bytes::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn chunks(&self) -> Option<ChunkRef> {
        self.current
            .as_ref()
            .filter(|current| current.chunked)
            .and_then(|_| ChunkRef::decode(self.value()).ok())
    }

    pub(crate) fn seek_first(&mut self) -> Moved {
        self.user_key.clear();
        self.backward.left = None;
        self.read(0)
    }

    pub(crate) fn seek_last(&mut self) -> Moved {
        self.walk_back_from(self.entries_end)
    }

    pub(crate) fn seek(&mut self, target: InternalKey<'_>) -> Moved {
        self.current = None;
        self.backward.left = None;
        let Some(Placed { at, entry, .. }) = place(&Trailer::of(&self.payload)?, target)? else {
            return Ok(());
        };
        follow_value(self.values, &entry, &self.payload)?;
        self.current = Some(Current::new(at, &entry));
        self.user_key.clear();
        self.user_key.reserve(entry.shared + entry.suffix.len());
        self.user_key.extend_from_slice(&target.user[..entry.shared]);
        self.user_key.extend_from_slice(&self.payload[entry.suffix]);
        Ok(())
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn seek_by_whole_keys(&mut self, target: InternalKey<'_>) -> Moved {
        self.current = None;
        let payload = self.payload.clone();
        let trailer = Trailer::of(&payload)?;
        let (mut low, mut high) = (0, trailer.restart_count() - 1);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let entry = decode_after(trailer.entries, trailer.restart(middle)?, 0)?;
            if InternalKey::new(&self.payload[entry.suffix], entry.tag) < target {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        self.user_key.clear();
        self.backward.left = None;
        let mut at = trailer.restart(low)?;
        loop {
            self.read(at)?;
            match &self.current {
                Some(current) if InternalKey::new(&self.user_key, current.tag) < target => {
                    at = current.value_end;
                }
                _ => return Ok(()),
            }
        }
    }

    #[inline(always)]
    pub(crate) fn next(&mut self) -> Moved {
        let Some(current) = &self.current else { return Ok(()) };
        let end = current.value_end;
        if let Some(left) = self.backward.left.take() {
            self.user_key.clear();
            self.user_key.extend_from_slice(self.backward.key(left));
        }
        self.read(end)
    }

    /// Moves only to a plain entry: a put visible at `seqno`, with an inline value and a greater user key.
    #[inline(always)]
    pub(crate) fn step_to_plain(&mut self, seqno: SeqNo) -> bool {
        let at = match (&self.current, self.backward.left) {
            (Some(current), None) if current.value_end < self.entries_end => current.value_end,
            _ => return false,
        };
        let entries = &self.payload[..self.entries_end];
        let Some(entry) = decode_good(entries, at) else { return false };
        let suffix = &entries[entry.suffix.clone()];
        let Some(replaced) = self.user_key.get(entry.shared..) else { return false };
        if !is_plain(&entry) || entry.tag.seqno() > seqno || !is_greater(suffix, replaced) {
            return false;
        }
        replace_rest(&mut self.user_key, entry.shared, suffix);
        self.current = Some(Current::new(at, &entry));
        true
    }

    /// The current entry, if it is plain and was reached by a step forward.
    #[inline(always)]
    pub(crate) fn visible_plain(&self, seqno: SeqNo) -> Option<PlainEntry<'_>> {
        let (Some(current), None) = (&self.current, self.backward.left) else { return None };
        let visible = current.tag.kind() == EntryKind::Put && current.tag.seqno() <= seqno;
        (visible && !current.chunked).then(|| self.plain())
    }

    #[inline(always)]
    pub(crate) fn plain(&self) -> PlainEntry<'_> {
        let value = self.current.as_ref().map_or(0..0, |current| current.value_start..current.value_end);
        PlainEntry { user_key: &self.user_key, payload: &self.payload, value }
    }

    /// Moves only from a put visible at `seqno` with an inline value to an entry of another user key with an inline
    /// value.
    #[inline(always)]
    pub(crate) fn step_back_over_plain(&mut self, seqno: SeqNo) -> bool {
        let (Some(current), Some(left @ 1..)) = (&self.current, self.backward.left) else { return false };
        let is_plain = !current.chunked && current.tag.kind() == EntryKind::Put;
        let (before, user) = (self.backward.key(left - 1), self.backward.key(left));
        let entry_before = self.backward.entries[left - 1].1;
        if !is_plain
            || entry_before.chunked
            || current.tag.seqno() > seqno
            || compare_keys(before, user).is_ge()
        {
            return false;
        }
        self.current = Some(entry_before);
        self.backward.left = Some(left - 1);
        true
    }

    #[inline(always)]
    pub(crate) fn plain_behind(&self) -> Option<PlainEntry<'_>> {
        let (key, entry) = self.backward.entries.get(self.backward.left? + 1)?;
        let value = entry.value_start..entry.value_end;
        Some(PlainEntry { user_key: &self.backward.keys[key.clone()], payload: &self.payload, value })
    }

    #[inline(always)]
    pub(crate) fn prev(&mut self) -> Moved {
        match (self.backward.left, &self.current) {
            (Some(left), Some(_)) if left > 0 => self.stand_in_interval(left - 1),
            _ => self.prev_elsewhere(),
        }
    }

    fn prev_elsewhere(&mut self) -> Moved {
        let Some(start) = self.current.as_ref().map(|current| current.start) else { return Ok(()) };
        if start == 0 {
            self.current = None;
            return Ok(());
        }
        match self.backward.left {
            Some(0) if self.backward.restart > 0 => self.enter_interval(self.backward.restart - 1, start),
            _ => match self.backward.entries.iter().position(|(_, entry)| entry.start == start) {
                Some(left) if left > 0 => self.stand_in_interval(left - 1),
                _ => self.walk_back_from(start),
            },
        }
    }

    /// The key buffer must have the previous user key.
    #[inline(always)]
    fn read(&mut self, at: usize) -> Moved {
        self.current = None;
        if at >= self.entries_end {
            return Ok(());
        }
        let entries = &self.payload[..self.entries_end];
        let entry = decode_after(entries, at, self.user_key.len())?;
        follow_value(self.values, &entry, entries)?;
        self.current = Some(Current::new(at, &entry));
        replace_rest(&mut self.user_key, entry.shared, &entries[entry.suffix]);
        Ok(())
    }

    fn walk_back_from(&mut self, end: usize) -> Moved {
        self.current = None;
        let trailer = Trailer::of(&self.payload)?;
        let (mut low, mut high) = (0, trailer.restart_count());
        while low < high {
            let middle = low + (high - low) / 2;
            if trailer.restart(middle)? < end { low = middle + 1 } else { high = middle }
        }
        self.enter_interval(low.saturating_sub(1), end)
    }

    fn enter_interval(&mut self, restart: usize, end: usize) -> Moved {
        self.current = None;
        let at = self.restarts_at + 4 * restart;
        let first = restart_offset(&self.payload[at..], self.entries_end, at)?;
        let entries = &self.payload[..self.entries_end];
        let interval = &mut self.backward;
        interval.clear();
        interval.restart = restart;
        let (mut at, mut key) = (first, 0..0);
        while at < end && at < entries.len() && interval.entries.len() < RESTART_INTERVAL_MAX {
            let entry = decode_after(entries, at, key.len())?;
            follow_value(self.values, &entry, entries)?;
            let current = Current::new(at, &entry);
            key = interval.push_key(key, entry.shared, &entries[entry.suffix]);
            at = current.value_end;
            interval.entries.push((key.clone(), current));
        }
        if at != end || interval.entries.is_empty() {
            let detail = format!("the entries after the restart at {first} do not end at {end} but at {at}");
            return Err(DecodeError::corrupt(first as u64, "restart interval", detail).into());
        }
        self.stand_in_interval(self.backward.entries.len() - 1)
    }

    #[inline]
    fn stand_in_interval(&mut self, index: usize) -> Moved {
        self.current = Some(self.backward.entries[index].1);
        self.backward.left = Some(index);
        Ok(())
    }

    pub(crate) fn verify(&self) -> Result<(), DecodeError> {
        walk_entries(self.values, &self.payload, &mut |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockBuilder;

    fn put(seqno: u64) -> Tag {
        Tag::new(seqno, EntryKind::Put)
    }

    fn model(entries: u64) -> Vec<(Vec<u8>, Tag, Vec<u8>)> {
        let key = |i: u64| format!("{:05}", i / 3 * 7919 % 100_000).into_bytes();
        let mut all: Vec<_> =
            (0..entries).map(|i| (key(i), put(i % 3), vec![i as u8; i as usize % 90])).collect();
        all.sort_by(|a, b| InternalKey::new(&a.0, a.1).cmp(&InternalKey::new(&b.0, b.1)));
        all
    }

    fn block(entries: &[(Vec<u8>, Tag, Vec<u8>)], interval: usize) -> BlockIter {
        let mut builder = BlockBuilder::new(interval);
        for (user, tag, value) in entries {
            builder.add(InternalKey::new(user, *tag), value, false);
        }
        BlockIter::new(Bytes::copy_from_slice(builder.finish()), BlockValues::Data).unwrap()
    }

    fn assert_at(iter: &BlockIter, entries: &[(Vec<u8>, Tag, Vec<u8>)], index: Option<usize>) {
        let expected = index.and_then(|index| entries.get(index));
        assert_eq!(iter.key(), expected.map(|(user, tag, _)| InternalKey::new(user, *tag)));
        assert_eq!(iter.value(), expected.map_or(&[][..], |(_, _, value)| value));
    }

    #[test]
    fn every_entry_is_found_from_every_side_at_every_interval() {
        for (count, interval) in [(1, 16), (2, 1), (17, 16), (33, 4), (64, 16), (90, 3)] {
            let entries = model(count);
            let mut iter = block(&entries, interval);
            iter.verify().unwrap();
            for (index, (user, tag, _)) in entries.iter().enumerate() {
                let key = InternalKey::new(user, *tag);
                iter.seek(key).unwrap();
                assert_at(&iter, &entries, Some(index));
                iter.prev().unwrap();
                assert_at(&iter, &entries, index.checked_sub(1));
                iter.seek(InternalKey::new(&[user, &b"x"[..]].concat(), *tag)).unwrap();
                let next = entries.iter().position(|(other, ..)| other > user);
                assert_at(&iter, &entries, next);
            }
            iter.seek_first().unwrap();
            for index in 0..entries.len() {
                assert_at(&iter, &entries, Some(index));
                iter.next().unwrap();
            }
            assert_at(&iter, &entries, None);
            iter.seek_last().unwrap();
            for index in (0..entries.len()).rev() {
                assert_at(&iter, &entries, Some(index));
                iter.prev().unwrap();
            }
            assert_at(&iter, &entries, None);
        }
    }

    #[test]
    fn a_zigzag_walk_keeps_its_place() {
        let entries = model(80);
        let mut iter = block(&entries, 16);
        iter.seek_first().unwrap();
        let mut at = 0usize;
        for step in 0..5000u32 {
            let forward = step.wrapping_mul(2_654_435_761) >> 28 < 8 || at == 0;
            if forward && at + 1 < entries.len() {
                iter.next().unwrap();
                at += 1;
            } else {
                iter.prev().unwrap();
                at -= 1;
            }
            assert_at(&iter, &entries, Some(at));
        }
    }

    fn payload(entries: &[u8], restarts: &[u32]) -> Bytes {
        let mut out = entries.to_vec();
        restarts.iter().for_each(|restart| out.extend_from_slice(&restart.to_le_bytes()));
        out.extend_from_slice(&(restarts.len() as u32).to_le_bytes());
        out.into()
    }

    fn first_error(payload: Bytes, rule: BlockValues) -> Option<&'static str> {
        let run = || -> Result<(), Box<DecodeError>> {
            let mut iter = BlockIter::new(payload, rule)?;
            iter.verify()?;
            iter.seek_last()?;
            while iter.is_valid() {
                iter.prev()?;
            }
            Ok(())
        };
        run().err().map(|error| error.what)
    }

    #[test]
    fn impossible_payloads_are_refused() {
        let (a, b) = (&[0, 1, 1, 0, b'a'][..], &[0, 1, 1, 0, b'b'][..]);
        let two = [a, b].concat();
        let data = BlockValues::Data;
        assert_eq!(first_error(payload(&two, &[0]), data), None);
        assert_eq!(first_error(payload(&two, &[0, 5]), data), None);
        for (name, bytes, rule, what) in [
            ("empty", Bytes::new(), data, "restart count"),
            ("three bytes", Bytes::from_static(&[0; 3]), data, "restart count"),
            ("no entries", payload(&[], &[0]), data, "restart count"),
            ("no restarts", payload(&two, &[]), data, "restart count"),
            ("too many restarts", Bytes::from_static(&[0xff; 40]), data, "restart count"),
            ("restart behind the entries", payload(&two, &[0, 10]), data, "restart offset"),
            ("restart inside an entry", payload(&two, &[0, 6]), data, "restart offset"),
            ("restart not at 0", payload(&two, &[5]), data, "restart interval"),
            ("restarts descend", payload(&two, &[5, 0]), data, "restart interval"),
            ("keys descend", payload(&[b, a].concat(), &[0]), data, "key order"),
            ("key twice", payload(&[a, a].concat(), &[0]), data, "key order"),
            ("first shares", payload(&[1, 1, 1, 0, b'a'], &[0]), data, "shared key length"),
            ("shares too much", payload(&[a, &[2, 1, 1, 0, b'b']].concat(), &[0]), data, "shared key length"),
            (
                "restart shares",
                payload(&[a, &[1, 1, 1, 0, b'b']].concat(), &[0, 5]),
                data,
                "shared key length",
            ),
            ("entry cut short", payload(&[0, 2, 1, 0, b'a'], &[0]), data, "entry"),
            ("tombstone with a value", payload(&[0, 0, 0, 2, 1], &[0]), data, "tombstone"),
            ("bad chunk reference", payload(&[0, 0, 1, 3, 1], &[0]), data, "chunked value offset"),
            ("chunked handle", payload(&[0, 0, 1, 3, 1], &[0]), BlockValues::Index, "value code"),
            ("reserved kind", payload(&[0, 0, 2, 0], &[0]), data, "entry kind"),
        ] {
            assert_eq!(first_error(bytes, rule), Some(what), "{name}");
        }
    }

    #[test]
    fn walking_back_over_a_too_long_interval_is_an_error() {
        let mut builder = vec![0, 1, 1, 0, b'a'];
        for extra in 0..16u8 {
            builder.extend_from_slice(&[1 + extra, 1, 1, 0, b'a']);
        }
        let mut iter = BlockIter::new(payload(&builder, &[0]), BlockValues::Data).unwrap();
        assert_eq!(iter.seek_last().unwrap_err().what, "restart interval");
        assert!(!iter.is_valid());
        assert_eq!(iter.verify().unwrap_err().what, "restart interval");
    }
}
