//! An open table and its point lookups.
//!
//! A lookup goes down the index, one block per level, to the one data block in which the key can be: the index
//! is made so that no second one is ever needed. The root of the index is in memory; the other blocks come from
//! the block cache. The value is a slice of the cached block.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::block::{BlockHandle, BlockIter, BlockKind, Entries};
use crate::error::{Error, Result};
use crate::filter::Header;
use crate::iter::EntryValue;
use crate::key::{InternalKey, SeqNo, Tag};
use crate::limits::SEQNO_MAX;
use crate::memory::Lease;

use crate::table_meta::TableMeta;

use super::context::TableIo;
use super::file::TableFile;
use super::filter_block::{FilterState, Verdict};
use super::filter_source::read_filter;
use super::footer::Footer;
use super::iter::TableIter;
use super::properties::Properties;
use super::value::TableChunks;

/// An open table. Made by [`Table::open`]; shared by all who read it.
#[derive(Debug)]
pub(crate) struct Table {
    pub(super) file: Arc<TableFile>,
    pub(crate) properties: Properties,
    pub(super) footer: Footer,
    /// The payload of the root of the index, if there was memory to keep it.
    pub(super) root: Option<Bytes>,
    pub(super) filter: FilterState,
    /// Why the filter is not believed any more that could be opened: a wrong answer, or a page that is damaged.
    pub(super) distrusted: Arc<OnceLock<Arc<Error>>>,
    /// For the table and for the root.
    pub(super) leases: Arc<[Option<Lease>; 2]>,
    /// For as much of the filter as is in memory.
    pub(super) _filter_lease: Option<Lease>,
}

impl Table {
    /// The filter, or why there is none.
    #[inline]
    pub(crate) fn filter(&self) -> &FilterState {
        &self.filter
    }

    /// Whether there is nothing wrong with the filter, if there is one. One that is not in memory, or not all of it, is read and
    /// checked for that, and not kept.
    pub(crate) fn check_filter(&self, meta: &TableMeta) -> Result<()> {
        let whole = |header: &Header| self.filter().column_groups() == header.column_group_count();
        if self.filter().header().is_none_or(whole) {
            return self.filter_error().map_or(Ok(()), |error| Err((**error).clone()));
        }
        let mut filters = meta.filters.iter().filter(|filter| filter.domain == 0);
        filters.try_for_each(|filter| read_filter(&self.file, meta, filter).map(drop))
    }

    /// What the filter says about the key with this hash. Touches memory only: a filter that is asked by pages says
    /// something if those that it takes are in the cache.
    #[inline]
    pub(crate) fn ask_filter(&self, hash: u64) -> Verdict {
        if self.is_distrusted() {
            return Verdict::Unknown;
        }
        match self.filter() {
            FilterState::Paged(pages) => pages.ask_cached(&self.file.ctx, hash),
            filter => filter.ask(hash),
        }
    }

    /// What a filter that is asked by pages says, of which this reads those that are not in the cache. What it finds
    /// damaged or cannot read is an error, once; nobody believes that filter any more.
    pub(crate) fn ask_pages(&self, filter: &FilterState, hash: u64) -> Result<Verdict> {
        let FilterState::Paged(pages) = filter else { return Ok(Verdict::Unknown) };
        if self.is_distrusted() {
            return Ok(Verdict::Unknown);
        }
        pages.ask(&self.file.ctx, hash).inspect_err(|error| {
            self.distrust(Arc::new(error.clone()));
        })
    }

    /// Remembers why the filter is not to be believed; `false` if that was known.
    fn distrust(&self, error: Arc<Error>) -> bool {
        let is_new = self.distrusted.set(Arc::clone(&error)).is_ok();
        if is_new {
            self.file.ctx.io.note_unusable_filter(self.file.number, &error);
        }
        is_new
    }

    /// Why the filter cannot be used, if there is one that cannot.
    pub(crate) fn filter_error(&self) -> Option<&Arc<Error>> {
        match self.filter() {
            FilterState::Unusable(error) => Some(error),
            _ => self.distrusted.get(),
        }
    }

