//! Builds the index of a table: `(add)* finish`.
//!
//! 1. Entries (separator, block handle) are collected in partitions of up to [`PARTITION_BYTES`]. They stay in memory
//!    until the filter is written.
//! 2. If all entries fit into one block of [`ROOT_BYTES_MAX`], that block is the root, and the depth is 1.
//! 3. Otherwise the partitions are written. The next level has an entry for each partition: its last separator and its
//!    handle.
//!
//! All partitions but the last have at least [`PARTITION_ENTRIES_MIN`] entries, so each level is smaller by that
//! factor.

use crate::block::{BlockBuilder, BlockHandle, BlockIter, BlockValues};
use crate::error::{Error, Result};
use crate::key::{InternalKey, Tag};
use crate::limits::BLOCK_BYTES_MAX;

use crate::table::footer::INDEX_DEPTH_MAX;

const PARTITION_BYTES: usize = 8 << 10;

const PARTITION_ENTRIES_MIN: usize = 16;

/// The maximum size of a root made from several partitions.
const ROOT_BYTES_MAX: usize = 32 << 10;

#[derive(Debug)]
pub(in crate::table) struct WrittenIndex {
    pub(in crate::table) root: BlockHandle,
    pub(in crate::table) depth: u8,
    pub(in crate::table) blocks: u64,
}

#[derive(Debug)]
pub(in crate::table) struct IndexBuilder {
    current: BlockBuilder,
    current_entries: usize,
    last: (Vec<u8>, Tag),
    partitions: Vec<Partition>,
    partition_bytes: usize,
}

#[derive(Debug)]
struct Partition {
    last: (Vec<u8>, Tag),
    payload: Vec<u8>,
}

impl IndexBuilder {
    pub(in crate::table) fn new() -> Self {
        Self {
            current: BlockBuilder::for_index(),
            current_entries: 0,
            last: (Vec::new(), Tag::newest_at(0)),
            partitions: Vec::new(),
            partition_bytes: 0,
        }
    }

    pub(in crate::table) fn size(&self) -> usize {
        self.partition_bytes + self.current.size()
    }

    pub(in crate::table) fn add(&mut self, separator: (Vec<u8>, Tag), handle: BlockHandle) {
        let mut value = Vec::with_capacity(20);
        handle.encode(&mut value);
        let key = InternalKey::new(&separator.0, separator.1);
        let full = self.current.size_with(key, value.len()) > PARTITION_BYTES;
        if full && self.current_entries >= PARTITION_ENTRIES_MIN {
            self.cut();
        }
        self.current.add(key, &value, false);
        self.current_entries += 1;
        self.last = separator;
    }

    fn cut(&mut self) {
        let payload = self.current.finish().to_vec();
        self.partition_bytes += payload.len();
        self.partitions.push(Partition { last: self.last.clone(), payload });
        self.current.clear();
        self.current_entries = 0;
    }

    /// `write` seals a payload. The index must not be empty.
    pub(in crate::table) fn finish(
        &mut self,
        write: &mut dyn FnMut(&[u8]) -> Result<BlockHandle>,
    ) -> Result<WrittenIndex> {
        let mut blocks = 0;
        for depth in 1..=INDEX_DEPTH_MAX {
            if self.current_entries > 0 {
                self.cut();
            }
            if self.partition_bytes <= ROOT_BYTES_MAX || self.partitions.len() == 1 {
                let root = write(&self.merged()?)?;
                return Ok(WrittenIndex { root, depth, blocks: blocks + 1 });
            }
            let mut above = Self::new();
            for partition in self.partitions.drain(..) {
                above.add(partition.last, write(&partition.payload)?);
                blocks += 1;
            }
            *self = above;
        }
        Err(Error::limit("index depth", INDEX_DEPTH_MAX.into(), u64::from(INDEX_DEPTH_MAX) + 1))
    }

    fn merged(&mut self) -> Result<Vec<u8>> {
        if let [only] = &mut self.partitions[..] {
            return Ok(std::mem::take(&mut only.payload));
        }
        let mut root = BlockBuilder::for_index();
        let own = |_| Error::invalid("the index that was just built cannot be read");
        for partition in self.partitions.drain(..) {
            let mut entries = BlockIter::new(partition.payload.into(), BlockValues::Index).map_err(own)?;
            entries.seek_first().map_err(|error| own(*error))?;
            while let Some(key) = entries.key() {
                root.add(key, entries.value(), false);
                entries.next().map_err(|error| own(*error))?;
            }
        }
        let payload = root.finish();
        if payload.len() > BLOCK_BYTES_MAX {
            return Err(Error::limit("index block", BLOCK_BYTES_MAX as u64, payload.len() as u64));
        }
        Ok(payload.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;

    fn build(blocks: u64, key_len: usize) -> (WrittenIndex, Vec<usize>) {
        let mut builder = IndexBuilder::new();
        for block in 0..blocks {
            let mut key = vec![b'k'; key_len];
            key.extend_from_slice(&block.to_be_bytes());
            let handle = BlockHandle { offset: 64 + block * 4000, len: 4000 };
            builder.add((key, Tag::new(0, EntryKind::Delete)), handle);
        }
        let mut sizes = Vec::new();
        let index = builder.finish(&mut |payload| {
            sizes.push(payload.len());
            Ok(BlockHandle { offset: 1 << 30, len: 20 + payload.len() as u64 })
        });
        (index.unwrap(), sizes)
    }

    #[test]
    fn depth_grows_with_the_number_of_blocks() {
        for (blocks, key_len, depth) in
            [(1, 0, 1), (1000, 8, 1), (4000, 8, 2), (100_000, 8, 2), (2000, 3000, 3), (40, 60_000, 2)]
        {
            let (index, sizes) = build(blocks, key_len);
            assert_eq!(index.depth, depth, "{blocks} blocks");
            assert_eq!(index.blocks, sizes.len() as u64);
            if key_len < 100 {
                assert!(sizes.iter().all(|&size| size <= ROOT_BYTES_MAX));
            }
        }
    }
}
