//! Describes a table: what it says of itself, then a walk over every byte of it.
//!
//! 1. The ends: file header, footer, and the properties that the footer leads to. They make the summary. Where one is
//!    damaged the rest goes on without it: the footer repeats the file id, which all checksums need.
//! 2. The walk, from the file header to the footer, by the blocks' own lengths and the filters' headers. Every block
//!    is verified and its entries are counted.
//! 3. Behind a block whose length cannot be believed the walk looks for the next one that is intact ([`Walk::search`]).
//! 4. The sums: what was counted must be what the properties say, every block must be referred to once.
//!
//! Memory: two blocks of up to 4 MiB, the buffer of the file, and a key.

use super::block::{self, Broken, Found, Opened};
use super::ends::Ends;
use super::event::Place;
use super::filter;
use super::head::Head;
use super::lines::Lines;
use super::out::{Out, Result};
use super::sums::Sums;
use super::text::short;
use super::view::Detail;
use super::window::Window;
use super::words::counted;
use crate::block::{BlockHandle, BlockKind, ENVELOPE_BYTES, Envelope};
use crate::codec::DecodeError;
use crate::file_header::HEADER_BYTES;
use crate::table::Properties;

/// Bytes whose checksums are computed, at most, to find intact blocks behind damage: what a hostile file can cost.
const SEARCH_BUDGET_BYTES: u64 = 256 << 20;

/// Tells of a table.
pub(super) fn describe(out: &mut Out<'_>, window: &mut Window<'_>, head: &Head) -> Result {
    let ends = Ends::read(window, head)?;
    head.facts(out)?;
    ends.facts(out)?;
    filter::facts_of_table(out, window, &ends)?;
    let whole = out.view.block.is_none() && out.view.entries.is_none();
    out.showing(whole, |out| head.tell(out))?;
    if let Ok((footer, _)) = &ends.footer {
        out.sums_at = footer.properties.offset;
    }
    let walk = Walk {
        window,
        ends: &ends,
        position: HEADER_BYTES as u64,
        number: 0,
        lines: None,
        budget: SEARCH_BUDGET_BYTES,
        sums: Sums::default(),
    };
    let before = out.report.damage_count;
    let sums = walk.run(out, whole)?;
    out.showing(whole, |out| ends.tell_footer(out))?;
    let (Ok((footer, _)), true) = (&ends.footer, out.report.damage_count == before && !out.report.partial)
    else {
        return Ok(());
    };
    match &ends.properties {
        Ok(properties) => out.showing(whole, |out| sums.compare(out, properties, footer, ends.blocks_end)),
        // The block is intact, and not where or what the footer says.
        Err(error) => out.refused(0, error),
    }
}

struct Walk<'w, 'f> {
    window: &'w mut Window<'f>,
    ends: &'w Ends,
    position: u64,
    /// Of the next block or filter.
    number: u64,
    /// The lines of the kind of block that the walk is in.
    lines: Option<(BlockKind, Lines)>,
    /// What is left of [`SEARCH_BUDGET_BYTES`].
    budget: u64,
    sums: Sums,
}