    /// Whether the filter was caught at a wrong answer or with a damaged page: what it says means nothing.
    #[inline]
    pub(crate) fn is_distrusted(&self) -> bool {
        self.distrusted.get().is_some()
    }

    /// Holds an "absent" of the filter against the data: `true` if the table has no entry of this key, whatever
    /// its sequence number. If it has one, the filter is not believed any more.
    pub(crate) fn audit_absent(&self, user_key: &[u8]) -> Result<bool> {
        let io = &self.file.ctx.io;
        TableIo::count(&io.audited);
        if self.get(user_key, SEQNO_MAX)?.is_none() {
            return Ok(true);
        }
        if self.distrust(Arc::new(self.file.wrong_filter())) {
            TableIo::count(&io.audit_failures);
        }
        Ok(false)
    }

    /// The newest entry of this user key with a sequence number of at most `seqno`. Does not ask the filter.
    pub(crate) fn get(&self, user_key: &[u8], seqno: SeqNo) -> Result<Option<(Tag, EntryValue)>> {
        if user_key < &self.properties.smallest[..] || user_key > &self.properties.largest[..] {
            return Ok(None);
        }
        let target = InternalKey::new(user_key, Tag::newest_at(seqno));
        let Some(handle) = self.find_data_block(target)? else { return Ok(None) };
        let payload = self.file.block(handle, BlockKind::Data, true)?;
        let in_block = |error| self.file.error_in_block(error, handle.offset);
        let mut entries = BlockIter::new(payload, Entries::Data).map_err(in_block)?;
        entries.seek(target).map_err(in_block)?;
        match entries.key() {
            Some(key) if key.user == user_key => {
                let tag = key.tag;
                self.check_value(&entries, handle.offset)?;
                Ok(Some((tag, self.value(&entries, handle.offset))))
            }
            _ => Ok(None),
        }
    }

    /// An iterator over all entries. Blocks it reads are cached only if `fill_cache`.
    pub(crate) fn iter(self: &Arc<Self>, fill_cache: bool) -> TableIter {
        TableIter::new(Arc::clone(self), fill_cache)
    }

    /// The payload of the root of the index.
    pub(super) fn root(&self) -> Result<Bytes> {
        match &self.root {
            Some(root) => Ok(root.clone()),
            None => self.file.block(self.footer.root, BlockKind::Index, true),
        }
    }

    /// The data block in which `target` or its successor is, if it is in the table.
    fn find_data_block(&self, target: InternalKey<'_>) -> Result<Option<BlockHandle>> {
        let mut payload = self.root()?;
        let mut at = self.footer.root.offset;
        for level in 1..=self.footer.index_depth {
            let in_block = |error| self.file.error_in_block(error, at);
            let mut entries = BlockIter::new(payload, Entries::Index).map_err(in_block)?;
            entries.seek(target).map_err(in_block)?;
            if !entries.is_valid() {
                // Behind the last separator of the root there is nothing; further down there must be something.
                return match level {
                    1 => Ok(None),
                    _ => Err(self.past_separator(at)),
                };
            }
            let handle = BlockHandle::decode(entries.value()).map_err(in_block)?;
            if level == self.footer.index_depth {
                return Ok(Some(handle));
            }
            payload = self.file.block(handle, BlockKind::Index, true)?;
            at = handle.offset;
        }
        Ok(None)
    }

    pub(super) fn past_separator(&self, index_block: u64) -> Error {
        self.file.corrupt(index_block, "index block", "ends before its separator one level up")
    }

    /// Checks that a value in chunks can be in this file, before its length is believed.
    pub(super) fn check_value(&self, entries: &BlockIter, block: u64) -> Result<()> {
        match entries.chunks() {
            Some(chunks) => chunks.check(block).map_err(|error| self.file.error_in_block(error, block)),
            None => Ok(()),
        }
    }

    /// The value of the entry on which `entries`, a cursor over the data block at `block`, stands.
    pub(super) fn value(&self, entries: &BlockIter, block: u64) -> EntryValue {
        match entries.chunks() {
            Some(chunks) => EntryValue::Chunked(Arc::new(TableChunks::new(&self.file, chunks, block))),
            None => EntryValue::Inline(entries.value_bytes()),
        }
    }
}
