//! The nodes of a memtable: an entry, and the links to its neighbours, in words of the arena.
//!
//! ```text
//! words
//! 0, 1     prefix: the first eight bytes of the user key, filled up with zeros
//! 2        link to the node before
//! 3        shape: height, 4 bits · length of the value, 11 bits · length of the key, 17 bits
//! 4, 5     tag
//! 6        the node that was inserted before this one
//! 7 ..     links to the next node, one for each level that the node reaches
//!          the rest of the key · the value, each from a new word; or the number of a long entry
//! ```
//!
//! Bytes of keys are in words in big-endian order, so keys are compared word by word; those of values in little-endian
//! order, as most processors copy them. An entry whose key and value have more than [`SHORT_BYTES_MAX`] is *long*: its
//! key and value are in an allocation of their own (`long`).

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU32, Ordering as Memory};

use byteorder::{BigEndian, ByteOrder, LittleEndian};

use super::arena::{Arena, Place, Room};
use crate::key::{Tag, key_prefix};

/// Where a node begins.
pub(super) type NodeId = Place;

/// The sentinel before the first entry and after the last: the list is a ring.
pub(super) const HEAD: NodeId = 0;

/// Levels of the highest nodes: enough for 4^12, or 16 million, entries; beyond, searches slowly lengthen.
pub(super) const HEIGHT_MAX: usize = 12;

const PREFIX: usize = 0;
const PREV: usize = 2;
const SHAPE: usize = 3;
const TAG: usize = 4;
const INSERTED_BEFORE: usize = 6;
const NEXT: usize = 7;

const WORD_BYTES: usize = size_of::<AtomicU32>();
const PREFIX_BYTES: usize = 2 * WORD_BYTES;

/// The most bytes of key and value together that are in the node.
pub(super) const SHORT_BYTES_MAX: usize = 1 << 10;

/// The most that a node takes beside the key and the value in it.
pub(super) const OVERHEAD_BYTES_MAX: usize = (NEXT + HEIGHT_MAX + 2) * WORD_BYTES;

/// In place of the length of a value: the entry is long.
const LONG: u32 = (1 << VALUE_BITS) - 1;
const VALUE_BITS: u32 = 11;
const KEY_BITS: u32 = 17;

/// What a node holds.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    Short(&'a [u8], &'a [u8]),
    /// The number of a long entry, and its key.
    Long(u32, &'a [u8]),
}

impl<'a> Content<'a> {
    fn key(self) -> &'a [u8] {
        match self {
            Self::Short(key, _) | Self::Long(_, key) => key,
        }
    }

    /// How many words a node of this height takes.
    pub(super) fn words(self, height: usize) -> usize {
        NEXT + height
            + match self {
                Self::Short(key, value) => {
                    rest(key).len().div_ceil(WORD_BYTES) + value.len().div_ceil(WORD_BYTES)
                }
                Self::Long(..) => 1,
            }
    }
}

/// A key without its prefix.
fn rest(key: &[u8]) -> &[u8] {
    key.get(PREFIX_BYTES..).unwrap_or_default()
}

/// A node in its arena.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) id: NodeId,
    /// From its first word to the end of the chunk.
    words: &'a [AtomicU32],
}

impl<'a> Node<'a> {
    /// The node with this number, which was read from a link or has been taken from the arena.
    #[inline]
    pub(super) fn at(arena: &'a Arena, id: NodeId) -> Self {
        Self { id, words: arena.words(id) }
    }

    /// The same for the writer.
    #[inline]
    pub(super) fn of_writer(room: &'a Room, id: NodeId) -> Self {
        Self { id, words: room.words(id) }
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        self.words[at].load(Memory::Relaxed)
    }

    #[inline]
    fn two_words(&self, at: usize) -> u64 {
        u64::from(self.word(at)) << u32::BITS | u64::from(self.word(at + 1))
    }

    /// Fills the node, all but its links.
    pub(super) fn fill(&self, height: usize, tag: Tag, inserted_before: NodeId, content: Content<'_>) {
        let key = content.key();
        let value_len = match content {
            Content::Short(_, value) => value.len() as u32,
            Content::Long(..) => LONG,
        };
        let (head, rest_of_node) =
            self.words.split_first_chunk::<NEXT>().expect("a node has its first words");
        let set = |at: usize, word| head[at].store(word, Memory::Relaxed);
        let set_two = |at, words: u64| {
            set(at, (words >> u32::BITS) as u32);
            set(at + 1, words as u32);
        };
        set_two(PREFIX, key_prefix(key));
        set(SHAPE, (height as u32) << (VALUE_BITS + KEY_BITS) | value_len << KEY_BITS | key.len() as u32);
        set_two(TAG, tag.to_u64());
        set(INSERTED_BEFORE, inserted_before);
        let data = &rest_of_node[height..];
        match content {
            Content::Short(key, value) => {
                put_bytes::<BigEndian>(data, rest(key));
                put_bytes::<LittleEndian>(&data[rest(key).len().div_ceil(WORD_BYTES)..], value);
            }
            Content::Long(number, _) => data[0].store(number, Memory::Relaxed),
        }
    }

    /// The first bytes of the user key, see [`key_prefix`].
    #[inline]
    pub(super) fn prefix(&self) -> u64 {
        self.two_words(PREFIX)
    }

    #[inline]
    pub(super) fn tag(&self) -> Tag {
        Tag::from_raw(self.two_words(TAG))
    }

    pub(super) fn inserted_before(&self) -> NodeId {
        self.word(INSERTED_BEFORE)
    }

