//! The fields of a fixed layout.

use byteorder::{ByteOrder, LittleEndian};

use super::event::{Payload, Value};
use super::out::Out;
use super::stop::Result;
use crate::checksum::FileId;

#[derive(Clone, Copy)]
pub(in crate::inspect) enum Form<'a> {
    Number(usize),
    Code(usize, fn(u64) -> &'static str),
    Noted(usize, &'a str),
    Hex(usize),
    /// A field of 8 bytes, shown only with [`View::secrets`](super::View::secrets).
    Secret,
    Id,
    Raw(usize),
    /// A field of 4 bytes, with its expected value.
    Checksum(u32),
}

impl Form<'_> {
    fn len(self) -> usize {
        match self {
            Self::Number(len)
            | Self::Code(len, _)
            | Self::Noted(len, _)
            | Self::Hex(len)
            | Self::Raw(len) => len,
            Self::Secret => 8,
            Self::Id => size_of::<FileId>(),
            Self::Checksum(_) => 4,
        }
    }
}

/// Describes fields up to an incomplete one, which the layout's decoder reports.
pub(in crate::inspect) fn fields(
    out: &mut Out<'_>,
    payload: Payload,
    bytes: &[u8],
    layout: &[(&'static str, Form<'_>)],
) -> Result {
    let mut at = 0;
    for &(label, form) in layout {
        let Some(field) = bytes.get(at..at + form.len()) else { return Ok(()) };
        let place = payload.place(at as u64);
        at += field.len();
        let number = || LittleEndian::read_uint(field, field.len());
        match form {
            Form::Number(_) => out.leaf(place, field, label, number(), "")?,
            Form::Code(_, meaning) => out.leaf(place, field, label, number(), meaning(number()))?,
            Form::Noted(_, note) => out.leaf(place, field, label, number(), note)?,
            Form::Secret if !out.view.secrets => {
                out.span(place, field.len() as u64, &[], label, Value::Secret, "", None)?;
            }
            Form::Hex(_) | Form::Secret => {
                out.leaf(place, field, label, Value::Hex(number(), field.len() as u8), "")?;
            }
            Form::Id => out.leaf(
                place,
                field,
                label,
                field.first_chunk().copied().map_or(Value::None, Value::Id),
                "",
            )?,
            Form::Raw(_) => out.leaf(place, field, label, Value::None, "")?,
            Form::Checksum(computed) => {
                out.report.checksums += u64::from(number() == u64::from(computed));
                out.checksum(place, field, label, number(), computed.into())?;
            }
        }
    }
    Ok(())
}
