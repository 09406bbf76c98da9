//! Walks a table: its summary, then every byte.
//!
//! 1. Reads the ends. Any part may be damaged. All checksums need the file id, so the footer repeats it.
//! 2. Walks by the lengths in blocks and filter headers: verifies blocks, counts entries, probes each filter with each
//!    key ([`Held`]), follows the index, chunks and filter names.
//! 3. Damage to a block affects the keys between the separators around it. Damage to a chunk affects the key of its
//!    value. Other damage may affect all keys. The walk continues after damage ([`Walk::resume`]).
//! 4. Compares the sums with the properties. Consequences of earlier damage are not reported again.
//!
//! Memory: two blocks, the filters, the file's buffer, a key, an index block per level, and a few words per index
//! block and unreferenced chunk.

use super::block::{self, Opened};
use super::chunks::Chunks;
use super::ends::Ends;
use super::filters::{self, Held};
use super::index::{Index, Key, Reference};
use super::sums::Sums;
use crate::block::{BlockHandle, BlockKind, ENVELOPE_BYTES, Envelope};
use crate::codec::{DecodeError, DecodeErrorKind};
use crate::file_header::HEADER_BYTES;
use crate::filter::Header;
use crate::filter::header::HEADER_BYTES as FILTER_HEADER_BYTES;
use crate::inspect::file::{Head, Window};
use crate::inspect::filter_block;
use crate::inspect::output::{Detail, Fault, Lines, Out, Result};
use crate::table_meta::FilterRef;

/// Limits of bytes checksummed in vain, absolute and relative to the file's length, for hostile files.
const WASTED_BYTES_MAX: u64 = 256 << 20;
const WASTED_TIMES_MAX: u64 = 8;

const UNREFERENCED_MAX: usize = 100_000;

pub(in crate::inspect) fn describe(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    let ends = Ends::read(window, head, None)?;
    head.facts(out)?;
    ends.facts(out)?;
    filters::facts(out, window, &ends)?;
    let held = if out.probes_filters { filters::open_filters(out, window, &ends)? } else { Vec::new() };
    walk(out, window, head, &ends, held).map(drop)
}

pub(in crate::inspect) fn walk(
    out: &mut Out<'_>,
    window: &mut Window<'_>,
    head: &Head,
    ends: &Ends,
    held: Vec<Held>,
) -> Result<Vec<Held>> {
    let whole = out.view.is_whole();
    let bounds = ends.bounds().or_else(|| ends.stated.as_ref().map(|stated| stated.bounds.clone()));
    out.concerning(bounds, |out| {
        out.showing(whole, |out| head.describe(out))?;
        ends.describe_other_id(out)?;
        if let Ok((footer, _)) = &ends.footer {
            out.sums_at = footer.properties.offset;
        }
        let mut walk = Walk::new(out, window, ends, held);
        let before = out.report.damage_count;
        walk.run(out, whole)?;
        out.showing(whole, |out| ends.describe_footer(out))?;
        out.showing(whole, |out| walk.finish(out, before))?;
        Ok(walk.held)
    })
}

pub(super) struct Walk<'w, 'f> {
    pub(super) window: &'w mut Window<'f>,
    pub(super) ends: &'w Ends,
    pub(super) position: u64,
    pub(super) number: u64,
    lines: Option<(BlockKind, Lines)>,
    /// The number of bytes that may still be checksummed in vain.
    pub(super) budget: u64,
    pub(super) sums: Sums,
    pub(super) index: Option<Index>,
    pub(super) chunks: Option<Chunks>,
    pub(super) held: Vec<Held>,
    /// Intact blocks in file order; the kind is `None` after a reference out of order.
    unreferenced: Vec<(u64, Option<BlockKind>)>,
    filters: std::iter::Peekable<std::vec::IntoIter<FilterRef>>,
    seed: Option<u64>,
    behind_data: bool,
    met_properties: bool,
}

