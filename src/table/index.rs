//! The way from a key to the one data block that can hold it.
//!
//! A lookup searches one index block per level, from the root down. Blocks below the root come from the block
//! cache. What it needs of a block is kept as [`Fences`], if the memory budget has plenty of room: then it is
//! searched in a few cache lines, and the block is not looked at again. Fences are made by the first lookup
//! that comes to the block, and live as long as the table is open. If there is no room at that moment, the
//! block is searched where it lies, by this and by later lookups.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::block::{BlockHandle, BlockKind, BlockValues, Fences, Sought, find};
use crate::error::{Error, Result};
use crate::key::InternalKey;
use crate::memory::{Lease, LeaseKind};

use super::reader::Table;

/// What is in memory of an index block and of those below it.
#[derive(Debug, Default)]
pub(super) struct IndexNode(OnceLock<Option<Box<Loaded>>>);

#[derive(Debug)]
struct Loaded {
    fences: Fences,
    /// One for each index block below, none over data blocks.
    below: Box<[IndexNode]>,
    _lease: Lease,
}

impl IndexNode {
    fn get(&self) -> Option<&Loaded> {
        self.0.get()?.as_deref()
    }
}

impl Loaded {
    /// The block with this number, and what is in memory of it.
    fn child(&self, index: usize) -> (BlockHandle, Option<&IndexNode>) {
        (self.fences.handle(index), self.below.get(index))
    }
}

impl Table {
    /// The payload of the root of the index.
    pub(super) fn root(&self) -> Result<Bytes> {
        match &self.root {
            Some(root) => Ok(root.clone()),
            None => self.file.block(self.footer.root, BlockKind::Index, true),
        }
    }

    /// Finds the data block that holds `target` or its successor, if the table has it.
    pub(super) fn find_data_block(&self, target: InternalKey<'_>) -> Result<Option<BlockHandle>> {
        let (mut block, mut node) = (self.footer.root, Some(&self.index));
        for level in 1..=self.footer.index_depth {
            let loaded = node.and_then(IndexNode::get);
            let found = match loaded.map(|loaded| (loaded, loaded.fences.find(target.user))) {
                Some((loaded, Sought::In(index))) => Some(loaded.child(index)),
                Some((_, Sought::PastEnd)) => None,
                Some((_, Sought::Unknown)) | None => self.search_index_block(block, node, level, target)?,
            };
            match found {
                Some(found) => (block, node) = found,
                // A key after the last separator of the root is not in the table; on lower levels there must
                // be an entry.
                None if level == 1 => return Ok(None),
                None => return Err(self.past_separator(block.offset)),
            }
        }
        Ok(Some(block))
    }

    /// Finds the child of an index block that holds `target`, and what is in memory of it.
    #[inline(never)]
    fn search_index_block<'a>(
        &self,
        block: BlockHandle,
        node: Option<&'a IndexNode>,
        level: u8,
        target: InternalKey<'_>,
    ) -> Result<Option<(BlockHandle, Option<&'a IndexNode>)>> {
        let payload = match level {
            1 => self.root()?,
            _ => self.file.block(block, BlockKind::Index, true)?,
        };
        let in_block = |error| self.file.error_in_block(error, block.offset);
        let Some(found) = find(&payload, BlockValues::Index, target).map_err(in_block)? else {
            return Ok(None);
        };
        let handle = BlockHandle::decode(&payload[found.value]).map_err(in_block)?;
        let loaded =
            node.and_then(|node| node.0.get_or_init(|| self.load_fences(&payload, level)).as_deref());
        let child = loaded.and_then(|loaded| loaded.below.get(loaded.fences.number_of(handle)?));
        Ok(Some((handle, child)))
    }

    /// The fences of an index block on this level, if there is room for them.
    fn load_fences(&self, payload: &Bytes, level: u8) -> Option<Box<Loaded>> {
        if !self.has_room() {
            return None;
        }
        let below = |blocks| if level < self.footer.index_depth { blocks } else { 0 };
        let bytes = |fences, below| (size_of::<Loaded>() + fences + below * size_of::<IndexNode>()) as u64;
        let most = bytes(Fences::bytes_max(payload), below(Fences::len_max(payload)));
        let mut lease = self.file.ctx.memory.try_lease_if_plenty(LeaseKind::Tables, most)?;
        let fences = Fences::of(payload)?;
        let below = below(fences.len());
        lease.shrink(bytes(fences.bytes(), below));
        let below = (0..below).map(|_| IndexNode::default()).collect();
        Some(Box::new(Loaded { fences, below, _lease: lease }))
    }

    pub(super) fn past_separator(&self, index_block: u64) -> Error {
        self.file.corrupt(index_block, "index block", "ends before its separator one level up")
    }
}
