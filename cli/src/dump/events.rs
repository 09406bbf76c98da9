//! A description as JSON: one object a line, with the name of the event.
//!
//! ```text
//! {"event":"span","depth":1,"offset":8,"length":2,"bytes":"0100","label":"file kind","value":1,"note":"table"}
//! ```
//!
//! `offset` counts from the start of the file. In a compressed block or fragmented record, `within` is its offset, and
//! `offset` counts from the start of its contents.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value as Json;
use sievedb::inspect::{Event, Place, Sink, Span, Value};

use crate::escape::hex;
use crate::json::{Object, put_bytes};

pub(super) struct Events<'p, W> {
    to: W,
    path: &'p Path,
}

impl<'p, W: Write> Events<'p, W> {
    pub(super) fn new(to: W, path: &'p Path) -> Self {
        Self { to, path }
    }
}

impl<W: Write> Sink for Events<'_, W> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        let mut object = Object::new();
        let mut put = |name: &str, value: Json| drop(object.insert(name.to_owned(), value));
        match event {
            Event::Begin { kind, len, .. } => {
                put("event", "begin".into());
                put("kind", kind.name().into());
                put("length", (*len).into());
                put_bytes(&mut object, "file", self.path.as_os_str().as_encoded_bytes());
            }
            Event::Fact { label, value, note, .. } => {
                put("event", "fact".into());
                put("label", (*label).into());
                put("note", note.as_ref().into());
                put_value(&mut object, value);
            }
            Event::Span(span) => put_span(&mut object, span),
            Event::Skipped { offset, len, count, what, .. } => {
                put("event", "skipped".into());
                put("offset", (*offset).into());
                put("length", (*len).into());
                put("count", (*count).into());
                put("what", (*what).into());
            }
            Event::Entry(entry) => {
                put("event", "entry".into());
                put("offset", entry.offset.into());
                if let Some(keyspace) = entry.keyspace {
                    put("keyspace", keyspace.into());
                }
                put("sequence", entry.seqno.into());
                put("delete", entry.delete.into());
                put("value_length", entry.value_len.into());
                put_bytes(&mut object, "key", entry.key);
                if let Some(end) = entry.end {
                    put_bytes(&mut object, "end", end);
                }
                if let Some(value) = entry.value {
                    put_bytes(&mut object, "value", value);
                }
            }
            Event::Check { what, against, found, expected, .. } => {
                put("event", "check".into());
                put("what", what.as_ref().into());
                put("against", (*against).into());
                put("found", (*found).into());
                put("expected", (*expected).into());
            }
            Event::Damage(damage) => {
                put("event", "damage".into());
                put("offset", damage.offset.into());
                put("what", damage.what.into());
                put("detail", damage.detail.clone().into());
                put("newer", damage.newer.into());
                if let Some((first, last)) = &damage.keys {
                    put_bytes(&mut object, "first_key", first);
                    put_bytes(&mut object, "last_key", last);
                }
            }
            Event::End(report) => {
                put("event", "end".into());
                put("intact", report.is_intact().into());
                put("partial", report.partial.into());
                put("accounted", report.accounted.into());
                put("torn", report.torn_bytes.into());
                put("checksums", report.checksums.into());
                put("sums", report.sums.into());
                put("damages", report.damage_count.into());
            }
            _ => return Ok(()),
        }
        writeln!(self.to, "{}", Json::Object(object))
    }
}

fn put_span(object: &mut Object, span: &Span<'_>) {
    let mut put = |name: &str, value: Json| drop(object.insert(name.to_owned(), value));
    put("event", "span".into());
    put("depth", span.depth.into());
    match span.place {
        Place::File(offset) => put("offset", offset.into()),
        Place::Payload { of, at, .. } => {
            put("within", of.into());
            put("offset", at.into());
        }
        _ => {}
    }
    put("length", span.len.into());
    put("label", span.label.as_ref().into());
    if !span.bytes.is_empty() {
        put("bytes", hex(span.bytes).into());
    }
    if !span.note.is_empty() {
        put("note", span.note.as_ref().into());
    }
    if let Some(intact) = span.intact {
        put("intact", intact.into());
    }
    put_value(object, &span.value);
}

fn put_value(object: &mut Object, value: &Value<'_>) {
    let json: Json = match value {
        Value::Number(number) => (*number).into(),
        Value::Hex(number, bytes) => format!("{number:0digits$x}", digits = 2 * usize::from(*bytes)).into(),
        Value::Id(id) => hex(id).into(),
        Value::Text(text) => text.as_ref().into(),
        Value::Bytes(bytes) => return put_bytes(object, "value", bytes),
        Value::Share(share) => (*share).into(),
        _ => return,
    };
    object.insert("value".into(), json);
}
