//! Walks the records of a framed file (a log, a manifest) from front to back, past every damage.
//!
//! 1. Each page is divided into spans: intact fragments and other bytes ([`crate::wal::search::areas`]).
//! 2. Fragments that follow each other as a record's should are put together; whatever does not fit is
//!    damage.
//! 3. At the end the reader's rule is applied to the first damage. If a later intact fragment was framed when the
//!    damaged bytes were known to be durable, the bytes were promised, and the file is corrupt. Otherwise its tail is
//!    torn, and opening the store drops it. A corrupt file may also have a torn end, after its last record. Zeros
//!    after the last record of a log are preallocated space, not damage. For this a file is walked twice: damage can
//!    be classified only after the whole file was read.
//!
//! Memory: a page, and a record of up to [`Out::record_bytes_max`] bytes. In a longer record the fragments are
//! checked, but its contents are not decoded: then the description is partial.

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

/// The events of the walk.
pub(in crate::inspect) enum FramedItem {
    Record(Record),
    Damaged(Damaged),
}

/// The result of the walk.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::inspect) struct Ending {
    /// Whole records.
    pub(super) records: u64,
    /// Where the last record before the first damage ends.
    pub(in crate::inspect) good_end: u64,
    pub(in crate::inspect) first_damage: Option<u64>,
    /// Whether that is nothing but zeros from the end of a log's last record to the end of the file.
    is_room: bool,
    /// Whether that is intact and only newer than this program.
    newer: bool,
    /// The durable length that an intact fragment after the first damage states.
    pub(super) witness: u64,
    /// Where the last whole record ends, damage or not, or the last one of a newer version.
    last_end: u64,
    /// Bytes in whole records.
    pub(super) accounted: u64,
    /// Intact fragments.
    pub(super) fragments: u64,
}

impl Ending {
    /// Adds the verified bytes to the report.
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

    /// Notes that the file was promised to be durable up to `len`.
    pub(in crate::inspect) fn promise(&mut self, len: u64) {
        self.witness = self.witness.max(len);
    }

    /// Whether a reader refuses the file: somebody was promised the bytes that are damaged, or they are of a
    /// newer version.
    pub(in crate::inspect) fn is_refused(&self) -> bool {
        self.newer || self.is_corrupt()
    }

    pub(super) fn is_corrupt(&self) -> bool {
        self.first_damage.is_some_and(|damage| self.witness > damage)
    }

    /// Whether all that lies behind the last record is room that the writer had made.
    fn has_room(&self) -> bool {
        self.is_room && !self.is_refused()
    }

    /// How many bytes of a file of length `len` are such room.
    pub(super) fn room(&self, len: u64) -> u64 {
        if self.has_room() { len.saturating_sub(self.good_end) } else { 0 }
    }

    /// Whether what lies at `offset` is such room.
    pub(in crate::inspect) fn is_room_at(&self, offset: u64) -> bool {
        self.has_room() && offset >= self.good_end
    }

    /// The start of the torn end: it was never promised, and no record follows. In a file that a reader accepts, it
    /// is everything from the first damage on.
    fn torn_from(&self) -> Option<u64> {
        if self.first_damage.is_none() || self.has_room() {
            return None;
        }
        Some(if self.is_refused() { self.witness.max(self.last_end) } else { self.good_end })
    }

    /// Whether what lies at `offset` is in the torn end.
    pub(in crate::inspect) fn is_torn_at(&self, offset: u64) -> bool {
        self.torn_from().is_some_and(|from| offset >= from)
    }
}

type Visit<'v, 's> = &'v mut dyn FnMut(&mut Out<'s>, FramedItem) -> Result;

/// Walks the file; `visit` is given each record and each damage, in their order.
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

/// The first page from `at` on, which is the start of one, that may hold anything but zeros, or the end of the
/// file.
fn page_with_data(window: &Window<'_>, at: u64) -> Result<u64> {
    let data = window.next_data(at)?;
    Ok(if data == window.len() { data } else { at.max(data - data % PAGE_BYTES as u64) })
}

/// Walks the file to learn how it ends.
pub(in crate::inspect) fn ending(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    file: (&FileId, FileKind),
) -> Result<Ending> {
    walk(out, window, file, &mut |_, _| Ok(()))
}

/// The durable length beyond the damage that an intact fragment states, at any later position: a reader tries each
/// multiple of 8, also within bytes that the walk treated as the payload of another fragment.
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
    /// The record that is being put together.
    begun: Option<Record>,
    ending: Ending,
    /// Damage that was met and not yet reported: damage that follows without a gap is part of it.
    damaged: Option<Damaged>,
    /// Where the zeros begin that the walk is in.
    zeros_from: Option<u64>,
    visit: Visit<'v, 's>,
}

/// Bytes that are no record.
pub(in crate::inspect) struct Damaged {
    pub(in crate::inspect) offset: u64,
    pub(super) len: u64,
    detail: String,
    /// The difference of the first of them, if it is intact and only newer than this program.
    newer: Option<DecodeError>,
}

impl Damaged {
    /// Describes it: as damage, or, in a torn end, as bytes that are dropped.
    pub(super) fn describe(&self, out: &mut Out<'_>, ending: &Ending, lines: &mut Lines) -> Result {
        let len = counted(self.len, "byte", "bytes");
        let detail = format!("{len} are no record: {}", self.detail);
        let end = if ending.is_room_at(self.offset) {
            Some(("room", format!("{len} for more records: nothing but zeros")))
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

    /// The record that was begun does not go on. A reader meets that damage where the next fragment should
    /// be.
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

    /// Describes the damage that was met.
    fn flush(&mut self, out: &mut Out<'s>) -> Result {
        match self.damaged.take() {
            Some(damaged) => (self.visit)(out, FramedItem::Damaged(damaged)),
            None => Ok(()),
        }
    }
}

/// How many pages a file of this length has.
pub(super) fn pages(len: u64) -> u64 {
    len.div_ceil(PAGE_BYTES as u64)
}
