//! Describes a table: what it says of itself, then a walk over every byte of it.
//!
//! 1. The ends: file header, footer, and the properties that the footer leads to. They make the summary. Where one is
//!    damaged the rest goes on without it: the footer repeats the file id, which all checksums need.
//! 2. The walk, from the file header to the footer, by the blocks' own lengths and the filters' headers. Every block
//!    is verified and its entries are counted. Beside it goes what leads to the blocks: the index, the references to
//!    chunks, the names of the filters. Each must lead to what the walk meets, in its order.
//! 3. Behind a block whose length cannot be believed the walk looks for the next one that is intact
//!    ([`Walk::search`]). Nothing goes beside it any more.
//! 4. The sums: what was counted must be what the properties say.
//!
//! Memory: two blocks of up to 4 MiB, those of the index that lead to where the walk is, the buffer of the file, a key.

use super::block::{self, Opened};
use super::chunks::Chunks;
use super::ends::Ends;
use super::event::Place;
use super::filter;
use super::filter_facts;
use super::head::Head;
use super::index::Index;
use super::lines::Lines;
use super::out::{Out, Result};
use super::search::SEARCH_BUDGET_BYTES;
use super::sums::Sums;
use super::view::Detail;
use super::window::Window;
use crate::block::{BlockHandle, BlockKind, ENVELOPE_BYTES, Envelope};
use crate::codec::DecodeError;
use crate::file_header::HEADER_BYTES;
use crate::filter::Header;
use crate::filter::header::HEADER_BYTES as FILTER_HEADER_BYTES;
use crate::table_meta::FilterRef;

/// Tells of a table.
pub(super) fn describe(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    let ends = Ends::read(window, head)?;
    head.facts(out)?;
    ends.facts(out)?;
    filter_facts::of_table(out, window, &ends)?;
    let whole = out.view.block.is_none() && out.view.entries.is_none();
    out.showing(whole, |out| head.tell(out))?;
    ends.tell_other_id(out)?;
    if let Ok((footer, _)) = &ends.footer {
        out.sums_at = footer.properties.offset;
    }
    let mut walk = Walk::new(window, &ends);
    let before = out.report.damage_count;
    walk.run(out, whole)?;
    out.showing(whole, |out| ends.tell_footer(out))?;
    if out.report.damage_count > before { Ok(()) } else { out.showing(whole, |out| walk.finish(out)) }
}

/// The walk over the blocks of a table.
pub(super) struct Walk<'w, 'f> {
    pub(super) window: &'w mut Window<'f>,
    pub(super) ends: &'w Ends,
    pub(super) position: u64,
    /// Of the next block or filter.
    pub(super) number: u64,
    /// The lines of the kind of block that the walk is in.
    lines: Option<(BlockKind, Lines)>,
    /// What is left of [`SEARCH_BUDGET_BYTES`].
    pub(super) budget: u64,
    pub(super) sums: Sums,
    /// What goes beside the walk; nothing once something was damaged or passed over.
    pub(super) index: Option<Index>,
    pub(super) chunks: Option<Chunks>,
    /// The filters that the properties name, in the order of the file, as far as the walk has not come.
    filters: std::iter::Peekable<std::vec::IntoIter<FilterRef>>,
    /// What the filters hash keys with.
    seed: Option<u64>,
    /// Whether a block or filter was met that is not data.
    behind_data: bool,
    met_properties: bool,
}

impl<'w, 'f> Walk<'w, 'f> {
    fn new(window: &'w mut Window<'f>, ends: &'w Ends) -> Self {
        Self {
            window,
            ends,
            position: HEADER_BYTES as u64,
            number: 0,
            lines: None,
            budget: SEARCH_BUDGET_BYTES,
            sums: Sums::default(),
            index: ends.footer.as_ref().ok().map(|(footer, _)| Index::new(footer, ends.blocks_end)),
            chunks: Some(Chunks::new()),
            filters: ends.filters().into_iter().peekable(),
            seed: None,
            behind_data: false,
            met_properties: false,
        }
    }

