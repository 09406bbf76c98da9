//! Describes a manifest: its edits, item by item, and the store that they amount to.

use super::annotate::{Fields, Halt, Payload};
use super::event::{Place, Value};
use super::fields;
use super::framed::{self, Ending, Found, Record};
use super::head::Head;
use super::items::say_item;
use super::lines::Lines;
use super::log::{damaged, ending_fact};
use super::out::{Out, Result};
use super::text::escape;
use super::view::Detail;
use super::window::Window;
use super::words::{bytes, counted};
use crate::codec::{DecodeError, Reader};
use crate::file_header::FileKind;
use crate::manifest::edit::{EditMark, LEVELS, VersionEdit};
use crate::manifest::state::{KeyspaceState, ManifestState};

/// The edits of a manifest, one after the other, as far as they follow each other.
#[derive(Debug, Default)]
pub(super) struct Edits {
    /// What they amount to.
    pub(super) state: ManifestState,
    pub(super) count: u64,
    items: u64,
    /// The mark of the last one, unless bytes are damaged behind it.
    last: Option<EditMark>,
    /// Whether an edit may have been lost.
    gap: bool,
}

impl Edits {
    /// Takes the next edit; what is wrong with it is an error, and it is left out.
    pub(super) fn add(&mut self, record: &[u8]) -> Result<(), DecodeError> {
        if self.gap && self.last.is_none() {
            // After a gap the marks start anew with what the record says itself.
            let mut reader = Reader::new(record);
            let mark = EditMark { count: reader.u64("edit count")?, hash: reader.u64("edit hash")? };
            let edit = VersionEdit::decode_fields(reader).map_err(|error| error.at(16))?;
            self.items += edit.items.len() as u64;
            self.count += 1;
            self.last = Some(mark);
            // What was lost may be what an item refers to: not damage of this edit.
            let _ = self.state.apply(&edit);
            return Ok(());
        }
        let (edit, mark) = VersionEdit::decode(record, self.last)?;
        self.count += 1;
        self.items += edit.items.len() as u64;
        self.last = Some(mark);
        let applied = self.state.apply(&edit);
        self.state.mark = mark;
        match applied {
            Err(_) if self.gap => Ok(()),
            Err(detail) => Err(DecodeError::corrupt(16, "edit", detail)),
            Ok(()) => Ok(()),
        }
    }

    /// Notes that bytes were damaged.
    pub(super) fn lose(&mut self) {
        self.gap = true;
        self.last = None;
    }
}

