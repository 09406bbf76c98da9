//! Reads a damaged table as a sorted stream of entries.
//!
//! Reads the blocks from front to back, without the index and the footer. After damage, it continues at the [next
//! intact block](crate::inspect::table::next_intact). Each entry states whether bytes before it were skipped. If so,
//! entries of its key, and of all keys after the previous entry, may be lost.
//!
//! Memory: a block, and a value while it is read.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::block::{BlockIter, BlockKind, BlockValues, ChunkRef, ENVELOPE_BYTES, Envelope, unseal};
use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::error::Result;
use crate::file_header::HEADER_BYTES;
use crate::fs::ReadFile;
use crate::inspect::file::{Head, Window};
use crate::inspect::filter_block;
use crate::inspect::output::Stop;
use crate::inspect::table::{Ends, Stated, next_intact, wasted_bytes_max};
use crate::key::InternalKey;
use crate::spans::RangeDelete;
use crate::spans::block::SpanReader;
use crate::table::Properties;
use crate::table_meta::TableMeta;

#[derive(Debug, Clone)]
pub(crate) struct TableFacts {
    pub(crate) file_id: FileId,
    pub(crate) store_id: Option<FileId>,
    blocks_end: u64,
    pub(crate) properties: Option<Properties>,
}

impl TableFacts {
    /// Searches the whole table for misplaced properties. `meta` is the table's record in the manifest.
    pub(crate) fn read(file: &Arc<dyn ReadFile>, path: &Path, meta: Option<&TableMeta>) -> Result<Self> {
        let read = || -> Result<(Head, Ends), Stop> {
            let mut window = Window::of_first(&**file, meta.map_or(u64::MAX, |meta| meta.len))?;
            let head = Head::read_any(&mut window)?;
            let ends = Ends::read(&mut window, &head, meta.map(|meta| Stated::of(meta, 0)))?;
            Ok((head, ends))
        };
        let (head, ends) = read().map_err(|stop| stop.error(path))?;
        let store_id = head.decoded.ok().map(|header| header.store_id);
        let Ends { file_id, blocks_end, properties, .. } = ends;
        let facts = Self { file_id, store_id, blocks_end, properties: properties.ok() };
        match facts.properties {
            Some(_) => Ok(facts),
            None => {
                let properties = TableStream::new(Arc::clone(file), &facts).find_properties();
                Ok(Self { properties, ..facts })
            }
        }
    }

    pub(crate) fn has_spans(&self) -> bool {
        self.properties.as_ref().is_some_and(|own| own.spans.is_some())
    }

    pub(crate) fn read_spans(&self, file: &dyn ReadFile) -> Option<Vec<RangeDelete>> {
        let stated = self.properties.as_ref()?.spans.as_ref()?;
        let (mut reader, mut all) = (SpanReader::default(), Vec::new());
        for handle in &stated.blocks {
            handle.check(self.blocks_end).ok()?;
            let sealed = file.read_to_vec(handle.len as usize, handle.offset).ok()?;
            let payload = crate::block::open(&self.file_id, handle.offset, sealed, BlockKind::Spans).ok()?;
            let key = |range: &Range<usize>| Arc::from(&payload[range.clone()]);
            let read = reader.read::<DecodeError>(&payload, &mut |span| {
                let end = (!span.end.is_empty()).then(|| key(&span.end));
                let of = |&seqno| RangeDelete { start: key(&span.start), end: end.clone(), seqno };
                all.extend(span.seqnos.iter().map(of));
                Ok(())
            });
            read.ok()?;
        }
        (reader.totals().deletes == stated.deletes).then_some(all)
    }
}

pub(crate) struct TableStream {
    file: Arc<dyn ReadFile>,
    file_id: FileId,
    blocks_end: u64,
    data_end: Option<u64>,
    /// The number of bytes that may still be checksummed in vain.
    budget: u64,
    position: u64,
    /// Whether a block of another kind than data was read. Later damage affects no entries.
    behind_data: bool,
    block: Option<BlockIter>,
    last: Option<(Vec<u8>, u64)>,
    lost_before: bool,
    pub(crate) lost_bytes: u64,
    pub(crate) entries: u64,
}

enum Found {
    Block(BlockKind, Bytes),
    Filter,
}

impl TableStream {
    pub(crate) fn new(file: Arc<dyn ReadFile>, facts: &TableFacts) -> Self {
        Self {
            file,
            file_id: facts.file_id,
            blocks_end: facts.blocks_end,
            data_end: facts.properties.as_ref().map(|own| own.data_end),
            budget: wasted_bytes_max(facts.blocks_end),
            position: HEADER_BYTES as u64,
            behind_data: false,
            block: None,
            last: None,
            lost_before: false,
            lost_bytes: 0,
            entries: 0,
        }
    }

