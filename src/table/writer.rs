//! Writes a table: `create (add)* set_spans? set_origin? finish`.
//!
//! 1. Entries ascend strictly by internal key. The hash of each distinct user key goes to the filter builder.
//! 2. A data block is sealed before an entry that would exceed `block_bytes`. Its index entry has a separator: a key at
//!    or after the block's last key and before the next block's first.
//! 3. A value longer than [`VALUE_INLINE_MAX`] is written as chunk blocks before its data block. A value from another
//!    table is copied chunk by chunk.
//! 4. `finish` writes the filter, index, spans, properties and footer, and syncs the file. The caller syncs the
//!    directory.
//!
//! After an I/O error, every later call returns the same error, and the caller removes the file.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::block::{
    BlockBuilder, BlockHandle, BlockKind, ChunkRef, Compression, ENVELOPE_BYTES, Sealer, separator,
    separator_of_last,
};
use crate::checksum::FileId;
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, FileKind};
use crate::filter::{FilterBuilder, FilterPlan};
use crate::fs::{AppendFile, Fs};
use crate::hash::key_hash;
use crate::iter::{LentValue, read_whole};
use crate::key::{EntryKind, InternalKey, Tag};
use crate::limits::{BLOCK_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX, VALUE_CHUNK_BYTES, VALUE_INLINE_MAX};
use crate::spans::{Spans, block};
use crate::table_meta::{FILTER_ALIGN, TableMeta};

use super::filter::{describe, finish_filter, start_filter};
use super::footer::{FOOTER_BYTES, Footer, NO_INDEX};
use super::index::{IndexBuilder, WrittenIndex};
use super::origin::Origin;
use super::properties::{Properties, SpanProperties};

pub(crate) const APPEND_BYTES: usize = 256 << 10;

#[derive(Debug, Clone)]
pub(crate) struct TableConfig {
    pub(crate) number: u64,
    pub(crate) store_id: FileId,
    pub(crate) file_id: FileId,
    pub(crate) hash_seed: u64,
    /// The size with the envelope and before compression: 256 bytes to 1 MiB.
    pub(crate) block_bytes: usize,
    pub(crate) compression: Compression,
    pub(crate) filter: Option<FilterPlan>,
    pub(crate) append_bytes: usize,
}

struct Follows {
    is_new: bool,
    common: usize,
}

#[derive(Debug)]
pub(crate) struct TableWriter {
    config: TableConfig,
    out: Output,
    data: BlockBuilder,
    index: IndexBuilder,
    last: Option<Tag>,
    index_bytes: usize,
    filter: Option<FilterBuilder>,
    spans: Spans,
    properties: Properties,
    failed: Option<Error>,
}

impl TableWriter {
    pub(crate) fn create(fs: &dyn Fs, path: &Path, config: TableConfig) -> Result<Self> {
        let block_bytes = config.block_bytes;
        if !(256..=1 << 20).contains(&block_bytes) {
            return Err(Error::invalid(format!("block_bytes of {block_bytes} is not in 256..=1048576")));
        }
        let start = |plan| start_filter(plan, config.hash_seed, config.file_id);
        let filter = config.filter.map(start).transpose()?;
        let file = fs.create(path).map_err(|source| Error::io("create", path, source))?;
        let header = FileHeader::new(FileKind::Table, config.store_id, config.file_id).encode();
        let sealer = Sealer::new(config.file_id);
        let (path, append_bytes) = (path.to_path_buf(), config.append_bytes);
        let out = Output { file, path, buffer: header.to_vec(), append_bytes, appended: 0, sealer };
        let properties = Properties {
            seqno_min: u64::MAX,
            compression: Some(config.compression),
            block_bytes: block_bytes as u64,
            ..Properties::default()
        };
        Ok(Self {
            config,
            out,
            data: BlockBuilder::for_data(),
            index: IndexBuilder::new(),
            last: None,
            index_bytes: 0,
            filter,
            spans: Spans::default(),
            properties,
            failed: None,
        })
    }

