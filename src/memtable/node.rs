//! The nodes of a memtable: an entry, and the links to its neighbours, in words of the arena.
//!
//! ```text
//! words
//! 0        shape: free, 4 bits, the first is 1 in branches · length of the value, 11 bits · length of the key, 17 bits
//! 1        link to the node before
//! 2        link to the next node
//! 3, 4     tag
//! 5        the node that was inserted before this one
//! 6 ..     the key · the value, each from a new word; or the number of a long entry
//! ```
//!
//! Words of keys are big-endian, so that words compare like keys; words of values are little-endian, which is fastest
//! to copy. A key and value of more than [`SHORT_BYTES_MAX`] bytes have their own allocation (`long`).

use std::sync::atomic::{AtomicU32, Ordering as Memory};

use byteorder::{BigEndian, ByteOrder, LittleEndian};

use super::arena::{Place, Words};
use super::digits::{Difference, Target};
use crate::key::Tag;

pub(super) type NodeId = Place;

pub(super) const HEAD: NodeId = 0;

const SHAPE: usize = 0;
const PREV: usize = 1;
const NEXT: usize = 2;
const TAG: usize = 3;
const INSERTED_BEFORE: usize = 5;
const DATA: usize = 6;

pub(super) const ROOT: Place = HEAD + DATA as Place;

const WORD_BYTES: usize = size_of::<AtomicU32>();

pub(super) const SHORT_BYTES_MAX: usize = 1 << 10;

pub(super) const OVERHEAD_BYTES_MAX: usize = (DATA + 2) * WORD_BYTES;

const LONG: u32 = (1 << VALUE_BITS) - 1;
const VALUE_BITS: u32 = 11;
const KEY_BITS: u32 = 17;

#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    Short(&'a [u8], &'a [u8]),
    Long(u32, usize),
}

