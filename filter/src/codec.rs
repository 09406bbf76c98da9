//! Little-endian integers, varints, and a reader with named fields.
//!
//! Decoding cannot panic, and allocates no more than the bytes that exist. Varints are LEB128 in the shortest encoding, up to
//! ten bytes.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use byteorder::{ByteOrder, LittleEndian};

/// A decoding error. The caller adds the path of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset in bytes, relative to the decoded unit.
    pub offset: u64,
    /// The field or structure.
    pub what: &'static str,
    pub kind: DecodeErrorKind,
}

/// Returns the error text for a wrong magic.
pub fn another_magic(expected: &[u8], found: &[u8]) -> String {
    format!("expected {}, found {}", hex_and_text(expected), hex_and_text(found))
}

/// Formats bytes, for example `89 53 0a (\x89S\n)`.
pub fn hex_and_text(bytes: &[u8]) -> String {
    let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} ({})", hex.join(" "), bytes.escape_ascii())
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The bytes are damaged. The text has the expected and the found value.
    Corrupt(String),
    /// The bytes are intact and newer than this code.
    Unsupported {
        /// The stored value.
        found: u64,
        /// The largest supported value, or the set of supported bits.
        supported: u64,
    },
}

impl DecodeError {
    #[cold]
    pub fn corrupt(offset: u64, what: &'static str, detail: impl Into<String>) -> Self {
        Self { offset, what, kind: DecodeErrorKind::Corrupt(detail.into()) }
    }

    #[cold]
    pub fn unsupported(offset: u64, what: &'static str, found: u64, supported: u64) -> Self {
        Self { offset, what, kind: DecodeErrorKind::Unsupported { found, supported } }
    }

    /// Adds `base` to the offset.
    #[must_use]
    pub fn at(mut self, base: u64) -> Self {
        self.offset = self.offset.saturating_add(base);
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DecodeErrorKind::Corrupt(detail) => {
                write!(f, "{} at offset {}: {detail}", self.what, self.offset)
            }
            DecodeErrorKind::Unsupported { found, supported } => {
                write!(f, "{} at offset {} is {found:#x}, known up to {supported:#x}", self.what, self.offset)
            }
        }
    }
}

impl core::error::Error for DecodeError {}

#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    base: u64,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, base: 0 }
    }

    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the offset of the next byte.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.base.saturating_add(self.position as u64)
    }

    pub fn read_so_far(&self) -> &'a [u8] {
        &self.bytes[..self.position]
    }

    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Returns an error at the current offset.
    #[cold]
    pub fn corrupt(&self, what: &'static str, detail: impl Into<String>) -> DecodeError {
        DecodeError::corrupt(self.offset(), what, detail)
    }

    #[inline]
    pub fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        if len > self.remaining() {
            return Err(self.too_short(len, what));
        }
        let found = &self.bytes[self.position..self.position + len];
        self.position += len;
        Ok(found)
    }

    #[cold]
    fn too_short(&self, len: usize, what: &'static str) -> DecodeError {
        self.corrupt(what, format!("needs {len} bytes, {} left", self.remaining()))
    }

    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N, what)?);
        Ok(out)
    }

    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(what)?[0])
    }

    #[inline]
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        Ok(LittleEndian::read_u16(self.bytes(2, what)?))
    }

    #[inline]
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        Ok(LittleEndian::read_u32(self.bytes(4, what)?))
    }

    #[inline]
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Ok(LittleEndian::read_u64(self.bytes(8, what)?))
    }

    #[inline]
    pub fn varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        match self.bytes.get(self.position) {
            Some(&byte) if byte < 0x80 => {
                self.position += 1;
                Ok(byte.into())
            }
            _ => self.longer_varint(what),
        }
    }

    #[inline(never)]
    fn longer_varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let start = self.position;
        match decode_varint(&self.bytes[start..]) {
            Some((value, len)) => {
                self.position += len;
                Ok(value)
            }
            None => Err(self.corrupt(what, "not a varint of at most 64 bits in its shortest form")),
        }
    }

    #[inline(never)]
    pub fn varint_up_to(&mut self, limit: u64, what: &'static str) -> Result<u64, DecodeError> {
        let start = self.offset();
        match self.varint(what)? {
            value if value <= limit => Ok(value),
            value => Err(over_limit(start, what, value, limit)),
        }
    }

    /// Reads a varint of at most `limit`, as `usize`.
    #[inline]
    pub fn length(&mut self, limit: u64, what: &'static str) -> Result<usize, DecodeError> {
        let start = self.offset();
        let value = self.varint(what)?;
        if value > limit || usize::try_from(value).is_err() {
            return Err(over_limit(start, what, value, limit));
        }
        Ok(value as usize)
    }

    /// Takes the remaining bytes.
    pub fn rest(&mut self) -> Self {
        let base = self.offset();
        let bytes = &self.bytes[self.position..];
        self.position = self.bytes.len();
        Self { bytes, position: 0, base }
    }

    #[inline]
    pub fn length_prefixed(&mut self, limit: u64, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = self.length(limit, what)?;
        self.bytes(len, what)
    }

    /// Skips bytes with a one-byte length prefix and returns the length. Skips nothing if the prefix is longer, or if
    /// bytes are missing.
    #[inline]
    pub fn skip_short(&mut self) -> Option<usize> {
        let (&len, after) = self.bytes.get(self.position..)?.split_first()?;
        let len = usize::from(len);
        let is_short = len < 0x80 && len <= after.len();
        is_short.then(|| {
            self.position += 1 + len;
            len
        })
    }

    pub fn zeros(&mut self, len: usize, what: &'static str) -> Result<(), DecodeError> {
        let start = self.offset();
        if self.bytes(len, what)?.iter().any(|&byte| byte != 0) {
            return Err(DecodeError::corrupt(start, what, "reserved bytes are not zero"));
        }
        Ok(())
    }
}

