//! The index of a backup: its files, with their names and checksums.
//!
//! ```text
//!  0  file header            64   kind 6; store id of the store, file id of the backup
//! 64  time                  u64   milliseconds since 1970
//! 72  sequence number       u64   every write up to it is in the backup
//! 80  number of files       u32
//! 84  file *
//!     checksum              u64   SUM(file id, 64, bytes 64 up to here)
//!
//! file = kind u16 · name string · file id 16 · checksum u32 · length varint · content checksum 16 · part checksum u32 *
//! ```
//!
//! Files are ordered by name. Kind, name, length, [`LiveFile::file_id`] and [`LiveFile::checksum`] identify a file, so
//! the next backup need not read it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sievedb::{DecodeError, FileHeader, FileKind, LiveFile};
use sievedb_filter::checksum::checksum;
use sievedb_filter::codec::{Reader, put_length_prefixed, put_u16, put_u32, put_u64, put_varint};

use crate::content::Content;

const HEADER_BYTES: usize = 64;

const FILE_BYTES_MIN: usize = 2 + 2 + 16 + 4 + 1 + 16;

const NAME_BYTES_MAX: u64 = 64;

const LEN_MAX: u64 = 1 << 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexedFile {
    pub(crate) identity: Identity,
    pub(crate) content: Content,
    /// CRC-32 of each part.
    pub(crate) parts: Vec<u32>,
}

/// Files with the same identity have the same bytes, except for filters of different stores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) kind: FileKind,
    pub(crate) file_id: [u8; 16],
    pub(crate) checksum: u32,
    pub(crate) len: u64,
}

impl Identity {
    pub(crate) fn of(file: &LiveFile) -> Self {
        let (file_id, checksum, len) = (file.file_id(), file.checksum(), file.len());
        Self { name: file.name(), kind: file.kind(), file_id, checksum, len }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) store_id: [u8; 16],
    pub(crate) backup_id: [u8; 16],
    /// Milliseconds since 1970.
    pub(crate) time: u64,
    pub(crate) seqno: u64,
    pub(crate) files: Vec<IndexedFile>,
}

impl Index {
    pub(crate) fn time(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.time)).unwrap_or(UNIX_EPOCH)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.content.len))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let header = FileHeader::new(FileKind::BackupIndex, self.store_id, self.backup_id);
        let mut out = header.encode().to_vec();
        put_u64(&mut out, self.time);
        put_u64(&mut out, self.seqno);
        put_u32(&mut out, self.files.len() as u32);
        for IndexedFile { identity, content, parts } in &self.files {
            put_u16(&mut out, identity.kind as u16);
            put_length_prefixed(&mut out, identity.name.as_bytes());
            out.extend_from_slice(&identity.file_id);
            put_u32(&mut out, identity.checksum);
            put_varint(&mut out, content.len);
            out.extend_from_slice(&content.checksum);
            parts.iter().for_each(|&part| put_u32(&mut out, part));
        }
        let sum = checksum(&self.backup_id, HEADER_BYTES as u64, &[&out[HEADER_BYTES..]]);
        put_u64(&mut out, sum);
        out
    }

    /// Uses memory proportional to `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let header = FileHeader::decode_kind(bytes, FileKind::BackupIndex)?;
        let body = &bytes[HEADER_BYTES..];
        let Some((body, stored)) = body.split_last_chunk::<8>() else {
            return Err(DecodeError::corrupt(bytes.len() as u64, "index", "it is cut off"));
        };
        let (found, base) = (Reader::new(stored).u64("index checksum")?, HEADER_BYTES as u64);
        let expected = checksum(&header.file_id, base, &[body]);
        if found != expected {
            let detail = format!("stored {found:016x}, computed {expected:016x}");
            return Err(DecodeError::corrupt(base + body.len() as u64, "index checksum", detail));
        }
        let mut reader = Reader::new(body);
        let decoded = Self::decode_body(&mut reader, &header);
        decoded.map_err(|error| error.at(base))
    }

    fn decode_body(reader: &mut Reader<'_>, header: &FileHeader) -> Result<Self, DecodeError> {
        let (time, seqno) = (reader.u64("time")?, reader.u64("sequence number")?);
        let count = reader.u32("number of files")? as usize;
        if count > reader.remaining() / FILE_BYTES_MIN {
            return Err(reader.corrupt("number of files", format!("{count} is more than there is room for")));
        }
        let mut files: Vec<IndexedFile> = Vec::with_capacity(count);
        for _ in 0..count {
            let start = reader.offset();
            let file = decode_file(reader)?;
            let is_ordered = files.last().is_none_or(|last| last.identity.name < file.identity.name);
            if !is_ordered {
                return Err(DecodeError::corrupt(start, "file name", "not in order"));
            }
            files.push(file);
        }
        if !reader.is_empty() {
            return Err(reader.corrupt("index", format!("{} bytes are left over", reader.remaining())));
        }
        Ok(Self { store_id: header.store_id, backup_id: header.file_id, time, seqno, files })
    }
}

