//! Describes the payload of each field by its tag.

use crate::codec::{Field, Reader, varint_len};
use crate::inspect::output::{Out, Payload, Result, Value};

pub(in crate::inspect) struct Described {
    name: &'static str,
    value: Value<'static>,
    record: Option<(usize, Describe)>,
}

pub(in crate::inspect) type Describe = fn(&Field<'_>, secrets: bool) -> Described;

impl Described {
    pub(super) fn new(name: &'static str, value: impl Into<Value<'static>>) -> Self {
        Self { name, value: value.into(), record: None }
    }

    pub(super) fn with_record(self, start: usize, describe_field: Describe) -> Self {
        Self { record: Some((start, describe_field)), ..self }
    }
}

pub(in crate::inspect) fn count(record: &[u8]) -> u64 {
    let mut reader = Reader::new(record);
    std::iter::from_fn(|| reader.field().ok().flatten()).count() as u64
}

/// Describes fields up to the first unreadable one, which the record's decoder reports.
pub(in crate::inspect) fn describe(
    out: &mut Out<'_>,
    payload: Payload,
    body: &[u8],
    from: usize,
    describe_field: Describe,
) -> Result {
    let mut reader = Reader::new(body.get(from..).unwrap_or_default());
    loop {
        let start = from + reader.position();
        let Ok(Some(field)) = reader.field() else { return Ok(()) };
        let end = from + reader.position();
        let described = describe_field(&field, out.view.secrets);
        let bytes = &body[start..end];
        let head = varint_len(field.tag) + varint_len(field.reader.remaining() as u64);
        let shown = if described.value == Value::Secret { &bytes[..head.min(bytes.len())] } else { bytes };
        let note = format!("field {}", field.tag >> 1);
        let place = payload.place(start as u64);
        let Some((inner, describe_field)) = described.record else {
            out.span(place, bytes.len() as u64, shown, described.name, described.value, note, None)?;
            continue;
        };
        let inner = start + head + inner;
        let own = &body[start..inner.min(end)];
        out.leaf(place, own, described.name, described.value, note)?;
        out.indented(|out| describe(out, payload, &body[..end], inner, describe_field))?;
    }
}