/// The lowest bit of a field tag. A reader rejects an unknown field with this bit.
pub const CRITICAL: u64 = 1;

/// A field of an extensible record: `tag varint · length varint · payload`.
#[derive(Clone)]
pub struct Field<'a> {
    /// Field number shifted left by one, with [`CRITICAL`] in the lowest bit.
    pub tag: u64,
    /// Offset in the decoded unit.
    pub offset: u64,
    /// The payload.
    pub reader: Reader<'a>,
}

impl<'a> Reader<'a> {
    /// Reads the next field of an extensible record; `None` at its end.
    pub fn field(&mut self) -> Result<Option<Field<'a>>, DecodeError> {
        if self.is_empty() {
            return Ok(None);
        }
        let offset = self.offset();
        let tag = self.varint("field tag")?;
        let len = self.length(u64::from(u32::MAX), "field length")?;
        let base = self.offset();
        let reader = Reader { bytes: self.bytes(len, "field length")?, position: 0, base };
        Ok(Some(Field { tag, offset, reader }))
    }
}

impl Field<'_> {
    /// Ignores an unknown field. Fails if it is critical.
    pub fn skip_unknown(&self) -> Result<(), DecodeError> {
        if self.tag & CRITICAL == 0 {
            return Ok(());
        }
        Err(DecodeError::unsupported(self.offset, "critical field", self.tag >> 1, 0))
    }

    pub fn finish(&self, what: &'static str) -> Result<(), DecodeError> {
        if self.reader.is_empty() {
            return Ok(());
        }
        Err(self.reader.corrupt(what, "trailing bytes in the field"))
    }
}

/// The fields found in a record, to reject repeated fields.
pub struct Seen<const N: usize> {
    record: &'static str,
    tags: [u64; N],
    seen: [bool; N],
}

impl<const N: usize> Seen<N> {
    /// `record` is the record's name in errors.
    pub fn new(record: &'static str, tags: [u64; N]) -> Self {
        Self { record, tags, seen: [false; N] }
    }

    /// Fails if the field is repeated.
    pub fn note(&mut self, field: &Field<'_>) -> Result<(), DecodeError> {
        let Some(index) = self.tags.iter().position(|&tag| tag == field.tag) else { return Ok(()) };
        if core::mem::replace(&mut self.seen[index], true) {
            return Err(DecodeError::corrupt(field.offset, self.record, "a field is repeated"));
        }
        Ok(())
    }

