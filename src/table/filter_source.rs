//! Where the block of a filter lies on disk, and how much of it comes into memory.
//!
//! A filter comes in column groups ([`Header::column_group_count`]): whole, or its first column groups; with none of them in memory it
//! is asked by pages ([`FilterPages`]). What is read is read into its
//! place; an open table with more column groups in memory, or with fewer, is another [`Table`] over the same file, so that
//! lookups that are under way keep the filter that they have asked, and its memory comes back when they are done.

use std::sync::Arc;

use super::file::{TableFile, read_into};
use super::filter_block::FilterState;
use super::filter_file::check_filter_file;
use super::filter_pages::{FilterPages, Place};
use super::reader::Table;
use super::writer::FILTER_ALIGN;
use crate::codec::DecodeError;
use crate::error::{Error, InFile, Result};
use crate::filter::header::HEADER_BYTES;
use crate::filter::{AlignedBytes, Expect, Filter, Header};
use crate::fs::ReadFile;
use crate::memory::{Lease, Part};
use crate::table_meta::{FilterRef, TableMeta};

/// The whole filter that `filter` refers to.
pub(super) fn read_filter(
    table: &TableFile,
    meta: &TableMeta,
    filter: &FilterRef,
) -> Result<Filter<AlignedBytes>> {
    FilterSource::open(table, filter)?.read(table, meta)
}

/// Whether a filter block may stand at this offset of a table.
pub(super) fn is_aligned(offset: u64) -> bool {
    offset.is_multiple_of(FILTER_ALIGN)
}

/// The file with a filter block in it, and where.
pub(super) struct FilterSource<'a> {
    file: Arc<dyn ReadFile>,
    pub(super) place: Place,
    pub(super) filter: &'a FilterRef,
}

impl<'a> FilterSource<'a> {
    /// Finds the block; all of it is in the file.
    pub(super) fn open(table: &TableFile, filter: &'a FilterRef) -> Result<Self> {
        let place = Place::of(table, filter);
        let file = place.open(&table.ctx)?;
        if filter.file.is_some() {
            check_filter_file(&table.ctx, &*file, &place.path, filter)?;
        } else if !is_aligned(filter.offset) {
            return Err(table.corrupt(filter.offset, "filter handle", "is no multiple of 4096"));
        } else if filter.offset.checked_add(filter.len).is_none_or(|end| end > table.blocks_end) {
            let detail = format!("{} bytes are not in the file", filter.len);
            return Err(table.corrupt(filter.offset, "filter handle", detail));
        }
        Ok(Self { file, place, filter })
    }

    /// What is known of the filter.
    pub(super) fn expect(&self, table: &TableFile, meta: &TableMeta) -> Expect {
        Expect::table(table.file_id, table.ctx.hash_seed, meta.keys)
            .header_checksum(self.filter.header_checksum)
    }

    /// An error in the block.
    pub(super) fn error(&self, error: DecodeError) -> Error {
        error.in_file(&self.place.path, self.place.offset)
    }

    /// As many bytes as a header has.
    pub(super) fn first(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.filter.len.min(HEADER_BYTES as u64) as usize];
        self.read_into(0, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        read_into(&*self.file, &self.place.path, self.place.offset + offset, bytes)
    }

    /// Its header alone.
    fn header(&self) -> Result<Header> {
        let header = Header::decode(&self.first()?).map_err(|error| self.error(error))?;
        if (header.block_len, header.checksum) != (self.filter.len, self.filter.header_checksum) {
            let detail = "is another one than the manifest names";
            return Err(Error::corruption(&self.place.path, self.place.offset, "filter header", detail));
        }
        Ok(header)
    }

    /// The whole filter.
    fn read(&self, table: &TableFile, meta: &TableMeta) -> Result<Filter<AlignedBytes>> {
        self.read_on(table, meta, self.filter.len, &[], usize::MAX)
    }

    /// The filter of the first `len` bytes of the block, which are its first `column groups`; those that are `known` are not
    /// read.
    fn read_on(
        &self,
        table: &TableFile,
        meta: &TableMeta,
        len: u64,
        known: &[u8],
        column_groups: usize,
    ) -> Result<Filter<AlignedBytes>> {
        let mut bytes = AlignedBytes::zeroed(len as usize);
        let (before, after) = bytes.split_at_mut(known.len());
        before.copy_from_slice(known);
        self.read_into(known.len() as u64, after)?;
        Filter::open_groups(bytes, self.expect(table, meta), column_groups).map_err(|error| self.error(error))
    }