impl<'w, 'f> Walk<'w, 'f> {
    fn new(out: &Out<'_>, window: &'w mut Window<'f>, ends: &'w Ends, held: Vec<Held>) -> Self {
        let footer = ends.footer.as_ref().ok();
        let index =
            footer.map(|(footer, _)| Index::new(footer, ends.file_id, ends.blocks_end, out.keys.clone()));
        Self {
            window,
            ends,
            position: HEADER_BYTES as u64,
            number: 0,
            lines: None,
            budget: wasted_bytes_max(ends.blocks_end),
            sums: Sums::default(),
            index,
            chunks: Some(Chunks::default()),
            held,
            unreferenced: Vec::new(),
            filters: ends.filters().into_iter().peekable(),
            seed: ends.stated.as_ref().map(|stated| stated.seed),
            behind_data: false,
            met_properties: false,
        }
    }

    fn run(&mut self, out: &mut Out<'_>, whole: bool) -> Result {
        if out.detail == Detail::Summary && whole {
            out.report.partial = true;
            self.leave();
            return Ok(());
        }
        while self.position < self.ends.blocks_end {
            if out.view.block.is_some_and(|block| block < self.number) {
                out.report.partial = true;
                self.leave();
                break;
            }
            let at = self.position;
            let named = self.filters.peek().is_some_and(|named| named.offset == at);
            if named || filter_block::is_at(self.window, at)? {
                self.finish_lines(out)?;
                self.end_data(out)?;
                self.filter(out)?;
            } else {
                self.block(out)?;
            }
            self.number += 1;
            debug_assert!(self.position > at, "the walk goes on");
        }
        self.finish_lines(out)?;
        out.report.units = self.number;
        Ok(())
    }

    fn leave(&mut self) {
        (self.index, self.chunks) = (None, None);
        self.held.clear();
    }

    fn is_skipped(&self, out: &Out<'_>) -> bool {
        out.view.block.is_some_and(|block| block != self.number)
    }

    fn filter(&mut self, out: &mut Out<'_>) -> Result {
        let (at, number, end) = (self.position, self.number, self.ends.blocks_end);
        let skipped = self.is_skipped(out) || out.view.entries.is_some();
        let picked = out.view.block == Some(number);
        let name = self.filters.next_if(|named| named.offset == at);
        let known = self.ends.known(name.as_ref(), self.seed);
        if !filter_block::is_aligned(at) {
            out.damage(at, "filter handle", "the offset is no multiple of 4096")?;
        }
        if let Some(named) = &name
            && !self.ends.uses(out, named)
            && (1..=end - at).contains(&named.len)
        {
            self.position = at + named.len;
            return Ok(());
        }
        let label = format!("block {number}, filter");
        let described = out.showing(!skipped, |out| {
            filter_block::describe(out, self.window, (at, end), label, (picked, known))
        })?;
        let Some(len) = described else {
            let limit = self.next_start(at);
            return self.search(out, at + 1, limit);
        };
        self.position = at + len;
        if let Ok(header) = Header::decode(&self.window.apart(at, FILTER_HEADER_BYTES as u64)?) {
            self.seed.get_or_insert(header.seed);
        }
        Ok(())
    }

    fn block(&mut self, out: &mut Out<'_>) -> Result {
        let at = self.position;
        let handle = match self.handle_at(at) {
            Ok(handle) => handle,
            Err(fault) => return self.damaged(out, at, None, fault),
        };
        if self.is_skipped(out) {
            out.report.partial = true;
            self.leave();
            self.position += handle.len;
            return Ok(());
        }
        match self.open(handle) {
            Ok(block) => {
                self.position += handle.len;
                out.report.accounted += handle.len;
                self.intact(out, &block)
            }
            Err(fault) => self.damaged(out, at, Some(handle.len), fault),
        }
    }

    fn handle_at(&mut self, at: u64) -> Result<BlockHandle, Fault> {
        let end = self.ends.blocks_end;
        let head = self.window.get(at, (end - at).min(ENVELOPE_BYTES as u64))?;
        let envelope = Envelope::decode(head).map_err(|error| error.at(at))?;
        let handle = BlockHandle { offset: at, len: envelope.sealed_len() };
        handle.check(end).map_err(|error| error.at(at))?;
        if self.budget < handle.len {
            let limit = self.next_start(at);
            if at + handle.len > limit {
                let detail = format!("the block ends behind {limit}, where another one starts");
                return Err(DecodeError::corrupt(at + 4, "block stored length", detail).into());
            }
        }
        Ok(handle)
    }

