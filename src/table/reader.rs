//! An open table and its point lookups.

use std::sync::Arc;

use bytes::Buf;

use crate::block::{BlockKind, ChunkRef, find_user_key};
use crate::error::{Error, Result};
use crate::iter::EntryValue;
use crate::key::{InternalKey, SeqNo, Tag};
use crate::limits::SEQNO_MAX;
use crate::memory::{Held, Lease};
use crate::table_meta::{FilterRef, TableMeta};

use super::file::TableFile;
use super::filter::FilterSource;
use super::footer::Footer;
use super::index::Index;
use super::properties::Properties;
use super::value::TableChunks;

#[derive(Debug)]
pub(crate) struct Table {
    pub(super) file: Arc<TableFile>,
    pub(crate) properties: Properties,
    pub(super) footer: Footer,
    pub(super) index: Index,
    pub(super) leases: TableLeases,
}

#[derive(Debug)]
pub(super) struct TableLeases {
    pub(super) table: Option<Lease>,
    pub(super) _root: Option<Lease>,
    pub(super) _held: Option<Held>,
}

impl Table {
    pub(crate) fn filter_source<'a>(
        &self,
        meta: &TableMeta,
        filter: &'a FilterRef,
    ) -> Result<FilterSource<'a>> {
        FilterSource::open(&self.file, meta, filter)
    }

    pub(crate) fn corrupt_filter(&self, detail: &'static str) -> Error {
        self.file.corrupt(0, "filter", detail)
    }

    /// Returns the newest entry up to `seqno`. Neither probes the filter nor checks bounds.
    pub(crate) fn get(&self, user_key: &[u8], seqno: SeqNo) -> Result<Option<(Tag, EntryValue)>> {
        let target = InternalKey::new(user_key, Tag::newest_at(seqno));
        let Some(handle) = self.index.find_data_block(&self.file, &self.footer, target)? else {
            return Ok(None);
        };
        let mut payload = self.file.block(handle, BlockKind::Data, true)?;
        let in_block = |error| self.file.error_in_block(error, handle.offset);
        let Some(found) = find_user_key(&payload, target).map_err(in_block)? else { return Ok(None) };
        let value = match found.chunks {
            Some(chunks) => {
                chunks.check(handle.offset).map_err(in_block)?;
                EntryValue::Chunked(self.chunks(chunks, handle.offset))
            }
            None => {
                payload.truncate(found.value.end);
                payload.advance(found.value.start);
                EntryValue::Inline(payload)
            }
        };
        Ok(Some((found.tag, value)))
    }

    pub(crate) fn approximate_offset(&self, user_key: &[u8]) -> Result<u64> {
        let target = InternalKey::new(user_key, Tag::newest_at(SEQNO_MAX));
        let block = self.index.find_data_block(&self.file, &self.footer, target)?;
        Ok(block.map_or(self.footer.root.offset, |block| block.offset))
    }

    pub(super) fn chunks(&self, chunks: ChunkRef, block: u64) -> Arc<TableChunks> {
        Arc::new(TableChunks { file: Arc::clone(&self.file), chunks, block })
    }
}
