//! Follows the index of a table during the walk over its blocks.
//!
//! [`Index::peek`] returns the references to data blocks in file order:
//!
//! 1. Each data block must be the next one in the index. Damage in it concerns only the keys between the separators around it.
//! 2. Each index block must have been entered before the walk reaches it.
//! 3. At the end, all references are used, and the last separator is the last user key with tag 0.
//!
//! An unusable index block is skipped together with all blocks below it. The walk reports it.

use std::collections::BTreeSet;

use crate::block::{self, BlockHandle, BlockIter, BlockKind, BlockValues};
use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::inspect::file::Window;
use crate::inspect::output::{Fault, Keys};
use crate::key::{InternalKey, Tag};
use crate::table::Footer;

/// The maximum number of faults kept for the walk. Further faults are reported at once.
const LOST_MAX: usize = 1000;

pub(super) type Key = (Vec<u8>, Tag);

pub(super) struct Index {
    file_id: FileId,
    blocks_end: u64,
    root: BlockHandle,
    is_entered: bool,
    depth: usize,
    /// The end of the last block entered on each level. No byte is read twice.
    ends: Vec<u64>,
    way: Vec<Open>,
    bounds: Option<Keys>,
    before: Option<Key>,
    /// The entered blocks that the walk has not reached.
    entered: BTreeSet<u64>,
    /// Faults by offset, with the keys that they may affect.
    lost: Vec<(u64, (Fault, Option<Keys>))>,
    faults: Vec<(Fault, Option<Keys>)>,
}

struct Open {
    offset: u64,
    entries: BlockIter,
}

pub(super) struct Reference {
    pub(super) handle: BlockHandle,
    pub(super) separator: Key,
    pub(in crate::inspect) keys: Keys,
    pub(super) before: Option<Key>,
    pub(super) from: u64,
}

impl Index {
    pub(super) fn new(footer: &Footer, file_id: FileId, blocks_end: u64, bounds: Option<Keys>) -> Self {
        Self {
            file_id,
            blocks_end,
            root: footer.root,
            is_entered: footer.index_depth == 0,
            depth: footer.index_depth.into(),
            ends: vec![0; footer.index_depth.into()],
            way: Vec::new(),
            bounds,
            before: None,
            entered: BTreeSet::new(),
            lost: Vec::new(),
            faults: Vec::new(),
        }
    }

    pub(super) fn peek(&mut self, window: &Window<'_>) -> Option<Reference> {
        if !self.is_entered {
            self.is_entered = true;
            let bounds = self.bounds.clone();
            self.enter(window, self.root, bounds);
        }
        loop {
            let open = self.way.last()?;
            let separator = open.entries.key()?;
            let separator = (separator.user.to_vec(), separator.tag);
            let handle = BlockHandle::decode(open.entries.value()).ok()?;
            let (from, keys) = (open.offset, self.keys_to(&separator.0));
            if self.way.len() == self.depth {
                return Some(Reference { handle, separator, keys, before: self.before.clone(), from });
            }
            if !self.enter(window, handle, Some(keys)) {
                self.before = Some(separator);
                self.advance();
            }
        }
    }

    pub(super) fn pass(&mut self, separator: Key) {
        self.before = Some(separator);
        self.advance();
    }

    pub(super) fn take_faults(&mut self) -> Vec<(Fault, Option<Keys>)> {
        std::mem::take(&mut self.faults)
    }

    /// Whether a reference leads to this index block, which the walk has reached.
    pub(super) fn meet(&mut self, block: BlockHandle) -> bool {
        self.entered.remove(&block.offset)
    }

    pub(super) fn take_lost(&mut self, offset: u64) -> Option<(Fault, Option<Keys>)> {
        let lost = self.lost.binary_search_by_key(&offset, |lost| lost.0).ok()?;
        Some(self.lost.remove(lost).1)
    }

