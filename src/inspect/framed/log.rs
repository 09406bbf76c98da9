//! Describes a write-ahead log: batches, promises, the close record.

use super::record::{self, Record};
use super::walk::{self, Ending, FramedItem};
use crate::batch::{self, BatchReader};
use crate::file_header::FileKind;
use crate::inspect::file::{Head, Window};
use crate::inspect::output::{
    Detail, Entries, Entry, Fields, Halt, Lines, Out, Payload, Place, Result, Value, bytes, count, counted,
};
use crate::key::EntryKind;
use crate::wal::{ContentReader, RecordKind};

/// What all records of a log add up to.
#[derive(Debug, Default)]
struct Totals {
    batches: u64,
    promises: u64,
    closed: bool,
    entries: u64,
    deletes: u64,
    data_bytes: u64,
    seqnos: Option<(u64, u64)>,
}

impl Totals {
    fn add(&mut self, record: &Record<'_>) {
        match record.kind {
            RecordKind::Batch => self.batches += 1,
            RecordKind::Promise => self.promises += 1,
            RecordKind::Close => self.closed = true,
            RecordKind::Edit => {}
        }
        let (RecordKind::Batch, Some(bytes)) = (record.kind, record.bytes) else { return };
        let Ok(batch) = BatchReader::open(bytes) else { return };
        if batch.count > 0 {
            let first = self.seqnos.map_or(batch.first, |seqnos| seqnos.0);
            self.seqnos = Some((first, batch.last_seqno()));
        }
        for entry in batch.map_while(|entry| entry.ok()) {
            self.entries += 1;
            self.deletes += u64::from(entry.kind == EntryKind::Delete);
            self.data_bytes += (entry.key.len() + entry.value.len()) as u64;
        }
    }

    fn facts(&self, out: &mut Out<'_>, ending: &Ending) -> Result {
        let records = format!(
            "{}, {}, {}",
            counted(self.batches, "batch", "batches"),
            counted(self.promises, "promise", "promises"),
            if self.closed { "a close record" } else { "no close record" }
        );
        out.fact("records", ending.records, records)?;
        let of_data = format!(
            "{}; {} of keys and values",
            counted(self.deletes, "delete", "deletes"),
            bytes(self.data_bytes)
        );
        out.fact("entries", self.entries, of_data)?;
        if let Some((first, last)) = self.seqnos {
            out.fact("sequence", format!("{first}..={last}"), "")?;
        }
        out.fact("pages", walk::pages(out.report.len), "of 32 KiB")?;
        ending_fact(out, ending, self.closed)
    }
}