    /// Rereads a damaged block, because the damage may be in the transfer.
    fn open(&mut self, handle: BlockHandle) -> Result<Opened, Fault> {
        let BlockHandle { offset, len } = handle;
        let id = &self.ends.file_id;
        let first = Opened::open(id, offset, self.window.get(offset, len)?);
        let opened = match first {
            Err(DecodeError { kind: DecodeErrorKind::Corrupt(_), .. }) if len <= self.budget => {
                self.budget -= len;
                let again = self.window.read_again(offset, len)?;
                Opened::open(id, offset, &again)
            }
            first => first,
        };
        Ok(opened.map_err(|error| error.at(offset))?)
    }

    fn intact(&mut self, out: &mut Out<'_>, block: &Opened) -> Result {
        out.report.checksums += 1;
        let misplaced = self.place(out, block)?;
        let scanned = self.scan(out, block)?;
        if out.view.entries.is_none() {
            let (number, file_id) = (self.number, &self.ends.file_id);
            let line = (format!("block {number}, {}", name(block.kind)), scanned.note);
            self.lines_of(out, block.kind)?.unit(out, number, (block.offset, block.len()), line, |out| {
                block::describe_envelope(out, file_id, block.offset, &block.sealed)?;
                block::describe_payload(out, block)
            })?;
        }
        if let Some(error) = misplaced {
            out.refused(0, &error)?;
        }
        if let Some((error, keys)) = scanned.broken {
            let keys = keys.or_else(|| out.keys.clone());
            out.concerning(keys, |out| out.refused_in(block.place(), &error))?;
        }
        for (fault, keys) in scanned.wrong {
            out.fault(fault, Some(keys))?;
        }
        self.report_index(out)
    }

    fn place(&mut self, out: &mut Out<'_>, block: &Opened) -> Result<Option<DecodeError>> {
        let wrong = |what, detail| Ok(Some(DecodeError::corrupt(block.offset, what, detail)));
        match (block.kind, &self.ends.footer) {
            (BlockKind::Data | BlockKind::ValueChunk, _) if self.behind_data => {
                return wrong("block kind", "data behind a block that is none");
            }
            (BlockKind::Data | BlockKind::ValueChunk, _) => return Ok(None),
            (BlockKind::Properties, Ok((footer, _))) if footer.properties != block.handle() => {
                return wrong("properties block", "the footer refers to another one");
            }
            (BlockKind::Properties, _) => self.met_properties = true,
            (BlockKind::Index | BlockKind::Padding | BlockKind::Spans, _) => {}
        }
        self.end_data(out)?;
        Ok(None)
    }

    /// Returns the reference to the data block at `at`, if any. References to passed offsets are damage.
    pub(super) fn meet_data(&mut self, out: &mut Out<'_>, at: u64) -> Result<Option<Reference>> {
        let Some(index) = &mut self.index else { return Ok(None) };
        while let Some(next) = index.peek(self.window) {
            match next.handle.offset.cmp(&at) {
                std::cmp::Ordering::Equal => return Ok(Some(next)),
                std::cmp::Ordering::Greater => return Ok(None),
                std::cmp::Ordering::Less => {}
            }
            let error = lost_reference(&next, &mut self.unreferenced);
            out.fault(error.into(), Some(next.keys))?;
            index.pass(next.separator);
        }
        Ok(None)
    }

    pub(super) fn pass(&mut self, separator: Key) {
        if let Some(index) = &mut self.index {
            index.pass(separator);
        }
    }

    pub(super) fn note_unreferenced(&mut self, block: &Opened) {
        if self.unreferenced.len() < UNREFERENCED_MAX {
            self.unreferenced.push((block.offset, Some(block.kind)));
        }
    }

    fn end_data(&mut self, out: &mut Out<'_>) -> Result {
        self.behind_data = true;
        let data_end = self.ends.properties.as_ref().map_or(0, |own| own.data_end);
        if self.position < data_end {
            return Ok(());
        }
        self.meet_data(out, u64::MAX)?;
        self.report_index(out)
    }

    fn report_index(&mut self, out: &mut Out<'_>) -> Result {
        let faults = self.index.as_mut().map(Index::take_faults).unwrap_or_default();
        faults.into_iter().try_for_each(|(fault, keys)| out.fault(fault, keys))
    }