impl Walk<'_, '_> {
    /// Walks to the footer; gives what was counted.
    fn run(mut self, out: &mut Out<'_>, whole: bool) -> Result<Sums> {
        if out.detail == Detail::Summary && whole {
            out.report.partial = true;
            return Ok(self.sums);
        }
        let end = self.ends.blocks_end;
        while self.position < end {
            if self.is_past(out) {
                out.report.partial = true;
                break;
            }
            let at = self.position;
            if filter::is_at(self.window, at)? {
                self.finish_lines(out)?;
                self.filter(out)?;
            } else {
                self.block(out)?;
            }
            self.number += 1;
            debug_assert!(self.position > at, "the walk goes on");
        }
        self.finish_lines(out)?;
        out.report.units = self.number;
        Ok(self.sums)
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
        let skipped = self.is_skipped(out) || out.view.entries.is_some();
        let picked = out.view.block == Some(number);
        let told = out.showing(!skipped, |out| {
            filter::tell(out, self.window, (at, end), &format!("block {number}, filter"), picked)
        })?;
        match told {
            Some(len) => self.position = at + len,
            None => self.search(out, at + 1)?,
        }
        Ok(())
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

    fn damaged(&mut self, out: &mut Out<'_>, at: u64, sealed: &[u8], error: &DecodeError) -> Result {
        self.finish_lines(out)?;
        let kind = BlockKind::from_u8(sealed[0]).map_or("unknown", name);
        let label = format!("block {}, {kind}", self.number);
        out.group(Place::File(at), sealed.len() as u64, label, "", |out| {
            block::tell_envelope(out, &self.ends.file_id, at, sealed)
        })?;
        out.refused(at, error)?;
        let next = at + sealed.len() as u64;
        if self.can_begin(next)? {
            self.position = next;
            return Ok(());
        }
        self.search(out, at + 1)
    }

    /// Whether something begins at `at` that looks like a block, or the blocks end there.
    fn can_begin(&mut self, at: u64) -> Result<bool> {
        let end = self.ends.blocks_end;
        Ok(at == end
            || filter::is_at(self.window, at)?
            || plausible(self.window.get(at, ENVELOPE_BYTES as u64)?, end - at).is_some())
    }

    /// Goes to the next place from `from` on where an intact block or a filter begins, or to the end.
    fn search(&mut self, out: &mut Out<'_>, from: u64) -> Result {
        let end = self.ends.blocks_end;
        let mut at = from;
        // What the buffer holds is looked through in one go.
        while at < end {
            let piece = self.window.get(at, (end - at).min(1 << 16))?.to_vec();
            let last = piece.len() < ENVELOPE_BYTES || at + piece.len() as u64 == end;
            let places = if last { piece.len() } else { piece.len() - ENVELOPE_BYTES + 1 };
            for place in 0..places {
                let here = at + place as u64;
                let is_filter =
                    here.is_multiple_of(4096) && piece[place..].starts_with(&crate::filter::header::MAGIC);
                let len = plausible(&piece[place..piece.len().min(place + ENVELOPE_BYTES)], end - here);
                if !is_filter && len.is_none() {
                    continue;
                }
                if is_filter && filter::is_intact_at(self.window, here)? {
                    return self.resume(out, from, here);
                }
                let Some(len) = len.filter(|&len| len <= self.budget) else { continue };
                self.budget -= len;
                let sealed = self.window.get(here, len)?;
                if Opened::open(&self.ends.file_id, here, sealed).is_ok() {
                    return self.resume(out, from, here);
                }
            }
            at += places as u64;
        }
        self.resume(out, from, end)
    }

    fn resume(&mut self, out: &mut Out<'_>, from: u64, at: u64) -> Result {
        self.position = at;
        let lost = counted(at - (from - 1), "byte", "bytes");
        let label =
            if at == self.ends.blocks_end { "no intact block follows" } else { "the next intact block" };
        out.group(Place::File(at), 0, label, format!("{lost} were passed over"), |_| Ok(()))
    }

    fn intact(&mut self, out: &mut Out<'_>, block: &Opened) -> Result {
        out.report.checksums += 1;
        let (at, number) = (block.offset, self.number);
        let scanned = self.scan(out, block)?;
        if out.view.entries.is_some() {
            return self.tell_broken(out, block, scanned.1);
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
        self.tell_broken(out, block, scanned.1)
    }

    /// Tells what is wrong with an intact block.
    fn tell_broken(&mut self, out: &mut Out<'_>, block: &Opened, wrong: Option<DecodeError>) -> Result {
        match wrong {
            Some(error) => out.refused_in(block.place(), &error),
            None => Ok(()),
        }
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

    fn finish_lines(&mut self, out: &mut Out<'_>) -> Result {
        match self.lines.take() {
            Some((_, mut lines)) => lines.flush(out),
            None => Ok(()),
        }
    }

    /// Adds a block to the sums; gives what it is in a line, and what is wrong with it.
    fn scan(&mut self, out: &mut Out<'_>, block: &Opened) -> Result<(String, Option<DecodeError>)> {
        self.sums.block(block);
        match block.kind {
            BlockKind::Data => self.scan_data(out, block),
            BlockKind::Index => self.scan_index(block),
            BlockKind::Padding if block.payload.iter().any(|&byte| byte != 0) => {
                Ok((String::new(), Some(DecodeError::corrupt(0, "padding", "is not zero"))))
            }
            BlockKind::Properties => match Properties::decode(&block.payload) {
                Ok(_) => Ok((block.sizes(), None)),
                Err(error) => Ok((block.sizes(), Some(error))),
            },
            BlockKind::Padding | BlockKind::ValueChunk => Ok((block.sizes(), None)),
        }
    }

    fn scan_data(&mut self, out: &mut Out<'_>, block: &Opened) -> Result<(String, Option<DecodeError>)> {
        let wanted = out.view.entries;
        let (mut entries, mut first, mut last) = (0, Vec::new(), Vec::new());
        let walked = block::walk_entries(block.kind, &block.payload, &mut |found: &Found<'_>| {
            if entries == 0 {
                first.extend_from_slice(found.key.user);
            }
            entries += 1;
            if let Some(wanted) = wanted {
                out.entry(block::entry(block.offset, found, wanted))?;
            }
            last.clear();
            last.extend_from_slice(found.key.user);
            self.sums.entry(found);
            Ok(())
        });
        let note = format!(
            "{}, {} to {}, {}",
            counted(entries, "entry", "entries"),
            short(&first),
            short(&last),
            block.sizes()
        );
        match walked {
            Err(Broken::Stop(stop)) => Err(stop),
            Err(Broken::Decode(error)) => Ok((note, Some(error))),
            Ok(()) => Ok((note, self.sums.take_disorder())),
        }
    }

    fn scan_index(&mut self, block: &Opened) -> Result<(String, Option<DecodeError>)> {
        let mut handles: Vec<BlockHandle> = Vec::new();
        let (end, mut count) = (self.ends.blocks_end, 0);
        let mut wrong = None;
        let walked = block::walk_entries(block.kind, &block.payload, &mut |found| {
            let Ok(handle) = BlockHandle::decode(found.value) else { return Ok(()) };
            count += 1;
            if let Err(error) = handle.check(end) {
                wrong.get_or_insert(error.at(found.raw.value.start as u64));
            }
            self.sums.refer(handle);
            handles.truncate(1);
            handles.push(handle);
            Ok(())
        });
        let from_to = match handles[..] {
            [] => String::new(),
            [only] => format!(", to the block at {}", only.offset),
            [first, .., last] => format!(", to the blocks at {} to {}", first.offset, last.offset),
        };
        let note = format!("{}{from_to}, {}", counted(count, "separator", "separators"), block.sizes());
        match walked {
            Err(Broken::Stop(stop)) => Err(stop),
            Err(Broken::Decode(error)) => Ok((note, Some(error))),
            Ok(()) => Ok((note, wrong)),
        }
    }
}

/// The length of the block whose envelope this is, if it can be one: `room` bytes are left for it.
fn plausible(envelope: &[u8], room: u64) -> Option<u64> {
    let known = envelope.len() == ENVELOPE_BYTES
        && BlockKind::from_u8(envelope[0]).is_some()
        && envelope[1] <= 1
        && envelope[2..4] == [0, 0];
    let envelope = Envelope::decode(envelope).ok().filter(|_| known)?;
    let lengths = match envelope.compression {
        0 => envelope.raw_len == envelope.stored_len,
        _ => envelope.stored_len < envelope.raw_len,
    };
    (lengths && envelope.sealed_len() <= room).then(|| envelope.sealed_len())
}

fn name(kind: BlockKind) -> &'static str {
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
