//! The first 64 bytes of every file of a store, and of the index of a backup.
//!
//! ```text
//!  0  magic              8   89 53 49 45 56 45 0d 0a   (a text-mode copy damages it visibly)
//!  8  file kind         u16  table, log, manifest, current, filter, backup index: append only
//! 10  format version    u16  of this kind of file
//! 12  checksum kind     u16  1: the length rule of `checksum`
//! 14  header length     u16  64
//! 16  store id          16   random, that of the store that wrote the file
//! 32  file id           16   random, the owner of everything in the file
//! 48  required features u32  bits: a reader must refuse a file with an unknown one
//! 52  optional features u32  bits: a reader may ignore unknown ones
//! 56  reserved          u32  0
//! 60  checksum          u32  CRC-32 of (file id, offset 0, bytes 0..60)
//! ```
//!
//! The magic, and the checksum's position and function, are the same in every version. The checksum is verified before
//! the version, so a newer version is not reported as damage.

use std::sync::Arc;

use crate::checksum::{FileId, checksum32};
use crate::codec::{DecodeError, Reader, another_magic, put_u16, put_u32};
use crate::number_map::NumberSet;

pub(crate) const MAGIC: [u8; 8] = *b"\x89SIEVE\r\n";

pub(crate) const HEADER_BYTES: usize = 64;

pub(crate) const FORMAT_VERSION: u16 = 1;

const CHECKSUM_KIND: u16 = 1;

/// The kind of a file. The numbers are on disk: append only, see format.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum FileKind {
    /// A sorted table.
    Table = 1,
    /// A write-ahead log.
    Log = 2,
    /// The log of edits of the store.
    Manifest = 3,
    /// The file that names the manifest.
    Current = 4,
    /// A filter that was rebuilt for an existing table.
    Filter = 5,
    /// The list of the files of a backup. Not in a store.
    BackupIndex = 6,
}

impl FileKind {
    /// The kind with this number, if known.
    #[must_use]
    pub fn from_u16(kind: u16) -> Option<Self> {
        [Self::Table, Self::Log, Self::Manifest, Self::Current, Self::Filter, Self::BackupIndex]
            .into_iter()
            .find(|known| *known as u16 == kind)
    }
}

/// The first 64 bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileHeader {
    /// The kind of the file.
    pub kind: FileKind,
    /// The id of its store.
    pub store_id: [u8; 16],
    /// The random id of the file, to which its contents are bound.
    pub file_id: [u8; 16],
    /// Feature bits that a reader may ignore.
    pub optional_features: u32,
}