/// Reads all edits, as far as they can be read, and tells nothing.
pub(super) fn survey(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result<(Edits, Ending)> {
    let mut edits = Edits::default();
    let ending = framed::walk(out, window, (&head.file_id, FileKind::Manifest), &mut |_, found| {
        match found {
            Found::Record(Record { bytes: Some(bytes), .. }) => {
                if edits.add(bytes).is_err() {
                    edits.lose();
                }
            }
            _ => edits.lose(),
        }
        Ok(())
    })?;
    Ok((edits, ending))
}

/// Tells of a manifest.
pub(super) fn describe(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    let (edits, ending) = survey(out, window, head)?;
    head.facts(out)?;
    let first = (edits.state.mark.count + 1).saturating_sub(edits.count);
    let span = format!("{} to {} of the store", ordinal(first), ordinal(edits.state.mark.count));
    let items = counted(edits.items, "item", "items");
    out.fact("edits", edits.count, format!("{span}, {items}"))?;
    out.fact("last hash", Value::Hex(edits.state.mark.hash, 8), "")?;
    state_facts(out, &edits.state)?;
    ending_fact(out, &ending, false)?;

    out.showing(out.view.block.is_none(), |out| head.tell(out))?;
    let mut lines = Lines::new(out.detail, "edits");
    let mut edits = Edits::default();
    let ending =
        framed::walk(out, window, (&head.file_id, FileKind::Manifest), &mut |out, found| match found {
            Found::Record(record) => tell_edit(out, &record, &mut edits, &mut lines),
            Found::Damaged(bytes) => {
                edits.lose();
                lines.flush(out)?;
                damaged(out, &bytes)
            }
        })?;
    lines.flush(out)?;
    ending.report(out);
    if edits.count == 0 {
        out.damage(ending.good_end, "manifest", "its first edit is missing")?;
    }
    Ok(())
}

fn state_facts(out: &mut Out<'_>, state: &ManifestState) -> Result {
    out.fact("next file", state.next_file, "")?;
    out.fact("sequence", state.last_seqno, "the last one that was given, or later")?;
    for (number, log) in &state.logs {
        let closed = match log.closed {
            Some((len, last)) => format!("closed at {}, last sequence number {last}", bytes(len)),
            None => "open".into(),
        };
        out.fact("log", format!("{number:06}.wal"), closed)?;
    }
    for (id, keyspace) in &state.keyspaces {
        out.fact("keyspace", escape(keyspace.name.as_bytes()), keyspace_words(*id, keyspace))?;
    }
    Ok(())
}

fn keyspace_words(id: u32, keyspace: &KeyspaceState) -> String {
    let tables: Vec<_> = keyspace.tables.values().collect();
    let total = |of: fn(&crate::table_meta::TableMeta) -> u64| {
        tables.iter().fold(0u64, |sum, place| sum.saturating_add(of(&place.meta)))
    };
    let levels: Vec<String> = (0..LEVELS as u8)
        .map(|level| (level, tables.iter().filter(|place| place.level == level).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(level, count)| format!("L{level} {count}"))
        .collect();
    let shape = if levels.is_empty() { "no tables".into() } else { levels.join(", ") };
    format!(
        "id {id}; tables: {shape}; {}, {}; flushed to {}",
        counted(total(|meta| meta.entries), "entry", "entries"),
        bytes(total(|meta| meta.len)),
        keyspace.flushed
    )
}

fn tell_edit(out: &mut Out<'_>, record: &Record<'_>, edits: &mut Edits, lines: &mut Lines) -> Result {
    let wrong = match record.bytes {
        Some(bytes) => edits.add(bytes).err(),
        None => {
            Some(DecodeError::corrupt(0, "edit", format!("{} are too many for an edit", bytes(record.len))))
        }
    };
    let (number, len) = (record.number, record.end - record.offset);
    let picked = out.view.block == Some(number);
    let shown = if out.view.block.is_some() { picked } else { lines.next(out, record.offset, len)? };
    let all = out.detail == Detail::Bytes || picked;
    out.showing(shown, |out| {
        let label = format!("edit {number}");
        out.group(Place::File(record.offset), len, label, note(record), |out| {
            out.showing(all, |out| framed::tell(out, record, tell_items))
        })
    })?;
    if let Some(error) = wrong {
        edits.lose();
        let payload = match record.fragments {
            [_] => Payload::Plain(record.offset + 16),
            _ => Payload::Made(record.offset),
        };
        out.refused_in(payload, &error)?;
    }
    Ok(())
}

fn note(record: &Record<'_>) -> String {
    let body = record.bytes.unwrap_or_default();
    let mark = body.first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
    let items = fields::count(body.get(16..).unwrap_or_default());
    format!("the {} of the store, {}, {}", ordinal(mark), counted(items, "item", "items"), bytes(record.len))
}

fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{}{ending}", super::words::count(number))
}

fn tell_items(out: &mut Out<'_>, payload: Payload, body: &[u8]) -> Result {
    let mut head = Fields::new(out, payload, &body[..body.len().min(16)]);
    match head.u64("edit count").and_then(|_| head.hex64("edit hash")) {
        Ok(_) => {}
        Err(Halt::Stop(stop)) => return Err(stop),
        // It is told by who decoded the edit.
        Err(Halt::Decode(_)) => return Ok(()),
    }
    fields::tell(out, payload, body, 16, say_item)
}
