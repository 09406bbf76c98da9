//! A record of a framed file, put together from its fragments.

use byteorder::{ByteOrder, LittleEndian};

use crate::inspect::output::{Fields, Halt, Out, Payload, Place, Result, Value, counted};
use crate::wal::RecordKind;
use crate::wal::record::{FRAGMENT_HEADER_BYTES, Fragment};

/// A whole record.
pub(in crate::inspect) struct Record<'a> {
    /// Counted from 0.
    pub(in crate::inspect) number: u64,
    pub(in crate::inspect) kind: RecordKind,
    /// Where its first fragment starts, and where its last one ends.
    pub(in crate::inspect) offset: u64,
    pub(in crate::inspect) end: u64,
    /// Its fragments; of a record that is too long the first ones.
    pub(in crate::inspect) fragments: &'a [RecordFragment],
    /// How many they are in all.
    pub(in crate::inspect) fragment_count: u64,
    /// What it holds; `None` if that is too long.
    pub(in crate::inspect) bytes: Option<&'a [u8]>,
    /// Its length.
    pub(in crate::inspect) len: u64,
}

impl Record<'_> {
    /// Where what it holds stands.
    pub(in crate::inspect) fn payload(&self) -> Payload {
        match self.fragment_count {
            1 => Payload::Plain(self.offset + FRAGMENT_HEADER_BYTES as u64),
            _ => Payload::Made(self.offset),
        }
    }
}

/// An intact fragment and the bytes of its header.
#[derive(Debug, Clone, Copy)]
pub(in crate::inspect) struct RecordFragment {
    pub(in crate::inspect) fragment: Fragment,
    pub(in crate::inspect) header: [u8; FRAGMENT_HEADER_BYTES],
    pub(in crate::inspect) padding: usize,
}

/// Describes a record to the byte; `body` describes what it holds.
pub(in crate::inspect) fn describe<'s>(
    out: &mut Out<'s>,
    record: &Record<'_>,
    body: impl FnOnce(&mut Out<'s>, Payload, &[u8]) -> Result,
) -> Result {
    for piece in record.fragments {
        let fragment = &piece.fragment;
        describe_header(out, piece, record)?;
        let start = fragment.offset + FRAGMENT_HEADER_BYTES as u64;
        let payload = fragment.payload_bytes as u64;
        if let ([_], Some(bytes)) = (record.fragments, record.bytes) {
            return describe_padding(out, piece, start + payload, |out| body(out, record.payload(), bytes));
        }
        let parts = format!("of the {} of the record", record.len);
        describe_padding(out, piece, start + payload, |out| {
            out.group(Place::File(start), payload, "payload", parts, |_| Ok(()))
        })?;
    }
    if let Some(bytes) = record.bytes {
        return body(out, record.payload(), bytes);
    }
    let described = record.fragments.last().map_or(record.offset, |piece| piece.fragment.end());
    let more = counted(record.fragment_count - record.fragments.len() as u64, "fragment", "fragments");
    let note = format!("{more}; what the record holds is too long to be printed here");
    out.group(Place::File(described), record.end - described, "the rest", note, |_| Ok(()))
}

fn describe_header(out: &mut Out<'_>, piece: &RecordFragment, record: &Record<'_>) -> Result {
    let Fragment { offset, first, last, .. } = piece.fragment;
    let part = match (first, last) {
        (true, true) => "whole",
        (true, false) => "begins the record",
        (false, true) => "ends the record",
        (false, false) => "goes on",
    };
    let len = FRAGMENT_HEADER_BYTES as u64;
    out.group(Place::File(offset), len, "fragment", part, |out| {
        // It is intact: the walk has computed the checksum over all of it.
        let stored = LittleEndian::read_u32(&piece.header[..4]);
        let value = Value::Hex(stored.into(), 4);
        out.span(Place::File(offset), 4, &piece.header[..4], "checksum", value, "", Some(true))?;
        let mut fields = Fields::new(out, Payload::Plain(offset + 4), &piece.header[4..]);
        let described = (|| {
            fields.u16("length", |_| String::new())?;
            fields.u8("type", |_| format!("{}, {part}", name(record.kind)))?;
            fields.u8("reserved", |_| String::new())?;
            fields.u64("synced")
        })();
        match described {
            Ok(_) | Err(Halt::Unread) => Ok(()),
            Err(Halt::Stop(stop)) => Err(stop),
        }
    })
}

fn describe_padding<'s>(
    out: &mut Out<'s>,
    piece: &RecordFragment,
    at: u64,
    before: impl FnOnce(&mut Out<'s>) -> Result,
) -> Result {
    before(out)?;
    if piece.padding == 0 {
        return Ok(());
    }
    out.leaf(Place::File(at), &[0; 2 * FRAGMENT_HEADER_BYTES][..piece.padding.min(32)], "padding", "", "")
}

/// A kind of record in words.
pub(in crate::inspect) fn name(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Batch => "batch",
        RecordKind::Promise => "promise",
        RecordKind::Close => "close",
        RecordKind::Edit => "edit",
    }
}
