//! Behind damage the walk through a table looks for the next block that is intact.
//!
//! A block whose length can be believed is passed over if something begins behind it. Otherwise every byte is tried as
//! the start of a block: where an envelope is plausible its checksum is computed, and that of a filter's header. What
//! that can cost is bounded: all bytes that are summed in vain, of damaged blocks and of what only looked like one, come
//! out of one budget.

use super::block::{self, Opened};
use super::event::Place;
use super::filter;
use super::out::{Out, Result};
use super::table::{Walk, name};
use super::words::counted;
use crate::block::{BlockKind, ENVELOPE_BYTES, Envelope};
use crate::codec::DecodeError;

/// Bytes whose checksums are computed, at most, to find intact blocks behind damage: what a hostile file can cost.
pub(super) const SEARCH_BUDGET_BYTES: u64 = 256 << 20;

impl Walk<'_, '_> {
    /// Tells of a block that is not intact, and goes on behind it.
    pub(super) fn damaged(
        &mut self,
        out: &mut Out<'_>,
        at: u64,
        sealed: &[u8],
        error: &DecodeError,
    ) -> Result {
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
        // Most of it will be read again.
        self.budget = self.budget.saturating_sub(sealed.len() as u64);
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
    pub(super) fn search(&mut self, out: &mut Out<'_>, from: u64) -> Result {
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
