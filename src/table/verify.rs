//! Reads a whole table from the file, past every cache, and compares all that it says twice.
//!
//! 1. Open: length, header, footer, properties and root, each against the manifest. If one of them is damaged
//!    the blocks are still walked; what only the index leads to is not.
//! 2. [`walk`]: from the file header to the footer by the blocks' envelopes and the filters' handles. Every
//!    byte belongs to something, every block opens, padding is zero, kinds stand in their order. Behind a
//!    damaged block walking goes on where its length says if a good block is there, otherwise at the next one
//!    that the index names.
//! 3. Index: from the root down. On each level it leads to blocks of the walk, as long as they are, in their
//!    order, to all of them; each block's keys lie between the separators around it. What is damaged concerns
//!    the keys between those separators.
//! 4. Entries: keys ascend; every key passes every filter ([`filters`]); values in chunks refer to the chunk
//!    blocks of the walk, each once and in order ([`chunks`]); counts and bounds are those of the properties.
//!
//! Damage is collected, up to [`DAMAGE_MAX`] pieces, the rest counted. What cannot be told apart from earlier
//! damage (counts when a block is unreadable) is not reported again. However a file was made up, it is read a
//! few times at most: what overlaps is damaged and not followed. The rest of the time is that of what its
//! blocks come to, keys in full.

mod chunks;
mod filters;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::block::{BlockHandle, BlockIter, BlockKind, BlockValues};
use crate::error::{Error, Result};
use crate::file_header::HEADER_BYTES;
use crate::filename::FileName;
use crate::key::{EntryKind, InternalKey, Tag};
use crate::table_meta::TableMeta;

use super::context::TableContext;
use super::file::TableFile;
use super::footer::FOOTER_BYTES;
use super::properties::Properties;
use super::reader::Table;
use filters::Asked;
use walk::{Ends, Walked};

/// Most pieces of damage that one verification lists: more than the blocks of a table of usual size.
const DAMAGE_MAX: usize = 100_000;

/// Most bytes of keys that stand in the list: entries of an index may share all but a few bytes of theirs.
const KEY_BYTES_LISTED_MAX: usize = 64 << 20;

/// What verifying a table found.
#[derive(Debug, Default)]
pub(crate) struct TableReport {
    pub(crate) damage: Vec<TableDamage>,
    /// Pieces of damage beyond [`DAMAGE_MAX`] and [`KEY_BYTES_LISTED_MAX`].
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

/// Everything that is wrong with the table that `meta` describes. What `ctx` has cached of it is not used, as
/// long as nobody else opens tables with it.
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
    let keys = bounds.clone().unwrap_or_else(|| meta.wide_bounds());
    let mut verifier = Verifier {
        file: table.map_or(&bare, |table| &table.file),
        table,
        meta,
        report: TableReport { bounds, ..TableReport::default() },
        key_bytes_listed: 0,
        keys,
        damaged: BTreeMap::new(),
        holes: Vec::new(),
        blocks: BTreeMap::new(),
        reached: BTreeSet::new(),
        filters: Vec::new(),
        ends: Ends::default(),
        next_chunk: HEADER_BYTES as u64,
        wasted_bytes: 0,
        last: None,
        found: Properties { seqno_min: u64::MAX, ..Properties::default() },
    };
    if let Some(error) = error {
        verifier.report_opening(error.clone());
    }
    let wrong = verifier.open_filters();
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
    wrong.into_iter().for_each(|error| verifier.report(error));
    verifier.report
}

struct Verifier<'a> {
    file: &'a TableFile,
    /// `None` if it could not be opened.
    table: Option<&'a Table>,
    meta: &'a TableMeta,
    report: TableReport,
    key_bytes_listed: usize,
    /// What damage concerns that nothing narrower is known of: at first all keys of the table.
    keys: (Bytes, Bytes),
    /// Damaged blocks of the walk that were not reported yet, by offset.
    damaged: BTreeMap<u64, Error>,
    /// What the walk could not look at.
    holes: Vec<Range<u64>>,
    /// The good blocks of the walk by offset.
    blocks: BTreeMap<u64, Walked>,
    /// Offsets of the blocks that the index leads to.
    reached: BTreeSet<u64>,
    filters: Vec<Asked>,
    ends: Ends,
    /// The next chunk block may not start before this offset.
    next_chunk: u64,
    /// Bytes that were read for chunks where the walk met damage, and were damaged.
    wasted_bytes: u64,
    last: Option<(Vec<u8>, Tag)>,
    /// The properties that the entries add up to.
    found: Properties,
}

