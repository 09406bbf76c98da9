//! The last 128 bytes of a table: the offsets of its parts, its length, and a checksum.
//!
//! ```text
//!   0  root index offset  u64
//!   8  root index length  u64  with its envelope
//!  16  properties offset  u64
//!  24  properties length  u64  with its envelope
//!  32  filter offset      u64  of the first filter block, a multiple of 4096; 0 if there is none
//!  40  filter length      u64  0 if there is none
//!  48  entries            u64
//!  56  file length        u64  with the footer: a truncated or extended file is noticed
//!  64  filter count       u32
//!  68  index depth        u8   levels of index blocks, 1 to 4; 1: the root refers to data blocks; 0 without entries
//!  69  reserved           3    0
//!  72  required features  u32  bits known only once the table is written; a reader refuses unknown ones
//!  76  optional features  u32  bits that a reader may ignore
//!  80  file id            16   as in the file header, in case that one is lost
//!  96  reserved           18   0
//! 114  format version     u16
//! 116  checksum           u32  CRC-32 of (file id, offset of the footer, bytes 0..116)
//! 120  magic              8    89 53 56 54 42 4c 0d 0a
//! ```
//!
//! A table with spans and no entries has neither filter nor index; their offsets and lengths are 0.
//!
//! The length, the magic, and the checksum's position and function are the same in every version. They are checked
//! before the version, features and fields, so a newer table is not reported as corrupt.

use byteorder::{ByteOrder, LittleEndian};

use crate::block::BlockHandle;
use crate::checksum::{FileId, checksum32};
use crate::codec::{DecodeError, Reader, another_magic, put_u16, put_u32, put_u64};

pub(crate) const FOOTER_BYTES: usize = 128;

/// The maximum number of index levels.
pub(super) const INDEX_DEPTH_MAX: u8 = 4;

const FOOTER_MAGIC: [u8; 8] = *b"\x89SVTBL\r\n";

pub(super) const NO_INDEX: BlockHandle = BlockHandle { offset: 0, len: 0 };

const TABLE_VERSION: u16 = 1;

const CHECKED_BYTES: usize = 116;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) root: BlockHandle,
    pub(crate) properties: BlockHandle,
    /// Offset and length of the first filter block; zeros if there is none.
    pub(crate) filter: (u64, u64),
    pub(crate) entries: u64,
    pub(crate) file_len: u64,
    pub(crate) filters: u32,
    pub(crate) index_depth: u8,
    pub(crate) file_id: FileId,
}

impl Footer {
    pub(crate) fn encode(&self) -> (Vec<u8>, u32) {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for handle in [self.root, self.properties] {
            put_u64(&mut out, handle.offset);
            put_u64(&mut out, handle.len);
        }
        for number in [self.filter.0, self.filter.1, self.entries, self.file_len] {
            put_u64(&mut out, number);
        }
        put_u32(&mut out, self.filters);
        out.extend_from_slice(&[self.index_depth, 0, 0, 0]);
        put_u32(&mut out, 0);
        put_u32(&mut out, 0);
        out.extend_from_slice(&self.file_id);
        out.extend_from_slice(&[0; 18]);
        put_u16(&mut out, TABLE_VERSION);
        let checksum = checksum32(&self.file_id, self.file_len - FOOTER_BYTES as u64, &[&out]);
        put_u32(&mut out, checksum);
        out.extend_from_slice(&FOOTER_MAGIC);
        (out, checksum)
    }

    /// Returns the footer and its checksum. `owner` is a file of `file_len` bytes. Error offsets are relative to the
    /// footer.
    pub(crate) fn decode(bytes: &[u8], owner: &FileId, file_len: u64) -> Result<(Self, u32), DecodeError> {
        let stored = check_seal(bytes, owner, file_len)?;
        let mut reader = Reader::new(&bytes[..CHECKED_BYTES]);
        let mut handle = |offset, len| {
            Ok::<_, DecodeError>(BlockHandle { offset: reader.u64(offset)?, len: reader.u64(len)? })
        };
        let root = handle("root index offset", "root index length")?;
        let properties = handle("properties offset", "properties length")?;
        let filter = (reader.u64("filter offset")?, reader.u64("filter length")?);
        let entries = reader.u64("entry count")?;
        let stated_len = reader.u64("file length")?;
        let filters = reader.u32("filter count")?;
        let index_depth = reader.u8("index depth")?;
        // An unknown feature may use the reserved bytes.
        let mut reserved = reader.clone();
        reader.bytes(3, "footer reserved bytes")?;
        let required = reader.u32("required features")?;
        if required != 0 {
            return Err(DecodeError::unsupported(72, "required table features", required.into(), 0));
        }
        reserved.zeros(3, "footer reserved bytes")?;
        reader.u32("optional features")?;
        let file_id: FileId = reader.array("file id")?;
        reader.zeros(18, "footer reserved bytes")?;
        let footer =
            Self { root, properties, filter, entries, file_len: stated_len, filters, index_depth, file_id };
        footer.validate(owner, file_len)?;
        Ok((footer, stored))
    }

