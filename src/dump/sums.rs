//! What the blocks of a table add up to, and what it must be.
//!
//! All of it in a few words of memory, for a table of any size. That every block is referred to exactly once is told
//! by sums too: of the hashes of (offset, length) of all blocks, and of those of all handles in the index.

use xxhash_rust::xxh3::xxh3_64;

use super::block::{Found, Opened};
use super::out::{Out, Result};
use crate::block::{BlockHandle, BlockKind};
use crate::codec::DecodeError;
use crate::key::{InternalKey, Tag};
use crate::table::{Footer, Properties};

/// Running sums over a table.
#[derive(Debug, Default)]
pub(super) struct Sums {
    data: Blocks,
    chunks: Blocks,
    index: Blocks,
    /// What the index refers to: data blocks, index blocks.
    to_data: Blocks,
    to_index: Blocks,
    /// Where data and chunk blocks end, as far as the walk has come.
    data_end: u64,
    entries: u64,
    tombstones: u64,
    keys: u64,
    key_bytes: u64,
    value_bytes: u64,
    chunked_bytes: u64,
    to_chunks: u64,
    seqnos: Option<(u64, u64)>,
    first_key: Vec<u8>,
    last: Option<(Vec<u8>, Tag)>,
    disorder: Option<DecodeError>,
}

/// Blocks of one kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Blocks {
    count: u64,
    /// Bytes of their payloads.
    bytes: u64,
    /// The sum of the hashes of their handles.
    places: u64,
    /// The hash of the one that was added last.
    newest: u64,
}

impl Blocks {
    fn add(&mut self, handle: BlockHandle, bytes: u64) {
        self.newest = hash(handle);
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.places = self.places.wrapping_add(self.newest);
    }
}

fn hash(handle: BlockHandle) -> u64 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&handle.offset.to_le_bytes());
    place[8..].copy_from_slice(&handle.len.to_le_bytes());
    xxh3_64(&place)
}

impl Sums {
    /// Adds an intact block.
    pub(super) fn block(&mut self, block: &Opened) {
        let handle = BlockHandle { offset: block.offset, len: block.len() };
        let bytes = block.payload.len() as u64;
        let blocks = match block.kind {
            BlockKind::Data => &mut self.data,
            BlockKind::ValueChunk => &mut self.chunks,
            BlockKind::Index => &mut self.index,
            BlockKind::Properties | BlockKind::Padding => return,
        };
        blocks.add(handle, bytes);
        if block.kind != BlockKind::Index {
            self.data_end = handle.offset + handle.len;
        }
    }

    /// Adds a handle of an index block.
    pub(super) fn refer(&mut self, handle: BlockHandle) {
        if handle.offset < self.data_end { self.to_data.add(handle, 0) } else { self.to_index.add(handle, 0) }
    }

    /// Adds an entry of a data block.
    pub(super) fn entry(&mut self, found: &Found<'_>) {
        let (user, tag) = (found.key.user, found.key.tag);
        let ordered = self.last.as_ref().is_none_or(|(last, of)| InternalKey::new(last, *of) < found.key);
        if !ordered {
            let detail = "not after the last key of the block before";
            self.disorder.get_or_insert_with(|| DecodeError::corrupt(found.at as u64, "key order", detail));
        }
        if self.entries == 0 {
            self.first_key = user.to_vec();
        }
        self.keys += u64::from(self.last.as_ref().is_none_or(|(last, _)| last != user));
        self.entries += 1;
        self.tombstones += u64::from(found.is_delete());
        self.key_bytes = self.key_bytes.saturating_add(user.len() as u64);
        self.value_bytes = self.value_bytes.saturating_add(found.value_len());
        if let Some(chunks) = found.chunks {
            self.to_chunks = self.to_chunks.saturating_add(chunks.count);
            self.chunked_bytes = self.chunked_bytes.saturating_add(chunks.total);
        }
        let seqno = tag.seqno();
        let (first, last) = self.seqnos.unwrap_or((seqno, seqno));
        self.seqnos = Some((first.min(seqno), last.max(seqno)));
        let (last, of) = self.last.get_or_insert_with(|| (Vec::new(), tag));
        last.clear();
        last.extend_from_slice(user);
        *of = tag;
    }

    /// A key that does not come after the one before, across blocks, if one was met.
    pub(super) fn take_disorder(&mut self) -> Option<DecodeError> {
        self.disorder.take()
    }

    /// Compares the sums with what the table says of itself: the properties, and the footer, which stands at `end`.
    pub(super) fn compare(
        &self,
        out: &mut Out<'_>,
        properties: &Properties,
        footer: &Footer,
        end: u64,
    ) -> Result {
        let p = properties;
        for (what, found, stated) in [
            ("data blocks", self.data.count, p.data_blocks),
            ("value chunks", self.chunks.count, p.chunk_blocks),
            ("index blocks", self.index.count, p.index_blocks),
            ("end of the data", self.data_end, p.data_end),
            ("entries", self.entries, p.entries),
            ("tombstones", self.tombstones, p.tombstones),
            ("distinct keys", self.keys, p.keys),
            ("bytes of keys", self.key_bytes, p.key_bytes),
            ("bytes of values", self.value_bytes, p.value_bytes),
            ("smallest sequence number", self.seqnos.map_or(0, |seqnos| seqnos.0), p.seqno_min),
            ("largest sequence number", self.seqnos.map_or(0, |seqnos| seqnos.1), p.seqno_max),
        ] {
            out.check(what, "properties", found, stated)?;
        }
        let bounds = u64::from(self.first_key == p.smallest)
            + u64::from(self.last.as_ref().is_some_and(|(last, _)| *last == p.largest));
        out.check("bounds that are a key", "properties", bounds, 2)?;
        if self.chunks.count + self.to_chunks > 0 {
            out.check("value chunks", "references to them", self.chunks.count, self.to_chunks)?;
            out.check("bytes in value chunks", "references to them", self.chunks.bytes, self.chunked_bytes)?;
        }
        references(out, "data blocks, each at its place", self.data, self.to_data)?;
        // Nothing in the index refers to its root, which is the last of it; the footer does.
        let below = Blocks {
            count: self.index.count.saturating_sub(1),
            places: self.index.places.wrapping_sub(self.index.newest),
            ..self.index
        };
        references(out, "index blocks, each at its place", below, self.to_index)?;
        if self.index.newest != hash(footer.root) {
            return out.damage(end, "root index", "the footer refers to another place than it stands at");
        }
        // These two say the same of the table: only a difference is worth a line.
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

/// Checks that what the index refers to are the blocks that are there, each once.
fn references(out: &mut Out<'_>, what: &'static str, there: Blocks, referred: Blocks) -> Result {
    if there.count + referred.count == 0 {
        return Ok(());
    }
    if there.count == referred.count && there.places != referred.places {
        return out.damage(out.sums_at, what, "the index refers to other places than they stand at");
    }
    out.check(what, "references in the index", there.count, referred.count)
}
