//! Describes a manifest: its edits, item by item, and the store that they amount to.

use std::collections::BTreeMap;

use byteorder::{ByteOrder, LittleEndian};

use super::annotate::{Fields, Halt, Payload};
use super::event::{FileDamage, Place, Value};
use super::fields;
use super::framed::{self, Ending, FramedItem};
use super::head::Head;
use super::items::describe_item;
use super::lines::Lines;
use super::log::ending_fact;
use super::out::{Out, Result};
use super::record::{self, Record};
use super::text::escape;
use super::view::Detail;
use super::window::Window;
use super::words::{bytes, counted};
use crate::batch::KeyspaceId;
use crate::codec::DecodeError;
use crate::file_header::FileKind;
use crate::key::SeqNo;
use crate::manifest::edit::{EditItems, LEVELS, LogEnd};
use crate::manifest::overlap::{Bounds, Runs};
use crate::manifest::state::{KeyspaceState, ManifestState, TablePlace};
use crate::table_meta::TableMeta;
use crate::wal::EditMark;

const NO_EDIT: &str = "its first edit is missing";

const TOO_LONG: &str = "too long to be put together here";

/// The edits of a manifest, one after the other, as far as they follow each other.
#[derive(Debug, Default)]
pub(super) struct Edits {
    /// What they amount to.
    pub(super) state: ManifestState,
    pub(super) count: u64,
    items: u64,
    /// The count of the first one in the life of the store.
    first: u64,
    /// The mark of the last one, unless bytes are damaged behind it.
    last: Option<EditMark>,
    /// Whether an edit may have been lost.
    gap: bool,
    /// The number of edits before the first gap, and by keyspace the sequence number up to which they say that
    /// all entries are in tables.
    before_gap: Option<(u64, BTreeMap<KeyspaceId, SeqNo>)>,
    /// What is wrong with the first record that is whole and no edit that fits.
    pub(super) wrong: Option<FileDamage>,
}

impl Edits {
    /// Takes the next edit, up to the first item that does not fit, which is an error. Behind a gap all that
    /// fits is taken.
    pub(super) fn add(&mut self, record: &[u8]) -> Result<(), DecodeError> {
        let (items, mark) = match self.gap && self.last.is_none() {
            // Which one it is, it says itself.
            true => EditItems::behind_gap(record)?,
            false => EditItems::open(record, self.last)?,
        };
        // Decoded twice rather than kept: the items can take many times the memory of the record.
        items.clone().try_for_each(|item| item.map(drop))?;
        if self.count == 0 {
            self.first = mark.count;
        }
        self.count += 1;
        self.last = Some(mark);
        let mut applied = Ok(());
        for item in items {
            self.items += 1;
            let item = item?;
            if applied.is_ok() || self.gap {
                applied = applied.and(self.state.apply_item(&item));
            }
        }
        self.state.mark = mark;
        match applied {
            // What was lost may be what an item refers to: not damage of this edit.
            Err(detail) if !self.gap => Err(DecodeError::corrupt(16, "edit", detail)),
            _ => Ok(()),
        }
    }

    /// Notes that bytes at `offset` are no record. What is dropped is not missed.
    fn lose_at(&mut self, offset: u64, ending: &Ending) {
        if !ending.is_torn_at(offset) {
            self.lose();
        }
    }

    /// Notes that bytes were damaged, or not read.
    pub(super) fn lose(&mut self) {
        if !self.gap {
            let keyspaces = self.state.keyspaces.iter();
            let flushed = keyspaces.map(|(&id, keyspace)| (id, keyspace.flushed)).collect();
            self.before_gap = Some((self.count, flushed));
        }
        self.gap = true;
        self.last = None;
    }

    /// If edits behind a gap were taken: by keyspace, the sequence number up to which the edits before it say
    /// that all entries are in tables.
    pub(super) fn flushed_before_gap(&self) -> Option<&BTreeMap<KeyspaceId, SeqNo>> {
        let before = self.before_gap.as_ref().filter(|(count, _)| *count < self.count);
        before.map(|(_, flushed)| flushed)
    }

    fn facts(&self, out: &mut Out<'_>) -> Result {
        let items = counted(self.items, "item", "items");
        let mark = self.state.mark;
        let span = match (self.count, self.gap) {
            (0, _) => String::new(),
            (_, gap) => {
                let gap = if gap { ", with a gap" } else { "" };
                format!("{} to {} of the store{gap}, ", ordinal(self.first), ordinal(mark.count))
            }
        };
        out.fact("edits", self.count, format!("{span}{items}"))?;
        out.fact("last hash", Value::Hex(mark.hash, 8), "")
    }
}

