use byteorder::{ByteOrder, LittleEndian};

use super::log::{MARK, ending_fact};
use super::record::Record;
use super::walk::{self, Ending, FramedItem};
use crate::batch::KeyspaceId;
use crate::codec::DecodeError;
use crate::file_header::FileKind;
use crate::inspect::extensible::{self, describe_item};
use crate::inspect::file::{Head, Window};
use crate::inspect::output::{
    FileDamage, Lines, Out, Payload, Result, Value, bytes, count, counted, escape, fields,
};
use crate::key::SeqNo;
use crate::manifest::edit::{EditItems, LEVELS, LogEnd};
use crate::manifest::overlap::{Bounds, Runs};
use crate::manifest::state::{KeyspaceState, ManifestState, TablePlace};
use crate::number_map::NumberMap;
use crate::table_meta::TableMeta;
use crate::wal::EditMark;

const NO_EDIT: &str = "its first edit is missing";

const TOO_LONG: &str = "too long to be assembled";

#[derive(Debug, Default)]
pub(in crate::inspect) struct Edits {
    pub(in crate::inspect) state: ManifestState,
    pub(super) count: u64,
    items: u64,
    first: u64,
    last: Option<EditMark>,
    gap: bool,
    /// Number of edits, and per keyspace the last sequence number in tables.
    before_gap: Option<(u64, NumberMap<KeyspaceId, SeqNo>)>,
    pub(in crate::inspect) wrong: Option<FileDamage>,
}

impl Edits {
    /// Fails for an invalid item; after a gap, skips it.
    pub(super) fn add(&mut self, record: &[u8]) -> Result<(), DecodeError> {
        let (items, mark) = match self.gap && self.last.is_none() {
            true => EditItems::behind_gap(record)?,
            false => EditItems::open(record, self.last)?,
        };
        // Decodes twice, because items can take many times the record's memory.
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
            // After a gap, the item may refer to a lost edit, which is not damage.
            Err(detail) if !self.gap => Err(DecodeError::corrupt(16, "edit", detail)),
            _ => Ok(()),
        }
    }

    fn take(&mut self, found: &FramedItem, ending: &Ending) -> Option<DecodeError> {
        let error = match found {
            FramedItem::Damaged(bytes) if ending.is_torn_at(bytes.offset) => return None,
            FramedItem::Record(record) if ending.is_torn_at(record.offset) => return None,
            FramedItem::Damaged(_) => None,
            FramedItem::Record(Record { bytes: Some(bytes), .. }) => Some(self.add(bytes).err()?),
            FramedItem::Record(_) => Some(DecodeError::corrupt(0, "edit", TOO_LONG)),
        };
        self.lose();
        error
    }

    pub(super) fn lose(&mut self) {
        if !self.gap {
            let keyspaces = self.state.keyspaces.iter();
            let flushed = keyspaces.map(|(&id, keyspace)| (id, keyspace.flushed)).collect();
            self.before_gap = Some((self.count, flushed));
        }
        self.gap = true;
        self.last = None;
    }

    pub(in crate::inspect) fn flushed_before_gap(&self) -> Option<&NumberMap<KeyspaceId, SeqNo>> {
        let before = self.before_gap.as_ref().filter(|(count, _)| *count < self.count);
        before.map(|(_, flushed)| flushed)
    }

    fn facts(&self, out: &mut Out<'_>) -> Result {
        let items = counted(self.items, "item", "items");
        let mark = self.state.mark;
        let gap = if self.gap { ", with a gap" } else { "" };
        let span = match self.count {
            0 => String::new(),
            _ => format!("{} to {} of the store{gap}, ", ordinal(self.first), ordinal(mark.count)),
        };
        out.fact("edits", self.count, format!("{span}{items}"))?;
        out.fact("last hash", Value::Hex(mark.hash, 8), "")
    }
}

pub(in crate::inspect) fn survey(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    head: &Head,
) -> Result<(Edits, Ending)> {
    let mut edits = Edits::default();
    let file = (&head.file_id, FileKind::Manifest);
    let ending = walk::ending(out, window, file)?;
    walk::walk(out, window, file, &mut |_, found| {
        if let (Some(error), FramedItem::Record(record)) = (edits.take(&found, &ending), &found) {
            let error = DecodeError { offset: 0, ..error };
            edits.wrong.get_or_insert_with(|| FileDamage::of(record.offset, &error));
        }
        Ok(())
    })?;
    Ok((edits, ending))
}

pub(in crate::inspect) fn describe(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
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

pub(in crate::inspect) fn walk(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    head: &Head,
    ending: &Ending,
) -> Result<Edits> {
    let mut lines = Lines::new(out.detail, "edits");
    let mut edits = Edits::default();
    walk::walk(out, window, (&head.file_id, FileKind::Manifest), &mut |out, found| {
        let wrong = edits.take(&found, ending);
        match &found {
            FramedItem::Record(record) => describe_edit(out, record, wrong, &mut lines),
            FramedItem::Damaged(bytes) => bytes.describe(out, ending, &mut lines),
        }
    })?;
    lines.flush(out)?;
    ending.report(out);
    Ok(edits)
}

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
    if !state.store_ids.is_empty() {
        let ids: Vec<String> =
            state.store_ids.iter().map(|id| format!("{:032x}", u128::from_be_bytes(*id))).collect();
        out.fact("store ids", ids.join(" "), "of other stores, which files may bear")?;
    }
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
    let expiry = match (keyspace.buckets.horizon(), keyspace.buckets.boundaries().len() as u64) {
        (0, 0) => String::new(),
        (horizon, count) => {
            format!("; {}, horizon {horizon}", counted(count, "bucket boundary", "bucket boundaries"))
        }
    };
    let shape = if levels.is_empty() { "no tables".into() } else { levels.join(", ") };
    format!(
        "id {id}; tables: {shape}; {}, {}; flushed to {}{expiry}",
        counted(total(|meta| meta.entries), "entry", "entries"),
        bytes(total(|meta| meta.len)),
        keyspace.flushed
    )
}

fn describe_edit(
    out: &mut Out<'_>,
    record: &Record,
    wrong: Option<DecodeError>,
    lines: &mut Lines,
) -> Result {
    let place = (record.offset, record.end - record.offset);
    let line = (format!("edit {}", record.number), note(record));
    lines.unit(out, record.number, place, line, |out| record.describe(out, describe_items))?;
    match wrong.filter(|_| record.bytes.is_some()) {
        Some(error) => out.refused_in(record.payload(), &error),
        None => Ok(()),
    }
}

fn note(record: &Record) -> String {
    let Some(body) = &record.bytes else { return format!("{}, {TOO_LONG}", bytes(record.len)) };
    let mark = body.get(..8).map_or(0, LittleEndian::read_u64);
    let items = extensible::count(body.get(16..).unwrap_or_default());
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
    format!("{}{ending}", count(number))
}

fn describe_items(out: &mut Out<'_>, payload: Payload, body: &[u8]) -> Result {
    fields(out, payload, body, &MARK)?;
    extensible::describe(out, payload, body, 16, describe_item)
}
