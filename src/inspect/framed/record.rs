use byteorder::{ByteOrder, LittleEndian};

use crate::inspect::output::{Form, Out, Payload, Place, Result, Value, counted, fields};
use crate::wal::RecordKind;
use crate::wal::record::{FRAGMENT_HEADER_BYTES, Fragment};

pub(in crate::inspect) struct Record {
    pub(super) number: u64,
    pub(in crate::inspect) kind: RecordKind,
    /// The start of the first fragment; `end` is the end of the last fragment.
    pub(in crate::inspect) offset: u64,
    pub(super) end: u64,
    pub(super) fragments: Vec<RecordFragment>,
    pub(super) fragment_count: u64,
    pub(in crate::inspect) bytes: Option<Vec<u8>>,
    pub(super) len: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RecordFragment {
    pub(super) fragment: Fragment,
    pub(super) header: [u8; FRAGMENT_HEADER_BYTES],
    pub(super) padding: usize,
}

impl Record {
    pub(super) fn payload(&self) -> Payload {
        match self.fragment_count {
            1 => Payload::Plain(self.offset + FRAGMENT_HEADER_BYTES as u64),
            _ => Payload::Made(self.offset),
        }
    }

    pub(super) fn describe<'s>(
        &self,
        out: &mut Out<'s>,
        body: impl FnOnce(&mut Out<'s>, Payload, &[u8]) -> Result,
    ) -> Result {
        for piece in &self.fragments {
            self.describe_header(out, piece)?;
            let start = piece.fragment.offset + FRAGMENT_HEADER_BYTES as u64;
            let payload = piece.fragment.payload_bytes as u64;
            if let ([_], Some(bytes)) = (&self.fragments[..], &self.bytes) {
                body(out, self.payload(), bytes)?;
                return piece.describe_padding(out);
            }
            let parts = format!("of the {} of the record", self.len);
            out.group(Place::File(start), payload, "payload", parts, |_| Ok(()))?;
            piece.describe_padding(out)?;
        }
        if let Some(bytes) = &self.bytes {
            return body(out, self.payload(), bytes);
        }
        let described = self.fragments.last().map_or(self.offset, |piece| piece.fragment.end());
        let more = counted(self.fragment_count - self.fragments.len() as u64, "fragment", "fragments");
        let note = format!("{more}; the contents of the record are too long to be printed here");
        out.group(Place::File(described), self.end - described, "the rest", note, |_| Ok(()))
    }

    fn describe_header(&self, out: &mut Out<'_>, piece: &RecordFragment) -> Result {
        let Fragment { offset, first, last, .. } = piece.fragment;
        let part = match (first, last) {
            (true, true) => "whole",
            (true, false) => "begins the record",
            (false, true) => "ends the record",
            (false, false) => "goes on",
        };
        let kind = format!("{}, {part}", name(self.kind));
        let layout = [
            ("length", Form::Number(2)),
            ("type", Form::Noted(1, &kind)),
            ("reserved", Form::Number(1)),
            ("synced", Form::Number(8)),
        ];
        out.group(Place::File(offset), FRAGMENT_HEADER_BYTES as u64, "fragment", part, |out| {
            let (checksum, rest) = piece.header.split_at(4);
            let value = Value::Hex(LittleEndian::read_u32(checksum).into(), 4);
            out.span(Place::File(offset), 4, checksum, "checksum", value, "", Some(true))?;
            fields(out, Payload::Plain(offset + 4), rest, &layout)
        })
    }
}

impl RecordFragment {
    fn describe_padding(&self, out: &mut Out<'_>) -> Result {
        if self.padding == 0 {
            return Ok(());
        }
        let zeros = &[0; 2 * FRAGMENT_HEADER_BYTES][..self.padding.min(32)];
        let at = self.fragment.offset + (FRAGMENT_HEADER_BYTES + self.fragment.payload_bytes) as u64;
        out.leaf(Place::File(at), zeros, "padding", "", "")
    }
}

pub(super) fn name(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Batch => "batch",
        RecordKind::Promise => "promise",
        RecordKind::Close => "close",
        RecordKind::Edit => "edit",
        RecordKind::Boundaries => "boundaries",
    }
}
