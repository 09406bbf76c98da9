//! Reads a whole table from the file, past every cache, and compares all that it says twice.
//!
//! 1. Walk: from the file header to the footer by the blocks' envelopes and the filters' handles. Every byte
//!    belongs to something, every block opens, padding is zero, kinds stand in their order.
//! 2. Index: from the root down. The data blocks it leads to are those of the walk, in their order; so are the
//!    index blocks; each block's keys lie between the separators around it.
//! 3. Entries: keys ascend; every key passes the filter; values in chunks refer to the chunk blocks of the
//!    walk, each once and in order; counts and bounds are those of the properties.
//!
//! Damage is collected, up to [`DAMAGE_MAX`] errors. What cannot be told apart from earlier damage (counts when
//! a block is unreadable) is not reported again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::block::{BlockHandle, BlockIter, BlockKind, Entries, unseal};
use crate::error::{Error, Result};
use crate::file_header::HEADER_BYTES;
use crate::hash::key_hash;
use crate::key::{EntryKind, InternalKey, Tag};

use super::file::TableFile;
use super::properties::Properties;
use super::reader::Table;

/// Most errors that one verification reports.
const DAMAGE_MAX: usize = 100;

impl Table {
    /// Everything that is wrong with the table; empty if it is sound. `hash_seed` is the store's.
    pub(crate) fn verify(&self, hash_seed: u64) -> Vec<Error> {
        let mut verifier = Verifier {
            table: self,
            hash_seed,
            damage: Vec::new(),
            blocks: BTreeMap::new(),
            reached: BTreeSet::new(),
            next_chunk: HEADER_BYTES as u64,
            last: None,
            found: Properties { seqno_min: u64::MAX, ..Properties::default() },
        };
        verifier.walk();
        let walked = verifier.damage.is_empty();
        verifier.index();
        if walked && verifier.damage.is_empty() {
            verifier.totals();
        }
        if let super::FilterState::Unusable(error) = &self.filter {
            verifier.report((**error).clone());
        }
        verifier.damage
    }
}

struct Verifier<'a> {
    table: &'a Table,
    hash_seed: u64,
    damage: Vec<Error>,
    /// The blocks of the walk by offset, with length in the file and of the payload.
    blocks: BTreeMap<u64, (BlockKind, u64, u64)>,
    /// Offsets of the blocks that the index leads to.
    reached: BTreeSet<u64>,
    /// The next chunk block may not start before this offset.
    next_chunk: u64,
    last: Option<(Vec<u8>, Tag)>,
    /// The properties that the entries add up to.
    found: Properties,
}