impl FileHeader {
    /// The header of a new file.
    #[must_use]
    pub fn new(kind: FileKind, store_id: [u8; 16], file_id: [u8; 16]) -> Self {
        Self { kind, store_id, file_id, optional_features: 0 }
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; 64] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        put_u16(&mut out, self.kind as u16);
        put_u16(&mut out, FORMAT_VERSION);
        put_u16(&mut out, CHECKSUM_KIND);
        put_u16(&mut out, HEADER_BYTES as u16);
        out.extend_from_slice(&self.store_id);
        out.extend_from_slice(&self.file_id);
        put_u32(&mut out, 0);
        put_u32(&mut out, self.optional_features);
        put_u32(&mut out, 0);
        let crc = checksum32(&self.file_id, 0, &[&out]);
        put_u32(&mut out, crc);
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&out);
        header
    }

    /// Checks length, magic, checksum, version, features and kind, in this order, then the rest.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic: [u8; 8] = reader.array("file magic")?;
        if magic != MAGIC {
            return Err(DecodeError::corrupt(0, "file magic", another_magic(&MAGIC, &magic)));
        }
        let kind = reader.u16("file kind")?;
        let version = reader.u16("format version")?;
        let checksum_kind = reader.u16("checksum kind")?;
        let header_len = reader.u16("header length")?;
        let store_id = reader.array("store id")?;
        let file_id = reader.array("file id")?;
        let required = reader.u32("required features")?;
        let optional_features = reader.u32("optional features")?;
        let reserved = reader.u32("file header reserved bytes")?;
        let found = reader.u32("file header checksum")?;
        let expected = checksum32(&file_id, 0, &[&bytes[..HEADER_BYTES - 4]]);
        if found != expected {
            let detail = format!("stored {found:08x}, computed {expected:08x}");
            return Err(DecodeError::corrupt(60, "file header checksum", detail));
        }
        if version != FORMAT_VERSION {
            return Err(DecodeError::unsupported(
                10,
                "format version",
                version.into(),
                FORMAT_VERSION.into(),
            ));
        }
        if required != 0 {
            return Err(DecodeError::unsupported(48, "required features", required.into(), 0));
        }
        if checksum_kind != CHECKSUM_KIND {
            let known = CHECKSUM_KIND.into();
            return Err(DecodeError::unsupported(12, "checksum kind", checksum_kind.into(), known));
        }
        let kind = FileKind::from_u16(kind).ok_or_else(|| {
            DecodeError::unsupported(8, "file kind", kind.into(), FileKind::BackupIndex as u64)
        })?;
        if usize::from(header_len) != HEADER_BYTES {
            return Err(DecodeError::corrupt(
                14,
                "header length",
                format!("expected 64, found {header_len}"),
            ));
        }
        if reserved != 0 {
            return Err(DecodeError::corrupt(56, "file header reserved bytes", "not zero"));
        }
        Ok(Self { kind, store_id, file_id, optional_features })
    }

    /// Decodes and verifies the header of a file of this kind at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// The header is damaged, has another kind, or is of a newer version.
    pub fn decode_kind(bytes: &[u8], kind: FileKind) -> Result<Self, DecodeError> {
        let header = Self::decode(bytes)?;
        if header.kind != kind {
            let detail = format!("expected {kind:?}, found {:?}", header.kind);
            return Err(DecodeError::corrupt(8, "file kind", detail));
        }
        Ok(header)
    }
}

/// The id of the store. If the store is a copy, tables, filters and closed logs may have the id of an original.
#[derive(Debug, Clone)]
pub(crate) struct StoreIds {
    own: FileId,
    others: Arc<NumberSet<FileId>>,
}

impl StoreIds {
    pub(crate) fn new(own: FileId, others: &NumberSet<FileId>) -> Self {
        Self { own, others: Arc::new(others.clone()) }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn of(own: FileId) -> Self {
        Self::new(own, &NumberSet::new())
    }

    pub(crate) fn contains(&self, id: &FileId) -> bool {
        *id == self.own || self.others.contains(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::DecodeErrorKind;

    fn header() -> FileHeader {
        FileHeader::new(FileKind::Log, [3; 16], [4; 16])
    }

    fn patched(offset: usize, bytes: &[u8]) -> [u8; HEADER_BYTES] {
        let mut out = header().encode();
        out[offset..offset + bytes.len()].copy_from_slice(bytes);
        let crc = checksum32(&[4; 16], 0, &[&out[..60]]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    #[test]
    fn a_header_comes_back() {
        assert_eq!(FileHeader::decode(&header().encode()), Ok(header()));
        assert_eq!(FileHeader::decode_kind(&header().encode(), FileKind::Log), Ok(header()));
        assert!(FileHeader::decode_kind(&header().encode(), FileKind::Table).is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_corruption() {
        let good = header().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = FileHeader::decode(&bad).unwrap_err();
            assert!(matches!(error.kind, DecodeErrorKind::Corrupt(_)), "bit {bit}: {error}");
        }
        for len in 0..HEADER_BYTES {
            assert!(FileHeader::decode(&good[..len]).is_err());
        }
    }

    #[test]
    fn an_intact_newer_header_is_unsupported_not_corrupt() {
        for (offset, bytes, what) in [
            (10, &[2, 0][..], "format version"),
            (48, &[1, 0, 0, 0], "required features"),
            (12, &[2, 0], "checksum kind"),
            (8, &[9, 0], "file kind"),
        ] {
            let error = FileHeader::decode(&patched(offset, bytes)).unwrap_err();
            assert_eq!(error.what, what);
            assert!(matches!(error.kind, DecodeErrorKind::Unsupported { .. }), "{error}");
        }
        assert!(FileHeader::decode(&patched(52, &[1, 0, 0, 0])).is_ok());
    }
}
