//! Reads a filter block: whole, some column groups, or the head.

use std::ops::Range;
use std::sync::Arc;

use super::file::check_filter_file;
use super::location::FilterLocation;
use super::pages::FilterPages;
use crate::codec::DecodeError;
use crate::error::{Error, InFile, Result};
use crate::filename::FileName;
use crate::filter::header::HEADER_BYTES;
use crate::filter::{AlignedBytes, Expect, Filter, Header, PagedFilter};
use crate::fs::ReadFile;
use crate::table::context::TableContext;
use crate::table::file::{TableFile, read_into};
use crate::table::footer::FOOTER_BYTES;
use crate::table_meta::{FILTER_ALIGN, FilterRef, TableMeta};

pub(crate) fn read_filter_of(
    ctx: &Arc<TableContext>,
    meta: &TableMeta,
    filter: &FilterRef,
) -> Result<Filter<AlignedBytes>> {
    let table = TableFile {
        ctx: Arc::clone(ctx),
        number: meta.number,
        path: FileName::Table(meta.number).path(&ctx.dir),
        file_id: meta.file_id,
        blocks_end: meta.len.saturating_sub(FOOTER_BYTES as u64),
    };
    FilterSource::open(&table, meta, filter)?.read()
}

pub(crate) struct FilterSource<'a> {
    file: Arc<dyn ReadFile>,
    location: FilterLocation,
    expect: Expect,
    pub(crate) filter: &'a FilterRef,
}

impl<'a> FilterSource<'a> {
    pub(in crate::table) fn open(table: &TableFile, meta: &TableMeta, filter: &'a FilterRef) -> Result<Self> {
        let location = FilterLocation::of(table, filter);
        let file = location.open(&table.ctx)?;
        if filter.file.is_some() {
            check_filter_file(&table.ctx, &*file, &location.path, filter)?;
        } else if !filter.offset.is_multiple_of(FILTER_ALIGN) {
            return Err(table.corrupt(filter.offset, "filter handle", "is no multiple of 4096"));
        } else if filter.offset.checked_add(filter.len).is_none_or(|end| end > table.blocks_end) {
            let detail = format!("{} bytes are not in the file", filter.len);
            return Err(table.corrupt(filter.offset, "filter handle", detail));
        }
        let expect = Expect::table(table.file_id, table.ctx.hash_seed, meta.keys)
            .header_checksum(filter.header_checksum);
        Ok(Self { file, location, expect, filter })
    }

    pub(crate) fn read_header(&self) -> Result<Header> {
        let header = Header::decode(&self.read_first()?).map_err(|error| self.error(error))?;
        if (header.block_len, header.checksum) != (self.filter.len, self.filter.header_checksum) {
            let detail = "is not the filter that the manifest names";
            let FilterLocation { path, offset, .. } = &self.location;
            return Err(Error::corruption(path, *offset, "filter header", detail));
        }
        Ok(header)
    }

    pub(crate) fn read(&self) -> Result<Filter<AlignedBytes>> {
        self.read_bytes(self.filter.len, &[], usize::MAX)
    }

    /// Copies the `known` bytes at the start instead of reading them.
    pub(crate) fn read_column_groups(
        &self,
        header: &Header,
        known: &[u8],
        column_groups: usize,
    ) -> Result<Filter<AlignedBytes>> {
        self.read_bytes(header.column_groups_len(column_groups), known, column_groups)
    }

    fn read_bytes(&self, len: u64, known: &[u8], column_groups: usize) -> Result<Filter<AlignedBytes>> {
        let mut bytes = AlignedBytes::zeroed(len as usize);
        let (before, after) = bytes.split_at_mut(known.len());
        before.copy_from_slice(known);
        self.read_into(known.len() as u64, after)?;
        Filter::open_groups(bytes, self.expect, column_groups).map_err(|error| self.error(error))
    }

    pub(crate) fn read_pages(self, known: &[u8]) -> Result<FilterPages> {
        let first =
            known.get(..HEADER_BYTES).map_or_else(|| self.read_first(), |first| Ok(first.to_vec()))?;
        let read = |part: Range<u64>| {
            if let Some(known) = known.get(part.start as usize..part.end as usize) {
                return Ok(known.to_vec());
            }
            let mut bytes = vec![0; (part.end - part.start) as usize];
            self.read_into(part.start, &mut bytes).map(|()| bytes)
        };
        let needs = PagedFilter::needs(&first, self.filter.len).map_err(|error| self.error(error))?;
        let parts = needs.into_iter().map(read).collect::<Result<_>>()?;
        let filter = PagedFilter::open(parts, self.filter.len, self.expect);
        let filter = filter.map_err(|error| self.error(error))?;
        Ok(FilterPages { filter, location: self.location })
    }

    fn read_first(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.filter.len.min(HEADER_BYTES as u64) as usize];
        self.read_into(0, &mut bytes)?;
        Ok(bytes)
    }

    fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        read_into(&*self.file, &self.location.path, self.location.offset + offset, bytes)
    }

    fn error(&self, error: DecodeError) -> Error {
        error.in_file(&self.location.path, self.location.offset)
    }
}
