//! Reads a whole table from the file, past every cache, and compares all that it says twice.
//!
//! 1. Open: length, header, footer, properties and root, each against the manifest. If one of them is damaged the
//!    blocks are still walked; what only the index leads to is not.
//! 2. Walk: from the file header to the footer by the blocks' envelopes and the filters' handles. Every byte
//!    belongs to something, every block opens, padding is zero, kinds stand in their order. Behind a damaged block
//!    walking goes on where its length says if a good block is there, otherwise at the next one that the index names.
//! 3. Index: from the root down. The data blocks it leads to are those of the walk, in their order; so are the
//!    index blocks; each block's keys lie between the separators around it. What is damaged concerns the keys
//!    between those separators.
//! 4. Entries: keys ascend; every key passes every filter; values in chunks refer to the chunk blocks of the
//!    walk, each once and in order; counts and bounds are those of the properties.
//!
//! Damage is collected, up to [`DAMAGE_MAX`] pieces, the rest counted. What cannot be told apart from earlier
//! damage (counts when a block is unreadable) is not reported again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::block::{BlockHandle, BlockIter, BlockKind, Entries, unseal};
use crate::error::{Error, Result};
use crate::file_header::HEADER_BYTES;
use crate::filename::FileName;
use crate::filter::{AlignedBytes, Filter};
use crate::hash::key_hash;
use crate::key::{EntryKind, InternalKey, Tag};
use crate::table_meta::TableMeta;

use super::context::TableContext;
use super::file::TableFile;
use super::filter_source::read_filter;
use super::footer::FOOTER_BYTES;
use super::properties::Properties;
use super::reader::Table;

/// Most pieces of damage that one verification lists.
const DAMAGE_MAX: usize = 100;

/// What verifying a table found.
#[derive(Debug, Default)]
pub(crate) struct TableReport {
    pub(crate) damage: Vec<TableDamage>,
    /// Pieces of damage beyond [`DAMAGE_MAX`].
    pub(crate) omitted: u64,
    /// Filters that every key of the table was held against.
    pub(crate) filters: u64,
    /// The whole bounds, if the table could be opened.
    pub(crate) bounds: Option<(Bytes, Bytes)>,
}

/// A piece of damage, and the first and the last key that it can concern.
#[derive(Debug)]
pub(crate) struct TableDamage {
    pub(crate) error: Error,
    pub(crate) keys: (Bytes, Bytes),
}

/// Everything that is wrong with the table that `meta` describes. What `ctx` has cached of it is not used, as long as
/// nobody else opens tables with it.
pub(crate) fn verify(ctx: &Arc<TableContext>, meta: &Arc<TableMeta>) -> TableReport {
    let opened = Table::open(ctx, Arc::clone(meta));
    let (table, error) = match &opened {
        Ok(table) => (Some(&**table), None),
        Err(error) => (None, Some(error)),
    };
    let path = FileName::Table(meta.number).path(&ctx.dir);
    let on_disk = ctx.fs.open(&path).and_then(|file| file.len()).unwrap_or(0).min(meta.len);
    let bare = TableFile {
        ctx: Arc::clone(ctx),
        number: meta.number,
        path,
        file_id: meta.file_id,
        blocks_end: on_disk.saturating_sub(FOOTER_BYTES as u64),
    };
    let bounds = table.map(|table| (table.properties.smallest.clone(), table.properties.largest.clone()));
    let keys = bounds.clone().unwrap_or_else(|| (meta.smallest.clone(), meta.largest.clone()));
    let mut verifier = Verifier {
        file: table.map_or(&bare, |table| &table.file),
        table,
        meta,
        report: TableReport { bounds, ..TableReport::default() },
        keys,
        damaged: BTreeMap::new(),
        holes: Vec::new(),
        blocks: BTreeMap::new(),
        reached: BTreeSet::new(),
        filters: Vec::new(),
        next_chunk: HEADER_BYTES as u64,
        last: None,
        found: Properties { seqno_min: u64::MAX, ..Properties::default() },
    };
    if let Some(error) = error {
        verifier.report_opening(error.clone());
    }
    let unusable = verifier.open_filters();
    verifier.walk();
    if let Some(table) = table {
        let walked = verifier.damaged.is_empty();
        verifier.index(table);
        if walked && verifier.report.damage.is_empty() {
            verifier.totals(table);
        }
        verifier.report_denied();
    }
    verifier.report_unreached();
    unusable.into_iter().for_each(|error| verifier.report(error));
    verifier.report
}