    pub(crate) fn next(&mut self) {
        self.lost_before = false;
        if let Some(key) = self.block.as_ref().and_then(BlockIter::key) {
            let (user, tag) = self.last.get_or_insert_with(Default::default);
            user.clear();
            user.extend_from_slice(key.user);
            *tag = key.tag.to_u64();
            let moved = self.block.as_mut().map(BlockIter::next);
            self.lost_before |= matches!(moved, Some(Err(_)));
        }
        loop {
            if let Some(key) = self.block.as_ref().and_then(BlockIter::key) {
                if self.is_in_order(key) {
                    self.entries += 1;
                    return;
                }
                self.lost_before = true;
            }
            self.block = None;
            let Some((BlockKind::Data, payload)) = self.next_block() else {
                if self.position >= self.end() {
                    return;
                }
                continue;
            };
            let opened = BlockIter::new(payload, BlockValues::Data)
                .map_err(Box::new)
                .and_then(|mut entries| entries.seek_first().map(|()| entries));
            self.lost_before |= opened.is_err();
            self.block = opened.ok();
        }
    }

    fn is_in_order(&self, key: InternalKey<'_>) -> bool {
        self.last.as_ref().is_none_or(|(user, tag)| {
            (&user[..], std::cmp::Reverse(*tag)) < (key.user, std::cmp::Reverse(key.tag.to_u64()))
        })
    }

    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        self.block.as_ref()?.key()
    }

    pub(crate) fn lost_before(&self) -> bool {
        self.lost_before
    }

    pub(crate) fn value(&self) -> Option<Bytes> {
        let block = self.block.as_ref()?;
        match block.chunks() {
            None => Some(block.value_bytes()),
            Some(chunks) => self.chunked(chunks),
        }
    }

    fn chunked(&self, chunks: ChunkRef) -> Option<Bytes> {
        chunks.check(self.blocks_end).ok()?;
        let mut value = Vec::new();
        let mut at = chunks.offset;
        for index in 0..chunks.count {
            let (Found::Block(BlockKind::ValueChunk, payload), len) = self.read_at(at)? else { return None };
            if payload.len() as u64 != chunks.chunk_len(index) {
                return None;
            }
            value.extend_from_slice(&payload);
            at += len;
        }
        Some(value.into())
    }

    fn end(&self) -> u64 {
        self.data_end.map_or(self.blocks_end, |end| end.min(self.blocks_end))
    }

    fn next_block(&mut self) -> Option<(BlockKind, Bytes)> {
        let (at, end) = (self.position, self.end());
        if at >= end {
            self.lost_before |= self.data_end.is_some_and(|data_end| at < data_end)
                || (self.data_end.is_none() && !self.behind_data);
            return None;
        }
        match self.read_at(at) {
            Some((Found::Filter, len)) => {
                self.behind_data = true;
                self.position = at + len;
                None
            }
            Some((Found::Block(kind, payload), len)) => {
                self.behind_data |= !matches!(kind, BlockKind::Data | BlockKind::ValueChunk);
                self.position = at + len;
                Some((kind, payload))
            }
            None => {
                self.position = self.search(at + 1);
                self.lost_bytes += self.position - at;
                self.lost_before |= !self.behind_data;
                None
            }
        }
    }

    fn read_at(&self, at: u64) -> Option<(Found, u64)> {
        if let Some(len) = self.filter_len(at) {
            return Some((Found::Filter, len));
        }
        // Retries once, because the damage may be in the transfer.
        let (kind, payload, len) = self.read_block(at).or_else(|| self.read_block(at))?;
        Some((Found::Block(kind, payload), len))
    }

    fn filter_len(&self, at: u64) -> Option<u64> {
        if !filter_block::is_aligned(at) || self.data_end.is_some_and(|data_end| at < data_end) {
            return None;
        }
        let mut window = Window::new(&*self.file).ok()?;
        let len = filter_block::intact_len(&mut window, at, &self.file_id).ok()??;
        (len <= self.blocks_end.checked_sub(at)?).then_some(len)
    }

    fn read_block(&self, at: u64) -> Option<(BlockKind, Bytes, u64)> {
        let mut head = [0; ENVELOPE_BYTES];
        let room = self.blocks_end.checked_sub(at).filter(|&room| room >= head.len() as u64)?;
        self.file.read_at(&mut head, at).ok()?;
        let len = Envelope::decode(&head).ok()?.sealed_len();
        if len > room {
            return None;
        }
        let mut sealed = vec![0; len as usize];
        self.file.read_at(&mut sealed, at).ok()?;
        let (kind, payload) = unseal(&self.file_id, at, sealed).ok()?;
        Some((kind, payload, len))
    }

    fn search(&mut self, mut from: u64) -> u64 {
        const SECTOR: u64 = 4096;
        let (end, id) = (self.blocks_end, &self.file_id);
        while from < end {
            let Ok(mut window) = Window::new(&*self.file) else { return end };
            match next_intact(&mut window, (id, end), &mut self.budget, from, end) {
                Ok(found) => return found,
                Err(Stop::Read { offset, .. }) => from = (offset.max(from) / SECTOR + 1) * SECTOR,
                Err(Stop::Sink(_)) => return end,
            }
        }
        end
    }

    fn find_properties(mut self) -> Option<Properties> {
        while self.position < self.blocks_end {
            if let Some((BlockKind::Properties, payload)) = self.next_block() {
                return Properties::decode(&payload).ok();
            }
        }
        None
    }
}