    pub(crate) fn has_entries(&self) -> bool {
        self.entries > 0
    }

    fn validate(&self, owner: &FileId, file_len: u64) -> Result<(), DecodeError> {
        let wrong = |offset, what, detail: String| Err(DecodeError::corrupt(offset, what, detail));
        let end = file_len - FOOTER_BYTES as u64;
        if self.has_entries() {
            self.root.check(end).map_err(|error| error.at(0))?;
        }
        self.properties.check(end).map_err(|error| error.at(16))?;
        if self.file_len != file_len {
            return wrong(56, "file length", format!("stated {}, found {file_len}", self.file_len));
        }
        if self.file_id != *owner {
            return wrong(80, "file id", "differs from the file header".into());
        }
        if self.has_entries() && !(1..=INDEX_DEPTH_MAX).contains(&self.index_depth) {
            return wrong(68, "index depth", format!("{} is not in 1..={INDEX_DEPTH_MAX}", self.index_depth));
        }
        if !self.has_entries() && (self.root, self.index_depth, self.filters) != (NO_INDEX, 0, 0) {
            return wrong(48, "entry count", "is zero, but there is an index or a filter".into());
        }
        let (offset, len) = self.filter;
        let inside = offset.checked_add(len).is_some_and(|filter_end| filter_end <= end);
        let placed = match self.filters {
            0 => (offset, len) == (0, 0),
            _ => inside && offset > 0 && offset.is_multiple_of(4096) && len > 0,
        };
        if placed { Ok(()) } else { wrong(32, "filter offset", format!("{len} bytes at {offset}")) }
    }
}