    /// Walks to the footer.
    fn run(&mut self, out: &mut Out<'_>, whole: bool) -> Result {
        if out.detail == Detail::Summary && whole {
            out.report.partial = true;
            self.leave();
            return Ok(());
        }
        let before = out.report.damage_count;
        let end = self.ends.blocks_end;
        while self.position < end {
            if self.is_past(out) {
                out.report.partial = true;
                self.leave();
                break;
            }
            let at = self.position;
            if filter::is_at(self.window, at)? {
                self.finish_lines(out)?;
                self.filter(out)?;
            } else {
                self.block(out)?;
            }
            if out.report.damage_count > before {
                self.leave();
            }
            self.number += 1;
            debug_assert!(self.position > at, "the walk goes on");
        }
        self.finish_lines(out)?;
        out.report.units = self.number;
        Ok(())
    }

    /// What goes beside the walk is left behind.
    fn leave(&mut self) {
        (self.index, self.chunks) = (None, None);
    }

    /// Compares what was met with what the table says of itself, if all of it was met.
    fn finish(&mut self, out: &mut Out<'_>) -> Result {
        let (Ok((footer, _)), Some(index)) = (&self.ends.footer, &mut self.index) else { return Ok(()) };
        let before = out.report.damage_count;
        index.finish(out, self.window, self.sums.last.as_ref())?;
        if !self.met_properties {
            let detail = "the footer refers to another place than it stands at";
            out.damage(footer.properties.offset, "properties block", detail)?;
        }
        if let Some(lost) = self.filters.next() {
            out.damage(lost.offset, "filter handle", "the properties name a filter that is not there")?;
        }
        if out.report.damage_count > before {
            return Ok(());
        }
        match &self.ends.properties {
            Ok(properties) => self.sums.compare(out, properties, (footer, self.ends.blocks_end), index),
            // The block is intact, and not where or what the footer says.
            Err(error) => out.refused(0, error),
        }
    }

    /// Whether the one block that is wanted was told.
    fn is_past(&self, out: &Out<'_>) -> bool {
        out.view.block.is_some_and(|block| block < self.number)
    }

    fn is_skipped(&self, out: &Out<'_>) -> bool {
        out.view.block.is_some_and(|block| block != self.number)
    }

    fn filter(&mut self, out: &mut Out<'_>) -> Result {
        let (at, number, end) = (self.position, self.number, self.ends.blocks_end);
        self.behind_data = true;
        let skipped = self.is_skipped(out) || out.view.entries.is_some();
        let picked = out.view.block == Some(number);
        let name = self.filters.next_if(|named| named.offset == at);
        let known = self.ends.known(name.as_ref());
        let told = out.showing(!skipped, |out| {
            filter::tell(out, self.window, (at, end), &format!("block {number}, filter"), (picked, known))
        })?;
        let Some(len) = told else { return self.search(out, at + 1) };
        self.position = at + len;
        let header = Header::decode(&self.window.apart(at, FILTER_HEADER_BYTES as u64)?);
        match header {
            Ok(header) if *self.seed.get_or_insert(header.seed) != header.seed => {
                out.damage(at + 48, "filter seed", "is another than that of the filter before it")
            }
            _ => Ok(()),
        }
    }

    fn block(&mut self, out: &mut Out<'_>) -> Result {
        let (at, end) = (self.position, self.ends.blocks_end);
        let head = self.window.get(at, (end - at).min(ENVELOPE_BYTES as u64))?;
        let handle = Envelope::decode(head).and_then(|envelope| {
            let handle = BlockHandle { offset: at, len: envelope.sealed_len() };
            handle.check(end).map(|()| handle)
        });
        let handle = match handle {
            Ok(handle) => handle,
            Err(error) => {
                self.finish_lines(out)?;
                out.refused(at, &error)?;
                return self.search(out, at + 1);
            }
        };
        if self.is_skipped(out) {
            out.report.partial = true;
            self.leave();
            self.position += handle.len;
            return Ok(());
        }
        let sealed = self.window.get(at, handle.len)?;
        match Opened::open(&self.ends.file_id, at, sealed) {
            Ok(block) => {
                self.position += handle.len;
                out.report.accounted += handle.len;
                self.intact(out, &block)
            }
            Err(error) => {
                let sealed = sealed.to_vec();
                self.damaged(out, at, &sealed, &error)
            }
        }
    }