/// Reads all edits, as far as they can be read, and reports nothing.
pub(super) fn survey(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result<(Edits, Ending)> {
    let mut edits = Edits::default();
    let file = (&head.file_id, FileKind::Manifest);
    let ending = framed::ending(out, window, file)?;
    framed::walk(out, window, file, &mut |_, found| {
        let record = match found {
            FramedItem::Record(record) if ending.is_torn_at(record.offset) => return Ok(()),
            FramedItem::Record(record) => record,
            FramedItem::Damaged(bytes) => {
                edits.lose_at(bytes.offset, &ending);
                return Ok(());
            }
        };
        let added = record.bytes.ok_or_else(|| DecodeError::corrupt(0, "edit", TOO_LONG));
        if let Err(error) = added.and_then(|bytes| edits.add(bytes)) {
            edits.lose();
            edits
                .wrong
                .get_or_insert_with(|| FileDamage { offset: record.offset, ..FileDamage::of(0, &error) });
        }
        Ok(())
    })?;
    Ok((edits, ending))
}

/// Describes a manifest.
pub(super) fn describe(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    let (edits, ending) = survey(out, window, head)?;
    head.facts(out)?;
    edits.facts(out)?;
    state_facts(out, &edits.state)?;
    ending_fact(out, &ending, false)?;

    out.showing(out.view.block.is_none(), |out| head.describe(out))?;
    let edits = walk(out, window, head, &ending)?;
    match (edits.count, edits.gap) {
        (0, _) => out.damage(ending.good_end, "manifest", NO_EDIT),
        (_, true) => Ok(()),
        (_, false) => judge(out, &edits.state),
    }
}

/// Describes the edits, and takes those that a reader takes.
pub(super) fn walk(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    head: &Head,
    ending: &Ending,
) -> Result<Edits> {
    let mut lines = Lines::new(out.detail, "edits");
    let mut edits = Edits::default();
    framed::walk(out, window, (&head.file_id, FileKind::Manifest), &mut |out, found| match found {
        FramedItem::Record(record) => describe_edit(out, &record, (&mut edits, ending), &mut lines),
        FramedItem::Damaged(bytes) => {
            edits.lose_at(bytes.offset, ending);
            bytes.describe(out, ending, &mut lines)
        }
    })?;
    lines.flush(out)?;
    ending.report(out);
    Ok(edits)
}

/// Describes what opening the store would find wrong with the state that all edits amount to.
fn judge(out: &mut Out<'_>, state: &ManifestState) -> Result {
    for fault in state.faults() {
        out.refused(0, &fault)?;
    }
    for keyspace in state.keyspaces.values() {
        let mut runs = Runs::default();
        for TablePlace { level, run, meta } in keyspace.tables.values() {
            let (smallest, largest) = (meta.smallest.clone(), meta.largest.clone());
            let (trimmed, number) = (meta.trimmed, meta.number);
            runs.add(*level, *run, Bounds { smallest, largest, trimmed, number });
        }
        runs.overlaps().try_for_each(|overlap| out.damage(0, "table", overlap.detail))?;
    }
    Ok(())
}

fn state_facts(out: &mut Out<'_>, state: &ManifestState) -> Result {
    out.fact("next file", state.next_file, "")?;
    out.fact("sequence", state.last_seqno, "the last one that was given, or later")?;
    for (number, log) in &state.logs {
        let end = match log.end {
            Some(LogEnd { len, last_seqno, is_cut }) => {
                let how = if is_cut { "cut" } else { "closed" };
                format!("{how} at {}, last sequence number {last_seqno}", bytes(len))
            }
            None => "open".into(),
        };
        out.fact("log", format!("{number:06}.wal"), end)?;
    }
    for (id, keyspace) in &state.keyspaces {
        out.fact("keyspace", escape(keyspace.name.as_bytes()), keyspace_words(*id, keyspace))?;
    }
    Ok(())
}

fn keyspace_words(id: u32, keyspace: &KeyspaceState) -> String {
    let tables: Vec<_> = keyspace.tables.values().collect();
    let total = |of: fn(&TableMeta) -> u64| {
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

fn describe_edit(
    out: &mut Out<'_>,
    record: &Record<'_>,
    (edits, ending): (&mut Edits, &Ending),
    lines: &mut Lines,
) -> Result {
    let wrong = match record.bytes {
        _ if ending.is_torn_at(record.offset) => None,
        Some(bytes) => edits.add(bytes).err(),
        None => {
            edits.lose();
            None
        }
    };
    let (number, len) = (record.number, record.end - record.offset);
    let picked = out.view.block == Some(number);
    let shown = if out.view.block.is_some() { picked } else { lines.next(out, record.offset, len)? };
    let all = out.detail == Detail::Bytes || picked;
    out.showing(shown, |out| {
        let label = format!("edit {number}");
        out.group(Place::File(record.offset), len, label, note(record), |out| {
            out.showing(all, |out| record::describe(out, record, describe_items))
        })
    })?;
    if let Some(error) = wrong {
        edits.lose();
        out.refused_in(record.payload(), &error)?;
    }
    Ok(())
}

fn note(record: &Record<'_>) -> String {
    let Some(body) = record.bytes else { return format!("{}, {TOO_LONG}", bytes(record.len)) };
    let mark = body.get(..8).map_or(0, LittleEndian::read_u64);
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

fn describe_items(out: &mut Out<'_>, payload: Payload, body: &[u8]) -> Result {
    let mut head = Fields::new(out, payload, &body[..body.len().min(16)]);
    match head.u64("edit count").and_then(|_| head.hex64("edit hash")) {
        Ok(_) => {}
        Err(Halt::Stop(stop)) => return Err(stop),
        // It is reported by who decoded the edit.
        Err(Halt::Unread) => return Ok(()),
    }
    fields::describe(out, payload, body, 16, describe_item)
}
