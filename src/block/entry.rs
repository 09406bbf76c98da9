//! One entry of a data or index block.
//!
//! ```text
//! shared varint · unshared varint · tag varint · value code varint · key suffix · value
//! ```
//!
//! The user key is the first `shared` bytes of the previous one, then the suffix. The tag (sequence number and kind)
//! takes one byte if the number is 0; compactions set it to 0 in old entries. The value code is `length << 1`, plus 1
//! for a [`ChunkRef`](super::ChunkRef). The numbers come first, so that a reader can skip an entry.

use std::ops::Range;

use byteorder::{ByteOrder, LittleEndian};

use crate::codec::{DecodeError, Reader, decode_varint};
use crate::key::{TAG_KIND_MAX, Tag};
use crate::limits::KEY_BYTES_MAX;

#[derive(Debug, Clone)]
pub(crate) struct RawEntry {
    pub(crate) shared: usize,
    pub(crate) tag: Tag,
    pub(super) chunked: bool,
    pub(crate) suffix: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// `entries` must contain the whole entry. [`why_not`] explains a failure.
#[inline(always)]
pub(super) fn decode_good(entries: &[u8], at: usize) -> Option<RawEntry> {
    let bytes = entries.get(at..)?;
    let (Head { shared, unshared, tag, code }, len) = match decode_short_head(bytes) {
        Some(head) => head,
        None => match decode_tagged_head(bytes) {
            Some(head) => head,
            None => decode_any_head(bytes)?,
        },
    };
    // No sum overflows: key lengths are limited, and a value length is below 2^63.
    let (value_len, left) = (code >> 1, (bytes.len() - len) as u64);
    if unshared + value_len > left {
        return None;
    }
    let start = at + len;
    let end = start + unshared as usize;
    Some(RawEntry {
        shared: shared as usize,
        tag: Tag::from_u64(tag)?,
        chunked: code & 1 == 1,
        suffix: start..end,
        value: end..end + value_len as usize,
    })
}

#[inline(always)]
pub(super) fn decode_after(entries: &[u8], at: usize, key_len: usize) -> Result<RawEntry, DecodeError> {
    match decode_good(entries, at) {
        Some(entry) if entry.shared <= key_len => Ok(entry),
        Some(entry) => Err(shares_too_much(at, entry.shared, key_len)),
        None => Err(why_not(entries, at)),
    }
}

#[cold]
fn shares_too_much(at: usize, shared: usize, key_len: usize) -> DecodeError {
    let detail = format!("{shared} of a key of {key_len} bytes");
    DecodeError::corrupt(at as u64, "shared key length", detail)
}

struct Head {
    shared: u64,
    unshared: u64,
    tag: u64,
    code: u64,
}

/// The most frequent case: the lengths take one byte each, and the value code one or two.
#[inline(always)]
fn decode_short_head(bytes: &[u8]) -> Option<(Head, usize)> {
    let &[shared, unshared, tag, low, high] = bytes.first_chunk::<5>()?;
    let (code, len) = match (low, high) {
        (..0x80, _) => (u64::from(low), 4),
        (_, 1..0x80) => (u64::from(low & 0x7f) | u64::from(high) << 7, 5),
        _ => return None,
    };
    let head = Head { shared: shared.into(), unshared: unshared.into(), tag: tag.into(), code };
    ((shared | unshared | tag) < 0x80).then_some((head, len))
}

const _: () = assert!(2 * 0x7f < KEY_BYTES_MAX);

/// Decodes a head whose tag takes up to six bytes, which is frequent before compactions.
#[inline(always)]
fn decode_tagged_head(bytes: &[u8]) -> Option<(Head, usize)> {
    let head = bytes.first_chunk::<10>()?;
    let (shared, unshared) = (head[0], head[1]);
    let word = LittleEndian::read_u64(&head[2..]);
    let (tag, tag_len) = decode_word(word)?;
    if tag_len > 6 || (shared | unshared) >= 0x80 {
        return None;
    }
    let rest = word >> (8 * tag_len);
    let (code, code_len) = match (rest as u8, (rest >> 8) as u8) {
        (low @ ..0x80, _) => (u64::from(low), 1),
        (low, high @ 1..0x80) => (u64::from(low & 0x7f) | u64::from(high) << 7, 2),
        _ => return None,
    };
    let head = Head { shared: shared.into(), unshared: unshared.into(), tag, code };
    Some((head, 2 + tag_len + code_len))
}

#[inline(always)]
fn decode_word(word: u64) -> Option<(u64, usize)> {
    let ends = !word & 0x8080_8080_8080_8080;
    if ends == 0 {
        return None;
    }
    let top = ends.trailing_zeros();
    let bytes = word & (u64::MAX >> (63 - top));
    if top > 7 && bytes >> (top - 7) == 0 {
        return None;
    }
    Some((join_sevens(bytes), (top as usize + 1) / 8))
}

#[inline(always)]
pub(super) fn join_sevens(bytes: u64) -> u64 {
    let pairs = bytes & 0x007f_007f_007f_007f | (bytes & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4
}

#[inline(never)]
fn decode_any_head(bytes: &[u8]) -> Option<(Head, usize)> {
    let mut len = 0;
    let mut number = || {
        let (value, bytes_read) = match *bytes.get(len..)? {
            [low @ ..0x80, ..] => (low.into(), 1),
            [low, high @ 1..0x80, ..] => (u64::from(low & 0x7f) | u64::from(high) << 7, 2),
            ref rest => decode_varint(rest)?,
        };
        len += bytes_read;
        Some(value)
    };
    let (shared, unshared, tag, code) = (number()?, number()?, number()?, number()?);
    let key_max = KEY_BYTES_MAX as u64;
    if shared > key_max || unshared > key_max - shared {
        return None;
    }
    Some((Head { shared, unshared, tag, code }, len))
}

#[cold]
pub(super) fn why_not(entries: &[u8], at: usize) -> DecodeError {
    let mut reader = Reader::new(entries.get(at..).unwrap_or_default());
    let names = ["shared key length", "key suffix length", "entry tag", "value code"];
    let mut numbers = [0; 4];
    for (number, name) in numbers.iter_mut().zip(names) {
        match reader.varint(name) {
            Ok(value) => *number = value,
            Err(error) => return error.at(at as u64),
        }
    }
    let ([shared, unshared, tag, code], left) = (numbers, reader.remaining() as u64);
    let wrong = |what, detail: String| DecodeError::corrupt(at as u64, what, detail);
    if shared > KEY_BYTES_MAX as u64 || unshared > KEY_BYTES_MAX as u64 - shared {
        return wrong("key length", format!("{shared} shared and {unshared} more bytes"));
    }
    if Tag::from_u64(tag).is_none() && unshared + (code >> 1) <= left {
        return DecodeError::unsupported(at as u64, "entry kind", tag & 0xff, TAG_KIND_MAX.into());
    }
    let left = left.saturating_sub(unshared);
    wrong("entry", format!("{unshared} key and {} value bytes, {left} left", code >> 1))
}

const VARINT_BYTES_MAX: usize = 10;

pub(super) const HEAD_BYTES_MAX: usize = 4 * VARINT_BYTES_MAX;

#[derive(Debug, Clone, Copy)]
pub(super) struct EncodedHead {
    numbers: [u64; 4],
    bytes: u128,
    pub(super) len: usize,
}

const WORD_BITS: u32 = 56;

impl EncodedHead {
    #[inline(always)]
    pub(super) fn new(shared: usize, unshared: usize, tag: Tag, value_len: usize, chunked: bool) -> Self {
        let (tag, code) = (tag.to_u64(), (value_len as u64) << 1 | u64::from(chunked));
        let numbers = [shared as u64, unshared as u64, tag, code];
        if (shared | unshared) >= 0x80 || code >= 1 << 14 || tag >> WORD_BITS > 0 {
            return Self { numbers, bytes: 0, len: long_head(numbers).1 };
        }
        let lens = numbers[0] | numbers[1] << 8;
        let (code, code_len) =
            if code < 0x80 { (code, 1) } else { (code & 0x7f | 0x80 | (code >> 7) << 8, 2) };
        if tag < 0x80 {
            return Self { numbers, bytes: u128::from(lens | tag << 16 | code << 24), len: 3 + code_len };
        }
        let (tag, tag_len) = encode_word(tag);
        let behind = 2 + tag_len;
        let bytes = u128::from(lens) | u128::from(tag) << 16 | u128::from(code) << (8 * behind);
        Self { numbers, bytes, len: behind + code_len }
    }

    #[inline(always)]
    fn put(&self, out: &mut Vec<u8>) {
        if self.bytes == 0 {
            // By a copy, so that `self` needs no memory.
            let long = *self;
            return long.put_long(out);
        }
        let end = out.len() + self.len;
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.truncate(end);
    }

    #[inline(never)]
    fn put_long(&self, out: &mut Vec<u8>) {
        let (head, len) = long_head(self.numbers);
        out.extend_from_slice(&head[..len]);
    }
}

#[inline(never)]
fn long_head(numbers: [u64; 4]) -> ([u8; HEAD_BYTES_MAX], usize) {
    let (mut head, mut len) = ([0; HEAD_BYTES_MAX], 0);
    for mut number in numbers {
        while number >= 0x80 {
            head[len] = number as u8 | 0x80;
            number >>= 7;
            len += 1;
        }
        head[len] = number as u8;
        len += 1;
    }
    (head, len)
}

#[inline]
fn encode_word(number: u64) -> (u64, usize) {
    let fours = number & 0x0fff_ffff | (number << 4) & 0x0fff_ffff_0000_0000;
    let pairs = fours & 0x0000_3fff_0000_3fff | (fours << 2) & 0x3fff_0000_3fff_0000;
    let bytes = pairs & 0x007f_007f_007f_007f | (pairs << 1) & 0x7f00_7f00_7f00_7f00;
    let last = (63 - (bytes | 1).leading_zeros()) / 8;
    let before = (1u64 << (8 * last)) - 1;
    (bytes | 0x8080_8080_8080_8080 & before, last as usize + 1)
}

#[inline(always)]
pub(super) fn encode(out: &mut Vec<u8>, head: &EncodedHead, suffix: &[u8], value: &[u8]) {
    head.put(out);
    put_suffix(out, suffix);
    out.extend_from_slice(value);
}

#[inline(always)]
fn put_suffix(out: &mut Vec<u8>, suffix: &[u8]) {
    match (suffix.first_chunk::<8>(), suffix.last_chunk::<8>()) {
        (Some(first), Some(last)) if suffix.len() <= 16 => {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(first);
            bytes[suffix.len() - 8..][..8].copy_from_slice(last);
            let end = out.len() + suffix.len();
            out.extend_from_slice(&bytes);
            out.truncate(end);
        }
        _ => out.extend_from_slice(suffix),
    }
}

#[inline(always)]
pub(super) fn is_greater(a: &[u8], b: &[u8]) -> bool {
    match (a.first(), b.first()) {
        (Some(first_of_a), Some(first_of_b)) if first_of_a != first_of_b => first_of_a > first_of_b,
        _ => a > b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::put_varint;
    use crate::key::EntryKind;

    fn decode(entries: &[u8], at: usize) -> Result<RawEntry, DecodeError> {
        decode_after(entries, at, usize::MAX)
    }

    #[test]
    fn numbers_of_all_lengths_are_words_as_they_are_byte_by_byte() {
        for bit in 0..64 {
            for number in [1 << bit, (1 << bit) - 1, u64::MAX >> bit] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, number);
                let len = bytes.len();
                if number >> WORD_BITS == 0 {
                    let (word, word_len) = encode_word(number);
                    assert_eq!((&word.to_le_bytes()[..word_len], word_len), (&bytes[..], len));
                }
                for rest in [0, 0x7f, 0x80, 0xff] {
                    bytes.resize(16, rest);
                    let word = LittleEndian::read_u64(&bytes);
                    assert_eq!(decode_word(word), (len <= 8).then_some((number, len)));
                    bytes.truncate(len);
                }
            }
        }
        for overlong in [&[0x80, 0][..], &[0xff, 0x80, 0]] {
            let mut bytes = overlong.to_vec();
            bytes.resize(8, 0xff);
            assert_eq!((decode_word(LittleEndian::read_u64(&bytes)), decode_varint(&bytes)), (None, None));
        }
    }

    #[test]
    fn entries_come_back_on_the_fast_and_on_the_slow_path() {
        for (shared, suffix, seqno, value, chunked) in [
            (0, &b""[..], 0, &b""[..], false),
            (0, b"1234567", 0, b"", false),
            (1, b"12345678", 0, b"value", false),
            (2, b"123456789abc", 1 << 20, b"value", false),
            (3, b"123456789abcdefg", 0, b"value", false),
            (4, b"123456789abcdefgh", 0, b"value", false),
            (3, b"abc", 0, b"value", false),
            (127, &[1; 127], 0, &[2; 63], false),
            (128, b"x", 1 << 50, &[2; 64], true),
            (3, b"abc", 1 << 20, &[2; 100], false),
            (3, b"abc", 1 << 20, &[2; 5], false),
            (3, b"abc", 1 << 40, &[2; 100], false),
            (3, b"abc", 1 << 42, &[2; 100], false),
            (3, b"abc", 1 << 20, &[2; 9000], true),
        ] {
            let mut out = vec![0xff];
            let tag = Tag::new(seqno, EntryKind::Put);
            encode(
                &mut out,
                &EncodedHead::new(shared, suffix.len(), tag, value.len(), chunked),
                suffix,
                value,
            );
            let entry = decode(&out, 1).unwrap();
            assert_eq!((entry.shared, entry.chunked, entry.tag.seqno()), (shared, chunked, seqno));
            assert_eq!((&out[entry.suffix], &out[entry.value.clone()]), (suffix, value));
            assert_eq!(entry.value.end, out.len());
            for len in 1..out.len() {
                assert!(decode(&out[..len], 1).is_err(), "{len}");
            }
        }
    }

    #[test]
    fn heads_of_any_bytes_are_the_same_on_all_paths() {
        let parts = |(head, len): (Head, usize)| (head.shared, head.unshared, head.tag, head.code, len);
        let (mut state, mut fast) = (1u64, 0);
        for _ in 0..200_000 {
            let mut bytes = [0; 12];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = [0, 1, 0x7f, 0x80, 0x81, 0xff, 5, 0x42][(state >> 61) as usize];
            }
            for head in [decode_short_head(&bytes), decode_tagged_head(&bytes)].into_iter().flatten() {
                assert_eq!(Some(parts(head)), decode_any_head(&bytes).map(parts), "{bytes:?}");
                fast += 1;
            }
        }
        assert!(fast > 10_000, "{fast}");
    }

    #[test]
    fn impossible_entries_are_refused() {
        let encoded = |numbers: [u64; 4]| {
            let mut out = Vec::new();
            numbers.iter().for_each(|&n| put_varint(&mut out, n));
            out.resize(out.len() + 16, 0);
            out
        };
        for (numbers, what) in [
            ([65_536, 1, 1, 0], "key length"),
            ([1, 65_536, 1, 0], "key length"),
            ([u64::MAX, u64::MAX, 1, 0], "key length"),
            ([0, 17, 1, 0], "entry"),
            ([0, 16, 1, 2], "entry"),
            ([0, 0, 1, u64::MAX], "entry"),
            ([0, 1, 2, 0], "entry kind"),
            ([0, 1, 0x1ff, 0], "entry kind"),
        ] {
            assert_eq!(decode(&encoded(numbers), 0).unwrap_err().what, what, "{numbers:?}");
        }
        assert!(decode(&[], 0).is_err());
        assert!(decode(&[0, 0, 1, 0], 9).is_err());
    }
}