    /// Fails if the record lacks one of these fields.
    pub fn expect(&self, tags: &[u64], start: u64) -> Result<(), DecodeError> {
        let missing = self.tags.iter().zip(&self.seen).find(|(tag, seen)| !**seen && tags.contains(tag));
        let Some((tag, _)) = missing else { return Ok(()) };
        Err(DecodeError::corrupt(start, self.record, format!("field {} is missing", tag >> 1)))
    }
}

pub fn put_field(out: &mut Vec<u8>, tag: u64, payload: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    payload(&mut body);
    put_body(out, tag, &body);
}

#[inline(never)]
fn put_body(out: &mut Vec<u8>, tag: u64, body: &[u8]) {
    put_varint(out, tag);
    put_length_prefixed(out, body);
}

#[cold]
fn over_limit(offset: u64, what: &'static str, value: u64, limit: u64) -> DecodeError {
    DecodeError::corrupt(offset, what, format!("{value} is over the limit of {limit}"))
}

/// Decodes the varint at the start of `bytes`. Returns its value and length.
#[inline]
pub fn decode_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = u64::from(first & 0x7f);
    for index in 1..10 {
        let byte = *bytes.get(index)?;
        if index == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return (byte != 0).then_some((value, index + 1));
        }
    }
    None
}

#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_varints(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|&value| put_varint(out, value));
}

#[inline]
pub fn varint_len(value: u64) -> usize {
    (63 - (value | 1).leading_zeros() as usize) / 7 + 1
}

#[inline]
pub fn put_length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[inline]
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    let mut bytes = [0; 2];
    LittleEndian::write_u16(&mut bytes, value);
    out.extend_from_slice(&bytes);
}

#[inline]
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    let mut bytes = [0; 4];
    LittleEndian::write_u32(&mut bytes, value);
    out.extend_from_slice(&bytes);
}

#[inline]
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&u64_bytes(value));
}

