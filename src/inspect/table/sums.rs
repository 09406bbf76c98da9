//! Sums over the blocks of a table.

use super::block::Opened;
use super::index::Key;
use crate::block::{BlockKind, WalkedEntry};
use crate::codec::DecodeError;
use crate::file_header::HEADER_BYTES;
use crate::inspect::output::{Out, Result};
use crate::key::InternalKey;
use crate::spans::block::SpanReader;
use crate::table::{Footer, Properties};

#[derive(Debug, Default)]
pub(super) struct Sums {
    data: Blocks,
    chunks: Blocks,
    index: Blocks,
    pub(super) spans: SpanReader,
    first_start: Option<Vec<u8>>,
    data_end: u64,
    entries: u64,
    tombstones: u64,
    keys: u64,
    key_bytes: u64,
    value_bytes: u64,
    seqnos: Option<(u64, u64)>,
    first_key: Vec<u8>,
    pub(super) last: Option<Key>,
    disorder: Option<DecodeError>,
}

#[derive(Debug, Default)]
struct Blocks {
    count: u64,
    bytes: u64,
}

impl Sums {
    pub(super) fn block(&mut self, block: &Opened) {
        let blocks = match block.kind {
            BlockKind::Data => &mut self.data,
            BlockKind::ValueChunk => &mut self.chunks,
            BlockKind::Index => &mut self.index,
            BlockKind::Properties | BlockKind::Padding | BlockKind::Spans => return,
        };
        blocks.count += 1;
        blocks.bytes = blocks.bytes.saturating_add(block.payload.len() as u64);
        if block.kind != BlockKind::Index {
            self.data_end = block.offset + block.len();
        }
    }

    pub(super) fn entry(&mut self, found: &WalkedEntry<'_>) -> bool {
        let (user, tag) = (found.key.user, found.key.tag);
        let ordered = self.last.as_ref().is_none_or(|(last, of)| InternalKey::new(last, *of) < found.key);
        if !ordered {
            let detail = "not after the last key of the block before";
            self.disorder.get_or_insert_with(|| DecodeError::corrupt(found.at as u64, "key order", detail));
        }
        let is_new = self.last.as_ref().is_none_or(|(last, _)| last != user);
        if self.entries == 0 {
            self.first_key = user.to_vec();
        }
        self.keys += u64::from(is_new);
        self.entries += 1;
        self.tombstones += u64::from(found.is_delete());
        self.key_bytes = self.key_bytes.saturating_add(user.len() as u64);
        self.value_bytes = self.value_bytes.saturating_add(found.value_len());
        let seqno = tag.seqno();
        let (first, last) = self.seqnos.unwrap_or((seqno, seqno));
        self.seqnos = Some((first.min(seqno), last.max(seqno)));
        let (last, of) = self.last.get_or_insert_with(|| (Vec::new(), tag));
        last.clear();
        last.extend_from_slice(user);
        *of = tag;
        is_new
    }

    pub(super) fn span(&mut self, start: &[u8]) {
        self.first_start.get_or_insert_with(|| start.to_vec());
    }

    pub(super) fn take_disorder(&mut self) -> Option<DecodeError> {
        self.disorder.take()
    }

    pub(super) fn compare(
        &self,
        out: &mut Out<'_>,
        properties: &Properties,
        (footer, end): (&Footer, u64),
    ) -> Result {
        let p = properties;
        let of_spans = self.spans.totals();
        let seqnos = self.seqnos.into_iter().chain(of_spans.seqnos);
        let seqnos = seqnos.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default();
        for (what, found, stated) in [
            ("data blocks", self.data.count, p.data_blocks),
            ("value chunks", self.chunks.count, p.chunk_blocks),
            ("index blocks", self.index.count, p.index_blocks),
            ("end of the data", self.data_end.max(HEADER_BYTES as u64), p.data_end),
            ("entries", self.entries, p.entries),
            ("tombstones", self.tombstones, p.tombstones),
            ("distinct keys", self.keys, p.keys),
            ("bytes of keys", self.key_bytes, p.key_bytes),
            ("bytes of values", self.value_bytes, p.value_bytes),
            ("smallest sequence number", seqnos.0, p.seqno_min),
            ("largest sequence number", seqnos.1, p.seqno_max),
        ] {
            out.check(what, "properties", found, stated)?;
        }
        if p.entries > 0 {
            let is_last = self.last.as_ref().is_some_and(|(last, _)| *last == p.largest);
            let bounds = u64::from(self.first_key == p.smallest) + u64::from(is_last);
            out.check("bounds that are a key", "properties", bounds, 2)?;
        }
        if let Some(spans) = &p.spans {
            out.check("spans", "properties", of_spans.count, spans.count)?;
            out.check("range deletes of spans", "properties", of_spans.deletes, spans.deletes)?;
            let is_first = self.first_start.as_ref().is_some_and(|start| *start == spans.start);
            let is_last = self.spans.last_end().is_some_and(|end| *end == spans.end);
            out.check("bounds of spans", "properties", u64::from(is_first) + u64::from(is_last), 2)?;
        }
        let first = p.filters.first().map_or((0, 0), |filter| (filter.offset, filter.len));
        for (what, stated, same) in [
            ("entries", footer.entries, p.entries),
            ("index depth", footer.index_depth.into(), p.index_depth.into()),
            ("filter count", footer.filters.into(), p.filters.len() as u64),
            ("filter offset", footer.filter.0, first.0),
            ("filter length", footer.filter.1, first.1),
        ] {
            if stated != same {
                return out.damage(end, what, format!("is {stated} in the footer, {same} in the properties"));
            }
        }
        Ok(())
    }
}