    /// The link to the next node on a level that this one reaches.
    #[inline]
    pub(super) fn next(&self, level: usize) -> &'a AtomicU32 {
        &self.words[NEXT + level]
    }

    #[inline]
    pub(super) fn prev(&self) -> &'a AtomicU32 {
        &self.words[PREV]
    }

    pub(super) fn key_len(&self) -> usize {
        (self.word(SHAPE) & ((1 << KEY_BITS) - 1)) as usize
    }

    /// `None`: the entry is long.
    fn value_len(&self) -> Option<usize> {
        let len = self.word(SHAPE) >> KEY_BITS & LONG;
        (len != LONG).then_some(len as usize)
    }

    fn data(&self) -> &'a [AtomicU32] {
        let height = self.word(SHAPE) >> (VALUE_BITS + KEY_BITS);
        &self.words[NEXT + height as usize..]
    }

    /// The number of a long entry.
    #[inline]
    pub(super) fn long(&self) -> Option<u32> {
        if self.value_len().is_some() { None } else { Some(self.data()[0].load(Memory::Relaxed)) }
    }

    fn rest_len(&self) -> usize {
        self.key_len().saturating_sub(PREFIX_BYTES)
    }

    /// Compares the user key of a short entry with a key of the same prefix.
    pub(super) fn compare(&self, key: &[u8]) -> Ordering {
        let stored = &self.data()[..self.rest_len().div_ceil(WORD_BYTES)];
        let stored = stored.iter().map(|word| word.load(Memory::Relaxed));
        let mut pairs = stored.zip(rest(key).chunks(WORD_BYTES).map(word_of));
        let other = pairs.find(|(stored, word)| stored != word);
        other.map_or_else(|| self.key_len().cmp(&key.len()), |(stored, word)| stored.cmp(&word))
    }

    /// Puts the user key of a short entry into a buffer.
    #[inline]
    pub(super) fn copy_key(&self, out: &mut Vec<u8>) {
        let len = self.key_len();
        out.resize(len.max(PREFIX_BYTES), 0);
        if let Some((prefix, rest)) = out.split_first_chunk_mut::<PREFIX_BYTES>() {
            BigEndian::write_u64(prefix, self.prefix());
            copy_bytes::<BigEndian>(self.data(), rest);
        }
        out.truncate(len);
    }

    /// Puts the value of a short entry into a buffer.
    #[inline]
    pub(super) fn copy_value(&self, out: &mut Vec<u8>) {
        let len = self.value_len().unwrap_or_default();
        out.reserve_exact(len.saturating_sub(out.len()));
        out.resize(len, 0);
        copy_bytes::<LittleEndian>(&self.data()[self.rest_len().div_ceil(WORD_BYTES)..], out);
    }
}

/// The bytes, at most four, as a word.
#[inline]
fn word_of(bytes: &[u8]) -> u32 {
    match bytes.first_chunk::<WORD_BYTES>() {
        Some(whole) => BigEndian::read_u32(whole),
        None => bytes.iter().enumerate().fold(0, |word, (at, &byte)| word | u32::from(byte) << (24 - 8 * at)),
    }
}

/// Puts bytes into words, four words at a time: to look at the ends of both for each costs as much as to copy it. The last
/// word is filled up with zeros.
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

/// Fills a slice with the bytes of words, four words at a time.
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
    use super::super::arena::Room;
    use super::*;
    use crate::key::EntryKind;
    use crate::limits::KEY_BYTES_MAX;

    #[test]
    fn every_length_of_key_and_value_has_room_in_the_shape() {
        assert!(KEY_BYTES_MAX < 1 << KEY_BITS && SHORT_BYTES_MAX < LONG as usize);
        assert_eq!((HEIGHT_MAX as u32).ilog2() + 1 + VALUE_BITS + KEY_BITS, u32::BITS);
    }

    #[test]
    fn entries_come_back_and_keys_compare_as_their_bytes_do() {
        let (arena, mut room, mut random) = (Arena::default(), Room::default(), 7u64);
        let mut below = |n: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % n
        };
        let mut nodes: Vec<(Node<'_>, Vec<u8>)> = Vec::new();
        for seqno in 0..if cfg!(miri) { 40 } else { 400 } {
            let mut bytes = |most| (0..below(most)).map(|_| [0, 1, 0x7f, 0xff][below(4) as usize]).collect();
            let (mut key, value): (Vec<u8>, Vec<u8>) = (bytes(8), bytes(30));
            key.splice(0..0, *b"the same");
            let (height, content) = (1 + below(12) as usize, Content::Short(&key, &value));
            let words = content.words(height);
            assert!(4 * words <= OVERHEAD_BYTES_MAX + key.len() + value.len());
            let node = Node::at(&arena, room.take(&arena, words).0);
            let tag = Tag::new(seqno, EntryKind::Put);
            node.fill(height, tag, seqno as NodeId, content);
            (0..height).for_each(|level| node.next(level).store(u32::MAX, Memory::Relaxed));
            node.prev().store(u32::MAX, Memory::Relaxed);
            let (mut copy, mut copied) = (Vec::new(), Vec::new());
            node.copy_key(&mut copy);
            node.copy_value(&mut copied);
            assert_eq!((node.tag(), node.long(), node.inserted_before()), (tag, None, seqno as NodeId));
            assert_eq!((copy, copied, node.prefix()), (key.clone(), value, key_prefix(&key)));
            for (other, other_key) in &nodes {
                assert_eq!(other.compare(&key), other_key.cmp(&key), "{other_key:?} {key:?}");
                assert_eq!(node.compare(other_key), key.cmp(other_key));
            }
            assert_eq!(node.compare(&key), Ordering::Equal);
            nodes.push((node, key));
        }
    }
}