impl Content<'_> {
    pub(super) fn words(self) -> usize {
        DATA + match self {
            Self::Short(key, value) => key.len().div_ceil(WORD_BYTES) + value.len().div_ceil(WORD_BYTES),
            Self::Long(..) => 1,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    words: &'a [AtomicU32],
}

impl<'a> Node<'a> {
    #[inline]
    pub(super) fn at(memory: &'a impl Words, id: NodeId) -> Self {
        Self { words: memory.words(id) }
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        self.words[at].load(Memory::Relaxed)
    }

    pub(super) fn fill(&self, tag: Tag, inserted_before: NodeId, content: Content<'_>) {
        let (key_len, value_len) = match content {
            Content::Short(key, value) => (key.len(), value.len() as u32),
            Content::Long(_, key_len) => (key_len, LONG),
        };
        let (head, data) = self.words.split_first_chunk::<DATA>().expect("a node has its first words");
        let set = |at: usize, word| head[at].store(word, Memory::Relaxed);
        set(SHAPE, value_len << KEY_BITS | key_len as u32);
        set(TAG, (tag.to_u64() >> u32::BITS) as u32);
        set(TAG + 1, tag.to_u64() as u32);
        set(INSERTED_BEFORE, inserted_before);
        match content {
            Content::Short(key, value) => {
                put_bytes::<BigEndian>(data, key);
                put_bytes::<LittleEndian>(&data[key.len().div_ceil(WORD_BYTES)..], value);
            }
            Content::Long(number, _) => data[0].store(number, Memory::Relaxed),
        }
    }

    #[inline]
    pub(super) fn tag(&self) -> Tag {
        Tag::from_raw(u64::from(self.word(TAG)) << u32::BITS | u64::from(self.word(TAG + 1)))
    }

    pub(super) fn inserted_before(&self) -> NodeId {
        self.word(INSERTED_BEFORE)
    }

    #[inline]
    pub(super) fn next(&self) -> &'a AtomicU32 {
        &self.words[NEXT]
    }

    #[inline]
    pub(super) fn prev(&self) -> &'a AtomicU32 {
        &self.words[PREV]
    }

    #[inline]
    pub(super) fn key_len(&self) -> usize {
        (self.word(SHAPE) & ((1 << KEY_BITS) - 1)) as usize
    }

    fn value_len(&self) -> Option<usize> {
        let len = self.word(SHAPE) >> KEY_BITS & LONG;
        (len != LONG).then_some(len as usize)
    }

    fn key_words(&self) -> usize {
        self.key_len().div_ceil(WORD_BYTES)
    }

    #[inline]
    pub(super) fn long(&self) -> Option<u32> {
        if self.value_len().is_some() { None } else { Some(self.word(DATA)) }
    }

    #[inline]
    pub(super) fn difference(&self, target: &Target<'_>) -> Difference {
        let words = &self.words[DATA..][..self.key_words()];
        let (mut rest, mut at) = (target.user(), 0);
        for [high, low] in words.as_chunks::<2>().0 {
            let Some((bytes, others)) = rest.split_first_chunk::<{ 2 * WORD_BYTES }>() else { break };
            let (high, low) = (high.load(Memory::Relaxed), low.load(Memory::Relaxed));
            let (entry, other) = (u64::from(high) << u32::BITS | u64::from(low), BigEndian::read_u64(bytes));
            if entry != other {
                return Difference::of_numbers(at, entry, other);
            }
            rest = others;
            at += 2 * DIGITS_OF_WORD;
        }
        for word in &words[(at / DIGITS_OF_WORD) as usize..] {
            let other = match rest.split_first_chunk::<WORD_BYTES>() {
                Some((bytes, others)) => {
                    rest = others;
                    BigEndian::read_u32(bytes)
                }
                None => word_of(std::mem::take(&mut rest)),
            };
            let entry = word.load(Memory::Relaxed);
            if entry != other {
                return Difference::of_words(at, entry, other);
            }
            at += DIGITS_OF_WORD;
        }
        self.difference_behind(rest, at, target)
    }

    /// The target before `rest` must equal the entry's key, zero-padded.
    fn difference_behind(&self, rest: &[u8], at: u32, target: &Target<'_>) -> Difference {
        match rest.iter().position(|&byte| byte != 0) {
            Some(more) => Difference::of_bytes(at + 2 * more as u32, 0, rest[more]),
            None => Difference::behind_keys((self.key_len(), self.tag().to_u64()), target),
        }
    }

    #[inline]
    pub(super) fn copy_key(&self, out: &mut Vec<u8>) {
        out.resize(self.key_len(), 0);
        copy_bytes::<BigEndian>(&self.words[DATA..], out);
    }

    #[inline]
    pub(super) fn copy_value(&self, out: &mut Vec<u8>) {
        let len = self.value_len().unwrap_or_default();
        out.reserve_exact(len.saturating_sub(out.len()));
        out.resize(len, 0);
        copy_bytes::<LittleEndian>(&self.words[DATA + self.key_words()..], out);
    }
}

const DIGITS_OF_WORD: u32 = 2 * WORD_BYTES as u32;

#[inline]
fn word_of(bytes: &[u8]) -> u32 {
    match bytes.first_chunk::<WORD_BYTES>() {
        Some(whole) => BigEndian::read_u32(whole),
        None => bytes.iter().enumerate().fold(0, |word, (at, &byte)| word | u32::from(byte) << (24 - 8 * at)),
    }
}

