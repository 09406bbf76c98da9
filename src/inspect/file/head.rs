//! The header of every file.

use byteorder::{ByteOrder, LittleEndian};

use super::window::Window;
use crate::checksum::{FileId, checksum32};
use crate::codec::{DecodeError, DecodeErrorKind};
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES};
use crate::inspect::output::{Detail, Form, Kind, Out, Payload, Place, Result, fields};

pub(in crate::inspect) struct Head {
    bytes: Vec<u8>,
    pub(in crate::inspect) decoded: Result<FileHeader, DecodeError>,
    pub(in crate::inspect) file_id: FileId,
}

impl Head {
    pub(in crate::inspect) fn read(window: &mut Window<'_>) -> Result<Option<Self>> {
        let head = Self::read_any(window)?;
        Ok(head.bytes.starts_with(&crate::file_header::MAGIC).then_some(head))
    }

    pub(in crate::inspect) fn read_any(window: &mut Window<'_>) -> Result<Self> {
        let bytes = window.get(0, HEADER_BYTES as u64)?.to_vec();
        let mut file_id = [0; 16];
        if let Some(id) = bytes.get(32..48) {
            file_id.copy_from_slice(id);
        }
        let decoded = FileHeader::decode(&bytes);
        Ok(Self { bytes, decoded, file_id })
    }

    pub(in crate::inspect) fn kind(&self) -> Kind {
        let stated = self.bytes.get(8..10).map_or(0, LittleEndian::read_u16);
        FileKind::from_u16(stated).map_or(Kind::Unknown, kind_of)
    }

    pub(in crate::inspect) fn is_newer(&self) -> bool {
        matches!(&self.decoded, Err(DecodeError { kind: DecodeErrorKind::Unsupported { .. }, .. }))
    }

    pub(in crate::inspect) fn facts(&self, out: &mut Out<'_>) -> Result {
        match &self.decoded {
            Ok(header) => {
                out.fact("store id", header.store_id, "")?;
                out.fact("file id", header.file_id, "")
            }
            Err(error) => out.fact("file header", "damaged", error.to_string()),
        }
    }

    pub(in crate::inspect) fn describe(&self, out: &mut Out<'_>) -> Result {
        let len = self.bytes.len() as u64;
        out.report.accounted += len;
        let shown = out.detail == Detail::Bytes || self.decoded.is_err();
        let covered = self.bytes.get(..HEADER_BYTES - 4).unwrap_or_default();
        let layout = [
            ("magic", Form::Raw(8)),
            (
                "file kind",
                Form::Code(2, |kind| {
                    FileKind::from_u16(kind as u16).map_or("unknown", |kind| kind_of(kind).name())
                }),
            ),
            ("format version", Form::Number(2)),
            ("checksum kind", Form::Number(2)),
            ("header length", Form::Number(2)),
            ("store id", Form::Id),
            ("file id", Form::Id),
            ("required features", Form::Hex(4)),
            ("optional features", Form::Hex(4)),
            ("reserved", Form::Raw(4)),
            ("checksum", Form::Checksum(checksum32(&self.file_id, 0, &[covered]))),
        ];
        out.group(Place::File(0), len, "file header", "", |out| {
            out.showing(shown, |out| fields(out, Payload::Plain(0), &self.bytes, &layout))
        })?;
        self.decoded.as_ref().map_or_else(|error| out.refused(0, error), |_| Ok(()))
    }
}

fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Table => Kind::Table,
        FileKind::Log => Kind::Log,
        FileKind::Manifest => Kind::Manifest,
        FileKind::Current => Kind::Current,
        FileKind::Filter => Kind::FilterFile,
        FileKind::BackupIndex => Kind::BackupIndex,
    }
}