fn check_seal(bytes: &[u8], owner: &FileId, file_len: u64) -> Result<u32, DecodeError> {
    let mut reader = Reader::new(bytes);
    let checked = reader.bytes(CHECKED_BYTES, "footer")?;
    let stored = reader.u32("footer checksum")?;
    let magic: [u8; 8] = reader.array("footer magic")?;
    if magic != FOOTER_MAGIC {
        return Err(DecodeError::corrupt(120, "footer magic", another_magic(&FOOTER_MAGIC, &magic)));
    }
    let offset = file_len.checked_sub(FOOTER_BYTES as u64);
    let computed = offset.map(|offset| checksum32(owner, offset, &[checked]));
    if computed != Some(stored) {
        let detail = format!("stored {stored:08x}, computed {:08x}", computed.unwrap_or_default());
        return Err(DecodeError::corrupt(116, "footer checksum", detail));
    }
    let version = LittleEndian::read_u16(&checked[114..116]);
    if version != TABLE_VERSION {
        let known = TABLE_VERSION.into();
        return Err(DecodeError::unsupported(114, "table format version", version.into(), known));
    }
    Ok(stored)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::codec::DecodeErrorKind;

    const OWNER: FileId = [3; 16];
    const LEN: u64 = 20_000;

    pub(in crate::table) fn footer() -> Footer {
        Footer {
            root: BlockHandle { offset: 9000, len: 300 },
            properties: BlockHandle { offset: 9300, len: 120 },
            filter: (8192, 700),
            entries: 5,
            file_len: LEN,
            filters: 1,
            index_depth: 2,
            file_id: OWNER,
        }
    }

    fn patched(offset: usize, bytes: &[u8]) -> Vec<u8> {
        let mut out = footer().encode().0;
        out[offset..offset + bytes.len()].copy_from_slice(bytes);
        let sum = checksum32(&OWNER, LEN - 128, &[&out[..116]]);
        out[116..120].copy_from_slice(&sum.to_le_bytes());
        out
    }

    #[test]
    fn a_footer_comes_back_with_its_checksum() {
        let (bytes, checksum) = footer().encode();
        assert_eq!(bytes.len(), FOOTER_BYTES);
        assert_eq!(Footer::decode(&bytes, &OWNER, LEN), Ok((footer(), checksum)));
    }

    #[test]
    fn a_footer_of_no_entries_has_neither_index_nor_filter() {
        let empty =
            Footer { root: NO_INDEX, filter: (0, 0), entries: 0, filters: 0, index_depth: 0, ..footer() };
        let decode = |footer: &Footer| Footer::decode(&footer.encode().0, &OWNER, LEN).map(|read| read.0);
        assert_eq!(decode(&empty), Ok(empty.clone()));
        for bad in [
            Footer { root: footer().root, ..empty.clone() },
            Footer { index_depth: 1, ..empty.clone() },
            Footer { filters: 1, filter: (8192, 700), ..empty.clone() },
        ] {
            assert_eq!(decode(&bad).unwrap_err().what, "entry count");
        }
        assert!(decode(&Footer { filter: (8192, 700), ..empty }).is_err());
    }

    #[test]
    fn every_flipped_bit_truncation_and_move_is_corruption() {
        let (good, _) = footer().encode();
        for bit in 0..FOOTER_BYTES * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = Footer::decode(&bad, &OWNER, LEN).unwrap_err();
            assert!(matches!(error.kind, DecodeErrorKind::Corrupt(_)), "bit {bit}: {error}");
        }
        for len in 0..FOOTER_BYTES {
            assert!(Footer::decode(&good[..len], &OWNER, LEN).is_err());
        }
        assert!(Footer::decode(&good, &OWNER, LEN + 1).is_err());
        assert!(Footer::decode(&good, &OWNER, 100).is_err());
        assert!(Footer::decode(&good, &[4; 16], LEN).is_err());
    }

    #[test]
    fn intact_footers_that_make_no_sense_are_refused() {
        let cases: [(usize, &[u8], &str); 16] = [
            (0, &[0; 8], "block handle"),
            (0, &[0xff; 8], "block handle"),
            (8, &[0xff; 8], "block handle"),
            (8, &19u64.to_le_bytes(), "block handle"),
            (16, &20_000u64.to_le_bytes(), "block handle"),
            (32, &8193u64.to_le_bytes(), "filter offset"),
            (32, &[0; 8], "filter offset"),
            (40, &[0xff; 8], "filter offset"),
            (40, &[0; 8], "filter offset"),
            (48, &[0; 8], "entry count"),
            (56, &19_999u64.to_le_bytes(), "file length"),
            (64, &[0; 4], "filter offset"),
            (68, &[0], "index depth"),
            (68, &[5], "index depth"),
            (70, &[1], "footer reserved bytes"),
            (80, &[9], "file id"),
        ];
        for (offset, bytes, what) in cases {
            let error = Footer::decode(&patched(offset, bytes), &OWNER, LEN).unwrap_err();
            assert_eq!(error.what, what, "{offset} {bytes:?}");
            assert!(matches!(error.kind, DecodeErrorKind::Corrupt(_)), "{error}");
        }
    }

    #[test]
    fn an_intact_newer_footer_is_unsupported_and_an_optional_feature_is_ignored() {
        for (offset, bytes) in [(72, [1, 0]), (114, [2, 0])] {
            let error = Footer::decode(&patched(offset, &bytes), &OWNER, LEN).unwrap_err();
            assert!(matches!(error.kind, DecodeErrorKind::Unsupported { .. }), "{error}");
        }
        assert!(Footer::decode(&patched(76, &[1, 0]), &OWNER, LEN).is_ok());
        for reserved in [69, 96] {
            let mut out = patched(72, &[1]);
            out[reserved] = 1;
            let sum = checksum32(&OWNER, LEN - 128, &[&out[..116]]);
            out[116..120].copy_from_slice(&sum.to_le_bytes());
            let error = Footer::decode(&out, &OWNER, LEN).unwrap_err();
            assert_eq!(error.what, "required table features");
        }
    }
}