fn decode_file(reader: &mut Reader<'_>) -> Result<IndexedFile, DecodeError> {
    let start = reader.offset();
    let number = reader.u16("file kind")?;
    let kind = FileKind::from_u16(number).filter(|&kind| kind != FileKind::BackupIndex);
    let known = FileKind::Filter as u64;
    let kind = kind.ok_or_else(|| DecodeError::unsupported(start, "kind of a file", number.into(), known))?;
    let name = reader.length_prefixed(NAME_BYTES_MAX, "file name")?;
    let name = str::from_utf8(name).ok().filter(|name| fits(name, kind));
    let name =
        name.ok_or_else(|| DecodeError::corrupt(start, "file name", "not that of a file of its kind"))?;
    let file_id = reader.array("file id")?;
    let checksum = reader.u32("checksum of the manifest")?;
    let len = reader.varint_up_to(LEN_MAX, "length")?;
    let content = Content { checksum: reader.array("content checksum")?, len };
    let bytes = usize::try_from(content.parts()).ok().and_then(|parts| parts.checked_mul(4));
    let bytes = bytes.ok_or_else(|| reader.corrupt("length", "more than memory has"))?;
    let mut sums = Reader::new(reader.bytes(bytes, "part checksums")?);
    let parts = (0..content.parts()).map(|_| sums.u32("part checksum")).collect::<Result<_, _>>()?;
    let identity = Identity { name: name.to_owned(), kind, file_id, checksum, len };
    Ok(IndexedFile { identity, content, parts })
}