    /// The key must be greater than the previous one. A tombstone has an empty value.
    pub(crate) fn add<'v>(&mut self, key: InternalKey<'_>, value: impl Into<LentValue<'v>>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let value = value.into();
        let follows = self.check(key, &value)?;
        if let LentValue::Inline(bytes) = value
            && bytes.len() <= VALUE_INLINE_MAX
            && self.data.add_with_room(key, bytes, follows.common, self.payload_bytes_max())
        {
            self.count(key, bytes.len() as u64, follows.is_new);
            return Ok(());
        }
        self.try_add(key, value, follows).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn payload_bytes_max(&self) -> usize {
        self.config.block_bytes - ENVELOPE_BYTES
    }

    #[inline(always)]
    fn check(&self, key: InternalKey<'_>, value: &LentValue<'_>) -> Result<Follows> {
        if key.user.len() > KEY_BYTES_MAX {
            return Err(Error::limit("key length", KEY_BYTES_MAX as u64, key.user.len() as u64));
        }
        if value.len() > VALUE_BYTES_MAX as u64 {
            return Err(Error::limit("value length", VALUE_BYTES_MAX as u64, value.len()));
        }
        if Tag::from_u64(key.tag.to_u64()).is_none() {
            return Err(Error::invalid("a seek tag cannot be stored in a table"));
        }
        if key.tag.kind() == EntryKind::Delete && value.len() > 0 {
            return Err(Error::invalid("a tombstone must have an empty value"));
        }
        let Some(tag) = self.last else { return Ok(Follows { is_new: true, common: 0 }) };
        let (last, common) = (self.data.last_user_key(), self.data.common(key.user));
        match last[common..].first().cmp(&key.user[common..].first()) {
            Ordering::Less => Ok(Follows { is_new: true, common }),
            Ordering::Equal if key.tag < tag => Ok(Follows { is_new: false, common }),
            _ => Err(Error::invalid("entries of a table must be added in ascending order")),
        }
    }

    #[inline(never)]
    fn try_add(&mut self, key: InternalKey<'_>, value: LentValue<'_>, follows: Follows) -> Result<()> {
        let (len, common) = (value.len(), follows.common);
        let (stored, chunked) = match value {
            LentValue::Inline(bytes) if len <= VALUE_INLINE_MAX as u64 => (Cow::Borrowed(bytes), false),
            value => self.store_value(value)?,
        };
        let mut place = self.data.place(key, stored.len(), chunked, common);
        if !self.data.is_empty() && !self.data.fits(&place, self.payload_bytes_max()) {
            self.finish_data_block(Some(key))?;
            place = self.data.place(key, stored.len(), chunked, common);
        }
        self.data.add_at(&place, key, &stored);
        self.count(key, len, follows.is_new);
        Ok(())
    }

