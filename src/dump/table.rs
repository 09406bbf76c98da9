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
use super::event::{Place, Value};
use super::filter;
use super::head::Head;
use super::lines::Lines;
use super::out::{Fields, Halt, Out, Payload, Result};
use super::sums::Sums;
use super::text::short;
use super::view::Detail;
use super::window::Window;
use super::words::{bytes, count, counted};
use crate::block::{BlockHandle, BlockKind, ENVELOPE_BYTES, Envelope};
use crate::checksum::{FileId, checksum32};
use crate::codec::DecodeError;
use crate::file_header::HEADER_BYTES;
use crate::table::{FOOTER_BYTES, Footer, Properties};

/// Bytes whose checksums are computed, at most, to find intact blocks behind damage: what a hostile file can cost.
const SEARCH_BUDGET_BYTES: u64 = 256 << 20;

/// What the ends of a table say.
pub(super) struct Ends {
    /// The id that its checksums are bound to.
    pub(super) file_id: FileId,
    /// Where the blocks end: at the footer, or at the end of a file without one.
    pub(super) blocks_end: u64,
    pub(super) footer: Result<(Footer, u32), DecodeError>,
    footer_bytes: Vec<u8>,
    pub(super) properties: Result<Properties, DecodeError>,
}

impl Ends {
    pub(super) fn read(window: &mut Window<'_>, head: &Head) -> Result<Self> {
        let len = window.len();
        let offset = len.saturating_sub(FOOTER_BYTES as u64).max(HEADER_BYTES as u64);
        let footer_bytes = window.get(offset, FOOTER_BYTES as u64)?.to_vec();
        let mut file_id = head.file_id;
        let mut footer = Footer::decode(&footer_bytes, &file_id, len);
        // The id in the file header may be what is damaged.
        if let (Err(_), Some(own)) = (&footer, footer_bytes.get(80..96).and_then(|id| id.first_chunk::<16>()))
            && let Ok(found) = Footer::decode(&footer_bytes, own, len)
        {
            file_id = *own;
            footer = Ok(found);
        }
        let has_magic = footer_bytes.len() == FOOTER_BYTES && footer_bytes.ends_with(b"\x89SVTBL\r\n");
        let blocks_end = if has_magic || footer.is_ok() { offset } else { len };
        let properties = match &footer {
            Ok((footer, _)) => read_properties(window, &file_id, footer.properties)?,
            Err(error) => Err(error.clone()),
        };
        Ok(Self { file_id, blocks_end, footer, footer_bytes, properties })
    }

    fn facts(&self, out: &mut Out<'_>) -> Result {
        let p = match (&self.footer, &self.properties) {
            (_, Ok(properties)) => properties,
            (Ok(_), Err(error)) => return out.fact("properties", "damaged", error.to_string()),
            (Err(error), _) => return out.fact("footer", "damaged", error.to_string()),
        };
        let keys = counted(p.keys, "key", "keys");
        let of_data = format!("{keys}, {}", counted(p.tombstones, "tombstone", "tombstones"));
        out.fact("entries", count(p.entries), of_data)?;
        let sizes = format!("{} of keys, {} of values", bytes(p.key_bytes), bytes(p.value_bytes));
        out.fact("data", bytes(p.key_bytes.saturating_add(p.value_bytes)), sizes)?;
        out.fact("smallest key", Value::Bytes(p.smallest.to_vec().into()), "")?;
        out.fact("largest key", Value::Bytes(p.largest.to_vec().into()), "")?;
        out.fact("sequence", format!("{}..={}", p.seqno_min, p.seqno_max), "")?;
        let aimed = match p.compression {
            Some(crate::block::Compression::None) => "not compressed",
            Some(crate::block::Compression::Lz4) => "LZ4",
            None => "unknown compression",
        };
        let blocks = counted(p.data_blocks, "data block", "data blocks");
        let chunks = counted(p.chunk_blocks, "value chunk", "value chunks");
        out.fact(
            "blocks",
            format!("{blocks}, {chunks}"),
            format!("of about {}, {aimed}", bytes(p.block_bytes)),
        )?;
        let levels = counted(p.index_depth.into(), "level", "levels");
        out.fact("index", counted(p.index_blocks, "block", "blocks"), levels)
    }
}

fn read_properties(
    window: &mut Window<'_>,
    file_id: &FileId,
    handle: BlockHandle,
) -> Result<Result<Properties, DecodeError>> {
    // The footer has checked the handle against the file and the limits.
    let sealed = window.get(handle.offset, handle.len)?.to_vec();
    let payload = crate::block::open(file_id, handle.offset, sealed, BlockKind::Properties);
    Ok(payload.and_then(|payload| Properties::decode(&payload)).map_err(|error| error.at(handle.offset)))
}

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
    out.showing(whole, |out| tell_footer(out, &ends))?;
    match &ends.properties {
        Ok(properties) if out.report.damage_count == before && !out.report.partial => {
            out.showing(whole, |out| sums.compare(out, properties))
        }
        _ => Ok(()),
    }
}

fn tell_footer(out: &mut Out<'_>, ends: &Ends) -> Result {
    let offset = ends.blocks_end;
    if ends.footer_bytes.len() == FOOTER_BYTES && offset + FOOTER_BYTES as u64 == out.report.len {
        out.report.accounted += FOOTER_BYTES as u64;
        let shown = out.detail == Detail::Bytes || ends.footer.is_err();
        let told = out.group(Place::File(offset), FOOTER_BYTES as u64, "footer", "", |out| {
            out.showing(shown, |out| {
                let mut fields = Fields::new(out, Payload::Plain(offset), &ends.footer_bytes);
                Ok(tell_footer_fields(&mut fields, ends))
            })
        })?;
        if let Err(Halt::Stop(stop)) = told {
            return Err(stop);
        }
    }
    match &ends.footer {
        Ok(_) => Ok(()),
        Err(_) if offset == out.report.len => out.damage(offset, "footer", "the file ends without one"),
        Err(error) => out.refused(offset, error),
    }
}

fn tell_footer_fields(fields: &mut Fields<'_, '_, '_>, ends: &Ends) -> Result<(), Halt> {
    for label in ["root index offset", "root index length", "properties offset", "properties length"] {
        fields.u64(label)?;
    }
    for label in ["filter offset", "filter length", "entries", "file length"] {
        fields.u64(label)?;
    }
    fields.u32("filter count")?;
    fields.u8("index depth", |_| String::new())?;
    fields.bytes(3, "reserved", "")?;
    fields.hex32("required features")?;
    fields.hex32("optional features")?;
    fields.id("file id")?;
    fields.bytes(18, "reserved", "")?;
    fields.u16("format version", |_| String::new())?;
    let computed = checksum32(&ends.file_id, ends.blocks_end, &[&ends.footer_bytes[..116]]);
    fields.checksum32("checksum", computed)?;
    fields.bytes(8, "magic", "")?;
    Ok(())
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