/// Whether a file of this kind can have this name. Such names never lead out of a directory.
fn fits(name: &str, kind: FileKind) -> bool {
    let number = match kind {
        FileKind::Current => return name == "CURRENT",
        FileKind::Manifest => name.strip_prefix("MANIFEST-"),
        FileKind::Log => name.strip_suffix(".wal"),
        FileKind::Table => name.strip_suffix(".sst"),
        FileKind::Filter => name.strip_suffix(".filter"),
        _ => None,
    };
    number.is_some_and(|number| number.len() >= 6 && number.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sievedb::DecodeErrorKind;
    use sievedb_filter::testing::{Vector, hex};

    pub(crate) fn example() -> Index {
        let file = |(at, name, kind, len): (u8, &str, FileKind, u64)| {
            let identity = Identity {
                name: name.to_owned(),
                kind,
                file_id: [at; 16],
                checksum: u32::from(at) * 0x0101_0101,
                len,
            };
            let content = Content { checksum: [at + 0x10; 16], len };
            let parts = (0..content.parts()).map(|part| 0x1000 * u32::from(at) + part as u32).collect();
            IndexedFile { identity, content, parts }
        };
        let files = [
            (1, "000002.sst", FileKind::Table, 2_500_000),
            (2, "000005.wal", FileKind::Log, 64),
            (3, "000006.filter", FileKind::Filter, 4352),
            (4, "CURRENT", FileKind::Current, 96),
            (5, "MANIFEST-000004", FileKind::Manifest, 300),
        ];
        Index {
            store_id: std::array::from_fn(|at| at as u8),
            backup_id: std::array::from_fn(|at| 0x10 + at as u8),
            time: 1_795_678_105_123,
            seqno: 41,
            files: files.map(file).to_vec(),
        }
    }

    fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let end = bytes.len() - 8;
        let sum = checksum(&example().backup_id, 64, &[&bytes[64..end]]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn the_index_of_the_format_document_is_the_one_that_is_written() {
        let vectors = Vector::all();
        let vector = vectors.iter().find(|vector| vector.name == "backup-index").expect("a vector");
        let index = Index::decode(&vector.bytes).unwrap();
        let mut facts = vec![
            ("store id", hex(&index.store_id)),
            ("backup id", hex(&index.backup_id)),
            ("time", index.time.to_string()),
            ("sequence number", index.seqno.to_string()),
        ];
        for IndexedFile { identity, content, parts } in &index.files {
            let Identity { name, kind, file_id, checksum, len } = identity;
            let parts: Vec<String> = parts.iter().map(|part| format!("{part:08x}")).collect();
            let (kind, parts) = (*kind as u16, parts.join(" "));
            let (file_id, content) = (hex(file_id), hex(&content.checksum));
            facts.push((
                "file",
                format!("kind={kind} name={name} file={file_id} checksum={checksum:08x} length={len} content={content} parts={parts}"),
            ));
        }
        vector.assert_is(&facts, &example().encode());
    }

    #[test]
    fn an_index_comes_back() {
        assert_eq!(Index::decode(&example().encode()), Ok(example()));
        let empty = Index { files: Vec::new(), ..example() };
        assert_eq!(Index::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_damage() {
        let good = example().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = Index::decode(&bad).unwrap_err();
            assert!(matches!(error.kind, DecodeErrorKind::Corrupt(_)), "bit {bit}: {error}");
        }
        for len in 0..good.len() {
            assert!(Index::decode(&good[..len]).is_err(), "{len}");
        }
        let longer = [&good[..], &[0]].concat();
        assert!(Index::decode(&longer).is_err());
    }

    #[test]
    fn intact_bytes_that_make_no_sense_are_refused_with_the_field() {
        let good = example().encode();
        // The first file begins at 84: kind, length of the name, name.
        for (at, bytes, what) in [
            (80, &[0xff, 0xff, 0xff, 0xff][..], "number of files"),
            (80, &[4, 0, 0, 0], "index"),
            (84, &[2, 0], "file name"),
            (84, &[6, 0], "kind of a file"),
            (84, &[7, 0], "kind of a file"),
            (86, &[200], "file name"),
            (87, b"../", "file name"),
            (87, b"999", "file name"),
            (117, &[0xff, 0xff, 0xff, 0xff, 0x7f], "part checksums"),
        ] {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            let error = Index::decode(&resealed(bad)).unwrap_err();
            assert_eq!(error.what, what, "{at} {bytes:?}: {error}");
        }
    }

    #[test]
    fn names_are_those_of_files_of_a_store() {
        for (name, kind) in [("../CURRENT", FileKind::Current), ("CURRENT.new", FileKind::Current)] {
            assert!(!fits(name, kind), "{name}");
        }
        for name in
            ["/etc/passwd", "000001.wal", "1.sst", "000001", "a00001.sst", "000001.sst/", ".sst", "LOCK"]
        {
            assert!(!fits(name, FileKind::Table), "{name}");
        }
        assert!(fits("000001.sst", FileKind::Table) && fits("1234567.sst", FileKind::Table));
    }
}
