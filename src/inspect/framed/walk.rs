//! Walks the records of a framed file (log, manifest) past all damage.
//!
//! 1. Divides each page into intact fragments and other bytes ([`crate::wal::search::areas`]).
//! 2. Assembles fragments into records. All other bytes are damage.
//! 3. At the end, the first damage is classified as by a reader. If a later intact fragment states that the damaged
//!    bytes were durable, the file is corrupt; its end may also be torn. Otherwise its tail is torn, and opening the
//!    store drops it. Zeros after a log's last record are preallocated space.
//!
//! Each file is walked twice, because classification needs the end of the file.
//!
//! Memory: a page, and a record of up to [`Out::record_bytes_max`] bytes. Longer records are described partially.

use super::record::{Record, RecordFragment};
use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::file_header::{FileKind, HEADER_BYTES};
use crate::inspect::file::Window;
use crate::inspect::output::{Lines, Out, Place, Result, Value, counted};
use crate::wal::record::{FRAGMENT_HEADER_BYTES, Fragment, PAGE_BYTES, page_left};
use crate::wal::search::{AreaStatus, PageArea, Search, areas};
use crate::wal::{Refused, Sequence};

const LOST_END: &str = "the record that begins here has lost its end";

pub(in crate::inspect) enum FramedItem {
    Record(Record),
    Damaged(Damaged),
}

#[derive(Debug, Clone, Copy, Default)]
pub(in crate::inspect) struct Ending {
    pub(super) records: u64,
    pub(in crate::inspect) good_end: u64,
    pub(in crate::inspect) first_damage: Option<u64>,
    is_room: bool,
    /// Whether the first damaged bytes are intact, with an unsupported version.
    newer: bool,
    /// The durable length that an intact fragment after the first damage states.
    pub(super) witness: u64,
    /// The end of the last whole record, even if it follows damage or has an unsupported version.
    last_end: u64,
    pub(super) accounted: u64,
    pub(super) fragments: u64,
}

impl Ending {
    pub(super) fn report(&self, out: &mut Out<'_>) {
        let torn_from = self.torn_from();
        out.report.accounted += match torn_from {
            Some(from) if !self.is_refused() => from - HEADER_BYTES as u64,
            _ => self.accounted + self.room(out.report.len),
        };
        out.report.torn_bytes = torn_from.map_or(0, |from| out.report.len.saturating_sub(from));
        out.report.checksums += self.fragments;
        out.report.units = self.records;
    }

    pub(in crate::inspect) fn promise(&mut self, len: u64) {
        self.witness = self.witness.max(len);
    }

    /// Whether a reader refuses the file: promised bytes are damaged or unsupported.
    pub(in crate::inspect) fn is_refused(&self) -> bool {
        self.newer || self.is_corrupt()
    }

    pub(super) fn is_corrupt(&self) -> bool {
        self.first_damage.is_some_and(|damage| self.witness > damage)
    }

    fn has_room(&self) -> bool {
        self.is_room && !self.is_refused()
    }

    pub(super) fn room(&self, len: u64) -> u64 {
        if self.has_room() { len.saturating_sub(self.good_end) } else { 0 }
    }

    pub(in crate::inspect) fn is_room_at(&self, offset: u64) -> bool {
        self.has_room() && offset >= self.good_end
    }

    /// Returns the start of the torn end, which was never promised. In a file that a reader accepts, the torn end
    /// follows the last record before the first damage; in others, the last record and the promised bytes.
    fn torn_from(&self) -> Option<u64> {
        if self.first_damage.is_none() || self.has_room() {
            return None;
        }
        Some(if self.is_refused() { self.witness.max(self.last_end) } else { self.good_end })
    }

    pub(in crate::inspect) fn is_torn_at(&self, offset: u64) -> bool {
        self.torn_from().is_some_and(|from| offset >= from)
    }
}

type Visit<'v, 's> = &'v mut dyn FnMut(&mut Out<'s>, FramedItem) -> Result;