impl Verifier<'_> {
    fn file(&self) -> &TableFile {
        &self.table.file
    }

    fn report(&mut self, error: Error) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(error);
        }
    }

    fn report_at(&mut self, offset: u64, what: &'static str, detail: impl Into<String>) {
        let error = self.file().corrupt(offset, what, detail);
        self.report(error);
    }

    fn walk(&mut self) {
        let filters: BTreeMap<u64, u64> =
            self.table.properties.filters.iter().map(|filter| (filter.offset, filter.len)).collect();
        let end = self.file().blocks_end;
        let mut position = HEADER_BYTES as u64;
        while position < end && self.damage.len() < DAMAGE_MAX {
            if let Some(len) = filters.get(&position) {
                position = position.saturating_add(*len);
                continue;
            }
            match self.file().handle_at(position) {
                Ok(handle) => {
                    if let Err(error) = self.walk_block(handle) {
                        self.report(error);
                    }
                    position += handle.len;
                }
                // Where the next block starts is not known.
                Err(error) => return self.report(error),
            }
        }
        if position != end {
            self.report_at(position, "table", format!("the blocks do not end at the footer ({end})"));
        }
    }

    fn walk_block(&mut self, handle: BlockHandle) -> Result<()> {
        let file = self.file();
        let sealed = file.read(handle.offset, handle.len)?;
        let (kind, payload) = unseal(&file.file_id, handle.offset, sealed)
            .map_err(|error| error.in_file(&file.path, handle.offset))?;
        if kind == BlockKind::Padding && payload.iter().any(|&byte| byte != 0) {
            return Err(file.corrupt(handle.offset, "padding block", "is not zero"));
        }
        let data = matches!(kind, BlockKind::Data | BlockKind::ValueChunk);
        if data != (handle.offset < self.table.properties.data_end) {
            let detail = format!("{} on the wrong side of the end of data", kind.name());
            return Err(file.corrupt(handle.offset, "block kind", detail));
        }
        self.blocks.insert(handle.offset, (kind, handle.len, payload.len() as u64));
        Ok(())
    }

    fn index(&mut self) {
        let root = self.table.footer.root;
        self.reached.insert(root.offset);
        self.reached.insert(self.table.footer.properties.offset);
        let payload = match self.file().read_block(root, BlockKind::Index) {
            Ok(payload) => payload,
            Err(error) => return self.report(error),
        };
        if let Err(error) = self.index_block(payload, root.offset, self.table.footer.index_depth) {
            self.report(error);
        }
    }

    /// Visits what an index block leads to; `levels` index levels, itself included, are above the data.
    fn index_block(&mut self, payload: Bytes, at: u64, levels: u8) -> Result<()> {
        let table = self.table;
        let in_block = |error| table.file.error_in_block(error, at);
        let mut entries = BlockIter::new(payload, Entries::Index).map_err(in_block)?;
        entries.verify().map_err(in_block)?;
        entries.seek_first().map_err(in_block)?;
        while let Some(separator) = entries.key() {
            let handle = BlockHandle::decode(entries.value()).map_err(in_block)?;
            if self.reached.insert(handle.offset) {
                if let Err(error) = self.child(handle, levels) {
                    self.report(error);
                }
            } else {
                self.report_at(at, "index block", format!("the block at {} stands twice", handle.offset));
            }
            let past = |(user, tag): &(Vec<u8>, Tag)| InternalKey::new(user, *tag) > separator;
            if self.last.as_ref().is_some_and(past) {
                self.report_at(handle.offset, "index block", "the separator is before the block's last key");
            }
            // What follows must lie behind the separator, not only behind the last key.
            self.last = Some((separator.user.to_vec(), separator.tag));
            if self.damage.len() >= DAMAGE_MAX {
                break;
            }
            entries.next().map_err(in_block)?;
        }
        Ok(())
    }

    fn child(&mut self, handle: BlockHandle, levels: u8) -> Result<()> {
        let kind = if levels == 1 { BlockKind::Data } else { BlockKind::Index };
        let payload = self.file().read_block(handle, kind)?;
        match levels {
            1 => self.data_block(payload, handle.offset),
            _ => self.index_block(payload, handle.offset, levels - 1),
        }
    }

    fn data_block(&mut self, payload: Bytes, at: u64) -> Result<()> {
        let table = self.table;
        let in_block = |error| table.file.error_in_block(error, at);
        let mut entries = BlockIter::new(payload, Entries::Data).map_err(in_block)?;
        entries.verify().map_err(in_block)?;
        entries.seek_first().map_err(in_block)?;
        while let Some(key) = entries.key() {
            self.entry(key, &entries, at)?;
            entries.next().map_err(in_block)?;
        }
        Ok(())
    }

    fn entry(&mut self, key: InternalKey<'_>, entries: &BlockIter, at: u64) -> Result<()> {
        let value = self.table.value(entries, at);
        // The last key of the block before is hidden behind its separator: equal only if the separator is it.
        let new_user = self.found.entries == 0 || self.found.largest != key.user;
        let ordered = self.last.as_ref().is_none_or(|(user, tag)| InternalKey::new(user, *tag) < key);
        if !ordered {
            return Err(self.file().corrupt(at, "key order", "not after what the index has before it"));
        }
        if let Some(chunks) = entries.chunks() {
            self.chunks(chunks.offset, chunks.count, at)?;
        }
        if new_user && !self.table.filter.may_contain(key_hash(self.hash_seed, key.user)) {
            self.report_at(at, "filter", "denies a key that is in this block");
        }
        self.last = Some((key.user.to_vec(), key.tag));
        let found = &mut self.found;
        if found.entries == 0 {
            found.smallest = Bytes::copy_from_slice(key.user);
        }
        if new_user {
            found.largest = Bytes::copy_from_slice(key.user);
            found.keys += 1;
        }
        found.entries += 1;
        found.tombstones += u64::from(key.tag.kind() == EntryKind::Delete);
        found.key_bytes += key.user.len() as u64;
        found.value_bytes += value.len();
        found.seqno_min = found.seqno_min.min(key.tag.seqno());
        found.seqno_max = found.seqno_max.max(key.tag.seqno());
        Ok(())
    }

    /// A value's chunks: blocks of the walk that follow each other, behind those of the value before it.
    fn chunks(&mut self, offset: u64, count: u64, at: u64) -> Result<()> {
        if offset < self.next_chunk {
            return Err(self.file().corrupt(at, "chunked value", "refers to chunks of another value"));
        }
        let mut position = offset;
        for _ in 0..count {
            let Some(&(BlockKind::ValueChunk, len, _)) = self.blocks.get(&position) else {
                let detail = format!("no chunk block was found at {position}");
                return Err(self.file().corrupt(at, "chunked value", detail));
            };
            self.reached.insert(position);
            position += len;
        }
        self.next_chunk = position;
        Ok(())
    }

    /// What only makes sense if no block is missing.
    fn totals(&mut self) {
        let count = |wanted| self.blocks.values().filter(|(kind, ..)| *kind == wanted).count() as u64;
        let own = &self.table.properties;
        let found = Properties {
            data_blocks: count(BlockKind::Data),
            chunk_blocks: count(BlockKind::ValueChunk),
            index_blocks: count(BlockKind::Index),
            index_depth: own.index_depth,
            data_end: own.data_end,
            compression: own.compression,
            block_bytes: own.block_bytes,
            filters: own.filters.clone(),
            ..self.found.clone()
        };
        if found != *own {
            let detail = format!("the entries and blocks add up to {found:?}, they say {own:?}");
            self.report_at(self.table.footer.properties.offset, "properties", detail);
        }
        let lost = self
            .blocks
            .iter()
            .find(|(offset, (kind, ..))| *kind != BlockKind::Padding && !self.reached.contains(*offset));
        if let Some((&offset, (kind, ..))) = lost {
            self.report_at(offset, kind.name(), "nothing refers to it");
        }
    }
}
