//! Reads fields one after the other and describes each: its place, its bytes, what they say.

use std::borrow::Cow;

use super::event::{Payload, Value};
use super::out::Out;
use super::stop::{Result, Stop};
use crate::codec::{DecodeError, Reader};

/// Reads fields and describes each.
pub(in crate::inspect) struct Fields<'o, 's, 'b> {
    out: &'o mut Out<'s>,
    payload: Payload,
    bytes: &'b [u8],
    reader: Reader<'b>,
}

/// Why fields end before they should.
pub(in crate::inspect) enum Halt {
    /// One could not be read: whoever decodes the whole reports why.
    Unread,
    Stop(Stop),
}

impl From<DecodeError> for Halt {
    fn from(_: DecodeError) -> Self {
        Self::Unread
    }
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl<'o, 's, 'b> Fields<'o, 's, 'b> {
    pub(in crate::inspect) fn new(out: &'o mut Out<'s>, payload: Payload, bytes: &'b [u8]) -> Self {
        Self { out, payload, bytes, reader: Reader::new(bytes) }
    }

    /// Moves on by what `read` reads, and describes it.
    fn describe<T>(
        &mut self,
        label: &'static str,
        read: impl FnOnce(&mut Reader<'b>) -> Result<T, DecodeError>,
        meaning: impl FnOnce(&T) -> (Value<'b>, Cow<'b, str>),
    ) -> Result<T, Halt> {
        let start = self.reader.position();
        let value = read(&mut self.reader)?;
        let (described, note) = meaning(&value);
        let bytes = &self.bytes[start..self.reader.position()];
        let place = self.payload.place(start as u64);
        let shown = if described == Value::Secret { &[] } else { bytes };
        self.out.span(place, bytes.len() as u64, shown, label, described, note, None)?;
        Ok(value)
    }

    pub(in crate::inspect) fn u8(
        &mut self,
        label: &'static str,
        note: impl FnOnce(u8) -> String,
    ) -> Result<u8, Halt> {
        self.describe(label, |r| r.u8(label), |&v| (Value::Number(v.into()), note(v).into()))
    }

    pub(in crate::inspect) fn u16(
        &mut self,
        label: &'static str,
        note: impl FnOnce(u16) -> String,
    ) -> Result<u16, Halt> {
        self.describe(label, |r| r.u16(label), |&v| (Value::Number(v.into()), note(v).into()))
    }

    pub(in crate::inspect) fn u32(&mut self, label: &'static str) -> Result<u32, Halt> {
        self.describe(label, |r| r.u32(label), |&v| (Value::Number(v.into()), "".into()))
    }

    pub(in crate::inspect) fn u64(&mut self, label: &'static str) -> Result<u64, Halt> {
        self.describe(label, |r| r.u64(label), |&v| (Value::Number(v), "".into()))
    }

    pub(in crate::inspect) fn hex32(&mut self, label: &'static str) -> Result<u32, Halt> {
        self.describe(label, |r| r.u32(label), |&v| (Value::Hex(v.into(), 4), "".into()))
    }

    pub(in crate::inspect) fn hex64(&mut self, label: &'static str) -> Result<u64, Halt> {
        self.describe(label, |r| r.u64(label), |&v| (Value::Hex(v, 8), "".into()))
    }

    /// A number that only the store should know.
    pub(in crate::inspect) fn secret(&mut self, label: &'static str) -> Result<u64, Halt> {
        let open = self.out.view.secrets;
        self.describe(
            label,
            |r| r.u64(label),
            |&v| match open {
                true => (Value::Hex(v, 8), "".into()),
                false => (Value::Secret, "".into()),
            },
        )
    }

    pub(in crate::inspect) fn id(&mut self, label: &'static str) -> Result<[u8; 16], Halt> {
        self.describe(label, |r| r.array(label), |&v| (Value::Id(v), "".into()))
    }

    /// Bytes that mean what they are.
    pub(in crate::inspect) fn bytes(
        &mut self,
        len: usize,
        label: &'static str,
        note: &'static str,
    ) -> Result<&'b [u8], Halt> {
        self.describe(label, |r| r.bytes(len, label), |_| (Value::None, note.into()))
    }

    /// A checksum of 4 bytes; what it must be is computed from all bytes.
    pub(in crate::inspect) fn checksum32(
        &mut self,
        label: &'static str,
        computed: u32,
    ) -> Result<bool, Halt> {
        let start = self.reader.position();
        let stored = self.reader.u32(label)?;
        let bytes = &self.bytes[start..start + 4];
        self.out.report.checksums += u64::from(stored == computed);
        self.out.checksum(self.payload.place(start as u64), bytes, label, stored.into(), computed.into())?;
        Ok(stored == computed)
    }
}