    /// As many column groups as there is room for, and the memory that they have.
    pub(super) fn read_what_fits(
        self,
        table: &TableFile,
        meta: &TableMeta,
    ) -> Result<(FilterState, Option<Lease>)> {
        let lease = |len| table.ctx.memory.try_lease(Part::Filters, len);
        if let Some(lease) = lease(self.filter.len) {
            return Ok((FilterState::Ready(self.read(table, meta)?), Some(lease)));
        }
        let header = self.header()?;
        for column_groups in (1..header.column_group_count()).rev() {
            let len = header.column_groups_len(column_groups);
            if let Some(lease) = lease(len) {
                return Ok((
                    FilterState::Ready(self.read_on(table, meta, len, &[], column_groups)?),
                    Some(lease),
                ));
            }
        }
        self.paged(table, meta, header)
    }

    /// None of its column groups, but what it takes to be asked by pages if there is room for that.
    fn paged(
        self,
        table: &TableFile,
        meta: &TableMeta,
        header: Header,
    ) -> Result<(FilterState, Option<Lease>)> {
        Ok(match FilterPages::open(table, meta, self)? {
            Some((pages, lease)) => (FilterState::Paged(Box::new(pages)), Some(lease)),
            None => (FilterState::Unloaded(Box::new(header)), None),
        })
    }
}

impl Table {
    /// The same open table with so many column groups of its filter in memory. Fewer than there are take no read (but none at
    /// all one of what is asked by pages), more only that of what is missing. `None` if there is no room (while readers
    /// may be using the old ones, both are there), or if what is missing could not be read.
    pub(crate) fn with_column_groups(&self, meta: &TableMeta, column_groups: usize) -> Option<Arc<Self>> {
        let header = self.filter.header()?;
        let lease = match column_groups {
            0 => None,
            _ => {
                let before = header.column_groups_len(self.filter.column_groups());
                let memory = &self.file.ctx.memory;
                Some(memory.try_lease_instead(
                    Part::Filters,
                    header.column_groups_len(column_groups),
                    before,
                )?)
            }
        };
        let changed = match lease {
            Some(lease) => self
                .filter_of_groups(meta, header, column_groups)
                .map(|filter| (FilterState::Ready(filter), Some(lease))),
            None => {
                self.source(meta, header).and_then(|source| source.paged(&self.file, meta, header.clone()))
            }
        };
        let (filter, lease) = match changed {
            Ok(changed) => changed,
            // Nothing is known of the filter; what is in memory of it stays there.
            Err(Error::Io { .. }) => return None,
            Err(error) => {
                self.file.ctx.io.note_unusable_filter(meta.number, &error);
                (FilterState::Unusable(Arc::new(error)), None)
            }
        };
        Some(Arc::new(Self {
            file: Arc::clone(&self.file),
            properties: self.properties.clone(),
            footer: self.footer.clone(),
            root: self.root.clone(),
            filter,
            distrusted: Arc::clone(&self.distrusted),
            leases: Arc::clone(&self.leases),
            _filter_lease: lease,
        }))
    }

    fn filter_of_groups(
        &self,
        meta: &TableMeta,
        header: &Header,
        column_groups: usize,
    ) -> Result<Filter<AlignedBytes>> {
        let known = match &self.filter {
            FilterState::Ready(filter) if column_groups <= filter.column_groups() => {
                return Ok(filter.keep_groups(column_groups));
            }
            FilterState::Ready(filter) => filter.as_bytes(),
            _ => &[],
        };
        let source = self.source(meta, header)?;
        source.read_on(&self.file, meta, header.column_groups_len(column_groups), known, column_groups)
    }

    /// Where the filter with this header lies.
    fn source<'a>(&self, meta: &'a TableMeta, header: &Header) -> Result<FilterSource<'a>> {
        let is_it = |filter: &&FilterRef| filter.header_checksum == header.checksum;
        match meta.filters.iter().find(is_it) {
            Some(filter) => FilterSource::open(&self.file, filter),
            None => Err(self.file.corrupt(0, "filter", "is not one of the table's any more")),
        }
    }
}