    #[inline(never)]
    fn store_value<'v>(&mut self, value: LentValue<'v>) -> Result<(Cow<'v, [u8]>, bool)> {
        let total = value.len();
        if total <= VALUE_INLINE_MAX as u64 {
            return Ok(match value {
                LentValue::Inline(bytes) => (Cow::Borrowed(bytes), false),
                LentValue::Chunked(value) => (Cow::Owned(read_whole(&*value)?.into()), false),
            });
        }
        let reference = ChunkRef::new(total, self.out.position());
        match value {
            LentValue::Inline(bytes) => {
                for chunk in bytes.chunks(VALUE_CHUNK_BYTES) {
                    self.out.block(BlockKind::ValueChunk, self.config.compression, chunk)?;
                }
            }
            LentValue::Chunked(value) => {
                let (out, compression) = (&mut self.out, self.config.compression);
                let mut copy = ChunkCopy { out, compression, rest: Vec::new(), len: 0 };
                value.read_chunks(&mut |bytes| copy.take(bytes))?;
                if copy.finish()? != total {
                    return Err(Error::invalid("the chunks of a value do not add up to its stated length"));
                }
            }
        }
        self.properties.chunk_blocks += reference.count;
        let mut stored = Vec::new();
        reference.encode(&mut stored);
        Ok((Cow::Owned(stored), true))
    }

    #[inline(always)]
    fn count(&mut self, key: InternalKey<'_>, value_len: u64, is_new: bool) {
        let properties = &mut self.properties;
        properties.entries += 1;
        properties.tombstones += u64::from(key.tag.kind() == EntryKind::Delete);
        properties.key_bytes += key.user.len() as u64;
        properties.value_bytes += value_len;
        properties.seqno_min = properties.seqno_min.min(key.tag.seqno());
        properties.seqno_max = properties.seqno_max.max(key.tag.seqno());
        if self.last.replace(key.tag).is_none() {
            properties.smallest = Bytes::copy_from_slice(key.user);
        }
        if !is_new {
            return;
        }
        properties.keys += 1;
        if let Some(filter) = &mut self.filter {
            filter.add_hash(key_hash(self.config.hash_seed, key.user));
        }
    }

    pub(crate) fn last_user_key(&self) -> &[u8] {
        self.data.last_user_key()
    }

    fn finish_data_block(&mut self, next: Option<InternalKey<'_>>) -> Result<()> {
        let Some(tag) = self.last else { return Ok(()) };
        let last = InternalKey::new(self.data.last_user_key(), tag);
        let separator = next.map_or_else(|| separator_of_last(last), |next| separator(last, next));
        let handle = self.out.block(BlockKind::Data, self.config.compression, self.data.finish())?;
        self.data.clear();
        self.index.add(separator, handle);
        self.index_bytes = self.index.size();
        self.properties.data_blocks += 1;
        Ok(())
    }

    /// The file's size if it were finished now, without its filter; accurate to a few per cent.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.out.position() + (self.data.entries_len() + self.index_bytes) as u64
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, FilterBuilder::finish_bytes);
        // Two data blocks: one being built, one sealed.
        filter + self.index_bytes + self.out.buffer.capacity() + 2 * self.config.block_bytes
    }

    pub(crate) fn set_spans(&mut self, spans: Spans) {
        self.spans = spans;
    }

    pub(crate) fn set_origin(&mut self, origin: Origin) {
        self.properties.origin = Some(Box::new(origin));
    }

    /// The table must have an entry or a span.
    pub(crate) fn finish(mut self) -> Result<TableMeta> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.last.is_none() && self.spans.is_empty() {
            return Err(Error::invalid("a table must have at least one entry or span"));
        }
        self.properties.largest = Bytes::copy_from_slice(self.data.last_user_key());
        self.finish_data_block(None)?;
        self.properties.data_end = self.out.position();
        let index = match self.last {
            Some(_) => self.write_filter_and_index()?,
            None => WrittenIndex { root: NO_INDEX, depth: 0, blocks: 0 },
        };
        self.write_spans()?;
        let footer_checksum = self.write_footer(&index)?;
        self.out.sync()?;
        let len = self.out.position();
        Ok(self.properties.to_meta(self.config.number, self.config.file_id, len, footer_checksum))
    }

    fn write_filter_and_index(&mut self) -> Result<WrittenIndex> {
        self.write_filter()?;
        let Self { out, index, config, .. } = self;
        index.finish(&mut |payload| out.block(BlockKind::Index, config.compression, payload))
    }

    fn write_spans(&mut self) -> Result<()> {
        let (Some(start), Some((min, max))) = (self.spans.start(), self.spans.seqno_bounds()) else {
            return Ok(());
        };
        let (out, compression) = (&mut self.out, self.config.compression);
        let payloads = block::encode(&self.spans)?;
        let blocks = payloads.iter().map(|payload| out.block(BlockKind::Spans, compression, payload));
        let end = self.spans.end().flatten().map_or(&[][..], |end| &**end);
        self.properties.spans = Some(Box::new(SpanProperties {
            count: self.spans.len() as u64,
            deletes: self.spans.range_deletes() as u64,
            start: Bytes::copy_from_slice(start),
            end: Bytes::copy_from_slice(end),
            blocks: blocks.collect::<Result<_>>()?,
        }));
        self.properties.seqno_min = self.properties.seqno_min.min(min);
        self.properties.seqno_max = self.properties.seqno_max.max(max);
        Ok(())
    }

    fn write_filter(&mut self) -> Result<()> {
        let Some(filter) = self.filter.take() else { return Ok(()) };
        let bytes = finish_filter(filter)?;
        self.out.pad_to(FILTER_ALIGN)?;
        let offset = self.out.position();
        let filter = describe(None, offset, &bytes).map_err(|error| error.in_file(&self.out.path, offset))?;
        self.properties.filters.push(filter);
        self.out.append(&bytes)
    }

    fn write_footer(&mut self, index: &WrittenIndex) -> Result<u32> {
        self.properties.index_depth = index.depth;
        self.properties.index_blocks = index.blocks;
        let payload = self.properties.encode();
        let properties = self.out.block(BlockKind::Properties, Compression::None, &payload)?;
        let filters = &self.properties.filters;
        let footer = Footer {
            root: index.root,
            properties,
            filter: filters.first().map_or((0, 0), |filter| (filter.offset, filter.len)),
            entries: self.properties.entries,
            file_len: self.out.position() + FOOTER_BYTES as u64,
            filters: filters.len() as u32,
            index_depth: index.depth,
            file_id: self.config.file_id,
        };
        let (bytes, checksum) = footer.encode();
        self.out.append(&bytes)?;
        Ok(checksum)
    }
}