/// How a framed file ends, in words.
pub(in crate::inspect) fn ending_fact(out: &mut Out<'_>, ending: &Ending, closed: bool) -> Result {
    let len = out.report.len;
    let room = match ending.room(len) {
        0 => String::new(),
        room => format!(", with {} of room behind it", counted(room, "byte", "bytes")),
    };
    let text = match ending.first_damage.filter(|_| room.is_empty()) {
        Some(damage) if ending.is_corrupt() => {
            format!(
                "corrupt at {damage}: a fragment after it says that the file was durable up to {}",
                ending.witness
            )
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

/// Describes a log.
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
    let whole = out.view.block.is_none() && out.view.entries.is_none();
    out.showing(whole, |out| head.describe(out))?;
    walk(out, window, head, &ending)
}

/// Describes the records and checks what they hold, as far as a reader does.
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
            let bytes = record.bytes.filter(|_| !ending.is_torn_at(record.offset));
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

fn describe_record(out: &mut Out<'_>, record: &Record<'_>, lines: &mut Lines) -> Result {
    if let Some(wanted) = out.view.entries {
        if out.view.block.is_some_and(|block| block != record.number) {
            return Ok(());
        }
        return record
            .bytes
            .map_or(Ok(()), |body| describe_body(out, record, record.payload(), body, Some(wanted)));
    }
    let len = record.end - record.offset;
    let (bytes_wanted, number) = (out.detail == Detail::Bytes, record.number);
    let picked = out.view.block.is_some_and(|block| block == number);
    let shown = if out.view.block.is_some() { picked } else { lines.next(out, record.offset, len)? };
    let note = note(record);
    out.showing(shown, |out| {
        let label = format!("record {number}");
        out.group(Place::File(record.offset), len, label, note, |out| {
            out.showing(bytes_wanted || picked, |out| {
                record::describe(out, record, |out, payload, body| {
                    describe_body(out, record, payload, body, None)
                })
            })
        })
    })
}

/// What a record is, in a line.
fn note(record: &Record<'_>) -> String {
    let fragments = counted(record.fragment_count, "fragment", "fragments");
    let body = record.bytes.unwrap_or_default();
    match (record.kind, BatchReader::open(body)) {
        (RecordKind::Batch, Ok(batch)) if batch.count > 0 => {
            let entries = counted(batch.count.into(), "entry", "entries");
            let (first, last) = (batch.first, batch.last_seqno());
            format!("batch: {entries}, sequence {first}..={last}, {}, {fragments}", bytes(record.len))
        }
        (kind, _) => format!("{}: {}, {fragments}", record::name(kind), bytes(record.len)),
    }
}

fn describe_body(
    out: &mut Out<'_>,
    record: &Record<'_>,
    payload: Payload,
    body: &[u8],
    wanted: Option<Entries>,
) -> Result {
    let described = match record.kind {
        RecordKind::Batch => describe_batch(out, record, payload, body, wanted),
        RecordKind::Promise | RecordKind::Close | RecordKind::Edit if wanted.is_some() => Ok(()),
        RecordKind::Promise => describe_mark(&mut Fields::new(out, payload, body)),
        RecordKind::Close => {
            let mut fields = Fields::new(out, payload, body);
            fields.u64("last sequence number").and_then(|_| describe_mark(&mut fields))
        }
        RecordKind::Edit => Ok(()),
    };
    match described {
        Ok(()) => Ok(()),
        Err(Halt::Stop(stop)) => Err(stop),
        // It is reported when the record is checked.
        Err(Halt::Unread) => Ok(()),
    }
}

fn describe_mark(fields: &mut Fields<'_, '_, '_>) -> Result<(), Halt> {
    fields.u64("edit count")?;
    fields.hex64("edit hash")?;
    Ok(())
}

fn describe_batch(
    out: &mut Out<'_>,
    record: &Record<'_>,
    payload: Payload,
    body: &[u8],
    wanted: Option<Entries>,
) -> Result<(), Halt> {
    if wanted.is_none() {
        let mut fields = Fields::new(out, payload, &body[..body.len().min(batch::HEADER_BYTES)]);
        fields.u64("first sequence number")?;
        fields.u32("entry count")?;
    }
    let mut at = batch::HEADER_BYTES;
    for entry in BatchReader::open(body)? {
        let entry = entry?;
        let (key, value) = (&body[entry.key.clone()], &body[entry.value.clone()]);
        let delete = entry.kind == EntryKind::Delete;
        if let Some(wanted) = wanted {
            out.entry(Entry {
                offset: record.offset,
                keyspace: Some(entry.keyspace),
                key,
                seqno: entry.seqno,
                delete,
                value: (wanted == Entries::Values && !delete).then_some(value),
                value_len: value.len() as u64,
            })?;
            continue;
        }
        let place = |at: usize| payload.place(at as u64);
        let kind = if delete { "delete" } else { "put" };
        let note = format!(
            "sequence {}, keyspace {}, key of {}",
            entry.seqno,
            entry.keyspace,
            count(key.len() as u64)
        );
        out.leaf(place(at), &body[at..entry.key.start], "entry", kind, note)?;
        out.leaf(place(entry.key.start), key, "key", Value::from(key), "")?;
        if !delete {
            let note = counted(value.len() as u64, "byte", "bytes");
            out.leaf(
                place(entry.key.end),
                &body[entry.key.end..entry.value.end],
                "value",
                Value::from(value),
                note,
            )?;
        }
        at = entry.value.end;
    }
    Ok(())
}