    /// Returns the blocks that the walk did not reach: the unusable ones, and the offsets of the usable ones.
    pub(super) fn take_rest(&mut self) -> (Vec<(Fault, Option<Keys>)>, Vec<u64>) {
        let lost = self.lost.drain(..).map(|(_, lost)| lost).collect();
        (lost, std::mem::take(&mut self.entered).into_iter().collect())
    }

    pub(super) fn next_block(&self, offset: u64) -> Option<u64> {
        let entered = self.entered.range(offset + 1..).next().copied();
        let lost = self.lost.get(self.lost.partition_point(|lost| lost.0 <= offset)).map(|lost| lost.0);
        entered.into_iter().chain(lost).min()
    }

    pub(super) fn ends_with(&self, last: Option<&Key>) -> bool {
        if self.depth == 0 {
            return last.is_none();
        }
        let ends = |(user, tag): &Key| last.is_some_and(|(last, _)| last == user) && tag.to_u64() == 0;
        self.before.as_ref().is_some_and(ends)
    }

    fn keys_to(&self, separator: &[u8]) -> Keys {
        let first = self.before.as_ref().map(|(user, _)| user);
        let (smallest, largest) = self.bounds.as_ref().map_or((None, None), |(a, b)| (Some(a), Some(b)));
        let first = first.or(smallest).cloned().unwrap_or_default();
        let last = largest.filter(|largest| largest[..] < *separator).map_or(separator, |largest| largest);
        if &first[..] <= last { (first, last.to_vec()) } else { (last.to_vec(), first) }
    }

    fn advance(&mut self) {
        while let Some(mut open) = self.way.pop() {
            let last = open.entries.key().map(|key| (key.user.to_vec(), key.tag));
            if open.entries.next().is_ok() && open.entries.is_valid() {
                self.way.push(open);
                return;
            }
            let (Some(above), Some((user, tag))) = (self.way.last(), last) else { continue };
            let Some(above) = above.entries.key() else { continue };
            // Lookups of keys between the two separators would search this block in vain.
            let detail = match InternalKey::new(&user, tag).cmp(&above) {
                std::cmp::Ordering::Equal => continue,
                std::cmp::Ordering::Less => "its last separator is before the separator in its parent",
                std::cmp::Ordering::Greater => "its last separator is after the separator in its parent",
            };
            let keys = self.keys_to(above.user);
            self.faults.push((DecodeError::corrupt(open.offset, "index block", detail).into(), Some(keys)));
        }
    }

    fn enter(&mut self, window: &Window<'_>, handle: BlockHandle, keys: Option<Keys>) -> bool {
        match self.open(window, handle) {
            Ok(entries) => {
                self.entered.insert(handle.offset);
                self.way.push(Open { offset: handle.offset, entries });
                true
            }
            Err(fault) if self.lost.len() < LOST_MAX => {
                if let Err(place) = self.lost.binary_search_by_key(&handle.offset, |lost| lost.0) {
                    self.lost.insert(place, (handle.offset, (fault, keys)));
                }
                false
            }
            Err(fault) => {
                self.faults.push((fault, keys));
                false
            }
        }
    }

    fn open(&mut self, window: &Window<'_>, handle: BlockHandle) -> Result<BlockIter, Fault> {
        let offset = handle.offset;
        handle.check(self.blocks_end).map_err(|error| DecodeError { offset, ..error })?;
        let end = &mut self.ends[self.way.len()];
        if offset < *end {
            let detail = format!("is out of order, after one of its level that ends at {end}");
            return Err(DecodeError::corrupt(offset, "index block", detail).into());
        }
        *end = offset + handle.len;
        let sealed = window.apart(offset, handle.len)?;
        let payload =
            block::open(&self.file_id, offset, sealed, BlockKind::Index).map_err(|error| error.at(offset))?;
        let in_block = |error: DecodeError| DecodeError { offset, ..error };
        let mut entries = BlockIter::new(payload, BlockValues::Index).map_err(in_block)?;
        entries.verify().map_err(in_block)?;
        entries.seek_first().map_err(|error| in_block(*error))?;
        Ok(entries)
    }
}