#[derive(Debug)]
struct Output {
    file: Arc<dyn AppendFile>,
    path: PathBuf,
    buffer: Vec<u8>,
    append_bytes: usize,
    appended: u64,
    sealer: Sealer,
}

impl Output {
    fn position(&self) -> u64 {
        self.appended + self.buffer.len() as u64
    }

    fn block(&mut self, kind: BlockKind, compression: Compression, payload: &[u8]) -> Result<BlockHandle> {
        if payload.len() > BLOCK_BYTES_MAX {
            return Err(Error::limit("block length", BLOCK_BYTES_MAX as u64, payload.len() as u64));
        }
        let offset = self.position();
        let len = self.sealer.seal(&mut self.buffer, offset, kind, compression, payload);
        self.flush_if(self.append_bytes)?;
        Ok(BlockHandle { offset, len })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() < self.append_bytes {
            self.buffer.extend_from_slice(bytes);
            return self.flush_if(self.append_bytes);
        }
        self.flush_if(1)?;
        self.file.append(bytes).map_err(|source| Error::io("append to", &self.path, source))?;
        self.appended += bytes.len() as u64;
        Ok(())
    }

    /// If the gap is shorter than an envelope, the padding ends one multiple later.
    fn pad_to(&mut self, align: u64) -> Result<()> {
        let position = self.position();
        if position.is_multiple_of(align) {
            return Ok(());
        }
        let end = (position + ENVELOPE_BYTES as u64).next_multiple_of(align);
        let zeros = vec![0; (end - position) as usize - ENVELOPE_BYTES];
        self.block(BlockKind::Padding, Compression::None, &zeros).map(drop)
    }

    fn flush_if(&mut self, least: usize) -> Result<()> {
        if self.buffer.len() < least {
            return Ok(());
        }
        self.file.append(&self.buffer).map_err(|source| Error::io("append to", &self.path, source))?;
        self.appended += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.flush_if(1)?;
        self.file.sync().map_err(|source| Error::io("sync", &self.path, source))
    }
}

struct ChunkCopy<'a> {
    out: &'a mut Output,
    compression: Compression,
    rest: Vec<u8>,
    len: u64,
}

impl ChunkCopy<'_> {
    fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.len += bytes.len() as u64;
        while self.rest.len() + bytes.len() >= VALUE_CHUNK_BYTES {
            let (head, tail) = bytes.split_at(VALUE_CHUNK_BYTES - self.rest.len());
            if self.rest.is_empty() {
                self.out.block(BlockKind::ValueChunk, self.compression, head)?;
            } else {
                self.rest.extend_from_slice(head);
                self.out.block(BlockKind::ValueChunk, self.compression, &self.rest)?;
                self.rest.clear();
            }
            bytes = tail;
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self) -> Result<u64> {
        if !self.rest.is_empty() {
            self.out.block(BlockKind::ValueChunk, self.compression, &self.rest)?;
        }
        Ok(self.len)
    }
}