    fn intact(&mut self, out: &mut Out<'_>, block: &Opened) -> Result {
        out.report.checksums += 1;
        let (at, number) = (block.offset, self.number);
        let misplaced = self.place(block);
        let scanned = self.scan(out, block)?;
        if out.view.entries.is_some() {
            return self.tell_broken(out, block, (misplaced, scanned.1));
        }
        let picked = out.view.block == Some(number);
        let shown = picked || self.next_line(out, block)?;
        let all = picked || out.detail == Detail::Bytes;
        out.showing(shown, |out| {
            let label = format!("block {number}, {}", name(block.kind));
            out.group(Place::File(at), block.len(), label, scanned.0, |out| {
                out.showing(all, |out| {
                    block::tell_envelope(out, &self.ends.file_id, at, &block.sealed)?;
                    block::tell_payload(out, block)
                })
            })
        })?;
        self.tell_broken(out, block, (misplaced, scanned.1))
    }

    /// Notes where a block was met; gives what is wrong with that.
    fn place(&mut self, block: &Opened) -> Option<DecodeError> {
        let wrong = |what, detail| Some(DecodeError::corrupt(block.offset, what, detail));
        match (block.kind, &self.ends.footer) {
            (BlockKind::Data | BlockKind::ValueChunk, _) if self.behind_data => {
                return wrong("block kind", "data behind a block that is none");
            }
            (BlockKind::Data | BlockKind::ValueChunk, _) => return None,
            (BlockKind::Properties, Ok((footer, _))) if footer.properties != block.handle() => {
                return wrong("properties block", "the footer refers to another one");
            }
            (BlockKind::Properties, _) => self.met_properties = true,
            (BlockKind::Index | BlockKind::Padding, _) => {}
        }
        self.behind_data = true;
        None
    }

    /// Tells what is wrong with an intact block: with where it stands, with what it holds.
    fn tell_broken(
        &mut self,
        out: &mut Out<'_>,
        block: &Opened,
        (misplaced, broken): (Option<DecodeError>, Option<DecodeError>),
    ) -> Result {
        if let Some(error) = misplaced {
            out.refused(0, &error)?;
        }
        broken.map_or(Ok(()), |error| out.refused_in(block.place(), &error))
    }

    fn next_line(&mut self, out: &mut Out<'_>, block: &Opened) -> Result<bool> {
        if self.lines.as_ref().is_none_or(|(kind, _)| *kind != block.kind) {
            self.finish_lines(out)?;
            self.lines = Some((block.kind, Lines::new(out.detail, plural(block.kind))));
        }
        match &mut self.lines {
            Some((_, lines)) => lines.next(out, block.offset, block.len()),
            None => Ok(true),
        }
    }

    pub(super) fn finish_lines(&mut self, out: &mut Out<'_>) -> Result {
        match self.lines.take() {
            Some((_, mut lines)) => lines.flush(out),
            None => Ok(()),
        }
    }
}

pub(super) fn name(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Data => "data",
        BlockKind::Index => "index",
        BlockKind::ValueChunk => "value chunk",
        BlockKind::Properties => "properties",
        BlockKind::Padding => "padding",
    }
}

fn plural(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Data => "data blocks",
        BlockKind::Index => "index blocks",
        BlockKind::ValueChunk => "value chunks",
        BlockKind::Properties => "properties blocks",
        BlockKind::Padding => "padding blocks",
    }
}