/// Returns the little-endian bytes, as input of a checksum.
#[inline]
#[must_use]
pub fn u64_bytes(value: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    LittleEndian::write_u64(&mut bytes, value);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_magic_is_told_in_hex_and_as_text() {
        let detail = another_magic(b"\x89SVFLT\r\n", b"key\t\0\xff\"x");
        let found = r#"6b 65 79 09 00 ff 22 78 (key\t\x00\xff\"x)"#;
        assert_eq!(detail, format!(r"expected 89 53 56 46 4c 54 0d 0a (\x89SVFLT\r\n), found {found}"));
    }

    #[test]
    fn every_varint_returns_and_has_the_stated_length() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value));
                assert_eq!(decode_varint(&out), Some((value, out.len())));
                assert_eq!(decode_varint(&out[..out.len() - 1]), None);
            }
        }
    }

    #[test]
    fn overlong_and_oversized_varints_are_refused() {
        assert_eq!(decode_varint(&[0x80, 0x00]), None);
        assert_eq!(decode_varint(&[0xff; 10]), None);
        assert_eq!(decode_varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
        assert_eq!(
            decode_varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            Some((u64::MAX, 10))
        );
    }

    #[test]
    fn everything_written_is_read_back_in_order_and_to_the_end() {
        let mut out = alloc::vec![7, 8, 9];
        put_u16(&mut out, 0x1234);
        put_u32(&mut out, 0x1234_5678);
        put_u64(&mut out, 0x1234_5678_9abc_def0);
        put_varint(&mut out, 300);
        put_length_prefixed(&mut out, b"abc");
        out.extend([0, 0, 5]);
        let mut reader = Reader::new(&out);
        assert_eq!((reader.u8("u8"), reader.array("two"), reader.position()), (Ok(7), Ok([8, 9]), 3));
        assert_eq!((reader.u16("u16"), reader.u32("u32")), (Ok(0x1234), Ok(0x1234_5678)));
        assert_eq!(reader.u64("u64"), Ok(0x1234_5678_9abc_def0));
        assert_eq!((reader.varint("varint"), reader.offset()), (Ok(300), 19));
        assert_eq!(reader.length_prefixed(3, "bytes"), Ok(&b"abc"[..]));
        assert_eq!(reader.zeros(2, "zeros"), Ok(()));
        assert!(!reader.is_empty());
        let mut rest = reader.rest();
        assert!(reader.is_empty());
        assert_eq!((rest.offset(), rest.position(), rest.remaining()), (25, 0, 1));
        assert_eq!((rest.bytes(1, "last"), rest.is_empty()), (Ok(&[5][..]), true), "as many as are left");
    }

    #[test]
    fn a_number_over_its_limit_is_refused_where_it_starts() {
        let mut out = alloc::vec![0];
        put_varint(&mut out, 300);
        let after_one = || {
            let mut reader = Reader::new(&out);
            reader.u8("first").unwrap();
            reader
        };
        let over = |limit: u64| DecodeError::corrupt(1, "n", format!("300 is over the limit of {limit}"));
        assert_eq!(after_one().varint_up_to(300, "n"), Ok(300));
        assert_eq!(after_one().varint_up_to(299, "n"), Err(over(299)));
        assert_eq!(after_one().length(300, "n"), Ok(300));
        assert_eq!(after_one().length(299, "n"), Err(over(299)));
        assert!(after_one().length_prefixed(300, "n").is_err(), "300 bytes do not follow");
        let mut reserved = Reader::new(&[1, 0, 1]);
        reserved.u8("first").unwrap();
        assert_eq!(reserved.zeros(2, "z"), Err(DecodeError::corrupt(1, "z", "reserved bytes are not zero")));
    }

    #[test]
    fn an_error_says_what_and_where_and_keeps_it_when_the_base_moves() {
        let error = DecodeError::corrupt(2, "tag", "is odd").at(40);
        assert_eq!(format!("{error}"), "tag at offset 42: is odd");
        let error = DecodeError::unsupported(2, "version", 18, 16);
        assert_eq!(format!("{error}"), "version at offset 2 is 0x12, known up to 0x10");
    }

    fn record() -> Vec<u8> {
        let mut out = Vec::new();
        for (tag, payload) in [(3, 10), (4, 20), (7, 30)] {
            put_field(&mut out, tag, |out| out.push(payload));
        }
        out
    }

    #[test]
    fn a_record_gives_its_fields_and_an_unknown_one_is_refused_only_if_critical() {
        let record = record();
        let mut reader = Reader::new(&record);
        let mut found = Vec::new();
        while let Some(mut field) = reader.field().unwrap() {
            assert_eq!(field.reader.offset(), field.offset + 2, "the payload follows tag and length");
            assert!(field.finish("field").is_err(), "its payload is not read yet");
            found.push((field.tag, field.offset, field.reader.u8("payload").unwrap()));
            assert_eq!(field.finish("field"), Ok(()));
            let known = field.skip_unknown();
            match field.tag {
                4 => assert_eq!(known, Ok(())),
                tag => assert_eq!(
                    known,
                    Err(DecodeError::unsupported(field.offset, "critical field", tag / 2, 0))
                ),
            }
        }
        assert_eq!(found, [(3, 0, 10), (4, 3, 20), (7, 6, 30)]);
    }

    #[test]
    fn a_field_that_stands_twice_or_is_missing_is_refused() {
        let twice: Vec<u8> = [record(), record()].concat();
        let mut reader = Reader::new(&twice);
        let mut seen = Seen::new("record", [3, 4, 9]);
        for _ in 0..3 {
            seen.note(&reader.field().unwrap().unwrap()).unwrap();
        }
        assert_eq!(seen.expect(&[3, 4, 7], 5), Ok(()), "7 is none of the fields that are noted");
        let missing = Err(DecodeError::corrupt(5, "record", "field 4 is missing"));
        assert_eq!(seen.expect(&[3, 9], 5), missing);
        assert_eq!(seen.expect(&[], 5), Ok(()), "no field is expected");
        let again = reader.field().unwrap().unwrap();
        assert_eq!(seen.note(&again), Err(DecodeError::corrupt(9, "record", "a field is repeated")));
        reader.field().unwrap().unwrap();
        let unlisted = reader.field().unwrap().unwrap();
        assert_eq!(seen.note(&unlisted), Ok(()), "7 may stand twice");
        assert!(reader.field().unwrap().is_none());
    }

    #[test]
    fn a_truncated_read_names_the_field_and_where_it_starts() {
        let mut reader = Reader::new(&[1, 2, 3]);
        reader.u16("first").unwrap();
        let error = reader.u32("second").unwrap_err();
        assert_eq!((error.offset, error.what), (2, "second"));
    }
}
