//! The search for the next intact block after damage.
//!
//! It ends at the next offset that the index, the footer or the properties name. A block of plausible length is skipped
//! if another item begins after it. Otherwise every byte is tried as the start of a block or filter, until a budget of
//! checksummed bytes is used up. Then blocks that reach across a named offset are not read.

use super::block::{self, Opened};
use super::walk::{Walk, name};
use crate::block::{BlockKind, ENVELOPE_BYTES, Envelope};
use crate::checksum::FileId;
use crate::inspect::file::Window;
use crate::inspect::filter_block;
use crate::inspect::output::{Fault, Out, Place, Result, counted};

impl Walk<'_, '_> {
    pub(super) fn damaged(&mut self, out: &mut Out<'_>, at: u64, len: Option<u64>, fault: Fault) -> Result {
        self.finish_lines(out)?;
        let can_be_read = !matches!(fault, Fault::Stop(_));
        if let (Some(len), true) = (len, can_be_read) {
            let sealed = self.window.get(at, len)?.to_vec();
            let kind = BlockKind::from_u8(sealed[0]).map_or("unknown", name);
            let label = format!("block {}, {kind}", self.number);
            out.group(Place::File(at), len, label, "", |out| {
                block::describe_envelope(out, &self.ends.file_id, at, &sealed)
            })?;
        }
        let reference = self.meet_data(out, at)?;
        let lost = self.index.as_mut().and_then(|index| index.take_lost(at));
        let keys = match (reference, lost) {
            (Some(reference), _) => {
                self.pass(reference.separator);
                Some(Some(reference.keys))
            }
            (None, Some((_, keys))) => Some(keys),
            (None, None) => (!self.may_be_chunk(at)).then(|| out.keys.clone()),
        };
        let mut waiting = None;
        match keys {
            Some(keys) => out.fault(fault, keys)?,
            None => waiting = Some(fault),
        }
        match can_be_read {
            true => self.resume(out, at, len)?,
            false => self.position = self.next_start(at),
        }
        if let (Some(fault), Some(chunks)) = (waiting, &mut self.chunks) {
            chunks.meet_damaged(at, self.position, fault);
        }
        Ok(())
    }

    fn may_be_chunk(&self, at: u64) -> bool {
        let data_end = self.ends.properties.as_ref().map_or(self.ends.blocks_end, |own| own.data_end);
        self.index.is_some() && self.chunks.is_some() && at < data_end
    }

    fn resume(&mut self, out: &mut Out<'_>, at: u64, len: Option<u64>) -> Result {
        let limit = self.next_start(at);
        if let Some(next) = len.map(|len| at + len).filter(|&next| next <= limit)
            && self.can_begin(next)?
        {
            self.position = next;
            return Ok(());
        }
        self.budget = self.budget.saturating_sub(len.unwrap_or(0));
        self.search(out, at + 1, limit)
    }

    pub(super) fn next_start(&mut self, at: u64) -> u64 {
        let mut starts: Vec<u64> = self.ends.filters().iter().map(|filter| filter.offset).collect();
        if let Ok((footer, _)) = &self.ends.footer {
            starts.extend([footer.root.offset, footer.properties.offset]);
        }
        if let Some(index) = &mut self.index {
            starts.extend(index.peek(self.window).map(|next| next.handle.offset));
            starts.extend(index.next_block(at));
        }
        let end = self.ends.blocks_end;
        starts.into_iter().filter(|&start| start > at).min().map_or(end, |start| start.min(end))
    }

    fn can_begin(&mut self, at: u64) -> Result<bool> {
        let end = self.ends.blocks_end;
        Ok(at == end
            || filter_block::is_at(self.window, at)?
            || plausible(self.window.get(at, ENVELOPE_BYTES as u64)?, end - at).is_some())
    }

    pub(super) fn search(&mut self, out: &mut Out<'_>, from: u64, limit: u64) -> Result {
        let file = (&self.ends.file_id, self.ends.blocks_end);
        let at = next_intact(self.window, file, &mut self.budget, from, limit)?;
        self.position = at;
        let lost = counted(at - (from - 1), "byte", "bytes");
        let label = if at == self.ends.blocks_end { "no intact block follows" } else { "the walk goes on" };
        out.group(Place::File(at), 0, label, format!("{lost} were passed over"), |_| Ok(()))
    }
}

/// Returns `limit` if there is no intact block. Blocks end at `end`. Bytes checksummed in vain reduce `budget`.
pub(in crate::inspect) fn next_intact(
    window: &mut Window<'_>,
    (file_id, end): (&FileId, u64),
    budget: &mut u64,
    from: u64,
    limit: u64,
) -> Result<u64> {
    let mut at = from;
    while at < limit {
        // Blocks and filters never begin with a zero.
        let data = window.next_data(at)?;
        if data > at {
            at = data.min(limit);
            continue;
        }
        let piece = window.get(at, (end - at).min(1 << 16))?.to_vec();
        let last = piece.len() < ENVELOPE_BYTES || at + piece.len() as u64 == end;
        let places = if last { piece.len() } else { piece.len() - ENVELOPE_BYTES + 1 };
        for place in 0..places {
            let here = at + place as u64;
            if here >= limit {
                break;
            }
            let is_filter =
                here.is_multiple_of(4096) && piece[place..].starts_with(&crate::filter::header::MAGIC);
            let len = plausible(&piece[place..piece.len().min(place + ENVELOPE_BYTES)], end - here);
            if !is_filter && len.is_none() {
                continue;
            }
            if is_filter && filter_block::intact_len(window, here, file_id)?.is_some() {
                return Ok(here);
            }
            let Some(len) = len.filter(|&len| len <= *budget) else { continue };
            *budget -= len;
            let sealed = window.get(here, len)?;
            if Opened::open(file_id, here, sealed).is_ok() {
                return Ok(here);
            }
        }
        at += places as u64;
    }
    Ok(limit)
}

fn plausible(envelope: &[u8], room: u64) -> Option<u64> {
    BlockKind::from_u8(*envelope.first()?)?;
    let envelope = Envelope::decode(envelope).ok().filter(|envelope| envelope.check_known().is_ok())?;
    let lengths = match envelope.compression {
        0 => envelope.raw_len == envelope.stored_len,
        _ => envelope.stored_len < envelope.raw_len,
    };
    (lengths && envelope.sealed_len() <= room).then(|| envelope.sealed_len())
}