struct Verifier<'a> {
    file: &'a TableFile,
    /// `None` if it could not be opened.
    table: Option<&'a Table>,
    meta: &'a TableMeta,
    report: TableReport,
    /// What damage concerns that nothing narrower is known of: at first all keys of the table.
    keys: (Bytes, Bytes),
    /// Damaged blocks of the walk that were not reported yet, by offset.
    damaged: BTreeMap<u64, Error>,
    /// What the walk could not look at.
    holes: Vec<Range<u64>>,
    /// The good blocks of the walk by offset, with their length in the file.
    blocks: BTreeMap<u64, (BlockKind, u64)>,
    /// Offsets of the blocks that the index leads to.
    reached: BTreeSet<u64>,
    filters: Vec<Asked>,
    /// The next chunk block may not start before this offset.
    next_chunk: u64,
    last: Option<(Vec<u8>, Tag)>,
    /// The properties that the entries add up to.
    found: Properties,
}

/// A filter of the table, and what it denied.
struct Asked {
    filter: Filter<AlignedBytes>,
    file: Option<u64>,
    offset: u64,
    denied: u64,
    /// The first key that it denied and the data block that holds it.
    first: Option<(Bytes, u64)>,
}

impl Verifier<'_> {
    fn report(&mut self, error: Error) {
        self.report_for(error, self.keys.clone());
    }

    fn report_for(&mut self, error: Error, keys: (Bytes, Bytes)) {
        // Where separators are out of order, the last key before a block may be behind its end.
        let keys = if keys.0 <= keys.1 { keys } else { (keys.1, keys.0) };
        if self.report.damage.len() < DAMAGE_MAX {
            self.report.damage.push(TableDamage { error, keys });
        } else {
            self.report.omitted += 1;
        }
    }

    fn report_at(&mut self, offset: u64, what: &'static str, detail: impl Into<String>) {
        let error = self.file.corrupt(offset, what, detail);
        self.report(error);
    }

    /// Why the table cannot be opened; the walk will not say the same again.
    fn report_opening(&mut self, error: Error) {
        if let Error::Corruption { offset, .. } = &error {
            self.reached.insert(*offset);
        }
        self.report(error);
    }

    /// Reads the filters; gives what is wrong with those that cannot be used.
    fn open_filters(&mut self) -> Vec<Error> {
        let mut unusable = Vec::new();
        for reference in self.meta.filters.iter().filter(|filter| filter.domain == 0) {
            match read_filter(self.file, self.meta, reference) {
                Ok(filter) => {
                    let (file, offset) = (reference.file, reference.offset);
                    self.filters.push(Asked { filter, file, offset, denied: 0, first: None });
                }
                Err(error) => unusable.push(error),
            }
        }
        unusable
    }

    /// Lengths of the filter blocks in the file, by offset, whether they are still in use or not.
    fn own_filters(&self) -> BTreeMap<u64, u64> {
        let properties = self.table.map_or(&[][..], |table| &table.properties.filters);
        let own = properties.iter().chain(&self.meta.filters);
        let own = own.filter(|filter| filter.file.is_none() && filter.len > 0);
        own.map(|filter| (filter.offset, filter.len)).collect()
    }

    fn walk(&mut self) {
        let filters = self.own_filters();
        let end = self.file.blocks_end;
        let mut starts = None;
        let mut position = HEADER_BYTES as u64;
        while position < end {
            if let Some(len) = filters.get(&position) {
                position = position.saturating_add(*len);
                continue;
            }
            let walked =
                self.file.handle_at(position).and_then(|handle| self.walk_block(handle).map(|()| handle));
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

    fn walk_block(&mut self, handle: BlockHandle) -> Result<()> {
        let file = self.file;
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
        self.blocks.insert(handle.offset, (kind, handle.len));
        Ok(())
    }

    /// Where blocks and filters start, as far as the index, the footer and the manifest tell.
    fn starts(&self, filters: &BTreeMap<u64, u64>) -> BTreeSet<u64> {
        let mut starts: BTreeSet<u64> = filters.keys().copied().collect();
        starts.insert(self.file.blocks_end);
        if let Some(table) = self.table {
            starts.insert(table.footer.properties.offset);
            self.add_starts(table.footer.root, table.footer.index_depth, &mut starts);
        }
        starts
    }

    fn add_starts(&self, handle: BlockHandle, levels: u8, starts: &mut BTreeSet<u64>) {
        if !starts.insert(handle.offset) || levels == 0 {
            return;
        }
        let Ok(payload) = self.file.read_block(handle, BlockKind::Index) else { return };
        let Ok(mut entries) = BlockIter::new(payload, Entries::Index) else { return };
        let mut standing = entries.seek_first();
        while standing.is_ok() && entries.is_standing() {
            if let Ok(handle) = BlockHandle::decode(entries.value()) {
                self.add_starts(handle, levels - 1, starts);
            }
            standing = entries.next();
        }
    }

    /// Where to go on behind the damaged block at `position`.
    fn next_start(&self, position: u64, starts: &BTreeSet<u64>) -> u64 {
        let known = starts.range(position + 1..).next().copied().unwrap_or(self.file.blocks_end);
        let claimed = self.file.handle_at(position).map_or(known, |handle| position + handle.len);
        let is_good = |at: u64| {
            let sealed = self.file.handle_at(at).and_then(|handle| self.file.read(at, handle.len));
            sealed.is_ok_and(|sealed| unseal(&self.file.file_id, at, sealed).is_ok())
        };
        if claimed < known && is_good(claimed) { claimed } else { known }
    }

    fn index(&mut self, table: &Table) {
        let root = table.footer.root;
        self.reached.insert(root.offset);
        self.reached.insert(table.footer.properties.offset);
        let payload = match self.file.read_block(root, BlockKind::Index) {
            Ok(payload) => payload,
            Err(error) => return self.report_block(root.offset, error),
        };
        let all = self.keys.clone();
        let done = self.index_block(payload, root.offset, table.footer.index_depth);
        self.keys = all;
        if let Err(error) = done {
            self.report(error);
        }
    }

    /// Reports a block once, by what the walk said of it if it did.
    fn report_block(&mut self, offset: u64, error: Error) {
        let error = self.damaged.remove(&offset).unwrap_or(error);
        self.report(error);
    }

    /// Visits what an index block leads to; `levels` index levels, itself included, are above the data.
    fn index_block(&mut self, payload: Bytes, at: u64, levels: u8) -> Result<()> {
        let file = self.file;
        let in_block = |error| file.error_in_block(error, at);
        let mut entries = BlockIter::new(payload, Entries::Index).map_err(in_block)?;
        entries.verify().map_err(in_block)?;
        entries.seek_first().map_err(in_block)?;
        let around = self.keys.clone();
        while let Some(separator) = entries.key() {
            let handle = BlockHandle::decode(entries.value()).map_err(in_block)?;
            let first = self.last.as_ref().map_or(around.0.clone(), |(user, _)| Bytes::copy_from_slice(user));
            let last = if separator.user < &around.1[..] {
                Bytes::copy_from_slice(separator.user)
            } else {
                around.1.clone()
            };
            let keys = (first, last);
            self.keys = keys.clone();
            if !self.reached.insert(handle.offset) {
                self.report_at(at, "index block", format!("the block at {} stands twice", handle.offset));
            } else if let Err(error) = self.child(handle, levels) {
                // The child may have been left where something narrower was concerned.
                self.keys = keys;
                self.report_block(handle.offset, error);
            }
            let past = |(user, tag): &(Vec<u8>, Tag)| InternalKey::new(user, *tag) > separator;
            if self.last.as_ref().is_some_and(past) {
                self.report_at(handle.offset, "index block", "the separator is before the block's last key");
            }
            // What follows must lie behind the separator, not only behind the last key.
            self.last = Some((separator.user.to_vec(), separator.tag));
            entries.next().map_err(in_block)?;
        }
        self.keys = around;
        Ok(())
    }

    fn child(&mut self, handle: BlockHandle, levels: u8) -> Result<()> {
        let kind = if levels == 1 { BlockKind::Data } else { BlockKind::Index };
        let payload = self.file.read_block(handle, kind)?;
        match levels {
            1 => self.data_block(payload, handle.offset),
            _ => self.index_block(payload, handle.offset, levels - 1),
        }
    }

    fn data_block(&mut self, payload: Bytes, at: u64) -> Result<()> {
        let file = self.file;
        let in_block = |error| file.error_in_block(error, at);
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
        // The last key of the block before is hidden behind its separator: equal only if the separator is it.
        let new_user = self.found.entries == 0 || self.found.largest != key.user;
        let ordered = self.last.as_ref().is_none_or(|(user, tag)| InternalKey::new(user, *tag) < key);
        if !ordered {
            return Err(self.file.corrupt(at, "key order", "not after what the index has before it"));
        }
        let mut value_bytes = entries.value().len() as u64;
        if let Some(chunks) = entries.chunks() {
            value_bytes = chunks.total;
            chunks.check(at).map_err(|error| self.file.error_in_block(error, at))?;
            if let Err((offset, error)) = self.chunks(chunks.offset, chunks.count, at) {
                let error = self.damaged.remove(&offset).unwrap_or(error);
                let user = Bytes::copy_from_slice(key.user);
                self.report_for(error, (user.clone(), user));
            }
        }
        if new_user {
            self.ask_filters(key.user, at);
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
        found.value_bytes += value_bytes;
        found.seqno_min = found.seqno_min.min(key.tag.seqno());
        found.seqno_max = found.seqno_max.max(key.tag.seqno());
        Ok(())
    }

    fn ask_filters(&mut self, user: &[u8], block: u64) {
        let hash = key_hash(self.file.ctx.hash_seed, user);
        for asked in self.filters.iter_mut().filter(|asked| !asked.filter.may_contain(hash)) {
            asked.denied += 1;
            asked.first.get_or_insert_with(|| (Bytes::copy_from_slice(user), block));
        }
    }

    /// A filter that denies a key of its table breaks the one promise that filters make.
    fn report_denied(&mut self) {
        self.report.filters = self.filters.len() as u64;
        for asked in std::mem::take(&mut self.filters) {
            let Some((key, block)) = asked.first else { continue };
            let path = asked.file.map(|number| FileName::Filter(number).path(&self.file.ctx.dir));
            let detail =
                format!("denies {} of the table's keys, first one in the block at {block}", asked.denied);
            let error =
                Error::corruption(path.as_ref().unwrap_or(&self.file.path), asked.offset, "filter", detail);
            let last = if asked.denied == 1 { key.clone() } else { self.keys.1.clone() };
            self.report_for(error, (key, last));
        }
    }

    /// A value's chunks: blocks of the walk that follow each other, behind those of the value before it. Gives the
    /// block that is at fault.
    fn chunks(&mut self, offset: u64, count: u64, at: u64) -> Result<(), (u64, Error)> {
        let file = self.file;
        if offset < self.next_chunk {
            return Err((at, file.corrupt(at, "chunked value", "refers to chunks of another value")));
        }
        let mut position = offset;
        for _ in 0..count {
            let known = match self.blocks.get(&position) {
                Some(&(BlockKind::ValueChunk, len)) => Some(len),
                Some(_) => None,
                None if self.holes.iter().any(|hole| hole.contains(&position)) => {
                    let handle = file.handle_at(position).map_err(|error| (position, error))?;
                    file.read_block(handle, BlockKind::ValueChunk).map_err(|error| (position, error))?;
                    Some(handle.len)
                }
                None => None,
            };
            let Some(len) = known else {
                let detail = format!("no chunk block was found at {position}");
                return Err((at, file.corrupt(at, "chunked value", detail)));
            };
            self.reached.insert(position);
            position += len;
        }
        self.next_chunk = position;
        Ok(())
    }

    /// Damaged blocks that the index does not lead to, or could not, because it is damaged itself.
    fn report_unreached(&mut self) {
        for (offset, error) in std::mem::take(&mut self.damaged) {
            if self.table.is_some() || !self.reached.contains(&offset) {
                self.report(error);
            }
        }
    }

    /// What only makes sense if no block is missing.
    fn totals(&mut self, table: &Table) {
        let count = |wanted| self.blocks.values().filter(|(kind, _)| *kind == wanted).count() as u64;
        let own = &table.properties;
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
            self.report_at(table.footer.properties.offset, "properties", detail);
        }
        let lost = self
            .blocks
            .iter()
            .find(|(offset, (kind, _))| *kind != BlockKind::Padding && !self.reached.contains(*offset));
        if let Some((&offset, (kind, _))) = lost {
            self.report_at(offset, kind.name(), "nothing refers to it");
        }
    }
}
