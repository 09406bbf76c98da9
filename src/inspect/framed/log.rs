use super::record::{Record, name};
use super::walk::{self, Ending, FramedItem};
use crate::batch::{self, BatchReader};
use crate::codec::Reader;
use crate::file_header::FileKind;
use crate::inspect::file::{Head, Window};
use crate::inspect::output::{
    Entries, Entry, Event, Form, Lines, Out, Payload, Result, bytes, count, counted, fields,
};
use crate::key::EntryKind;
use crate::wal::{Boundary, ContentReader, RecordKind};

pub(super) const MARK: [(&str, Form<'_>); 2] = [("edit count", Form::Number(8)), ("edit hash", Form::Hex(8))];
const CLOSE: [(&str, Form<'_>); 3] = [("last sequence number", Form::Number(8)), MARK[0], MARK[1]];

#[derive(Debug, Default)]
struct Totals {
    batches: u64,
    promises: u64,
    boundaries: u64,
    closed: bool,
    entries: u64,
    deletes: u64,
    range_deletes: u64,
    data_bytes: u64,
    seqnos: Option<(u64, u64)>,
}

impl Totals {
    fn add(&mut self, record: &Record) {
        match record.kind {
            RecordKind::Batch => self.batches += 1,
            RecordKind::Promise => self.promises += 1,
            RecordKind::Close => self.closed = true,
            RecordKind::Boundaries => self.boundaries += 1,
            RecordKind::Edit => {}
        }
        let (RecordKind::Batch, Some(bytes)) = (record.kind, &record.bytes) else { return };
        let Ok(batch) = BatchReader::open(bytes) else { return };
        if batch.count > 0 {
            let first = self.seqnos.map_or(batch.first, |seqnos| seqnos.0);
            self.seqnos = Some((first, batch.last_seqno()));
        }
        for entry in batch.map_while(|entry| entry.ok()) {
            self.entries += 1;
            self.deletes += u64::from(entry.kind == EntryKind::Delete);
            self.range_deletes += u64::from(entry.kind == EntryKind::RangeDelete);
            self.data_bytes += (entry.key.len() + entry.value.len()) as u64;
        }
    }

    fn facts(&self, out: &mut Out<'_>, ending: &Ending) -> Result {
        let batches = counted(self.batches, "batch", "batches");
        let promises = counted(self.promises, "promise", "promises");
        let close = if self.closed { "a close record" } else { "no close record" };
        let boundaries = counted_if(self.boundaries, "record of boundaries", "records of boundaries");
        out.fact("records", ending.records, format!("{batches}, {promises}{boundaries}, {close}"))?;
        let ranges = counted_if(self.range_deletes, "range delete", "range deletes");
        let deletes = counted(self.deletes, "delete", "deletes") + &ranges;
        let of_data = format!("{deletes}; {} of keys and values", bytes(self.data_bytes));
        out.fact("entries", self.entries, of_data)?;
        if let Some((first, last)) = self.seqnos {
            out.fact("sequence", format!("{first}..={last}"), "")?;
        }
        out.fact("pages", walk::pages(out.report.len), "of 32 KiB")?;
        ending_fact(out, ending, self.closed)
    }
}

fn counted_if(count: u64, one: &str, many: &str) -> String {
    if count == 0 { String::new() } else { format!(", {}", counted(count, one, many)) }
}

pub(super) fn ending_fact(out: &mut Out<'_>, ending: &Ending, closed: bool) -> Result {
    let len = out.report.len;
    let room = match ending.room(len) {
        0 => String::new(),
        room => format!(", with {} of room behind it", counted(room, "byte", "bytes")),
    };
    let text = match ending.first_damage.filter(|_| room.is_empty()) {
        Some(damage) if ending.is_corrupt() => {
            let durable =
                format!("a later fragment states that the file was durable up to {}", ending.witness);
            format!("corrupt at {damage}: {durable}")
        }
        Some(damage) if ending.is_refused() => format!("with records of a newer version, from {damage} on"),
        Some(_) => format!(
            "torn: the last {} from {} on were never promised to anybody, and are dropped when the store is opened",
            counted(len - ending.good_end, "byte", "bytes"),
            ending.good_end
        ),
        _ if closed => format!("closed{room}"),
        _ => format!("after a whole record{room}"),
    };
    out.fact("ends", text, "")
}

pub(in crate::inspect) fn describe(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    let file = (&head.file_id, FileKind::Log);
    let mut totals = Totals::default();
    let ending = walk::walk(out, window, file, &mut |_, found| {
        if let FramedItem::Record(record) = found {
            totals.add(&record);
        }
        Ok(())
    })?;
    head.facts(out)?;
    totals.facts(out, &ending)?;
    out.showing(out.view.is_whole(), |out| head.describe(out))?;
    walk(out, window, head, &ending)
}

pub(in crate::inspect) fn walk(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    head: &Head,
    ending: &Ending,
) -> Result {
    let mut lines = Lines::new(out.detail, "records");
    let mut contents = ContentReader::default();
    walk::walk(out, window, (&head.file_id, FileKind::Log), &mut |out, found| match found {
        FramedItem::Record(record) => {
            describe_record(out, &record, &mut lines)?;
            let bytes = record.bytes.as_ref().filter(|_| !ending.is_torn_at(record.offset));
            match bytes.map(|bytes| contents.check(record.kind, bytes)) {
                Some(Err(error)) => out.refused_in(record.payload(), &error),
                _ => Ok(()),
            }
        }
        FramedItem::Damaged(bytes) => bytes.describe(out, ending, &mut lines),
    })?;
    lines.flush(out)?;
    ending.report(out);
    Ok(())
}

fn describe_record(out: &mut Out<'_>, record: &Record, lines: &mut Lines) -> Result {
    if let Some(wanted) = out.view.entries {
        return match out.view.block.is_none_or(|block| block == record.number) {
            true => entries(out, record, wanted),
            false => Ok(()),
        };
    }
    let place = (record.offset, record.end - record.offset);
    let line = (format!("record {}", record.number), note(record));
    lines.unit(out, record.number, place, line, |out| {
        record.describe(out, |out, payload, body| match record.kind {
            RecordKind::Batch => describe_batch(out, payload, body),
            RecordKind::Promise => fields(out, payload, body, &MARK),
            RecordKind::Close => fields(out, payload, body, &CLOSE),
            RecordKind::Boundaries => describe_boundaries(out, payload, body),
            RecordKind::Edit => Ok(()),
        })
    })
}

fn note(record: &Record) -> String {
    let fragments = counted(record.fragment_count, "fragment", "fragments");
    let body = record.bytes.as_deref().unwrap_or_default();
    match (record.kind, BatchReader::open(body)) {
        (RecordKind::Batch, Ok(batch)) if batch.count > 0 => {
            let entries = counted(batch.count.into(), "entry", "entries");
            let (first, last) = (batch.first, batch.last_seqno());
            format!("batch: {entries}, sequence {first}..={last}, {}, {fragments}", bytes(record.len))
        }
        (kind, _) => format!("{}: {}, {fragments}", name(kind), bytes(record.len)),
    }
}

fn entries(out: &mut Out<'_>, record: &Record, wanted: Entries) -> Result {
    let (RecordKind::Batch, Some(body)) = (record.kind, &record.bytes) else { return Ok(()) };
    let Ok(batch) = BatchReader::open(body) else { return Ok(()) };
    batch.map_while(|entry| entry.ok()).try_for_each(|entry| {
        let (delete, value) = (entry.kind != EntryKind::Put, &body[entry.value]);
        out.event(&Event::Entry(Entry {
            offset: record.offset,
            keyspace: Some(entry.keyspace),
            key: &body[entry.key],
            seqno: entry.seqno,
            delete,
            end: (entry.kind == EntryKind::RangeDelete).then_some(value),
            value: (wanted == Entries::Values && !delete).then_some(value),
            value_len: if delete { 0 } else { value.len() as u64 },
        }))
    })
}

/// Describes entries up to an unreadable one, which the record's check reports.
fn describe_batch(out: &mut Out<'_>, payload: Payload, body: &[u8]) -> Result {
    fields(
        out,
        payload,
        body,
        &[("first sequence number", Form::Number(8)), ("entry count", Form::Number(4))],
    )?;
    let Ok(batch) = BatchReader::open(body) else { return Ok(()) };
    let mut at = batch::HEADER_BYTES;
    let place = |at: usize| payload.place(at as u64);
    for entry in batch.map_while(|entry| entry.ok()) {
        let (key, value) = (&body[entry.key.clone()], &body[entry.value.clone()]);
        let (kind, key_name) = match entry.kind {
            EntryKind::Delete => ("delete", "key"),
            EntryKind::Put => ("put", "key"),
            EntryKind::RangeDelete => ("range delete", "start"),
        };
        let key_len = count(key.len() as u64);
        let note = format!("sequence {}, keyspace {}, {key_name} of {key_len}", entry.seqno, entry.keyspace);
        out.leaf(place(at), &body[at..entry.key.start], "entry", kind, note)?;
        out.leaf(place(entry.key.start), key, key_name, key, "")?;
        let value_bytes = &body[entry.key.end..entry.value.end];
        match entry.kind {
            EntryKind::Delete => {}
            EntryKind::Put => {
                let note = counted(value.len() as u64, "byte", "bytes");
                out.leaf(place(entry.key.end), value_bytes, "value", value, note)?;
            }
            EntryKind::RangeDelete => {
                let note = if value.is_empty() { "no end" } else { "" };
                out.leaf(place(entry.key.end), value_bytes, "end", value, note)?;
            }
        }
        at = entry.value.end;
    }
    Ok(())
}

fn describe_boundaries(out: &mut Out<'_>, payload: Payload, body: &[u8]) -> Result {
    let mut reader = Reader::new(body);
    while !reader.is_empty() {
        let at = reader.position();
        let Ok((keyspace, Boundary { time, seqno })) = Boundary::decode(&mut reader) else { return Ok(()) };
        let note = format!("time {time} begins at sequence {seqno} in keyspace {keyspace}");
        out.leaf(payload.place(at as u64), &body[at..reader.position()], "boundary", "", note)?;
    }
    Ok(())
}