    fn finish(&mut self, out: &mut Out<'_>, before: u64) -> Result {
        self.meet_data(out, u64::MAX)?;
        self.report_index(out)?;
        let mut unreferenced = std::mem::take(&mut self.unreferenced);
        if let Some(chunks) = &mut self.chunks {
            let (damaged, intact) = chunks.take_rest();
            let keys = out.keys.clone();
            damaged.into_iter().try_for_each(|fault| out.fault(fault, keys.clone()))?;
            unreferenced.extend(intact.into_iter().map(|at| (at, Some(BlockKind::ValueChunk))));
            unreferenced.sort_unstable_by_key(|&(at, _)| at);
        }
        if let Some(index) = &mut self.index {
            let (lost, unmet) = index.take_rest();
            lost.into_iter().try_for_each(|(fault, keys)| out.fault(fault, keys))?;
            if out.report.damage_count == before {
                for at in unmet {
                    out.damage(at, "index block", "stands within another block")?;
                }
            }
        }
        if out.report.damage_count == before {
            self.compare(out, unreferenced)?;
        }
        for held in &self.held {
            if let Some((error, keys)) = held.denial() {
                out.fault(error.into(), Some(keys.clone()))?;
            }
        }
        Ok(())
    }

    fn compare(&mut self, out: &mut Out<'_>, unreferenced: Vec<(u64, Option<BlockKind>)>) -> Result {
        let (Ok((footer, _)), Some(index)) = (&self.ends.footer, &mut self.index) else { return Ok(()) };
        let before = out.report.damage_count;
        if !self.met_properties {
            let detail = "the footer states another offset for it";
            out.damage(footer.properties.offset, "properties block", detail)?;
        }
        if let Some(lost) = self.filters.next() {
            out.damage(lost.offset, "filter handle", "the properties name a filter that is not there")?;
        }
        for (at, kind) in unreferenced {
            kind.map_or(Ok(()), |kind| out.damage(at, kind.name(), "nothing refers to it"))?;
        }
        if !index.ends_with(self.sums.last.as_ref()) {
            let detail = "the last separator is not the last user key with tag 0";
            out.damage(footer.root.offset, "index block", detail)?;
        }
        if out.report.damage_count > before {
            return Ok(());
        }
        match &self.ends.properties {
            Ok(properties) => self.sums.compare(out, properties, (footer, self.ends.blocks_end)),
            // The block is intact, but the footer has another position or kind.
            Err(error) => out.refused(0, error),
        }
    }

    fn lines_of(&mut self, out: &mut Out<'_>, kind: BlockKind) -> Result<&mut Lines> {
        if self.lines.as_ref().is_some_and(|(before, _)| *before != kind) {
            self.finish_lines(out)?;
        }
        Ok(&mut self.lines.get_or_insert_with(|| (kind, Lines::new(out.detail, plural(kind)))).1)
    }

    pub(super) fn finish_lines(&mut self, out: &mut Out<'_>) -> Result {
        match self.lines.take() {
            Some((_, mut lines)) => lines.flush(out),
            None => Ok(()),
        }
    }
}

pub(in crate::inspect) fn wasted_bytes_max(len: u64) -> u64 {
    WASTED_BYTES_MAX.min(WASTED_TIMES_MAX.saturating_mul(len))
}

fn lost_reference(next: &Reference, unreferenced: &mut [(u64, Option<BlockKind>)]) -> DecodeError {
    let BlockHandle { offset, len } = next.handle;
    let met = unreferenced.binary_search_by_key(&offset, |&(at, _)| at).ok();
    let detail = match met.and_then(|met| unreferenced[met].1.take()) {
        Some(_) => format!("the block at {offset} is not in the order of the index"),
        None => format!("it refers to {len} bytes at {offset}, where no data block starts"),
    };
    DecodeError::corrupt(next.from, "index block", detail)
}

pub(super) fn name(kind: BlockKind) -> &'static str {
    kind.name().trim_end_matches(" block")
}

fn plural(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Data => "data blocks",
        BlockKind::Index => "index blocks",
        BlockKind::ValueChunk => "value chunks",
        BlockKind::Properties => "properties blocks",
        BlockKind::Padding => "padding blocks",
        BlockKind::Spans => "span blocks",
    }
}
