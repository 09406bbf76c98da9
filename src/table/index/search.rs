//! Finds the only data block that can hold a key.
//!
//! A lookup searches one index block per level. If memory allows, the first lookup in a block stores its separators as
//! [`Fences`] while the table is open. Otherwise each lookup searches the block itself; blocks below the root come from
//! the block cache.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::block::{BlockHandle, BlockKind, BlockValues, Fences, Sought, find};
use crate::error::{Error, Result};
use crate::key::InternalKey;
use crate::memory::{Lease, LeaseKind};

use crate::table::file::TableFile;
use crate::table::footer::Footer;

#[derive(Debug, Default)]
struct IndexNode(OnceLock<Option<Box<Loaded>>>);

#[derive(Debug)]
struct Loaded {
    fences: Fences,
    below: Box<[IndexNode]>,
    _lease: Lease,
}

#[derive(Debug)]
pub(in crate::table) struct Index {
    root: Option<Bytes>,
    node: IndexNode,
}

impl Index {
    pub(in crate::table) fn new(root: Option<Bytes>, keeps_fences: bool) -> Self {
        let none = || IndexNode(OnceLock::from(None));
        Self { root, node: if keeps_fences { IndexNode::default() } else { none() } }
    }

    pub(in crate::table) fn root(&self, file: &TableFile, footer: &Footer) -> Result<Bytes> {
        match &self.root {
            Some(root) => Ok(root.clone()),
            None => file.block(footer.root, BlockKind::Index, true),
        }
    }

    pub(in crate::table) fn find_data_block(
        &self,
        file: &TableFile,
        footer: &Footer,
        target: InternalKey<'_>,
    ) -> Result<Option<BlockHandle>> {
        if !footer.has_entries() {
            return Ok(None);
        }
        let (mut block, mut node) = (footer.root, Some(&self.node));
        for level in 1..=footer.index_depth {
            let loaded = node.and_then(|node| node.0.get()?.as_deref());
            let found = match loaded.map(|loaded| (loaded, loaded.fences.find(target.user))) {
                Some((Loaded { fences, below, .. }, Sought::In(index))) => {
                    Some((fences.handle(index), below.get(index)))
                }
                Some((_, Sought::PastEnd)) => None,
                Some((_, Sought::Unknown)) | None => {
                    self.search_block(file, footer, block, node, level, target)?
                }
            };
            match found {
                Some(found) => (block, node) = found,
                // Keys after the root's last separator are not in the table. On lower levels, an entry must exist.
                None if level == 1 => return Ok(None),
                None => return Err(past_separator(file, block.offset)),
            }
        }
        Ok(Some(block))
    }

    #[inline(never)]
    fn search_block<'a>(
        &self,
        file: &TableFile,
        footer: &Footer,
        block: BlockHandle,
        node: Option<&'a IndexNode>,
        level: u8,
        target: InternalKey<'_>,
    ) -> Result<Option<(BlockHandle, Option<&'a IndexNode>)>> {
        let payload = match level {
            1 => self.root(file, footer)?,
            _ => file.block(block, BlockKind::Index, true)?,
        };
        let in_block = |error| file.error_in_block(error, block.offset);
        let Some(found) = find(&payload, BlockValues::Index, target).map_err(in_block)? else {
            return Ok(None);
        };
        let handle = BlockHandle::decode(&payload[found.value]).map_err(in_block)?;
        let load = || load_fences(file, &payload, level < footer.index_depth);
        let loaded = node.and_then(|node| node.0.get_or_init(load).as_deref());
        let child = loaded.and_then(|loaded| loaded.below.get(loaded.fences.number_of(handle)?));
        Ok(Some((handle, child)))
    }
}

/// Returns `None` if memory is short. `is_upper`: the block refers to index blocks.
fn load_fences(file: &TableFile, payload: &Bytes, is_upper: bool) -> Option<Box<Loaded>> {
    let below = |blocks| if is_upper { blocks } else { 0 };
    let loaded = size_of::<Loaded>() - size_of::<Fences>();
    let bytes = |fences, below| (loaded + fences + below * size_of::<IndexNode>()) as u64;
    let most = bytes(Fences::bytes_max(payload), below(Fences::len_max(payload)));
    let mut lease = file.ctx.memory.try_lease_if_plenty(LeaseKind::Tables, most)?;
    let fences = Fences::of(payload)?;
    let below = below(fences.len());
    lease.shrink(bytes(fences.bytes(), below));
    let below = (0..below).map(|_| IndexNode::default()).collect();
    Some(Box::new(Loaded { fences, below, _lease: lease }))
}

pub(in crate::table) fn past_separator(file: &TableFile, index_block: u64) -> Error {
    file.corrupt(index_block, "index block", "ends before its separator one level up")
}