/// Copies four words at a time, because checking bounds costs as much as copying a word.
#[inline]
fn put_bytes<B: ByteOrder>(words: &[AtomicU32], bytes: &[u8]) {
    let (words, last) = words[..bytes.len().div_ceil(WORD_BYTES)].split_at(bytes.len() / WORD_BYTES);
    let (whole, rest) = bytes.as_chunks::<WORD_BYTES>();
    let ((four_words, words), (fours, whole)) = (words.as_chunks::<4>(), whole.as_chunks::<4>());
    let put = |word: &AtomicU32, bytes: &[u8; WORD_BYTES]| word.store(B::read_u32(bytes), Memory::Relaxed);
    for (words, bytes) in four_words.iter().zip(fours) {
        (0..4).for_each(|at| put(&words[at], &bytes[at]));
    }
    words.iter().zip(whole).for_each(|(word, bytes)| put(word, bytes));
    if let Some(word) = last.first() {
        let mut last = [0; WORD_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        put(word, &last);
    }
}

#[inline]
fn copy_bytes<B: ByteOrder>(words: &[AtomicU32], out: &mut [u8]) {
    let (words, last) = words[..out.len().div_ceil(WORD_BYTES)].split_at(out.len() / WORD_BYTES);
    let (whole, rest) = out.as_chunks_mut::<WORD_BYTES>();
    let ((four_words, words), (fours, whole)) = (words.as_chunks::<4>(), whole.as_chunks_mut::<4>());
    let get =
        |word: &AtomicU32, bytes: &mut [u8; WORD_BYTES]| B::write_u32(bytes, word.load(Memory::Relaxed));
    for (words, bytes) in four_words.iter().zip(fours) {
        (0..4).for_each(|at| get(&words[at], &mut bytes[at]));
    }
    words.iter().zip(whole).for_each(|(word, bytes)| get(word, bytes));
    if let Some(word) = last.first() {
        let mut last = [0; WORD_BYTES];
        get(word, &mut last);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::{Arena, Room};
    use super::super::digits::END;
    use super::*;
    use crate::key::{EntryKind, InternalKey};
    use crate::limits::KEY_BYTES_MAX;

    #[test]
    fn every_length_of_key_and_value_has_room_in_the_shape() {
        assert!(KEY_BYTES_MAX < 1 << KEY_BITS && SHORT_BYTES_MAX < LONG as usize);
        const { assert!(VALUE_BITS + KEY_BITS < u32::BITS, "the first bit is that of branches") };
    }

    #[test]
    fn entries_come_back_and_keys_compare_as_their_bytes_do() {
        let (arena, mut room, mut random) = (Arena::default(), Room::default(), 7u64);
        let mut below = |n: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % n
        };
        let mut nodes: Vec<(Node<'_>, Vec<u8>, Tag)> = Vec::new();
        for seqno in 0..if cfg!(miri) { 40 } else { 400 } {
            let mut bytes = |most| (0..below(most)).map(|_| [0, 1, 0x7f, 0xff][below(4) as usize]).collect();
            let (mut key, value): (Vec<u8>, Vec<u8>) = (bytes(8), bytes(30));
            key.splice(0..0, *b"the same");
            let content = Content::Short(&key, &value);
            let words = content.words();
            assert!(4 * words <= OVERHEAD_BYTES_MAX + key.len() + value.len());
            let node = Node::at(&arena, room.take(&arena, words).0);
            let tag = Tag::new(seqno, EntryKind::Put);
            node.fill(tag, seqno as NodeId, content);
            node.next().store(u32::MAX, Memory::Relaxed);
            node.prev().store(u32::MAX, Memory::Relaxed);
            let (mut copy, mut copied) = (Vec::new(), Vec::new());
            node.copy_key(&mut copy);
            node.copy_value(&mut copied);
            assert_eq!((node.tag(), node.long(), node.inserted_before()), (tag, None, seqno as NodeId));
            assert_eq!((copy, copied), (key.clone(), value));
            let target = Target::new(&key, tag);
            for (other, other_key, other_tag) in &nodes {
                let other_target = Target::new(other_key, *other_tag);
                let difference = other.difference(&target);
                let is_after = InternalKey::new(&key, tag) > InternalKey::new(other_key, *other_tag);
                assert_eq!(difference.is_after(), is_after, "{other_key:?} {key:?}");
                assert!((0..difference.at).all(|at| target.digit(at) == other_target.digit(at)));
                assert_eq!(difference.entry, other_target.digit(difference.at));
                assert_eq!(difference.target, target.digit(difference.at));
                assert_eq!(node.difference(&other_target).at, difference.at);
            }
            assert_eq!(node.difference(&target).at, END);
            nodes.push((node, key, tag));
        }
    }
}