pub(in crate::inspect) fn walk<'s>(
    out: &mut Out<'s>,
    window: &mut Window<'_>,
    (file_id, kind): (&FileId, FileKind),
    visit: Visit<'_, 's>,
) -> Result<Ending> {
    let mut at = HEADER_BYTES as u64;
    let (sequence, ending) = (Sequence::new(kind), Ending { good_end: at, ..Ending::default() });
    let mut walker = Walker { sequence, begun: None, ending, damaged: None, zeros_from: None, visit };
    while at < window.len() {
        let page = window.get(at, page_left(at) as u64)?;
        for span in areas(file_id, at, page) {
            let from = (span.offset - at) as usize;
            walker.span(out, &span, &page[from..from + span.bytes])?;
        }
        let is_zero = page.iter().all(|&byte| byte == 0);
        at += page.len() as u64;
        let data = if is_zero { page_with_data(window, at)? } else { at };
        if data > at {
            let hole = PageArea { offset: at, bytes: (data - at) as usize, status: AreaStatus::Padding };
            walker.span(out, &hole, &[])?;
            at = data;
        }
    }
    walker.give_up_begun(out, "the file ends before the record that begins here does")?;
    walker.flush(out)?;
    let (mut ending, zeros_from) = (walker.ending, walker.zeros_from);
    ending.is_room =
        kind == FileKind::Log && zeros_from == Some(ending.good_end) && zeros_from == ending.first_damage;
    if let (false, Some(damage)) = (ending.is_refused(), ending.first_damage)
        && let Some(synced) = hidden_witness(window, file_id, damage)?
    {
        ending.witness = synced;
    }
    Ok(ending)
}

fn page_with_data(window: &Window<'_>, at: u64) -> Result<u64> {
    let data = window.next_data(at)?;
    Ok(if data == window.len() { data } else { at.max(data - data % PAGE_BYTES as u64) })
}

pub(in crate::inspect) fn ending(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    file: (&FileId, FileKind),
) -> Result<Ending> {
    walk(out, window, file, &mut |_, _| Ok(()))
}

/// Returns the durable length that a later intact fragment states. Like a reader, tries each multiple of 8, even inside
/// payloads.
fn hidden_witness(window: &mut Window<'_>, file_id: &FileId, damage: u64) -> Result<Option<u64>> {
    let mut at = damage;
    while at < window.len() {
        let rest = window.get(at, page_left(at) as u64)?;
        if let Some(witness) = Search::new(file_id, at, rest).first_from(at, damage + 1) {
            return Ok(Some(witness.synced));
        }
        let is_zero = rest.iter().all(|&byte| byte == 0);
        at += rest.len() as u64;
        at = if is_zero { page_with_data(window, at)? } else { at };
    }
    Ok(None)
}

struct Walker<'v, 's> {
    sequence: Sequence,
    begun: Option<Record>,
    ending: Ending,
    damaged: Option<Damaged>,
    zeros_from: Option<u64>,
    visit: Visit<'v, 's>,
}

pub(in crate::inspect) struct Damaged {
    pub(in crate::inspect) offset: u64,
    pub(super) len: u64,
    detail: String,
    newer: Option<DecodeError>,
}

impl Damaged {
    pub(super) fn describe(&self, out: &mut Out<'_>, ending: &Ending, lines: &mut Lines) -> Result {
        let len = counted(self.len, "byte", "bytes");
        let detail = format!("{len} are no record: {}", self.detail);
        let end = if ending.is_room_at(self.offset) {
            Some(("room", format!("{len} for more records, all zeros")))
        } else {
            ending.is_torn_at(self.offset).then(|| ("torn end", detail.clone()))
        };
        if let Some((label, note)) = end {
            let shown = out.view.is_whole() && lines.next(out, self.offset, self.len)?;
            return out.showing(shown, |out| {
                out.span(Place::File(self.offset), self.len, &[], label, Value::None, note, None)
            });
        }
        lines.flush(out)?;
        match &self.newer {
            Some(newer) => out.refused(self.offset, newer),
            None => out.damage(self.offset, "log fragment", detail),
        }
    }
}

