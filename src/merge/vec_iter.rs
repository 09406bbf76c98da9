//! Test helpers: internal iterators over a vector, with failures on request, and over a block; a generator of random
//! keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::block::{BlockBuilder, BlockIter, BlockValues};
use crate::error::{Error, Step};
use crate::iter::{EntryValue, InternalIterator, LentValue};
use crate::key::{EntryKind, InternalKey, Tag, key_prefix};

pub(crate) type Entry = (Vec<u8>, Tag, Vec<u8>);

pub(crate) struct VecIter {
    entries: Vec<Entry>,
    at: Option<usize>,
    movements: Arc<AtomicUsize>,
    failing_at: usize,
}

impl VecIter {
    pub(crate) fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|a, b| internal(a).cmp(&internal(b)));
        entries.dedup_by(|a, b| internal(a) == internal(b));
        Self::sorted(entries)
    }

    pub(crate) fn sorted(entries: Vec<Entry>) -> Self {
        Self { entries, at: None, movements: Arc::default(), failing_at: usize::MAX }
    }

    /// Fails at this call (the first is 0) and at all later ones.
    pub(crate) fn failing_at(mut self, movement: usize) -> Self {
        self.failing_at = movement;
        self
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn movements(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.movements)
    }

    fn move_to(&mut self, at: Option<usize>) -> Step {
        self.at = at.filter(|&at| at < self.entries.len());
        if self.movements.fetch_add(1, Ordering::Relaxed) >= self.failing_at {
            self.at = None;
            return Err(Error::invalid("told to fail").into());
        }
        Ok(())
    }

    fn count_before(&self, target: InternalKey<'_>) -> usize {
        self.entries.partition_point(|entry| internal(entry) < target)
    }
}

fn internal(entry: &Entry) -> InternalKey<'_> {
    InternalKey::new(&entry.0, entry.1)
}

impl InternalIterator for VecIter {
    fn seek_first(&mut self) -> Step {
        self.move_to(Some(0))
    }

    fn seek_last(&mut self) -> Step {
        self.move_to(self.entries.len().checked_sub(1))
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Step {
        self.move_to(Some(self.count_before(target)))
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
        self.move_to(self.count_before(target).checked_sub(1))
    }

    fn next(&mut self) -> Step {
        assert!(self.at.is_some() || self.movements.load(Ordering::Relaxed) > self.failing_at);
        self.move_to(self.at.map(|at| at + 1))
    }

    fn prev(&mut self) -> Step {
        assert!(self.at.is_some() || self.movements.load(Ordering::Relaxed) > self.failing_at);
        self.move_to(self.at.and_then(|at| at.checked_sub(1)))
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        self.at.map(|at| internal(&self.entries[at]))
    }

    fn value(&self) -> EntryValue {
        EntryValue::Inline(Bytes::from(self.entries[self.at.expect("stands on an entry")].2.clone()))
    }

    fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)> {
        let entry = &self.entries[self.at?];
        Some((internal(entry), LentValue::Inline(&entry.2)))
    }
}

pub(crate) struct BlockSource {
    block: BlockIter,
    last: u64,
}

impl BlockSource {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        let sorted = VecIter::new(entries);
        let mut builder = BlockBuilder::new(4);
        for entry in sorted.entries() {
            builder.add(internal(entry), &entry.2, false);
        }
        let payload = Bytes::copy_from_slice(builder.finish());
        let last = key_prefix(&sorted.entries()[sorted.entries().len() - 1].0);
        Self { block: BlockIter::new(payload, BlockValues::Data).unwrap(), last }
    }
}

impl InternalIterator for BlockSource {
    fn seek_first(&mut self) -> Step {
        self.block.seek_first().unwrap();
        Ok(())
    }

    fn seek_last(&mut self) -> Step {
        self.block.seek_last().unwrap();
        Ok(())
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Step {
        self.block.seek(target).unwrap();
        Ok(())
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
        self.block.seek(target).unwrap();
        if self.block.is_valid() { self.prev() } else { self.seek_last() }
    }

    fn next(&mut self) -> Step {
        self.block.next().unwrap();
        Ok(())
    }

    fn prev(&mut self) -> Step {
        self.block.prev().unwrap();
        Ok(())
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        self.block.key()
    }

    fn value(&self) -> EntryValue {
        EntryValue::Inline(self.block.value_bytes())
    }

    fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)> {
        Some((self.block.key()?, LentValue::Inline(self.block.value())))
    }

    fn block(&self) -> Option<&BlockIter> {
        Some(&self.block)
    }

    fn leading_block(&mut self, limit: Option<u64>) -> Option<&mut BlockIter> {
        limit.is_none_or(|limit| self.last < limit).then_some(&mut self.block)
    }
}

pub(crate) fn here(iter: &dyn InternalIterator) -> Option<Entry> {
    let key = iter.key()?;
    Some((key.user.to_vec(), key.tag, iter.value().read().unwrap().to_vec()))
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    pub(crate) fn key(&mut self) -> Vec<u8> {
        (0..self.below(4)).map(|_| [0, b'a', 0xff][self.below(3) as usize]).collect()
    }

    pub(crate) fn tag(&mut self, seqnos: u64) -> Tag {
        let kind = if self.below(3) == 0 { EntryKind::Delete } else { EntryKind::Put };
        Tag::new(self.below(seqnos), kind)
    }

    pub(crate) fn target(&mut self, seqnos: u64) -> Tag {
        if self.below(2) == 0 { self.tag(seqnos) } else { Tag::newest_at(self.below(seqnos + 1)) }
    }
}
