//! One entry of a data or index block.
//!
//! ```text
//! shared varint · unshared varint · tag varint · value code varint · key suffix · value
//! ```
//!
//! The user key is the first `shared` bytes of the previous entry's user key followed by the suffix of
//! `unshared` bytes. The tag is sequence number and kind. At sequence number 0, which compactions give to old
//! entries, it takes one byte. The value code is `length << 1`, plus 1 if the value is in chunks and these
//! bytes are a [`ChunkRef`](super::ChunkRef). The four numbers come first so that the common entry, all of
//! them below 128, is decoded by one comparison.

use std::ops::Range;

use crate::codec::{DecodeError, Reader, decode_varint, put_varint};
use crate::key::{ENTRY_KIND_MAX, Tag};
use crate::limits::KEY_BYTES_MAX;

/// Where the parts of an entry lie in the payload.
#[derive(Debug, Clone)]
pub(crate) struct RawEntry {
    pub(crate) shared: usize,
    pub(crate) tag: Tag,
    pub(crate) chunked: bool,
    pub(crate) suffix: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// The numbers in front of an entry's bytes.
struct Head {
    shared: u64,
    unshared: u64,
    tag: u64,
    code: u64,
    len: usize,
}

/// Decodes the entry at `at`; all of it must lie in `entries`.
#[inline]
pub(crate) fn decode(entries: &[u8], at: usize) -> Result<RawEntry, DecodeError> {
    let bytes = entries.get(at..).unwrap_or_default();
    let head = match *bytes {
        [shared, unshared, tag, code, ..] if (shared | unshared | tag | code) < 0x80 => Head {
            shared: shared.into(),
            unshared: unshared.into(),
            tag: tag.into(),
            code: code.into(),
            len: 4,
        },
        _ => match decode_head(bytes) {
            Some(head) => head,
            None => return Err(head_error(bytes).at(at as u64)),
        },
    };
    // Neither sum can overflow: the first operands are bounded by the limit of a key and by memory.
    let wrong = |what, detail: String| Err(DecodeError::corrupt(at as u64, what, detail));
    if head.shared > KEY_BYTES_MAX as u64 || head.unshared > KEY_BYTES_MAX as u64 - head.shared {
        return wrong("key length", format!("{} shared and {} more bytes", head.shared, head.unshared));
    }
    let suffix = at + head.len..at + head.len + head.unshared as usize;
    let left = entries.len().saturating_sub(suffix.end) as u64;
    if suffix.end > entries.len() || head.code >> 1 > left {
        let detail = format!("{} key and {} value bytes, {left} left", head.unshared, head.code >> 1);
        return wrong("entry", detail);
    }
    let Some(tag) = Tag::from_u64(head.tag) else {
        return Err(DecodeError::unsupported(
            at as u64,
            "entry kind",
            head.tag & 0xff,
            ENTRY_KIND_MAX.into(),
        ));
    };
    let value = suffix.end..suffix.end + (head.code >> 1) as usize;
    Ok(RawEntry { shared: head.shared as usize, tag, chunked: head.code & 1 == 1, suffix, value })
}

#[inline]
fn decode_head(bytes: &[u8]) -> Option<Head> {
    let mut len = 0;
    let mut number = || {
        let (value, bytes_read) = decode_varint(bytes.get(len..)?)?;
        len += bytes_read;
        Some(value)
    };
    let (shared, unshared, tag, code) = (number()?, number()?, number()?, number()?);
    Some(Head { shared, unshared, tag, code, len })
}

/// Which number [`decode_head`] could not read.
#[cold]
fn head_error(bytes: &[u8]) -> DecodeError {
    let mut reader = Reader::new(bytes);
    let names = ["shared key length", "key suffix length", "entry tag", "value code"];
    let error = names.into_iter().find_map(|name| reader.varint(name).err());
    error.unwrap_or_else(|| reader.corrupt("entry", "cannot be read"))
}

/// Appends an entry.
pub(super) fn encode(out: &mut Vec<u8>, shared: usize, suffix: &[u8], tag: Tag, value: &[u8], chunked: bool) {
    put_varint(out, shared as u64);
    put_varint(out, suffix.len() as u64);
    put_varint(out, tag.to_u64());
    put_varint(out, (value.len() as u64) << 1 | u64::from(chunked));
    out.extend_from_slice(suffix);
    out.extend_from_slice(value);
}

/// Length of the longest common prefix.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    let whole = words.take_while(|(x, y)| x == y).count() * 8;
    let rest = a[whole..].iter().zip(&b[whole..]);
    whole + rest.take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;

    #[test]
    fn entries_come_back_on_the_fast_and_on_the_slow_path() {
        for (shared, suffix, seqno, value, chunked) in [
            (0, &b""[..], 0, &b""[..], false),
            (3, b"abc", 0, b"value", false),
            (127, &[1; 127], 0, &[2; 63], false),
            (128, b"x", 1 << 50, &[2; 64], true),
        ] {
            let mut out = vec![0xff];
            encode(&mut out, shared, suffix, Tag::new(seqno, EntryKind::Put), value, chunked);
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

    #[test]
    fn the_common_prefix_is_found_in_and_behind_whole_words() {
        let long = [7u8; 40];
        for len in 0..40 {
            let mut other = long;
            other[len] = 8;
            assert_eq!(common_prefix(&long, &other), len);
            assert_eq!(common_prefix(&long[..len], &long), len);
        }
    }
}