impl Verifier<'_> {
    fn report(&mut self, error: Error) {
        self.report_for(error, self.keys.clone());
    }

    fn report_for(&mut self, error: Error, keys: (Bytes, Bytes)) {
        // Where separators are out of order, the last key before a block may be behind its end.
        let keys = if keys.0 <= keys.1 { keys } else { (keys.1, keys.0) };
        let key_bytes = self.key_bytes_listed + keys.0.len() + keys.1.len();
        if self.report.damage.len() < DAMAGE_MAX && key_bytes <= KEY_BYTES_LISTED_MAX {
            self.key_bytes_listed = key_bytes;
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
        let mut entries = BlockIter::new(payload, BlockValues::Index).map_err(in_block)?;
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
            if let Err(detail) = self.follow(handle, levels - 1) {
                self.report_at(at, "index block", detail);
            } else if let Err(error) = self.child(handle, levels) {
                // The child may have been left where something narrower was concerned.
                self.keys = keys;
                self.report_block(handle.offset, error);
            } else if levels > 1 && self.is_last(|last| last < separator) {
                // A lookup between the two would be led there for nothing.
                let detail = "its last separator is before the one that leads to it";
                self.report_at(handle.offset, "index block", detail);
            }
            if self.is_last(|last| last > separator) {
                self.report_at(handle.offset, "index block", "the separator is before the block's last key");
            }
            // What follows must lie behind the separator, not only behind the last key.
            self.last = Some((separator.user.to_vec(), separator.tag));
            entries.next().map_err(in_block)?;
        }
        self.keys = around;
        Ok(())
    }

    /// Whether this is so of the last key or separator that was met.
    fn is_last(&self, so: impl FnOnce(InternalKey<'_>) -> bool) -> bool {
        self.last.as_ref().is_some_and(|(user, tag)| so(InternalKey::new(user, *tag)))
    }

    /// Whether the handle of a block of this level is that of a block of the walk, behind the ones before; or
    /// of one that the walk could not look at.
    fn follow(&mut self, handle: BlockHandle, level: u8) -> Result<(), String> {
        let BlockHandle { offset, len } = handle;
        let end = self.ends[usize::from(level)];
        if offset < end {
            return Err(format!(
                "the block at {offset} does not stand in order, after one that ends at {end}"
            ));
        }
        match self.blocks.get(&offset) {
            Some(walked) if walked.len != len => {
                return Err(format!("the block at {offset} has {} bytes, {len} are referred to", walked.len));
            }
            None if self.hole(offset).is_none() => return Err(format!("no block starts at {offset}")),
            _ => {}
        }
        if !self.reached.insert(offset) {
            return Err(format!("the block at {offset} stands twice"));
        }
        self.ends[usize::from(level)] = offset.saturating_add(len);
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
        let mut entries = BlockIter::new(payload, BlockValues::Data).map_err(in_block)?;
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
            self.chunks(chunks, key.user, at);
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
        let count = |kind| self.blocks.values().filter(|walked| walked.kind == kind).count() as u64;
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
        let end = InternalKey::new(&self.found.largest, Tag::new(0, EntryKind::Delete));
        if !self.is_last(|last| last == end) {
            let detail = "the last separator is not the last user key with tag 0";
            self.report_at(table.footer.root.offset, "index block", detail);
        }
        let lost = |(offset, walked): &(&u64, &Walked)| {
            walked.kind != BlockKind::Padding && !self.reached.contains(*offset)
        };
        let lost: Vec<(u64, BlockKind)> =
            self.blocks.iter().filter(lost).map(|(&offset, walked)| (offset, walked.kind)).collect();
        for (offset, kind) in lost {
            self.report_at(offset, kind.name(), "nothing refers to it");
        }
    }
}