impl<'s> Walker<'_, 's> {
    fn span(&mut self, out: &mut Out<'s>, span: &PageArea, bytes: &[u8]) -> Result {
        let is_zero = matches!(span.status, AreaStatus::Padding);
        self.zeros_from = is_zero.then_some(self.zeros_from.unwrap_or(span.offset));
        let detail = match &span.status {
            AreaStatus::Intact(fragment) => return self.fragment(out, fragment, bytes),
            AreaStatus::Padding => "nothing but zeros".to_owned(),
            AreaStatus::Damaged(damage) => damage.to_string(),
        };
        self.give_up_begun(out, LOST_END)?;
        self.give_up(out, Damaged { offset: span.offset, len: span.bytes as u64, detail, newer: None })
    }

    fn fragment(&mut self, out: &mut Out<'s>, fragment: &Fragment, bytes: &[u8]) -> Result {
        self.ending.fragments += 1;
        if self.ending.first_damage.is_some_and(|damage| fragment.offset > damage) {
            self.ending.promise(fragment.synced);
        }
        let kind = match self.sequence.take(fragment) {
            Ok(kind) => kind,
            Err(refused) => {
                self.give_up_begun(out, LOST_END)?;
                let (detail, newer) = match refused {
                    Refused::Damaged(damage) => (damage.to_string(), None),
                    Refused::Newer { what, found, supported } => {
                        self.ending.newer |= self.ending.first_damage.is_none();
                        self.ending.last_end = fragment.end();
                        let newer = DecodeError::unsupported(0, what, found.into(), supported.into());
                        (String::new(), Some(newer))
                    }
                };
                let (offset, len) = (fragment.offset, fragment.extent_bytes as u64);
                return self.give_up(out, Damaged { offset, len, detail, newer });
            }
        };
        self.flush(out)?;
        let begun = self.begun.get_or_insert_with(|| Record {
            number: self.ending.records,
            kind,
            offset: fragment.offset,
            end: fragment.offset,
            fragments: Vec::new(),
            fragment_count: 0,
            bytes: Some(Vec::new()),
            len: 0,
        });
        let payload_end = FRAGMENT_HEADER_BYTES + fragment.payload_bytes;
        begun.len += fragment.payload_bytes as u64;
        begun.end = fragment.end();
        begun.fragment_count += 1;
        match &mut begun.bytes {
            Some(whole) if begun.len <= out.record_bytes_max => {
                let header = bytes.first_chunk().copied().unwrap_or_default();
                let padding = bytes.len() - payload_end;
                begun.fragments.push(RecordFragment { fragment: *fragment, header, padding });
                whole.extend_from_slice(&bytes[FRAGMENT_HEADER_BYTES..payload_end]);
            }
            _ => begun.bytes = None,
        }
        if fragment.last { self.finish(out) } else { Ok(()) }
    }

    fn finish(&mut self, out: &mut Out<'s>) -> Result {
        let Some(record) = self.begun.take() else { return Ok(()) };
        let ending = &mut self.ending;
        ending.records += 1;
        ending.last_end = record.end;
        ending.accounted += record.end - record.offset;
        if ending.first_damage.is_none() {
            ending.good_end = record.end;
        }
        out.report.partial |= record.bytes.is_none();
        (self.visit)(out, FramedItem::Record(record))
    }

    /// Reports the record at its missing fragment, as a reader does.
    fn give_up_begun(&mut self, out: &mut Out<'s>, why: &str) -> Result {
        let Some(begun) = self.begun.take() else { return Ok(()) };
        self.sequence.give_up();
        self.ending.first_damage.get_or_insert(begun.end);
        let Record { offset, end, .. } = begun;
        self.give_up(out, Damaged { offset, len: end - offset, detail: why.to_owned(), newer: None })
    }

    fn give_up(&mut self, out: &mut Out<'s>, next: Damaged) -> Result {
        self.ending.first_damage.get_or_insert(next.offset);
        if let Some(damaged) = &mut self.damaged
            && damaged.offset + damaged.len == next.offset
            && damaged.newer == next.newer
        {
            damaged.len += next.len;
            return Ok(());
        }
        self.flush(out)?;
        self.damaged = Some(next);
        Ok(())
    }

    fn flush(&mut self, out: &mut Out<'s>) -> Result {
        match self.damaged.take() {
            Some(damaged) => (self.visit)(out, FramedItem::Damaged(damaged)),
            None => Ok(()),
        }
    }
}

pub(super) fn pages(len: u64) -> u64 {
    len.div_ceil(PAGE_BYTES as u64)
}
