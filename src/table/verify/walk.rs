//! From the file header to the footer, block by block, by what stands in the file.
//!
//! Where a block is damaged, its length may be too. Whether a good block follows is tried once, and never
//! beyond the next place where the index, the footer or a filter's handle says that something begins; from
//! then on no block is read that would reach over such a place. So whatever blocks claim, no byte is read
//! more than a few times.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::block::{BlockHandle, BlockIter, BlockKind, BlockValues, unseal};
use crate::error::{InFile, Result};
use crate::file_header::HEADER_BYTES;

use super::super::footer::INDEX_DEPTH_MAX;
use super::Verifier;

/// A good block of the walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walked {
    pub(super) kind: BlockKind,
    /// With its envelope.
    pub(super) len: u64,
    /// Of its payload.
    pub(super) raw_len: u64,
}

/// For each level of the index, from the data (0) to the root, where the last block of it ends that the index
/// led to.
pub(super) type Ends = [u64; INDEX_DEPTH_MAX as usize + 1];

impl Verifier<'_> {
    /// Lengths of the filter blocks in the file, by offset, whether they are still in use or not.
    fn own_filters(&self) -> BTreeMap<u64, u64> {
        let own = self.table.map_or(&self.meta.filters, |table| &table.properties.filters);
        let own = own.iter().filter(|filter| filter.file.is_none() && filter.len > 0);
        own.map(|filter| (filter.offset, filter.len)).collect()
    }

    pub(super) fn walk(&mut self) {
        let filters = self.own_filters();
        let end = self.file.blocks_end;
        let mut starts: Option<BTreeSet<u64>> = None;
        let mut position = HEADER_BYTES as u64;
        while position < end {
            if let Some(len) = filters.get(&position) {
                position = position.saturating_add(*len);
                continue;
            }
            let limit = starts.as_ref().map_or(end, |starts| self.start_behind(position, starts));
            let walked = self.file.handle_at(position);
            let walked = walked.and_then(|handle| self.walk_block(handle, limit).map(|()| handle));
            match walked {
                Ok(handle) => position += handle.len,
                Err(error) => {
                    self.damaged.insert(position, error);
                    let starts = starts.get_or_insert_with(|| self.starts(&filters));
                    let next = self.next_start(position, starts);
                    self.holes.push(position..next);
                    position = next;
                }
            }
        }
        if position != end {
            self.report_at(position, "table", format!("the blocks do not end at the footer ({end})"));
        }
    }

    fn walk_block(&mut self, handle: BlockHandle, limit: u64) -> Result<()> {
        let file = self.file;
        if handle.offset + handle.len > limit {
            let detail = format!("the block ends behind {limit}, where the index has another one");
            return Err(file.corrupt(handle.offset, "block stored length", detail));
        }
        let sealed = file.read(handle.offset, handle.len)?;
        let (kind, payload) = unseal(&file.file_id, handle.offset, sealed)
            .map_err(|error| error.in_file(&file.path, handle.offset))?;
        if kind == BlockKind::Padding && payload.iter().any(|&byte| byte != 0) {
            return Err(file.corrupt(handle.offset, "padding block", "is not zero"));
        }
        let data = matches!(kind, BlockKind::Data | BlockKind::ValueChunk);
        if self.table.is_some_and(|table| data != (handle.offset < table.properties.data_end)) {
            let detail = format!("{} on the wrong side of the end of data", kind.name());
            return Err(file.corrupt(handle.offset, "block kind", detail));
        }
        self.blocks.insert(handle.offset, Walked { kind, len: handle.len, raw_len: payload.len() as u64 });
        Ok(())
    }

    /// Where blocks and filters start, as far as the index, the footer and the manifest tell.
    fn starts(&self, filters: &BTreeMap<u64, u64>) -> BTreeSet<u64> {
        let mut starts: BTreeSet<u64> = filters.keys().copied().collect();
        if let Some(table) = self.table {
            starts.insert(table.footer.properties.offset);
            let mut ends = Ends::default();
            self.add_starts(table.footer.root, table.footer.index_depth, &mut ends, &mut starts);
        }
        starts
    }

    /// The block at `handle` has `levels` levels of the index below it or in it.
    fn add_starts(&self, handle: BlockHandle, levels: u8, ends: &mut Ends, starts: &mut BTreeSet<u64>) {
        starts.insert(handle.offset);
        let end = &mut ends[usize::from(levels)];
        if levels == 0 || handle.offset < *end || handle.check(self.file.blocks_end).is_err() {
            return;
        }
        *end = handle.offset + handle.len;
        let Ok(payload) = self.file.read_block(handle, BlockKind::Index) else { return };
        let Ok(mut entries) = BlockIter::new(payload, BlockValues::Index) else { return };
        let mut standing = entries.seek_first();
        while standing.is_ok() && entries.is_valid() {
            if let Ok(handle) = BlockHandle::decode(entries.value()) {
                self.add_starts(handle, levels - 1, ends, starts);
            }
            standing = entries.next();
        }
    }

    /// The first of the starts behind `position`.
    fn start_behind(&self, position: u64, starts: &BTreeSet<u64>) -> u64 {
        let end = self.file.blocks_end;
        starts.range(position + 1..).next().map_or(end, |&start| start.min(end))
    }

    /// Where to go on behind the damaged block at `position`.
    fn next_start(&self, position: u64, starts: &BTreeSet<u64>) -> u64 {
        let file = self.file;
        let known = self.start_behind(position, starts);
        let claimed = file.handle_at(position).map_or(known, |handle| position + handle.len);
        let is_good = |at: u64| {
            let handle = file.handle_at(at).ok().filter(|handle| at + handle.len <= known);
            let sealed = handle.and_then(|handle| file.read(at, handle.len).ok());
            sealed.is_some_and(|sealed| unseal(&file.file_id, at, sealed).is_ok())
        };
        if claimed < known && is_good(claimed) { claimed } else { known }
    }

    /// What the walk could not look at, if `position` is in it.
    pub(super) fn hole(&self, position: u64) -> Option<&Range<u64>> {
        let index = self.holes.partition_point(|hole| hole.end <= position);
        self.holes.get(index).filter(|hole| hole.start <= position)
    }
}
